/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * stop.h - the running task is stopped when its groups' run time or its turn is used up
 *
 * Problem    A limit holds only if a task without run time leaves its CPU at once: a tick, up to 10 ms away, is too
 *            late for a quota of 1 ms.
 *
 * Mechanism  As a task begins to run, this CPU's timer is set to the end of what its groups may still use here, or of
 *            its turn if others wait, or as soon as one does. It ends the slice, and dispatch finds whether the task must
 *            stop. A task that is in a system call by then runs on to the border of user space (border.h), for GO_ON_NS at
 *            most, and is parked there.
 *
 *            The timer is not set anew where it fires earlier already: many short turns start it once a slice.
 *
 * Limits     Run time beyond STOP_LOOKAHEAD_NS is not asked for: a tick comes first, and looks again. A budget below
 *            min_run_ns is rounded up to it, which becomes debt of the balance.
 */
#ifndef PLIMSOLL_STOP_H
#define PLIMSOLL_STOP_H

static __always_inline void set_slice(struct task_struct *p, u64 slice_ns)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice_ns);
	else
		p->scx.slice = slice_ns;
}

#define GO_ON_NS PL_MS		       /* most system calls have ended by then */
#define STOP_LOOKAHEAD_NS (10 * PL_MS) /* beyond this the tick is early enough to look again */

/*
 * at_border will be called, and others are served where that takes long. It comes in vain while the kernel hands over the CPUs: until
 * then it takes none away, and spinners of two CPUs ran for six milliseconds each.
 */
static __always_inline void goes_on_to_border(struct live_cpu PL_MEM *c, u32 cpu, u64 now_ns)
{
	c->stop_at_ns = now_ns + GO_ON_NS;
	arm_cpu_timer(c, cpu, c->stop_at_ns, now_ns);
}

/*
 * The task runs on this CPU from now on: sees to it that it is stopped when its groups' run time or its turn is used up.
 * If the former is so already, it is in a system call, and stopped as it leaves it.
 */
static __always_inline void arm_stop(struct task_struct *p, struct live_task PL_MEM *task,
				     struct live_cpu PL_MEM *c, u32 cpu, u64 now_ns)
{
	u64 budget_ns = task->grant_ns ?: NO_STOP;

	c->stop_at_ns = 0;
	if (!task->grant_ns && is_limited(task->group)) {
		budget_ns = budget_of((u64)task->group, cpu, STOP_LOOKAHEAD_NS);
		/* Nothing left, and the pool had nothing, either. */
		if (!budget_ns && throttled_at((u64)task->group, cpu) && ask_at_border(p, task)) {
			goes_on_to_border(c, cpu, now_ns);
			return;
		}
		budget_ns = pl_max(budget_ns, settings.min_run_ns);
	}
	budget_ns = pl_fair_turn(&c->fair, turn_left(c, now_ns), budget_ns);
	if (budget_ns == NO_STOP)
		return;
	c->stop_at_ns = now_ns + budget_ns;
	arm_cpu_timer(c, cpu, c->stop_at_ns, now_ns);
}

/* A task has this CPU again after one of another class: its turn is what was left of it, and nothing was picked. */
static __always_inline void goes_on(struct task_struct *p, struct live_task PL_MEM *task,
				    struct live_cpu PL_MEM *c, u32 cpu, u64 now_ns)
{
	c->turn_ends_ns += now_ns;
	arm_stop(p, task, c, cpu, now_ns);
}

/* A task has this CPU from now on, or for one more turn. */
static __always_inline void picked(struct task_struct *p, struct live_task PL_MEM *task,
				   struct live_cpu PL_MEM *c, u32 cpu, u64 now_ns)
{
	set_gives_way(c, task->t.idle);
	c->turn_ends_ns = now_ns + turn_begins((u64)task, now_ns);
	arm_stop(p, task, c, cpu, now_ns);
}

/*
 * The running task is out of run time, but in a system call: it runs on to the border of user space, and is
 * stopped there. To give its CPU to others on the way costs two switches; it has to where the call takes longer
 * than GO_ON_NS.
 */
static __always_inline bool goes_to_border(struct task_struct *p, struct live_task PL_MEM *task,
					   struct live_cpu PL_MEM *c, u32 cpu, u64 now_ns)
{
	if (pl_read(&task->border_asked) || is_at_border(task, now_ns) || !in_kernel(p) ||
	    !ask_at_border(p, task))
		return false;
	set_slice(p, GO_ON_NS);
	goes_on_to_border(c, cpu, now_ns);
	return true;
}

#endif

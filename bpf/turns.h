/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * turns.h - whose turn it is on a CPU, by lag and deadline (policy/steps.h), in a build with PL_EEVDF
 *
 * Problem    A dispatch queue has one order. Which of a tree of groups is due the CPU is no order of their tasks.
 *
 * Mechanism  Tasks wait in their CPU's dispatch queue as ever, in order of vruntime, from where other CPUs take them. A task
 *            that counts on a CPU (pl_task_count) stands in its group's line there, too. The CPU picks by its lines, and
 *            moves that task out of its queue. Where it is not there, because it is on its way elsewhere, the head of the
 *            queue is taken.
 *
 * Trade-offs Not in the default build: docs/src/lab/eevdf.md says what it gains and costs. As a switch at run time it would be
 *            loaded, walked or not, and loading took 2.4 s on 7.2 for 2 that are allowed.
 *
 * Concurrency  Lines are the CPU's: under its lock.
 */
#ifndef PLIMSOLL_TURNS_H
#define PLIMSOLL_TURNS_H

#if PL_EEVDF
#define TURN_FN __noinline
#else
#define TURN_FN static __always_inline /* called by nothing: not in the object */
#endif

/* The first cgroup that the kernel shows is the root: slot 0 is headroom's side. */
#define ROOT_SLOT 1

/* Balance is fair.h's here: common timelines, which task->vruntime is on. */
#define NO_DOMAIN ((struct pl_domain PL_MEM *)NULL)

/* With the lock. */
TURN_FN int turn_enters(u64 task_address)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;

	pl_steps_enter(NO_DOMAIN, &task->t, &task->turn, task->pid, &S->config.fair);
	return 0;
}

/* With the lock. */
TURN_FN int turn_leaves(u64 task_address, bool sleeps)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;

	pl_steps_leave(NO_DOMAIN, &task->t, &task->turn, sleeps, false);
	return 0;
}

TURN_FN int turn_ran(u64 task_address, u64 delta_ns)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	struct live_cpu PL_MEM *c = cpu_of(task->t.cpu);

	cpu_lock(c);
	if (task->turn.entity.on)
		pl_steps_ran(NO_DOMAIN, &task->t, &task->turn, delta_ns, &S->config.fair);
	cpu_unlock(c);
	return 0;
}

/* The task's turn begins. Run time until it may be another's. */
TURN_FN u64 turn_begins(u64 task_address)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	struct live_cpu PL_MEM *c = cpu_of(task->t.cpu);
	u64 slice_ns = settings.config.fair.slice_ns;

	cpu_lock(c);
	if (task->turn.entity.on) {
		pl_steps_tick(&task->t);
		pl_steps_picked(&task->t, &task->turn);
		slice_ns = pl_steps_slice(&task->t, &task->turn, &S->config.fair);
	}
	cpu_unlock(c);
	return slice_ns;
}

/* Whose turn it is on a CPU; 0: nobody's. */
TURN_FN s32 whose_turn(u32 cpu)
{
	struct live_cpu PL_MEM *c = cpu_of(cpu);
	struct pl_group PL_MEM *root = &S->groups[ROOT_SLOT]->g;
	s32 pid = 0;

	cpu_lock(c);
	if (pl_node_of(root, cpu)->line.n)
		pid = (s32)pl_steps_pick(root, cpu, false);
	cpu_unlock(c);
	return pid;
}

/* See pl_steps_preempts. Where one of the two is in no line of the CPU, it does not. */
TURN_FN bool turn_preempts(u64 woken_address, u64 running_address, u64 ran_ns)
{
	struct live_task PL_MEM *woken = (struct live_task PL_MEM *)woken_address;
	struct live_task PL_MEM *running = (struct live_task PL_MEM *)running_address;
	struct live_cpu PL_MEM *c = cpu_of(woken->t.cpu);
	bool preempts = false;

	cpu_lock(c);
	if (woken->turn.entity.on && running->turn.entity.on && running->t.cpu == woken->t.cpu)
		preempts = pl_steps_preempts(&woken->t, &woken->turn, &running->t, &running->turn, ran_ns,
					     &S->config.fair);
	cpu_unlock(c);
	return preempts;
}

/* With sched_yield(). */
TURN_FN int turn_yields(u64 task_address)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	struct live_cpu PL_MEM *c = cpu_of(task->t.cpu);

	cpu_lock(c);
	if (task->turn.entity.on)
		pl_steps_yield(&task->t, &task->turn);
	cpu_unlock(c);
	return 0;
}

/* Takes a task that waits in this CPU's queue out of it, to run next. */
TURN_FN bool take_turn(u32 cpu, s32 pid)
{
	struct task_struct *p = bpf_task_from_pid(pid);
	struct bpf_iter_scx_dsq it;
	bool taken = false;

	if (!p)
		return false;
	/* A move needs an iterator, and not that it has come to the task. */
	if (!bpf_iter_scx_dsq_new(&it, cpu, 0))
		taken = scx_bpf_dsq_move(&it, p, SCX_DSQ_LOCAL, 0);
	bpf_iter_scx_dsq_destroy(&it);
	bpf_task_release(p);
	return taken;
}

#endif

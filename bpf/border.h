/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * border.h - a throttled task in the kernel is stopped as it goes back to user space
 *
 * Problem    A task that is out of run time in a system call may hold a lock, and is not parked there. To look again
 *            every 50 us until it happens to be in user space takes hundreds of looks where it seldom is: dd with a
 *            large buffer ran for 22 ms beyond its 20 ms, and lost a seventh of its work.
 *
 * Mechanism  As it is picked, or is found out of run time while it runs, the kernel is asked to call back on the task's
 *            way to user space (the kernel's own class does the same since 6.18). There it holds nothing but what the
 *            callback itself does: it asks for its CPU to be taken away, and is parked within the callback or right
 *            after it.
 *
 * Limits     From 6.18 on; before, and where the kernel has no memory to call back, the CPU's timer looks. One
 *            request for each pid modulo BORDERS at a time: a task that sleeps in the call keeps it from the others. While
 *            it is parked the task counts as a reader of RCU tasks trace. To remove BPF programs, what they have
 *            allocated, or probes of user space is to wait for the end of all such readers. Threads that the kernel
 *            runs for a process (io_uring, vhost) have no user space to go back to; they call back with locks held, or
 *            never.
 */
#ifndef PLIMSOLL_BORDER_H
#define PLIMSOLL_BORDER_H

#define BORDERS (1U << 16) /* of 8 bytes */
/* The interrupt that takes the CPU away comes at once. Beyond this the task may be in another call again. */
#define BORDER_NS PL_MS

struct border {
	struct bpf_task_work work;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BORDERS);
	__type(key, u32);
	__type(value, struct border);
} borders SEC(".maps");

/* On its way to user space, in its own context. */
static int at_border(struct bpf_map *map, void *key, void *value)
{
	struct live_task PL_MEM *task = task_of(bpf_get_current_task_btf());
	u32 cpu = bpf_get_smp_processor_id();

	if (!task)
		return 0;
	pl_write(&task->border_asked, 0);
	if (!task->runnable || task->t.cpu != cpu || !is_limited(task->group))
		return 0;
	/* The interrupt comes at once, and the kick itself is a reader of RCU: the CPU is taken away after it, not in it. */
	bpf_preempt_disable();
	/* Else it has run time again: dispatch sees to the end of that. */
	if (must_stop(task, cpu))
		pl_write(&task->border_at_ns, scx_bpf_now());
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	bpf_preempt_enable();
	return 0;
}

/* Asks for at_border, unless that is done already. Whether it will be called. */
static __always_inline bool ask_at_border(struct task_struct *p, struct live_task PL_MEM *task)
{
	u32 key = (u32)task->pid % BORDERS;
	struct border *border;
	int error;

	if (pl_read(&task->border_asked))
		return true;
	border = bpf_map_lookup_elem(&borders, &key);
	if (!border || (p->flags & (PF_EXITING | PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER)))
		return false;
	pl_write(&task->border_asked, 1);
	if (bpf_ksym_exists(bpf_task_work_schedule_resume))
		error = bpf_task_work_schedule_resume(p, &border->work, &borders, at_border);
	else if (bpf_ksym_exists(bpf_task_work_schedule_resume_impl))
		error = bpf_task_work_schedule_resume_impl(p, &border->work, &borders, at_border, NULL);
	else
		error = -ENOENT;
	if (error)
		pl_write(&task->border_asked, 0);
	return !error;
}

/* Whether the task, running until now, is in at_border, or just behind it, and holds nothing. */
static __always_inline bool is_at_border(struct live_task PL_MEM *task, u64 now_ns)
{
	return task->border_at_ns && now_ns - task->border_at_ns < BORDER_NS;
}

static __always_inline void leave_border(struct live_task PL_MEM *task)
{
	/* pl_write: two plain stores side by side become a memset, for which the arena has no address. */
	pl_write(&task->border_at_ns, 0);
	pl_write(&task->waits_exec_ns, 0);
}

#endif

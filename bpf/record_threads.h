/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which threads are recorded, and what the reader is told of each: its name and its group, once. Included by record.bpf.c.
 */
#ifndef PLIMSOLL_RECORD_THREADS_H
#define PLIMSOLL_RECORD_THREADS_H

static __noinline int is_below(struct cgroup_subsys_state *css)
{
	for (int i = 0; css && i < CGROUP_DEPTH_MAX; i++) {
		if (BPF_CORE_READ(css, cgroup, kn, id) == only_below_id)
			return 1;
		css = BPF_CORE_READ(css, parent);
	}
	return 0;
}

/* Names this thread to the reader, and says that its name will be `comm` if that is given. Slow; once a thread, and when it changed. */
static __noinline int announce(struct task_struct *task, struct seen *seen, __u64 now, const char *comm)
{
	struct cgroup_subsys_state *css = NULL;
	struct record_thread record = {};
	int cpu_cgrp = 1;
	bool wanted;

	if (!task || !seen)
		return 0;
	hz = CONFIG_HZ;
	if (bpf_core_enum_value_exists(enum cgroup_subsys_id, cpu_cgrp_id))
		cpu_cgrp = bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);
	struct css_set *cgroups = BPF_CORE_READ(task, cgroups);
	bpf_core_read(&css, sizeof(css), &cgroups->subsys[cpu_cgrp & 15]);

	wanted = !only_below_id || is_below(css);
	/* Also when it leaves the tree: the reader would take it to run there until the end. */
	if (wanted || seen->wanted) {
		seen->wanted = 1;
		record.type = RECORD_TYPE_THREAD;
		record.cpu = bpf_get_smp_processor_id();
		record.ts_ns = now;
		record.group_id = BPF_CORE_READ(css, cgroup, kn, id);
		record.tid = BPF_CORE_READ(task, pid);
		record.tgid = BPF_CORE_READ(task, tgid);
		if (comm)
			bpf_probe_read_kernel_str(&record.comm, sizeof(record.comm), comm);
		else
			BPF_CORE_READ_INTO(&record.comm, task, comm);
		if (!send_single(&record, sizeof(record)))
			return 0; /* tried again the next time it is seen */
	}
	seen->wanted = wanted;
	seen->task_group = (__u64)BPF_CORE_READ(task, sched_task_group);
	return 0;
}

/* Whether this thread's events are wanted; announces it if it is new or moved. `known`: that could be said for sure. */
static __always_inline bool look_up(struct task_struct *task, __u64 now, bool *known)
{
	struct seen *seen;

	*known = true;
	if (!task->pid)
		return !only_below_id;
	seen = bpf_task_storage_get(&seen_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	*known = false;
	if (!seen)
		return !only_below_id;
	if (seen->task_group != (__u64)task->sched_task_group)
		announce(task, seen, now, NULL);
	*known = seen->task_group == (__u64)task->sched_task_group;
	return seen->wanted;
}

static __always_inline bool touch(struct task_struct *task, __u64 now)
{
	bool known;

	return look_up(task, now, &known);
}

/*
 * As touch, for programs that run with interrupts off: asks this CPU's table first. `now` of 0: the clock is asked if that is
 * needed, so that threads which are not recorded cost no look at it.
 */
static __always_inline bool recall(struct cpu_state *state, struct task_struct *task, __u64 now)
{
	__u32 tid = task->pid;
	struct known *known = &state->known[tid % KNOWN_THREADS];
	__u64 group = (__u64)task->sched_task_group;
	bool wanted, sure;

	if (known->task == (__u64)task && known->task_group == group && known->tid == tid)
		return known->wanted;
	wanted = look_up(task, now ? now : bpf_ktime_get_ns(), &sure);
	known->task = sure ? (__u64)task : 0;
	known->task_group = group;
	known->tid = tid;
	known->wanted = wanted;
	return wanted;
}

#endif

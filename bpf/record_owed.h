/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a thread, or its group, is owed by the kernel's fair class (6.6 and later) where it and another group's part: its lag in the queue
 * in which both stand. It decides who goes first, follows from all that ran before, and is in no other event. It is noted as a thread is
 * woken beside one that runs, where either is recorded.
 *
 * lag = w (V - v) of the entity; V = v0 + sum of w_i (v_i - v0) / sum of w_i, over what is queued and what runs. The kernel keeps the
 * sums without what runs. Source: avg_vruntime() of kernel/sched/fair.c. Included by record.bpf.c.
 */
#ifndef PLIMSOLL_RECORD_OWED_H
#define PLIMSOLL_RECORD_OWED_H

/* What counts as nice 0 in a weight, and in one that has the fraction that 64 bits have room for. */
#define OWED_WEIGHT_SHIFT 10

/* What is read through it is a plain load that may fault. A read by helper costs as much as all of these together. */
static __always_inline struct sched_entity *entity(void *at)
{
	return bpf_rdonly_cast(at, bpf_core_type_id_kernel(struct sched_entity));
}

/* V of a queue. The caller has its lock. */
static __always_inline __u64 owed_mean(struct cfs_rq *queue)
{
	struct cfs_rq___6_6 *older = (void *)queue;
	struct sched_entity *running = queue->curr;
	__u64 weight, v0;
	__s64 sum;

	if (bpf_core_field_exists(queue->zero_vruntime))
		v0 = queue->zero_vruntime;
	else
		v0 = older->min_vruntime;
	if (bpf_core_field_exists(queue->sum_weight)) {
		sum = queue->sum_w_vruntime;
		weight = queue->sum_weight;
	} else {
		sum = older->avg_vruntime;
		weight = older->avg_load;
	}
	if (running && running->on_rq) {
		__u64 own = running->load.weight >> OWED_WEIGHT_SHIFT;

		sum += (__s64)(running->vruntime - v0) * (__s64)own;
		weight += own;
	}
	if (!weight)
		return v0;
	return sum < 0 ? v0 - (-sum + weight - 1) / weight : v0 + sum / weight;
}

/* Two entities on one CPU, on the way up to the queue that both are in. */
struct owed_pair {
	struct sched_entity *own;
	struct sched_entity *other;
	bool met;
};

/* One step, of the deeper one. A loop of the program's own takes the verifier half a second. */
static long owed_climb(__u32 step, struct owed_pair *at)
{
	struct sched_entity *own = entity(at->own), *other = entity(at->other);
	int own_depth = own->depth, other_depth = other->depth;

	at->met = own_depth == other_depth && own->cfs_rq == other->cfs_rq;
	if (at->met)
		return 1;
	if (own_depth >= other_depth)
		at->own = own->parent;
	if (other_depth >= own_depth)
		at->other = other->parent;
	return !at->own || !at->other;
}

/*
 * What a thread, or its group, is owed beside another one on its CPU: ns of service, within 2^31; below 0 it owes that. The caller has
 * the queue's lock. False: they are of one group, or it cannot be told.
 */
static __always_inline bool owed(struct task_struct *task, struct task_struct *beside, __s32 *owed_ns)
{
	struct owed_pair at = {.own = &task->se, .other = &beside->se};
	struct sched_entity *own;
	__s64 ahead, weight, lag;

	if (task->se.cfs_rq == beside->se.cfs_rq)
		return false;
	bpf_loop(2 * CGROUP_DEPTH_MAX, owed_climb, &at, 0);
	if (!at.met)
		return false;
	own = entity(at.own);
	weight = own->load.weight;
	ahead = owed_mean(own->cfs_rq) - own->vruntime;
	if (ahead > 1LL << 36 || ahead < -(1LL << 36) || weight > 1LL << 27)
		return false;
	lag = ahead * weight >> 2 * OWED_WEIGHT_SHIFT;
	if (lag > 0x7fffffffLL)
		lag = 0x7fffffffLL;
	if (lag < -0x7fffffffLL)
		lag = -0x7fffffffLL;
	*owed_ns = lag;
	return true;
}

/* It is in its queue, the lock of which is held. */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	struct cpu_state *state = this_cpu(), *target;
	struct record_event event = {};
	struct task_struct *running;
	__s32 owed_ns = 0;
	__u32 zero = 0;

	if (!state)
		return 0;
	/* Most often nothing runs there, or nothing of the fair class. */
	running = task->se.cfs_rq->rq->curr;
	if (!running->pid || running == task || !running->se.on_rq)
		return 0;
	if (!recall(state, task, 0)) {
		target = bpf_map_lookup_percpu_elem(&cpu_states, &zero, task->thread_info.cpu);
		if (!target || !target->current_wanted)
			return 0;
	}
	if (!owed(task, running, &owed_ns))
		return 0;
	event.a = task->pid;
	event.b = owed_ns;
	event.kind = RECORD_KIND_OWED;
	push(state, bpf_ktime_get_ns(), &event);
	return 0;
}

#endif

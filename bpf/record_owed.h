/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a thread, or its group, is owed by the kernel's fair class (6.6 and later) where it and another group's part: its lag in the queue
 * in which both stand. It decides who goes first, follows from all that ran before, and is in no other event. It is noted as a thread is
 * woken beside one that runs, where either is recorded; and what the one that runs is owed there, as there may be more in that queue.
 *
 * lag = w (V - v) of the entity; V = v0 + sum of w_i (v_i - v0) / sum of w_i, over what is queued and what runs. The kernel keeps the
 * sums without what runs. Source: avg_vruntime() of kernel/sched/fair.c. Included by record.bpf.c.
 */
#ifndef PLIMSOLL_RECORD_OWED_H
#define PLIMSOLL_RECORD_OWED_H

/* The fraction of a weight. */
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
		__u32 shift = OWED_WEIGHT_SHIFT;
		__u64 own;

		/* Since 7.1 the sums are of weights with their fraction. */
		if (bpf_core_field_exists(queue->sum_shift))
			shift = queue->sum_shift;
		own = running->load.weight >> (shift & 63);
		if (own < 2)
			own = 2;
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

/* The lag of an entity in a queue whose V is `mean`: ns of service, below 0: it owes that. False: it cannot be told. */
static __always_inline bool owed_lag(struct sched_entity *of, __u64 mean, __s64 *lag)
{
	__s64 ahead = mean - of->vruntime, weight = of->load.weight;

	if (ahead > 1LL << 36 || ahead < -(1LL << 36) || weight > 1LL << 27)
		return false;
	*lag = ahead * weight >> 2 * OWED_WEIGHT_SHIFT;
	return true;
}

static __always_inline __s64 within(__s64 value, __s64 bound)
{
	return value > bound ? bound : value < -bound ? -bound : value;
}

/*
 * What a thread, or its group, is owed beside another one on its CPU, and that one: into the event. The caller has the queue's lock.
 * False: they are of one group, or it cannot be told.
 */
static __always_inline bool owed(struct task_struct *task, struct task_struct *beside,
				 struct record_event *event)
{
	struct owed_pair at = {.own = &task->se, .other = &beside->se};
	struct sched_entity *own;
	__u64 mean;
	__s64 lag;

	if (task->se.cfs_rq == beside->se.cfs_rq)
		return false;
	bpf_loop(2 * CGROUP_DEPTH_MAX, owed_climb, &at, 0);
	if (!at.met)
		return false;
	own = entity(at.own);
	mean = owed_mean(own->cfs_rq);
	if (!owed_lag(own, mean, &lag))
		return false;
	event->b = within(lag, 0x7fffffff);
	if (!owed_lag(entity(at.other), mean, &lag))
		return false;
	lag = within(lag >> RECORD_OWED_SHIFT, 0x7fffff);
	event->mask = lag;
	event->arg = lag >> 16;
	return true;
}

/* It is in its queue, the lock of which is held. */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	struct cpu_state *state = this_cpu(), *target;
	struct record_event event = {};
	struct task_struct *running;
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
	if (!owed(task, running, &event))
		return 0;
	event.a = task->pid;
	event.kind = RECORD_KIND_OWED;
	push(state, bpf_ktime_get_ns(), &event);
	return 0;
}

#endif

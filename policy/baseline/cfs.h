/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * cfs.h - turns in order of vruntime, as the kernel's fair class took them before 6.6. Simulator only.
 *
 * Problem    What is measured on a kernel is compared with that kernel: its tasks take turns by other rules than steps.h's.
 *
 * Mechanism  A CPU's tasks wait in one queue in order of vruntime, which advances by run time over effective weight; the
 *            kernel has one queue for each group. A waking task is placed no further back than a little before the queue's
 *            clock, so that a long sleep earns no more than that; one that was preempted or moved keeps what it is owed.
 *
 *            A running task uses up what is due to its whole group on that CPU, and to all groups above: a group's queue has a
 *            vruntime, too, and none of its tasks and child queues is further behind it than a few slices. What tasks that
 *            sleep most of the time take is so paid by those of their group that wait, in whatever child group they are.
 *
 * Formula    vruntime += delta * 2^20 / weight
 *            vruntime of a queue += delta / queue, for all of its tasks; a task of it that waits for its next turn is at that
 *                     - 2 slices * runnable there / queue at least, a child queue at twice as much
 *            clock    = highest vruntime picked
 *            place:   preempted or moved: vruntime = max(vruntime, clock - owed)
 *                     owed = lag_max * 2^20 / max(sum of weights queued here, 1024's)
 *                     woken: vruntime = max(vruntime, clock - credit), credit in weight-1024 time
 *            bound:   vruntime <= clock + wait_max * 2^20 / (sum of weights queued here)
 *            slice    = latency * weight / sum of weights, not below slice_ns
 *            preempts: woken + wakeup_gran / weight < running
 *
 * Trade-offs One queue for all groups of a CPU: kept in step by the third rule, where the kernel picks level by level.
 *
 * Limits     CPUs' clocks are not compared. What a task, a queue and a CPU need for it stands in their structs of
 *            task.h, group.h and fair.h, marked "baseline/cfs.h only", so that one layout serves both rules.
 *
 * Source: kernel/sched/fair.c of 5.x and 6.1.
 */
#ifndef PL_CFS_H
#define PL_CFS_H

#include "task.h"

/* The default: as much as hackbench needs, where a woken task often waits for its waker to finish. */
#define PL_CFS_WAKEUP_GRAN_NS (4 * PL_MS)

/* How far behind its group's queue a task that waits may be, in turns: siblings that take turns are within one. */
#define PL_CFS_TURNS 2

/* Of a task that comes: 5 hours of nice 0. Times a task's weight it fits into 64 bits. */
#define PL_CFS_CLAIM_MAX (1ULL << 44)

/* What a queue weighs on its CPU, in the unit of a task's effective weight. */
PL_INLINE u64 pl_cfs_queue_weight(const struct pl_queue PL_MEM *queue)
{
	return queue->effective >> (PL_EFFECTIVE_SHIFT - PL_FAIR_WEIGHT_SHIFT);
}

/* How far before its CPU's clock a woken task may be placed. */
PL_INLINE u64 pl_cfs_credit(const struct pl_fair_config PL_MEM *config)
{
	return pl_fair_scale(config->sleeper_credit_ns, PL_FAIR_WEIGHT_ONE);
}

/* The bound on waiting, as a vruntime: a task that enters a queue with `weight` goes no further back. */
PL_INLINE u64 pl_cfs_latest(const struct pl_fair_cpu PL_MEM *cpu, u64 weight,
			    const struct pl_fair_config PL_MEM *config)
{
	return cpu->clock + pl_fair_scale(config->wait_max_ns, pl_max(cpu->weight_sum, weight));
}

/*
 * What is served in a queue, a task or the queue of a child group, is no further behind it than as many turns of all
 * that is runnable there, or than `credit` if that is more. Returns its vruntime.
 */
PL_INLINE u64 pl_cfs_keep_up(const struct pl_queue PL_MEM *queue, u64 vruntime, u64 turns, u64 credit,
			     const struct pl_fair_config PL_MEM *config)
{
	u64 behind = pl_fair_scale(turns * config->slice_ns * queue->nr_runnable, pl_cfs_queue_weight(queue));
	u64 earliest = queue->vruntime - pl_max(behind, credit);

	return pl_fair_before(vruntime, earliest) ? earliest : vruntime;
}

/* A new task, before it first becomes runnable: it begins at the clock of CPU `cpu`, whose numbers are `fair`. */
PL_FN void pl_cfs_born(struct pl_task PL_MEM *task, u32 cpu, const struct pl_fair_cpu PL_MEM *fair)
{
	task->cpu = cpu;
	task->vruntime = fair->clock;
}

/* A task goes to another CPU, which has a clock of its own: its distance from the clock goes along. */
PL_FN void pl_cfs_moved(struct pl_task PL_MEM *task, const struct pl_fair_cpu PL_MEM *from,
			const struct pl_fair_cpu PL_MEM *to)
{
	task->vruntime += to->clock - from->clock;
	task->came = 1;
}

/* A task was picked to run, or runs on: the queue's clock follows. */
PL_FN void pl_cfs_picked(struct pl_fair_cpu PL_MEM *cpu, u64 vruntime)
{
	if (pl_fair_before(cpu->clock, vruntime))
		cpu->clock = vruntime;
}

/* How long the task picked may run before the next is considered. */
PL_FN u64 pl_cfs_slice(const struct pl_fair_cpu PL_MEM *cpu, u64 weight,
		       const struct pl_fair_config PL_MEM *config)
{
	u64 latency_ns;

	if (!config->latency_ns)
		return config->slice_ns;
	latency_ns = pl_max(config->latency_ns, cpu->nr_queued * config->slice_ns);
	/* weights have 10 bits of fraction: dropped, so that the product fits */
	return pl_max(config->slice_ns, pl_div(latency_ns * (weight >> PL_FAIR_WEIGHT_SHIFT),
					       pl_max(cpu->weight_sum >> PL_FAIR_WEIGHT_SHIFT, 1)));
}

/*
 * A task ran: it and its group are charged, and all groups above, whatever other tasks of them wait. Source: the kernel's fair class,
 * where a group's entity on the CPU has a vruntime of its own.
 */
PL_FN void pl_cfs_ran(struct pl_task PL_MEM *task, u64 delta_ns, const struct pl_fair_config PL_MEM *config)
{
	struct pl_queue PL_MEM *queue = &task->group->queues[task->cpu];
	u64 weight = pl_cfs_queue_weight(queue);
	u64 credit = pl_cfs_credit(config);
	bool alone = queue->load.weight == task->weight << PL_LOAD_SHIFT;
	struct pl_group PL_MEM *level;

	if (!task->group->parent) {
		task->vruntime += pl_fair_scale(delta_ns, task->effective);
		return;
	}
	queue->vruntime += pl_fair_scale(delta_ns, weight);
	for (level = task->group->parent; level->parent && PL_LOOP; level = level->parent) {
		struct pl_queue PL_MEM *above = &level->queues[task->cpu];

		above->vruntime += pl_fair_scale(delta_ns, pl_cfs_queue_weight(above));
		queue->vruntime = pl_cfs_keep_up(above, queue->vruntime, 2 * PL_CFS_TURNS, credit, config);
		queue = above;
	}
	/* With what was runnable beside it as it was weighed it would pay for those, too. */
	task->vruntime += pl_fair_scale(delta_ns, alone ? weight : task->effective);
	/* One that sleeps before its slice ends: further away, so that it still goes before those that wait. */
	task->vruntime =
	    pl_cfs_keep_up(&task->group->queues[task->cpu], task->vruntime, 2 * PL_CFS_TURNS, credit, config);
}

/*
 * A task comes from another CPU: what it is owed or owes its group there is owed or owes, and the groups above, so
 * that no other group answers for it.
 */
PL_INLINE void pl_cfs_join(const struct pl_task PL_MEM *task)
{
	struct pl_group PL_MEM *level = task->group;
	struct pl_queue PL_MEM *queue = &level->queues[task->cpu];
	bool owed = pl_fair_before(task->vruntime, queue->vruntime);
	u64 size = owed ? queue->vruntime - task->vruntime : task->vruntime - queue->vruntime;
	u64 weight = task->weight << PL_LOAD_SHIFT;

	for (; level->parent && PL_LOOP; level = level->parent) {
		queue = &level->queues[task->cpu];
		size = pl_div(pl_min(size, PL_CFS_CLAIM_MAX) * (weight >> PL_LOAD_SHIFT),
			      pl_load_now(&queue->load));
		queue->vruntime += owed ? -size : size;
		weight = queue->share;
	}
}

/*
 * Where a task goes that is runnable and not yet counted on its CPU. `woken`: it slept, is new or was throttled, and is paid for at
 * most sleeper_credit_ns of what it missed. Else it was preempted or moved: what it is owed it keeps, as far as this queue pays
 * that back within lag_max_ns, so that a heavy task's claim does not keep the others waiting for longer.
 */
PL_FN void pl_cfs_place(struct pl_task PL_MEM *task, const struct pl_fair_cpu PL_MEM *cpu, bool woken,
			const struct pl_fair_config PL_MEM *config)
{
	struct pl_group PL_MEM *level = task->group;
	u64 sum = pl_max(pl_max(cpu->weight_sum, task->effective), PL_FAIR_WEIGHT_ONE);
	u64 earliest = cpu->clock - pl_cfs_credit(config);
	u64 latest = pl_cfs_latest(cpu, task->effective, config);
	bool came = task->came;

	task->came = 0;
	for (; level->parent && PL_LOOP; level = level->parent) {
		struct pl_queue PL_MEM *queue = &level->queues[task->cpu];

		queue->vruntime = pl_fair_clamp(queue->vruntime, earliest, latest);
	}
	/* It had its turn, and waits for the next: it answers for what others of the group took. */
	if (task->group->parent && !woken && !came)
		task->vruntime =
		    pl_cfs_keep_up(&task->group->queues[task->cpu], task->vruntime, PL_CFS_TURNS, 0, config);
	if (!woken)
		earliest = cpu->clock - pl_fair_scale(config->lag_max_ns, sum);
	task->vruntime = pl_fair_clamp(task->vruntime, earliest, latest);
	if (!woken && came)
		pl_cfs_join(task);
}

/*
 * The running task, charged up to now, yields (sched_yield): it goes behind the head of its CPU's queue, the next to run, by
 * no more than a slice of its own. With nothing queued (`others` false) it gives up nothing.
 */
PL_FN void pl_cfs_yield(struct pl_task PL_MEM *task, bool others, u64 head_vruntime,
			const struct pl_fair_config PL_MEM *config)
{
	u64 furthest = task->vruntime + pl_fair_scale(config->slice_ns, task->effective);

	if (!others || pl_fair_before(head_vruntime, task->vruntime))
		return;
	task->vruntime = pl_fair_before(furthest, head_vruntime + 1) ? furthest : head_vruntime + 1;
}

/* Whether a task just woken preempts the one that runs. Idle-class work is preempted by any other. */
PL_FN bool pl_cfs_preempts(const struct pl_task PL_MEM *woken, const struct pl_task PL_MEM *running,
			   const struct pl_fair_config PL_MEM *config)
{
	if (running->idle != woken->idle)
		return running->idle;
	return pl_fair_before(woken->vruntime + pl_fair_scale(config->wakeup_gran_ns, woken->effective),
			      running->vruntime);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * task.h - what a task's life does to its groups' load, shares and limits
 *
 * Problem    A task that wakes up, runs, sleeps or moves changes what every level of the hierarchy weighs on its CPU,
 *            and uses up the limits of each.
 *
 * Mechanism  A task weighs on its CPU its part of what its group's queue weighs there (group.h). In the order of its
 *            life: pl_task_moved if it comes from another CPU, pl_task_runnable, pl_task_count, pl_task_charge,
 *            pl_task_reweigh as its turn begins, pl_task_uncount, pl_task_blocked. In between are the calls of steps.h,
 *            which say whose turn it is; the whole order is in ARCHITECTURE.md, Entry points.
 *
 * Formula    effective = queue * weight / runnable weight of the queue
 *
 * Trade-offs A waiting task is weighed anew as its turn begins, not before.
 *
 * Limits     A task's weight is nice's or SCHED_IDLE's; its part is at least PL_FAIR_WEIGHT_MIN.
 *
 * Source: ARCHITECTURE.md, How the hierarchy is kept; the kernel's fair class where a function says so.
 */
#ifndef PL_TASK_H
#define PL_TASK_H

#include "group.h"

struct pl_task {
	struct pl_group PL_MEM *group;
	u64 weight;    /* in its group: see pl_task_class */
	u64 effective; /* PL_FAIR_WEIGHT_SHIFT bits of fraction; what weight_sum of its CPU contains while
			  counted */
	u64 vruntime;  /* baseline/cfs.h only: to be compared with the clock of `cpu` */
	u32 cpu;       /* where it is or was last counted */
	u32 counted;   /* it is in nr_queued and weight_sum of its CPU */
	u32 idle;      /* gives way to any other: SCHED_IDLE, or below a cpu.idle group */
	u32 came;      /* baseline/cfs.h only: from another CPU, and has not been placed on this one */
	struct pl_pelt load; /* of its weight, while it was runnable: what goes along when it moves */
};

/* Whether a task gives way to any other, from its policy and its groups' cpu.idle. At any time. */
PL_INLINE void pl_task_gives_way(struct pl_task PL_MEM *task, bool sched_idle)
{
	task->idle = sched_idle || task->group->under_idle;
}

/*
 * What a task weighs in its group, and whether it gives way, from its nice value and policy. Only while it is in no
 * queue. Nice values keep their meaning inside a cpu.idle group: it is the group that weighs next to nothing. Source:
 * Linux.
 */
PL_FN void pl_task_class(struct pl_task PL_MEM *task, s32 nice, bool sched_idle)
{
	task->weight = sched_idle ? PL_WEIGHT_IDLE : pl_weight_of_nice(nice);
	pl_task_gives_way(task, sched_idle);
}

/* A task's part of what its queue weighs on a CPU, beside what weighs `divisor` with it. >= PL_FAIR_WEIGHT_MIN */
PL_INLINE u64 pl_task_part(const struct pl_task PL_MEM *task, u32 cpu, u64 divisor)
{
	u64 part;

	if (!task->group->parent)
		return task->weight << PL_FAIR_WEIGHT_SHIFT;
	part = pl_div(task->weight * task->group->queues[cpu].effective, pl_max(divisor, 1));
	return pl_max(part >> (PL_EFFECTIVE_SHIFT - PL_LOAD_SHIFT - PL_FAIR_WEIGHT_SHIFT),
		      PL_FAIR_WEIGHT_MIN);
}

/* A task's effective weight on a CPU, its part of what its queue weighs, as last computed. >= PL_FAIR_WEIGHT_MIN */
PL_FN u64 pl_task_effective(const struct pl_task PL_MEM *task, u32 cpu)
{
	return pl_task_part(task, cpu, task->group->queues[cpu].divisor);
}

/*
 * Counts the time until now as one in which the task was runnable, or not. Call when that changes. The load of the
 * root's tasks and queues is not needed: the root has no share of anything.
 */
PL_INLINE void pl_task_load(struct pl_task PL_MEM *task, bool was_runnable, u64 now_ns)
{
	if (task->group->parent)
		pl_pelt_update(&task->load, was_runnable ? task->weight : 0, now_ns);
}

/*
 * A task became runnable on a CPU (woke up, was born, came from another CPU). Afterwards task->effective is
 * what it weighs here. Returns PL_BW_* flags: with PL_BW_ARM_* walk the charged levels and arm;
 * whether it may run is pl_group_throttled's to say.
 */
PL_FN u32 pl_task_runnable(struct pl_task PL_MEM *task, u32 cpu, u64 now_ns, struct pl_touch PL_MEM *touch,
			   const struct pl_config PL_MEM *config)
{
	struct pl_group PL_MEM *level = task->group;
	struct pl_queue PL_MEM *queue = &level->queues[cpu];
	u64 added = task->weight << PL_LOAD_SHIFT;
	u32 flags = 0;

	pl_task_load(task, false, now_ns);
	task->cpu = cpu;
	if (PL_BASELINE(level->crowds))
		pl_group_crowd(level, cpu, 1, now_ns, touch, config);
	for (; PL_LOOP; level = level->parent) {
		queue = &level->queues[cpu];
		if (level->parent)
			pl_load_update(&queue->load, now_ns);
		queue->load.weight += added;
		if (queue->nr_runnable++)
			break;
		flags |= pl_level_enter(level, cpu, now_ns, touch, config);
		if (!level->parent)
			break;
		/* The group joins its parent's queue with a share computed from what it is known to weigh. */
		queue->share = pl_level_share(level, cpu);
		touch->load_reads += queue->share > 0;
		added = queue->share;
		if (level->side && !level->parent->side && !level->side->queues[cpu].nr_runnable++)
			flags |= pl_level_enter(level->side, cpu, now_ns, touch, config);
	}
	if (task->group->parent) {
		pl_group_refresh(task->group, cpu, now_ns, touch, config);
		pl_queue_follow(&task->group->queues[cpu]);
	}
	task->effective = pl_task_effective(task, cpu);
	return flags;
}

/*
 * A task that is runnable nowhere will next be so on another CPU (wakes up there, was stolen, balanced, sent away
 * by hotplug): at every level its load goes along, instead of decaying where it was while it builds up again
 * where it is. Before pl_task_runnable. With locks, the engine holds those of both CPUs.
 */
PL_FN void pl_task_moved(struct pl_task PL_MEM *task, u32 to, u64 now_ns,
			 const struct pl_config PL_MEM *config)
{
	struct pl_group PL_MEM *level;
	u64 most, moved;

	pl_task_load(task, false, now_ns);
	most = task->load.avg;
	if (PL_BASELINE(task->group->crowds)) {
		moved = pl_div(most << PL_LOAD_TASK_SHIFT, task->weight);
		for (level = task->group; level->parent && moved && PL_LOOP; level = level->parent)
			pl_load_moved(&level->crowds[task->cpu], &level->crowds[to], moved, now_ns,
				      &config->load);
	}
	for (level = task->group; level->parent && most && PL_LOOP; level = level->parent) {
		moved = pl_load_moved(&level->queues[task->cpu].load, &level->queues[to].load, most, now_ns,
				      &config->load);
		/* One level up the group is what moves, with as much of its weight as of its load. */
		most = pl_div(pl_group_weight(level) * pl_group_concurrency(level) * moved,
			      pl_max((u64)pl_smax(pl_read(&level->load.load_avg), 0), moved));
	}
}

/*
 * A task that is in no queue goes to another group. What it weighed stays with the old one, which forgets it (load.h):
 * it must not be taken along out of the new one's queues, where it never was.
 */
PL_FN void pl_task_regroup(struct pl_task PL_MEM *task, struct pl_group PL_MEM *group)
{
	task->group = group;
	/* One by one: clang makes a memset of plain stores, which does not find the arena. */
	pl_write(&task->load.sum, 0);
	pl_write(&task->load.avg, 0);
}

/*
 * A task is no longer runnable on its CPU (sleeps, exits, leaves for another CPU). Its run time must have
 * been charged. Returns PL_BW_* flags.
 */
PL_FN u32 pl_task_blocked(struct pl_task PL_MEM *task, u64 now_ns, struct pl_touch PL_MEM *touch,
			  const struct pl_config PL_MEM *config)
{
	struct pl_group PL_MEM *level = task->group;
	u64 removed = task->weight << PL_LOAD_SHIFT;
	u32 cpu = task->cpu;
	u32 flags = 0;

	pl_task_load(task, true, now_ns);
	if (PL_BASELINE(level->crowds))
		pl_group_crowd(level, cpu, -1, now_ns, touch, config);
	if (PL_BASELINE(!config->refresh_ns))
		pl_group_refresh(level, cpu, now_ns, touch, config);
	for (; PL_LOOP; level = level->parent) {
		struct pl_queue PL_MEM *queue = &level->queues[cpu];

		if (level->parent)
			pl_load_update(&queue->load, now_ns);
		PL_ASSERT(queue->load.weight >= removed && queue->nr_runnable);
		queue->load.weight -= pl_min(removed, queue->load.weight);
		if (--queue->nr_runnable)
			break;
		flags |= pl_level_leave(level, cpu, now_ns, touch, config);
		if (!level->parent)
			break;
		removed = queue->share;
		queue->share = 0;
		if (level->side && !level->parent->side && !--level->side->queues[cpu].nr_runnable)
			flags |= pl_level_leave(level->side, cpu, now_ns, touch, config);
	}
	return flags;
}

/*
 * A task ran for delta_ns on its CPU: charges every limited level. Returns PL_BW_* flags;
 * PL_BW_THROTTLED: some level is out of run time, the task must stop.
 */
PL_FN u32 pl_task_charge(struct pl_task PL_MEM *task, u64 delta_ns, u64 now_ns, struct pl_touch PL_MEM *touch,
			 const struct pl_config PL_MEM *config)
{
	struct pl_group PL_MEM *group = task->group;
	struct pl_group PL_MEM *level;
	u32 cpu = task->cpu;
	u32 flags = 0;

	for (level = pl_charged_first(group); level && PL_LOOP; level = pl_charged_next(group, level)) {
		u32 level_flags = pl_level_charge(level, cpu, delta_ns, now_ns, config);

		flags |= level_flags;
		touch->pool_locks += level_flags / PL_LEVEL_ASKED;
	}
	return flags & ~PL_LEVEL_ASKED;
}

/*
 * Counts a task into its CPU's queue (it waits there or runs) and out of it (it blocks, moves, parks).
 * weight_sum holds what was added, so a weight that changes in between cannot unbalance it. Both return the
 * count before.
 */
PL_FN u32 pl_task_count(struct pl_task PL_MEM *task, struct pl_fair_cpu PL_MEM *cpu)
{
	PL_ASSERT(!task->counted);
	task->counted = 1;
	cpu->weight_sum += task->effective;
	return cpu->nr_queued++;
}

PL_FN u32 pl_task_uncount(struct pl_task PL_MEM *task, struct pl_fair_cpu PL_MEM *cpu)
{
	PL_ASSERT(task->counted && cpu->nr_queued);
	task->counted = 0;
	cpu->weight_sum -= pl_min(task->effective, cpu->weight_sum);
	return cpu->nr_queued--;
}

/*
 * Weighs a task anew, while it is counted in `cpu`: as its turn begins and at ticks. With the weight that it had as it
 * was queued, beside others that sleep by now, it would be charged for them as well. Returns whether the task weighs
 * less than half of what it did as it was last weighed: so much came to be runnable beside it that its turn is over in
 * baseline/cfs.h. Others ignore that.
 */
PL_FN bool pl_task_reweigh(struct pl_task PL_MEM *task, struct pl_fair_cpu PL_MEM *cpu, u64 now_ns,
			   struct pl_touch PL_MEM *touch, const struct pl_config PL_MEM *config)
{
	struct pl_group PL_MEM *level = task->group;
	u64 before = task->effective;

	if (now_ns - level->queues[task->cpu].refreshed_ns >= config->refresh_ns) {
		for (; level->parent && PL_LOOP; level = level->parent)
			if (pl_level_forget(level, &level->queues[task->cpu], now_ns))
				touch->load_writes++;
	}
	pl_group_refresh(task->group, task->cpu, now_ns, touch, config);
	pl_queue_follow(&task->group->queues[task->cpu]);
	task->effective = pl_task_effective(task, task->cpu);
	if (task->counted)
		cpu->weight_sum += task->effective - pl_min(before, cpu->weight_sum);
	return 2 * task->effective < before;
}

/*
 * Whether a CPU that runs this task is as good as an idle one to a task that wakes up: it has it at once. Engines look for
 * such a CPU in the cache of the task's previous one, that first, where they find no idle CPU. Source: sched_idle_cpu() of
 * the kernel's fair class.
 */
PL_FN bool pl_task_yields_cpu(const struct pl_task PL_MEM *running, const struct pl_task PL_MEM *woken)
{
	return running->idle && !woken->idle;
}

#endif

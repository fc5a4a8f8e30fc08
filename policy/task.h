/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * task.h - what a task's life does to its groups, and what it is due among them
 *
 * Problem    A task that wakes up, runs, sleeps or moves changes what every level of the hierarchy weighs on its CPU,
 *            and how soon it and all others there have their turn.
 *
 * Mechanism  A task weighs on its CPU its part of what its group's queue weighs there (group.h), and waits in the CPU's
 *            one queue with that (fair.h). In the order of its life: pl_task_moved if it comes from another CPU,
 *            pl_task_runnable, pl_task_place, pl_task_count, pl_task_weigh as it is picked, pl_task_charge,
 *            pl_task_turn_over at ticks, pl_task_reweigh as its slice ends, pl_task_uncount, pl_task_blocked.
 *
 *            A task that gets a turn beside something heavy of its group leaps ahead: it owes that one many turns. When
 *            the heavy one sleeps or is throttled, none is left to have them: a task ahead of its group's queue keeps
 *            what it owes as run time, not as a distance, and as something heavy leaves the engine weighs all that wait
 *            on the CPU anew (PL_QUEUE_LIGHTER), instead of as they are picked, for which they would wait too long.
 *
 * Formula    effective = queue * weight / runnable weight of the queue
 *            vruntime of a queue += delta / queue, for all of its tasks; a task of it that waits for its next
 *            turn is at that - 2 slices * runnable there / queue at least, a child queue at twice as much
 *            ahead of its queue by: that * effective before / effective now, where it is now at least twice as heavy
 *
 * Trade-offs Waiting tasks are weighed anew only where three quarters of a queue have left at once, and at most once per
 *            refresh_ns; then all that wait on the CPU are: that takes time in proportion to them.
 *
 * Limits     A task's weight is nice's or SCHED_IDLE's; its part is at least PL_FAIR_WEIGHT_MIN.
 *
 * Source: ARCHITECTURE.md, How the hierarchy is flattened; the kernel's fair class where a function says so.
 */
#ifndef PL_TASK_H
#define PL_TASK_H

#include "group.h"

/* How far behind its group's queue a task that waits may be, in turns: siblings that take turns are within one. */
#define PL_QUEUE_TURNS 2

/*
 * A flag beside PL_BW_*: so much has left a queue that the tasks that wait on the CPU are to be weighed anew. The engine
 * sets `lighter` of the CPU: pl_waiting_due. From so many times of what is left on: a task that is alone by then had a
 * quarter at most.
 */
#define PL_QUEUE_LIGHTER 16u
#define PL_QUEUE_LEFT 3

/* Of a task that comes: 5 hours of nice 0. Times a task's weight it fits into 64 bits. */
#define PL_QUEUE_CLAIM_MAX (1ULL << 44)

struct pl_task {
	struct pl_group PL_MEM *group;
	u64 weight;    /* in its group: see pl_task_class */
	u64 effective; /* PL_FAIR_WEIGHT_SHIFT bits of fraction; what weight_sum of its CPU contains while
			  counted */
	u64 vruntime;  /* on the timeline of `cpu` */
	s64 lead;      /* vruntime less what its queue had served, as it last left one */
	u32 cpu;       /* where it is or was last counted */
	u32 counted;   /* it is in nr_queued and weight_sum of its CPU */
	u32 idle;      /* gives way to any other: SCHED_IDLE, or below a cpu.idle group */
	u32 came;      /* from another CPU, and has not been placed on this one */
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
	task->came = task->cpu != cpu;
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
 * been charged. Returns PL_BW_* flags and PL_QUEUE_LIGHTER.
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
		if (--queue->nr_runnable) {
			if (level->parent && removed >= PL_QUEUE_LEFT * queue->load.weight)
				flags |= PL_QUEUE_LIGHTER;
			break;
		}
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
 * What a task of the group ran counts for the group and for all groups above, whatever other tasks of it wait. Source:
 * the kernel's fair class, where a group's entity on the CPU has a vruntime of its own.
 */
PL_INLINE void pl_queues_ran(struct pl_task PL_MEM *task, u64 delta_ns,
			     const struct pl_fair_config PL_MEM *config)
{
	struct pl_queue PL_MEM *queue = &task->group->queues[task->cpu];
	u64 weight = pl_queue_weight(queue);
	u64 credit = pl_fair_credit(config);
	bool alone = queue->load.weight == task->weight << PL_LOAD_SHIFT;
	struct pl_group PL_MEM *level;

	queue->vruntime += pl_fair_scale(delta_ns, weight);
	for (level = task->group->parent; level->parent && PL_LOOP; level = level->parent) {
		struct pl_queue PL_MEM *above = &level->queues[task->cpu];

		above->vruntime += pl_fair_scale(delta_ns, pl_queue_weight(above));
		queue->vruntime =
		    pl_queue_keep_up(above, queue->vruntime, 2 * PL_QUEUE_TURNS, credit, config);
		queue = above;
	}
	/* With what was runnable beside it as it was weighed it would pay for those, too. */
	task->vruntime += pl_fair_scale(delta_ns, alone ? weight : task->effective);
	/* One that sleeps before its slice ends: further away, so that it still goes before those that wait. */
	task->vruntime = pl_queue_keep_up(&task->group->queues[task->cpu], task->vruntime, 2 * PL_QUEUE_TURNS,
					  credit, config);
}

/*
 * A task ran for delta_ns on its CPU: charges every limited level, and its vruntime. Returns PL_BW_* flags;
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
	if (PL_FLAT && group->parent)
		pl_queues_ran(task, delta_ns, &config->fair);
	else if (PL_FLAT)
		task->vruntime += pl_fair_scale(delta_ns, task->effective);
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
	task->lead = (s64)(task->vruntime - cpu->served);
	cpu->weight_sum -= pl_min(task->effective, cpu->weight_sum);
	return cpu->nr_queued--;
}

/*
 * A task comes from another CPU: what it is owed or owes its group there is owed or owes, and the groups above, so
 * that no other group answers for it.
 */
PL_INLINE void pl_queues_join(const struct pl_task PL_MEM *task)
{
	struct pl_group PL_MEM *level = task->group;
	struct pl_queue PL_MEM *queue = &level->queues[task->cpu];
	bool owed = pl_fair_before(task->vruntime, queue->vruntime);
	u64 size = owed ? queue->vruntime - task->vruntime : task->vruntime - queue->vruntime;
	u64 weight = task->weight << PL_LOAD_SHIFT;

	for (; level->parent && PL_LOOP; level = level->parent) {
		queue = &level->queues[task->cpu];
		size = pl_div(pl_min(size, PL_QUEUE_CLAIM_MAX) * (weight >> PL_LOAD_SHIFT),
			      pl_load_now(&queue->load));
		queue->vruntime += owed ? -size : size;
		weight = queue->share;
	}
}

/*
 * See pl_fair_place. By the time a task wakes up its queue may serve tasks that came from CPUs far behind, and on
 * another CPU the common timeline tells how far that CPU is behind, not the task: it owes no more than as it went to
 * sleep, and no more than a slice of its own, because it may have run where it was far ahead. A task that went to sleep
 * behind what was served owes nothing; to put it as far behind again would forgive what it has run since. Work that
 * gives way to any other waits for a turn of its own, at what it weighs, whatever it is owed. Returns its new vruntime.
 */
PL_SUB u64 pl_task_place(struct pl_task PL_MEM *task PL_ARENA, const struct pl_fair_cpu PL_MEM *cpu PL_ARENA,
			 bool woken, const struct pl_fair_config PL_MEM *config PL_ARENA)
{
	struct pl_group PL_MEM *level = task->group;
	bool grouped = level->parent;
	bool came = task->came;

	task->came = 0;
	if (grouped) {
		struct pl_queue PL_MEM *queue = &level->queues[task->cpu];
		u64 earliest = cpu->served - pl_fair_credit(config);
		u64 latest = pl_fair_latest(cpu, task->effective, config);

		for (; level->parent && PL_LOOP; level = level->parent) {
			struct pl_queue PL_MEM *above = &level->queues[task->cpu];
			/* Written seldom: the engine may charge a task of the group meanwhile. */
			u64 within = pl_fair_clamp(above->vruntime, earliest, latest);

			if (within != above->vruntime)
				above->vruntime = within;
		}
		/* It had its turn, and waits for the next: it answers for what others of the group took. */
		if (!woken && !came)
			task->vruntime = pl_queue_keep_up(queue, task->vruntime, PL_QUEUE_TURNS, 0, config);
	}
	if (woken && !PL_BASELINE(!config->pull_ns)) {
		/* Of what it weighs beside all that wait by now: of a crowd that comes at once each waits behind one more turn. */
		u64 weight = grouped
				 ? pl_task_part(task, task->cpu, task->group->queues[task->cpu].load.weight)
				 : task->effective;
		s64 slice = (s64)pl_fair_scale(config->slice_ns, weight);
		u64 latest = cpu->served + (u64)pl_smin(pl_smax(task->lead, 0), slice);

		if (pl_fair_before(latest, task->vruntime))
			task->vruntime = latest;
	}
	/* A task that took the CPU from idle work loses it neither to the rest of that turn nor to its wake-up. */
	if (task->idle && !PL_BASELINE(!config->pull_ns)) {
		u64 turn = cpu->served + pl_fair_scale(config->slice_ns, task->effective);

		if (pl_fair_before(task->vruntime, turn))
			task->vruntime = turn;
	}
	task->vruntime = pl_fair_place(cpu, task->vruntime, task->effective, woken, config);
	if (grouped && !woken && came)
		pl_queues_join(task);
	return task->vruntime;
}

/*
 * Weighs a task anew, while it is counted in `cpu`, from what its queue was last found to weigh: as it is picked. With the
 * weight that it had as it was queued, beside others that sleep by now, it would be charged for them as well, and what it
 * owes them would keep it waiting for others (pl_lead_kept). What its queue weighs is found out only if it was in no parent's
 * queue, or its group's weight has changed.
 */
PL_FN void pl_task_weigh(struct pl_task PL_MEM *task, struct pl_fair_cpu PL_MEM *cpu, u64 now_ns,
			 struct pl_touch PL_MEM *touch, const struct pl_config PL_MEM *config)
{
	struct pl_queue PL_MEM *queue = &task->group->queues[task->cpu];
	u64 before = task->effective;

	if (!queue->share || !queue->refreshed_ns)
		pl_group_refresh(task->group, task->cpu, now_ns, touch, config);
	pl_queue_follow(queue);
	task->effective = pl_task_effective(task, task->cpu);
	if (task->counted)
		cpu->weight_sum += task->effective - pl_min(before, cpu->weight_sum);
	if (PL_FLAT && task->group->parent)
		task->vruntime = pl_lead_kept(task->vruntime, queue->vruntime, before, task->effective);
}

/*
 * Likewise, with what its queue weighs now. At ticks, as its slice ends, and while it waits, where pl_waiting_due says so: if
 * its vruntime changes then, the engine moves it in the CPU's queue. Returns whether the task weighs less than half
 * of what it did as it was last weighed: so much came to be runnable beside it that its turn is over, although its slice is
 * not. Source: the kernel's fair class, where a slice is in proportion to what a task weighs at the tick.
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
	pl_task_weigh(task, cpu, now_ns, touch, config);
	return 2 * task->effective < before;
}

/*
 * Whether a running task's part of what its queue was last found to weigh is less than half of what the task weighs: so
 * much came to be runnable beside it that its turn is over, although its slice is not. At ticks, without the CPU's lock.
 * Source: the kernel's fair class, where a slice is in proportion to what a task weighs at the tick.
 */
PL_FN bool pl_task_turn_over(const struct pl_task PL_MEM *task)
{
	return 2 * pl_task_effective(task, task->cpu) < task->effective;
}

/*
 * A new task, before it first becomes runnable: until then its timeline is that of CPU `cpu`, whose queue is `fair`.
 * Where it is placed it waits for its first turn behind a slice of its own weight (fair.h, "new"); not in the baselines
 * (pull_ns 0), whose figures were compared without that.
 */
PL_FN void pl_task_born(struct pl_task PL_MEM *task, u32 cpu, const struct pl_fair_cpu PL_MEM *fair,
			const struct pl_fair_config PL_MEM *config)
{
	task->cpu = cpu;
	task->vruntime = fair->clock;
	if (PL_BASELINE(!config->pull_ns))
		return;
	task->lead = PL_FAIR_FAR_NS;
	task->vruntime += PL_FAIR_FAR_NS;
}

/*
 * The running task, charged up to now, yields (sched_yield): it goes behind the head of its CPU's queue, the next to run, by
 * no more than a slice of its own. So it gives up what it was owed and owes no more than a turn, however often it yields.
 * With nothing queued (`others` false) it gives up nothing. Source: the kernel's fair class from 6.18 on, where the
 * vruntime of a task that yields moves to its deadline, unless it is alone.
 */
PL_FN void pl_task_yield(struct pl_task PL_MEM *task, bool others, u64 head_vruntime,
			 const struct pl_fair_config PL_MEM *config)
{
	u64 furthest = task->vruntime + pl_fair_scale(config->slice_ns, task->effective);

	if (!others || pl_fair_before(head_vruntime, task->vruntime))
		return;
	task->vruntime = pl_fair_before(furthest, head_vruntime + 1) ? furthest : head_vruntime + 1;
}

/*
 * Whether a task just woken preempts the one that runs, whose vruntime is running_vruntime by now: pl_fair_preempts. Of two
 * groups it is these that take turns, so what counts is how far the woken one's queue is ahead, not the part that each of
 * its tasks has: a service of sixteen threads would have to be sixteen times as far ahead of a batch job as one of one
 * thread. Source: the kernel's fair class, which compares the two at the level where their groups part; not in the baselines
 * (pull_ns 0), whose figures were compared without it.
 */
PL_FN bool pl_task_preempts(const struct pl_task PL_MEM *woken, const struct pl_task PL_MEM *running,
			    u64 running_vruntime, const struct pl_fair_config PL_MEM *config)
{
	u64 weight = woken->effective;

	if (!PL_BASELINE(!config->pull_ns) && woken->group != running->group) {
		if (woken->group->parent)
			weight = pl_queue_weight(&woken->group->queues[woken->cpu]);
		weight *= PL_FAIR_GROUP_GRAN_PART;
	}
	return pl_fair_preempts(woken->vruntime, weight, woken->idle, running_vruntime, running->idle,
				config);
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

/*
 * Whether all that wait on a CPU are to be weighed anew, pl_task_reweigh, before one of them is picked: something that weighed
 * much has left, and it was not done less than refresh_ns ago. Counts as done.
 */
PL_FN bool pl_waiting_due(struct pl_fair_cpu PL_MEM *cpu, u64 now_ns, const struct pl_config PL_MEM *config)
{
	if (!cpu->lighter || now_ns - cpu->weighed_ns < config->refresh_ns)
		return false;
	cpu->lighter = 0;
	cpu->weighed_ns = now_ns;
	return true;
}

#endif

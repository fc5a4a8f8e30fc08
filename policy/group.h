/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * group.h - the hierarchy: groups, their queue on each CPU, and what a task's life does to them
 *
 * Problem    Weights and limits hold at every level of a tree of groups. A queue per group and CPU, as the
 *            kernel has it, costs 3.2 GB of dispatch queues for 2,000 groups on 224 CPUs.
 *
 * Mechanism  Tasks wait in one queue per CPU (fair.h). A group keeps, per CPU, only numbers: how much of it
 *            is runnable, its load, its share, its balance. A queue weighs on its CPU what its share is,
 *            times, for each level above, share / runnable weight; a task has its part of that. Charging and
 *            throttling walk the limited levels only.
 *
 *            Who runs uses up what is due to all of the group on that CPU, and of all groups above: a queue has a
 *            vruntime, too, and none of its tasks and child queues is further behind it than a few slices. What
 *            tasks that sleep most of the time take is so paid by those of their group that wait, in whatever
 *            child group they are, not by other groups.
 *
 *            A task that gets a turn beside something heavy of its group leaps ahead: it owes that one many turns. When
 *            the heavy one sleeps or is throttled there is nobody to owe them to: who is ahead of its group's queue keeps
 *            what it owes as run time, not as a distance, and as something heavy leaves the engine weighs all that wait
 *            on the CPU anew (PL_QUEUE_LIGHTER), instead of as they are picked, for which they would wait too long.
 *
 * Formula    queue     = share * PROD over levels above (share / runnable weight of that level's queue)
 *            effective = queue * weight / runnable weight of the queue
 *            share     = load.h; 0 where the level is throttled, or all of its children are
 *            vruntime of a queue += delta / queue, whoever of it ran; a task of it that waits for its next turn is at
 *            that - 2 slices * runnable there / queue at least, a child queue at twice as much
 *            ahead of its queue by: that * effective before / effective now, where it is now at least twice as heavy
 *            a task may run on a CPU if no level of its group is throttled there
 *
 * Trade-offs What a queue weighs is computed at most once per refresh_ns and kept; until then a change of load
 *            elsewhere is not seen. With refresh_ns = 0 it is computed at every change (the rule before system
 *            4, and its cost). So is what it is divided by, unless the queue's runnable weight has more than
 *            doubled or halved, as it does with every wake-up where nice values differ: that is seen by who is
 *            picked next. Who waits is weighed anew only where three quarters of a queue have left at once, and once per
 *            refresh_ns, all that wait on the CPU: that takes time in proportion to them.
 *
 * Limits     Depth PL_GROUP_DEPTH_MAX below the root. Weights below 2^-19 of nice 0 are rounded up to that.
 *
 * Source: design.md; systems 1, 4 and 5 for what is done at each level.
 */
#ifndef PL_GROUP_H
#define PL_GROUP_H

#include "bandwidth.h"
#include "fair.h"
#include "load.h"

#define PL_GROUP_DEPTH_MAX 32

/* Bits of fraction of what a queue weighs on its CPU: up to 2^37 with them, which times a share fits into 64 bits. */
#define PL_EFFECTIVE_SHIFT 20
#define PL_EFFECTIVE_ONE ((u64)PL_WEIGHT_UNIT << PL_EFFECTIVE_SHIFT)

/* How far behind its group's queue a task that waits may be, in turns: siblings that take turns are within one. */
#define PL_QUEUE_TURNS 2

/* Bits of fraction of what a vruntime's lead is multiplied by. */
#define PL_LEAD_SHIFT 12

/*
 * A flag beside PL_BW_*: so much has left a queue that whoever waits on the CPU is to be weighed anew. The engine sets
 * `lighter` of the CPU: pl_waiting_due. From so many times of what is left on: who is alone by then had a quarter at most.
 */
#define PL_QUEUE_LIGHTER 16u
#define PL_QUEUE_LEFT 3

/* Of a task that comes: 5 hours of nice 0. Times a task's weight it fits into 64 bits. */
#define PL_QUEUE_CLAIM_MAX (1ULL << 44)

#define PL_REFRESH_NS (1 * PL_MS) /* where nobody says otherwise */

struct pl_config {
	struct pl_bw_config bandwidth;
	struct pl_bw_config side; /* of headroom's side group: small slices, nothing carried over */
	struct pl_load_config load;
	struct pl_fair_config fair;
	u64 refresh_ns; /* least time between two computations of a queue's factor; 0: at every change */
};

/* One group on one CPU. Touched by that CPU only, and by those that take a task along from or to it. */
struct pl_queue {
	struct pl_load load;
	u64 share; /* what it adds to load.weight of its parent's queue; 0 while nothing is runnable */
	u64 effective; /* what this queue weighs on its CPU; PL_EFFECTIVE_SHIFT bits are fraction; not the root's */
	u64 divisor;	  /* load.weight when tasks were last given their parts of effective anew */
	u64 refreshed_ns; /* when effective was computed */
	u64 vruntime;	  /* as if all that is below it here were one task that weighs `effective` */
	u32 nr_runnable;  /* tasks of this group here, and child groups with something runnable here */
	u32 look_at; /* the CPU whose queue was last looked at for load that it left in the group's sum */
};

struct pl_group {
	struct pl_pool pool;
	struct pl_group_load load;
	u64 weight;			 /* pl_weight_of_cpu_weight */
	struct pl_group PL_MEM *parent;	 /* NULL: this is the root */
	struct pl_group PL_MEM *charged; /* nearest limited level, from here up; NULL: none */
	struct pl_group PL_MEM *side;	 /* headroom's side group, if this is one of the side; else NULL */
	struct pl_queue PL_MEM *queues;	 /* one per CPU */
	u64 id;				 /* the engine's name for it */
	u64 headroom_tolerance_ns;	 /* of a main group, per window; 0: headroom's configuration says */
	u32 idle;			 /* cpu.idle */
	u32 depth;			 /* root 0 */
	u32 is_side;			 /* this is headroom's side group itself */
	u32 headroom_percent;		 /* > 0: a main group */
	u32 holds_main;			 /* a main group, or an ancestor of one */
	u32 under_main;			 /* a main group, or a descendant of one */
	u32 under_idle;			 /* cpu.idle, here or above */
	u32 reserved;
};

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

/* How often shared lines were touched: what the simulator prices, and statistics on the live side. */
struct pl_touch {
	u32 load_reads;	 /* of a group's load_avg */
	u32 load_writes; /* likewise */
	u32 pool_locks;	 /* pools that were asked or given back to */
	u32 reserved;
};

/*
 * The levels that a group's run time is charged to, from the group upwards: the limited ones, then headroom's
 * side group if the group is one of the side.
 *
 *	for (level = pl_charged_first(group); level; level = pl_charged_next(group, level))
 */
PL_INLINE struct pl_group PL_MEM *pl_charged_first(const struct pl_group PL_MEM *group)
{
	return group->charged ? group->charged : group->side;
}

PL_INLINE struct pl_group PL_MEM *pl_charged_next(const struct pl_group PL_MEM *group,
						  const struct pl_group PL_MEM *level)
{
	struct pl_group PL_MEM *above;

	if (level->is_side)
		return NULL;
	above = level->parent ? level->parent->charged : NULL;
	return above ? above : group->side;
}

/*
 * Recomputes `charged` and `under_idle` after limits, headroom or cpu.idle changed. Parents before children: call for
 * every group in an order in which a parent comes first.
 */
PL_FN void pl_group_link(struct pl_group PL_MEM *group)
{
	if (pl_bw_limited(&group->pool))
		group->charged = group;
	else
		group->charged = group->parent ? group->parent->charged : NULL;
	group->under_idle = group->idle || (group->parent && group->parent->under_idle);
}

/* A new group on memory of the engine's, all zero. queues and balances: one per CPU; ring: see pl_bw_init. */
PL_FN void pl_group_init(struct pl_group PL_MEM *group, struct pl_group PL_MEM *parent, u64 id,
			 struct pl_queue PL_MEM *queues, struct pl_balance PL_MEM *balances, u32 nr_cpus,
			 u32 PL_MEM *ring, u32 slots)
{
	u32 cpu;

	group->parent = parent;
	group->id = id;
	group->depth = parent ? parent->depth + 1 : 0;
	group->weight = PL_WEIGHT_UNIT;
	group->queues = queues;
	for (cpu = PL_START(nr_cpus); cpu < nr_cpus && PL_LOOP; cpu++) {
		struct pl_queue PL_MEM *queue = PL_ELEMENT(queues, cpu);

		queue->look_at = cpu;
		queue->effective = PL_EFFECTIVE_ONE;
	}
	pl_bw_init(&group->pool, balances, nr_cpus, ring, slots);
	pl_group_link(group);
}

/* What a group weighs in its parent: cpu.weight, or next to nothing for cpu.idle. */
PL_INLINE u64 pl_group_weight(const struct pl_group PL_MEM *group)
{
	return group->idle ? PL_WEIGHT_IDLE : group->weight;
}

/*
 * What a level with something runnable on this CPU adds to its parent's queue there. 0 while none of it may run: it is
 * throttled, or all of its children are. Source: the kernel, where a throttled queue leaves its parent's.
 */
PL_INLINE u64 pl_level_share(const struct pl_group PL_MEM *level, u32 cpu)
{
	const struct pl_queue PL_MEM *queue = &level->queues[cpu];

	if (!queue->load.weight || pl_read(&level->pool.balances[cpu].throttled) ||
	    (level->side && pl_read(&level->side->pool.balances[cpu].throttled)))
		return 0;
	return pl_load_share(&level->load, &queue->load, pl_group_weight(level));
}

/* Brings one level's load and share up to date on one CPU. Returns the share. */
PL_SUB u64 pl_level_refresh(struct pl_group PL_MEM *level PL_ARENA, u32 cpu, u64 now_ns,
			    struct pl_touch PL_MEM *touch PL_ARENA,
			    const struct pl_config PL_MEM *config PL_ARENA)
{
	struct pl_queue PL_MEM *queue = &level->queues[cpu];
	struct pl_load PL_MEM *above = &level->parent->queues[cpu].load;
	u64 share;

	pl_load_update(&queue->load, now_ns);
	if (pl_load_publish(&level->load, &queue->load, now_ns, &config->load))
		touch->load_writes++;
	if (!queue->nr_runnable)
		return 0;
	share = pl_level_share(level, cpu);
	touch->load_reads += share > 0;
	if (share != queue->share) {
		pl_load_update(above, now_ns);
		above->weight += share - queue->share;
		queue->share = share;
	}
	return share;
}

/*
 * What weighs `effective` among all that is runnable in this queue, with the queue's own share: the part of it that is
 * left one level up. Never more than the share.
 */
PL_SUB u64 pl_queue_part(const struct pl_queue PL_MEM *queue PL_ARENA, u64 effective)
{
	return pl_max(pl_div(effective * queue->share, pl_max(queue->load.weight, 1)), 1);
}

/*
 * The vruntime of what is served in a queue and weighed `before`, and weighs `after` now, as the queue's other tasks or its
 * groups have left. By what it is ahead of the queue it owes them run time, which does not become more as it weighs more.
 * Less than double is left as it is: shares move all the time. Source: the kernel's fair class, where a group's entity is
 * not moved by who of the group runs, and an entity's lag is rescaled as its weight changes.
 */
PL_SUB u64 pl_lead_kept(u64 vruntime, u64 queue_vruntime, u64 before, u64 after)
{
	u64 lead = vruntime - queue_vruntime;

	if (after < 2 * before || (s64)lead <= 0)
		return vruntime;
	return queue_vruntime + (lead >> PL_LEAD_SHIFT) * pl_div(before << PL_LEAD_SHIFT, after);
}

/* Brings shares of this group and all above it up to date on one CPU, and what its queues there weigh. Returns 0. */
PL_SUB u64 pl_shares_refresh(struct pl_group PL_MEM *group PL_ARENA, u32 cpu, u64 now_ns,
			     struct pl_touch PL_MEM *touch PL_ARENA,
			     const struct pl_config PL_MEM *config PL_ARENA)
{
	struct pl_queue PL_MEM *bottom = &group->queues[cpu];
	struct pl_group PL_MEM *level;
	u64 least = pl_level_refresh(group, cpu, now_ns, touch, config);
	u64 effective = bottom->share << (PL_EFFECTIVE_SHIFT - PL_LOAD_SHIFT);

	for (level = group->parent; level->parent && PL_LOOP; level = level->parent) {
		least = pl_min(least, pl_level_refresh(level, cpu, now_ns, touch, config));
		effective = pl_queue_part(&level->queues[cpu], effective);
	}
	/*
	 * With nothing that may run there is no share: what it weighed stays, for who comes, and who runs although throttled
	 * until it is back in user space.
	 */
	if (!least)
		return 0;
	if (group->parent->parent)
		bottom->vruntime = pl_lead_kept(bottom->vruntime, group->parent->queues[cpu].vruntime,
						bottom->effective, effective);
	bottom->effective = effective;
	bottom->divisor = bottom->load.weight;
	/* The queues above, of which this one is a part. */
	for (level = group; level->parent->parent && PL_LOOP; level = level->parent) {
		struct pl_queue PL_MEM *above = &level->parent->queues[cpu];

		effective = pl_div(effective * above->load.weight, pl_max(level->queues[cpu].share, 1));
		above->effective = effective;
		above->divisor = above->load.weight;
	}
	return 0;
}

/* Likewise, unless it was done less than refresh_ns ago, and it was not out of its parent's queue. */
PL_SUB u64 pl_group_refresh(struct pl_group PL_MEM *group PL_ARENA, u32 cpu, u64 now_ns,
			    struct pl_touch PL_MEM *touch PL_ARENA,
			    const struct pl_config PL_MEM *config PL_ARENA)
{
	struct pl_queue PL_MEM *bottom = &group->queues[cpu];

	if (config->refresh_ns && bottom->share && now_ns - bottom->refreshed_ns < config->refresh_ns)
		return 0;
	/* Of this queue only: the levels above may have tasks of their own, which are weighed when these ask. */
	bottom->refreshed_ns = now_ns;
	if (group->parent)
		pl_shares_refresh(group, cpu, now_ns, touch, config);
	return 0;
}

/*
 * A task of the group is parked on this CPU because `level` is throttled there: what all levels weigh in their parents'
 * queues follows at once, so that nobody else's part goes to nobody. Its return is seen as the first of it is picked.
 * Returns whether it did: the CPU is `lighter`, as with PL_QUEUE_LIGHTER. With locks: the CPU's.
 */
PL_FN bool pl_group_parked(struct pl_group PL_MEM *group, const struct pl_group PL_MEM *level, u32 cpu,
			   u64 now_ns, struct pl_touch PL_MEM *touch, const struct pl_config PL_MEM *config)
{
	/* The side is in no queue: its groups are. */
	if (level->is_side)
		level = group;
	if (!level->queues[cpu].share)
		return false;
	pl_shares_refresh(group, cpu, now_ns, touch, config);
	return true;
}

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

/*
 * Follows what is runnable in the queue, if that is far from what its tasks were last weighed by: as a task is left
 * alone by one like itself, not as it is joined by one, which would preempt it later than where nothing is shared.
 */
PL_INLINE void pl_queue_follow(struct pl_queue PL_MEM *queue)
{
	u64 weight = queue->load.weight;

	if (weight > 2 * queue->divisor || 2 * weight <= queue->divisor)
		queue->divisor = weight;
}

/* A task's effective weight on a CPU, its part of what its queue weighs, as last computed. >= PL_FAIR_WEIGHT_MIN */
PL_FN u64 pl_task_effective(const struct pl_task PL_MEM *task, u32 cpu)
{
	const struct pl_queue PL_MEM *queue = &task->group->queues[cpu];
	u64 part;

	if (!task->group->parent)
		return task->weight << PL_FAIR_WEIGHT_SHIFT;
	part = pl_div(task->weight * queue->effective, pl_max(queue->divisor, 1));
	return pl_max(part >> (PL_EFFECTIVE_SHIFT - PL_LOAD_SHIFT - PL_FAIR_WEIGHT_SHIFT),
		      PL_FAIR_WEIGHT_MIN);
}

/* The nearest level of the task's group that is throttled on this CPU, or NULL: it may run. */
PL_FN struct pl_group PL_MEM *pl_group_throttled(const struct pl_group PL_MEM *group, u32 cpu)
{
	struct pl_group PL_MEM *level;

	for (level = pl_charged_first(group); level && PL_LOOP; level = pl_charged_next(group, level))
		if (pl_read(&level->pool.balances[cpu].throttled))
			return level;
	return NULL;
}

PL_INLINE const struct pl_bw_config PL_MEM *pl_level_config(const struct pl_group PL_MEM *level,
							    const struct pl_config PL_MEM *config)
{
	return level->is_side ? &config->side : &config->bandwidth;
}

/*
 * Something of the group became runnable on this CPU where nothing of this level was: its balance is asked
 * for, which may throttle it. Returns PL_BW_* flags.
 */
PL_SUB u32 pl_level_enter(struct pl_group PL_MEM *level PL_ARENA, u32 cpu, u64 now_ns,
			  struct pl_touch PL_MEM *touch PL_ARENA,
			  const struct pl_config PL_MEM *config PL_ARENA)
{
	struct pl_balance PL_MEM *balance = &level->pool.balances[cpu];

	if (!pl_bw_limited(&level->pool))
		return 0;
	if (balance->remaining_ns <= 0)
		touch->pool_locks++;
	return pl_bw_charge(&level->pool, balance, 0, true, now_ns, pl_level_config(level, config));
}

PL_SUB u32 pl_level_leave(struct pl_group PL_MEM *level PL_ARENA, u32 cpu, u64 now_ns,
			  struct pl_touch PL_MEM *touch PL_ARENA,
			  const struct pl_config PL_MEM *config PL_ARENA)
{
	struct pl_balance PL_MEM *balance = &level->pool.balances[cpu];

	if (balance->remaining_ns > (s64)PL_BW_KEPT_NS)
		touch->pool_locks++;
	return pl_bw_leave(&level->pool, balance, now_ns, pl_level_config(level, config));
}

/* Counts the time until now as one in which the task was runnable, or not. Call when that changes. */
PL_INLINE void pl_task_load(struct pl_task PL_MEM *task, bool was_runnable, u64 now_ns)
{
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
	for (; PL_LOOP; level = level->parent) {
		queue = &level->queues[cpu];
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
	pl_group_refresh(task->group, cpu, now_ns, touch, config);
	pl_queue_follow(&task->group->queues[cpu]);
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
	for (level = task->group; level->parent && most && PL_LOOP; level = level->parent) {
		moved = pl_load_moved(&level->queues[task->cpu].load, &level->queues[to].load, most, now_ns,
				      &config->load);
		/* One level up the group is what moves, with as much of its weight as of its load. */
		most = pl_div(pl_group_weight(level) * moved,
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
	if (!config->refresh_ns)
		pl_group_refresh(level, cpu, now_ns, touch, config);
	for (; PL_LOOP; level = level->parent) {
		struct pl_queue PL_MEM *queue = &level->queues[cpu];

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

#define PL_LEVEL_ASKED 8u /* the highest of the flags: the pool was asked */

/* Charges one limited level. Returns PL_BW_* flags and PL_LEVEL_ASKED. */
PL_SUB u32 pl_level_charge(struct pl_group PL_MEM *level PL_ARENA, u32 cpu, u64 delta_ns, u64 now_ns,
			   const struct pl_config PL_MEM *config PL_ARENA)
{
	const struct pl_bw_config PL_MEM *bandwidth = pl_level_config(level, config);
	struct pl_balance PL_MEM *balance = &level->pool.balances[cpu];
	/* Used up, or expired: the pool will be asked. */
	bool asked = balance->remaining_ns <= (s64)delta_ns ||
		     (bandwidth->expire && balance->generation != level->pool.generation);

	return pl_bw_charge(&level->pool, balance, delta_ns, level->queues[cpu].nr_runnable > 0, now_ns,
			    bandwidth) |
	       (asked ? PL_LEVEL_ASKED : 0);
}

/* What a queue weighs on its CPU, as weight_sum counts it. */
PL_INLINE u64 pl_queue_weight(const struct pl_queue PL_MEM *queue)
{
	return queue->effective >> (PL_EFFECTIVE_SHIFT - PL_FAIR_WEIGHT_SHIFT);
}

/*
 * What is served in a queue, a task or the queue of a child group, is no further behind it than as many turns of all
 * that is runnable there, or than `credit` if that is more. Returns its vruntime.
 */
PL_SUB u64 pl_queue_keep_up(const struct pl_queue PL_MEM *queue PL_ARENA, u64 vruntime, u64 turns, u64 credit,
			    const struct pl_fair_config PL_MEM *config PL_ARENA)
{
	u64 behind = pl_fair_scale(turns * config->slice_ns * queue->nr_runnable, pl_queue_weight(queue));
	u64 earliest = queue->vruntime - pl_max(behind, credit);

	return pl_fair_before(vruntime, earliest) ? earliest : vruntime;
}

/*
 * What a task of the group ran is the group's, whoever else of it waits, and that of all groups above. Source: the
 * kernel's fair class, where a group's entity on the CPU has a vruntime of its own.
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
	if (group->parent)
		pl_queues_ran(task, delta_ns, &config->fair);
	else
		task->vruntime += pl_fair_scale(delta_ns, task->effective);
	return flags & ~PL_LEVEL_ASKED;
}

/* Run time until some level has to be charged, at most max_ns. 0: now. */
PL_FN u64 pl_group_budget(const struct pl_group PL_MEM *group, u32 cpu, u64 max_ns)
{
	struct pl_group PL_MEM *level;
	u64 budget_ns = max_ns;

	for (level = pl_charged_first(group); level && PL_LOOP; level = pl_charged_next(group, level))
		/* The side group is on the way before its first window has set a limit. */
		if (pl_bw_limited(&level->pool))
			budget_ns = pl_min(budget_ns, pl_bw_budget(&level->pool.balances[cpu]));
	return budget_ns;
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
 * that nobody else answers for it.
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
 * behind what was served owes nothing; to put it as far behind again would forgive what it has run since. Returns its
 * new vruntime.
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
			/* Written seldom: the engine may charge somebody of the group meanwhile. */
			u64 within = pl_fair_clamp(above->vruntime, earliest, latest);

			if (within != above->vruntime)
				above->vruntime = within;
		}
		/* It had its turn, and waits for the next: it answers for what others of the group took. */
		if (!woken && !came)
			task->vruntime = pl_queue_keep_up(queue, task->vruntime, PL_QUEUE_TURNS, 0, config);
	}
	if (woken && config->pull_ns) {
		s64 slice = (s64)pl_fair_scale(config->slice_ns, task->effective);
		u64 latest = cpu->served + (u64)pl_smin(pl_smax(task->lead, 0), slice);

		if (pl_fair_before(latest, task->vruntime))
			task->vruntime = latest;
	}
	task->vruntime = pl_fair_place(cpu, task->vruntime, task->effective, woken, config);
	if (grouped && !woken && came)
		pl_queues_join(task);
	return task->vruntime;
}

/*
 * Looks at the next queue of the group for load that nobody else will take out of its sum. Returns whether the shared
 * line was written. One queue at a time, and only where a running task is weighed anew: more costs the verifier.
 */
PL_FN bool pl_level_forget(struct pl_group PL_MEM *level, struct pl_queue PL_MEM *queue, u64 now_ns)
{
	queue->look_at = queue->look_at + 1 < level->pool.nr_cpus ? queue->look_at + 1 : 0;
	return pl_load_forget(&level->load, &PL_ELEMENT(level->queues, queue->look_at)->load, now_ns);
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
	if (task->group->parent)
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

	if (config->pull_ns && woken->group != running->group) {
		if (woken->group->parent)
			weight = pl_queue_weight(&woken->group->queues[woken->cpu]);
		weight *= PL_FAIR_GROUP_GRAN_PART;
	}
	return pl_fair_preempts(woken->vruntime, weight, woken->idle, running_vruntime, running->idle,
				config);
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

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * group.h - the hierarchy: groups, and their queue on each CPU
 *
 * Problem    Weights and limits hold at every level of a tree of groups. A queue per group and CPU, as the
 *            kernel has it, costs 3.2 GB of dispatch queues for 2,000 groups on 224 CPUs.
 *
 * Mechanism  Tasks wait in one dispatch queue per CPU. A group keeps, per CPU, only numbers: how much of it
 *            is runnable, its load, its share, its balance, its line (steps.h). A queue weighs on its CPU what its share is,
 *            times, for each level above, share / runnable weight; a task has its part of that (task.h). That product
 *            compares CPUs with each other (domain.h), and is what baseline/cfs.h charges by; turns on a CPU go by the
 *            shares themselves, level by level. Charging and throttling walk the limited levels only.
 *
 * Formula    queue     = share * PROD over levels above (share / runnable weight of that level's queue)
 *            share     = load.h; 0 where the level is throttled, or all of its children are
 *            with crowds: share * min(tasks, CPUs): a weight is one per CPU that the group keeps busy, not for all of them
 *            a task may run on a CPU if no level of its group is throttled there
 *
 * Trade-offs What a queue weighs is computed at most once per refresh_ns and kept; until then a change of load
 *            elsewhere is not seen. With refresh_ns = 0 it is computed at every change (the rule before system
 *            4, and its cost). What it is divided by is kept as long, unless the queue's runnable weight has more than
 *            doubled or halved, as it does with every wake-up where nice values differ: that is seen by the task
 *            that is picked next.
 *
 * Limits     Depth PL_GROUP_DEPTH_MAX below the root. Weights below 2^-19 of nice 0 are rounded up to that. With crowds
 *            a queue weighs no more than cpu.weight 10000 does on one CPU, which the kernel does not say.
 *
 * Source: ARCHITECTURE.md, How the hierarchy is kept; systems 1, 4 and 5 for what is done at each level.
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

/* What a queue weighs at most where its share is multiplied: cpu.weight 10000 on one CPU. */
#define PL_SHARE_MAX ((u64)100 * PL_WEIGHT_UNIT << PL_LOAD_SHIFT)

#define PL_REFRESH_NS (1 * PL_MS) /* the default */

struct pl_config {
	struct pl_bw_config bandwidth;
	struct pl_bw_config side; /* of headroom's side group: small slices, nothing carried over */
	struct pl_load_config load;
	struct pl_fair_config fair;
	u64 refresh_ns; /* least time between two computations of a queue's factor; 0: at every change */
};

struct pl_turn;

/* All tasks in the lines of a CPU, in the order of their last turn, or of their coming: turn.h. */
struct pl_rota {
	struct pl_turn PL_MEM *first;
	struct pl_turn PL_MEM *last;
	u64 late; /* the last one picked was the first here, for it had waited for too long */
};

/* One group on one CPU. Touched by that CPU only, and by those that take a task along from or to it. */
struct pl_queue {
	struct pl_load load;
	u64 share; /* what it adds to load.weight of its parent's queue; 0 while nothing is runnable */
	u64 effective; /* what this queue weighs on its CPU; PL_EFFECTIVE_SHIFT bits are fraction; the root's is not used */
	u64 divisor;	  /* load.weight when tasks were last given their parts of effective anew */
	u64 refreshed_ns; /* when effective was computed */
	u64 vruntime; /* baseline/cfs.h only: as if all that is below it here were one task that weighs `effective` */
	u32 nr_runnable; /* tasks of this group here, and child groups with something runnable here */
	u32 look_at;	 /* the CPU whose queue was last looked at for load that it left in the group's sum */
	struct pl_rota
	    rota; /* of the root's: a group's memory for each CPU bounds how many groups there may be */
} PL_OWN_LINE;

struct pl_node;

struct pl_group {
	struct pl_pool pool;
	struct pl_group_load load;
	struct pl_group_load crowd;	 /* of crowds */
	u64 weight;			 /* pl_weight_of_cpu_weight */
	struct pl_group PL_MEM *parent;	 /* NULL: this is the root */
	struct pl_group PL_MEM *charged; /* nearest limited level, from here up; NULL: none */
	struct pl_group PL_MEM *side;	 /* headroom's side group, if this is one of the side; else NULL */
	struct pl_queue PL_MEM *queues;	 /* one per CPU */
	struct pl_load PL_MEM
	    *crowds; /* one per CPU: tasks runnable here and below; NULL: weights are the group's */
	struct pl_node PL_MEM
	    *nodes; /* one per CPU: its lines, steps.h; NULL where another rule has the turns */
	u64 id;	    /* the engine's name for it */
	u64 headroom_tolerance_ns; /* of a main group, per window; 0: headroom's configuration says */
	u32 idle;		   /* cpu.idle */
	u32 depth;		   /* root 0 */
	u32 is_side;		   /* this is headroom's side group itself */
	u32 headroom_percent;	   /* > 0: a main group */
	u32 holds_main;		   /* a main group, or an ancestor of one */
	u32 under_main;		   /* a main group, or a descendant of one */
	u32 under_idle;		   /* cpu.idle, here or above */
	u32 cpus;		   /* that it may run on, for crowds; 0: all */
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

/*
 * A new group on memory of the engine's, all zero. queues and balances: one per CPU; ring: see pl_bw_init. The engine
 * sets `nodes` and `crowds`, where there are any.
 */
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

/* cpu.weight was written: 1 .. 10000. Afterwards pl_queue_written for each CPU. */
PL_FN void pl_group_set_weight(struct pl_group PL_MEM *group, u32 cpu_weight)
{
	group->weight = pl_weight_of_cpu_weight(cpu_weight);
}

/*
 * cpu.idle was written; afterwards pl_group_link, for the group and all below it, and pl_queue_written for each CPU. A group
 * that is idle no longer weighs 100, whatever its cpu.weight was before. Source: the kernel.
 */
PL_FN void pl_group_set_idle(struct pl_group PL_MEM *group, bool idle)
{
	if (group->idle && !idle)
		group->weight = PL_WEIGHT_UNIT;
	group->idle = idle;
}

/* What a group weighs in its parent: cpu.weight, or next to nothing for cpu.idle. */
PL_FN u64 pl_group_weight(const struct pl_group PL_MEM *group)
{
	return group->idle ? PL_WEIGHT_IDLE : group->weight;
}

/* What a share is multiplied by: how many CPUs' worth of tasks the group runs. 1 without crowds. */
PL_INLINE u64 pl_group_concurrency(const struct pl_group PL_MEM *group)
{
	if (!PL_BASELINE(group->crowds))
		return 1;
	return pl_min(pl_load_tasks(&group->crowd), group->cpus ? group->cpus : group->pool.nr_cpus);
}

/* One task more, one less (`change` +1, -1), or none, is runnable on this CPU in one level: its average, and the sum. */
PL_INLINE void pl_level_crowd(struct pl_group PL_MEM *level, u32 cpu, s64 change, u64 now_ns,
			      struct pl_touch PL_MEM *touch, const struct pl_config PL_MEM *config)
{
	struct pl_load PL_MEM *crowd = &level->crowds[cpu];

	pl_load_update(crowd, now_ns);
	crowd->weight += (u64)(change * (1 << (PL_LOAD_TASK_SHIFT + PL_LOAD_SHIFT)));
	if (pl_load_publish(&level->crowd, crowd, now_ns, &config->load))
		touch->load_writes++;
}

/* A task of the group is runnable on this CPU from now on (`change` +1), or no longer (-1): all levels count it. */
PL_FN void pl_group_crowd(struct pl_group PL_MEM *group, u32 cpu, s64 change, u64 now_ns,
			  struct pl_touch PL_MEM *touch, const struct pl_config PL_MEM *config)
{
	struct pl_group PL_MEM *level;

	for (level = group; level->parent && PL_LOOP; level = level->parent)
		pl_level_crowd(level, cpu, change, now_ns, touch, config);
}

/*
 * What a level with something runnable on this CPU adds to its parent's queue there. 0 while none of it may run: it is
 * throttled, or all of its children are. Source: the kernel, where a throttled queue leaves its parent's.
 */
PL_INLINE u64 pl_level_share(const struct pl_group PL_MEM *level, u32 cpu)
{
	const struct pl_queue PL_MEM *queue = &level->queues[cpu];
	u64 share;

	if (!queue->load.weight || pl_read(&level->pool.balances[cpu].throttled) ||
	    (level->side && pl_read(&level->side->pool.balances[cpu].throttled)))
		return 0;
	share = pl_load_share(&level->load, &queue->load, pl_group_weight(level));
	if (PL_BASELINE(level->crowds))
		share = pl_min(share * pl_group_concurrency(level), PL_SHARE_MAX);
	return share;
}

/* Brings one level's share up to date on one CPU, after its load there and that of the level above. Returns the share. */
PL_SUB u64 pl_level_refresh(struct pl_group PL_MEM *level PL_ARENA, u32 cpu, u64 now_ns,
			    struct pl_touch PL_MEM *touch PL_ARENA,
			    const struct pl_config PL_MEM *config PL_ARENA)
{
	struct pl_queue PL_MEM *queue = &level->queues[cpu];
	struct pl_load PL_MEM *above = &level->parent->queues[cpu].load;
	u64 share;

	if (pl_load_publish(&level->load, &queue->load, now_ns, &config->load))
		touch->load_writes++;
	if (PL_BASELINE(level->crowds))
		pl_level_crowd(level, cpu, 0, now_ns, touch, config);
	if (!queue->nr_runnable)
		return 0;
	share = pl_level_share(level, cpu);
	touch->load_reads += share > 0;
	if (share != queue->share) {
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
 * What the group weighs in its parent has been written anew: what its queue on this CPU weighs is found out as the next task of it is
 * weighed. With locks: the CPU's.
 */
PL_FN void pl_queue_written(struct pl_group PL_MEM *group, u32 cpu)
{
	pl_write(&group->queues[cpu].refreshed_ns, 0);
}

/* Brings shares of this group and all above it up to date on one CPU, and what its queues there weigh. Returns 0. */
PL_SUB u64 pl_shares_refresh(struct pl_group PL_MEM *group PL_ARENA, u32 cpu, u64 now_ns,
			     struct pl_touch PL_MEM *touch PL_ARENA,
			     const struct pl_config PL_MEM *config PL_ARENA)
{
	struct pl_queue PL_MEM *bottom = &group->queues[cpu];
	struct pl_group PL_MEM *level;
	u64 least = ~0ULL;
	u64 effective = 0;

	/* The root's is not needed: it has no share of anything. */
	for (level = group; level->parent && PL_LOOP; level = level->parent)
		pl_load_update(&level->queues[cpu].load, now_ns);
	for (level = group; level->parent && PL_LOOP; level = level->parent) {
		least = pl_min(least, pl_level_refresh(level, cpu, now_ns, touch, config));
		effective = level == group ? bottom->share << (PL_EFFECTIVE_SHIFT - PL_LOAD_SHIFT)
					   : pl_queue_part(&level->queues[cpu], effective);
	}
	/*
	 * A queue in which nothing may run has no share. Its last weight stays, for a task that comes and for one that runs
	 * although throttled until it is back in user space.
	 */
	if (!least)
		return 0;
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

PL_INLINE bool pl_refresh_due(const struct pl_queue PL_MEM *queue, u64 now_ns,
			      const struct pl_config PL_MEM *config)
{
	return !queue->share || now_ns - queue->refreshed_ns >= config->refresh_ns;
}

/* Likewise, if pl_refresh_due: where refresh_ns have passed since, or the queue has no share in its parent's. */
PL_SUB u64 pl_group_refresh(struct pl_group PL_MEM *group PL_ARENA, u32 cpu, u64 now_ns,
			    struct pl_touch PL_MEM *touch PL_ARENA,
			    const struct pl_config PL_MEM *config PL_ARENA)
{
	struct pl_queue PL_MEM *bottom = &group->queues[cpu];

	if (!PL_BASELINE(!config->refresh_ns) && !pl_refresh_due(bottom, now_ns, config))
		return 0;
	/* Of this queue only: the levels above may have tasks of their own, which are weighed when these ask. */
	bottom->refreshed_ns = now_ns;
	if (group->parent)
		pl_shares_refresh(group, cpu, now_ns, touch, config);
	return 0;
}

/*
 * A task of the group is parked on this CPU because `level` is throttled there: what all levels weigh in their parents'
 * queues follows at once, so that no part of the time goes to nothing. Its return is seen as the first of it is picked.
 * With locks: the CPU's.
 */
PL_FN void pl_group_parked(struct pl_group PL_MEM *group, const struct pl_group PL_MEM *level, u32 cpu,
			   u64 now_ns, struct pl_touch PL_MEM *touch, const struct pl_config PL_MEM *config)
{
	/* The side is in no queue: its groups are. */
	if (level->is_side)
		level = group;
	if (level->queues[cpu].share)
		pl_shares_refresh(group, cpu, now_ns, touch, config);
}

/*
 * Follows what is runnable in the queue, if that is far from what its tasks were last weighed by: as a task is left
 * alone by one like itself, not as it is joined by one. (With vruntimes, baseline/cfs.h, that one would preempt it
 * later than where nothing is shared.)
 */
PL_INLINE void pl_queue_follow(struct pl_queue PL_MEM *queue)
{
	u64 weight = queue->load.weight;

	if (weight > 2 * queue->divisor || 2 * weight <= queue->divisor)
		queue->divisor = weight;
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

#define PL_LEVEL_ASKED 8u /* the highest of the flags: the pool was asked */

/* Charges one limited level. Returns PL_BW_* flags and PL_LEVEL_ASKED. */
PL_SUB u32 pl_level_charge(struct pl_group PL_MEM *level PL_ARENA, u32 cpu, u64 delta_ns, u64 now_ns,
			   const struct pl_config PL_MEM *config PL_ARENA)
{
	const struct pl_bw_config PL_MEM *bandwidth = pl_level_config(level, config);
	struct pl_balance PL_MEM *balance = &level->pool.balances[cpu];
	/* Used up, or expired: the pool will be asked. */
	bool asked = balance->remaining_ns <= (s64)delta_ns ||
		     (PL_BASELINE(bandwidth->expire) && balance->generation != level->pool.generation);

	return pl_bw_charge(&level->pool, balance, delta_ns, level->queues[cpu].nr_runnable > 0, now_ns,
			    bandwidth) |
	       (asked ? PL_LEVEL_ASKED : 0);
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
 * Looks at the next queue of the group for load that no other CPU will take out of its sum. Returns whether the shared
 * line was written. One queue at a time, and only where a running task is weighed anew: more costs the verifier.
 */
PL_FN bool pl_level_forget(struct pl_group PL_MEM *level, struct pl_queue PL_MEM *queue, u64 now_ns)
{
	queue->look_at = queue->look_at + 1 < level->pool.nr_cpus ? queue->look_at + 1 : 0;
	if (PL_BASELINE(level->crowds))
		pl_load_forget(&level->crowd, &level->crowds[queue->look_at], now_ns);
	return pl_load_forget(&level->load, &PL_ELEMENT(level->queues, queue->look_at)->load, now_ns);
}

#endif

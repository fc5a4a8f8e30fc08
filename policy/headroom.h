/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * headroom.h - idle CPU kept for the main workload
 *
 * Problem    A batch job beside a latency-sensitive service fills every idle CPU. Weights make it give way,
 *            but only after the service has met a busy CPU, a cold cache and a busy sibling.
 *
 * Mechanism  The groups with cpu.headroom are main. Every group that is neither main, nor above or below a
 *            main group, is side. All of the side together draws run time from one more pool, the side
 *            group's, through the same balances as any limit (bandwidth.h). At the end of each window its
 *            budget is set from what was measured.
 *
 * Formula    budget' = used + (idle - wanted_idle),  wanted_idle = percent * capacity
 *            clamped to [tolerance, capacity]
 *            With main stationary this is capacity - main - wanted_idle after one window: there is nothing
 *            to oscillate.
 *
 * Trade-offs The budget is handed out in `steps` parts of the window, in small slices, so that the idle
 *            share exists at every moment and not only at the window's end. A part not used is not carried
 *            over.
 *
 * Limits     Idle time is the machine's: pinning the side onto few CPUs keeps the others idle as well. The
 *            tolerance always goes to the side, however busy main is.
 *
 * Source: system 5. Several main groups: the largest headroom binds, with its own tolerance where it has one; of
 * equal headrooms the smallest tolerance. Main is never throttled by it.
 */
#ifndef PL_HEADROOM_H
#define PL_HEADROOM_H

#include "group.h"

#define PL_HEADROOM_WINDOW_NS (100 * PL_MS)
#define PL_HEADROOM_TOLERANCE_NS (1 * PL_MS) /* per window */
#define PL_HEADROOM_STEPS 20		     /* 5 ms each at the default window */
#define PL_HEADROOM_SLICE_NS (500 * PL_US)

struct pl_headroom_config {
	u64 window_ns;	  /* 10 ms .. 1 s */
	u64 tolerance_ns; /* >= 1 us, per window */
	u32 steps;	  /* 1 .. 100 */
	u32 reserved;
};

struct pl_headroom {
	u64 budget_ns; /* of the present window */
	u64 used_ns;   /* by the side, in the last window */
	u64 idle_ns;   /* of the machine, in the last window */
	u64 nr_windows;
	u64 tolerance_ns; /* of the group whose headroom binds; 0: the configuration's */
	u32 percent;	  /* wanted idle share; 0: no group asks for headroom */
	u32 reserved;
};

/*
 * Which groups are main and which are side, after a group came, went or changed its headroom. Three walks over all
 * groups, parents before children:
 *
 *	marked.percent = 0;
 *	marked.tolerance_ns = 0;
 *	for each group: pl_headroom_clear(group)
 *	for each group: pl_headroom_mark(&marked, group)
 *	pl_headroom_take(headroom, &marked)
 *	for each group: pl_headroom_link(headroom, group, side)
 *
 * `marked` is another one where a window may end during the walks: it must not find that no group wants headroom.
 */
PL_FN void pl_headroom_clear(struct pl_group PL_MEM *group)
{
	group->holds_main = 0;
	group->under_main = 0;
}

PL_FN void pl_headroom_mark(struct pl_headroom PL_MEM *headroom, struct pl_group PL_MEM *group)
{
	struct pl_group PL_MEM *level;
	u64 tolerance_ns = group->headroom_tolerance_ns;

	group->under_main = group->headroom_percent || (group->parent && group->parent->under_main);
	if (!group->headroom_percent)
		return;
	if (group->headroom_percent > headroom->percent) {
		headroom->percent = group->headroom_percent;
		headroom->tolerance_ns = tolerance_ns;
	} else if (group->headroom_percent == headroom->percent && tolerance_ns &&
		   (!headroom->tolerance_ns || tolerance_ns < headroom->tolerance_ns)) {
		headroom->tolerance_ns = tolerance_ns;
	}
	for (level = group; level && !level->holds_main && PL_LOOP; level = level->parent)
		level->holds_main = 1;
}

PL_FN void pl_headroom_take(struct pl_headroom PL_MEM *headroom, const struct pl_headroom PL_MEM *marked)
{
	headroom->tolerance_ns = marked->tolerance_ns;
	pl_write(&headroom->percent, marked->percent);
}

/* Whether the group belongs to the side. The root does not: what runs there is the system's own. */
PL_FN bool pl_headroom_is_side(const struct pl_headroom PL_MEM *headroom, const struct pl_group PL_MEM *group)
{
	return headroom->percent && group->parent && !group->is_side && !group->holds_main &&
	       !group->under_main;
}

/*
 * Sets the group's way to the side group. The group must have nothing runnable when the answer changes, or
 * the engine takes its tasks out (pl_task_blocked) before and puts them back (pl_task_runnable) after.
 * Returns whether it would change.
 */
PL_FN bool pl_headroom_side_changes(const struct pl_headroom PL_MEM *headroom,
				    const struct pl_group PL_MEM *group)
{
	return pl_headroom_is_side(headroom, group) != (group->side != NULL);
}

PL_FN void pl_headroom_link(const struct pl_headroom PL_MEM *headroom, struct pl_group PL_MEM *group,
			    struct pl_group PL_MEM *side)
{
	group->side = pl_headroom_is_side(headroom, group) ? side : NULL;
}

/* The side's budget for the next window. capacity_ns: window times CPUs online. tolerance_ns: always granted. */
PL_FN u64 pl_headroom_budget(u64 used_ns, u64 idle_ns, u64 capacity_ns, u32 percent, u64 tolerance_ns)
{
	u64 wanted_ns = pl_div(capacity_ns, 100) * percent;
	u64 have_ns = used_ns + idle_ns;
	u64 budget_ns = have_ns > wanted_ns ? have_ns - wanted_ns : 0;

	return pl_min(pl_max(budget_ns, tolerance_ns), pl_max(capacity_ns, tolerance_ns));
}

/*
 * What a budget for window_ns is in config->window_ns, cut into steps. Multiplied as a whole it would not fit from 19
 * CPUs and a window of 1 s on; the rest fits for windows up to 18 s.
 */
PL_INLINE u64 pl_headroom_part(u64 budget_ns, u64 window_ns, u64 steps,
			       const struct pl_headroom_config PL_MEM *config)
{
	u64 whole = pl_div(budget_ns, window_ns);
	u64 rest_ns = budget_ns - whole * window_ns;

	return pl_max(
	    pl_div(whole * config->window_ns + pl_div(rest_ns * config->window_ns, window_ns), steps), 1);
}

/*
 * A window ended: used_ns and idle_ns are what the side used and the machine was idle in it, window_ns how
 * long it really was. Sets the side pool's quota from now on. Returns PL_BW_ARM_PERIOD if the pool's timer
 * has to be started. Everything throttled there waits for the next step's refill, unless no group wants
 * headroom any more: then the limit is gone, and the engine releases all (pl_bw_release_next).
 */
PL_FN u32 pl_headroom_window(struct pl_headroom PL_MEM *headroom, struct pl_group PL_MEM *side, u64 used_ns,
			     u64 idle_ns, u64 window_ns, u32 nr_cpus_online, u64 now_ns,
			     const struct pl_headroom_config PL_MEM *config,
			     const struct pl_bw_config PL_MEM *bandwidth)
{
	struct pl_pool PL_MEM *pool = &side->pool;
	struct pl_bw_limits limits = {};
	u64 steps = pl_max(config->steps, 1);
	u64 period_ns = pl_max(pl_div(config->window_ns, steps), PL_US);
	u64 part_ns;

	headroom->used_ns = used_ns;
	headroom->idle_ns = idle_ns;
	headroom->nr_windows++;
	if (!headroom->percent) {
		headroom->budget_ns = PL_UNLIMITED;
		pl_write(&pool->quota_ns, PL_UNLIMITED);
		return 0;
	}
	headroom->budget_ns =
	    pl_headroom_budget(used_ns, idle_ns, window_ns * nr_cpus_online, headroom->percent,
			       headroom->tolerance_ns ? headroom->tolerance_ns : config->tolerance_ns);
	part_ns = pl_headroom_part(headroom->budget_ns, pl_max(window_ns, 1), steps, config);
	if (!pl_bw_limited(pool)) {
		limits.quota_ns = part_ns;
		limits.period_ns = period_ns;
		return pl_bw_set(pool, &limits, now_ns, now_ns, bandwidth);
	}
	/* Overruns of its timer may have doubled the period, but the budget is in parts of this one. */
	pl_write(&pool->period_ns, period_ns);
	pool->buffer_ns = part_ns;
	pl_write(&pool->quota_ns, part_ns);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * steal.h - an idle CPU takes work from an overloaded one of its LLC
 *
 * Problem    New-idle balancing searches widely, so it is declined when idle times are short: CPUs sleep
 *            while the next one has a queue.
 *
 * Mechanism  Overloaded CPUs (two or more queued tasks) are in a sparsemask per LLC. A CPU that runs dry looks at its
 *            SMT siblings, then at the LLC from the next CPU on, and takes the first task of that one's queue, which
 *            has what is furthest behind first (domain.h), that is not running, may run here and is not throttled.
 *
 * Formula    steal if enabled and nodes <= node_limit and avg_idle >= cost (10 us)
 *            avg_idle += (idle - avg_idle) / 8, at most twice the largest cost of interest
 *
 * Trade-offs A stolen task leaves a warm cache; within an LLC that is cheap, whatever the number of NUMA nodes. The
 *            published series did not steal at all on machines of more than two nodes; node_limit = 2 does as it did.
 *            It had the kernel's new-idle balance besides, without which CPUs of such a machine idle beside a queue.
 *
 * Limits     One task at a time. On machines of several small LLCs stealing cannot reach the other cluster,
 *            and costs the search: the published hikey rows are slower with it.
 *
 * Source: system 3.
 */
#ifndef PL_STEAL_H
#define PL_STEAL_H

#include "sparsemask.h"

#define PL_STEAL_COST_NS (10 * PL_US)
#define PL_STEAL_NODE_LIMIT 1024 /* of Linux's node numbers, so none is left out */
#define PL_STEAL_OVERLOADED 2	 /* queued tasks, the running one included */
#define PL_AVG_IDLE_MAX_NS (1 * PL_MS)

struct pl_steal_config {
	u32 enabled;
	u32 node_limit;
	u64 cost_ns;
};

struct pl_steal {
	u64 avg_idle_ns;
	u64 nr_steals;
	u64 nr_searches;
	u64 find_ns; /* time spent finding, reported by the engine */
};

/* An idle stretch of idle_ns ended. */
PL_FN void pl_steal_idle_ended(struct pl_steal PL_MEM *steal, u64 idle_ns)
{
	u64 avg_ns = steal->avg_idle_ns;

	if (idle_ns >= avg_ns)
		avg_ns += (idle_ns - avg_ns) / 8;
	else
		avg_ns -= (avg_ns - idle_ns) / 8;
	steal->avg_idle_ns = pl_min(avg_ns, PL_AVG_IDLE_MAX_NS);
}

/* Whether to look for a victim at all. */
PL_FN bool pl_steal_worthwhile(const struct pl_steal PL_MEM *steal, u32 nr_nodes,
			       const struct pl_steal_config PL_MEM *config)
{
	return config->enabled && nr_nodes <= config->node_limit && steal->avg_idle_ns >= config->cost_ns;
}

/*
 * A CPU's count of queued tasks went from `before` to `after`: whether others may take from it now (1), may no
 * longer (-1), or nothing has changed in that (0).
 */
PL_FN s32 pl_steal_turned(u32 before, u32 after)
{
	return (after >= PL_STEAL_OVERLOADED) - (before >= PL_STEAL_OVERLOADED);
}

/*
 * Likewise, keeping its bit. `element` is its number in the LLC. Returns whether the mask was written. Compares by itself:
 * through pl_steal_turned the live scheduler takes 0.02 s longer to load (tests/live/load.sh).
 */
PL_FN bool pl_steal_count_changed(struct pl_sparsemask PL_MEM *mask, u32 element, u32 before, u32 after)
{
	if (before < PL_STEAL_OVERLOADED && after >= PL_STEAL_OVERLOADED)
		pl_sparsemask_set(mask, element);
	else if (before >= PL_STEAL_OVERLOADED && after < PL_STEAL_OVERLOADED)
		pl_sparsemask_clear(mask, element);
	else
		return false;
	return true;
}

/*
 * Whether a candidate task may be taken over. allowed_here: by its affinity and cpuset, and its migration is not
 * disabled; throttled: on the CPU that would take it.
 */
PL_FN bool pl_steal_may_take(bool running, bool allowed_here, bool throttled)
{
#ifdef PL_MUTATE_STEAL /* deliberately broken, to see the fuzzer notice it */
	(void)allowed_here;
	return !running && !throttled;
#else
	return !running && allowed_here && !throttled;
#endif
}

#endif

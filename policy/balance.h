/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * balance.h - the baseline that stealing is compared with: new-idle and periodic balancing
 *
 * Problem    A figure for stealing means nothing without what Linux does in its place.
 *
 * Mechanism  A CPU that runs dry searches its domains for work, domain by domain, but only if it expects to
 *            be idle for longer than the search has been seen to cost. Every tick interval a CPU also
 *            compares its queue with the busiest of the domain.
 *
 * Formula    search a domain if avg_idle >= cost so far + max_cost(domain)
 *            max_cost = max(max_cost, measured), decayed by 253/256 once a second
 *            periodic: move (busiest - mine) / 2 tasks, if busiest >= mine + 2
 *
 * Trade-offs Short idle times decline the search: that is what stealing mends.
 *
 * Limits     Tasks are counted, not weighed.
 *
 * Source: system 3's baseline; the kernel's fair class.
 */
#ifndef PL_BALANCE_H
#define PL_BALANCE_H

#include "port.h"

#define PL_NEWIDLE_DECAY_NUM 253
#define PL_NEWIDLE_DECAY_DEN 256
#define PL_NEWIDLE_DECAY_INTERVAL_NS (1 * PL_SEC)

/* Per CPU and domain level. */
struct pl_newidle {
	u64 max_cost_ns;
	u64 decayed_ns; /* when last */
};

/* Whether to search this domain, having spent spent_ns on the ones below. */
PL_FN bool pl_newidle_worthwhile(const struct pl_newidle PL_MEM *newidle, u64 avg_idle_ns, u64 spent_ns)
{
	return avg_idle_ns >= spent_ns + newidle->max_cost_ns;
}

/* A search of this domain took cost_ns. */
PL_FN void pl_newidle_measured(struct pl_newidle PL_MEM *newidle, u64 cost_ns)
{
	newidle->max_cost_ns = pl_max(newidle->max_cost_ns, cost_ns);
}

/* Forgets slowly; call at ticks. */
PL_FN void pl_newidle_decay(struct pl_newidle PL_MEM *newidle, u64 now_ns)
{
	if (now_ns - newidle->decayed_ns < PL_NEWIDLE_DECAY_INTERVAL_NS)
		return;
	newidle->max_cost_ns = pl_div(newidle->max_cost_ns * PL_NEWIDLE_DECAY_NUM, PL_NEWIDLE_DECAY_DEN);
	newidle->decayed_ns = now_ns;
}

/*
 * Whether a new-idle CPU leaves a task where it is: it ran less than hot_ns ago (the kernel's
 * sched_migration_cost), so that the cache still holds what it works on.
 */
PL_FN bool pl_newidle_hot(u64 since_ran_ns, u64 hot_ns)
{
	return since_ran_ns < hot_ns;
}

/* How many tasks a CPU with `mine` runnable takes from one with `busiest`. */
PL_FN u32 pl_balance_to_move(u32 busiest, u32 mine)
{
	return busiest >= mine + 2 ? (busiest - mine) / 2 : 0;
}

#endif

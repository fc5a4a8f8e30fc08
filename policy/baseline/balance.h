/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * balance.h - for comparisons only, the baseline that stealing is compared with: new-idle and periodic balancing
 *
 * Problem    A figure for stealing means nothing without what Linux does in its place.
 *
 * Mechanism  A CPU that runs dry searches its domains for work, domain by domain, but only if it expects to
 *            be idle for longer than the search has been seen to cost. Later kernels also throw dice: a domain
 *            is searched as often, in proportion, as searches have found something there. Every tick interval
 *            a CPU also compares its queue with the busiest of the domain.
 *
 * Formula    search a domain if avg_idle >= cost so far + max_cost(domain)
 *            max_cost = max(max_cost, measured), decayed by 253/256 once a second
 *            dice of 1024 sides: search if the number is at most 1 + ratio;  a find counts 1024 / (1 + ratio)
 *            ratio = finds in the last 512 to 1,024 calls, at first 512: every second call searches
 *            a busy CPU, from Linux 5.5 on: only if busiest has had more than 1.17 runnable tasks on average
 *            periodic: move (busiest - mine) / 2 tasks, if busiest >= mine + 2; where load is weighed, no more than half of the
 *            difference of what weighed there on average
 *
 * Trade-offs Short idle times decline the search: that is what stealing mends.
 *
 * Limits     Where load is not weighed, a CPU that a heavy group has used now and then takes as many tasks as any. Where it is, the two
 *            CPUs are evened out, not the domain.
 *
 * Source: system 3's baseline; the kernel's fair class.
 */
#ifndef PL_BALANCE_H
#define PL_BALANCE_H

#include "pelt.h"

#define PL_NEWIDLE_DECAY_NUM 253
#define PL_NEWIDLE_DECAY_DEN 256
#define PL_NEWIDLE_DECAY_INTERVAL_NS (1 * PL_SEC)

/* Per CPU and domain level. */
struct pl_newidle {
	u64 max_cost_ns;
	u64 decayed_ns; /* when last */
	/* of proportional searches */
	u32 calls;
	u32 finds;
	u32 ratio;
	u32 reserved;
};

#define PL_NEWIDLE_CALLS 1024
#define PL_NEWIDLE_RATIO_ONE 1024

/* A domain that nothing is known of. */
PL_FN void pl_newidle_init(struct pl_newidle PL_MEM *newidle)
{
	newidle->max_cost_ns = 0;
	newidle->decayed_ns = 0;
	newidle->calls = PL_NEWIDLE_CALLS / 2;
	newidle->finds = PL_NEWIDLE_CALLS / 4;
	newidle->ratio = PL_NEWIDLE_RATIO_ONE / 2;
	newidle->reserved = 0;
}

PL_INLINE void pl_newidle_called(struct pl_newidle PL_MEM *newidle, u32 finds)
{
	newidle->calls++;
	newidle->finds += finds;
	if (newidle->calls < PL_NEWIDLE_CALLS)
		return;
	newidle->ratio = (u32)pl_min(newidle->finds, PL_NEWIDLE_RATIO_ONE);
	newidle->calls /= 2;
	newidle->finds /= 2;
}

/*
 * Proportional searches: whether to search this time; dice: a random number below 1024. If so, call
 * pl_newidle_found with what came of it.
 */
PL_FN bool pl_newidle_drawn(struct pl_newidle PL_MEM *newidle, u32 dice)
{
	if (dice <= 1 + newidle->ratio)
		return true;
	pl_newidle_called(newidle, 0);
	return false;
}

PL_FN void pl_newidle_found(struct pl_newidle PL_MEM *newidle, bool found)
{
	u32 weight = 1 + newidle->ratio;

	pl_newidle_called(newidle, found ? (PL_NEWIDLE_RATIO_ONE + weight / 2) / weight : 0);
}

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

/*
 * How much of what weighs there it may take; all in effective weights (PL_FAIR_WEIGHT_SHIFT), on average. Source: migrate_load
 * of calculate_imbalance() and detach_tasks() of kernel/sched/fair.c.
 */
PL_FN u64 pl_balance_imbalance(const struct pl_pelt PL_MEM *busiest, const struct pl_pelt PL_MEM *mine)
{
	return busiest->avg > mine->avg ? (busiest->avg - mine->avg) / 2 : 0;
}

/*
 * Whether a CPU that has work of its own may take some from another one's queue: `runnable` is the average number
 * of tasks there, in units of PL_BALANCE_ONE. Short crowds are left to CPUs that run dry.
 */
#define PL_BALANCE_ONE 1024
#define PL_BALANCE_IMBALANCE_PERCENT 117
PL_FN bool pl_balance_overloaded(u32 nr_queued, const struct pl_pelt PL_MEM *runnable)
{
	return nr_queued > 1 && runnable->avg * 100 > PL_BALANCE_ONE * PL_BALANCE_IMBALANCE_PERCENT;
}

#endif

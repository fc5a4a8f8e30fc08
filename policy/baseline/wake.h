/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * wake.h - the baseline that stealing is compared with: where the kernel's fair class puts a waking task
 *
 * Problem    A figure for stealing or for group load means nothing without what wakes tasks up where: a task
 *            that waits behind its waker while the next CPU idles is what stealing finds, and a task that
 *            changes CPU with every wake-up is what moves load averages.
 *
 * Mechanism  Two steps. First the waker's CPU or the task's previous one becomes the target. Then an idle CPU
 *            of the target's cache is looked for: the target, the previous CPU, the one used before, an idle
 *            core, and as many others as the kernel thinks worthwhile. If there is none, the target's queue it
 *            is, however long.
 *
 * Formula    wide:   the busier of waker and woken changes partners more than CPUs times as often as the
 *                    other, which does so more than CPUs times: no pull, the previous CPU is the target
 *            affine: the waker is about to wait and alone: its CPU. Else the less loaded of both, the woken
 *                    task counted in, the previous CPU's load weighed with half the imbalance percentage
 *            proportional search (before 6.0): CPUs * (avg_idle / 512) / avg_scan_cost, at least 4
 *            utilisation search (from 6.0): CPUs * (1 - (1.17 * utilisation)^2), 0 from 85% on
 *
 * Trade-offs Searching less leaves tasks waiting beside idle CPUs; searching more costs every wake-up.
 *
 * Limits     Loads are the weights of what is queued, not decayed averages. Capacities of CPUs are equal.
 *
 * Source: the kernel's fair class, 4.20 and 6.5, as documented in its sources; system 3's and 4's baselines.
 */
#ifndef PL_WAKE_H
#define PL_WAKE_H

#include "port.h"

#define PL_WAKE_FLIP_DECAY_NS (1 * PL_SEC)
#define PL_WAKE_SCAN_MIN 4
#define PL_WAKE_IDLE_SHARE 512 /* of the average idle time, this part may be spent on searching */
#define PL_WAKE_UTIL_ONE 1024
#define PL_WAKE_IMBALANCE_PERCENT 117 /* of a last-level cache's domain */

/* How often a task wakes another than the last one: tells a hub from a partner. */
struct pl_waker {
	u64 flips_from_ns; /* when flips were last halved */
	u32 flips;
	u32 last_woken; /* the engine's number for it, plus 1; 0: none */
};

/* A task wakes `woken`. */
PL_FN void pl_wake_count(struct pl_waker PL_MEM *waker, u32 woken, u64 now_ns)
{
	if (now_ns - waker->flips_from_ns > PL_WAKE_FLIP_DECAY_NS) {
		waker->flips >>= 1;
		waker->flips_from_ns = now_ns;
	}
	if (waker->last_woken != woken + 1) {
		waker->last_woken = woken + 1;
		waker->flips++;
	}
}

/* Whether the two are hub and spoke rather than partners: a cache of `cpus` CPUs is not enough for them. */
PL_FN bool pl_wake_wide(const struct pl_waker PL_MEM *waker, const struct pl_waker PL_MEM *woken, u32 cpus)
{
	u64 more = pl_max(waker->flips, woken->flips);
	u64 less = pl_min(waker->flips, woken->flips);

	return less >= cpus && more >= less * cpus;
}

/*
 * Whether a task is drawn to its waker's CPU. `here`, `there`: weights queued on the waker's and on the previous
 * CPU. sync: the waker, of weight `waker`, is about to wait. A lone one that does is decided without loads.
 */
PL_FN bool pl_wake_affine(u64 here, u64 there, u64 task, u64 waker, bool sync)
{
	s64 with = (s64)here, without = (s64)there - (s64)task;

	if (sync) {
		if (waker >= here)
			return true;
		with -= (s64)waker;
	}
	with = (with + (s64)task) * 100;
	without = without * (100 + (PL_WAKE_IMBALANCE_PERCENT - 100) / 2) + sync;
	return with < without;
}

/* CPUs that are looked at, proportionally to idle time. The kernel counts down before it looks: one less. */
PL_FN u32 pl_wake_scan_proportional(u32 cpus, u64 avg_idle_ns, u64 scan_cost_ns)
{
	u64 worth = cpus * pl_div(avg_idle_ns, PL_WAKE_IDLE_SHARE);
	u64 cost = scan_cost_ns + 1;

	return (u32)(worth > PL_WAKE_SCAN_MIN * cost ? pl_div(worth, cost) : PL_WAKE_SCAN_MIN) - 1;
}

/* Likewise by the cache's utilisation, 0 .. PL_WAKE_UTIL_ONE. */
PL_FN u32 pl_wake_scan_utilisation(u32 cpus, u64 utilisation)
{
	u64 square = utilisation * utilisation * PL_WAKE_IMBALANCE_PERCENT * PL_WAKE_IMBALANCE_PERCENT;
	u64 used = pl_div(square, 10000 * PL_WAKE_UTIL_ONE);

	return (u32)((PL_WAKE_UTIL_ONE - pl_min(used, PL_WAKE_UTIL_ONE)) * cpus / PL_WAKE_UTIL_ONE);
}

/*
 * A search took cost_ns: the average that the next ones are measured by. given_up: it came to its limit with CPUs left
 * to look at, and is not counted: the kernel then returns without a second look at the clock.
 */
PL_FN u64 pl_wake_scan_cost(u64 average_ns, u64 cost_ns, bool given_up)
{
	if (given_up)
		return average_ns;
	return average_ns + cost_ns / 8 - average_ns / 8;
}

#endif

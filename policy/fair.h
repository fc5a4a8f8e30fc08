/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fair.h - what service is measured in where CPUs are compared: virtual time of effective weights, and distances in it
 *
 * Problem    A task's weight says what it is due beside its siblings. Which task of two CPUs is further behind takes
 *            one scale for all tasks, whatever groups they are in.
 *
 * Mechanism  A task's effective weight is its part of its CPU, all levels of groups multiplied (group.h, task.h).
 *            Virtual time advances by run time over effective weight: of two tasks the one that has less of it is
 *            behind. It decides which task moves to another CPU (domain.h), and in what order baseline/cfs.h has turns.
 *            Whose turn it is on a CPU otherwise is decided level by level, in virtual times of each line (entity.h,
 *            steps.h).
 *
 * Formula    virtual time += delta * 2^20 / weight        weight in units of 2^-10 of PL_WEIGHT_UNIT's unit
 *            distance of so many ns = ns * 2^20 / min(weight, 1024): of the task's own service, if it weighs less. One slice
 *                     moves a light task's virtual time by much, which is not a reason to move tasks: pulled for less,
 *                     tasks of a tenth of the weight beside them got a seventh of the time (16 CPUs)
 *
 * Trade-offs One configuration and one set of a CPU's numbers serve both rules of turns, steps.h and baseline/cfs.h:
 *            what the latter alone uses says so.
 *
 * Limits     Virtual times wrap after 584 years of nice 0; their differences decide.
 *
 * Source: ARCHITECTURE.md, How the hierarchy is kept.
 */
#ifndef PL_FAIR_H
#define PL_FAIR_H

#include "weight.h"

#define PL_FAIR_WEIGHT_SHIFT 10 /* effective weights carry 10 bits of fraction */
#define PL_FAIR_WEIGHT_ONE ((u64)PL_WEIGHT_UNIT << PL_FAIR_WEIGHT_SHIFT)
#define PL_FAIR_WEIGHT_MIN 2		   /* 2^-19 of nice 0: what is divided by it stays finite */
#define PL_FAIR_DELTA_MAX_NS (16 * PL_SEC) /* longer stretches are charged as this much: no overflow */

/* The defaults of an engine's configuration. */
#define PL_FAIR_SLICE_NS (3 * PL_MS)
/* A third of sched_ext's watchdog of 30 s, so that the lightest task does not trip it. */
#define PL_FAIR_WAIT_MAX_NS (10000 * PL_MS)
#define PL_FAIR_PULL_NS (10 * PL_MS)
#define PL_FAIR_LAG_MAX_NS (100 * PL_MS)

struct pl_fair_config {
	u64 slice_ns;	       /* how long a task runs before the next is considered */
	u64 latency_ns;	       /* baseline/cfs.h only */
	u64 sleeper_credit_ns; /* baseline/cfs.h only */
	u64 wakeup_gran_ns;    /* baseline/cfs.h only */
	u64 wait_max_ns; /* what has waited for longer goes before what is due a turn; in baseline/cfs.h a bound on vruntime */
	u64 pull_ns; /* distance between CPUs that moves a task; 0: never */
	u64 lag_max_ns; /* how far behind its domain (domain.h), or its queue's clock (baseline/cfs.h), a task may be */
	u64 as_kernel; /* turns are those of the kernel's fair class since 6.6, where that is simulated: steps.h */
	u64 doubled_ns; /* where a kernel is simulated: see pl_entity_doubled; 0: never */
};

/* Per CPU. */
struct pl_fair_cpu {
	u64 weight_sum; /* effective weights of what is queued or running here */
	u64 clock;	/* baseline/cfs.h only: highest vruntime of a task picked; never goes back */
	u32 nr_queued;	/* tasks runnable here, the running one included; parked ones are not */
	u32 reserved;
};

/* Virtual time of delta_ns at an effective weight. */
PL_INLINE u64 pl_fair_scale(u64 delta_ns, u64 weight)
{
	/* delta <= 2^34, so that the product stays below 2^54 */
	return pl_div(pl_min(delta_ns, PL_FAIR_DELTA_MAX_NS) << (PL_FAIR_WEIGHT_SHIFT + 10),
		      pl_max(weight, PL_FAIR_WEIGHT_MIN));
}

/*
 * What a running task's virtual time is by now, if it was last charged delta_ns ago. For bpf/, where charging is late.
 */
PL_INLINE u64 pl_fair_by_now(u64 at, u64 delta_ns, u64 weight)
{
	return at + pl_fair_scale(delta_ns, weight);
}

/* a is before b, for clocks that may wrap. */
PL_INLINE bool pl_fair_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

/* The virtual time, or the end of earliest..latest that it lies beyond. */
PL_INLINE u64 pl_fair_clamp(u64 at, u64 earliest, u64 latest)
{
	if (pl_fair_before(at, earliest))
		return earliest;
	return pl_fair_before(latest, at) ? latest : at;
}

/*
 * A distance of so many ns between CPUs: of weight-1024 time, or of the task's own service if it is lighter. One slice moves
 * a light task by much, which is not a reason to move it to another CPU, or to forget what it is due.
 */
PL_INLINE u64 pl_fair_distance(u64 ns, u64 weight)
{
	return pl_fair_scale(ns, pl_min(weight, PL_FAIR_WEIGHT_ONE));
}

/*
 * Whether so much virtual time is no more than pl_fair_distance. Most often it is far less, which takes no division to
 * see.
 */
PL_INLINE bool pl_fair_within(u64 distance, u64 ns, u64 weight)
{
	if (distance < 1ULL << 40)
		return distance * pl_max(pl_min(weight, PL_FAIR_WEIGHT_ONE), PL_FAIR_WEIGHT_MIN) <=
		       pl_min(ns, PL_FAIR_DELTA_MAX_NS) << (PL_FAIR_WEIGHT_SHIFT + 10);
	return distance <= pl_fair_distance(ns, weight);
}

/*
 * After how long the task that runs is stopped, by a timer: its groups' run time is used up in budget_ns, its slice in
 * slice_ns. Where others wait the turn ends on time, as a tick is up to 10 ms late; one that has the CPU to itself goes on. The
 * engine asks as it picks, and as a task begins to wait.
 */
PL_FN u64 pl_fair_turn(const struct pl_fair_cpu PL_MEM *cpu, u64 slice_ns, u64 budget_ns)
{
	return cpu->nr_queued > 1 ? pl_min(slice_ns, budget_ns) : budget_ns;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fair.h - which task runs next: one queue per CPU in order of vruntime
 *
 * Problem    Each runnable task is due CPU time in proportion to its effective weight (group.h flattens the
 *            hierarchy into one number), on its CPU and, as far as affinity allows, across CPUs.
 *
 * Mechanism  A CPU's queue is ordered by vruntime, which advances by run time over effective weight. A
 *            waking task is placed no further back than a little before what the queue serves now, so that a
 *            long sleep earns no more than that; one that was preempted or moved keeps what it is owed.
 *            Each CPU's timeline has an offset to a common one; a task that moves keeps its lag. A CPU that
 *            ends a slice looks at one other CPU's head: if that head is further behind on the common
 *            timeline than `pull_ns`, it is taken over.
 *
 * Formula    vruntime += delta * 2^20 / weight            weight in units of 2^-10 of PL_WEIGHT_UNIT's unit
 *            place:   preempted or moved: vruntime = max(vruntime, clock - owed)
 *                     owed = lag_max * 2^20 / max(sum of weights queued here, 1024's)
 *                     woken: vruntime = max(vruntime, served - credit), credit in weight-1024 time
 *                     served = min(clock, vruntime of the last task picked + credit): a queue that pays back
 *                     what is owed to tasks of others is behind its clock, and a woken task does not wait for it
 *            new:     vruntime = served + slice * 2^20 / weight: a group that makes tasks faster than they end
 *                     gets no more than its share by that. Source: START_DEBIT of the kernel's fair class
 *            bound:   vruntime <= clock + wait_max * 2^20 / (sum of weights queued here)
 *                     a queue's clock advances 2^20 / sum per ns, but stands while what others are owed is paid
 *                     back: at weights that stay, no task waits longer than about wait_max + lag_max
 *            common:  vruntime + offset
 *            pull:    a difference above pull_ns * 2^20 / min(weight of the head, 1024): of its own service, if it weighs
 *                     less. One slice moves a light task's vruntime by much, which is not a reason to move tasks:
 *                     pulled for less, tasks of a tenth of the weight beside them got a seventh of the time (16 CPUs)
 *
 * Trade-offs A CPU whose task is due more than a whole CPU (an infeasible weight) falls behind on the
 *            common timeline without end. Its offset is moved up so that it is never more than lag_max
 *            behind: what could not be served is forgotten, and the order within the CPU does not change.
 *            Likewise a CPU with one task, which no other wants or may come to: it does not move the common
 *            timeline on, or all others would be lag_max behind it, and the differences between them lost. It is
 *            ahead of it by twice what moves a task of its weight at most, enough to pull.
 *
 * Limits     Equality across CPUs holds to about pull_ns plus one slice. Vruntimes wrap after 584 years of
 *            nice 0.
 *
 * Source: ARCHITECTURE.md, How the hierarchy is flattened (one queue per CPU in order of vruntime); the kernel's
 * fair class for placement and wake-up preemption.
 */
#ifndef PL_FAIR_H
#define PL_FAIR_H

#include "weight.h"

#define PL_FAIR_WEIGHT_SHIFT 10 /* effective weights carry 10 bits of fraction */
#define PL_FAIR_WEIGHT_ONE ((u64)PL_WEIGHT_UNIT << PL_FAIR_WEIGHT_SHIFT)
#define PL_FAIR_WEIGHT_MIN 2		   /* 2^-19 of nice 0: keeps the division and the wait bound finite */
#define PL_FAIR_DELTA_MAX_NS (16 * PL_SEC) /* longer stretches are charged as this much: no overflow */

/* The defaults of an engine's configuration. */
#define PL_FAIR_SLICE_NS (3 * PL_MS)
/*
 * With 1 ms hackbench takes 1.2 times as long as under the kernel's scheduler (live, virtual time), with 4 ms 0.8:
 * a woken task often waits for its waker to finish.
 */
#define PL_FAIR_WAKEUP_GRAN_NS (4 * PL_MS)
/* A woken task of another group than the running one does not wait for its waker: a part of wakeup_gran_ns is enough. */
#define PL_FAIR_GROUP_GRAN_PART 4
/*
 * Weights hold while (waiting tasks) x slice < the heavy side's share of this: each task gets a slice within it, whatever
 * it weighs. A third of sched_ext's watchdog of 30 s, so that the lightest task does not trip it.
 */
#define PL_FAIR_WAIT_MAX_NS (10000 * PL_MS)
/* Further ahead on a timeline than any task can be: where a new task stands until it is placed. */
#define PL_FAIR_FAR_NS (1ULL << 60)
#define PL_FAIR_PULL_NS (10 * PL_MS)
#define PL_FAIR_LAG_MAX_NS (100 * PL_MS)

struct pl_fair_config {
	u64 slice_ns;	/* how long a task runs before the next is considered */
	u64 latency_ns; /* 0: slices are constant; else a queue's tasks share this, not below slice_ns */
	u64 sleeper_credit_ns; /* how far before the clock a woken task may be placed */
	u64 wakeup_gran_ns; /* a woken task preempts when it is at least this far ahead; see pl_task_preempts */
	u64 wait_max_ns;    /* bound on waiting */
	u64 pull_ns;	    /* difference on the common timeline that moves a task: "pull" above; 0: never */
	u64 lag_max_ns;	    /* in which a preempted or moved task is paid what it is owed; how far a CPU's
				* timeline may be behind the common one */
	u64 doubled_ns;	    /* where a kernel is simulated: see pl_entity_doubled; 0: never */
};

/* Per CPU. */
struct pl_fair_cpu {
	u64 clock;  /* highest vruntime of a task picked; never goes back */
	u64 served; /* where tasks that wake up now come in: the last task picked, plus a credit; <= clock */
	u64 offset; /* common timeline = own + offset */
	u64 weight_sum; /* effective weights of what is queued or running here */
	u64 weighed_ns; /* when all that wait here were last weighed anew: pl_waiting_due */
	u32 nr_queued;	/* tasks runnable here, the running one included; parked ones are not */
	u32 lighter; /* something that weighed much has left since then: said by the engine, as it is told */
};

/* Shared by all CPUs, written at a bounded rate: how far the common timeline has come. */
struct pl_fair_machine {
	s64 clock;
} PL_OWN_LINE;

/* Virtual time of delta_ns at an effective weight. */
PL_INLINE u64 pl_fair_scale(u64 delta_ns, u64 weight)
{
	/* delta <= 2^34, so that the product stays below 2^54 */
	return pl_div(pl_min(delta_ns, PL_FAIR_DELTA_MAX_NS) << (PL_FAIR_WEIGHT_SHIFT + 10),
		      pl_max(weight, PL_FAIR_WEIGHT_MIN));
}

/* What a running task's vruntime is by now, if it was last charged delta_ns ago. */
PL_INLINE u64 pl_fair_by_now(u64 vruntime, u64 delta_ns, u64 weight)
{
	return vruntime + pl_fair_scale(delta_ns, weight);
}

/* a is before b, for clocks that may wrap. */
PL_INLINE bool pl_fair_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

/* On a CPU's timeline, how far before what is served a woken task may be placed. */
PL_INLINE u64 pl_fair_credit(const struct pl_fair_config PL_MEM *config)
{
	return pl_fair_scale(config->sleeper_credit_ns, PL_FAIR_WEIGHT_ONE);
}

/* The bound on waiting, as a vruntime: a task that enters a queue with `weight` goes no further back. */
PL_INLINE u64 pl_fair_latest(const struct pl_fair_cpu PL_MEM *cpu, u64 weight,
			     const struct pl_fair_config PL_MEM *config)
{
	return cpu->clock + pl_fair_scale(config->wait_max_ns, pl_max(cpu->weight_sum, weight));
}

/* The vruntime, or the end of earliest..latest that it lies beyond. */
PL_INLINE u64 pl_fair_clamp(u64 vruntime, u64 earliest, u64 latest)
{
	if (pl_fair_before(vruntime, earliest))
		return earliest;
	return pl_fair_before(latest, vruntime) ? latest : vruntime;
}

/*
 * Where a task goes that enters a queue. `woken`: it slept, is new or was throttled, and is paid for at most
 * sleeper_credit_ns of what it missed. Else it was preempted or a balance moved it: what it is owed it keeps, as far
 * as this queue pays that back within lag_max_ns, so that a heavy task's claim does not keep the others waiting for
 * longer. Either way what it owes makes it wait for wait_max_ns at most, once others have been paid back. `vruntime` is
 * on this CPU's timeline (pl_fair_move for a task that comes from another CPU), `weight` the task's effective one.
 * Returns its new vruntime.
 */
PL_SUB u64 pl_fair_place(const struct pl_fair_cpu PL_MEM *cpu PL_ARENA, u64 vruntime, u64 weight, bool woken,
			 const struct pl_fair_config PL_MEM *config PL_ARENA)
{
	u64 sum = pl_max(pl_max(cpu->weight_sum, weight), PL_FAIR_WEIGHT_ONE);
	u64 earliest = woken ? cpu->served - pl_fair_credit(config)
			     : cpu->clock - pl_fair_scale(config->lag_max_ns, sum);

	return pl_fair_clamp(vruntime, earliest, pl_fair_latest(cpu, weight, config));
}

/*
 * A vruntime of CPU `from`, on the timeline of CPU `to`: the lag goes along, to the common timeline or, where there is
 * none (pull_ns is 0, as in the kernel's fair class), to the queue's clock.
 */
PL_FN u64 pl_fair_move(u64 vruntime, const struct pl_fair_cpu PL_MEM *from,
		       const struct pl_fair_cpu PL_MEM *to, const struct pl_fair_config PL_MEM *config)
{
	if (PL_BASELINE(!config->pull_ns))
		return vruntime - from->clock + to->clock;
	return vruntime + from->offset - to->offset;
}

/*
 * A distance of so many ns between CPUs: of weight-1024 time, or of the task's own service if it is lighter. One slice moves
 * a light task by much, which is not a reason to move it to another CPU, or to forget what it is due.
 */
PL_INLINE u64 pl_fair_distance(u64 ns, u64 weight)
{
	return pl_fair_scale(ns, pl_min(weight, PL_FAIR_WEIGHT_ONE));
}

/* Whether so much virtual time is no further than that. Most often it is far below, and no division is needed to see it. */
PL_INLINE bool pl_fair_within(u64 distance, u64 ns, u64 weight)
{
	if (distance < 1ULL << 40)
		return distance * pl_max(pl_min(weight, PL_FAIR_WEIGHT_ONE), PL_FAIR_WEIGHT_MIN) <=
		       pl_min(ns, PL_FAIR_DELTA_MAX_NS) << (PL_FAIR_WEIGHT_SHIFT + 10);
	return distance <= pl_fair_distance(ns, weight);
}

/*
 * A task, counted in nr_queued, was picked to run: the queue's clock follows, and does not fall too far behind the
 * machine's, nor get too far ahead of it alone.
 */
PL_FN void pl_fair_picked(struct pl_fair_machine PL_MEM *machine, struct pl_fair_cpu PL_MEM *cpu,
			  u64 vruntime, const struct pl_fair_config PL_MEM *config)
{
	u64 common, ahead;
	s64 behind;

	if (pl_fair_before(cpu->clock, vruntime))
		cpu->clock = vruntime;
	cpu->served = cpu->clock;
	if (PL_BASELINE(!config->pull_ns))
		return;
	vruntime += pl_fair_credit(config);
	if (pl_fair_before(vruntime, cpu->clock))
		cpu->served = vruntime;
	common = cpu->clock + cpu->offset;
	ahead = (u64)pl_read(&machine->clock);
	behind = (s64)(ahead - common);
	if (behind > (s64)config->lag_max_ns)
		cpu->offset += (u64)behind - config->lag_max_ns;
	/* Written only when it moves by a quarter of what matters: the line is shared. */
	else if (cpu->nr_queued > 1 && behind < -(s64)(config->pull_ns / 4))
		pl_write(&machine->clock, (s64)common);
	/* What has a CPU to itself does not measure what others are due. It is ahead enough to pull, and no further. */
	else if (cpu->nr_queued == 1 && behind < 0) {
		s64 lead = 2 * (s64)pl_fair_distance(config->pull_ns, cpu->weight_sum);

		if (behind < -lead)
			cpu->offset -= (u64)(-behind - lead);
	}
}

/*
 * Whether this CPU, ending a slice, should take over the head of another one's queue. has_own: whether
 * anything else is queued or was running here; own_vruntime: the earliest of it. other_weight: the effective weight
 * of that head.
 */
PL_FN bool pl_fair_should_pull(const struct pl_fair_cpu PL_MEM *cpu, bool has_own, u64 own_vruntime,
			       const struct pl_fair_cpu PL_MEM *other, u64 other_vruntime, u64 other_weight,
			       const struct pl_fair_config PL_MEM *config)
{
	if (PL_BASELINE(!config->pull_ns))
		return false;
	if (!has_own)
		return true;
	return pl_fair_before(other_vruntime + other->offset +
				  pl_fair_distance(config->pull_ns, other_weight),
			      own_vruntime + cpu->offset);
}

/* Whether a task just woken preempts the one that runs. Idle-class work is preempted by any other. */
PL_FN bool pl_fair_preempts(u64 woken_vruntime, u64 woken_weight, bool woken_idle, u64 running_vruntime,
			    bool running_idle, const struct pl_fair_config PL_MEM *config)
{
	if (running_idle != woken_idle)
		return running_idle;
	return pl_fair_before(
	    woken_vruntime + pl_fair_scale(config->wakeup_gran_ns, pl_max(woken_weight, PL_FAIR_WEIGHT_MIN)),
	    running_vruntime);
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

/* How long the task picked may run before the next is considered. */
PL_FN u64 pl_fair_slice(const struct pl_fair_cpu PL_MEM *cpu, u64 weight,
			const struct pl_fair_config PL_MEM *config)
{
	u64 latency_ns;

	if (!config->latency_ns)
		return config->slice_ns;
	latency_ns = pl_max(config->latency_ns, cpu->nr_queued * config->slice_ns);
	/* weights have 10 bits of fraction: dropped, so that the product fits */
	return pl_max(config->slice_ns, pl_div(latency_ns * (weight >> PL_FAIR_WEIGHT_SHIFT),
					       pl_max(cpu->weight_sum >> PL_FAIR_WEIGHT_SHIFT, 1)));
}

#endif

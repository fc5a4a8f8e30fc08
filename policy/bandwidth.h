/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bandwidth.h - CPU limits: a pool per group, a balance per group and CPU, burst
 *
 * Problem    A group may use `quota` of CPU time in every `period`, on any number of CPUs at once. Asking one
 *            shared counter at every context switch does not scale; handing time to CPUs in advance strands
 *            it where nothing runs.
 *
 * Mechanism  The group's pool holds run time not handed out yet. Each CPU's balance draws slices (5 ms)
 *            from it and is charged for what runs there. A balance at or below zero whose pool is empty is
 *            throttled and waits, in order, in the pool's ring. When the last task leaves a CPU, all but 1
 *            ms of the balance goes back. At every period's end the pool is refilled and the ring is served
 *            in order: each CPU on which a task waits gets an equal part of the pool, so that the first to
 *            ask does not draw all of a quota that is smaller than a slice.
 *
 * Formula    charge:   remaining -= delta; if remaining <= 0: remaining += min(pool, slice - remaining)
 *                      (1 - remaining where nothing is runnable)
 *            refill:   pool = min(pool + quota * n, buffer),  buffer = min(max, quota + burst)
 *                      n = min(elapsed periods, ceil(max / quota))   published semantics
 *                      n = 1                                         mainline semantics
 *            hand-out: remaining += max(1 - remaining, min(slice, max(turn, pool / waiting)))   a task waits there
 *                      1 - remaining   none does, or the older rules (expire, mainline)
 *            bound:    u_j + ... + u_k <= B_j + quota * N(j,k)  for any stretch of periods, plus what CPUs had
 *                      drawn before it: at most 1 ms where nothing of the group runs, a slice where it does
 *
 * Trade-offs Slices do not expire (system 1), so idle CPUs may keep 1 ms each across a period's end. The
 *            older rule, where they do expire, is `expire`: it strands up to 1 ms per CPU and period, which
 *            on 80 CPUs
 *            costs a 10 ms quota almost everything. Charging in arrears lets a CPU run past its balance by
 *            as much as the engine takes to notice; the overrun is a debt that the next slices repay.
 *
 * Limits     The ring holds each CPU once, so it needs a power of two of slots >= the number of CPUs.
 *            Levels of a hierarchy are independent here; group.h walks them.
 *
 * Concurrency A balance is charged by its own CPU only; the distributor may add to it. The pool's run time
 *            is changed by compare-and-exchange. One distributor at a time (`distributing`); the ring takes
 *            many
 *            producers and that one consumer.
 */
#ifndef PL_BANDWIDTH_H
#define PL_BANDWIDTH_H

#include "port.h"

#define PL_UNLIMITED (~0ULL)
#define PL_BW_MAX_NS (((1ULL << 44) - 1) * PL_US) /* largest quota, and largest quota + burst */
#define PL_BW_QUOTA_MIN_NS (1 * PL_MS)
#define PL_BW_PERIOD_MIN_NS (1 * PL_MS)
#define PL_BW_PERIOD_MAX_NS (1 * PL_SEC)
#define PL_BW_SLICE_NS (5 * PL_MS)	 /* default slice */
#define PL_BW_KEPT_NS (1 * PL_MS)	 /* kept by a balance when its last task leaves */
#define PL_BW_SLACK_DELAY_NS (5 * PL_MS) /* from a return to its hand-out */
#define PL_BW_SLACK_GUARD_NS (2 * PL_MS) /* too near the refill to be worth handing out */
#define PL_BW_OVERRUNS_MAX 3		 /* in one timer callback, before the period is doubled */
/* The least that a waiting CPU is handed: enough to get past the pending interrupts, into user space. */
#define PL_BW_TURN_NS (200 * PL_US)
/*
 * A task that has had no turn for so long gets one though its group is throttled; it is charged. sched_ext's watchdog ends a
 * scheduler under which a task waits for 30 s. What is granted goes beyond a limit that starves: 64 tasks on 1 ms/1 s use three
 * times as much. After 20 s it would be 1.2 times, but two turns in 40 s may pass without an instruction executed.
 */
#define PL_BW_STARVED_NS (5 * PL_SEC)

/* What pl_bw_check says; the engine's message names the group, the value and the range. */
enum pl_bw_error {
	PL_BW_OK = 0,
	PL_BW_ERR_ROOT = 1,   /* the root group takes no limit */
	PL_BW_ERR_QUOTA = 2,  /* below 1 ms, or above 2^44 - 1 us */
	PL_BW_ERR_PERIOD = 3, /* outside 1 ms .. 1 s */
	PL_BW_ERR_BURST = 4,  /* above max; mainline: above a quota, or with it above max */
	PL_BW_ERR_ONSET = 5,  /* above 100 % */
};

/* Flags returned by what may change a pool's state. */
enum pl_bw_flags {
	PL_BW_THROTTLED = 1,  /* some level is throttled: what runs or waits here must park */
	PL_BW_ARM_PERIOD = 2, /* some pool on the way wants its period timer: see pl_bw_take_arm_period */
	PL_BW_ARM_SLACK = 4,  /* likewise the slack timer, PL_BW_SLACK_DELAY_NS from now */
};

struct pl_bw_config {
	u64 slice_ns;  /* at least 1 us: the engine sees to it */
	u32 expire;    /* 1: slices expire with the period (before system 1) */
	u32 burst_off; /* 1: no group may use carried time, whatever its burst (system 2's global switch) */
	u32 mainline;  /* 1: what mainline Linux took of system 2 */
	u32 reserved;
};

struct pl_bw_limits {
	u64 quota_ns; /* PL_UNLIMITED: no limit */
	u64 period_ns;
	u64 burst_ns;
	u32 onset_percent; /* share of burst granted as limits are set */
	u32 reserved;
};

/* One group's run time on one CPU, and what the engine counts of the group there: charged at the same moments. */
struct pl_balance {
	s64 remaining_ns; /* <= 0: in debt */
	u64 throttled_at_ns;
	u32 generation; /* refill that the time is from, by its low half; only used where slices expire */
	u32 throttled;
	u32 waits; /* something of the group is runnable here; kept only while the balance is not above zero */
	u32 cpu;
	u64 run_delay_ns; /* time that its tasks waited, runnable */
	u64 nr_runs;
	u64 nr_grants; /* times that a task ran although throttled */
	u64 nr_steals; /* tasks that this CPU took over from another one's queue: stolen or pulled */
} PL_OWN_LINE;

/*
 * One group's run time that no CPU holds, its limits and its statistics. Three cache lines: what every charge reads and only
 * a new limit writes; what changes as CPUs ask for run time; and what changes once a period.
 */
struct pl_pool {
	u64 quota_ns;
	u64 period_ns;
	u64 burst_ns;
	u64 buffer_ns;			    /* most that the pool holds after a refill */
	struct pl_balance PL_MEM *balances; /* one per CPU */
	u32 PL_MEM *ring;		    /* CPUs throttled, oldest first; 0 empty, else cpu + 1 */
	u32 ring_mask;			    /* slots - 1, slots a power of two >= CPUs */
	u32 nr_cpus;
	u64 to_line; /* up to a line of 64 bytes */

	s64 runtime_ns PL_OWN_LINE; /* current_bw; >= 0 */
	u64 next_ns;		    /* end of the current period */
	s64 snapshot_ns; /* run time after the last refill: what is missing at the next has been used */
	u64 generation;	 /* refills so far */
	u32 head;
	u32 tail;
	u32 timer_active;
	u32 arm_period; /* the engine still has to start the period timer */
	u32 arm_slack;	/* likewise the slack timer */
	u32 slack_active;
	u32 idle; /* nothing was handed out since the last refill */
	u32 distributing;

	/* cpu.stat */
	u64 nr_periods;
	u64 nr_throttled; /* periods that ended with the group throttled on a CPU */
	s64 throttled_ns; /* summed over CPUs */
	u64 nr_bursts;	  /* periods that used more than quota */
	u64 burst_ns_used;
	u32 owed; /* a CPU may be throttled beside run time: the slack timer hands it out, however little */
	u32 reserved;
};

PL_FN bool pl_bw_limited(const struct pl_pool PL_MEM *pool)
{
	return pool->quota_ns != PL_UNLIMITED;
}

PL_FN bool pl_bw_any_throttled(const struct pl_pool PL_MEM *pool)
{
	return pl_read(&pool->head) != pl_read(&pool->tail);
}

/*
 * Checks limits without changing anything. The order is that of the fields, so that one error is named at a
 * time. Source: system 2; mainline's stricter burst where `mainline`.
 */
PL_FN u32 pl_bw_check(const struct pl_bw_limits *limits, bool is_root, bool mainline)
{
	u64 quota_ns = limits->quota_ns;

	if (is_root && quota_ns != PL_UNLIMITED)
		return PL_BW_ERR_ROOT;
	if (quota_ns != PL_UNLIMITED && (quota_ns < PL_BW_QUOTA_MIN_NS || quota_ns > PL_BW_MAX_NS))
		return PL_BW_ERR_QUOTA;
	if (limits->period_ns < PL_BW_PERIOD_MIN_NS || limits->period_ns > PL_BW_PERIOD_MAX_NS)
		return PL_BW_ERR_PERIOD;
	if (limits->burst_ns > PL_BW_MAX_NS)
		return PL_BW_ERR_BURST;
	if (mainline && quota_ns != PL_UNLIMITED &&
	    (limits->burst_ns > quota_ns || limits->burst_ns + quota_ns > PL_BW_MAX_NS))
		return PL_BW_ERR_BURST;
	if (limits->onset_percent > 100)
		return PL_BW_ERR_ONSET;
	return PL_BW_OK;
}

/* The most that the pool may hold after a refill. */
PL_FN u64 pl_bw_buffer(const struct pl_pool PL_MEM *pool, const struct pl_bw_config PL_MEM *config)
{
	return config->burst_off || PL_BASELINE(config->expire) ? pool->quota_ns : pool->buffer_ns;
}

/* First boundary phase + k * period after now. */
PL_INLINE u64 pl_bw_boundary_after(u64 phase_ns, u64 period_ns, u64 now_ns)
{
	u64 since_ns = now_ns >= phase_ns ? now_ns - phase_ns : 0;

	if (now_ns < phase_ns)
		return phase_ns;
	return phase_ns + (pl_div(since_ns, period_ns) + 1) * period_ns;
}

/*
 * Adds what `elapsed` periods earn, up to the buffer, and closes the books of the period: burst statistics
 * and the snapshot for the next ones. elapsed >= 1. Returns what the pool holds.
 */
PL_SUB u64 pl_bw_refill(struct pl_pool PL_MEM *pool PL_ARENA, u64 elapsed,
			const struct pl_bw_config PL_MEM *config PL_ARENA)
{
	u64 quota_ns = pool->quota_ns;
	u64 cap_ns = pl_bw_buffer(pool, config);
	u64 n = 1;
	s64 old_ns, new_ns = 0, above_ns;

	if (quota_ns == PL_UNLIMITED)
		return 0;
	if (!PL_BASELINE(config->mainline))
		n = pl_min(elapsed, pl_div(PL_BW_MAX_NS + quota_ns - 1, quota_ns));

	pool->generation++;
	/* The loop ends when no CPU took or returned time in between: bounded in BPF, once in the simulator.
	 */
	do {
		old_ns = pl_read(&pool->runtime_ns);
#ifdef PL_MUTATE_REFILL /* deliberately broken, to see the fuzzer notice it */
		new_ns = old_ns + (s64)(quota_ns * n);
		(void)cap_ns;
#else
		new_ns = PL_BASELINE(config->expire) ? (s64)quota_ns
						     : (s64)pl_min((u64)old_ns + quota_ns * n, cap_ns);
#endif
	} while (!pl_cas(&pool->runtime_ns, old_ns, new_ns) && PL_LOOP);

	above_ns = pool->snapshot_ns - old_ns - (s64)(quota_ns * n);
	if (above_ns > 0) {
		pool->nr_bursts++;
		pool->burst_ns_used += above_ns;
	}
	pool->snapshot_ns = new_ns;
	return (u64)new_ns;
}

/* Takes up to want_ns out of the pool; returns what it got. */
PL_FN s64 pl_bw_take(struct pl_pool PL_MEM *pool, s64 want_ns)
{
	s64 have_ns, got_ns = 0;

	if (!pl_bw_limited(pool))
		return want_ns;
	do {
		have_ns = pl_read(&pool->runtime_ns);
		got_ns = pl_smin(pl_smax(have_ns, 0), want_ns);
		if (got_ns <= 0)
			return 0;
	} while (!pl_cas(&pool->runtime_ns, have_ns, have_ns - got_ns) && PL_LOOP);
	return got_ns;
}

/*
 * Makes sure that the period timer runs. A pool whose timer had stopped has missed boundaries: published
 * semantics pays them out now (a sleep earns every period that it lasted), mainline does not.
 * Returns PL_BW_ARM_PERIOD when the engine has to start the timer at pool->next_ns.
 */
PL_FN u32 pl_bw_start_period(struct pl_pool PL_MEM *pool, u64 now_ns,
			     const struct pl_bw_config PL_MEM *config)
{
	u64 next_ns, period_ns;

	if (pl_read(&pool->timer_active) || pl_xchg32(&pool->timer_active, 1))
		return 0;
	/* Read once: limits that are set meanwhile must not be counted in periods of the old ones. */
	next_ns = pl_read(&pool->next_ns);
	period_ns = pl_read(&pool->period_ns);
	if (now_ns >= next_ns) {
		u64 elapsed = pl_div(now_ns - next_ns, period_ns) + 1;

		pl_write(&pool->next_ns, next_ns + elapsed * period_ns);
		if (!PL_BASELINE(config->mainline) || config->expire)
			pl_bw_refill(pool, elapsed, config);
	}
	pl_write(&pool->arm_period, 1);
	return PL_BW_ARM_PERIOD;
}

/*
 * Whether the engine must start this pool's period timer now, for pool->next_ns. Clears the wish: exactly one
 * caller gets true. Call for every pool on the way up when a flag PL_BW_ARM_PERIOD came back.
 */
PL_FN bool pl_bw_take_arm_period(struct pl_pool PL_MEM *pool)
{
	return pl_read(&pool->arm_period) && pl_xchg32(&pool->arm_period, 0);
}

/* Likewise the slack timer, for PL_BW_SLACK_DELAY_NS after now. */
PL_FN bool pl_bw_take_arm_slack(struct pl_pool PL_MEM *pool)
{
	return pl_read(&pool->arm_slack) && pl_xchg32(&pool->arm_slack, 0);
}

/* Puts a balance into the ring. Its own CPU only, and only while it is not throttled. */
PL_FN void pl_bw_throttle(struct pl_pool PL_MEM *pool, struct pl_balance PL_MEM *balance, u64 now_ns)
{
	u32 slot;

	PL_ASSERT(!balance->throttled);
	balance->throttled_at_ns = now_ns;
	pl_write(&balance->throttled, 1);
	slot = pl_add32(&pool->tail, 1) - 1;
	/* An exchange: the entry is there before the pool is looked at again, see pl_bw_ask. */
	pl_xchg32(&pool->ring[slot & pool->ring_mask], balance->cpu + 1);
}

/*
 * A CPU may be throttled though the pool has run time, because a refill or a return and its hand-out fell between
 * its asking and its entry into the ring, or because two CPUs were about to hand out. Returns PL_BW_ARM_SLACK if the
 * slack timer is to be armed.
 */
PL_FN u32 pl_bw_owe(struct pl_pool PL_MEM *pool)
{
	pl_xchg32(&pool->owed, 1);
	if (pl_read(&pool->slack_active) || pl_xchg32(&pool->slack_active, 1))
		return 0;
	pl_write(&pool->arm_slack, 1);
	return PL_BW_ARM_SLACK;
}

/* A balance is used up: asks the pool for a slice, and throttles it if nothing comes. See pl_bw_charge. */
PL_SUB u32 pl_bw_ask(struct pl_pool PL_MEM *pool PL_ARENA, struct pl_balance PL_MEM *balance PL_ARENA,
		     bool runnable, u64 now_ns, const struct pl_bw_config PL_MEM *config PL_ARENA)
{
	s64 remaining_ns, want_ns, got_ns;
	u32 flags;

	pl_write(&balance->waits, runnable);
	if (pl_read(&balance->throttled))
		return PL_BW_THROTTLED;
	if (!pl_bw_limited(pool))
		return 0;

	flags = pl_bw_start_period(pool, now_ns, config);
	remaining_ns = pl_read(&balance->remaining_ns);
	want_ns = runnable ? (s64)config->slice_ns - remaining_ns : 1 - remaining_ns;
	got_ns = pl_bw_take(pool, want_ns);
	if (got_ns > 0) {
		pl_write(&pool->idle, 0);
		balance->generation = (u32)pool->generation;
		remaining_ns = pl_add(&balance->remaining_ns, got_ns);
	}
	if (remaining_ns > 0)
		return flags;
	pl_bw_throttle(pool, balance, now_ns);
	/* The timer may have stopped since the first look, and have looked for throttled CPUs before this one was. */
	if (!pl_read(&pool->timer_active) && !pl_xchg32(&pool->timer_active, 1)) {
		pl_write(&pool->arm_period, 1);
		flags |= PL_BW_ARM_PERIOD;
	}
	if (pl_read(&pool->runtime_ns) > 0)
		flags |= pl_bw_owe(pool);
	return flags | PL_BW_THROTTLED;
}

/*
 * Charges delta_ns (>= 0; 0 asks only) of run time on the balance's CPU at one level. `runnable`: whether
 * anything of the group is still runnable here. Returns PL_BW_* flags of this level.
 * Source: system 1. An empty queue in debt is throttled, too: that is how its debt gets repaid first.
 */
PL_FN u32 pl_bw_charge(struct pl_pool PL_MEM *pool, struct pl_balance PL_MEM *balance, u64 delta_ns,
		       bool runnable, u64 now_ns, const struct pl_bw_config PL_MEM *config)
{
	s64 remaining_ns;

	if (delta_ns)
		remaining_ns = pl_add(&balance->remaining_ns, -(s64)delta_ns);
	else
		remaining_ns = pl_read(&balance->remaining_ns);

	if (PL_BASELINE(config->expire) && balance->generation != (u32)pool->generation) {
		balance->generation = (u32)pool->generation;
		if (remaining_ns > 0) {
			/* The period that this time was for is over (the rule before system 1). */
			pl_add(&balance->remaining_ns, -remaining_ns);
			remaining_ns = 0;
		}
	}
	if (remaining_ns > 0)
		return 0;
	return pl_bw_ask(pool, balance, runnable, now_ns, config);
}

/*
 * The last task of the group left this CPU: all but 1 ms goes back, and if the pool then exceeds a slice
 * while a CPU is throttled, the slack timer will hand it out. Source: system 1.
 */
PL_FN u32 pl_bw_leave(struct pl_pool PL_MEM *pool, struct pl_balance PL_MEM *balance, u64 now_ns,
		      const struct pl_bw_config PL_MEM *config)
{
	s64 back_ns = pl_read(&balance->remaining_ns) - (s64)PL_BW_KEPT_NS;
	s64 pool_ns;

	pl_write(&balance->waits, 0);
	if (back_ns <= 0)
		return 0;
	pl_add(&balance->remaining_ns, -back_ns);
	if (!pl_bw_limited(pool) ||
	    (PL_BASELINE(config->expire) && balance->generation != (u32)pool->generation))
		return 0;
#ifdef PL_MUTATE_LEAVE /* deliberately broken, to see the fuzzer notice it */
	pool_ns = pl_read(&pool->runtime_ns);
#else
	pool_ns = pl_add(&pool->runtime_ns, back_ns);
#endif
	if (pool_ns <= (s64)config->slice_ns || !pl_bw_any_throttled(pool))
		return 0;
	if (now_ns + PL_BW_SLACK_DELAY_NS + PL_BW_SLACK_GUARD_NS > pool->next_ns)
		return 0; /* the refill is near enough */
	if (pl_read(&pool->slack_active) || pl_xchg32(&pool->slack_active, 1))
		return 0;
	pl_write(&pool->arm_slack, 1);
	return PL_BW_ARM_SLACK;
}

/*
 * Hands out run time to the ring, oldest first:
 *
 *	if (pl_bw_distribute_begin(pool)) {
 *		while ((balance = pl_bw_distribute_next(pool, now, config)))
 *			... the engine lets the balance's CPU run what waits there ...
 *		pl_bw_distribute_end(pool);
 *	}
 *
 * begin is false when another CPU is at it already. That one sees what was added unless it is about to end: the caller
 * has the pool looked at again (pl_bw_owe).
 * next returns a balance that was released, or NULL when the pool or the ring is empty.
 */
PL_FN bool pl_bw_distribute_begin(struct pl_pool PL_MEM *pool)
{
	return !pl_xchg32(&pool->distributing, 1);
}

/* What a throttled balance is to be handed: see Formula. Its debt is paid out of its own part. */
PL_INLINE s64 pl_bw_part(const struct pl_pool PL_MEM *pool, const struct pl_balance PL_MEM *balance,
			 const struct pl_bw_config PL_MEM *config)
{
	s64 least_ns = 1 - pl_read(&balance->remaining_ns);
	u64 part_ns = pl_div((u64)pl_smax(pl_read(&pool->runtime_ns), 0), pl_read(&pool->tail) - pool->head);

	if (!balance->waits || PL_BASELINE(config->mainline || config->expire))
		return least_ns;
	return pl_smax(least_ns, (s64)pl_min(config->slice_ns, pl_max(part_ns, PL_BW_TURN_NS)));
}

/*
 * Releases the oldest throttled balance, within distribute_begin and _end. `config`: only if the pool has what lifts it
 * 1 ns above zero; NULL: whatever it has. NULL: none was released.
 */
PL_INLINE struct pl_balance PL_MEM *pl_bw_release_head(struct pl_pool PL_MEM *pool,
						       const struct pl_bw_config PL_MEM *config, u64 now_ns)
{
	struct pl_balance PL_MEM *balance;
	s64 need_ns, got_ns;
	u32 slot, entry;

	if (!pl_bw_any_throttled(pool))
		return NULL;
	slot = pool->head & pool->ring_mask;
	entry = pl_read(&pool->ring[slot]);
	/* 0: a CPU has reserved the slot and not written it yet. It will be served next time. */
	if (!entry || entry > pool->nr_cpus)
		return NULL;
	balance = &pool->balances[entry - 1];
	need_ns = config ? pl_bw_part(pool, balance, config) : 0;
	if (need_ns > 0) {
		got_ns = pl_bw_take(pool, need_ns);
		if (got_ns <= 0)
			return NULL;
		balance->generation = (u32)pool->generation;
		if (pl_add(&balance->remaining_ns, got_ns) <= 0)
			return NULL;
	}
	pl_write(&pool->ring[slot], 0);
	pl_write(&pool->head, pool->head + 1);
	if (now_ns > balance->throttled_at_ns)
		pl_add(&pool->throttled_ns, (s64)(now_ns - balance->throttled_at_ns));
	pl_write(&balance->throttled, 0);
	return balance;
}

PL_FN struct pl_balance PL_MEM *pl_bw_distribute_next(struct pl_pool PL_MEM *pool, u64 now_ns,
						      const struct pl_bw_config PL_MEM *config)
{
	return pl_bw_release_head(pool, config, now_ns);
}

PL_FN void pl_bw_distribute_end(struct pl_pool PL_MEM *pool)
{
	pl_xchg32(&pool->distributing, 0);
}

#define PL_BW_OVERDUE_NS (100 * PL_MS) /* longer than any engine delays a timer */

/*
 * Whether the period timer should have fired long ago, or runs no longer though a CPU waits for it: an engine that
 * may lose a timer starts it again.
 */
PL_FN bool pl_bw_timer_overdue(const struct pl_pool PL_MEM *pool, u64 now_ns)
{
	return pl_bw_limited(pool) && (pl_read(&pool->timer_active) || pl_bw_any_throttled(pool)) &&
	       now_ns > pool->next_ns + PL_BW_OVERDUE_NS;
}

/*
 * The period timer fired. `nth` counts the calls within one callback, from 1: a callback calls again while
 * pool->next_ns is not after its clock, and the fourth time, but none after it, doubles period, quota and burst while
 * the period stays below 1 s. Returns whether the timer is to be armed again at pool->next_ns; the engine distributes
 * either way. false: the group was idle for a whole period and no CPU is throttled.
 */
PL_FN bool pl_bw_period(struct pl_pool PL_MEM *pool, u64 now_ns, u32 nth,
			const struct pl_bw_config PL_MEM *config)
{
	bool throttled = pl_bw_any_throttled(pool);
	u64 next_ns = pl_read(&pool->next_ns); /* once, as in pl_bw_start_period */
	u64 period_ns, elapsed;

	if (!pl_bw_limited(pool)) {
		pl_write(&pool->timer_active, 0);
		return false;
	}
	if (now_ns < next_ns)
		return true;
	if (nth == PL_BW_OVERRUNS_MAX + 1 && pool->period_ns * 2 < PL_BW_PERIOD_MAX_NS) {
		pool->period_ns *= 2;
		pool->quota_ns = pl_min(pool->quota_ns * 2, PL_BW_MAX_NS);
		pool->burst_ns = pl_min(pool->burst_ns * 2, PL_BW_MAX_NS);
		pool->buffer_ns = pl_min(pool->quota_ns + pool->burst_ns, PL_BW_MAX_NS);
	}
	period_ns = pl_read(&pool->period_ns);
	elapsed = pl_div(now_ns - next_ns, period_ns) + 1;
	pl_write(&pool->next_ns, next_ns + elapsed * period_ns);
	pool->nr_periods += elapsed;
	pl_bw_refill(pool, elapsed, config);
	if (throttled) {
		pool->nr_throttled += elapsed;
		pl_write(&pool->idle, 0);
		return true;
	}
	if (pool->idle) {
		/* Written before the second look, as a throttled CPU looks for the timer afterwards: see pl_bw_ask. */
		pl_xchg32(&pool->timer_active, 0);
		if (pl_bw_any_throttled(pool) && !pl_xchg32(&pool->timer_active, 1))
			return true;
		return false;
	}
	pl_write(&pool->idle, 1);
	return true;
}

/* The slack timer fired. Returns whether there is something to distribute. */
PL_FN bool pl_bw_slack(struct pl_pool PL_MEM *pool, u64 now_ns, const struct pl_bw_config PL_MEM *config)
{
	u32 owed;

	pl_xchg32(&pool->slack_active, 0);
	owed = pl_xchg32(&pool->owed, 0);
	if (!pl_bw_limited(pool) || !pl_bw_any_throttled(pool))
		return false;
	if (owed)
		return pl_read(&pool->runtime_ns) > 0;
	return now_ns + PL_BW_SLACK_GUARD_NS <= pool->next_ns &&
	       pl_read(&pool->runtime_ns) > (s64)config->slice_ns;
}

/*
 * Time that may run on this balance before it has to be charged and the pool asked: what a timer is armed
 * for.
 * >= 0; 0 when it is in debt.
 */
PL_FN u64 pl_bw_budget(const struct pl_balance PL_MEM *balance)
{
	return (u64)pl_smax(pl_read(&balance->remaining_ns), 0);
}

/* A pool without limit, on memory of the engine's. slots: power of two >= nr_cpus, all zero. */
PL_FN void pl_bw_init(struct pl_pool PL_MEM *pool, struct pl_balance PL_MEM *balances, u32 nr_cpus,
		      u32 PL_MEM *ring, u32 slots)
{
	u32 cpu;

	pool->quota_ns = PL_UNLIMITED;
	pool->period_ns = 100 * PL_MS;
	pool->balances = balances;
	pool->nr_cpus = nr_cpus;
	pool->ring = ring;
	pool->ring_mask = slots - 1;
	for (cpu = PL_START(nr_cpus); cpu < nr_cpus && PL_LOOP; cpu++)
		PL_ELEMENT(balances, cpu)->cpu = cpu;
}

/*
 * Sets limits that pl_bw_check accepted: the pool is refilled at once (with the onset's share of the burst,
 * which published semantics only has), balances start anew, and everything throttled is to be released: call
 * pl_bw_release_next until NULL afterwards. now_ns also restarts the period at the next boundary of phase_ns.
 * Returns PL_BW_ARM_PERIOD if the period timer has to be (re)started at pool->next_ns.
 */
PL_FN u32 pl_bw_set(struct pl_pool PL_MEM *pool, const struct pl_bw_limits *limits, u64 phase_ns, u64 now_ns,
		    const struct pl_bw_config PL_MEM *config)
{
	u64 start_ns = limits->quota_ns;
	u32 cpu;

	pool->quota_ns = limits->quota_ns;
	pool->period_ns = limits->period_ns;
	pool->burst_ns = limits->burst_ns;
	pool->next_ns = pl_bw_boundary_after(phase_ns, limits->period_ns, now_ns);
	if (limits->quota_ns == PL_UNLIMITED) {
		pool->buffer_ns = PL_BW_MAX_NS;
		start_ns = 0;
	} else {
		pool->buffer_ns = pl_min(limits->quota_ns + limits->burst_ns, PL_BW_MAX_NS);
		if (!PL_BASELINE(config->mainline || config->expire) && !config->burst_off)
			start_ns =
			    pl_min(limits->quota_ns + pl_div(limits->burst_ns, 100) * limits->onset_percent +
				       pl_div((limits->burst_ns % 100) * limits->onset_percent, 100),
				   pool->buffer_ns);
	}
	pl_write(&pool->runtime_ns, (s64)start_ns);
	pool->snapshot_ns = (s64)start_ns;
	pool->generation++;
	pool->idle = 0;
	for (cpu = PL_START(pool->nr_cpus); cpu < pool->nr_cpus && PL_LOOP; cpu++) {
		struct pl_balance PL_MEM *balance = PL_ELEMENT(pool->balances, cpu);

		pl_write(&balance->remaining_ns, 0);
		balance->generation = (u32)pool->generation;
	}
	if (!pl_read(&pool->timer_active))
		return 0;
	pl_write(&pool->arm_period, 1);
	return PL_BW_ARM_PERIOD;
}

/*
 * Forgives what CPUs owe. Once, as the CPUs have been taken over: until then the kernel runs tasks for milliseconds on each without
 * asking anybody, which was not this policy's to limit. Paid back, a group of 1 ms in 10 would stand still for a fifth of a second.
 */
PL_FN void pl_bw_forgive(struct pl_pool PL_MEM *pool)
{
	u32 cpu;

	for (cpu = PL_START(pool->nr_cpus); cpu < pool->nr_cpus && PL_LOOP; cpu++) {
		struct pl_balance PL_MEM *balance = PL_ELEMENT(pool->balances, cpu);
		s64 remaining_ns = pl_read(&balance->remaining_ns);

		if (remaining_ns < 0)
			pl_add(&balance->remaining_ns, -remaining_ns);
	}
}

/*
 * Releases the oldest throttled balance whatever the pool holds: after limits were changed, when a CPU goes
 * away, when the group does. Within distribute_begin and _end. NULL: none is left.
 */
PL_FN struct pl_balance PL_MEM *pl_bw_release_next(struct pl_pool PL_MEM *pool, u64 now_ns)
{
	return pl_bw_release_head(pool, NULL, now_ns);
}

#endif

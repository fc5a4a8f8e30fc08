/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * turn.h - what a task's turns go by: what it asks for, how far it is served, since when it waits
 *
 * Problem    A line (entity.h) serves those in it by their deadlines. How much at a time a task needs nobody says. What one is
 *            served on a CPU is not comparable with what one is elsewhere. And what is due next to nothing waits for hours.
 *
 * Mechanism  request  1.25 times what a task usually runs between two sleeps, within 0.3 ms and the slice: one that needs little
 *                     at a time has an early deadline, and is served soon. It gets no more for that.
 *            u        how far it is served, in the clock of its CPU's domain (domain.h), which counts it while it waits or runs
 *            rota     all tasks of a CPU in the order of their last turn, or of their coming
 *
 * Formula    usual += (run time between two sleeps - usual) / 8
 *            request = min(max(1.25 usual, 0.3 ms), slice); of one that has never slept: slice; of one that has run
 *            for longer than usual since it last slept: of that, instead
 *            a new task owes one request: where it comes in, others that wait go before it
 *
 *            Lag bounds no wait: of 300 tasks of weight 1 beside one of 10000 each is due a turn in two hours. What has waited for
 *            wait_max_ns has a turn of PL_TURN_MIN_NS before what is due one, and owes that.
 *
 * Trade-offs What a task usually runs is an average of its last eight or so stretches: one that needs less from now on asks for as
 *            much as before for as many.
 *
 * Limits     In the rota one that comes may stand too late between others, by what these have waited less.
 *
 * Source: chosen; steps.h for where each is kept.
 */
#ifndef PL_TURN_H
#define PL_TURN_H

#include "domain.h"
#include "task.h"

#define PL_REQUEST_MIN_NS (300 * PL_US)
#define PL_TURN_MIN_NS (50 * PL_US) /* shorter turns cost more than they are worth */
/*
 * A task's u (domain.h) need not be told of so much as it goes to sleep: less than what moves one, and short naps take
 * no division.
 */
#define PL_STEPS_TOLD_NS (1 * PL_MS)

/* A group on one CPU: an entity of its parent's line, and a line of its own. */
struct pl_node {
	struct pl_entity entity;
	struct pl_line line;
	u64 weighed_ns; /* its queue's refreshed_ns, as it and those above were last weighed */
};

/* What lines, domains and the rota know of a task, beside struct pl_task, which baseline/cfs.h has, too. */
struct pl_turn {
	struct pl_entity entity;
	u64 u; /* how far it is served, to be compared with its domain's: domain.h */
	struct pl_domain PL_MEM *domain; /* u was in its clock as it left; NULL: it is new */
	u64 shift;			 /* of its CPU's part, as it was counted there */
	u64 domain_w;			 /* what its domain counts it with; 0: not counted */
	struct pl_node PL_MEM *from;	 /* whose line its lag is from; NULL: it is new */
	s64 behind;			 /* lag that a pull adds at its next enter: ns * 2^20 */
	u32 pinned;   /* it may run on this CPU only: it does not measure its domain. The engine keeps it. */
	u32 bound;    /* the number of the domain of the CPUs that it is bound to: domain.h. Likewise. */
	u64 used_ns;  /* run time since it last slept */
	u64 usual_ns; /* between two sleeps; 0: it has never slept */
	u64 told_ns;  /* run time that u has not advanced by */
	u64 above_ns; /* run time that the lines above its group's have not been told */
	u64 since_ns; /* it has waited since, unless it runs; 0: it sleeps */
	struct pl_rota PL_MEM *rota;   /* its CPU's; NULL: it is in none */
	struct pl_turn PL_MEM *before; /* in the rota */
	struct pl_turn PL_MEM *after;
} PL_OWN_LINE;

PL_INLINE struct pl_node PL_MEM *pl_node_of(const struct pl_group PL_MEM *group, u32 cpu)
{
	return PL_ELEMENT(group->nodes, cpu);
}

PL_INLINE void pl_rota_leave(struct pl_turn PL_MEM *turn)
{
	struct pl_rota PL_MEM *rota = turn->rota;

	if (turn->before)
		turn->before->after = turn->after;
	else
		rota->first = turn->after;
	if (turn->after)
		turn->after->before = turn->before;
	else
		rota->last = turn->before;
	pl_write(&turn->rota, NULL);
}

/* A task goes behind `before`; NULL: it is the first. */
PL_INLINE void pl_rota_put(struct pl_rota PL_MEM *rota, struct pl_turn PL_MEM *turn,
			   struct pl_turn PL_MEM *before)
{
	struct pl_turn PL_MEM *after = before ? before->after : rota->first;

	turn->rota = rota;
	turn->before = before;
	turn->after = after;
	if (before)
		before->after = turn;
	else
		rota->first = turn;
	if (after)
		after->before = turn;
	else
		rota->last = turn;
}

/* A task has had a turn: it is the last from now on. */
PL_INLINE void pl_rota_last(struct pl_rota PL_MEM *rota, struct pl_turn PL_MEM *turn, u64 now_ns)
{
	turn->since_ns = now_ns;
	if (rota->last == turn)
		return;
	if (turn->rota)
		pl_rota_leave(turn);
	pl_rota_put(rota, turn, rota->last);
}

/*
 * A task comes. One that was parked or moved has waited since its last turn: what is throttled again and again would have no bound.
 * Between others it may stand too late, by what these have waited less; it takes no walk.
 */
PL_INLINE void pl_rota_come(struct pl_rota PL_MEM *rota, struct pl_turn PL_MEM *turn, u64 now_ns)
{
	struct pl_turn PL_MEM *first = rota->first;

	if (!turn->since_ns)
		turn->since_ns = pl_max(now_ns, 1);
	pl_rota_put(rota, turn, first && (s64)(turn->since_ns - first->since_ns) < 0 ? NULL : rota->last);
}

/* Whether the rules of the kernel's fair class since 6.6 hold, where that is simulated: see Mechanism. */
PL_INLINE bool pl_steps_as_kernel(const struct pl_fair_config PL_MEM *config)
{
	return PL_BASELINE(config->as_kernel);
}

/* Whether a task that waits is to be picked whatever it is due. */
PL_INLINE bool pl_turn_late(const struct pl_turn PL_MEM *turn, u64 now_ns,
			    const struct pl_fair_config PL_MEM *config)
{
	return !pl_steps_as_kernel(config) && (s64)(now_ns - turn->since_ns) > (s64)config->wait_max_ns;
}

PL_INLINE u64 pl_turn_request(const struct pl_turn PL_MEM *turn, const struct pl_fair_config PL_MEM *config)
{
	/* Once it has run for longer than it usually does that says more. */
	u64 usual = pl_max(turn->usual_ns, turn->used_ns);

	if (pl_steps_as_kernel(config) || !turn->usual_ns)
		return config->slice_ns;
	return pl_min(pl_max(usual + usual / 4, PL_REQUEST_MIN_NS), config->slice_ns);
}

/* u of a task that is counted on a CPU, in the clock of the CPU's domain as it is by now. */
PL_INLINE u64 pl_turn_u(const struct pl_turn PL_MEM *turn, const struct pl_part PL_MEM *part)
{
	return turn->u + part->shift - turn->shift;
}

/* A task is counted on a CPU no more: its u is in the clock of the CPU's domain by now. */
PL_INLINE void pl_turn_uncounts(struct pl_part PL_MEM *part, struct pl_turn PL_MEM *turn)
{
	turn->u = pl_turn_u(turn, part);
	turn->domain = part->domain;
	if (turn->domain_w)
		pl_sum_count(&part->sum, turn->u, turn->domain_w, -1);
	turn->domain_w = 0;
}

/* A task is counted on a CPU, with a u that is brought within behind_ns and ahead_ns of its domain's mean. */
PL_INLINE void pl_turn_counts(struct pl_part PL_MEM *part, struct pl_turn PL_MEM *turn, u64 weight,
			      u64 behind_ns, u64 ahead_ns)
{
	struct pl_domain PL_MEM *domain = part->domain;

	if (turn->domain && turn->domain != domain)
		turn->u = pl_domain_translate(turn->u, turn->domain, domain);
	turn->u = pl_domain_clamp(pl_read(&domain->mean), turn->u, weight, behind_ns, ahead_ns);
	turn->shift = part->shift;
	turn->domain_w = turn->pinned ? 0 : weight;
	if (turn->domain_w)
		pl_sum_count(&part->sum, turn->u, weight, 1);
}

/* Its u follows what its lines were told. */
PL_INLINE void pl_turn_tells(const struct pl_task PL_MEM *task, struct pl_turn PL_MEM *turn)
{
	turn->u += pl_fair_scale(turn->told_ns, task->effective);
	turn->told_ns = 0;
}

#endif

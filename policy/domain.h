/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * domain.h - a clock for balance: how far each task is served, over all CPUs that tasks can move between
 *
 * Problem    A line (entity.h) is fair on its CPU. Three equal tasks on two CPUs need more: one of them has to move, in
 *            turn, and it has to be known which is behind.
 *
 * Mechanism  Each task has a second virtual time u, which advances as it runs and is kept near its domain's mean,
 *            whatever its lines do: it decides which task moves, never which runs. The domain's reference U is the mean
 *            of u, weighted, over the tasks runnable on CPUs that tasks can move between; CPUs that exchange no tasks
 *            have a domain each, as what one gives its tasks does not measure those of another. A CPU at the end of a
 *            slice looks at one other CPU of its domain and takes over the task that is furthest behind there, if its
 *            own are further on by more than pull_ns (pl_domain_pulls; which of two weights measures that, says
 *            pl_steps_pulls in steps.h). The task comes with what it is behind added to its lag, pull_ns at most.
 *
 * Formula    u += delta * 2^20 / effective weight (fair.h)
 *            U = sum of w u / sum of w
 *            U - lag_max <= u <= U + lag_max   as a task comes; of one that slept U - pull <= u
 *            U - lag_max <= u <= U + 8 s       as it has run; of one alone on its CPU u <= U + 2 pull
 *                     distances as fair.h has them
 *
 * Trade-offs A task that slept comes back within pull_ns of U: sleep earns no right to be moved. One that has a CPU to
 *            itself does not measure what others are due; it is ahead enough to pull, and no further. What is due more
 *            than a whole CPU (an infeasible weight) is forgotten beyond lag_max.
 *
 * Limits     Equality across CPUs holds to about pull_ns plus one slice. The sums are of one domain and are written at
 *            each event: on the live side per CPU, and gathered at a bounded rate. There all CPUs are one domain.
 *
 * Source: entity.h, for means kept near a moving origin.
 */
#ifndef PL_DOMAIN_H
#define PL_DOMAIN_H

#include "entity.h"

struct pl_domain {
	u64 u0; /* near U; of an empty domain, and of what is gathered: U */
	s64 sum_wu;
	u64 sum_w;
	struct pl_domain PL_MEM *whole; /* of one CPU's part: what all are gathered in; NULL: it is whole */
};

PL_FN u64 pl_domain_mean(const struct pl_domain PL_MEM *domain)
{
	return domain->sum_wu ? domain->u0 + (u64)pl_div_down(domain->sum_wu, domain->sum_w) : domain->u0;
}

/* Measures from the mean from now on. */
PL_INLINE void pl_domain_center(struct pl_domain PL_MEM *domain, u64 mean)
{
	domain->sum_wu -= (s64)(mean - domain->u0) * (s64)domain->sum_w;
	domain->u0 = mean;
}

PL_INLINE const struct pl_domain PL_MEM *pl_domain_whole(const struct pl_domain PL_MEM *domain)
{
	const struct pl_domain PL_MEM *whole = domain->whole;

	return whole ?: domain;
}

/* u of a task of an effective weight, within what its domain allows. */
PL_FN u64 pl_domain_clamp(const struct pl_domain PL_MEM *domain, u64 u, u64 weight, u64 behind_ns,
			  u64 ahead_ns)
{
	u64 mean = pl_domain_mean(pl_domain_whole(domain));

	if (pl_fair_before(u, mean))
		return pl_fair_within(mean - u, behind_ns, weight)
			   ? u
			   : mean - pl_fair_distance(behind_ns, weight);
	return pl_fair_within(u - mean, ahead_ns, weight) ? u : mean + pl_fair_distance(ahead_ns, weight);
}

/* A task with u near U comes into a domain or leaves it: pl_domain_clamp first. */
PL_FN void pl_domain_count(struct pl_domain PL_MEM *domain, u64 u, u64 weight, bool comes)
{
	s64 moment;

	if (!domain->sum_w)
		domain->u0 = u;
	moment = (s64)(u - domain->u0) * (s64)weight;
	domain->sum_wu += comes ? moment : -moment;
	domain->sum_w += comes ? weight : -weight;
	if (!domain->sum_w) {
		domain->sum_wu = 0;
		domain->u0 = u;
	} else if (pl_far(domain->sum_wu)) {
		pl_domain_center(domain, pl_domain_mean(domain));
	}
}

/* One part more of a whole that is being gathered, from nothing. Its CPU may change it meanwhile: U is an estimate. */
PL_FN void pl_domain_gather(struct pl_domain PL_MEM *sum, const struct pl_domain PL_MEM *part)
{
	u64 weight = pl_read(&part->sum_w);

	if (weight)
		pl_domain_count(sum, pl_domain_mean(part), weight, true);
}

/* Whether a task at u `theirs` is so far behind what a CPU of the same domain has at `own` that it moves there. */
PL_FN bool pl_domain_pulls(u64 own, u64 theirs, u64 weight, const struct pl_fair_config PL_MEM *config)
{
	return config->pull_ns && pl_fair_before(theirs + pl_fair_distance(config->pull_ns, weight), own);
}

#endif

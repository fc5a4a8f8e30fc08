/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * domain.h - a clock for balance: how far each task is served, over all CPUs that tasks can move between
 *
 * Problem    A line (entity.h) is fair on its CPU. Three equal tasks on two CPUs need more: one of them has to move, in
 *            turn, and it has to be known which is behind.
 *
 * Mechanism  Each task has a second virtual time u, which advances as it runs and is kept near its domain's mean,
 *            whatever its lines do: it decides which task moves, never which runs. The domain's reference U is the mean
 *            of u, weighted, over the tasks runnable on its CPUs. A CPU at the end of a slice looks at one other CPU
 *            and takes over the task that is furthest behind there, if its own are further on by more than pull_ns
 *            (pl_domain_pulls; which of two weights measures that, says pl_steps_pulls in steps.h). The task comes with
 *            what it is behind added to its lag, pull_ns at most.
 *
 *            Tasks that are bound to a set of CPUs (a cpuset, an affinity) may be served faster or slower than others
 *            for ever, and none of the others can take that from them. So each set is a domain, with a U of its own, and
 *            a CPU belongs to that of the bound task that last had a turn there; where none has had one for
 *            PL_DOMAIN_BOUND_NS, to the domain of what may run anywhere. Tasks that may run anywhere move between
 *            domains, and are compared there, too: each domain has an offset, so that its U less its offset is within
 *            lag_max of the mean of all. While the domains are served alike the offsets stay as they are and all is one
 *            clock; of one that runs away, what it is ahead beyond that is forgotten, so that it need not be caught up
 *            with once its tasks sleep.
 *
 * Formula    u += delta * 2^20 / effective weight (fair.h)
 *            U = sum of w u / sum of w
 *            U - lag_max <= u <= U + lag_max   as a task comes; of one that slept U - pull <= u
 *            U - lag_max <= u <= U + 8 s       as it has run; of one alone on its CPU u <= U + 2 pull
 *            G - lag_max <= U - offset <= G + lag_max,  G = sum of W (U - offset) / sum of W, of all domains
 *                     distances as fair.h has them, of a domain's: for what its tasks weigh on average
 *            in the clock of another domain: u - offset + its offset
 *
 * Trade-offs A task that slept comes back within pull_ns of U: sleep earns no right to be moved. One that has a CPU to
 *            itself does not measure what others are due; it is ahead enough to pull, and no further. What is due more
 *            than a whole CPU (an infeasible weight) is forgotten beyond lag_max. Sets that begin with the same CPU are
 *            one domain.
 *
 * Limits     Equality across CPUs holds to about pull_ns plus one slice. Each CPU has a part of the sums; they are
 *            gathered at a bounded rate (pl_domain_gather_ns).
 *
 * Source: entity.h, for means kept near a moving origin.
 */
#ifndef PL_DOMAIN_H
#define PL_DOMAIN_H

#include "entity.h"

/* For so long a CPU stays in the domain of a set of CPUs without a turn of a task that is bound to it. Source: chosen. */
#define PL_DOMAIN_BOUND_NS (1 * PL_SEC)

/* Domains stand in an array of one more than there are CPUs: first that of what may run anywhere. */
#define PL_DOMAIN_REST 0

/* The number of the domain of a set of CPUs, by the first of them. */
PL_FN u32 pl_domain_of_set(u32 first)
{
	return PL_DOMAIN_REST + 1 + first;
}

/* A weighted mean of u. */
struct pl_sum {
	u64 u0; /* near the mean; of an empty sum: where it was */
	s64 sum_wu;
	u64 sum_w;
	u64 n; /* tasks */
};

struct pl_domain {
	u64 mean;	   /* U, as last gathered */
	u64 offset;	   /* of its clock */
	struct pl_sum sum; /* being gathered */
};

/* What is runnable on one CPU. With locks: the CPU's. */
struct pl_part {
	struct pl_sum sum;
	struct pl_domain PL_MEM *domain; /* its CPU's: u of all that is counted here is in its clock */
	u64 shift;    /* by how much all u here have been moved so far, as the domain changed */
	u64 bound_ns; /* a task that is bound to a set of CPUs last had a turn here */
};

/*
 * How old the means get before they are gathered anew: a slice moves them by less than what moves a task.
 */
PL_FN u64 pl_domain_gather_ns(u32 nr_cpus)
{
	return PL_MS + nr_cpus * 10 * PL_US;
}

PL_FN u64 pl_sum_mean(const struct pl_sum PL_MEM *sum)
{
	return sum->sum_wu ? sum->u0 + (u64)pl_div_down(sum->sum_wu, sum->sum_w) : sum->u0;
}

/* u of one domain in the clock of another. */
PL_INLINE u64 pl_domain_translate(u64 u, const struct pl_domain PL_MEM *from,
				  const struct pl_domain PL_MEM *to)
{
	return u + to->offset - from->offset;
}

/* u of a task of an effective weight, within what a mean allows. */
PL_FN u64 pl_domain_clamp(u64 mean, u64 u, u64 weight, u64 behind_ns, u64 ahead_ns)
{
	if (pl_fair_before(u, mean))
		return pl_fair_within(mean - u, behind_ns, weight)
			   ? u
			   : mean - pl_fair_distance(behind_ns, weight);
	return pl_fair_within(u - mean, ahead_ns, weight) ? u : mean + pl_fair_distance(ahead_ns, weight);
}

/* What weighs so much in all, n tasks near the mean at u, comes into a sum or leaves it: pl_domain_clamp first. */
PL_FN void pl_sum_count(struct pl_sum PL_MEM *sum, u64 u, u64 weight, s64 n)
{
	s64 moment;

	if (!sum->sum_w)
		sum->u0 = u;
	moment = (s64)(u - sum->u0) * (s64)weight;
	sum->sum_wu += n > 0 ? moment : -moment;
	sum->sum_w += n > 0 ? weight : -weight;
	sum->n += (u64)n;
	if (!sum->sum_w) {
		sum->sum_wu = 0;
		sum->u0 = u;
	} else if (pl_far(sum->sum_wu)) {
		u64 mean = pl_sum_mean(sum);

		/* Measures from the mean from now on. */
		sum->sum_wu -= (s64)(mean - sum->u0) * (s64)sum->sum_w;
		sum->u0 = mean;
	}
}

PL_INLINE void pl_sum_empty(struct pl_sum PL_MEM *sum)
{
	pl_write(&sum->sum_wu, 0);
	pl_write(&sum->sum_w, 0);
	pl_write(&sum->n, 0);
}

/*
 * The turn of a task begins on a CPU. `bound`: the number of the domain of the CPUs that it is bound to;
 * PL_DOMAIN_REST: it may run anywhere, or here only.
 */
PL_FN void pl_part_follows(struct pl_part PL_MEM *part, struct pl_domain PL_MEM *domains, u32 bound,
			   u64 now_ns)
{
	struct pl_domain PL_MEM *domain = PL_ELEMENT(domains, bound);
	u64 moves;

	if (bound != PL_DOMAIN_REST)
		part->bound_ns = now_ns;
	else if (now_ns - part->bound_ns <= PL_DOMAIN_BOUND_NS)
		return;
	if (domain == part->domain)
		return;
	moves = domain->offset - part->domain->offset;
	part->sum.u0 += moves;
	part->shift += moves;
	part->domain = domain;
}

/* Gathering, of n domains: pl_domains_begin, then each part, then pl_domains_end. By one at a time. Returns 0. */
PL_SUB u64 pl_domains_begin(struct pl_domain PL_MEM *domains PL_ARENA, u32 n)
{
	u32 i;

	for (i = PL_START(n); i < n && PL_LOOP; i++)
		pl_sum_empty(&PL_ELEMENT(domains, i)->sum);
	return 0;
}

/* Its CPU may change it meanwhile: U is an estimate. */
PL_FN void pl_domains_gather(const struct pl_part PL_MEM *part)
{
	u64 weight = pl_read(&part->sum.sum_w);

	if (weight)
		pl_sum_count(&pl_read(&part->domain)->sum, pl_sum_mean(&part->sum), weight,
			     (s64)pl_max(pl_read(&part->sum.n), 1));
}

/*
 * `all`: the mean of all, which moves on from where it was last gathered: what has slept for hours is no more than
 * lag_max from it as it is counted, which bounds the sums. Returns 0.
 */
PL_SUB u64 pl_domains_end(struct pl_domain PL_MEM *domains PL_ARENA, u32 n,
			  struct pl_sum PL_MEM *all PL_ARENA,
			  const struct pl_fair_config PL_MEM *config PL_ARENA)
{
	u64 last = pl_sum_mean(all);
	u32 i;

	pl_sum_empty(all);
	all->u0 = last;
	for (i = PL_START(n); i < n && PL_LOOP; i++) {
		struct pl_domain PL_MEM *domain = PL_ELEMENT(domains, i);
		u64 weight = domain->sum.sum_w;
		u64 at;

		if (!weight)
			continue;
		domain->mean = pl_sum_mean(&domain->sum);
		at = pl_domain_clamp(last, domain->mean - domain->offset, pl_div(weight, domain->sum.n),
				     config->lag_max_ns, config->lag_max_ns);
		domain->offset = domain->mean - at;
		pl_sum_count(all, at, weight, 1);
	}
	return 0;
}

/* Whether a task at u `theirs` is so far behind what a CPU has at `own`, both in one clock, that it moves there. */
PL_FN bool pl_domain_pulls(u64 own, u64 theirs, u64 weight, const struct pl_fair_config PL_MEM *config)
{
	return config->pull_ns && pl_fair_before(theirs + pl_fair_distance(config->pull_ns, weight), own);
}

#endif

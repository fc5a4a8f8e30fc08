/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * lend.h - burst and headroom where the only actuator is a quota that the kernel enforces
 *
 * Problem    Where no scheduler of ours runs, the kernel keeps the limits. It takes no burst above the quota, and no
 *            headroom. Its quota can be rewritten a few dozen times a second, not at every context switch.
 *
 * Mechanism  Lending: a pool of bandwidth.h with one balance is charged with what the group was seen to use. What it
 *            holds is the kernel's quota for the next stretch: the owner's quota plus what was saved.
 *            Headroom: the side's budget of headroom.h is divided among the side groups.
 *
 * Formula    lent  = quota                                       if have <= quota
 *                    quota + floor((have - quota) / step) * step otherwise; all of it where the buffer is full
 *            have  = pool's run time + balance (negative: debt)
 *            share = used + (budget - used_sum) / n  where the budget exceeds what was used
 *                    used * budget / used_sum        where it does not
 *
 * Trade-offs Setting a kernel's quota refills it at once. So the lent quota changes in steps: a step is what a group may
 *            use less than it saved, never more. It is never below the owner's quota, so a debt is repaid by what the
 *            group does not use, not by a tighter limit.
 *
 * Limits     Between two looks the kernel may refill once more at the end of its own period: that is charged at the next
 *            look, as debt if need be. As lending ends, the last write grants up to one quota more than was saved.
 *
 * Source: systems 2 and 5, by the files of cgroup v2. The steps and the parts are ours.
 */
#ifndef PL_LEND_H
#define PL_LEND_H

#include "bandwidth.h"

/* Changes of a lent quota: this part of the burst, at least 1 ms. */
#define PL_LEND_STEPS 16

/* What the kernel's quota is to be until the next look. The pool is limited. */
PL_FN u64 pl_lend_quota(const struct pl_pool PL_MEM *pool, const struct pl_balance PL_MEM *balance)
{
	s64 have_ns = pl_read(&pool->runtime_ns) + pl_read(&balance->remaining_ns);
	u64 step_ns = pl_max(pl_div(pool->burst_ns, PL_LEND_STEPS), PL_MS);
	u64 above_ns;

	if (have_ns <= (s64)pool->quota_ns)
		return pool->quota_ns;
	above_ns = (u64)have_ns - pool->quota_ns;
	/* A balance keeps up to a slice, here 1 us, beside a pool that is full. */
	if ((u64)have_ns >= pool->buffer_ns)
		return pool->buffer_ns;
	return pool->quota_ns + pl_div(above_ns, step_ns) * step_ns;
}

/*
 * One side group's part of the side's budget for the next window. used_ns: the group's use in the last window,
 * used_sum_ns: that of all nr_groups side groups (>= 1). The parts add up to the budget, less what rounding loses.
 */
PL_FN u64 pl_lend_share(u64 budget_ns, u64 used_ns, u64 used_sum_ns, u32 nr_groups)
{
	if (budget_ns >= used_sum_ns)
		return used_ns + pl_div(budget_ns - used_sum_ns, pl_max(nr_groups, 1));
	/* In units of 1 us: 2^44 squared does not fit, and nothing finer can be written. */
	return pl_div(pl_div(used_ns, PL_US) * pl_div(budget_ns, PL_US),
		      pl_max(pl_div(used_sum_ns, PL_US), 1)) *
	       PL_US;
}

/*
 * A quota has a smallest value: where the parts are less than what was used, a group whose part would be below least_ns has that much
 * all the same, and the others share what remains. Returns whether this group is one; *budget_ns and *used_sum_ns are the rest's
 * then. The engine asks for each group that is not one yet until none is, and then pl_lend_share for those that are left.
 */
PL_FN bool pl_lend_least(u64 PL_MEM *budget_ns, u64 PL_MEM *used_sum_ns, u64 used_ns, u64 least_ns)
{
	if (*budget_ns >= *used_sum_ns || pl_lend_share(*budget_ns, used_ns, *used_sum_ns, 1) >= least_ns)
		return false;
	*budget_ns -= pl_min(*budget_ns, least_ns);
	*used_sum_ns -= pl_min(*used_sum_ns, used_ns);
	return true;
}

#endif

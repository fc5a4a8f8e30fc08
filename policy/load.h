/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * load.h - a group's load, published at a bounded rate, and a queue's share of the weight
 *
 * Problem    A group's weight is divided among its CPUs by load, so every CPU must know the group's whole
 *            load. That is one cache line written by all of them: on 224 CPUs it took about 24% of the
 *            machine's time.
 *
 * Mechanism  Each queue adds to the group's sum only how much it changed since it last did so, only when
 *            that is more than 1/64, and at most once per publish_ns (1 ms). What a queue published in which
 *            nothing has been runnable for long is taken out of the sum by tasks that run elsewhere: its own CPU may
 *            sleep, or may not run this group again.
 *
 * Formula    share = weight * load / (group_load - own_contribution + load),  clamped to [2 / 1024, weight]
 *            load  = max(runnable weight now, its average)
 *            where a kernel's cgroup_mode is "concur" (group.h, crowds): share * min(tasks, CPUs), tasks being the
 *            average number of runnable tasks of the group and below, to the nearest, at least 1
 *
 * Trade-offs The group's sum may be 1/64 and 1 ms behind. Where nothing is runnable it is PL_LOAD_FORGET_NS behind,
 *            and until a task that runs elsewhere has come round: a running task looks at one queue at each tick.
 *            The own part is replaced by the present one, so that a queue that has just woken up does not
 *            divide by a sum without itself. Shares carry 10 bits of fraction: on 224 CPUs a group of weight 10
 *            has less than 1/2 on each. Loads, which only say how they are divided, are whole numbers. Both as in
 *            the kernel.
 *
 * Limits     The root group is not published: it has no share to compute.
 *
 * Source: system 4; publish_ns = 0 is the rule before it. "concur": Linux 7.3, calc_concur_shares() and tg_tasks() of
 *            kernel/sched/fair.c, which rounds tasks down; "smp" is the rule of all kernels before, and the live scheduler's.
 */
#ifndef PL_LOAD_H
#define PL_LOAD_H

#include "pelt.h"

#define PL_LOAD_PUBLISH_NS (1 * PL_MS)
#define PL_LOAD_CHANGE_SHIFT 6 /* 1/64 */
/* Bits of fraction of shares, and of a queue's runnable weight, which holds shares. */
#define PL_LOAD_SHIFT 10
#define PL_SHARE_MIN 2 /* the kernel's MIN_SHARES */
/* Ten half-lives: a thousandth of the load is left. */
#define PL_LOAD_FORGET_NS (10ULL * PL_PELT_HALF_LIFE * PL_PELT_SEGMENT * 1024)

struct pl_load_config {
	u64 publish_ns; /* least time between two writes of one queue; 0: unlimited rate */
};

/* The line that all CPUs share. */
struct pl_group_load {
	s64 load_avg;
} PL_OWN_LINE;

/* A runnable task as a load, for groups that weigh by how many they run at once. */
#define PL_LOAD_TASK_SHIFT 10

/* One queue's load: touched by its CPU only, but for what pl_load_forget does. */
struct pl_load {
	struct pl_pelt pelt;
	u64 weight;	  /* of what is runnable now; PL_LOAD_SHIFT bits are fraction */
	s64 contribution; /* what of this queue is in the group's load_avg */
	u64 published_at_ns;
};

/* What is runnable now as a load: rounded up, so that it is never nothing (the kernel's scale_load_down: at least 2). */
PL_INLINE u64 pl_load_now(const struct pl_load PL_MEM *load)
{
	return (load->weight + (1 << PL_LOAD_SHIFT) - 1) >> PL_LOAD_SHIFT;
}

/* Counts the time until now with the weight so far. Call before `weight` changes. */
PL_FN void pl_load_update(struct pl_load PL_MEM *load, u64 now_ns)
{
	pl_pelt_update(&load->pelt, pl_load_now(load), now_ns);
}

/* Publishes what changed, if it is enough and not too soon. Returns whether the shared line was written. */
PL_SUB bool pl_load_publish(struct pl_group_load PL_MEM *group PL_ARENA, struct pl_load PL_MEM *load PL_ARENA,
			    u64 now_ns, const struct pl_load_config PL_MEM *config PL_ARENA)
{
	s64 published = pl_read(&load->contribution);
	s64 change = (s64)load->pelt.avg - published;
	s64 size = change < 0 ? -change : change;

	if (size <= published >> PL_LOAD_CHANGE_SHIFT)
		return false;
	if (now_ns - load->published_at_ns < config->publish_ns)
		return false;
	/* It may just have been forgotten: the next update publishes. */
	if (!pl_cas(&load->contribution, published, (s64)load->pelt.avg))
		return false;
	pl_add(&group->load_avg, change);
	load->published_at_ns = now_ns;
	return true;
}

/*
 * Takes out of the group's sum what a queue published in which nothing has been runnable for PL_LOAD_FORGET_NS. By
 * any CPU. Returns whether the shared line was written.
 */
PL_FN bool pl_load_forget(struct pl_group_load PL_MEM *group, struct pl_load PL_MEM *load, u64 now_ns)
{
	s64 published = pl_read(&load->contribution);

	if (!published || pl_read(&load->weight) || now_ns < pl_read(&load->pelt.last_ns) + PL_LOAD_FORGET_NS)
		return false;
	if (!pl_cas(&load->contribution, published, 0))
		return false;
	pl_add(&group->load_avg, -published);
	return true;
}

/*
 * A task that runs and waits in neither queue goes from one to the other, and its load with it: `most`, as far as
 * `from` has it. Load is neither made nor lost. Where publishing is limited, what the group's sum holds of it
 * changes owners, so that the shared line is not written; before system 4 both queues are away from what they
 * last published, and publish at their next update. Returns the load moved.
 */
PL_FN u64 pl_load_moved(struct pl_load PL_MEM *from, struct pl_load PL_MEM *to, u64 most, u64 now_ns,
			const struct pl_load_config PL_MEM *config)
{
	u64 moved, sum;
	s64 unbacked;

	pl_load_update(from, now_ns);
	pl_load_update(to, now_ns);
	moved = pl_min(most, from->pelt.avg);
	sum = moved * pl_pelt_divider(&from->pelt);
	from->pelt.avg -= moved;
	from->pelt.sum -= pl_min(sum, from->pelt.sum);
	to->pelt.avg += moved;
	to->pelt.sum += moved * pl_pelt_divider(&to->pelt);
	unbacked = pl_read(&from->contribution) - (s64)from->pelt.avg;
	if (config->publish_ns && unbacked > 0) {
		pl_add(&from->contribution, -unbacked);
		pl_add(&to->contribution, unbacked);
	}
	return moved;
}

/* How many tasks a sum of loads of 1 << PL_LOAD_TASK_SHIFT each stands for, to the nearest, at least 1. */
PL_INLINE u64 pl_load_tasks(const struct pl_group_load PL_MEM *crowd)
{
	u64 sum = (u64)pl_smax(pl_read(&crowd->load_avg), 0);

	return pl_max((sum + (1 << (PL_LOAD_TASK_SHIFT - 1))) >> PL_LOAD_TASK_SHIFT, 1);
}

/*
 * What of the group's weight (in units of weight.h) belongs to this queue: PL_SHARE_MIN .. weight, with PL_LOAD_SHIFT
 * bits of fraction. Reads the shared line.
 */
PL_SUB u64 pl_load_share(const struct pl_group_load PL_MEM *group PL_ARENA,
			 const struct pl_load PL_MEM *load PL_ARENA, u64 weight)
{
	u64 mine = pl_max(pl_load_now(load), load->pelt.avg);
	s64 others = pl_read(&group->load_avg) - load->contribution;
	u64 sum = mine + (u64)pl_smax(others, 0);
	u64 share;

	/* Below 2^27; what a million tasks weigh has 37 bits. */
	weight <<= PL_LOAD_SHIFT;
	share = sum ? pl_div(weight * mine, sum) : weight;
	return pl_min(pl_max(share, PL_SHARE_MIN), weight);
}

#endif

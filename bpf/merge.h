/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * merge.h - cgroups that get no group of their own are scheduled as part of one above them
 *
 * Problem    The scheduler has room for max_groups groups and PL_GROUP_DEPTH_MAX levels. A user to whom a cgroup was
 *            delegated can make more of both. That must end nothing, and must leave room for others.
 *
 * Mechanism  A cgroup that gets no group is merged: its storage points to the group of its nearest ancestor that has one.
 *            Its tasks are that group's tasks, under that group's limits and weight. All below a merged cgroup is merged, too.
 *
 *              share(depth) = max_groups / 2^min(depth, SHARE_HALVINGS)
 *
 *            is how many groups there may be below a group at that depth: whatever one subtree does, half of the groups of
 *            the one above it stay for others.
 *
 * Trade-offs The rule does not depend on who owns a cgroup, and needs no setting; one subtree may not use all of an empty machine.
 *            A merged cgroup stays merged until it is made anew, or the scheduler is loaded anew.
 *
 * Limits     cpu.max, cpu.weight and cpu.idle of a merged cgroup have no effect of their own. Each merge, and each limit
 *            set on a merged cgroup, is handed to the loader, which says it by name; the last MERGES_KEPT of them are kept.
 */
#ifndef PLIMSOLL_MERGE_H
#define PLIMSOLL_MERGE_H

#define SHARE_HALVINGS 6

/* The group of a cgroup that has one of its own; NULL: it is merged, or not known. */
static __always_inline struct live_group PL_MEM *own_group_of(struct cgroup *cgrp)
{
	struct live_group PL_MEM *group = group_of(cgrp);

	return group && group->g.id == cgrp->kn->id ? group : NULL;
}

/* Why a cgroup below this group must be merged, as enum live_merge; 0: it may have a group of its own. */
__noinline u32 why_merged(u64 parent_address, u32 level)
{
	struct live_group PL_MEM *group = (struct live_group PL_MEM *)parent_address;

	if (level > PL_GROUP_DEPTH_MAX)
		return LIVE_MERGE_DEPTH;
	while (group && group->g.depth && can_loop) {
		u32 halvings = group->g.depth < SHARE_HALVINGS ? group->g.depth : SHARE_HALVINGS;

		if (group->nr_below >= max_groups >> halvings)
			return LIVE_MERGE_SHARE;
		group = (struct live_group PL_MEM *)group->g.parent;
	}
	return 0;
}

/* A group came (1) or went (-1): all above it count it. */
__noinline int count_below(u64 group_address, s32 change)
{
	struct live_group PL_MEM *group = (struct live_group PL_MEM *)group_address;

	for (group = (struct live_group PL_MEM *)group->g.parent; group && can_loop;
	     group = (struct live_group PL_MEM *)group->g.parent)
		pl_add32(&group->nr_below, change);
	return 0;
}

/* Hands the loader what to say. The kernel makes and changes cgroups one at a time; the count is written last. */
static __noinline void tell_merged(struct cgroup *cgrp, struct live_group PL_MEM *into, u32 why, u64 quota_us,
				   u64 period_us)
{
	struct live_merged PL_MEM *told = &S->merged[S->nr_merges % MERGES_KEPT];
	char label[LIVE_NAME_MAX];
	const char *name;
	u32 i;

	__builtin_memset(label, 0, sizeof(label));
	name = cgrp->kn->name;
	bpf_probe_read_kernel_str(label, sizeof(label), name);
	told->id = cgrp->kn->id;
	told->into_id = into->g.id;
	told->quota_us = quota_us;
	told->period_us = period_us;
	told->level = cgrp->level;
	told->why = why;
	for (i = zero; i < LIVE_NAME_MAX && can_loop; i++)
		told->name[i] = label[i];
	pl_add32(&S->nr_merges, 1);
}

#endif

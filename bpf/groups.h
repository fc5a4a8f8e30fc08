/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * groups.h - cgroups come, change and go; knobs and headroom
 */
#ifndef PLIMSOLL_GROUPS_H
#define PLIMSOLL_GROUPS_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_timer);
} window_timer SEC(".maps");

#define NO_QUOTA_US (~0ULL)
#define SHARES_SHIFT 10 /* the kernel's bits of fraction of what a group weighs */

/* Zeroes memory that may have been used before. bytes: a multiple of 8. */
static __always_inline void arena_zero(void PL_MEM *memory, u64 bytes)
{
	u64 i;

	for (i = zero; i < bytes / 8 && can_loop; i++)
		((volatile u64 PL_MEM *)memory)[i] = 0;
}

static __always_inline u32 ring_slots(void)
{
	u32 slots = zero + 1;

	while (slots < nr_cpus && can_loop)
		slots <<= 1;
	return slots;
}

/* A group's memory: the group, then per CPU its queues, balances and nodes, then the ring. Whole cache lines. */
static __always_inline u64 group_bytes(void)
{
	u64 bytes = sizeof(struct live_group) +
		    nr_cpus * (sizeof(struct pl_queue) + sizeof(struct pl_balance) + sizeof(struct pl_node));

	return (bytes + ring_slots() * sizeof(u32) + 63) & ~63ULL;
}

/* Sleepable contexts only. 0: no memory, or more groups than max_groups. */
__noinline u64 group_alloc(u64 parent_address, u64 id)
{
	struct live_group PL_MEM *parent = (struct live_group PL_MEM *)parent_address;
	u64 address = free_pop(&S->free_groups, GROUP_NEXT);
	struct live_group PL_MEM *group = (struct live_group PL_MEM *)address;
	struct pl_queue PL_MEM *queues;
	struct pl_balance PL_MEM *balances;
	struct pl_node PL_MEM *nodes;
	struct group_timer *timer;
	u32 slot, key;

	if (group) {
		slot = group->slot;
	} else {
		slot = pl_add32(&S->nr_slots, 1) - 1;
		if (slot >= max_groups) {
			pl_add32(&S->nr_slots, -1);
			return 0;
		}
		group = arena_alloc(group_bytes());
		if (!group || scx_bpf_create_dsq(PARK_DSQ(slot), NUMA_NO_NODE) < 0) {
			pl_add32(&S->nr_slots, -1);
			return 0;
		}
		group->slot = slot;
	}
	/* Of memory that was another group's, too: a timer that was cancelled has no callback any more. */
	key = PERIOD_TIMER(slot);
	timer = bpf_map_lookup_elem(&group_timers, &key);
	if (!timer)
		return 0;
	timer->group = (u64)group;
	bpf_timer_init(&timer->timer, &group_timers, CLOCK_MONOTONIC);
	if (bpf_timer_set_callback(&timer->timer, period_fired))
		return 0;
	key = SLACK_TIMER(slot);
	timer = bpf_map_lookup_elem(&group_timers, &key);
	if (!timer)
		return 0;
	timer->group = (u64)group;
	bpf_timer_init(&timer->timer, &group_timers, CLOCK_MONOTONIC);
	if (bpf_timer_set_callback(&timer->timer, slack_fired))
		return 0;
	arena_zero(group, group_bytes());
	queues = (struct pl_queue PL_MEM *)(group + 1);
	balances = (struct pl_balance PL_MEM *)(queues + nr_cpus);
	nodes = (struct pl_node PL_MEM *)(balances + nr_cpus);
	group->slot = slot;
	group->refs = 1;
	group->quota_us = NO_QUOTA_US;
	group->period_us = 100000;
	pl_group_init(&group->g, &parent->g, id, queues, balances, nr_cpus, (u32 PL_MEM *)(nodes + nr_cpus),
		      ring_slots());
	group->g.nodes = nodes;
	if (parent)
		group_get(parent);
	S->groups[slot] = group;
	return (u64)group;
}

/* The living group of a slot, if it is as deep as that. */
static __always_inline struct live_group PL_MEM *at_depth(u32 slot, u32 depth)
{
	struct live_group PL_MEM *group = S->groups[slot];

	return group && group->alive && group->g.depth == depth ? group : NULL;
}

/* A function of its own: the kernel ends a program's loops after some 100,000 turns of each call. */
__noinline int link_level(u32 depth)
{
	u32 slot;

	for (slot = zero + 1; slot < S->nr_slots && can_loop; slot++) {
		struct live_group PL_MEM *group = at_depth(slot, depth);

		if (group)
			pl_group_link(&group->g);
	}
	return 0;
}

/* Links every living group from a depth downwards, parents before children. */
__noinline int link_below(u32 depth)
{
	for (; depth <= S->max_depth && can_loop; depth++) {
		/* For its barrier, as in apply_limits_once: now for the level above. */
		pl_add32(&S->nr_links, 1);
		link_level(depth);
	}
	return 0;
}

/*
 * Links a group, and all below it, by its limit and its cpu.idle as they are now. Two of these at once (limits of a group
 * and of one above it, or a group that is being made) may each link by what the other has not changed yet: one that
 * finds that another was done meanwhile links again.
 */
__noinline int link_groups(u64 group_address)
{
	struct live_group PL_MEM *group = (struct live_group PL_MEM *)group_address;
	u32 seen;

	do {
		seen = pl_read(&S->nr_linked);
		pl_group_link(&group->g);
		/* For its barrier: this finds a child that is being made, or the child finds this link. */
		pl_add32(&S->nr_links, 1);
		if (group->nr_children)
			link_below(group->g.depth + 1);
	} while (pl_add32(&S->nr_linked, 1) - 1 != seen && can_loop);
	return 0;
}

/* Limits as cgroup and knobs have them now. An error names the group. */
__noinline int apply_limits_once(u64 group_address, u64 now_ns)
{
	struct live_group PL_MEM *group = (struct live_group PL_MEM *)group_address;
	bool limited = group->quota_us != NO_QUOTA_US;
	/* Without a quota the kernel takes any burst, and there is none. */
	struct pl_bw_limits limits = {
	    .quota_ns = limited ? group->quota_us * PL_US : PL_UNLIMITED,
	    .period_ns = group->period_us * PL_US,
	    .burst_ns = limited ? (group->burst_set ? group->burst_us : group->cpu_burst_us) * PL_US : 0,
	    .onset_percent = group->onset_percent,
	};
	bool was_limited = pl_bw_limited(&group->g.pool);
	u32 error = pl_bw_check(&limits, !group->g.parent, PL_BASELINE(S->config.bandwidth.mainline));

	if (error) {
		scx_error("cgroup %llu: limits cannot be enforced: quota %llu us, period %llu us, error %u",
			  group->g.id, group->quota_us, group->period_us, error);
		return -EINVAL;
	}
	if (!was_limited && !limited)
		return 0;
	if (pl_bw_set(&group->g.pool, &limits, now_ns, now_ns, &S->config.bandwidth) &&
	    pl_bw_take_arm_period(&group->g.pool))
		start_period_timer(group->slot, group->g.pool.next_ns, now_ns);
	release_all((u64)group, now_ns);
	if (was_limited != pl_bw_limited(&group->g.pool))
		link_groups(group_address);
	/* Tasks that became runnable before the links were there asked for a timer that no walk found. */
	if (pl_bw_take_arm_period(&group->g.pool))
		start_period_timer(group->slot, group->g.pool.next_ns, now_ns);
	start_slack_timer(group->slot, TIMER_DELAY_MIN_NS);
	return 0;
}

/* After they were written. cpu.max and knobs may be written at once: a writer that finds newer ones takes those. */
__noinline int apply_limits(u64 group_address, u64 now_ns)
{
	struct live_group PL_MEM *group = (struct live_group PL_MEM *)group_address;
	u32 seen;
	int error;

	pl_add32(&group->limits_written, 1);
	do {
		seen = pl_read(&group->limits_written);
		error = apply_limits_once(group_address, now_ns);
	} while (!error && pl_read(&group->limits_written) != seen && can_loop);
	return error;
}

static int window_fired(void *map, u32 *key, struct cpu_timer *timer);

/*
 * The side group and the timer of its windows, before the first cgroup. Here and not in plimsoll_init: what timers
 * call is verified with each program that sets them up.
 */
__noinline int make_side(void)
{
	u32 key = 0;
	struct cpu_timer *timer = bpf_map_lookup_elem(&window_timer, &key);

	if (!timer)
		return -EINVAL;
	bpf_timer_init(&timer->timer, &window_timer, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&timer->timer, window_fired);
	S->side = (struct live_group PL_MEM *)group_alloc(0, 0);
	if (!S->side || S->side->slot)
		return -ENOMEM;
	S->side->g.is_side = 1;
	return 0;
}

/* A new group may be one of the side. Walks that are under way or went by meanwhile: see walk_side. */
__noinline int join_side(u64 group_address)
{
	struct live_group PL_MEM *group = (struct live_group PL_MEM *)group_address;
	u32 seen;

	do {
		seen = pl_read(&S->nr_relinks);
		group->g.under_main = group->g.parent->under_main;
		pl_headroom_link(&S->headroom, &group->g, &S->side->g);
		/* For its barrier: what was written is there before the walks are counted again. */
		pl_xchg32(&group->alive, 1);
		if (pl_read(&S->relinking))
			pl_xchg32(&S->relink_owed, 1);
	} while (pl_read(&S->nr_relinks) != seen && can_loop);
	return 0;
}

s32 BPF_OPS_SLEEPABLE(plimsoll_cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	USE_ARENA;
	struct live_group PL_MEM *parent = NULL;
	struct live_group PL_MEM *group;
	struct group_entry *entry;
	struct cgroup *above;
	const char *name;
	s32 level = cgrp->level;
	char label[LIVE_NAME_MAX];
	u32 why = zero, i;

	__builtin_memset(label, 0, sizeof(label));
	name = cgrp->kn->name;
	bpf_probe_read_kernel_str(label, sizeof(label), name);
	if (!S->side && make_side())
		return -ENOMEM;
	if (level > 0) {
		above = bpf_cgroup_ancestor(cgrp, level - 1);
		if (!above)
			return -ENOENT;
		parent = group_of(above);
		why = parent && !own_group_of(above) ? LIVE_MERGE_PARENT : 0;
		bpf_cgroup_release(above);
		if (!parent) {
			scx_error("cgroup %llu (%s): its parent is not known", cgrp->kn->id, label);
			return -ENOENT;
		}
	}
	/*
	 * 6.19 refuses while another task of this CPU is within such a call; this task may have preempted it there. It
	 * is tried again until that one has had a turn. Seen once as a mkdir that failed, "Cannot allocate memory".
	 */
	do {
		entry = bpf_cgrp_storage_get(&cgroups, cgrp, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	} while (!entry && can_loop);
	if (!entry)
		return -ENOMEM;
	if (!why)
		why = why_merged((u64)parent, level);
	group = why ? NULL : (struct live_group PL_MEM *)group_alloc((u64)parent, cgrp->kn->id);
	if (!group) {
		if (!parent)
			return -ENOMEM;
		group_get(parent);
		entry->group = (u64)parent;
		pl_add32(&S->nr_merged, 1);
		tell_merged(cgrp, parent, why ?: LIVE_MERGE_FULL, args->bw_quota_us, args->bw_period_us);
		return 0;
	}
	entry->group = (u64)group;
	for (i = zero; i < LIVE_NAME_MAX && can_loop; i++)
		group->name[i] = label[i];
	group->g.weight = pl_weight_of_cpu_weight(args->weight);
	{
		struct task_group *tg =
		    (struct task_group *)
			cgrp->subsys[bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id)];
		unsigned long shares;
		s32 idle = 0;

		if (tg && bpf_core_field_exists(tg->idle))
			bpf_core_read(&idle, sizeof(idle), &tg->idle);
		/* args->weight is what it was before it was cpu.idle, if it ever was: see pl_group_set_idle. */
		if (tg && bpf_core_field_exists(tg->shares) &&
		    !bpf_core_read(&shares, sizeof(shares), &tg->shares))
			group->g.weight = pl_max(shares >> SHARES_SHIFT, PL_WEIGHT_IDLE);
		group->g.idle = idle > 0;
		pl_group_link(&group->g);
	}
	if (group->g.depth > S->max_depth)
		S->max_depth = group->g.depth;
	/* Before it looks whose side it is on: walk_side finds it, or it finds what walk_side found. */
	pl_xchg32(&group->alive, 1);
	if (parent) {
		pl_add32(&parent->nr_children, 1);
		count_below((u64)group, 1);
		/*
		 * A limit of a group above may have come since this one was linked, when no walk could find it. From
		 * here on that finds this group, or this group finds the limit.
		 */
		link_groups((u64)group);
		join_side((u64)group);
	}
	pl_add32(&S->nr_groups, 1);
	S->groups_changed++;
	group->quota_us = args->bw_quota_us;
	group->period_us = args->bw_period_us;
	group->cpu_burst_us = args->bw_burst_us;
	/* The root takes no limit. */
	if (!parent)
		return 0;
	return apply_limits((u64)group, scx_bpf_now());
}

/* Its storage may outlive this: the controller is switched off, and the directory stays. */
static __always_inline void forget_merged(struct cgroup *cgrp, struct live_group PL_MEM *into)
{
	struct group_entry *entry = bpf_cgrp_storage_get(&cgroups, cgrp, 0, 0);

	if (entry)
		entry->group = 0;
	pl_add32(&S->nr_merged, -1);
	group_put(into);
}

void BPF_OPS_SLEEPABLE(plimsoll_cgroup_exit, struct cgroup *cgrp)
{
	USE_ARENA;
	struct live_group PL_MEM *group = group_of(cgrp);
	u64 now_ns = scx_bpf_now();

	if (group && !own_group_of(cgrp)) {
		forget_merged(cgrp, group);
		return;
	}
	if (!group || !group->alive)
		return;
	group->alive = 0;
	stop_timers(group->slot);
	release_all((u64)group, now_ns);
	/* Its headroom would serve no task any more. The loader has the side walked: see set_knobs. */
	if (group->g.headroom_percent) {
		group->g.headroom_percent = 0;
		pl_xchg32(&S->relink_owed, 1);
	}
	pl_add32(&S->nr_groups, -1);
	S->groups_changed++;
	if (group->g.parent)
		pl_add32(&((struct live_group PL_MEM *)group->g.parent)->nr_children, -1);
	count_below((u64)group, -1);
	group_put(group);
}

/* What the group weighs may have been written; it was `before`: see pl_queue_written. */
__noinline int weight_written(u64 group_address, u64 before)
{
	struct live_group PL_MEM *group = (struct live_group PL_MEM *)group_address;
	u64 now_ns = scx_bpf_now();
	unsigned long flags;
	u32 cpu;

	if (pl_group_weight(&group->g) == before)
		return 0;
	for (cpu = zero; cpu < nr_cpus && can_loop; cpu++) {
		struct live_cpu PL_MEM *c = cpu_of(cpu);

		bpf_local_irq_save(&flags);
		cpu_lock(c);
		pl_queue_written(&group->g, cpu);
		pl_steps_written(&group->g, cpu, now_ns, &c->touch, &S->config);
		cpu_unlock(c);
		bpf_local_irq_restore(&flags);
	}
	return 0;
}

void BPF_OPS(plimsoll_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	USE_ARENA;
	struct live_group PL_MEM *group = own_group_of(cgrp);
	u64 before;

	if (!group)
		return;
	before = pl_group_weight(&group->g);
	pl_group_set_weight(&group->g, weight);
	weight_written((u64)group, before);
}

void BPF_OPS(plimsoll_cgroup_set_idle, struct cgroup *cgrp, bool idle)
{
	USE_ARENA;
	struct live_group PL_MEM *group = own_group_of(cgrp);
	u64 before;

	if (!group)
		return;
	before = pl_group_weight(&group->g);
	pl_group_set_idle(&group->g, idle);
	link_groups((u64)group);
	weight_written((u64)group, before);
}

void BPF_OPS(plimsoll_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us)
{
	USE_ARENA;
	struct live_group PL_MEM *group = own_group_of(cgrp);
	struct live_group PL_MEM *into;

	if (!group) {
		into = group_of(cgrp);
		if (into && quota_us != NO_QUOTA_US)
			tell_merged(cgrp, into, LIVE_MERGE_LIMIT, quota_us, period_us);
		return;
	}
	group->quota_us = quota_us;
	group->period_us = period_us;
	group->cpu_burst_us = burst_us;
	apply_limits((u64)group, scx_bpf_now());
}

/* The kernel dequeues a task to move it: plimsoll_quiescent has taken it out of its old group's counts. */
void BPF_OPS(plimsoll_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	USE_ARENA;
	struct live_task PL_MEM *task = task_of(p);
	struct live_group PL_MEM *group = group_of(to);
	struct live_group PL_MEM *old;

	if (!task || !group)
		return;
	old = task->group;
	group_get(group);
	task->group = group;
	pl_task_regroup(&task->t, &group->g);
	group_put(old);
}

/* How many groups of the side are runnable on a CPU. One call each: the turns of nested loops count together. */
__noinline int count_side(u32 cpu)
{
	struct live_cpu PL_MEM *c = cpu_of(cpu);
	unsigned long flags;
	u32 runnable = 0;
	u32 slot;

	bpf_local_irq_save(&flags);
	cpu_lock(c);
	for (slot = zero + 1; slot < S->nr_slots && can_loop; slot++) {
		struct live_group PL_MEM *group = S->groups[slot];

		if (group && group->alive && group->g.side && !group->g.parent->side &&
		    group->g.queues[cpu].nr_runnable)
			runnable++;
	}
	S->side->g.queues[cpu].nr_runnable = runnable;
	cpu_unlock(c);
	bpf_local_irq_restore(&flags);
	return 0;
}

enum relink {
	RELINK_CLEAR,
	RELINK_MARK,
	RELINK_LINK,
};

__noinline int relink_level(u32 depth, u32 what)
{
	u32 slot;

	for (slot = zero + 1; slot < S->nr_slots && can_loop; slot++) {
		struct live_group PL_MEM *group = at_depth(slot, depth);

		if (!group)
			continue;
		if (what == RELINK_CLEAR)
			pl_headroom_clear(&group->g);
		else if (what == RELINK_MARK)
			pl_headroom_mark(&S->marked, &group->g);
		else
			pl_headroom_link(&S->headroom, &group->g, &S->side->g);
	}
	return 0;
}

/* Goes through every living group, parents before children. */
__noinline int relink(u32 what)
{
	u32 depth;

	for (depth = zero; depth <= S->max_depth && can_loop; depth++) {
		/* For its barrier, as in link_below. */
		pl_add32(&S->nr_links, 1);
		relink_level(depth, what);
	}
	return 0;
}

/*
 * Which groups are main and which are side; then how much of the side is runnable where. A group that is made meanwhile
 * is alive before it looks at its parent's marks (join_side). It may see them half done: then it sees this walk counted or
 * under way.
 */
__noinline int walk_side(void)
{
	u32 cpu;

	S->marked.percent = 0;
	S->marked.tolerance_ns = 0;
	pl_add32(&S->nr_relinks, 1);
	relink(RELINK_CLEAR);
	relink(RELINK_MARK);
	pl_headroom_take(&S->headroom, &S->marked);
	pl_add32(&S->nr_relinks, 1);
	relink(RELINK_LINK);
	pl_add32(&S->nr_relinks, 1);
	for (cpu = zero; cpu < nr_cpus && can_loop; cpu++)
		count_side(cpu);
	return 0;
}

/* A group came to want headroom, or no longer does. One walk at a time: a second caller has the first walk again. */
__noinline int relink_side(void)
{
	pl_xchg32(&S->relink_owed, 1);
	while (pl_read(&S->relink_owed) && !pl_xchg32(&S->relinking, 1) && can_loop) {
		pl_xchg32(&S->relink_owed, 0);
		walk_side();
		pl_xchg32(&S->relinking, 0);
	}
	return 0;
}

/*
 * What the side has used and the machine has been idle so far, into S->sum_*: of CPUs off line, too, until they went. A
 * window's figures are differences of these sums, which must not leap as a CPU comes or goes.
 */
__noinline int measure(u64 now_ns)
{
	u64 idle_ns = zero, used_ns = zero;
	u32 cpu;

	for (cpu = zero; cpu < S->nr_cpus && can_loop; cpu++) {
		struct live_cpu PL_MEM *c = cpu_of(cpu);
		u64 since_ns = pl_read(&c->idle_since_ns);

		idle_ns += pl_read(&c->idle_ns);
		used_ns += c->side_used_ns;
		if (!c->online)
			continue;
		/* One that has ended since is in idle_ns already, or will be the next time. */
		if (since_ns && since_ns < now_ns && since_ns == pl_read(&c->idle_since_ns))
			idle_ns += now_ns - since_ns;
	}
	S->sum_idle_ns = idle_ns;
	S->sum_used_ns = used_ns;
	return 0;
}

/* A headroom window ended: sets the side's budget for the next one. */
__noinline int end_window(u64 now_ns)
{
	struct live_group PL_MEM *side = S->side;
	u64 idle_ns, used_ns;

	measure(now_ns);
	idle_ns = S->sum_idle_ns - pl_min(S->window_idle_ns, S->sum_idle_ns);
	used_ns = S->sum_used_ns - pl_min(S->window_used_ns, S->sum_used_ns);
	if (pl_headroom_window(&S->headroom, &side->g, used_ns, idle_ns, now_ns - S->window_at_ns,
			       S->nr_online, now_ns, &S->headroom_config, &S->config.side) &&
	    pl_bw_take_arm_period(&side->g.pool))
		start_period_timer(side->slot, side->g.pool.next_ns, now_ns);
	S->window_at_ns = now_ns;
	S->window_idle_ns = S->sum_idle_ns;
	S->window_used_ns = S->sum_used_ns;
	return 0;
}

static int window_fired(void *map, u32 *key, struct cpu_timer *timer)
{
	u64 now_ns = scx_bpf_now();
	struct live_group PL_MEM *side = S->side;

	end_window(now_ns);
	if (!pl_bw_limited(&side->g.pool))
		release_all((u64)side, now_ns);
	unpark((u64)side, now_ns);
	if (pl_read(&S->headroom.percent)) {
		bpf_timer_start(&timer->timer, S->headroom_config.window_ns, 0);
		return 0;
	}
	pl_xchg32(&S->window_active, 0);
	/* A group may have come to want it meanwhile, and have found the windows running. */
	if (pl_read(&S->headroom.percent) && !pl_xchg32(&S->window_active, 1))
		bpf_timer_start(&timer->timer, S->headroom_config.window_ns, 0);
	return 0;
}

/* A cgroup's knobs changed; or, of a number that no cgroup has, what is owed is done: a walk over headroom's side. */
SEC("syscall")
int set_knobs(struct live_knobs *knobs)
{
	USE_ARENA;
	struct live_group PL_MEM *group = NULL;
	u64 now_ns = scx_bpf_now();
	u32 slot, key = 0;
	bool limits;

	if (pl_read(&S->relink_owed))
		relink_side();
	for (slot = zero + 1; slot < S->nr_slots && can_loop; slot++) {
		group = S->groups[slot];
		if (group && group->alive && group->g.id == knobs->cgroup_id)
			break;
		group = NULL;
	}
	if (!group) {
		knobs->result = -ENOENT;
		return 0;
	}
	limits = group->burst_set != knobs->burst_set || group->burst_us != knobs->burst_us ||
		 group->onset_percent != knobs->onset_percent;
	group->burst_set = knobs->burst_set;
	group->burst_us = knobs->burst_us;
	group->onset_percent = knobs->onset_percent;
	if (limits && group->g.parent)
		apply_limits((u64)group, now_ns);
	if (group->g.headroom_percent != knobs->headroom_percent ||
	    group->g.headroom_tolerance_ns != knobs->tolerance_us * PL_US) {
		group->g.headroom_percent = knobs->headroom_percent;
		group->g.headroom_tolerance_ns = knobs->tolerance_us * PL_US;
		relink_side();
		if (S->headroom.percent && !pl_xchg32(&S->window_active, 1)) {
			struct cpu_timer *timer = bpf_map_lookup_elem(&window_timer, &key);

			measure(now_ns);
			S->window_at_ns = now_ns;
			S->window_idle_ns = S->sum_idle_ns;
			S->window_used_ns = S->sum_used_ns;
			if (timer)
				bpf_timer_start(&timer->timer, S->headroom_config.window_ns, 0);
		}
	}
	knobs->result = 0;
	return 0;
}

#endif

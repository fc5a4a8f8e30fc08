/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * account.h - a task enters and leaves its group's queues on a CPU, and is charged
 *
 * Everything here calls the policy and keeps what it answers: which timers to arm, and that a group was
 * throttled. Arena pointers are passed as numbers, so that the verifier looks at each function once.
 */
#ifndef PLIMSOLL_ACCOUNT_H
#define PLIMSOLL_ACCOUNT_H

struct cpu_timer {
	struct bpf_timer timer;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_timer);
} cpu_timers SEC(".maps");

struct group_timer {
	struct bpf_timer timer;
	u64 group;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct group_timer);
} group_timers SEC(".maps");

/* A group has two: keys of group_timers. */
#define PERIOD_TIMER(slot) (2 * (slot))
#define SLACK_TIMER(slot) (2 * (slot) + 1)

#define TIMER_DELAY_MIN_NS (10 * PL_US)

/*
 * A timer that was not started is owed: the next tick of any CPU starts it, or the loader, which asks 20 times a second.
 * Linux 7 allocates memory to start one where interrupts are off, and may not get it. On a CPU that leaves it is not asked
 * to: see leaves_here.
 */
__noinline int start_timer(u32 key, u64 delay_ns)
{
	struct group_timer *timer = bpf_map_lookup_elem(&group_timers, &key);

	if (!timer || (!leaves_here() && !bpf_timer_start(&timer->timer, delay_ns, 0)))
		return 0;
	pl_write(&S->groups[key / 2]->owes_timer[key % 2], 1);
	pl_xchg32(&S->timers_owed, 1);
	pl_add32(&S->timers_refused, 1);
	return 0;
}

static __always_inline void start_period_timer(u32 slot, u64 at_ns, u64 now_ns)
{
	start_timer(PERIOD_TIMER(slot),
		    at_ns > now_ns + TIMER_DELAY_MIN_NS ? at_ns - now_ns : TIMER_DELAY_MIN_NS);
}

static __always_inline void start_slack_timer(u32 slot, u64 delay_ns)
{
	start_timer(SLACK_TIMER(slot), delay_ns);
}

/* A group that is gone has no tasks, and its memory may be another's soon: see stop_timers. */
static __always_inline bool is_gone(struct live_group PL_MEM *group)
{
	return !pl_read(&group->alive) && group != S->side;
}

__noinline int start_owed_timers(u64 now_ns)
{
	u32 slot;

	if (!pl_xchg32(&S->timers_owed, 0))
		return 0;
	for (slot = zero; slot < S->nr_slots && can_loop; slot++) {
		struct live_group PL_MEM *group = S->groups[slot];

		if (!group || is_gone(group))
			continue;
		if (pl_read(&group->owes_timer[0]) && pl_xchg32(&group->owes_timer[0], 0))
			start_period_timer(slot, group->g.pool.next_ns, now_ns);
		if (pl_read(&group->owes_timer[1]) && pl_xchg32(&group->owes_timer[1], 0))
			start_slack_timer(slot, TIMER_DELAY_MIN_NS);
	}
	return 0;
}

/* Starts the timers that the charged levels of a group ask for. */
__noinline u32 arm_levels(u64 group_address, u64 now_ns)
{
	struct pl_group PL_MEM *group = (struct pl_group PL_MEM *)group_address;
	struct pl_group PL_MEM *level;

	for (level = pl_charged_first(group); level && can_loop; level = pl_charged_next(group, level)) {
		u32 slot = ((struct live_group PL_MEM *)level)->slot;

		if (pl_bw_take_arm_period(&level->pool))
			start_period_timer(slot, level->pool.next_ns, now_ns);
		if (pl_bw_take_arm_slack(&level->pool))
			start_slack_timer(slot, PL_BW_SLACK_DELAY_NS);
	}
	return 0;
}

static __always_inline void after_policy(struct live_group PL_MEM *group, struct live_cpu PL_MEM *c,
					 u32 flags, u64 now_ns)
{
	if (flags & PL_BW_THROTTLED)
		c->scan = 1;
	if (flags & (PL_BW_ARM_PERIOD | PL_BW_ARM_SLACK))
		arm_levels((u64)group, now_ns);
}

/* Takes a task out of its group's queues where it was last. Its run time must have been charged. `sleeps`: see count_out. */
__noinline u32 account_out(u64 task_address, u64 now_ns, bool sleeps)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	u32 cpu = task->t.cpu;
	struct live_cpu PL_MEM *c = cpu_of(cpu);
	u32 flags = 0;

	cpu_lock(c);
	if (task->runnable) {
		count_out(task, c, cpu, sleeps);
		flags = pl_task_blocked(&task->t, now_ns, &c->touch, &S->config);
		task->runnable = 0;
	}
	cpu_unlock(c);
	after_policy(task->group, c, flags, now_ns);
	return 0;
}

/* See pl_task_moved. The lower CPU's lock comes first, as everywhere that takes two. */
__noinline int move_load(u64 task_address, u32 cpu, u64 now_ns)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	u32 from = task->t.cpu;
	struct live_cpu PL_MEM *low = cpu_of(pl_min(from, cpu));
	struct live_cpu PL_MEM *high = cpu_of(pl_max(from, cpu));

	cpu_lock(low);
	cpu_lock(high);
	pl_task_moved(&task->t, cpu, now_ns, &S->config);
	cpu_unlock(high);
	cpu_unlock(low);
	return 0;
}

/*
 * Puts a task into its group's queues on a CPU, unless it is there, and counts it there: one that was parked comes back without
 * having slept.
 */
__noinline u32 account_in(u64 task_address, u32 cpu, u64 now_ns)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	struct live_cpu PL_MEM *c = cpu_of(cpu);
	u32 flags = 0;

	if (!task->runnable && task->t.cpu != cpu)
		move_load(task_address, cpu, now_ns);
	cpu_lock(c);
	if (!task->runnable)
		flags = pl_task_runnable(&task->t, cpu, now_ns, &c->touch, &S->config);
	count_in(task, c, cpu, now_ns);
	task->runnable = 1;
	cpu_unlock(c);
	after_policy(task->group, c, flags, now_ns);
	return flags;
}

/*
 * Charges what the task has run since it was last charged, on its CPU, while it runs or as it stops. exec_ns: the
 * kernel's count of its run time, which leaves out interrupts and is what cpu.stat shows.
 */
__noinline u32 charge(u64 task_address, u64 exec_ns, u64 now_ns)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	struct live_group PL_MEM *group = task->group;
	u32 cpu = task->t.cpu;
	struct live_cpu PL_MEM *c = cpu_of(cpu);
	u64 delta_ns = exec_ns - task->charged_exec_ns;
	u32 flags;

	if ((s64)delta_ns <= 0)
		return 0;
	task->charged_at_ns = now_ns;
	task->charged_exec_ns = exec_ns;
	task->grant_ns -= pl_min(delta_ns, task->grant_ns);
	if (group->g.side)
		c->side_used_ns += delta_ns;
	flags = pl_task_charge(&task->t, delta_ns, now_ns, &c->touch, &S->config);
	turn_charge(task, delta_ns);
	after_policy(group, c, flags, now_ns);
	return flags;
}

/* The level that keeps the group from running on this CPU, as an address; 0: none does. */
__noinline u64 throttled_at(u64 group_address, u32 cpu)
{
	return (u64)pl_group_throttled((struct pl_group PL_MEM *)group_address, cpu);
}

static __always_inline bool is_limited(struct live_group PL_MEM *group)
{
	return group->g.charged || group->g.side;
}

static __always_inline bool must_stop(struct live_task PL_MEM *task, u32 cpu)
{
	return !task->grant_ns && is_limited(task->group) && throttled_at((u64)task->group, cpu);
}

/*
 * A CPU's timer: fires at at_ns or before, on that CPU where this is called on it. It may be called elsewhere: a task
 * that changes what a running one may do takes that off its CPU and puts it back. On a CPU that leaves none is started
 * (leaves_here): only the kernel's own threads still run there, and its tick.
 */
__noinline int start_cpu_timer(struct live_cpu PL_MEM *c PL_ARENA, u32 cpu, u64 at_ns, u64 now_ns)
{
	struct cpu_timer *timer;
	u64 delay_ns = at_ns > now_ns + TIMER_DELAY_MIN_NS ? at_ns - now_ns : TIMER_DELAY_MIN_NS;
	u64 flags = 0;

	timer = bpf_map_lookup_elem(&cpu_timers, &cpu);
	if (!timer || leaves_here())
		return 0;
	if (bpf_get_smp_processor_id() == cpu)
		flags = BPF_F_TIMER_CPU_PIN;
	c->timer_at_ns = now_ns + delay_ns;
	bpf_timer_start(&timer->timer, delay_ns, flags);
	return 0;
}

/* Likewise, unless it fires early enough already: its callback looks again. */
static __always_inline void arm_cpu_timer(struct live_cpu PL_MEM *c, u32 cpu, u64 at_ns, u64 now_ns)
{
	if (!c->timer_at_ns || c->timer_at_ns > at_ns || c->timer_at_ns + PL_MS <= now_ns)
		start_cpu_timer(c, cpu, at_ns, now_ns);
}

/* Tasks that wait here may have to wait for one that is not ours to stop: looked at soon. Only on the CPU itself. */
static __always_inline void check_soon(struct live_cpu PL_MEM *c, u32 cpu, u64 now_ns)
{
	if (c->check_at_ns)
		return;
	c->check_at_ns = now_ns + PL_PLACE_SYNC_WAIT_NS;
	arm_cpu_timer(c, cpu, c->check_at_ns, now_ns);
}

#define NO_STOP (~0ULL)

/* What is left of the turn of the task that runs. Above 0: a turn that is over ends at the next chance. */
static __always_inline u64 turn_left(struct live_cpu PL_MEM *c, u64 now_ns)
{
	return pl_max(c->turn_ends_ns, now_ns + 1) - now_ns;
}

/* A task begins to wait here: the running one, which may have had the CPU to itself, is stopped as its turn ends. */
static __always_inline void end_turn(struct live_cpu PL_MEM *c, u32 cpu, u64 now_ns)
{
	u64 known_ns = c->stop_at_ns ?: NO_STOP;
	u64 stop_at_ns = now_ns + pl_fair_turn(&c->fair, turn_left(c, now_ns), known_ns - now_ns);

	if (!c->running || stop_at_ns >= known_ns)
		return;
	c->stop_at_ns = stop_at_ns;
	arm_cpu_timer(c, cpu, stop_at_ns, now_ns);
}

/* See pl_group_budget. */
__noinline u64 budget_of(u64 group_address, u32 cpu, u64 max_ns)
{
	return pl_group_budget((struct pl_group PL_MEM *)group_address, cpu, max_ns);
}

#endif

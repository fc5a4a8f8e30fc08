/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * park.h - tasks of a throttled group wait aside, and come back when it gets run time
 *
 * Problem    A throttled task must not be picked, and must not be lost: released a moment before it parks, it
 *            would wait for ever.
 *
 * Mechanism  Each group has a parking queue. A task counts itself there (nr_parked) before it looks once more
 *            whether the group is still throttled. The CPU that releases the group looks at the count afterwards: if it
 *            is not zero the queue is gone through, and again a little later until no task is on the way.
 *            A task that has not run for PL_BW_TURN_NS at a stretch within PL_BW_STARVED_NS gets that run time,
 *            charged to its groups. A task in a system call or a page fault is not parked: it runs on, charged, until
 *            it is back in user space (border.h).
 *
 * Limits     Going through a queue takes time in proportion to the tasks parked in it. What the kernel does for
 *            a task on its way back from an interrupt (signals, deferred work) is not seen as the kernel's.
 */
#ifndef PLIMSOLL_PARK_H
#define PLIMSOLL_PARK_H

#define PARK_RETRY_NS (200 * PL_US)
#define PARK_REST_NS (10 * PL_MS)
#define PARK_WALK_MAX 4096 /* tasks per walk; the rest in the next one */

/*
 * The last task to be parked is the first to come back, as in the simulator: leaving lines is undone in the opposite order, and each
 * has the lag that it had. The other way round, of those that waited on a CPU the one that is owed most leaves first and comes back
 * first, to an empty line, where nobody is there to owe it anything.
 */
#define PARK_FIRST bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_HEAD)

#define ENTRY_BYTES                                                                                          \
	0x40 /* more than the page fault's entry, and less than up to where the next one is returned to */

/*
 * FRED: bits 32 to 39 of the saved stack segment are the event's vector, 48 to 51 its type, 3 for an exception. Without
 * FRED these are zero. Intel, Flexible Return and Event Delivery, 5.2.1.
 */
#define FRED_EVENT 0xf00ff00000000ULL
#define FRED_PAGE_FAULT 0x3000e00000000ULL

/*
 * Whether the task is in the kernel on its own account, where it may hold a lock: in a system call or a page fault, not
 * in an interrupt. Neither of the latter leaves the number of a call; whose entry it was, the return address right
 * below the user's registers tells, or with FRED, where all have one entry, what the CPU saved. What a task that slept
 * goes back to is nearly always one of the two.
 */
static __noinline bool in_kernel(struct task_struct *p)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	u64 entry = 0;

	if (!regs || (s64)regs->orig_ax >= 0)
		return regs;
	bpf_probe_read_kernel(&entry, sizeof(entry), (const u64 *)regs - 1);
	if (page_fault_entry && entry - page_fault_entry < ENTRY_BYTES)
		return true;
	if (!bpf_core_field_exists(((struct pt_regs___fred *)regs)->fred_ss))
		return false;
	bpf_core_read(&entry, sizeof(entry), &((struct pt_regs___fred *)regs)->fred_ss);
	return (entry & FRED_EVENT) == FRED_PAGE_FAULT;
}

/*
 * Exiting tasks must exit; one that is in the kernel or may not migrate may hold what others wait for. As in
 * the kernel's own class such a task is throttled when it is back in user space, at the next look at it, or at the
 * border of user space (border.h), where it holds nothing.
 */
__noinline bool may_park(struct task_struct *p __arg_trusted, u64 task_address)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	struct task_struct *current = bpf_get_current_task_btf();
	/* A BPF program itself raises the counts of the task that it interrupted by one. */
	s32 own = p == current;

	if ((p->flags & (PF_EXITING | PF_KTHREAD)) || task->grant_ns)
		return false;
	/* No grace period would end while a reader is parked. */
	if (bpf_core_field_exists(p->rcu_read_lock_nesting) && p->rcu_read_lock_nesting > own)
		return false;
	/* Stopped at the border, and where it was then: it has not run since, not as another class's task, either. */
	if (task->waits_exec_ns && task->waits_exec_ns == p->se.sum_exec_runtime)
		return true;
	return !in_kernel(p) && p->migration_disabled <= own;
}

/* The task is counted as parked in this slot, and no longer in another one: its cgroup may be changing meanwhile. */
static __always_inline void parked_in(struct live_task PL_MEM *task, u32 slot)
{
	u32 before = pl_xchg32(&task->parked, slot + 1);

	if (before)
		pl_add32(&S->groups[before - 1]->nr_parked, -1);
}

/* See pl_group_parked. Under the CPU's lock. */
__noinline int weigh_parked(u64 task_address, u64 level_address, u64 now_ns)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	u32 cpu = task->t.cpu;

	pl_group_parked(task->t.group, (struct pl_group PL_MEM *)level_address, cpu, now_ns,
			&cpu_of(cpu)->touch, &S->config);
	return 0;
}

/* Takes the task out of its CPU's count and into the group's. False: the group is no longer throttled. */
static __always_inline bool park_begin(struct live_task PL_MEM *task, struct live_group PL_MEM *group,
				       u32 cpu, u64 now_ns)
{
	struct live_cpu PL_MEM *c = cpu_of(cpu);

	pl_add32(&group->nr_parked, 1);
	if (!pl_read(&group->g.pool.balances[cpu].throttled)) {
		pl_add32(&group->nr_parked, -1);
		return false;
	}
	/* Before it can be released: count_released counts every task that is no longer parked. */
	parked_in(task, group->slot);
	cpu_lock(c);
	count_out(task, c, cpu, false);
	weigh_parked((u64)task, (u64)group, now_ns);
	cpu_unlock(c);
	c->nr_parks++;
	return true;
}

/* The task is no longer in a parking queue. */
static __always_inline void park_end(struct live_task PL_MEM *task)
{
	u32 slot = pl_read(&task->parked);

	if (slot && (slot = pl_xchg32(&task->parked, 0)))
		pl_add32(&S->groups[slot - 1]->nr_parked, -1);
}

/* Lets the CPU know that something was queued for it. */
static __always_inline void wake_cpu(u32 cpu, struct live_task PL_MEM *task)
{
	struct live_cpu PL_MEM *c = cpu_of(cpu);
	struct live_task PL_MEM *running = pl_read(&c->running);

	if (!running || !c->comes)
		scx_bpf_kick_cpu(cpu, running ? SCX_KICK_PREEMPT : SCX_KICK_IDLE);
}

/* A released task is counted where it waits now, unless it has been picked or left in between. */
static __always_inline void count_released(struct live_task PL_MEM *task, u32 cpu, u64 now_ns)
{
	struct live_cpu PL_MEM *c = cpu_of(cpu);
	unsigned long flags;

	bpf_local_irq_save(&flags);
	cpu_lock(c);
	if (task->runnable && task->t.cpu == cpu && !task->parked)
		count_in(task, c, cpu, now_ns);
	cpu_unlock(c);
	bpf_local_irq_restore(&flags);
}

/*
 * After a walk that saw `seen` of `before` parked tasks: a task that counts as parked was not there yet, or the walk was
 * cut short. One that moved no task would find the same tasks in front again at once.
 */
__noinline int walk_again(u64 group_address, u32 before, u32 seen)
{
	struct live_group PL_MEM *group = (struct live_group PL_MEM *)group_address;

	if (seen > PARK_WALK_MAX && pl_read(&group->nr_parked) >= before)
		start_slack_timer(group->slot, PARK_REST_NS);
	else if (seen > PARK_WALK_MAX || seen < before)
		start_slack_timer(group->slot, PARK_RETRY_NS);
	return 0;
}

/*
 * Goes through a group's parking queue and moves on the tasks that may run, or are held by another level. From timers,
 * without any run queue's lock.
 */
__noinline int unpark(u64 group_address, u64 now_ns)
{
	struct live_group PL_MEM *group = (struct live_group PL_MEM *)group_address;
	u32 before = pl_max(pl_read(&group->nr_parked), scx_bpf_dsq_nr_queued(PARK_DSQ(group->slot)));
	u32 seen = zero;
	struct task_struct *p;

	if (!before)
		return 0;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, PARK_DSQ(group->slot), 0)
	{
		struct live_task PL_MEM *task = task_of(p);
		struct live_group PL_MEM *level;
		u32 cpu;

		if (++seen > PARK_WALK_MAX)
			break;
		if (!task)
			continue;
		cpu = task->t.cpu;
		level = (struct live_group PL_MEM *)throttled_at((u64)task->group, cpu);
		if (task->starved_since_ns && now_ns > task->starved_since_ns + PL_BW_STARVED_NS) {
			task->grant_ns = PL_BW_TURN_NS;
			task->t.group->pool.balances[cpu].nr_grants++;
			level = NULL;
		}
		if (level == group)
			continue;
		park_end(task);
		if (level) {
			pl_add32(&level->nr_parked, 1);
			parked_in(task, level->slot);
			if (!scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, PARK_DSQ(level->slot), 0))
				park_end(task);
			else if (!pl_read(&level->g.pool.balances[cpu].throttled))
				start_slack_timer(level->slot, PARK_RETRY_NS);
			continue;
		}
		if (cpu_leaves(cpu)) {
			scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0);
			continue;
		}
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, queue_key(task));
		if (!scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, cpu, 0))
			continue;
		count_released(task, cpu, now_ns);
		wake_cpu(cpu, task);
	}
	bpf_rcu_read_unlock();
	walk_again(group_address, before, seen);
	return 0;
}

/*
 * Hands what waits in a queue for a CPU that goes away to that CPU's own queue: the kernel, which empties that,
 * finds each task a CPU that it may run on, and enqueues it there.
 */
__noinline int evacuate(u64 dsq, u32 cpu)
{
	struct task_struct *p;

	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, dsq, 0)
	{
		struct live_task PL_MEM *task = task_of(p);

		if (task && task->t.cpu == cpu)
			scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0);
	}
	bpf_rcu_read_unlock();
	return 0;
}

/*
 * Another CPU hands out, and may have looked for the last time already: the slack timer looks again. The next tick
 * starts it: started here, it would cost the verifier a third of what plimsoll_cgroup_init does.
 */
__noinline int hand_out_later(u64 group_address)
{
	struct live_group PL_MEM *group = (struct live_group PL_MEM *)group_address;

	pl_bw_owe(&group->g.pool);
	if (pl_bw_take_arm_slack(&group->g.pool)) {
		pl_write(&group->owes_timer[1], 1);
		pl_xchg32(&S->timers_owed, 1);
	}
	return 0;
}

/* Hands out what the pool has. */
__noinline int distribute(u64 group_address, u64 now_ns)
{
	struct pl_group PL_MEM *group = (struct pl_group PL_MEM *)group_address;
	struct pl_pool PL_MEM *pool = &group->pool;

	if (!pl_bw_distribute_begin(pool))
		return hand_out_later(group_address);
	while (pl_bw_distribute_next(pool, now_ns, pl_level_config(group, &S->config)) && can_loop)
		;
	pl_bw_distribute_end(pool);
	return 0;
}

/* Releases everything throttled, whatever the pool has. */
__noinline int release_all(u64 group_address, u64 now_ns)
{
	struct pl_pool PL_MEM *pool = &((struct live_group PL_MEM *)group_address)->g.pool;

	if (!pl_bw_distribute_begin(pool))
		return hand_out_later(group_address);
	while (pl_bw_release_next(pool, now_ns) && can_loop)
		;
	pl_bw_distribute_end(pool);
	return 0;
}

/* See pl_bw_period. A function of its own, so that the verifier follows it once. */
__noinline int period_once(u64 group_address, u64 now_ns, u32 nth)
{
	struct live_group PL_MEM *group = (struct live_group PL_MEM *)group_address;

	return pl_bw_period(&group->g.pool, now_ns, nth, pl_level_config(&group->g, &S->config));
}

__noinline int slack_once(u64 group_address, u64 now_ns)
{
	struct live_group PL_MEM *group = (struct live_group PL_MEM *)group_address;

	return pl_bw_slack(&group->g.pool, now_ns, pl_level_config(&group->g, &S->config));
}

#define PERIODS_PER_CALLBACK_MAX 6

static int period_fired(void *map, u32 *key, struct group_timer *timer)
{
	struct live_group PL_MEM *group = (struct live_group PL_MEM *)timer->group;
	u64 now_ns = scx_bpf_now();
	int again = 1;
	u32 nth;

	if (is_gone(group))
		return 0;
	for (nth = 1; nth <= PERIODS_PER_CALLBACK_MAX && can_loop; nth++) {
		again = period_once((u64)group, now_ns, nth);
		now_ns = scx_bpf_now();
		if (!again || now_ns < group->g.pool.next_ns)
			break;
	}
	distribute((u64)group, now_ns);
	if (again)
		start_period_timer(group->slot, group->g.pool.next_ns, now_ns);
	unpark((u64)group, now_ns);
	return 0;
}

static int slack_fired(void *map, u32 *key, struct group_timer *timer)
{
	struct pl_pool PL_MEM *pool = &((struct live_group PL_MEM *)timer->group)->g.pool;
	u64 now_ns = scx_bpf_now();

	if (is_gone((struct live_group PL_MEM *)timer->group))
		return 0;
	if (slack_once(timer->group, now_ns))
		distribute(timer->group, now_ns);
	/* A limit that was taken away has no period that would release those still in the ring. */
	if (!pl_bw_limited(pool) && pl_bw_any_throttled(pool)) {
		release_all(timer->group, now_ns);
		if (pl_bw_any_throttled(pool))
			bpf_timer_start(&timer->timer, PARK_RETRY_NS, 0);
	}
	unpark(timer->group, now_ns);
	return 0;
}

/*
 * Waits for the callbacks of a group that is gone. One that was held up, as a virtual CPU may be for long, would go on
 * in a pool that has become another group's: a ring whose head it moves releases no CPU any more. Sleepable contexts
 * only, without a lock that a callback takes.
 */
__noinline int stop_timers(u32 slot)
{
	struct group_timer *timer;
	u32 key = PERIOD_TIMER(slot);

	timer = bpf_map_lookup_elem(&group_timers, &key);
	if (timer)
		bpf_timer_cancel(&timer->timer);
	key = SLACK_TIMER(slot);
	timer = bpf_map_lookup_elem(&group_timers, &key);
	if (timer)
		bpf_timer_cancel(&timer->timer);
	return 0;
}

/* Groups become throttled while tasks of theirs are queued: those are taken out before one is picked. */
__noinline int scan(u32 cpu)
{
	struct live_cpu PL_MEM *c = cpu_of(cpu);
	u64 now_ns = scx_bpf_now();
	struct task_struct *p;
	u32 seen = zero;

	c->scan = 0;
	bpf_for_each(scx_dsq, p, cpu, 0)
	{
		struct live_task PL_MEM *task = task_of(p);
		struct live_group PL_MEM *level;

		if (++seen > PARK_WALK_MAX) {
			c->scan = 1;
			break;
		}
		if (!task || task->t.cpu != cpu || !is_limited(task->group) || !may_park(p, (u64)task))
			continue;
		level = (struct live_group PL_MEM *)throttled_at((u64)task->group, cpu);
		if (level && park_begin(task, level, cpu, now_ns) &&
		    !scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, PARK_DSQ(level->slot), PARK_FIRST))
			park_end(task);
	}
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * enqueue.h - a task that wakes up is given a CPU, and waits there or preempts
 *
 * Mechanism  What policy/place.h says. An idle CPU is looked for by the kernel's own search.
 *
 *            A task that preempts goes to the front of the CPU's local queue. So does one that waits for its waker only, which
 *            is expected to sleep: it runs next without a pass through dispatch.
 *
 *            No task is put into the local queue of a CPU that a real-time or deadline task has: no CPU could take it
 *            from there. The task that is there when it comes is queued anew.
 *
 * Trade-offs A waker that said it would sleep and does not makes its task wait. After PL_PLACE_SYNC_WAIT_NS one of the two
 *            is offered to an idle CPU.
 */
#ifndef PLIMSOLL_ENQUEUE_H
#define PLIMSOLL_ENQUEUE_H

/* Most often none is where much is going on, and the search would go through every domain to find that out. */
static __always_inline bool any_idle(void)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	bool any = !bpf_cpumask_empty(idle);

	scx_bpf_put_idle_cpumask(idle);
	return any;
}

/* The running task of a CPU is idle work, or not. */
static __always_inline void set_gives_way(struct live_cpu PL_MEM *c, u32 gives_way)
{
	if (c->gives_way != gives_way && pl_xchg32(&c->gives_way, gives_way) != gives_way)
		pl_add32(&S->nr_give_way, gives_way ? 1 : -1);
}

/* Where no CPU is idle; -1: none. A task that goes to idle work's CPU claims it: the next one to wake up looks elsewhere. */
__noinline s32 select_idle_work(struct task_struct *p __arg_trusted, u32 prev_cpu)
{
	struct live_task PL_MEM *task = task_of(p);
	u32 llc = cpu_llc[CPU_INDEX(prev_cpu)];
	u32 elements = llc_elements[CPU_INDEX(llc)];
	u32 first = cpu_element[CPU_INDEX(prev_cpu)];
	u32 i;

	if (!task || !pl_read(&S->nr_give_way))
		return -1;
	for (i = zero; i < elements && can_loop; i++) {
		/* Not carried from turn to turn, all of which the verifier would follow. */
		u32 element = first + i < elements ? first + i : first + i - elements;
		u32 cpu = cpu_in_llc(llc, element);
		struct live_cpu PL_MEM *c = cpu_of(cpu);
		struct live_task PL_MEM *running = c->running;

		if (c->gives_way && running && pl_task_yields_cpu(&running->t, &task->t) &&
		    bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
			set_gives_way(c, 0);
			return cpu;
		}
	}
	return -1;
}

/* Where a new task waits if no CPU is idle: pl_place_lighter. */
__noinline u32 select_lightest(struct task_struct *p __arg_trusted, u32 prev_cpu)
{
	u32 llc = cpu_llc[CPU_INDEX(prev_cpu)];
	u32 best = prev_cpu;
	u32 i;

	for (i = zero; i < llc_elements[CPU_INDEX(llc)] && can_loop; i++) {
		u32 cpu = cpu_in_llc(llc, i);
		struct live_cpu PL_MEM *c = cpu_of(cpu);

		if (c->online && !other_class_runs(c) && pl_place_lighter(&c->fair, &cpu_of(best)->fair) &&
		    bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			best = cpu;
	}
	return best;
}

s32 BPF_OPS(plimsoll_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	USE_ARENA;
	u32 here = bpf_get_smp_processor_id();
	struct live_cpu PL_MEM *c = cpu_of(here);
	u32 place = PL_PLACE_BEHIND;
	bool idle = false;
	s32 cpu = prev_cpu;

	if (p->nr_cpus_allowed == 1 || p->migration_disabled)
		return prev_cpu;
	if (wake_flags & SCX_WAKE_SYNC) {
		struct task_struct *waker = bpf_get_current_task_btf();
		struct live_task PL_MEM *running = c->running;

		c->passes_to = p->pid;
		if (pl_place_passes_on(&c->fair, true) && running && running->pid == waker->pid &&
		    !(waker->flags & PF_EXITING) && bpf_cpumask_test_cpu(here, p->cpus_ptr)) {
			place = PL_PLACE_WAKER;
			cpu = here;
			goto out;
		}
	}
	if (any_idle())
		cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags & ~SCX_WAKE_SYNC, &idle);
	if (idle) {
		place = pl_place_idle(prev_cpu, cpu, cpu_llc[CPU_INDEX(cpu)] == cpu_llc[CPU_INDEX(prev_cpu)]);
	} else {
		cpu = select_idle_work(p, prev_cpu);
		if (cpu >= 0)
			place = PL_PLACE_IDLE_WORK;
		else
			cpu = wake_flags & SCX_WAKE_FORK ? select_lightest(p, prev_cpu) : prev_cpu;
	}
out:
	if (!(p->flags & PF_KTHREAD))
		c->placed[place]++;
	return cpu;
}

/* The number of the domain of a set of CPUs to which a task is bound. */
__noinline u32 domain_of_set(struct task_struct *p __arg_trusted)
{
	u32 number = pl_domain_of_set(bpf_cpumask_first(p->cpus_ptr));

	/* Of two CPUs that do this at once one may be lost, until its task comes again. */
	if (pl_read(&S->gather.nr_domains) <= number)
		pl_write(&S->gather.nr_domains, number + 1);
	return number;
}

/* What the task weighs, and where it may run, is read when it enters the queues: neither changes while it is in them. */
static __always_inline void refresh_weight(struct task_struct *p, struct live_task PL_MEM *task)
{
	u32 allowed = p->nr_cpus_allowed;

	pl_task_class(&task->t, p->static_prio - NICE_0_PRIO, p->policy == SCHED_IDLE);
	task->turn.pinned = allowed == 1;
	task->turn.bound = allowed > 1 && allowed < S->nr_online ? domain_of_set(p) : PL_DOMAIN_REST;
}

/* Offers what waits here to an idle CPU, if there is one that shares the cache. */
__noinline int offer_to_idle(u32 cpu)
{
	const struct cpumask *idle;
	u32 llc = cpu_llc[CPU_INDEX(cpu)];
	u32 i;

	idle = scx_bpf_get_idle_cpumask();
	for (i = zero; i < llc_elements[CPU_INDEX(llc)] && can_loop; i++) {
		u32 other = cpu_in_llc(llc, i);

		if (other != cpu && bpf_cpumask_test_cpu(other, idle)) {
			scx_bpf_kick_cpu(other, SCX_KICK_IDLE);
			break;
		}
	}
	scx_bpf_put_idle_cpumask(idle);
	return 0;
}

void BPF_OPS(plimsoll_enqueue, struct task_struct *p, u64 enq_flags)
{
	USE_ARENA;
	struct live_task PL_MEM *task = task_of(p);
	u32 cpu = scx_bpf_task_cpu(p);
	u64 now_ns = scx_bpf_now();
	u64 slice_ns = settings.config.fair.slice_ns;
	struct live_group PL_MEM *level;
	struct live_cpu PL_MEM *c;
	bool woken;
	u32 others;

	if (!task) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_ns, enq_flags);
		return;
	}
	c = cpu_of(cpu);
	if (c->interrupted == task)
		c->interrupted = NULL;
	/* A parked task whose affinity was changed comes here without having slept. */
	park_end(task);
	woken = !task->runnable;
	if (woken) {
		refresh_weight(p, task);
		c->nr_wakeups++;
	} else if (task->t.cpu != cpu) {
		account_out((u64)task, now_ns, false);
	} else {
		turn_settle((u64)task);
	}
	if (!task->runnable || !task->t.counted)
		account_in((u64)task, cpu, now_ns);
	if (!task->waiting_since_ns)
		task->waiting_since_ns = now_ns;
	if (!task->starved_since_ns)
		task->starved_since_ns = now_ns;

	if (is_at_border(task, now_ns))
		pl_write(&task->waits_exec_ns, p->se.sum_exec_runtime);
	if (is_limited(task->group) && may_park(p, (u64)task)) {
		level = (struct live_group PL_MEM *)throttled_at((u64)task->group, cpu);
		if (level && park_begin(task, level, cpu, now_ns)) {
			scx_bpf_dsq_insert(p, PARK_DSQ(level->slot), slice_ns, enq_flags | PARK_FIRST);
			return;
		}
	}

	/*
	 * The CPU is about to go idle with this task in one of its queues: it is out of run time, or was to be parked, but
	 * is in a system call or about to exit. Nothing else would make the CPU look again.
	 */
	if (enq_flags & SCX_ENQ_LAST)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	/* Before 6.19 a task that another class preempts waits for it. */
	if (woken && other_class_runs(c) && !c->other_class)
		set_other_class(cpu, 1);
	others = nr_running(c) - 1 + c->took;
	/* The kernel's own work for this CPU comes first. */
	if ((p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	if (!others) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags);
		if (woken)
			return;
		if (cpu != bpf_get_smp_processor_id())
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		else if (!c->running)
			/* No task of ours takes the CPU from it as its slice ends: another class does. */
			check_soon(c, cpu, now_ns);
		return;
	}
	if (woken) {
		struct live_task PL_MEM *running = c->running;
		u64 comes = c->comes;

		if (!running)
			goto queue;
		if (!comes) {
			c->nr_preempts++;
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags | SCX_ENQ_PREEMPT);
			return;
		}
		if (comes < turn_left(c, now_ns))
			c->turn_ends_ns = now_ns + comes;
		if (cpu == bpf_get_smp_processor_id() && others == 1 &&
		    (c->passes_to == p->pid || p->nr_cpus_allowed == 1)) {
			check_soon(c, cpu, now_ns);
			/* Unless the waker is due much more. */
			if (comes != PL_TURN_LATER) {
				end_turn(c, cpu, now_ns);
				scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags);
				return;
			}
		}
	}
queue:
	scx_bpf_dsq_insert_vtime(p, cpu, slice_ns, queue_key(task), enq_flags);
	end_turn(c, cpu, now_ns);
	if (c->offer || c->other_class) {
		c->offer = 0;
		offer_to_idle(cpu);
	}
}

#define WATCH_NS (100 * PL_MS)

/* While tasks wait on a CPU, it is looked at whether it is about to leave. Only on the CPU itself. */
static __always_inline void watch(struct live_cpu PL_MEM *c, u32 cpu, u64 now_ns)
{
	if (c->fair.nr_queued < 2 || c->watch_at_ns)
		return;
	c->watch_at_ns = now_ns + WATCH_NS;
	arm_cpu_timer(c, cpu, c->watch_at_ns, now_ns);
}

/* This CPU's timer: the running task is out of run time, or a task still waits for its waker. */
static int cpu_timer_fired(void *map, u32 *key, struct cpu_timer *timer)
{
	u32 cpu = *key;
	struct live_cpu PL_MEM *c = cpu_of(cpu);
	u64 now_ns = scx_bpf_now();
	u64 stop_at_ns = c->stop_at_ns;
	u64 next_ns = 0;
	unsigned long flags;

	c->timer_at_ns = 0;
	if (c->watch_at_ns && now_ns >= c->watch_at_ns) {
		c->watch_at_ns = scx_bpf_dsq_nr_queued(cpu) ? now_ns + WATCH_NS : 0;
		if (c->watch_at_ns && cpu_leaves(cpu))
			evacuate(cpu, cpu);
		/* The task that had the CPU may have become a real-time one. */
		else if (c->watch_at_ns && other_class_runs(c))
			c->check_at_ns = now_ns;
	}
	if (c->check_at_ns) {
		if (now_ns >= c->check_at_ns) {
			c->check_at_ns = 0;
			/* A task of another class has the CPU: the local queue's tasks are queued anew. */
			if (other_class_runs(c)) {
				if (!c->other_class) {
					bpf_local_irq_save(&flags);
					set_other_class(cpu, 1);
					bpf_local_irq_restore(&flags);
				}
				if (cpu == bpf_get_smp_processor_id() &&
				    bpf_ksym_exists(scx_bpf_reenqueue_local___v2___compat))
					scx_bpf_reenqueue_local___v2___compat();
			}
			if (scx_bpf_dsq_nr_queued(cpu)) {
				offer_to_idle(cpu);
			} else if (scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) && any_idle()) {
				/* What waits is in the local queue, but the task that it waits for can go elsewhere. */
				c->offer = 1;
				scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
			}
		} else {
			next_ns = c->check_at_ns;
		}
	}
	if (stop_at_ns) {
		if (now_ns >= stop_at_ns) {
			/* The next tick looks again: while the kernel hands over the CPUs none is kicked. */
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		} else if (!next_ns || stop_at_ns < next_ns) {
			next_ns = stop_at_ns;
		}
	}
	if (c->watch_at_ns && (!next_ns || c->watch_at_ns < next_ns))
		next_ns = c->watch_at_ns;
	if (next_ns)
		arm_cpu_timer(c, cpu, next_ns, now_ns);
	return 0;
}

#endif

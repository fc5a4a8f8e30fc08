/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * turns.h - calls policy/steps.h: whose turn it is on a CPU, and what a task ran is told
 *
 * Problem    A dispatch queue has one order. Which of a tree of groups is due the CPU is no order of their tasks.
 *
 * Mechanism  Tasks wait in their CPU's dispatch queue in order of u (policy/domain.h), from where other CPUs take them. A task
 *            that counts on a CPU (pl_task_count) stands in its group's line there, too. The CPU picks by its lines, and
 *            moves that task out of its queue. Where it is not there, because it is on its way elsewhere, the head of the
 *            queue is taken. What a task has run its lines are told at the next step that has the lock, and before another one
 *            joins them.
 *
 * Trade-offs Each function here is __noinline, so that the verifier walks it once, by itself: in one piece loading took
 *            1.4 times as long.
 *
 * Concurrency  Lines are the CPU's: under its lock. The domains' means are gathered from all CPUs without one.
 */
#ifndef PLIMSOLL_TURNS_H
#define PLIMSOLL_TURNS_H

/* The first cgroup that the kernel shows is the root: slot 0 is headroom's side. */
#define ROOT_SLOT 1

static __always_inline void turn_init(struct live_cpu PL_MEM *c)
{
	c->part.domain = &S->domains[PL_DOMAIN_REST];
}

/* The order that a task has in its CPU's dispatch queue. */
static __always_inline u64 queue_key(const struct live_task PL_MEM *task)
{
	return task->turn.u;
}

/* It has run, and its lines are to be told: by turn_ran, or as it leaves. */
static __always_inline void turn_charge(struct live_task PL_MEM *task, u64 delta_ns)
{
	pl_add(&task->ran_ns, delta_ns);
}

/* Another CPU was to take it over (turn_pulled), and could not. */
static __always_inline void turn_stays(struct live_task PL_MEM *task)
{
	task->turn.behind = 0;
}

/* Its u, with what it has run that its lines, or u, were not told of. */
static __always_inline u64 turn_u_by_now(const struct live_task PL_MEM *task)
{
	return pl_fair_by_now(pl_turn_u(&task->turn, &cpu_of(task->t.cpu)->part),
			      task->turn.told_ns + (u64)pl_smax(task->ran_ns, 0), task->t.effective);
}

/* What a task has run that its lines have not been told of: counts as told. `since_ns`: it has run on since it was charged. */
static __always_inline u64 untold(struct live_task PL_MEM *task, u64 since_ns)
{
	s64 ran_ns = pl_read(&task->ran_ns) + (s64)since_ns;

	if (ran_ns <= 0)
		return 0;
	pl_add(&task->ran_ns, -ran_ns);
	return (u64)ran_ns;
}

/* Tells the lines of a task what it has run. With the lock. */
__noinline int turn_ran(u64 task_address)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	u64 ran_ns = untold(task, 0);

	if (task->turn.entity.on && (ran_ns || task->turn.told_ns))
		pl_steps_ran(&cpu_of(task->t.cpu)->part, &task->t, &task->turn, ran_ns, task->charged_at_ns,
			     &S->config.fair);
	return 0;
}

/* Likewise, without the lock. */
__noinline int turn_settle(u64 task_address)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	struct live_cpu PL_MEM *c = cpu_of(task->t.cpu);

	cpu_lock(c);
	turn_ran(task_address);
	cpu_unlock(c);
	return 0;
}

/* Into its lines. With the lock. */
__noinline int turn_joins(u64 task_address, u64 now_ns)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;

	pl_steps_enter(&cpu_of(task->t.cpu)->part, &task->t, &task->turn, task->pid, now_ns, &S->config.fair);
	return 0;
}

/*
 * A task that is counted on its CPU comes into its lines there. With the lock. c->comes: what pl_steps_comes says of it
 * and the task that runs; PL_TURN_LATER where none runs, or one that is in no line of the CPU.
 */
__noinline int turn_enters(u64 task_address, u64 now_ns)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	struct live_cpu PL_MEM *c = cpu_of(task->t.cpu);
	struct live_task PL_MEM *running = pl_read(&c->running);
	bool beside = running && running != task && running->turn.entity.on && running->t.cpu == task->t.cpu;

	/* The running task's lines are told up to now, before it joins them: else what that one ran alone is owed to it. */
	if (beside)
		pl_steps_tell(&running->t, &running->turn,
			      untold(running, now_ns - pl_min(pl_read(&running->charged_at_ns), now_ns)),
			      task->t.group, &S->config.fair);
	turn_joins(task_address, now_ns);
	c->comes = PL_TURN_LATER;
	if (beside)
		c->comes =
		    pl_steps_comes(&task->t, &task->turn, &running->t, &running->turn, &S->config.fair);
	return 0;
}

/* Out of its lines. With the lock. `sleeps`: else it moves or is parked. */
__noinline int turn_leaves(u64 task_address, bool sleeps)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	struct live_cpu PL_MEM *c = cpu_of(task->t.cpu);

	u64 ran_ns = untold(task, 0);

	pl_steps_leave(&c->part, &task->t, &task->turn, ran_ns, sleeps, false);
	return 0;
}

/* The means of all domains, by one at a time. */
__noinline int gather_domains(void)
{
	u32 n = S->gather.nr_domains;
	u32 cpu;

	if (pl_xchg32(&S->gather.busy, 1))
		return 0;
	pl_domains_begin(S->domains, n);
	for (cpu = zero; cpu < nr_cpus && can_loop; cpu++)
		pl_domains_gather(&cpu_of(cpu)->part);
	pl_domains_end(S->domains, n, &S->gather.all, &S->config.fair);
	pl_xchg32(&S->gather.busy, 0);
	return 0;
}

/* Weighs it and its groups anew. With the lock. */
__noinline int turn_weighs(u64 task_address, u64 now_ns)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	struct live_cpu PL_MEM *c = cpu_of(task->t.cpu);

	pl_task_reweigh(&task->t, &c->fair, now_ns, &c->touch, &S->config);
	return 0;
}

/* The task's turn begins. Run time until it may be another's. */
__noinline u64 turn_begins(u64 task_address, u64 now_ns)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	struct live_cpu PL_MEM *c = cpu_of(task->t.cpu);
	u64 slice_ns = settings.config.fair.slice_ns;
	u64 gathered_ns = pl_read(&S->gather.at_ns);

	if ((s64)(now_ns - gathered_ns) > (s64)pl_domain_gather_ns(nr_cpus) &&
	    pl_cas((s64 PL_MEM *)&S->gather.at_ns, (s64)gathered_ns, (s64)now_ns))
		gather_domains();
	cpu_lock(c);
	pl_part_follows(&c->part, S->domains, task->turn.bound, now_ns);
	if (task->t.group->parent && pl_refresh_due(&task->t.group->queues[task->t.cpu], now_ns, &S->config))
		turn_weighs(task_address, now_ns);
	if (task->turn.entity.on)
		slice_ns = pl_steps_picked(&task->t, &task->turn, now_ns, &S->config.fair);
	cpu_unlock(c);
	return slice_ns;
}

/* Where it has yielded (plimsoll_yield) it gives its request away. With the lock. */
__noinline int turn_yields(u64 task_address)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;

	if (task->yielded && task->turn.entity.on)
		pl_steps_yield(&task->t, &task->turn);
	return 0;
}

/* Its pid; 0: nobody's turn. With the lock. */
__noinline s32 turn_pick(u32 cpu, u64 now_ns)
{
	struct pl_group PL_MEM *root = &S->groups[ROOT_SLOT]->g;

	if (!pl_node_of(root, cpu)->line.n)
		return 0;
	return (s32)pl_steps_pick(root, cpu, now_ns, &S->config.fair);
}

/* Whose turn it is on a CPU; 0: nobody's. running_address: the task that has it until now; 0: it sleeps. */
__noinline s32 whose_turn(u32 cpu, u64 running_address, u64 now_ns)
{
	struct live_cpu PL_MEM *c = cpu_of(cpu);
	s32 pid;

	cpu_lock(c);
	if (running_address) {
		turn_ran(running_address);
		turn_yields(running_address);
	}
	pid = turn_pick(cpu, now_ns);
	cpu_unlock(c);
	return pid;
}

/* Whether CPU `to` takes over a task that waits on another one: pl_steps_pulls. */
__noinline bool turn_pulled(u64 task_address, u32 to)
{
	struct live_task PL_MEM *task = (struct live_task PL_MEM *)task_address;
	struct live_cpu PL_MEM *c = cpu_of(to);

	struct pl_pull pull = {
	    .from_part = &cpu_of(task->t.cpu)->part,
	    .to_part = &c->part,
	    .from = &cpu_of(task->t.cpu)->fair,
	    .to = &c->fair,
	};

	return pl_steps_pulls(pull, &task->t, &task->turn, c->has_own, c->own_u, &S->config.fair);
}

/*
 * Takes a task that its number does not find out of this CPU's queue, to run next: a thread that exits, or a process that
 * its parent does not wait for, has none from release_task() on, and may be preempted before it stops. Each pick was lost
 * until it was the head of the queue.
 */
__noinline bool take_dying(u32 cpu, s32 pid)
{
	struct task_struct *p;
	bool taken = false;

	bpf_for_each(scx_dsq, p, cpu, 0)
	{
		if (p->pid != pid)
			continue;
		taken = scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0);
		break;
	}
	return taken;
}

/* Takes a task that waits in this CPU's queue out of it, to run next. */
__noinline bool take_turn(u32 cpu, s32 pid)
{
	struct task_struct *p = bpf_task_from_pid(pid);
	struct bpf_iter_scx_dsq it;
	bool taken = false;

	if (!p)
		return take_dying(cpu, pid);
	/* A move needs an iterator, and not that it has come to the task. */
	if (!bpf_iter_scx_dsq_new(&it, cpu, 0))
		taken = scx_bpf_dsq_move(&it, p, SCX_DSQ_LOCAL, 0);
	bpf_iter_scx_dsq_destroy(&it);
	bpf_task_release(p);
	return taken;
}

#endif

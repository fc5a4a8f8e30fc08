/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * take.h - tasks that wait for other CPUs are taken over: stealing and pulling
 *
 * Problem    A CPU idles while the next one has a queue, or runs tasks that have had their share while others
 *            wait elsewhere for theirs.
 *
 * Mechanism  Steal: a CPU without work asks its LLC's sparse mask of overloaded CPUs, its siblings first, and
 *            takes the first task that may run here (policy/steal.h). Pull: at the end of a slice, and where
 *            stealing found nothing, it looks at the head of one other CPU's queue, the next in turn, and takes
 *            it over if that is further behind (pl_steps_pulls), so that shares converge between LLCs, too.
 *
 * Trade-offs One queue a look: a task that is further behind waits for as many looks as there are CPUs on line.
 *
 * Limits     Only STEAL_WALK_MAX tasks of a queue are looked at: behind so many that may not run here none is found.
 */
#ifndef PLIMSOLL_TAKE_H
#define PLIMSOLL_TAKE_H

#define STEAL_WALK_MAX 32 /* candidates looked at in one CPU's queue */

static __always_inline bool may_run_here(struct task_struct *p, struct live_task PL_MEM *task, u32 cpu)
{
	bool allowed = bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && !p->migration_disabled;
	bool throttled = allowed && is_limited(task->group) && throttled_at((u64)task->group, cpu);

	return pl_steal_may_take(false, allowed, throttled);
}

/* Takes the first task that may run here out of another CPU's queue, to run it next. */
__noinline bool take_from(u32 victim, u32 cpu)
{
	struct task_struct *p;
	bool taken = false;
	u32 seen = zero;

	bpf_for_each(scx_dsq, p, victim, 0)
	{
		struct live_task PL_MEM *task = task_of(p);

		if (++seen > STEAL_WALK_MAX)
			break;
		if (!task || !may_run_here(p, task, cpu))
			continue;
		if (!turn_pulled((u64)task, cpu))
			break;
		taken = scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0);
		if (taken) {
			cpu_of(cpu)->took = 1;
			task->t.group->pool.balances[cpu].nr_steals++;
			break;
		}
		turn_stays(task);
	}
	return taken;
}

__noinline u32 next_overloaded(u32 llc, u32 from, u32 *left)
{
	return left ? pl_sparsemask_next(&S->overloaded[llc], from, left) : PL_SPARSEMASK_NONE;
}

/* This CPU has nothing to run: a task of an overloaded CPU of its LLC, siblings first. */
__noinline bool steal(u32 cpu)
{
	struct live_cpu PL_MEM *c = cpu_of(cpu);
	u32 llc = cpu_llc[CPU_INDEX(cpu)];
	struct pl_sparsemask PL_MEM *mask = &S->overloaded[llc];
	u64 start_ns = bpf_ktime_get_ns();
	bool taken = false;
	u32 sibling, element, left, victim, turns = zero;

	if (!pl_steal_worthwhile(&c->steal, nr_nodes, &S->steal))
		return false;
	c->steal.nr_searches++;
	c->has_own = 0;
	/* The ring need not lead back here: siblings were read while a CPU went off. */
	for (sibling = cpu_sibling[CPU_INDEX(cpu)]; sibling != cpu && !taken && turns++ < nr_cpus && can_loop;
	     sibling = cpu_sibling[CPU_INDEX(sibling)])
		if (pl_sparsemask_test(mask, cpu_element[CPU_INDEX(sibling)]))
			taken = take_from(sibling, cpu);
	left = mask->elements;
	element = cpu_element[CPU_INDEX(cpu)] + 1;
	while (!taken && can_loop) {
		element = next_overloaded(llc, element, &left);
		if (element == PL_SPARSEMASK_NONE)
			break;
		victim = cpu_in_llc(llc, element);
		if (victim != cpu)
			taken = take_from(victim, cpu);
		element++;
	}
	if (taken)
		c->steal.nr_steals++;
	c->steal.find_ns += bpf_ktime_get_ns() - start_ns;
	return taken;
}

/* Before 7.1 no function shows the head of a queue safely: an iterator's first step does. See look_at_head. */
__noinline bool walk_to_head(u32 queue, u32 looker)
{
	struct task_struct *p;
	bool found = false;

	bpf_for_each(scx_dsq, p, queue, 0)
	{
		cpu_of(looker)->head_u = p->scx.dsq_vtime;
		found = true;
		break;
	}
	return found;
}

/* Whether anything waits in a CPU's queue; if so, u of its head is in head_u of the CPU that looks. */
static __always_inline bool look_at_head(u32 queue, u32 looker)
{
	struct task_struct *head;

	/* From 6.19 to 7.0 it may return a task that has left the queue and is freed. */
	if (!may_peek || !bpf_ksym_exists(scx_bpf_dsq_peek))
		return walk_to_head(queue, looker);
	head = scx_bpf_dsq_peek(queue);
	if (head)
		cpu_of(looker)->head_u = head->scx.dsq_vtime;
	return head;
}

/* Ending a slice, looks at one other CPU's queue, and takes its head over if that is further behind. */
__noinline bool pull(u32 cpu, bool has_own, u64 own_u)
{
	struct live_cpu PL_MEM *c = cpu_of(cpu);
	u32 other = cpu_of(c->pull_from)->next_online;

	if (other == cpu)
		other = c->next_online;
	c->pull_from = other;
	c->has_own = has_own;
	c->own_u = own_u;
	/* A lone task there is about to run there. */
	if (other == cpu || nr_running(cpu_of(other)) < PL_STEAL_OVERLOADED || !scx_bpf_dsq_nr_queued(other))
		return false;
	if (!look_at_head(other, cpu) ||
	    (has_own &&
	     !pl_fair_before(pl_domain_translate(c->head_u, cpu_of(other)->part.domain, c->part.domain),
			     own_u)))
		return false;
	if (!take_from(other, cpu))
		return false;
	c->nr_pulls++;
	return true;
}

#endif

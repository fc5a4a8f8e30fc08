/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * dump.h - what the scheduler knows, for a user who asks the kernel (SysRq-D) and for the report when it was ejected
 *
 * Limits     The kernel cuts a report at exit_dump_len. Of the groups only those with a limit or parked tasks are
 *            shown, the first DUMP_GROUPS_MAX. Others write meanwhile: each number was there, no two at one time.
 */
#ifndef PLIMSOLL_DUMP_H
#define PLIMSOLL_DUMP_H

#define DUMP_GROUPS_MAX 200

void BPF_OPS(plimsoll_dump, struct scx_dump_ctx *dump)
{
	USE_ARENA;
	u32 slot, shown = zero;

	scx_dump("plimsoll: %u groups, %u slots, deepest %u, side budget %llu ns", S->nr_groups, S->nr_slots,
		 S->max_depth, S->headroom.budget_ns);
	scx_dump("  timers: %u not started at first, %u overdue", S->timers_refused, S->timers_overdue);
	for (slot = zero; slot < S->nr_slots && shown < DUMP_GROUPS_MAX && can_loop; slot++) {
		struct live_group PL_MEM *group = S->groups[slot];
		u32 waiting;

		if (!group || (slot && !group->alive) ||
		    (!pl_bw_limited(&group->g.pool) && !group->nr_parked))
			continue;
		shown++;
		waiting = group->g.pool.tail - group->g.pool.head;
		scx_dump("group %llu: quota %llu ns, period %llu ns, pool %lld ns", group->g.id,
			 group->g.pool.quota_ns, group->g.pool.period_ns, group->g.pool.runtime_ns);
		scx_dump("  throttled CPUs %u, parked tasks %u, timer %u, next %llu ns", waiting,
			 group->nr_parked, group->g.pool.timer_active, group->g.pool.next_ns);
	}
}

void BPF_OPS(plimsoll_dump_cpu, struct scx_dump_ctx *dump, s32 cpu, bool idle)
{
	USE_ARENA;
	struct live_cpu PL_MEM *c = cpu_of(cpu);

	if (idle && !c->fair.nr_queued)
		return;
	scx_dump("plimsoll: %u queued, weight %llu, served %llu of %llu", c->fair.nr_queued,
		 c->fair.weight_sum, pl_sum_mean(&c->part.sum), c->part.domain->mean);
	scx_dump("  stop at %llu ns, timer at %llu ns, idle since %llu ns, now %llu ns", c->stop_at_ns,
		 c->timer_at_ns, c->idle_since_ns, scx_bpf_now());
}

void BPF_OPS(plimsoll_dump_task, struct scx_dump_ctx *dump, struct task_struct *p)
{
	USE_ARENA;
	struct live_task PL_MEM *task = task_of(p);
	struct live_group PL_MEM *level;

	if (!task)
		return;
	scx_dump("plimsoll: group %llu, CPU %u, served %llu, effective weight %llu", task->group->g.id,
		 task->t.cpu, task->turn.u, task->t.effective);
	level = (struct live_group PL_MEM *)throttled_at((u64)task->group, task->t.cpu);
	if (level)
		scx_dump("  throttled at group %llu, balance %lld ns, parked in slot+1 %u", level->g.id,
			 level->g.pool.balances[task->t.cpu].remaining_ns, task->parked);
}

#endif

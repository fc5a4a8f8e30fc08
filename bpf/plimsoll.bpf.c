// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * plimsoll.bpf.c - the policy of policy/, as a sched_ext scheduler
 *
 * Problem    A BPF scheduler replaces the kernel's fair class, and with it CPU limits, weights and their
 *            statistics. They have to be there, at every level of the hierarchy.
 *
 * Mechanism  One dispatch queue per CPU in order of how far each is served, one per group for tasks that are throttled.
 *            The callbacks move tasks and time; what is due to a group, and which task must wait, the policy says.
 *
 *              wake up    select_cpu -> enqueue: into the group's queues (account.h), then a CPU's dispatch
 *                         queue, or the group's parking queue (park.h)
 *              pick       dispatch: charge the task that ran; keep it, take the head of the queue, pull, or steal (take.h)
 *              run        running ... tick, this CPU's timer (stop.h) ... stopping: run time is charged
 *              sleep      quiescent: out of the group's queues
 *
 * Trade-offs A task that moves between CPUs without passing through enqueue (stolen, pulled, its affinity
 *            changed) is accounted to its new CPU when it runs there.
 *
 * Limits     Time that other classes (real-time, deadline) take on a CPU counts as idle there if it went idle
 *            before. Interrupts are charged to the task that they hit.
 */
/*
 * 7.2 loads a program in a time that goes with its length, walked or not; and of shorter code the verifier walks
 * less: docs/src/lab/live-cost.md, Loading.
 */
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)
#define PL_LIVE 1
#include "kernel.h"
#include "intf.h"
#include "state.h"
#include "account.h"
#include "border.h"
#include "park.h"
#include "enqueue.h"
#include "merge.h"
#include "groups.h"
#include "take.h"
#include "stop.h"
#include "dump.h"

char _license[] SEC("license") = "Dual BSD/GPL";

void BPF_OPS(plimsoll_dispatch, s32 cpu_arg, struct task_struct *prev)
{
	USE_ARENA;
	u32 cpu = cpu_arg;
	struct live_cpu PL_MEM *c = cpu_of(cpu);
	u64 now_ns = scx_bpf_now();
	struct live_task PL_MEM *task = NULL;
	u64 own_u = 0;
	bool has_own = false;
	bool keep = false;

	c->took = 0;
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED)) {
		task = task_of(prev);
		if (task && task->runnable && task->t.cpu == cpu) {
			charge((u64)task, prev->se.sum_exec_runtime, now_ns);
			keep = !must_stop(task, cpu);
			if (keep)
				leave_border(task);
			else if (goes_to_border(prev, task, c, cpu, now_ns))
				return;
		}
	}
	if (c->scan)
		scan(cpu);

	/* A slice ended, or a task was stopped: another one's turn, here or from elsewhere. */
	if (task) {
		bool queued = look_at_head(cpu, cpu);

		if (keep) {
			own_u = turn_u_by_now(task);
			has_own = true;
		}
		if (queued && (!has_own || pl_fair_before(c->head_u, own_u))) {
			own_u = c->head_u;
			has_own = true;
		}
		if (has_own && pull(cpu, true, own_u))
			return;
	}
	/*
	 * What waits alone is the head of the queue. What runs alone is told, too: what its u advanced by would count as if it had
	 * had company all the time, once it has some.
	 */
	if (task || c->fair.nr_queued > 1) {
		s32 next = whose_turn(cpu, (u64)task, now_ns);

		keep = keep && next == task->pid;
		if (!keep && next && (!task || c->fair.nr_queued > 2) && take_turn(cpu, next))
			return;
	}
	if (task)
		task->yielded = 0;
	if (!keep && scx_bpf_dsq_move_to_local(cpu))
		return;
	if (task && task->runnable && task->t.cpu == cpu &&
	    (!must_stop(task, cpu) || pl_read(&task->border_asked))) {
		leave_border(task);
		set_slice(prev, settings.config.fair.slice_ns);
		picked(prev, task, c, cpu, now_ns);
		return;
	}
	if (steal(cpu) || pull(cpu, false, 0))
		return;
	/* Real-time tasks, and kicks, come between: the CPU is asked again, and has been idle since it first was. */
	if (!c->idle_since_ns)
		c->idle_since_ns = now_ns;
}

/*
 * A CPU that is about to idle looks once more where something waits for it:
 *
 * - Released by a timer after plimsoll_dispatch had found nothing, while a task that is out of run time still counted as
 *   running here (wake_cpu): this CPU was not told.
 * - In the CPU's own queue, where plimsoll_dispatch was not asked for work: the CPU is on its way off line. When the slice
 *   of such a CPU's last task ends, 6.19 puts that task there, idles, and does not look again. It is the thread that takes
 *   the CPU off line, and the caller that asked for that waits for it.
 */
void BPF_OPS(plimsoll_update_idle, s32 cpu, bool idle)
{
	USE_ARENA;
	struct live_cpu PL_MEM *c = cpu_of(cpu);

	c->is_idle = idle;
	if (!idle)
		return;
	/* The kernel idles here to end. What is raised now is never run: see leaves_here. */
	if (!in_mask(cpu_online_mask, cpu))
		return;
	if (c->other_class)
		set_other_class(cpu, 0);
	if ((c->fair.nr_queued && scx_bpf_dsq_nr_queued(cpu) > 0) ||
	    (!c->idle_since_ns && scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL) > 0))
		scx_bpf_kick_cpu(cpu, 0);
}

static __always_inline void idle_ended(struct live_cpu PL_MEM *c, u64 now_ns)
{
	u64 idle_ns;

	if (!c->idle_since_ns)
		return;
	idle_ns = now_ns - pl_min(c->idle_since_ns, now_ns);
	c->idle_since_ns = 0;
	c->idle_ns += idle_ns;
	pl_steal_idle_ended(&c->steal, idle_ns);
}

void BPF_OPS(plimsoll_running, struct task_struct *p)
{
	USE_ARENA;
	struct live_task PL_MEM *task = task_of(p);
	u64 now_ns = scx_bpf_now();
	u32 cpu = scx_bpf_task_cpu(p);
	struct pl_balance PL_MEM *counts;
	struct live_cpu PL_MEM *c;

	if (!task)
		return;
	c = cpu_of(cpu);
	park_end(task);
	if (!task->runnable)
		refresh_weight(p, task);
	else if (task->t.cpu != cpu)
		account_out((u64)task, now_ns, false);
	if (!task->runnable || !task->t.counted)
		account_in((u64)task, cpu, now_ns);
	idle_ended(c, now_ns);
	counts = &task->t.group->pool.balances[cpu];
	counts->nr_runs++;
	if (task->waiting_since_ns && now_ns > task->waiting_since_ns)
		counts->run_delay_ns += now_ns - task->waiting_since_ns;
	task->waiting_since_ns = 0;
	task->charged_at_ns = now_ns;
	task->charged_exec_ns = p->se.sum_exec_runtime;
	task->picked_exec_ns = p->se.sum_exec_runtime;
	/* Not for one that is being stopped in at_border: as its affinity to the CPU begins the kernel calls this, too. */
	if (task->waits_exec_ns)
		leave_border(task);
	if (c->other_class)
		set_other_class(cpu, 0);
	pl_task_gives_way(&task->t, p->policy == SCHED_IDLE);
	c->nr_switches++;
	c->check_at_ns = 0;
	c->took = 0;
	c->running = task;
	if (c->interrupted == task)
		goes_on(p, task, c, cpu, now_ns);
	else
		picked(p, task, c, cpu, now_ns);
	c->interrupted = NULL;
	watch(c, cpu, now_ns);
}

void BPF_OPS(plimsoll_stopping, struct task_struct *p, bool runnable)
{
	USE_ARENA;
	struct live_task PL_MEM *task = task_of(p);
	u64 now_ns = scx_bpf_now();

	if (!task || !task->runnable)
		return;
	charge((u64)task, p->se.sum_exec_runtime, now_ns);
	if (runnable)
		task->waiting_since_ns = now_ns;
	if (p->se.sum_exec_runtime - task->picked_exec_ns >= PL_BW_TURN_NS)
		task->starved_since_ns = now_ns;
	if (task->t.cpu < nr_cpus) {
		struct live_cpu PL_MEM *c = cpu_of(task->t.cpu);

		if (c->running == task) {
			c->running = NULL;
			c->stop_at_ns = 0;
			/* Its slice is not over: a task of another class takes the CPU, most often for a moment. */
			if (runnable && p->scx.slice) {
				c->interrupted = task;
				c->turn_ends_ns -= now_ns;
				check_soon(c, task->t.cpu, now_ns);
			}
		}
	}
}

/* sched_yield(). Dispatch, which comes next and charges the task, does what policy says: a program as short as can be loads soonest. */
bool BPF_OPS(plimsoll_yield, struct task_struct *from, struct task_struct *to)
{
	USE_ARENA;
	struct live_task PL_MEM *task = task_of(from);

	if (task)
		pl_write(&task->yielded, 1);
	set_slice(from, 0);
	return true;
}

/* The backup for this CPU's timer. Dispatch, which comes next, charges the task and picks. */
void BPF_OPS(plimsoll_tick, struct task_struct *p)
{
	USE_ARENA;
	struct live_task PL_MEM *task = task_of(p);
	u64 now_ns = scx_bpf_now();
	u64 stop_at_ns;

	if (!task || !task->runnable)
		return;
	stop_at_ns = cpu_of(task->t.cpu)->stop_at_ns;
	if (stop_at_ns && now_ns >= stop_at_ns && !pl_read(&task->border_asked))
		set_slice(p, 0);
	if (pl_read(&S->timers_owed))
		start_owed_timers(now_ns);
}

void BPF_OPS(plimsoll_quiescent, struct task_struct *p, u64 deq_flags)
{
	USE_ARENA;
	struct live_task PL_MEM *task = task_of(p);
	u64 now_ns = scx_bpf_now();

	if (!task)
		return;
	park_end(task);
	/* pl_write: for several plain stores clang takes the pointer before its conversion to the arena. */
	pl_write(&task->waiting_since_ns, 0);
	/* Without sleep it only changes: its affinity, as it is stopped in at_border and goes on there, or its group. */
	if (deq_flags & SCX_DEQ_SLEEP) {
		pl_write(&task->starved_since_ns, 0);
		pl_write(&task->grant_ns, 0);
		leave_border(task);
	}
	if (task->runnable)
		account_out((u64)task, now_ns, deq_flags & SCX_DEQ_SLEEP);
	/* It may go on as a real-time task, and tasks wait here for it. */
	if (!(deq_flags & SCX_DEQ_SLEEP) && task->t.cpu == bpf_get_smp_processor_id()) {
		struct live_cpu PL_MEM *c = cpu_of(task->t.cpu);

		if (!c->running && c->fair.nr_queued)
			check_soon(c, task->t.cpu, now_ns);
	}
}

/* The group of a cgroup's number, without asking the kernel for the cgroup; 0: it has none of its own. */
__noinline u64 group_by_id(u64 id)
{
	u32 slot;

	for (slot = zero + 1; slot < S->nr_slots && can_loop; slot++) {
		struct live_group PL_MEM *group = S->groups[slot];

		if (group && group->alive && group->g.id == id)
			return (u64)group;
	}
	return 0;
}

/*
 * The group of a task's cgroup as it is born: most often its parent's, else found by the cgroup's number. Older kernels
 * look that up within the cgroup namespace of the caller, and find nothing as clone3() puts a task outside of it.
 */
static __always_inline struct live_group PL_MEM *group_of_new(struct scx_init_task_args *args)
{
	u64 id = BPF_CORE_READ(args, cgroup, kn, id);
	struct live_group PL_MEM *group = NULL;
	struct cgroup *cgrp;

	if (args->fork) {
		struct live_task PL_MEM *parent = task_of(bpf_get_current_task_btf());

		if (parent && parent->group->alive && parent->group->g.id == id)
			return parent->group;
	}
	cgrp = bpf_cgroup_from_id(id);
	if (cgrp) {
		group = group_of(cgrp);
		bpf_cgroup_release(cgrp);
	}
	if (!group)
		group = (struct live_group PL_MEM *)group_by_id(id);
	return group;
}

s32 BPF_OPS_SLEEPABLE(plimsoll_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	USE_ARENA;
	struct live_group PL_MEM *group = group_of_new(args);
	struct live_task PL_MEM *task;
	struct task_entry *entry;
	u32 cpu;

	if (!group) {
		scx_error("%s[%d]: its cgroup is not known", p->comm, p->pid);
		return -ENOENT;
	}
	/* Again: see plimsoll_cgroup_init. */
	do {
		entry = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	} while (!entry && can_loop);
	if (!entry)
		return -ENOMEM;
	task = task_alloc();
	if (!task)
		return -ENOMEM;
	arena_zero(task, sizeof(*task));
	group_get(group);
	task->group = group;
	task->t.group = &group->g;
	task->pid = p->pid;
	cpu = scx_bpf_task_cpu(p);
	task->t.cpu = cpu;
	entry->task = (u64)task;
	return 0;
}

void BPF_OPS(plimsoll_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	USE_ARENA;
	struct task_entry *entry = bpf_task_storage_get(&tasks, p, 0, 0);
	struct live_task PL_MEM *task;

	if (!entry || !entry->task)
		return;
	task = (struct live_task PL_MEM *)entry->task;
	entry->task = 0;
	/* Not account_out: a task that ends has been quiescent, unless all of this is being unloaded, counts and all. */
	park_end(task);
	group_put(task->group);
	free_push(&S->free_tasks, (u64)task, TASK_NEXT);
}

/*
 * Links the CPUs that are on line, for pull(): of 1,024 possible CPUs a few may be, and one at a time is looked at. An
 * off-line CPU, too, knows the next one on line: a pull may have looked at it last.
 */
__noinline int link_online(void)
{
	u32 next = zero, online = zero, round, cpu;

	/* Twice: the first round finds the lowest one, which follows the highest. */
	for (round = zero; round < 2 && can_loop; round++) {
		for (cpu = nr_cpus; cpu > 0 && can_loop; cpu--) {
			struct live_cpu PL_MEM *c = cpu_of(cpu - 1);

			pl_write(&c->next_online, next);
			if (c->online) {
				next = cpu - 1;
				online += round;
			}
		}
	}
	S->nr_online = online;
	return 0;
}

void BPF_OPS_SLEEPABLE(plimsoll_cpu_online, s32 cpu)
{
	USE_ARENA;
	struct live_cpu PL_MEM *c = cpu_of(cpu);

	c->online = 1;
	c->idle_since_ns = 0;
	/* What it was to look at as it left had no timer of its own any more, and would keep the next from being started. */
	pl_write(&c->timer_at_ns, 0);
	pl_write(&c->check_at_ns, 0);
	pl_write(&c->watch_at_ns, 0);
	link_online();
}

/* Tasks that wait for a CPU that goes away wait for another one from now on. Nothing new is enqueued here. */
void BPF_OPS_SLEEPABLE(plimsoll_cpu_offline, s32 cpu)
{
	USE_ARENA;
	u32 slot;

	cpu_of(cpu)->online = 0;
	idle_ended(cpu_of(cpu), scx_bpf_now());
	set_gives_way(cpu_of(cpu), 0);
	link_online();
	evacuate(cpu, cpu);
	for (slot = zero; slot < S->nr_slots && can_loop; slot++)
		if (S->groups[slot] && S->groups[slot]->nr_parked)
			evacuate(PARK_DSQ(slot), cpu);
}

static __always_inline u64 chunks_of(u32 llc)
{
	return (llc_elements[CPU_INDEX(llc)] + PL_SPARSEMASK_PER_CHUNK - 1) >> PL_SPARSEMASK_DENSITY;
}

__noinline int init_llcs(void)
{
	u64 chunks = zero;
	u32 llc;

	S->overloaded = arena_alloc(nr_llcs * sizeof(struct pl_sparsemask));
	for (llc = zero; llc < nr_llcs && can_loop; llc++)
		chunks += chunks_of(llc);
	S->chunks = arena_alloc(chunks * sizeof(struct pl_sparsemask_chunk));
	if (!S->overloaded || !S->chunks)
		return -ENOMEM;
	chunks = zero;
	for (llc = zero; llc < nr_llcs && can_loop; llc++) {
		S->overloaded[llc].chunks = &S->chunks[chunks];
		S->overloaded[llc].elements = llc_elements[CPU_INDEX(llc)];
		chunks += chunks_of(llc);
	}
	return 0;
}

__noinline int init_cpu(u32 cpu)
{
	struct live_cpu PL_MEM *c = cpu_of(cpu);
	s32 error = scx_bpf_create_dsq(cpu, NUMA_NO_NODE);
	const struct cpumask *online;
	struct cpu_timer *timer;

	if (error < 0) {
		scx_error("cannot create the queue of CPU %u: %d", cpu, error);
		return error;
	}
	c->steal.avg_idle_ns = PL_AVG_IDLE_MAX_NS;
	online = scx_bpf_get_online_cpumask();
	c->online = bpf_cpumask_test_cpu(cpu, online);
	scx_bpf_put_cpumask(online);
	c->pull_from = cpu;
	turn_init(c);
	timer = bpf_map_lookup_elem(&cpu_timers, &cpu);
	if (!timer)
		return -EINVAL;
	bpf_timer_init(&timer->timer, &cpu_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&timer->timer, cpu_timer_fired);
	return 0;
}

/* live_state begins as live_settings does. */
#define SETTINGS_WORDS (__builtin_offsetof(struct live_settings, min_run_ns) / 8)
_Static_assert(__builtin_offsetof(struct live_settings, min_run_ns) ==
		   __builtin_offsetof(struct live_state, cpus),
	       "live_state begins with the settings");

s32 BPF_OPS_SLEEPABLE(plimsoll_init)
{
	USE_ARENA;
	struct live_state PL_MEM *state = arena_alloc(sizeof(struct live_state));
	u32 cpu, word;
	s32 error;

	if (!state)
		return -ENOMEM;
	S = state;
	state->nr_cpus = nr_cpus;
	state->max_groups = max_groups;
	state->cpus = arena_alloc(nr_cpus * sizeof(struct live_cpu));
	state->domains = arena_alloc((nr_cpus + 1) * sizeof(struct pl_domain));
	state->gather.nr_domains = PL_DOMAIN_REST + 1;
	state->groups = arena_alloc(max_groups * sizeof(u64));
	state->merged = arena_alloc(MERGES_KEPT * sizeof(struct live_merged));
	if (!state->cpus || !state->domains || !state->groups || !state->merged)
		return -ENOMEM;
	/* Word by word: clang copies structs into an arena without changing the address space. */
#pragma clang loop unroll(full)
	for (word = 0; word < SETTINGS_WORDS; word++)
		((volatile u64 PL_MEM *)state)[word] = ((const volatile u64 *)&settings)[word];
	error = init_llcs();
	if (error)
		return error;
	for (cpu = zero; cpu < nr_cpus && can_loop; cpu++) {
		error = init_cpu(cpu);
		if (error)
			return error;
	}
	link_online();
	return 0;
}

void BPF_OPS(plimsoll_exit, struct scx_exit_info *info)
{
	USE_ARENA;
	exit_record.code = info->exit_code;
	bpf_probe_read_kernel_str(exit_record.reason, sizeof(exit_record.reason), info->reason);
	bpf_probe_read_kernel_str(exit_record.message, sizeof(exit_record.message), info->msg);
	bpf_probe_read_kernel_str(exit_dump, sizeof(exit_dump), info->dump);
	exit_record.kind = info->kind;
}

/*
 * Looked up by the kernel, which searches. As an extern of this program libbpf would look it up by reading all of
 * /proc/kallsyms, which took 2.4 s of the 4 s that loading took.
 */
SEC("syscall")
int find_symbols(void *unused)
{
	static const char active[] = "__cpu_active_mask";
	static const char online[] = "__cpu_online_mask";
	static const char entry[] = "asm_exc_page_fault";
	long error = bpf_kallsyms_lookup_name(active, sizeof(active), 0, &cpu_active_mask);

	error = error ?: bpf_kallsyms_lookup_name(online, sizeof(online), 0, &cpu_online_mask);
	return error ?: bpf_kallsyms_lookup_name(entry, sizeof(entry), 0, &page_fault_entry);
}

/*
 * Starts timers that are owed where no CPU ticks, and period timers that should have fired long ago: `plimsoll run`
 * calls this 20 times a second. Once, on 7.2, a group's timer was not fired 15 s after its time, though the policy
 * counted it as active, and all of the group stayed parked; whether the kernel had refused to start it was not looked
 * at then. With `fail` it fails, as an internal error would, and with `took_over` it forgives what CPUs owe by now: programs of
 * their own would take as long to load as any.
 */
SEC("syscall")
int mend_timers(struct live_mend *args)
{
	USE_ARENA;
	u64 now_ns = scx_bpf_now();
	u32 slot;

	args->now_ns = now_ns;
	if (args->fail) {
		scx_error("failed on purpose: plimsoll run --fallback-test");
		return 0;
	}
	if (pl_read(&S->lock_lost)) {
		scx_error("a CPU's lock was not given back in time");
		return 0;
	}
	start_owed_timers(now_ns);
	for (slot = zero; slot < S->nr_slots && can_loop; slot++) {
		struct live_group PL_MEM *group = S->groups[slot];
		struct pl_pool PL_MEM *pool;

		if (!group || (slot && !group->alive))
			continue;
		pool = &group->g.pool;
		if (args->took_over)
			pl_bw_forgive(pool);
		if (!pl_bw_timer_overdue(pool, now_ns))
			continue;
		S->timers_overdue++;
		start_period_timer(slot, pool->next_ns, now_ns);
	}
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops plimsoll_ops = {
    .select_cpu = (void *)plimsoll_select_cpu,
    .enqueue = (void *)plimsoll_enqueue,
    .dispatch = (void *)plimsoll_dispatch,
    .tick = (void *)plimsoll_tick,
    .yield = (void *)plimsoll_yield,
    .update_idle = (void *)plimsoll_update_idle,
    .running = (void *)plimsoll_running,
    .stopping = (void *)plimsoll_stopping,
    .quiescent = (void *)plimsoll_quiescent,
    .init_task = (void *)plimsoll_init_task,
    .exit_task = (void *)plimsoll_exit_task,
    .dump = (void *)plimsoll_dump,
    .dump_cpu = (void *)plimsoll_dump_cpu,
    .dump_task = (void *)plimsoll_dump_task,
    .cgroup_init = (void *)plimsoll_cgroup_init,
    .cgroup_exit = (void *)plimsoll_cgroup_exit,
    .cgroup_move = (void *)plimsoll_cgroup_move,
    .cgroup_set_weight = (void *)plimsoll_cgroup_set_weight,
    .cgroup_set_bandwidth = (void *)plimsoll_cgroup_set_bandwidth,
    .cgroup_set_idle = (void *)plimsoll_cgroup_set_idle,
    .cpu_online = (void *)plimsoll_cpu_online,
    .cpu_offline = (void *)plimsoll_cpu_offline,
    .init = (void *)plimsoll_init,
    .exit = (void *)plimsoll_exit,
    .flags =
	SCX_OPS_KEEP_BUILTIN_IDLE | SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING | SCX_OPS_ENQ_MIGRATION_DISABLED,
    .timeout_ms = 30000,
    .exit_dump_len = sizeof(exit_dump),
    .name = "plimsoll",
};

#pragma clang attribute pop

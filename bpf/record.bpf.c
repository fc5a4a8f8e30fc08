// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * plimsoll record: what threads do, on a kernel whose scheduler is not replaced.
 *
 * Problem: 50,000 switches a second, each with a wake-up, must cost less than 1% of the machine, and
 * what is lost must be known to the event.
 *
 * Mechanism: BTF tracepoints append 16 bytes to a batch that belongs to this CPU. sched_switch and
 * sched_waking fire with interrupts off, so that nothing else can append at the same time. A full batch
 * goes to the ring buffer; no thread is woken, the reader polls. If the ring is full, the batch's events
 * are added to the CPU's count of losses, which the next batch carries.
 *
 * A thread's name and group are sent once. Task storage remembers which group that was, by the address
 * of its task group. Each CPU keeps what it last learned of a thread in a small table of its own, so
 * that a thread that is seen again costs three loads and compares, not a look into task storage.
 *
 * Some kernels raise no tracepoint at all while certain threads run, so that a switch away from one is
 * never seen. The next event on that CPU shows another thread running there; the switch is then added,
 * at the time that the departed thread's own accounting gives for it, and counted as mended.
 *
 * Known limits: a soft interrupt is taken to be the current task's own unless a device raised the last
 * NET_RX; a block completion that runs as a soft interrupt of another task is blamed on that task.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

#include "record.h"
#include "record_kernel.h"
#include "record_cpu.h"
#include "record_threads.h"

/*
 * Another thread runs here than the last switch said: adds the switch that was missed. A thread's
 * exec_start is brought up to date as it leaves, on its run queue's clock.
 */
static __noinline int mend(struct cpu_state *state, struct task_struct *now_running, __u64 now)
{
	struct record_event event = {};
	struct task_struct *gone;
	__u64 last, left = now;
	int tid = 0;

	if (!state || !now_running)
		return 0;
	gone = (struct task_struct *)state->current_task;
	last = state->batch.count ? state->batch.last_ns : now;
	event.mask = 0x1; /* asleep, if it cannot be asked any more */
	BPF_CORE_READ_INTO(&tid, gone, pid);
	if (state->current_tid && tid == state->current_tid) {
		struct rq *rq = BPF_CORE_READ(now_running, se.cfs_rq, rq);

		if (bpf_core_field_exists(gone->__state))
			event.mask = BPF_CORE_READ(gone, __state);
		if (rq && BPF_CORE_READ(gone, thread_info.cpu) == bpf_get_smp_processor_id())
			left = now - (BPF_CORE_READ(rq, clock_task) - BPF_CORE_READ(gone, se.exec_start));
		else
			left = last;
	}
	if (left < last || left > now)
		left = last;
	event.a = state->current_tid;
	event.b = BPF_CORE_READ(now_running, pid);
	event.kind = RECORD_KIND_SWITCH;
	__sync_fetch_and_add(&switches_mended, 1);
	push(state, left, &event);
	return 0;
}

/* Makes the stream say which thread runs here. */
static __always_inline void check_current(struct cpu_state *state, struct task_struct *task, __u64 now)
{
	bool wanted;

	if (!state->switched || state->current_tid == task->pid)
		return;
	wanted = recall(state, task, now);
	if (state->current_wanted || wanted)
		mend(state, task, now);
	state->current_tid = task->pid;
	state->current_task = (__u64)task;
	state->current_wanted = wanted;
}

/* Of a group of threads that share a CPU: its cgroup's, or, of a session's (autogroup), which has none, its own. */
static __always_inline __u64 id_of_group(struct task_group *group)
{
	struct task_group___autogroup *session = (void *)group;
	__u64 id = BPF_CORE_READ(group, css.cgroup, kn, id);

	if (id || !bpf_core_field_exists(session->autogroup))
		return id;
	id = BPF_CORE_READ(session, autogroup, id);
	return id ? RECORD_SESSION | id : 0;
}

/* A switch of which at least one side is not recorded. */
static __always_inline void follow_others(struct cpu_state *state, struct task_struct *prev, bool prev_wanted,
					  struct task_struct *next, bool next_wanted, __u64 now, __u16 mask)
{
	struct others *others = &state->others;
	bool goes_on = next->pid && !next_wanted;
	struct record_event event;
	struct task_group *group;
	__u64 turn;

	/* One that was moved into the tree while it ran: how much of the stretch was others' is not known. */
	if (prev_wanted)
		others->since_ns = 0;
	if (others->since_ns && prev->pid) {
		turn = now - others->turn_ns;
		group = prev->sched_task_group;
		if (turn > others->longest_ns)
			others->longest_ns = turn;
		if (turn == others->longest_ns || group == others->longest) {
			others->longest = group;
			others->longest_mask = mask;
		}
	}
	if (!others->since_ns) {
		others->since_ns = goes_on ? now : 0;
		others->turn_ns = now;
		others->took = prev_wanted && (!mask || mask & RECORD_OTHERS_PREEMPTED);
		return;
	}
	turn = now - others->since_ns;
	/*
	 * Another group's turn is a stretch of its own, unless what there is of this one is short, and took nothing from a recorded
	 * thread.
	 */
	if (goes_on &&
	    ((turn < RECORD_TURN_NS && !others->took) || prev->sched_task_group == next->sched_task_group)) {
		others->turn_ns = now;
		return;
	}
	group = others->longest;
	if (group != others->known) {
		others->known = group;
		others->known_id = id_of_group(group);
	}
	if (turn > RECORD_RUN_MAX_NS)
		turn = RECORD_RUN_MAX_NS;
	event.a = turn;
	event.arg = turn >> 32;
	event.b = group ? others->known_id : 0;
	event.kind = RECORD_KIND_OTHERS;
	event.mask = others->longest_mask;
	others->since_ns = goes_on ? now : 0;
	others->took = 0;
	others->turn_ns = now;
	others->longest_ns = 0;
	others->longest = NULL;
	push(state, now, &event);
}

static __always_inline __u64 state_of_task(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return BPF_CORE_READ((struct task_struct___5_13 *)task, state);
}

static __always_inline __u64 state_of(struct task_struct *prev, __u64 argument)
{
	return switch_has_state ? argument : state_of_task(prev);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct cpu_state *state = this_cpu();
	__u64 now = bpf_ktime_get_ns();
	struct record_event event;
	bool prev_wanted, next_wanted;
	__u64 mask;

	if (!state)
		return 0;
	check_current(state, prev, now);
	/* Both, always: each may have to be announced. */
	prev_wanted = state->switched && state->current_wanted;
	/* It may have been moved into the recorded group while it ran. */
	if (!state->switched || (only_below_id && !prev_wanted))
		prev_wanted = recall(state, prev, now);
	next_wanted = recall(state, next, now);
	state->switched = true;
	state->current_wanted = next_wanted;
	state->current_tid = next->pid;
	state->current_task = (__u64)next;
	if (!prev_wanted && !next_wanted && !only_below_id)
		return 0;
	mask = state_of(prev, switch_has_state ? ctx[3] : 0);
	if (only_below_id && !(prev_wanted && next_wanted))
		follow_others(state, prev, prev_wanted, next, next_wanted, now,
			      (mask & ~RECORD_OTHERS_PREEMPTED) | (preempt ? RECORD_OTHERS_PREEMPTED : 0));
	if (!prev_wanted && !next_wanted)
		return 0;
	event.a = prev->pid;
	event.b = next->pid;
	event.kind = RECORD_KIND_SWITCH;
	event.arg = preempt;
	event.mask = mask;
	push(state, now, &event);
	return 0;
}

static __always_inline __u8 waking_context(struct cpu_state *state, struct task_struct *current, __u32 waker)
{
	__u32 count;

	if (!preempt_count(current, &count))
		return waker ? RECORD_CONTEXT_UNKNOWN : RECORD_CONTEXT_INTERRUPT;
	if (count & HARDIRQ_OR_NMI)
		return state->in_hrtimer ? RECORD_CONTEXT_TIMER : RECORD_CONTEXT_INTERRUPT;
	if (count & SOFTIRQ_SERVING) {
		if (state->in_timer_wheel || state->in_hrtimer)
			return RECORD_CONTEXT_TIMER;
		return waker && !state->net_rx_by_device ? RECORD_CONTEXT_TASK_SOFTIRQ
							 : RECORD_CONTEXT_INTERRUPT;
	}
	return waker ? RECORD_CONTEXT_TASK : RECORD_CONTEXT_INTERRUPT;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	struct cpu_state *state = this_cpu();
	struct record_event event;
	struct task_struct *waker;
	__u64 now;

	if (!state || !recall(state, task, 0))
		return 0;
	now = bpf_ktime_get_ns();
	waker = bpf_get_current_task_btf();
	check_current(state, waker, now);
	event.a = task->pid;
	event.b = waker->pid;
	event.kind = RECORD_KIND_WAKING;
	event.arg = waking_context(state, waker, event.b);
	event.mask = 0;
	push(state, now, &event);
	return 0;
}

/* Where a thread waits: as it is woken up, if that is not the CPU that it left, and as it is moved. */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *task, int cpu)
{
	struct cpu_state *state = this_cpu();
	struct record_event event;
	__u64 now;

	if (!state || !recall(state, task, 0))
		return 0;
	now = bpf_ktime_get_ns();
	event.a = task->pid;
	event.b = cpu;
	event.kind = RECORD_KIND_MIGRATE;
	event.arg = !!(state_of_task(task) & TASK_WAKING);
	event.mask = 0;
	push(state, now, &event);
	return 0;
}

static __always_inline void single(__u32 type, __u32 a, __u32 b, __u64 now)
{
	struct record_single record = {
	    .type = type,
	    .cpu = bpf_get_smp_processor_id(),
	    .ts_ns = now,
	    .a = a,
	    .b = b,
	};

	send_single(&record, sizeof(record));
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u64 now = bpf_ktime_get_ns();

	if (touch(child, now))
		single(RECORD_TYPE_FORK, parent->pid, child->pid, now);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	__u64 now = bpf_ktime_get_ns();

	if (touch(task, now))
		single(RECORD_TYPE_EXIT, task->pid, 0, now);
	return 0;
}

/* Fires before the name is changed, also by exec. */
SEC("tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *task, const char *comm)
{
	struct seen *seen;

	seen = bpf_task_storage_get(&seen_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (seen)
		announce(task, seen, bpf_ktime_get_ns(), comm);
	return 0;
}

/* Fires for the leader only; the process's other threads are seen at their next switch. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_attach, struct cgroup *cgroup, const char *path, struct task_struct *task)
{
	if (cgroup->root->hierarchy_id == cpu_hierarchy_id)
		touch(task, bpf_ktime_get_ns());
	return 0;
}

/* A group that is made and removed during the recording cannot be looked up afterwards. */
SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(on_mkdir, struct cgroup *cgroup, const char *path)
{
	struct record_group record = {};

	if (cgroup->root->hierarchy_id != cpu_hierarchy_id)
		return 0;
	record.type = RECORD_TYPE_GROUP;
	record.cpu = bpf_get_smp_processor_id();
	record.ts_ns = bpf_ktime_get_ns();
	record.group_id = cgroup->kn->id;
	bpf_probe_read_kernel_str(&record.path, sizeof(record.path), path);
	send_single(&record, sizeof(record));
	return 0;
}

/* Timers and device interrupts: only to tell where a wake-up came from. */

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_hrtimer_entry)
{
	struct cpu_state *state = this_cpu();

	if (state)
		state->in_hrtimer++;
	return 0;
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(on_hrtimer_exit)
{
	struct cpu_state *state = this_cpu();

	if (state && state->in_hrtimer)
		state->in_hrtimer--;
	return 0;
}

SEC("tp_btf/timer_expire_entry")
int BPF_PROG(on_timer_entry)
{
	struct cpu_state *state = this_cpu();

	if (state)
		state->in_timer_wheel++;
	return 0;
}

SEC("tp_btf/timer_expire_exit")
int BPF_PROG(on_timer_exit)
{
	struct cpu_state *state = this_cpu();

	if (state && state->in_timer_wheel)
		state->in_timer_wheel--;
	return 0;
}

SEC("tp_btf/softirq_raise")
int BPF_PROG(on_softirq_raise, unsigned int vector)
{
	struct cpu_state *state;
	__u32 count;

	if (vector != NET_RX_SOFTIRQ)
		return 0;
	state = this_cpu();
	if (state && preempt_count(bpf_get_current_task_btf(), &count))
		state->net_rx_by_device = !!(count & HARDIRQ_OR_NMI);
	return 0;
}

/* Start and end of a request, where --request names them. Attached by the reader. */

static __always_inline void request(__u32 type)
{
	single(type, (__u32)bpf_get_current_pid_tgid(), 0, bpf_ktime_get_ns());
}

SEC("uprobe")
int on_uprobe_begin(void *ctx)
{
	request(RECORD_TYPE_REQUEST_BEGIN);
	return 0;
}

SEC("uprobe")
int on_uprobe_end(void *ctx)
{
	request(RECORD_TYPE_REQUEST_END);
	return 0;
}

SEC("usdt")
int on_usdt_begin(void *ctx)
{
	request(RECORD_TYPE_REQUEST_BEGIN);
	return 0;
}

SEC("usdt")
int on_usdt_end(void *ctx)
{
	request(RECORD_TYPE_REQUEST_END);
	return 0;
}

#include "record_owed.h"
#include "record_sockets.h"
#include "record_datagrams.h"
#include "record_streams.h"

char _license[] SEC("license") = "Dual BSD/GPL";

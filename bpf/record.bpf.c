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

/* The few members that are read. The loader finds their real places in the running kernel's BTF. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kernfs_node {
	__u64 id;
};
struct cgroup_root {
	int hierarchy_id;
};
struct cgroup {
	struct kernfs_node *kn;
	struct cgroup_root *root;
};
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};
struct css_set {
	struct cgroup_subsys_state *subsys[16];
};
struct task_group {
	struct cgroup_subsys_state css;
};
struct task_struct;
struct rq {
	__u64 clock_task;
	struct task_struct *curr;
};
struct load_weight {
	unsigned long weight;
};
struct sched_entity;
struct cfs_rq {
	struct rq *rq;
	struct sched_entity *curr;
	__s64 sum_w_vruntime;
	__u64 sum_weight;
	__u32 sum_shift;
	__u64 zero_vruntime;
};
/* The names of 6.6. */
struct cfs_rq___6_6 {
	__s64 avg_vruntime;
	__u64 avg_load;
	__u64 min_vruntime;
};
struct thread_info {
	__u32 cpu;
};
struct sched_entity {
	struct load_weight load;
	unsigned char on_rq;
	__u64 exec_start;
	__u64 vruntime;
	int depth;
	struct sched_entity *parent;
	struct cfs_rq *cfs_rq;
};
struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	char comm[RECORD_COMM];
	unsigned int __state;
	struct sched_entity se;
	struct css_set *cgroups;
	struct task_group *sched_task_group;
};
/* Any struct that begins with an int will do: see preempt_count. */
typedef struct {
	int counter;
} atomic_t;
struct refcount_struct {
	atomic_t refs;
};
struct net;
struct ns_common {
	unsigned int inum;
};
struct net {
	struct ns_common ns;
};
typedef struct {
	struct net *net;
} possible_net_t;
struct in6_addr {
	__u8 bytes[16];
};
struct sock_common {
	__u32 skc_daddr;
	__u32 skc_rcv_saddr;
	__u16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};
struct sk_buff;
struct sk_buff_head {
	struct sk_buff *prev;
	__u32 qlen;
};
struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	__u16 sk_type;
	__u16 sk_protocol;
};
struct udp_sock {
	struct sk_buff_head reader_queue;
};
struct tcp_sock {
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 lsndtime;
	__u64 tcp_wstamp_ns;
};
struct unix_address;
struct unix_sock {
	struct unix_address *addr;
	struct sock *peer;
};
struct socket {
	struct sock *sk;
};
struct sk_buff {
	struct sock *sk;
	unsigned int len;
	__u16 transport_header;
	__u16 network_header;
	unsigned char *head;
};
struct iov_iter {
	unsigned long count;
};
struct msghdr {
	void *msg_name;
	struct iov_iter msg_iter;
};
struct task_struct___5_13 {
	long state;
};
/* Where the kernel makes a group of each session: CONFIG_SCHED_AUTOGROUP. */
struct autogroup___of_session {
	unsigned long id;
};
struct task_group___autogroup {
	struct autogroup___of_session *autogroup;
};
struct thread_info___arm64 {
	__u64 preempt_count;
};
struct task_struct___arm64 {
	struct thread_info___arm64 thread_info;
};
#pragma clang attribute pop

enum cgroup_subsys_id {
	cpu_cgrp_id = 1,
};

/* Kernels since 6.2; in place of a call it becomes a plain load that may fault. */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

#define SOFTIRQ_SERVING 0x00100U
#define HARDIRQ_OR_NMI 0xff0000U
#define NET_RX_SOFTIRQ 3
#define TASK_WAKING 0x200
#define CGROUP_DEPTH_MAX 32

/* Record only threads whose cpu cgroup is this one or below; 0: all. */
const volatile __u64 only_below_id = 0;
/* Hierarchy that the cpu controller is on: 0 is cgroup v2. */
const volatile int cpu_hierarchy_id = 0;
/* Kernels since 5.18 tell the previous task's state in an argument of its own. */
const volatile bool switch_has_state = true;
/*
 * x86 keeps the preempt count in a per-CPU variable. Kernels without KALLSYMS_ALL do not resolve its
 * name, but BTF gives its offset in the per-CPU section, and that of the run queue, to which every
 * running task points: the reader subtracts the two. 0: not known, contexts are reported as such.
 */
const volatile long preempt_count_after_rq = 0;

/* What a CPU last learned of a thread. Slots are shared by thread ids that end in the same digits. */
#define KNOWN_THREADS 128

struct known {
	__u64 task; /* address; 0: nothing */
	__u64 task_group;
	__u32 tid;
	__u32 wanted;
};

/*
 * What this CPU has run of threads that are not recorded, since it last ran something else or another group's: with
 * only_below_id such a stretch is one event, however many threads took turns in it.
 */
struct others {
	__u64 since_ns; /* 0: none is under way */
	__u64 turn_ns;	/* when the one that runs got the CPU */
	__u64 longest_ns;
	struct task_group *longest; /* whose turn that was */
	__u64 longest_mask;	    /* as what its last turn left its thread */
	__u64 took;		    /* it took the CPU from a recorded thread, which waits */
	/* The group whose id was asked for last. */
	struct task_group *known;
	__u64 known_id;
};

struct cpu_state {
	/* Depth of timer callbacks under way, in hard and in soft interrupts. */
	__u32 in_hrtimer;
	__u32 in_timer_wheel;
	/* The last NET_RX soft interrupt was raised by a device. */
	__u32 net_rx_by_device;
	/* The thread that runs on this CPU by the last switch that was seen, and whether it is wanted. */
	__u32 current_tid;
	__u64 current_task;
	__u8 switched;
	__u8 current_wanted;
	__u16 pad;
	struct others others;
	struct known known[KNOWN_THREADS];
	struct record_batch batch; /* last: the reader counts from the end */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_state);
} cpu_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20); /* the reader sets its own size */
} ring SEC(".maps");

struct seen {
	__u64 task_group; /* address; 0: nothing was sent yet */
	__u32 wanted;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct seen);
} seen_threads SEC(".maps");

/* Ticks in a second; 0 where the kernel's configuration cannot be read. */
extern int CONFIG_HZ __kconfig __weak;
int hz = 0;

/* Single records (threads, forks, exits, groups, requests) that found the ring full. */
__u64 singles_lost = 0;
/* Switches that the kernel did not raise and that were added. */
__u64 switches_mended = 0;

static __always_inline struct cpu_state *this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&cpu_states, &zero);
}

/* `task`: the one that runs here. False if the count cannot be read. */
static __always_inline bool preempt_count(struct task_struct *task, __u32 *count)
{
#if defined(__TARGET_ARCH_arm64)
	*count = BPF_CORE_READ((struct task_struct___arm64 *)task, thread_info.preempt_count);
	return true;
#else
	void *rq = task->se.cfs_rq->rq;

	if (!preempt_count_after_rq)
		return false;
	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		struct refcount_struct *place = bpf_rdonly_cast(
		    rq + preempt_count_after_rq, bpf_core_type_id_kernel(struct refcount_struct));

		*count = place->refs.counter;
		return true;
	}
	return !bpf_probe_read_kernel(count, sizeof(*count), rq + preempt_count_after_rq);
#endif
}

static __always_inline bool send_single(void *record, __u32 size)
{
	if (!bpf_ringbuf_output(&ring, record, size, BPF_RB_NO_WAKEUP))
		return true;
	__sync_fetch_and_add(&singles_lost, 1);
	return false;
}

static __always_inline void flush(struct record_batch *batch)
{
	__u32 count = batch->count;
	__u32 size;

	if (count > RECORD_BATCH)
		count = RECORD_BATCH;
	size = sizeof(struct record_batch) - (RECORD_BATCH - count) * sizeof(struct record_event);
	if (size > sizeof(struct record_batch))
		return;
	if (bpf_ringbuf_output(&ring, batch, size, BPF_RB_NO_WAKEUP))
		batch->lost += count;
	batch->count = 0;
}

/* Appends to one of this CPU's batches. Nothing else may append to it meanwhile. */
static __always_inline void append(struct record_batch *batch, __u32 stream, __u64 now,
				   struct record_event *event)
{
	__u32 n;

	n = batch->count;
	if (n && now - batch->base_ns > 0xffffffffULL) {
		flush(batch);
		n = 0;
	}
	if (n >= RECORD_BATCH) /* cannot be: a full batch is sent at once */
		return;
	if (!n) {
		batch->type = RECORD_TYPE_BATCH;
		batch->cpu = bpf_get_smp_processor_id();
		batch->stream = stream;
		batch->base_ns = now;
	}
	event->delta_ns = now - batch->base_ns;
	batch->events[n] = *event;
	batch->last_ns = now;
	batch->count = n + 1;
	if (n + 1 == RECORD_BATCH)
		flush(batch);
}

/* Appends to this CPU's batch. Only for programs that run with interrupts off. */
static __always_inline void push(struct cpu_state *state, __u64 now, struct record_event *event)
{
	append(&state->batch, RECORD_STREAM_SCHED, now, event);
}

static __noinline int is_below(struct cgroup_subsys_state *css)
{
	for (int i = 0; css && i < CGROUP_DEPTH_MAX; i++) {
		if (BPF_CORE_READ(css, cgroup, kn, id) == only_below_id)
			return 1;
		css = BPF_CORE_READ(css, parent);
	}
	return 0;
}

/* Names this thread to the reader, and says that its name will be `comm` if that is given. Slow; once a thread, and when it changed. */
static __noinline int announce(struct task_struct *task, struct seen *seen, __u64 now, const char *comm)
{
	struct cgroup_subsys_state *css = NULL;
	struct record_thread record = {};
	int cpu_cgrp = 1;
	bool wanted;

	if (!task || !seen)
		return 0;
	hz = CONFIG_HZ;
	if (bpf_core_enum_value_exists(enum cgroup_subsys_id, cpu_cgrp_id))
		cpu_cgrp = bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);
	struct css_set *cgroups = BPF_CORE_READ(task, cgroups);
	bpf_core_read(&css, sizeof(css), &cgroups->subsys[cpu_cgrp & 15]);

	wanted = !only_below_id || is_below(css);
	/* Also when it leaves the tree: the reader would take it to run there until the end. */
	if (wanted || seen->wanted) {
		seen->wanted = 1;
		record.type = RECORD_TYPE_THREAD;
		record.cpu = bpf_get_smp_processor_id();
		record.ts_ns = now;
		record.group_id = BPF_CORE_READ(css, cgroup, kn, id);
		record.tid = BPF_CORE_READ(task, pid);
		record.tgid = BPF_CORE_READ(task, tgid);
		if (comm)
			bpf_probe_read_kernel_str(&record.comm, sizeof(record.comm), comm);
		else
			BPF_CORE_READ_INTO(&record.comm, task, comm);
		if (!send_single(&record, sizeof(record)))
			return 0; /* tried again the next time it is seen */
	}
	seen->wanted = wanted;
	seen->task_group = (__u64)BPF_CORE_READ(task, sched_task_group);
	return 0;
}

/* Whether this thread's events are wanted; announces it if it is new or moved. `known`: that could be said for sure. */
static __always_inline bool look_up(struct task_struct *task, __u64 now, bool *known)
{
	struct seen *seen;

	*known = true;
	if (!task->pid)
		return !only_below_id;
	seen = bpf_task_storage_get(&seen_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	*known = false;
	if (!seen)
		return !only_below_id;
	if (seen->task_group != (__u64)task->sched_task_group)
		announce(task, seen, now, NULL);
	*known = seen->task_group == (__u64)task->sched_task_group;
	return seen->wanted;
}

static __always_inline bool touch(struct task_struct *task, __u64 now)
{
	bool known;

	return look_up(task, now, &known);
}

/*
 * As touch, for programs that run with interrupts off: asks this CPU's table first. `now` of 0: the clock is asked if that is
 * needed, so that threads which are not recorded cost no look at it.
 */
static __always_inline bool recall(struct cpu_state *state, struct task_struct *task, __u64 now)
{
	__u32 tid = task->pid;
	struct known *known = &state->known[tid % KNOWN_THREADS];
	__u64 group = (__u64)task->sched_task_group;
	bool wanted, sure;

	if (known->task == (__u64)task && known->task_group == group && known->tid == tid)
		return known->wanted;
	wanted = look_up(task, now ? now : bpf_ktime_get_ns(), &sure);
	known->task = sure ? (__u64)task : 0;
	known->task_group = group;
	known->tid = tid;
	known->wanted = wanted;
	return wanted;
}

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

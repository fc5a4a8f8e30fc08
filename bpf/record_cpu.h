/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the recorder keeps for each CPU, and how events leave it: in batches, or, what is rare, one by one. Included by record.bpf.c.
 */
#ifndef PLIMSOLL_RECORD_CPU_H
#define PLIMSOLL_RECORD_CPU_H

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

#endif

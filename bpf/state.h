/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * state.h - where the scheduler's state is, and how it is found, locked and allocated
 *
 * Problem    State per task, per group and per group and CPU, of a size known only on the machine, used from
 *            every callback and by the loader.
 *
 * Mechanism  One arena. Task and cgroup storage hold pointers into it. Memory is allocated where the kernel
 *            lets a callback sleep (task and cgroup creation) and goes to a free list afterwards.
 *
 * Concurrency  A queue of a group on a CPU, and the CPU's own line, are changed under the CPU's lock: another
 *            CPU that steals a task takes it out of its old CPU's queues. The lock is held for a few
 *            hundred instructions, with interrupts off; code that needs two takes the lower CPU's first (move_load).
 */
#ifndef PLIMSOLL_STATE_H
#define PLIMSOLL_STATE_H

#define ARENA_LOW 0xffffffffULL

struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 20); /* pages; the loader sets what the machine needs */
} arena SEC(".maps");

void PL_MEM *bpf_arena_alloc_pages(void *map, void PL_MEM *addr, u32 pages, int node, u64 flags) __ksym;

/* A program belongs to an arena by naming it. */
#define USE_ARENA asm volatile("" : : "r"(&arena))

struct task_entry {
	u64 task;
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_entry);
} tasks SEC(".maps");

struct group_entry {
	u64 group;
};
struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct group_entry);
} cgroups SEC(".maps");

/*
 * The real machine, filled in by the loader. CPUs of one LLC stand together in llc_cpus. What bounds a loop is
 * not const, for the same reason as `zero`.
 */
u32 nr_cpus = 1;
u32 nr_llcs = 1;
u32 nr_nodes = 1;
const volatile u32 max_groups = 16384;
const volatile u32 may_peek; /* scx_bpf_dsq_peek never returns a stale task: from 7.1 on */
const volatile u32 sizeof_state[4] = {sizeof(struct live_state), sizeof(struct live_cpu),
				      sizeof(struct live_group), sizeof(struct live_task)};
const volatile u16 cpu_llc[LIVE_CPUS_MAX];
const volatile u16 cpu_element[LIVE_CPUS_MAX];
const volatile u16 cpu_sibling[LIVE_CPUS_MAX]; /* next SMT sibling, round; itself: none */
const volatile u16 llc_first[LIVE_CPUS_MAX];
const volatile u16 llc_elements[LIVE_CPUS_MAX];
const volatile u16 llc_cpus[LIVE_CPUS_MAX];
const volatile struct live_settings settings;

/* Where loops start: not a constant to the verifier, which would go through every turn of them. */
u32 zero;

struct live_state PL_MEM *S;
struct live_exit exit_record;
char exit_dump[32768];

#define CPU_INDEX(cpu) ((cpu) & (LIVE_CPUS_MAX - 1))

static __always_inline u32 cpu_in_llc(u32 llc, u32 element)
{
	return llc_cpus[CPU_INDEX(llc_first[CPU_INDEX(llc)] + element)];
}

/* Dispatch queues: one per CPU, named by its number, and one per group for what is throttled. */
#define PARK_DSQ(slot) (0x10000ULL + (slot))

static __always_inline struct live_cpu PL_MEM *cpu_of(u32 cpu)
{
	return &S->cpus[cpu];
}

static __always_inline struct live_task PL_MEM *task_of(struct task_struct *p)
{
	struct task_entry *entry = bpf_task_storage_get(&tasks, p, 0, 0);

	return entry ? (struct live_task PL_MEM *)entry->task : NULL;
}

static __always_inline struct live_group PL_MEM *group_of(struct cgroup *cgrp)
{
	struct group_entry *entry = bpf_cgrp_storage_get(&cgroups, cgrp, 0, 0);

	return entry ? (struct live_group PL_MEM *)entry->group : NULL;
}

/* Addresses of the kernel's, which find_symbols sets before the scheduler is attached. */
u64 cpu_active_mask;
u64 cpu_online_mask;
u64 page_fault_entry;

/* Whether a CPU is in one of the kernel's masks. */
static __always_inline bool in_mask(u64 mask, u32 cpu)
{
	u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), (const u64 *)mask + CPU_INDEX(cpu) / 64);
	return word >> (cpu % 64) & 1;
}

/*
 * Whether a CPU is about to go off. From then on until cpu_offline is called, which waits for all readers of RCU,
 * the kernel neither enqueues to this scheduler nor dispatches from it there: its tasks would wait for ever.
 */
static __always_inline bool cpu_leaves(u32 cpu)
{
	return !in_mask(cpu_active_mask, cpu);
}

/*
 * Whether this runs on a CPU that goes off. Linux 7 starts a timer, where interrupts are off, in an interrupt of its own to
 * this CPU (irq_work), and frees what that took in another. One raised after the CPU's last look at them is never run, not
 * even when it is back, nor is any that comes after it: not a timer's, not a kick's, not the kernel's own.
 */
static __always_inline bool leaves_here(void)
{
	return !cpu_of(bpf_get_smp_processor_id())->online;
}

/* Tries for as long as the kernel lets one loop go on: 131,070 turns, a few milliseconds. */
__noinline bool cpu_trylock(struct live_cpu PL_MEM *c PL_ARENA)
{
	while (pl_xchg32(&c->lock, 1))
		if (!can_loop)
			return false;
	return true;
}

#define LOCK_PATIENCE_NS (8 * PL_SEC) /* less than it takes the kernel to call a CPU locked up */

/*
 * Interrupts must be off: callbacks under a run queue's lock have them off, timers turn them off. Where the host does not run
 * the virtual CPU that holds the lock, which may be for many milliseconds, it is waited for, as in any lock of the
 * kernel's. One that has not gone on by LOCK_PATIENCE_NS leaves counts wrong: mend_timers gives up.
 */
__noinline int cpu_lock_held(struct live_cpu PL_MEM *c PL_ARENA)
{
	u64 since_ns = 0;

	while (!cpu_trylock(c)) {
		u64 now_ns = bpf_ktime_get_ns();

		since_ns = since_ns ?: now_ns;
		if (now_ns - since_ns < LOCK_PATIENCE_NS && can_loop)
			continue;
		pl_write(&S->lock_lost, 1);
		break;
	}
	return 0;
}

static __always_inline void cpu_lock(struct live_cpu PL_MEM *c)
{
	if (pl_xchg32(&c->lock, 1))
		cpu_lock_held(c);
}

static __always_inline void cpu_unlock(struct live_cpu PL_MEM *c)
{
	pl_xchg32(&c->lock, 0);
}

#include "turns.h"

/* Keeps the CPU's bit among the overloaded ones as what runs or is queued there changes. Under its lock. */
__noinline int overloaded_changed(u32 cpu, u32 before, u32 after)
{
	pl_steal_count_changed(&S->overloaded[cpu_llc[CPU_INDEX(cpu)]], cpu_element[CPU_INDEX(cpu)], before,
			       after);
	return 0;
}

/* All that wants to run on this CPU, of this class or another. */
static __always_inline u32 nr_running(struct live_cpu PL_MEM *c)
{
	return c->fair.nr_queued + c->other_class;
}

/* A task of another class has this CPU: it runs none of ours, and is not idle. */
static __always_inline bool other_class_runs(const struct live_cpu PL_MEM *c)
{
	return !c->running && !c->is_idle;
}

/* A task of another class begins to run on this CPU, or has ended. */
__noinline int set_other_class(u32 cpu, u32 runs)
{
	struct live_cpu PL_MEM *c = cpu_of(cpu);
	u32 before;

	cpu_lock(c);
	before = nr_running(c);
	c->other_class = runs;
	overloaded_changed(cpu, before, nr_running(c));
	cpu_unlock(c);
	return 0;
}

static __always_inline void count_in(struct live_task PL_MEM *task, struct live_cpu PL_MEM *c, u32 cpu,
				     u64 now_ns)
{
	u32 before;

	if (task->t.counted)
		return;
	before = pl_task_count(&task->t, &c->fair) + c->other_class;
	turn_enters((u64)task, now_ns);
	overloaded_changed(cpu, before, before + 1);
}

/* `sleeps`: else it moves or is parked. */
static __always_inline void count_out(struct live_task PL_MEM *task, struct live_cpu PL_MEM *c, u32 cpu,
				      bool sleeps)
{
	u32 before;

	if (!task->t.counted)
		return;
	turn_leaves((u64)task, sleeps);
	before = pl_task_uncount(&task->t, &c->fair) + c->other_class;
	overloaded_changed(cpu, before, before - 1);
}

/* Free lists. The tag makes a head that was popped and pushed again in between differ. */
static __always_inline u64 free_pop(s64 PL_MEM *head, u64 next_offset)
{
	while (can_loop) {
		s64 old = pl_read(head);
		u64 address = (u64)old & ARENA_LOW;
		u64 next;

		if (!address)
			return 0;
		address |= (u64)S & ~ARENA_LOW;
		next = *(u32 PL_MEM *)(address + next_offset);
		if (pl_cas(head, old, (s64)((((u64)old >> 32) + 1) << 32 | next)))
			return address;
	}
	return 0;
}

static __always_inline void free_push(s64 PL_MEM *head, u64 address, u64 next_offset)
{
	while (can_loop) {
		s64 old = pl_read(head);

		*(volatile u32 PL_MEM *)(address + next_offset) = (u32)((u64)old & ARENA_LOW);
		if (pl_cas(head, old, (s64)((((u64)old >> 32) + 1) << 32 | (address & ARENA_LOW))))
			return;
	}
}

static __always_inline void PL_MEM *arena_alloc(u64 bytes)
{
	return bpf_arena_alloc_pages(&arena, NULL, (bytes + 4095) / 4096, NUMA_NO_NODE, 0);
}

#define TASK_NEXT __builtin_offsetof(struct live_task, next_free)
#define GROUP_NEXT __builtin_offsetof(struct live_group, next_free)

/* Sleepable contexts only. */
static struct live_task PL_MEM *task_alloc(void)
{
	u64 address = free_pop(&S->free_tasks, TASK_NEXT);
	u64 offset;

	if (!address) {
		address = (u64)arena_alloc(4096);
		if (!address)
			return NULL;
		for (offset = zero + sizeof(struct live_task);
		     offset + sizeof(struct live_task) <= 4096 && can_loop;
		     offset += sizeof(struct live_task))
			free_push(&S->free_tasks, address + offset, TASK_NEXT);
	}
	return (struct live_task PL_MEM *)address;
}

static __always_inline void group_get(struct live_group PL_MEM *group)
{
	pl_add32(&group->refs, 1);
}

/* A group's memory outlives its cgroup for as long as a task or a child points to it. */
static void group_put(struct live_group PL_MEM *group)
{
	while (group && can_loop) {
		struct live_group PL_MEM *parent = (struct live_group PL_MEM *)group->g.parent;

		if (pl_add32(&group->refs, -1))
			return;
		free_push(&S->free_groups, (u64)group, GROUP_NEXT);
		group = parent;
	}
}

#endif

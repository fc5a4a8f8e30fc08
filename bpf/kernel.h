/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * kernel.h - the kernel's types and functions that the scheduler uses, and no others
 *
 * The loader finds the real offsets in the running kernel's BTF (preserve_access_index), so only the names
 * matter here. Members that a kernel lacks are asked for with bpf_core_field_exists, functions with
 * bpf_ksym_exists.
 */
#ifndef PLIMSOLL_KERNEL_H
#define PLIMSOLL_KERNEL_H

/* The policy's port.h and libbpf's headers see these types and do not define their own. */
#define __VMLINUX_H__
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef unsigned long size_t;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

enum bpf_map_type {
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_MAP_TYPE_CGRP_STORAGE = 32,
	BPF_MAP_TYPE_ARENA = 33,
};
#define BPF_F_NO_PREALLOC (1U << 0)
#define BPF_F_MMAPABLE (1U << 10)
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1
#define BPF_F_TIMER_CPU_PIN 2
#define CLOCK_MONOTONIC 1
#define NUMA_NO_NODE (-1)

#define ENOENT 2
#define ENOMEM 12
#define EINVAL 22
#define E2BIG 7

#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD 0x00200000
#define SCHED_IDLE 5
#define NICE_0_PRIO 120

#define SCX_DSQ_LOCAL 0x8000000000000002ULL
#define SCX_DSQ_GLOBAL 0x8000000000000001ULL
#define SCX_DSQ_LOCAL_ON 0xC000000000000000ULL
#define SCX_ENQ_PREEMPT (1ULL << 32)
#define SCX_ENQ_LAST (1ULL << 41)
#define SCX_WAKE_FORK 4ULL
#define SCX_WAKE_SYNC 16ULL
#define SCX_KICK_IDLE 1ULL
#define SCX_KICK_PREEMPT 2ULL
#define SCX_TASK_QUEUED 1
#define SCX_DEQ_SLEEP 1
#define SCX_OPS_KEEP_BUILTIN_IDLE 1ULL
#define SCX_OPS_ENQ_LAST 2ULL
#define SCX_OPS_ENQ_EXITING 4ULL
#define SCX_OPS_ENQ_MIGRATION_DISABLED 16ULL

/* Another number in each kernel. */
enum scx_enq_flags {
	SCX_ENQ_HEAD = 1,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cpumask {
	unsigned long bits[1];
};
struct kernfs_node {
	u64 id;
	const char *name;
};
struct cgroup;
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};
struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	s32 level;
	struct cgroup_subsys_state *subsys[16];
};
struct task_group {
	struct cgroup_subsys_state css;
	s32 idle;
	unsigned long shares;
};
enum cgroup_subsys_id {
	cpu_cgrp_id = 1,
};
struct sched_entity {
	u64 sum_exec_runtime;
};
struct sched_ext_entity {
	u32 flags;
	u64 slice;
	u64 dsq_vtime;
};
struct task_struct {
	s32 rcu_read_lock_nesting; /* in kernels that preempt readers of RCU */
	unsigned int flags;
	unsigned int policy;
	s32 static_prio;
	s32 pid;
	s32 nr_cpus_allowed;
	unsigned short migration_disabled;
	const struct cpumask *cpus_ptr;
	char comm[16];
	struct sched_entity se;
	struct sched_ext_entity scx;
};
struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup;
};
struct scx_exit_task_args {
	bool cancelled;
};
struct scx_cgroup_init_args {
	u32 weight;
	u64 bw_period_us;
	u64 bw_quota_us;
	u64 bw_burst_us;
};
enum scx_exit_kind {
	SCX_EXIT_ERROR = 1024,
};
struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
	char *dump;
};
struct scx_dump_ctx {
	enum scx_exit_kind kind;
};
/* Since 6.9, with the stack segment: how a task came into the kernel, where the CPU has FRED and the kernel uses it. */
struct fred_ss {
	u64 bits;
};
struct pt_regs___fred {
	struct fred_ss fred_ss;
};

#pragma clang attribute pop

/* As the kernel shows it to user space on x86-64, so it need not be looked up. */
struct pt_regs {
	unsigned long other[15];
	unsigned long orig_ax;
};

struct bpf_timer {
	__u64 __opaque[2];
} __attribute__((aligned(8)));

/* Only pointed to, but declared whole, or libbpf does not find functions that take one. */
struct bpf_map {
	u32 max_entries;
};

struct bpf_task_work {
	__u64 __opaque;
} __attribute__((aligned(8)));

struct bpf_iter_scx_dsq {
	u64 __opaque[6];
} __attribute__((aligned(8)));

/* Matched by name with the kernel's: a kernel that lacks one of the callbacks set refuses to load. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*tick)(struct task_struct *p);
	bool (*yield)(struct task_struct *from, struct task_struct *to);
	void (*update_idle)(s32 cpu, bool idle);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*quiescent)(struct task_struct *p, u64 deq_flags);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	void (*dump)(struct scx_dump_ctx *ctx);
	void (*dump_cpu)(struct scx_dump_ctx *ctx, s32 cpu, bool idle);
	void (*dump_task)(struct scx_dump_ctx *ctx, struct task_struct *p);
	s32 (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
	void (*cgroup_exit)(struct cgroup *cgrp);
	void (*cgroup_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_set_weight)(struct cgroup *cgrp, u32 weight);
	void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us);
	void (*cgroup_set_idle)(struct cgroup *cgrp, bool idle);
	void (*cpu_online)(s32 cpu);
	void (*cpu_offline)(s32 cpu);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	u32 exit_dump_len;
	char name[128];
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

/* Bounds a loop for the verifier. */
#define can_loop                                                                                             \
	({                                                                                                   \
		__label__ l_break, l_continue;                                                               \
		bool ret = true;                                                                             \
		asm volatile goto("may_goto %l[l_break]" : : : : l_break);                                   \
		goto l_continue;                                                                             \
	l_break:                                                                                             \
		ret = false;                                                                                 \
	l_continue:;                                                                                         \
		ret;                                                                                         \
	})

/* The iterator behind bpf_for_each, for functions that move its task. */
#define BPF_FOR_EACH_ITER (&___it)

#define BPF_OPS(name, args...) SEC("struct_ops/" #name) BPF_PROG(name, ##args)
#define BPF_OPS_SLEEPABLE(name, args...) SEC("struct_ops.s/" #name) BPF_PROG(name, ##args)

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
void scx_bpf_destroy_dsq(u64 dsq_id) __ksym;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) __ksym;
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) __ksym;
bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym;
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id,
		      u64 enq_flags) __ksym;
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id,
			    u64 enq_flags) __ksym;
void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it__iter, u64 slice) __ksym;
void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it__iter, u64 vtime) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
struct task_struct *scx_bpf_dsq_peek(u64 dsq_id) __ksym __weak;
bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym __weak;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
void bpf_preempt_disable(void) __ksym;
void bpf_preempt_enable(void) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
bool scx_bpf_task_running(const struct task_struct *p) __ksym;
u64 scx_bpf_now(void) __ksym;
bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, u64 flags) __ksym;
const struct cpumask *scx_bpf_get_idle_cpumask(void) __ksym;
void scx_bpf_put_idle_cpumask(const struct cpumask *mask) __ksym;
const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
void scx_bpf_put_cpumask(const struct cpumask *mask) __ksym;
void scx_bpf_error_bstr(char *fmt, unsigned long long *data, u32 data__sz) __ksym;
void scx_bpf_dump_bstr(char *fmt, unsigned long long *data, u32 data__sz) __ksym;

int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;

/* From 6.19 on; libbpf takes the last suffix off. */
void scx_bpf_reenqueue_local___v2___compat(void) __ksym __weak;

struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;

bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;
u32 bpf_cpumask_first(const struct cpumask *cpumask) __ksym;
bool bpf_cpumask_empty(const struct cpumask *cpumask) __ksym;
u32 bpf_cpumask_any_and_distribute(const struct cpumask *a, const struct cpumask *b) __ksym;

struct cgroup *bpf_cgroup_from_id(u64 id) __ksym;
struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, int level) __ksym;
void bpf_cgroup_release(struct cgroup *cgrp) __ksym;
/* From 6.18 on; until 6.19 with the second name and the last argument. */
typedef int (*bpf_task_work_callback_t)(struct bpf_map *map, void *key, void *value);
int bpf_task_work_schedule_resume(struct task_struct *task, struct bpf_task_work *tw, void *map__map,
				  bpf_task_work_callback_t callback) __ksym __weak;
int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *tw, void *map__map,
				       bpf_task_work_callback_t callback, void *aux__prog) __ksym __weak;
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;
void bpf_local_irq_save(unsigned long *flags__irq_flag) __ksym;
void bpf_local_irq_restore(unsigned long *flags__irq_flag) __ksym;

#define scx_error(fmt, args...)                                                                              \
	({                                                                                                   \
		static char ___fmt[] = fmt;                                                                  \
		unsigned long long ___param[___bpf_narg(args) ?: 1] = {};                                    \
		_Pragma("GCC diagnostic push");                                                              \
		_Pragma("GCC diagnostic ignored \"-Wint-conversion\"");                                      \
		___bpf_fill(___param, args);                                                                 \
		_Pragma("GCC diagnostic pop");                                                               \
		scx_bpf_error_bstr(___fmt, ___param, sizeof(___param));                                      \
	})
#define scx_dump(fmt, args...)                                                                               \
	({                                                                                                   \
		static char ___fmt[] = fmt;                                                                  \
		unsigned long long ___param[___bpf_narg(args) ?: 1] = {};                                    \
		_Pragma("GCC diagnostic push");                                                              \
		_Pragma("GCC diagnostic ignored \"-Wint-conversion\"");                                      \
		___bpf_fill(___param, args);                                                                 \
		_Pragma("GCC diagnostic pop");                                                               \
		scx_bpf_dump_bstr(___fmt, ___param, sizeof(___param));                                       \
	})

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the recorder reads of the kernel: members of its structures, and numbers that are in no BTF. Included by record.bpf.c.
 */
#ifndef PLIMSOLL_RECORD_KERNEL_H
#define PLIMSOLL_RECORD_KERNEL_H

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
	__u64 tcp_clock_cache;
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

#endif

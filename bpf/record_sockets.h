/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * plimsoll record: what the sockets of recorded threads do.
 *
 * Problem: a request begins when its data arrives and ends with the last write of its answer, or as the
 * service closes the connection after it, whichever threads do the work. Only the socket sees both.
 *
 * Mechanism: a socket is ours from the moment a recorded thread first reads or writes it. Its storage
 * then has a number, under which every event is noted. What arrived before that, while the connection
 * waited to be accepted, is remembered in the storage and noted then, with its own time. Which side
 * began a connection is seen when it is established; of an older one the reader finds it by the
 * listening ports.
 *
 * These programs run with interrupts on, so that one of them may interrupt another on its CPU. A program
 * that finds the CPU's batch of socket events taken sends its event alone.
 *
 * Tracepoints where the kernel has them: they attach and detach at once. The others need its function
 * tracer, whose programs take a grace period each to detach. What is read by splice() raises no tracepoint of
 * sockets: it is noted as the connection is next written to.
 *
 * What is written does not always leave at once. Nagle's algorithm holds what is small until what was sent before
 * is acknowledged, which a client may put off for 40 ms; a full window holds all. The kernel keeps the time at which a
 * connection last sent: it is looked at as the next data arrives or the connection closes, and noted if it is late.
 *
 * Known limits: TCP (as plain sockets, not MPTCP's own), Unix streams, and UDP (record_datagrams.h). How much is written to a
 * Unix stream, and its end, are not known.
 */
#ifndef PLIMSOLL_RECORD_SOCKETS_H
#define PLIMSOLL_RECORD_SOCKETS_H

#include <bpf/bpf_endian.h>

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define SOCK_SEQPACKET 5
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define MSG_PEEK 2
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_SYN_RECV 3
#define TCP_FIN_WAIT1 4
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define TCP_LAST_ACK 9
#define TCP_LISTEN 10
#define TCP_CLOSING 11

struct socket_seen {
	__u32 id; /* 0: no recorded thread used it yet */
	__u8 side;
	__u8 established; /* seen from its beginning */
	__u8 closed;
	__u8 finished;	  /* the other end's FIN has been seen */
	__u8 known_seqs;  /* the next two are */
	__u8 unframed;	  /* it does not speak HTTP/2: see record_streams.h */
	__u8 followed;	  /* so were its packets, from the first one */
	__u8 shaking;	  /* its TLS handshake is under way, enum shaking */
	__u32 rcv_nxt;	  /* what had arrived */
	__u32 copied_seq; /* what had been read */
	__u32 early_bytes;
	__u32 early_tid;
	__u32 resent;	/* as tcp_sock.lsndtime has it: when it last sent something again; 0: never */
	__u64 early_ns; /* when the first unread data arrived that is not noted yet; 0: none */
	__u64 wrote_ns; /* when it was last written to, if that has not been looked at since; 0: it has */
	__u64 last_wrote_ns;
	__u32 writer; /* who did */
	__u32 number; /* it has one before a recorded thread uses it; 0: not yet */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct socket_seen);
} seen_sockets SEC(".maps");

struct socket_state {
	__u32 taken;
	__u32 pad;
	struct record_batch batch; /* last: the reader counts from the end */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct socket_state);
} socket_states SEC(".maps");

/* Packets are looked at: see record_streams.h. */
bool packets_seen = false;
__u32 socket_ids = 0;
__u32 socket_numbers = 0;

static __always_inline void send_socket_event(__u64 ts_ns, __u32 tid, __u32 id, __u32 kind, __u32 bytes)
{
	struct record_socket_event record = {
	    .type = RECORD_TYPE_SOCKET_EVENT,
	    .cpu = bpf_get_smp_processor_id(),
	    .ts_ns = ts_ns,
	    .a = tid,
	    .b = id,
	    .kind = kind,
	    .bytes = bytes,
	};

	send_single(&record, sizeof(record));
}

/* Returns the time. */
static __always_inline __u64 note(__u32 tid, __u32 id, __u32 kind, __u32 bytes)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 zero = 0;
	struct socket_state *state = bpf_map_lookup_elem(&socket_states, &zero);
	struct record_event event;

	if (!state)
		return now;
	if (bytes > RECORD_BYTES_MAX)
		bytes = RECORD_BYTES_MAX;
	if (__sync_lock_test_and_set(&state->taken, 1)) {
		send_socket_event(now, tid, id, kind, bytes);
		return now;
	}
	event.a = tid;
	event.b = id;
	event.kind = kind;
	event.arg = bytes >> 16;
	event.mask = bytes;
	append(&state->batch, RECORD_STREAM_SOCKETS, now, &event);
	barrier();
	state->taken = 0;
	return now;
}

/* Whether the current thread is recorded. The last switch on this CPU knows; no look into task storage. */
static __always_inline bool current_is_wanted(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct cpu_state *state = this_cpu();

	if (!only_below_id)
		return true;
	if (state && state->switched && state->current_tid == task->pid)
		return state->current_wanted;
	return touch(task, bpf_ktime_get_ns());
}

static __always_inline bool is_of(struct sock *sk, __u16 protocol)
{
	unsigned short family = sk->__sk_common.skc_family;

	return (family == AF_INET || family == AF_INET6) && sk->sk_protocol == protocol;
}

static __always_inline bool is_tcp(struct sock *sk)
{
	return is_of(sk, IPPROTO_TCP);
}

static __always_inline bool is_udp(struct sock *sk)
{
	return is_of(sk, IPPROTO_UDP);
}

static __always_inline bool is_unix_stream(struct sock *sk)
{
	return sk->__sk_common.skc_family == AF_UNIX &&
	       (sk->sk_type == SOCK_STREAM || sk->sk_type == SOCK_SEQPACKET);
}

static __always_inline __u32 number_of(struct socket_seen *seen)
{
	if (!seen->number)
		__sync_val_compare_and_swap(&seen->number, 0, __sync_fetch_and_add(&socket_numbers, 1) + 1);
	return seen->number;
}

static __always_inline struct socket_seen *seen_socket(struct sock *sk)
{
	return bpf_sk_storage_get(&seen_sockets, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* A Unix stream has no ports: its ends are known by their addresses in memory. */
static __always_inline void describe_unix(struct record_socket *record, struct sock *sk)
{
	struct unix_sock *own = (struct unix_sock *)sk;
	struct unix_sock *peer = (struct unix_sock *)BPF_CORE_READ(own, peer);
	void *name = BPF_CORE_READ(own, addr);
	void *its_name = NULL;

	if (peer)
		its_name = BPF_CORE_READ(peer, addr);
	/* What is accepted has its listener's name; the connecting side seldom has one. */
	if (!name != !its_name)
		record->side = name ? RECORD_SIDE_ACCEPTED : RECORD_SIDE_OPENED;
	__builtin_memcpy(record->local, &own, sizeof(own));
	__builtin_memcpy(record->remote, &peer, sizeof(peer));
}

/* The socket's number; it gets one if a recorded thread uses it for the first time. 0: the reader does not know it. */
static __noinline __u32 claim(struct sock *sk, struct socket_seen *seen)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct record_socket record = {};
	__u64 now = bpf_ktime_get_ns();
	__u32 id;

	if (!sk || !seen)
		return 0;
	id = __sync_fetch_and_add(&socket_ids, 1) + 1;
	/* Of two threads that come at once one does it; the other's event waits for the next. */
	if (__sync_val_compare_and_swap(&seen->id, 0, id))
		return 0;
	record.type = RECORD_TYPE_SOCKET;
	record.cpu = bpf_get_smp_processor_id();
	record.ts_ns = now;
	record.id = id;
	record.tid = BPF_CORE_READ(task, pid);
	record.tgid = BPF_CORE_READ(task, tgid);
	record.family = BPF_CORE_READ(sk, __sk_common.skc_family);
	record.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	record.number = number_of(seen);
	record.side = BPF_CORE_READ(sk, sk_protocol) == IPPROTO_UDP ? RECORD_SIDE_DATAGRAM : seen->side;
	record.existed = !seen->established;
	if (record.family == AF_UNIX) {
		describe_unix(&record, sk);
	} else {
		record.local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
		record.remote_port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	}
	if (record.family == AF_INET) {
		BPF_CORE_READ_INTO((__u32 *)&record.local[0], sk, __sk_common.skc_rcv_saddr);
		BPF_CORE_READ_INTO((__u32 *)&record.remote[0], sk, __sk_common.skc_daddr);
	} else if (record.family == AF_INET6) {
		BPF_CORE_READ_INTO((struct in6_addr *)&record.local[0], sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO((struct in6_addr *)&record.remote[0], sk, __sk_common.skc_v6_daddr);
	}
	if (!send_single(&record, sizeof(record))) {
		seen->id = 0; /* tried again the next time it is used */
		return 0;
	}
	if (seen->early_ns)
		send_socket_event(seen->early_ns, seen->early_tid, id, RECORD_KIND_ARRIVED,
				  seen->early_bytes);
	seen->early_ns = 0;
	seen->early_bytes = 0;
	return id;
}

/* A recorded thread uses it. Returns the time; 0: the reader does not know the socket. */
static __always_inline __u64 used(struct sock *sk, struct socket_seen *seen, __u32 kind, __u32 bytes)
{
	__u32 id = seen->id;

	if (!id)
		id = claim(sk, seen);
	return id ? note(bpf_get_current_pid_tgid(), id, kind, bytes) : 0;
}

/* The thread whose own system call brings the data: over loopback the sender. 0: no thread. */
static __always_inline __u32 bringer(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct cpu_state *state = this_cpu();
	__u8 context;

	if (!state || !task->pid)
		return 0;
	context = waking_context(state, task, task->pid);
	return context == RECORD_CONTEXT_TASK || context == RECORD_CONTEXT_TASK_SOFTIRQ ? task->pid : 0;
}

/* Data came into its receive queue. */
static __always_inline void arrived(struct socket_seen *seen, __u32 bytes)
{
	if (seen->id) {
		note(bringer(), seen->id, RECORD_KIND_ARRIVED, bytes);
		return;
	}
	if (!seen->early_ns) {
		seen->early_ns = bpf_ktime_get_ns();
		seen->early_tid = bringer();
	}
	seen->early_bytes += bytes;
}

/* What leaves this long after it was written, or longer, has been held. */
#define HELD_MIN_NS 100000ULL

/* Notes, once and with its time, that the last data left late. */
static __always_inline void look_at_departure(struct socket_seen *seen, struct tcp_sock *tcp)
{
	__u64 wrote_ns = seen->wrote_ns, left_ns, sent_ns, tick_ns;

	if (!wrote_ns)
		return;
	seen->wrote_ns = 0;
	left_ns = tcp->tcp_wstamp_ns;
	if ((__s64)(left_ns - wrote_ns) < (__s64)HELD_MIN_NS || CONFIG_HZ <= 0)
		return;
	/* What was sent again left before, whether that was lost or only its acknowledgement late. */
	if (tcp->lsndtime == seen->resent)
		return;
	/*
	 * That may have been a probe of an idle connection, or the acknowledgement of what arrives now: that begins with a look
	 * at the clock. When data was sent is known to the tick.
	 */
	tick_ns = 1000000000U / (__u32)CONFIG_HZ;
	sent_ns = bpf_ktime_get_ns() - (__u32)((__u32)bpf_jiffies64() - tcp->lsndtime) * tick_ns;
	if (left_ns == tcp->tcp_clock_cache || left_ns > sent_ns + 2 * tick_ns) {
		if ((__s64)(sent_ns - wrote_ns) < (__s64)(2 * tick_ns))
			return;
		left_ns = sent_ns;
	}
	send_socket_event(left_ns, 0, seen->id, RECORD_KIND_LEFT, 0);
}

static __always_inline void tcp_arrived(struct sock *sk)
{
	unsigned char state = sk->__sk_common.skc_state;
	struct socket_seen *seen;
	struct tcp_sock *tcp;
	__u32 rcv_nxt, bytes;

	if (state == TCP_LISTEN)
		return;
	seen = seen_socket(sk);
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!seen || !tcp)
		return;
	look_at_departure(seen, tcp);
	rcv_nxt = tcp->rcv_nxt;
	if (!seen->known_seqs) {
		seen->copied_seq = tcp->copied_seq;
		seen->rcv_nxt = seen->copied_seq;
		seen->known_seqs = 1;
	}
	bytes = rcv_nxt - seen->rcv_nxt;
	seen->rcv_nxt = rcv_nxt;
	/* A FIN takes a number, too. To a socket that was closed first it is the end. */
	if (!seen->finished && bytes &&
	    (state == TCP_CLOSE_WAIT || state == TCP_LAST_ACK || state == TCP_CLOSING ||
	     state == TCP_CLOSE)) {
		seen->finished = 1;
		bytes--;
	}
	if (bytes)
		arrived(seen, bytes);
}

/* The current thread has put data into this Unix stream's queue. How much is not known here. */
static __always_inline void unix_arrived(struct sock *sk)
{
	struct socket_seen *seen;

	if (sk->__sk_common.skc_state != TCP_ESTABLISHED)
		return;
	seen = seen_socket(sk);
	if (seen)
		arrived(seen, 0);
}

static __always_inline void wrote(struct sock *sk, __u32 bytes)
{
	struct socket_seen *seen = seen_socket(sk);

	if (seen)
		used(sk, seen, RECORD_KIND_WROTE, bytes);
}

/* What has been read since it was last looked. */
static __always_inline void tcp_read(struct sock *sk, struct socket_seen *seen)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	__u32 copied, bytes;

	if (!tcp)
		return;
	copied = tcp->copied_seq;
	/* Of none that arrived while recorded it is not known how much: 0 would be the end of the stream. */
	bytes = seen->known_seqs ? copied - seen->copied_seq : 1;
	if (!bytes)
		return;
	if (!seen->known_seqs)
		seen->rcv_nxt = tcp->rcv_nxt;
	seen->known_seqs = 1;
	seen->copied_seq = copied;
	used(sk, seen, RECORD_KIND_READ, bytes);
}

static __always_inline void tcp_wrote(struct sock *sk, __u32 bytes)
{
	struct socket_seen *seen = seen_socket(sk);

	if (!seen)
		return;
	if (seen->known_seqs)
		tcp_read(sk, seen); /* by splice(), if at all */
	seen->wrote_ns = used(sk, seen, RECORD_KIND_WROTE, bytes);
	seen->last_wrote_ns = seen->wrote_ns;
	seen->writer = bpf_get_current_pid_tgid();
}

/* record_datagrams.h */
static __always_inline void datagram_arrived(struct sock *sk);
static __always_inline void datagram_read(struct sock *sk, __u32 bytes);

/*
 * Kernels since 6.3, in which it is all that tells of Unix streams' writes: the writer is the current
 * thread, its socket the other end.
 */
SEC("tp_btf/sk_data_ready")
int BPF_PROG(on_data_ready, struct sock *sk)
{
	struct unix_sock *own;

	if (is_tcp(sk)) {
		tcp_arrived(sk);
		return 0;
	}
	if (is_udp(sk)) {
		datagram_arrived(sk);
		return 0;
	}
	if (!is_unix_stream(sk))
		return 0;
	if (sk->__sk_common.skc_state == TCP_ESTABLISHED && current_is_wanted()) {
		own = bpf_skc_to_unix_sock(sk);
		if (own && own->peer)
			wrote(own->peer, 0);
	}
	unix_arrived(sk);
	return 0;
}

/* Before 6.3. */
SEC("fentry/sock_def_readable")
int BPF_PROG(on_readable, struct sock *sk)
{
	if (is_tcp(sk))
		tcp_arrived(sk);
	else if (is_unix_stream(sk))
		unix_arrived(sk);
	return 0;
}

/* Before 6.3. Data has been copied to the reader; also when it only looks. */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(on_tcp_read, struct sock *sk)
{
	struct socket_seen *seen;

	if (!current_is_wanted())
		return 0;
	seen = seen_socket(sk);
	if (seen)
		tcp_read(sk, seen);
	return 0;
}

/*
 * Before anything is sent: over loopback the answer to it may come before the call returns. Kernels since
 * 6.16; once for each buffer that is filled.
 */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(on_tcp_write, struct sock *sk, struct msghdr *message, struct sk_buff *buffer, int size_goal)
{
	unsigned long bytes = message->msg_iter.count;
	__u32 room = size_goal, filled;

	if (!current_is_wanted())
		return 0;
	if (buffer) {
		filled = buffer->len;
		if (filled < room)
			room -= filled;
	}
	tcp_wrote(sk, bytes < room ? bytes : room);
	return 0;
}

/* Before 6.16. */
SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(on_tcp_sendmsg, struct sock *sk, struct msghdr *message, unsigned long bytes)
{
	if (current_is_wanted())
		tcp_wrote(sk, bytes);
	return 0;
}

/* Before 6.5: sendfile and splice. */
SEC("fentry/do_tcp_sendpages")
int BPF_PROG(on_tcp_sendpages, struct sock *sk, void *page, int offset, unsigned long bytes)
{
	if (current_is_wanted())
		tcp_wrote(sk, bytes);
	return 0;
}

/* Called when it has been sent. */
SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_resent, struct sock *sk)
{
	struct socket_seen *seen = bpf_sk_storage_get(&seen_sockets, sk, 0, 0);
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	if (seen && tcp)
		seen->resent = tcp->lsndtime;
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(on_state, struct sock *sk, int before, int after)
{
	struct socket_seen *seen;
	struct tcp_sock *tcp;

	if (!is_tcp(sk))
		return 0;
	if (after == TCP_ESTABLISHED) {
		seen = seen_socket(sk);
		if (!seen)
			return 0;
		seen->side = before == TCP_SYN_RECV   ? RECORD_SIDE_ACCEPTED
			     : before == TCP_SYN_SENT ? RECORD_SIDE_OPENED
						      : RECORD_SIDE_UNKNOWN;
		seen->established = 1;
		seen->followed = packets_seen;
		return 0;
	}
	if (after != TCP_FIN_WAIT1 && after != TCP_LAST_ACK && after != TCP_CLOSE)
		return 0;
	seen = bpf_sk_storage_get(&seen_sockets, sk, 0, 0);
	if (seen && seen->id && !seen->closed) {
		seen->closed = 1;
		tcp = bpf_skc_to_tcp_sock(sk);
		if (tcp)
			look_at_departure(seen, tcp);
		/*
		 * A thread that closes before the other end does may so tell it where the answer ends, as HTTP
		 * does without Content-Length.
		 */
		note(after == TCP_FIN_WAIT1 ? bpf_get_current_pid_tgid() : 0, seen->id, RECORD_KIND_CLOSED,
		     0);
	}
	return 0;
}

/* Kernels since 6.3: every read from every socket, but for splice(). */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_receive, struct sock *sk, int bytes, int flags)
{
	struct socket_seen *seen;
	bool tcp;

	if (bytes < 0 || flags & MSG_PEEK)
		return 0;
	if (is_udp(sk)) {
		if (current_is_wanted())
			datagram_read(sk, bytes);
		return 0;
	}
	if (!bytes)
		return 0;
	tcp = is_tcp(sk);
	if ((!tcp && !is_unix_stream(sk)) || !current_is_wanted())
		return 0;
	seen = seen_socket(sk);
	if (!seen)
		return 0;
	if (tcp)
		tcp_read(sk, seen);
	else
		used(sk, seen, RECORD_KIND_READ, bytes);
	return 0;
}

/* Before 6.3. */
SEC("fentry/unix_stream_sendmsg")
int BPF_PROG(on_unix_write, struct socket *sock, struct msghdr *message, unsigned long bytes)
{
	struct sock *sk = sock->sk;

	if (sk && current_is_wanted())
		wrote(sk, bytes);
	return 0;
}

SEC("fexit/unix_stream_recvmsg")
int BPF_PROG(on_unix_read, struct socket *sock, struct msghdr *message, unsigned long size, int flags,
	     int bytes)
{
	struct sock *sk = sock->sk;
	struct socket_seen *seen;

	if (!sk || bytes <= 0 || flags & MSG_PEEK || !current_is_wanted())
		return 0;
	seen = seen_socket(sk);
	if (seen)
		used(sk, seen, RECORD_KIND_READ, bytes);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * plimsoll record: datagrams of recorded threads.
 *
 * Problem: a UDP socket has no connection. Whose request a datagram is says its peer's address, and many peers ask one socket
 * at once.
 *
 * Mechanism: each datagram that comes to a recorded thread's socket, and each that one sends, is told with its peer. Of a read
 * the kernel's tracepoint says no peer: a socket's datagrams are read in the order in which they came, which is left to the
 * reader. What came before a recorded thread first used the socket is not seen, but for how much of it is still to be read.
 *
 * Kernels since 6.3: before, no tracepoint tells of what arrives and what is read. What is written is told by the functions, as
 * the tracepoint of that has no address; where functions cannot be traced, as what goes to a device.
 */
#ifndef PLIMSOLL_RECORD_DATAGRAMS_H
#define PLIMSOLL_RECORD_DATAGRAMS_H

/* Offsets in the headers of IPv4, IPv6 and UDP, and in the two kinds of struct sockaddr. */
#define IP_FROM 12
#define IP_TO 16
#define IP6_FROM 8
#define IP6_TO 24
#define UDP_FROM 0
#define UDP_TO 2
#define UDP_LENGTH 4
#define UDP_HEADER 8
#define SOCKADDR_PORT 2
#define SOCKADDR_IN 4
#define SOCKADDR_IN6 8

static __always_inline void send_datagram(struct record_datagram *record, __u32 id, __u32 tid, __u32 kind)
{
	record->type = RECORD_TYPE_DATAGRAM;
	record->cpu = bpf_get_smp_processor_id();
	record->ts_ns = bpf_ktime_get_ns();
	record->id = id;
	record->tid = tid;
	record->kind = kind;
	send_single(record, sizeof(*record));
}

/* An IPv4 address, as an IPv6 socket shows it. */
static __always_inline void map_address(struct record_datagram *record, const void *at)
{
	__builtin_memset(record->peer, 0, 10);
	record->peer[10] = record->peer[11] = 0xff;
	bpf_probe_read_kernel(&record->peer[12], 4, at);
}

static __always_inline bool is_mapped(const struct record_datagram *record)
{
	const __u64 *peer = (const __u64 *)record->peer;

	return !peer[0] && (__u32)peer[1] == bpf_htonl(0xffff);
}

static __always_inline __u32 queued_at(struct sock *sk)
{
	return sk->sk_receive_queue.qlen + BPF_CORE_READ((struct udp_sock *)sk, reader_queue.qlen);
}

/* Who sent it, or where it goes to. */
static __always_inline void read_peer(struct record_datagram *record, struct sk_buff *packet, bool goes)
{
	unsigned char *ip = (unsigned char *)BPF_CORE_READ(packet, head), *udp;
	unsigned char version = 0;
	__u16 number = 0;

	udp = ip + BPF_CORE_READ(packet, transport_header);
	ip += BPF_CORE_READ(packet, network_header);
	bpf_probe_read_kernel(&version, sizeof(version), ip);
	if (version >> 4 == 4)
		map_address(record, ip + (goes ? IP_TO : IP_FROM));
	else
		bpf_probe_read_kernel(record->peer, sizeof(record->peer), ip + (goes ? IP6_TO : IP6_FROM));
	bpf_probe_read_kernel(&number, sizeof(number), udp + (goes ? UDP_TO : UDP_FROM));
	record->port = bpf_ntohs(number);
	bpf_probe_read_kernel(&number, sizeof(number), udp + UDP_LENGTH);
	record->bytes = (__u16)(bpf_ntohs(number) - UDP_HEADER);
}

/* The last one in the queue has just come, unless a thread has taken it already. */
static __always_inline void datagram_arrived(struct sock *sk)
{
	struct socket_seen *seen = bpf_sk_storage_get(&seen_sockets, sk, 0, 0);
	struct record_datagram record = {};
	struct sk_buff *last;

	if (!seen || !seen->id)
		return;
	record.queued = queued_at(sk);
	last = (struct sk_buff *)BPF_CORE_READ(sk, sk_receive_queue.prev);
	if ((__u64)last != (__u64)&sk->sk_receive_queue)
		read_peer(&record, last, false);
	send_datagram(&record, seen->id, bringer(), RECORD_KIND_ARRIVED);
}

/* A recorded thread uses the socket. */
static __always_inline void send_used(struct sock *sk, struct record_datagram *record, __u32 kind)
{
	struct socket_seen *seen = seen_socket(sk);
	__u32 id;

	if (!seen)
		return;
	id = seen->id ? seen->id : claim(sk, seen);
	record->queued = queued_at(sk);
	if (id)
		send_datagram(record, id, bpf_get_current_pid_tgid(), kind);
}

static __always_inline void datagram_read(struct sock *sk, __u32 bytes)
{
	struct record_datagram record = {.bytes = bytes};

	send_used(sk, &record, RECORD_KIND_READ);
}

/* `ipv6`: by a socket of IPv6; what that sends to an IPv4 address goes through udp_sendmsg, too, and is told there. */
static __always_inline void datagram_wrote(struct sock *sk, struct msghdr *message, unsigned long bytes,
					   bool ipv6)
{
	struct record_datagram record = {};
	unsigned char *name;
	__u16 number = 0;

	if (!current_is_wanted())
		return;
	name = message->msg_name;
	if (name) {
		bpf_probe_read_kernel(&number, sizeof(number), name);
		if (number == AF_INET6)
			bpf_probe_read_kernel(record.peer, sizeof(record.peer), name + SOCKADDR_IN6);
		else
			map_address(&record, name + SOCKADDR_IN);
		bpf_probe_read_kernel(&number, sizeof(number), name + SOCKADDR_PORT);
	} else {
		number = sk->__sk_common.skc_dport;
		if (ipv6)
			BPF_CORE_READ_INTO((struct in6_addr *)&record.peer[0], sk, __sk_common.skc_v6_daddr);
		else
			map_address(&record, &sk->__sk_common.skc_daddr);
	}
	if (ipv6 && is_mapped(&record))
		return;
	record.port = bpf_ntohs(number);
	record.bytes = bytes;
	send_used(sk, &record, RECORD_KIND_WROTE);
}

SEC("fentry/udp_sendmsg")
int BPF_PROG(on_udp_write, struct sock *sk, struct msghdr *message, unsigned long bytes)
{
	datagram_wrote(sk, message, bytes, false);
	return 0;
}

SEC("fentry/udpv6_sendmsg")
int BPF_PROG(on_udp6_write, struct sock *sk, struct msghdr *message, unsigned long bytes)
{
	datagram_wrote(sk, message, bytes, true);
	return 0;
}

/* Where functions cannot be traced: what goes to a device. A run for each packet of the machine, so only where UDP is in use. */
SEC("tp_btf/net_dev_queue")
int BPF_PROG(on_packet, struct sk_buff *packet)
{
	struct record_datagram record = {};
	struct sock *sk = packet->sk;

	if (!sk || !is_udp(sk) || !current_is_wanted())
		return 0;
	read_peer(&record, packet, true);
	send_used(sk, &record, RECORD_KIND_WROTE);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the recorder's BPF program and its reader in Rust (crates/record/src/wire.rs) both know.
 *
 * Scheduler events are many and small: they are packed into batches, one batch under construction per
 * CPU, so that the ring buffer's lock is taken once for RECORD_BATCH of them. Everything else is rare
 * and goes through the ring buffer one by one.
 */
#ifndef PLIMSOLL_RECORD_H
#define PLIMSOLL_RECORD_H

#define RECORD_BATCH 512
#define RECORD_COMM 16
#define RECORD_PATH 256

enum record_type {
	RECORD_TYPE_BATCH = 1,
	RECORD_TYPE_THREAD = 2,
	RECORD_TYPE_GROUP = 3,
	RECORD_TYPE_FORK = 4,
	RECORD_TYPE_EXIT = 5,
	RECORD_TYPE_REQUEST_BEGIN = 6,
	RECORD_TYPE_REQUEST_END = 7,
	RECORD_TYPE_SOCKET = 8,
	RECORD_TYPE_SOCKET_EVENT = 9,
	RECORD_TYPE_DATAGRAM = 10,
	RECORD_TYPE_FRAME = 11,
};

enum record_kind {
	RECORD_KIND_SWITCH = 1,
	RECORD_KIND_WAKING = 2,
	RECORD_KIND_ARRIVED = 3,
	RECORD_KIND_READ = 4,
	RECORD_KIND_WROTE = 5,
	RECORD_KIND_CLOSED = 6,
	RECORD_KIND_OTHERS = 7,
	RECORD_KIND_MIGRATE = 8,
	RECORD_KIND_OWED = 9,
	RECORD_KIND_LEFT = 10,
};

/* A CPU has two batches under construction: see record_sockets.h. */
enum record_stream {
	RECORD_STREAM_SCHED = 0,
	RECORD_STREAM_SOCKETS = 1,
};

/* Which side began a connection. */
enum record_side {
	RECORD_SIDE_UNKNOWN = 0,
	RECORD_SIDE_ACCEPTED = 1,
	RECORD_SIDE_OPENED = 2,
	RECORD_SIDE_PAIR = 3,	  /* socketpair() */
	RECORD_SIDE_DATAGRAM = 4, /* none: a UDP socket, whose peers the datagrams say */
};

/* Where a wake-up came from; the order of the Rust reader's table. */
enum record_context {
	RECORD_CONTEXT_TASK = 0,
	RECORD_CONTEXT_TASK_SOFTIRQ = 1,
	RECORD_CONTEXT_TIMER = 2,
	RECORD_CONTEXT_INTERRUPT = 3,
	RECORD_CONTEXT_UNKNOWN = 4,
};

/* switch: a = previous, b = next, arg = preempted, mask = previous state; waking: a = woken, b = waker,
 * arg = context; migrate: a = the thread, b = the CPU on whose queue it waits, arg = it is being woken; owed: a = the
 * thread, b = ns, with a sign, mask and arg = what the one that runs is owed, in 2^RECORD_OWED_SHIFT ns, lower and upper bits, with a
 * sign; of a socket: a = the thread or 0, b = the socket, mask and arg = bytes, lower and upper
 * bits, at most RECORD_BYTES_MAX; others: a and arg = how long they ran, ns, lower and upper bits, at most
 * RECORD_RUN_MAX_NS, b = lower half of the id of the group that ran longest, mask = state after its last turn (bit 15:
 * it was preempted). */
#define RECORD_SESSION                                                                                       \
	0x80000000U /* in place of a cgroup's id: this, and the number of a session (autogroup) */
#define RECORD_BYTES_MAX 0xffffffU
#define RECORD_RUN_MAX_NS 0xffffffffffULL
#define RECORD_OTHERS_PREEMPTED 0x8000U
#define RECORD_OWED_SHIFT 8
/* Others' turns that are shorter, and took no recorded thread's CPU, are counted with those beside them. */
#define RECORD_TURN_NS 500000ULL
struct record_event {
	__u32 delta_ns; /* after the batch's base_ns */
	__u32 a;
	__u32 b;
	__u8 kind;
	__u8 arg;
	__u16 mask;
};

struct record_batch {
	__u32 type;
	__u32 cpu;
	__u64 base_ns;
	__u64 lost;    /* events lost on this CPU so far, those of batches that found the ring full */
	__u64 last_ns; /* time of the last event */
	__u32 count;
	__u32 stream;
	struct record_event events[RECORD_BATCH];
};

/* A thread as it is now: sent when it is first seen, and when its group or its name changed; with only_below_id, from
 * when it comes into the tree to when it leaves it. */
struct record_thread {
	__u32 type;
	__u32 cpu;
	__u64 ts_ns;
	__u64 group_id;
	__u32 tid;
	__u32 tgid;
	char comm[RECORD_COMM];
};

struct record_group {
	__u32 type;
	__u32 cpu;
	__u64 ts_ns;
	__u64 group_id;
	char path[RECORD_PATH];
};

/* fork: a = parent, b = child; the others: a = the thread. */
struct record_single {
	__u32 type;
	__u32 cpu;
	__u64 ts_ns;
	__u32 a;
	__u32 b;
};

#define RECORD_ADDRESS 16

/* A socket that a recorded thread used for the first time. */
struct record_socket {
	__u32 type;
	__u32 cpu;
	__u64 ts_ns;
	__u32 id;
	__u32 tid;
	__u32 tgid;
	__u16 family;
	__u8 side;
	__u8 existed; /* before it was first seen */
	__u16 local_port;
	__u16 remote_port;
	__u32 netns; /* inode number */
	/* Of this end and the other one: IP addresses; of Unix streams what is the same for both ends. */
	__u8 local[RECORD_ADDRESS];
	__u8 remote[RECORD_ADDRESS];
	__u32 number; /* of what is seen of it before */
	__u32 pad;
};

/* A socket's event that could not go into a batch: it is older than the batch's last, or the batch was busy. */
struct record_socket_event {
	__u32 type;
	__u32 cpu;
	__u64 ts_ns;
	__u32 a;
	__u32 b;
	__u32 kind;
	__u32 bytes;
};

/* A datagram that came to a UDP socket (RECORD_KIND_ARRIVED), was read or written. Which one is read is not said: a socket's are
 * read in the order in which they came. */
struct record_datagram {
	__u32 type;
	__u32 cpu;
	__u64 ts_ns;
	__u32 id; /* of the socket */
	__u32 tid;
	__u32 kind;
	__u32 bytes;
	__u32 queued; /* in the socket's queue now */
	__u16 port;   /* of the peer; 0: not known, as of what is read */
	__u16 pad;
	__u8 peer[RECORD_ADDRESS]; /* as an IPv6 socket shows it */
};

#define RECORD_FRAME_HEADERS 1 /* headers of the stream: the first ones begin it */
#define RECORD_FRAME_ENDS 2    /* this side has no more to say */
#define RECORD_FRAME_BREAKS 4  /* this side breaks the stream off */
/* Of a connection, whose stream is 0 here: it is not followed any more. */
#define RECORD_FRAME_SEALED 8 /* it is encrypted, and may be HTTP/2 */
#define RECORD_FRAME_OTHER 16 /* it is not HTTP/2 */
/* Beside one of these: its TLS handshake was seen, and this packet brings the first data after it. */
#define RECORD_FRAME_SECURED 32

/* Frames of one HTTP/2 stream in one packet. */
struct record_frame {
	__u32 type;
	__u32 cpu;
	__u64 ts_ns;
	__u64 wrote_ns; /* when the connection was last written to, by `tid`; where it goes */
	__u32 number;	/* as that of record_socket */
	__u32 tid;
	__u32 stream;
	__u32 at; /* bytes of this packet's data up to the last one's end */
	__u8 goes;
	__u8 flags;
	__u16 pad;
};

#endif

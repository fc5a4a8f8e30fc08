/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * plimsoll record: HTTP/2 in clear text, as gRPC speaks it.
 *
 * Problem: many requests are under way on one connection, and an answer may belong to any of them. What a socket does tells
 * that data came and went, not whose.
 *
 * Mechanism: the packets of recorded sockets are followed from frame to frame, by the nine bytes that each begins with (RFC 9113,
 * 4.1), in both directions. Frames that begin a stream's headers, end a stream or break it off are told to the reader, with the
 * stream's number; the reader makes each stream a connection of its own.
 *
 * A connection that is seen from its beginning says by its first 24 bytes whether it is HTTP/2. An older one is taken for it where
 * a packet begins with a frame: its length, kind, and number must be possible together, and so must those of all frames behind
 * it. The reader believes it where one side ends what the other one began.
 *
 * To look at each packet costs: the reader ends that while no recorded connection is HTTP/2 or may be, and begins again with a new
 * one, which is then taken for an older one.
 *
 * Sequence numbers tell what is sent again. Where bytes are missing, or a packet holds too many frames, the next packet that
 * begins with a frame is waited for.
 *
 * Of an encrypted connection only that is told, unless its client has not offered HTTP/2 (ALPN, RFC 7301), and when the first
 * data came after its handshake, if that was seen from its beginning: what came before is no request.
 *
 * Known limits: no connection that changes from HTTP/1.1 to HTTP/2 ("Upgrade"). Where a server asks for another hello
 * (HelloRetryRequest) the handshake is taken to end one record early. Needs cgroup v2, by whose groups the kernel hands out packets.
 */
#ifndef PLIMSOLL_RECORD_STREAMS_H
#define PLIMSOLL_RECORD_STREAMS_H

/* Offsets in the headers of IPv6 and TCP. */
#define IP6_NEXT 6
#define IP6_HEADER 40
#define TCP_SEQUENCE 4
#define TCP_OFFSET 12

#define FRAME_HEADER 9
#define FRAMES_MAX 1000 /* of one packet */
#define PREFACE_BYTES 24
#define FRAME_LENGTH_MAX                                                                                     \
	16384U /* unless the peer allows more; then only where the frames are known to be followed */
/* Packets of an older connection that may begin otherwise than with a frame. */
#define TRIES_MAX 32

#define FRAME_DATA 0
#define FRAME_HEADERS 1
#define FRAME_PRIORITY 2
#define FRAME_RESET 3
#define FRAME_SETTINGS 4
#define FRAME_PUSH 5
#define FRAME_PING 6
#define FRAME_GOAWAY 7
#define FRAME_WINDOW 8
#define FRAME_CONTINUATION 9
#define FLAG_END_STREAM 1

/* The packets are the whole machine's, and a group is recorded: of older connections only those that it has used are looked at. */
const volatile bool only_used = false;

/* What has gone by in one direction of a connection. */
struct followed {
	__u32 next; /* sequence number of what comes next */
	__u32 skip; /* bytes until the next frame */
	__u8 part[FRAME_HEADER];
	__u8 part_bytes; /* so much of a frame's header ended a packet */
	__u8 known;	 /* `next` is */
	__u8 framed;	 /* `skip` is */
	__u8 tries;
};

struct both_followed {
	struct followed way[2]; /* what comes, what goes */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct both_followed);
} followed_sockets SEC(".maps");

struct frame {
	__u32 length;
	__u32 stream;
	__u8 kind;
	__u8 flags;
};

/* Whether these can be the first bytes of a frame. `strictly`: of one of the kinds of RFC 9113, no longer than any peer allows. */
static __always_inline bool read_frame(const __u8 *bytes, struct frame *frame, bool strictly)
{
	__u32 length = (__u32)bytes[0] << 16 | (__u32)bytes[1] << 8 | bytes[2];
	__u32 stream = (__u32)bytes[5] << 24 | (__u32)bytes[6] << 16 | (__u32)bytes[7] << 8 | bytes[8];

	frame->length = length;
	frame->stream = stream;
	frame->kind = bytes[3];
	frame->flags = bytes[4];
	if (stream >> 31 || (strictly && length > FRAME_LENGTH_MAX))
		return false;
	switch (frame->kind) {
	case FRAME_DATA:
	case FRAME_HEADERS:
	case FRAME_PUSH:
	case FRAME_CONTINUATION:
		return stream;
	case FRAME_PRIORITY:
		return stream && length == 5;
	case FRAME_RESET:
		return stream && length == 4;
	case FRAME_SETTINGS:
		return !stream && length % 6 == 0;
	case FRAME_PING:
		return !stream && length == 8;
	case FRAME_GOAWAY:
		return !stream && length >= 8;
	case FRAME_WINDOW:
		return length == 4;
	default:
		return !strictly;
	}
}

static __always_inline void send_frame(struct record_frame *record)
{
	if (record->stream)
		send_single(record, sizeof(*record));
	record->stream = 0;
	record->flags = 0;
}

/* Appends a packet's last bytes to what is kept of a header. */
static __always_inline void keep_part(struct __sk_buff *skb, struct followed *way, __u32 at, __u32 end)
{
	for (int i = 0; i < FRAME_HEADER; i++) {
		if (i < way->part_bytes || at >= end)
			continue;
		bpf_skb_load_bytes(skb, at++, &way->part[i], 1);
		way->part_bytes = i + 1;
	}
}

/* On the way through one packet. */
struct walk {
	__u32 begin; /* of its data */
	__u32 at;
	__u32 end;
	__u32 strictly;
	struct record_frame record;
};

/* Takes note of a frame and goes on behind it. False: it is none. */
static __always_inline bool take_frame(struct walk *walk, const __u8 *bytes)
{
	struct record_frame *record = &walk->record;
	struct frame frame;

	if (!read_frame(bytes, &frame, walk->strictly))
		return false;
	walk->at += FRAME_HEADER + frame.length;
	if (frame.kind == FRAME_HEADERS || frame.kind == FRAME_RESET ||
	    (frame.kind == FRAME_DATA && frame.flags & FLAG_END_STREAM)) {
		if (record->stream != frame.stream)
			send_frame(record);
		record->stream = frame.stream;
		record->at = (walk->at < walk->end ? walk->at : walk->end) - walk->begin;
		if (frame.kind == FRAME_HEADERS)
			record->flags |= RECORD_FRAME_HEADERS;
		if (frame.kind == FRAME_RESET)
			record->flags |= RECORD_FRAME_BREAKS;
		else if (frame.flags & FLAG_END_STREAM)
			record->flags |= RECORD_FRAME_ENDS;
	}
	return true;
}

enum step { STEP_ON, STEP_DONE, STEP_LOST };

/* The next frame of a packet. Not static: the kernel then verifies it once, not for each round of the loop. */
__noinline int step(struct __sk_buff *skb, struct walk *walk)
{
	__u8 bytes[FRAME_HEADER];

	if (!walk)
		return STEP_LOST;
	if (walk->at + FRAME_HEADER > walk->end)
		return STEP_DONE;
	if (bpf_skb_load_bytes(skb, walk->at, bytes, FRAME_HEADER) || !take_frame(walk, bytes))
		return STEP_LOST;
	return STEP_ON;
}

/* Through one packet, in step with the frames or by its first one. False: these are no frames, or too many. */
static __always_inline bool follow(struct __sk_buff *skb, struct followed *way, struct walk *walk)
{
	__u32 bytes = walk->end - walk->at;
	int done = STEP_ON;

	walk->strictly = !way->framed;
	if (way->framed && way->skip >= bytes) {
		way->skip -= bytes;
		return true;
	}
	if (way->framed)
		walk->at += way->skip;
	way->skip = 0;
	if (way->part_bytes) {
		__u8 had = way->part_bytes;

		keep_part(skb, way, walk->at, walk->end);
		if (way->part_bytes < FRAME_HEADER)
			return true;
		walk->at -= had;
		way->part_bytes = 0;
		if (!take_frame(walk, way->part))
			return false;
	}
	for (int i = 0; i < FRAMES_MAX && done == STEP_ON; i++)
		done = step(skb, walk);
	if (done != STEP_DONE || (walk->strictly && walk->at == walk->begin))
		return false;
	way->framed = 1;
	if (walk->at > walk->end)
		way->skip = walk->at - walk->end;
	else
		keep_part(skb, way, walk->at, walk->end);
	return true;
}

/* Whether a connection's first data is what HTTP/2 begins with. */
static __always_inline bool is_preface(struct __sk_buff *skb, __u32 at, __u32 end)
{
	const char preface[8] = {'P', 'R', 'I', ' ', '*', ' ', 'H', 'T'};
	__u64 first, wanted;

	__builtin_memcpy(&wanted, preface, sizeof(wanted));
	return end - at >= PREFACE_BYTES && !bpf_skb_load_bytes(skb, at, &first, sizeof(first)) &&
	       first == wanted;
}

/* In a TLS record and the ClientHello in it (RFC 8446, 4.1.2 and 5.1). */
#define TLS_CHANGE 0x14
#define TLS_HANDSHAKE 0x16
#define TLS_DATA 0x17
#define TLS_LENGTH 3
#define TLS_RECORD_HEADER 5
#define HELLO_SESSION 43
#define HELLO_EXTENSIONS_MAX 40
#define EXTENSION_ALPN 16

static __always_inline bool is_tls(struct __sk_buff *skb, __u32 at)
{
	__u8 bytes[2];

	return !bpf_skb_load_bytes(skb, at, bytes, sizeof(bytes)) && bytes[0] >= TLS_CHANGE &&
	       bytes[0] <= TLS_DATA && bytes[1] == 3;
}

static __always_inline __u16 two_bytes(struct __sk_buff *skb, __u32 at)
{
	__u16 number = 0;

	bpf_skb_load_bytes(skb, at, &number, sizeof(number));
	return bpf_ntohs(number);
}

/* Whether a ClientHello offers HTTP/2; also where it does not end in its packet. */
__noinline int offers_http2(struct __sk_buff *skb, __u32 at, __u32 end)
{
	__u32 begin = at;
	__u8 bytes = 0, name[3];

	at += HELLO_SESSION;
	bpf_skb_load_bytes(skb, at, &bytes, 1);
	at += 1 + bytes;
	at += 2 + two_bytes(skb, at); /* ciphers */
	bpf_skb_load_bytes(skb, at, &bytes, 1);
	at += 1 + bytes + 2; /* compression; length of all extensions */
	for (int i = 0; i < HELLO_EXTENSIONS_MAX && at + 4 <= end; i++) {
		if (two_bytes(skb, at) == EXTENSION_ALPN) {
			/* As the first or the second name. */
			at += 6;
			for (int j = 0; j < 2; j++) {
				if (bpf_skb_load_bytes(skb, at, name, sizeof(name)))
					return 0;
				if (name[0] == 2 && name[1] == 'h' && name[2] == '2')
					return 1;
				at += 1 + name[0];
			}
			return 0;
		}
		at += 4 + two_bytes(skb, at + 2);
	}
	return begin + TLS_RECORD_HEADER + two_bytes(skb, begin + TLS_LENGTH) > end;
}

/* It is not HTTP/2 in clear text; `sealed`: but may be HTTP/2. */
static __always_inline void leave_alone(struct socket_seen *seen, struct record_frame *record, bool sealed)
{
	seen->unframed = 1;
	record->stream = 0;
	record->flags = sealed ? RECORD_FRAME_SEALED : RECORD_FRAME_OTHER;
	if (seen->shaking)
		record->flags |= RECORD_FRAME_SECURED;
	send_single(record, sizeof(*record));
}

enum shaking { SHAKING_NOT, SHAKING_OTHER, SHAKING_MAY_BE_HTTP2 };

/* What the client has sent in its handshake. */
enum shaken { SHAKEN_NOTHING, SHAKEN_HELLO, SHAKEN_OLD, SHAKEN_FINISHED };

#define TLS_RECORDS_MAX 8 /* of one packet in a handshake */

/*
 * Whether a packet of the client brings data after the handshake. Before TLS 1.3 all of that has a type of its own; since then only
 * the hello has, and the first record behind it that looks like data is the end of the client's part (RFC 8446, 2).
 */
__noinline int is_past_handshake(struct __sk_buff *skb, struct walk *walk, struct followed *way)
{
	__u8 type;

	if (!walk || !way)
		return 0;
	if (way->skip >= walk->end - walk->at) {
		way->skip -= walk->end - walk->at;
		return 0;
	}
	walk->at += way->skip;
	way->skip = 0;
	for (int i = 0; i < TLS_RECORDS_MAX && walk->at + TLS_RECORD_HEADER <= walk->end; i++) {
		if (bpf_skb_load_bytes(skb, walk->at, &type, 1))
			return 0;
		if (type == TLS_HANDSHAKE)
			way->tries = way->tries == SHAKEN_NOTHING ? SHAKEN_HELLO : SHAKEN_OLD;
		if (type == TLS_DATA && way->tries != SHAKEN_HELLO)
			return 1;
		if (type == TLS_DATA)
			way->tries = SHAKEN_FINISHED;
		walk->at += TLS_RECORD_HEADER + two_bytes(skb, walk->at + TLS_LENGTH);
	}
	if (walk->at > walk->end)
		way->skip = walk->at - walk->end;
	return 0;
}

/* A packet of a connection; `goes`: sent by it. */
static __always_inline void look_at_packet(struct __sk_buff *skb, bool goes)
{
	struct bpf_sock *sk = skb->sk;
	struct walk walk = {};
	struct record_frame *record = &walk.record;
	struct both_followed *both;
	struct followed *way, *back;
	struct socket_seen *seen;
	__u8 first, offset, next = IPPROTO_TCP;
	__u32 at, end = skb->len, sequence;
	__s32 ahead;

	if (!sk)
		return;
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->protocol != IPPROTO_TCP)
		return;
	seen = bpf_sk_storage_get(&seen_sockets, sk, 0, only_used ? 0 : BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!seen || seen->unframed || (only_used && !seen->id && !seen->established))
		return;
	if (bpf_skb_load_bytes(skb, 0, &first, 1))
		return;
	at = (first & 15) * 4;
	if (first >> 4 != 4) {
		at = IP6_HEADER;
		bpf_skb_load_bytes(skb, IP6_NEXT, &next, 1);
	}
	if (next != IPPROTO_TCP || bpf_skb_load_bytes(skb, at + TCP_SEQUENCE, &sequence, 4) ||
	    bpf_skb_load_bytes(skb, at + TCP_OFFSET, &offset, 1))
		return;
	sequence = bpf_ntohl(sequence);
	at += (offset >> 4) * 4;
	if (at >= end)
		return;
	both = bpf_sk_storage_get(&followed_sockets, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!both)
		return;
	way = &both->way[goes];
	back = &both->way[!goes];
	/* What the server says in a handshake tells nothing. */
	if (seen->shaking && !way->known)
		return;
	record->type = RECORD_TYPE_FRAME;
	record->cpu = bpf_get_smp_processor_id();
	record->ts_ns = bpf_ktime_get_ns();
	record->number = number_of(seen);
	record->goes = goes;
	if (goes) {
		record->tid = seen->writer;
		record->wrote_ns = seen->last_wrote_ns;
	}
	if (way->known) {
		ahead = way->next - sequence;
		if (ahead < 0) {
			way->framed = 0;
			way->skip = 0;
			way->part_bytes = 0;
		} else if (ahead >= (__s32)(end - at)) {
			return;
		} else {
			at += ahead;
			sequence += ahead;
		}
	} else if (seen->followed && !back->known) {
		/* The side that began the connection speaks first. */
		if (is_preface(skb, at, end)) {
			way->framed = 1;
			way->skip = PREFACE_BYTES;
		} else if (is_tls(skb, at)) {
			seen->shaking = offers_http2(skb, at, end) ? SHAKING_MAY_BE_HTTP2 : SHAKING_OTHER;
		} else {
			leave_alone(seen, record, false);
			return;
		}
	}
	way->known = 1;
	way->next = sequence + (end - at);
	walk.begin = walk.at = at;
	walk.end = end;
	if (seen->shaking) {
		if (is_past_handshake(skb, &walk, way))
			leave_alone(seen, record, seen->shaking == SHAKING_MAY_BE_HTTP2);
		return;
	}
	if (!follow(skb, way, &walk)) {
		way->framed = 0;
		way->part_bytes = 0;
		if (!back->framed && is_tls(skb, at))
			leave_alone(seen, record, true);
		else if (!back->framed && way->tries++ >= TRIES_MAX)
			leave_alone(seen, record, false);
	}
	send_frame(record);
}

SEC("cgroup_skb/ingress")
int on_packet_in(struct __sk_buff *skb)
{
	look_at_packet(skb, false);
	return 1;
}

SEC("cgroup_skb/egress")
int on_packet_out(struct __sk_buff *skb)
{
	look_at_packet(skb, true);
	return 1;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * hackbench: many short-lived conversations at once.
 *
 * A program of that name has been the kernel developers' measure of wake-ups and migrations since 2001; this one makes the
 * same load, so that its figures can be put beside theirs: in each group, 20 senders write `loops` messages of 100 bytes
 * to each of 20 receivers, over sockets or pipes, between processes or threads. All begin together; the time ends
 * when the last one is done. Prints one line of JSON.
 */
#define _GNU_SOURCE
#include "common.h"

#include <getopt.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define PEERS 20
#define MESSAGE_BYTES 100

struct member {
	int sender;
	/* One of a receiver, PEERS of a sender. */
	int descriptors[PEERS];
};

static long loops = 200;
/* How long each message took from its sender to its receiver, where that is asked for, and how many have come. */
static int64_t *each_ns;
static long *nr_each;
/* CPU time of all senders. */
static int64_t *senders_ns;
/* Every process writes a byte to `ready` and then reads one from `go`. */
static int ready[2], go[2];

static ssize_t put(int descriptor, char *bytes, size_t size)
{
	return write(descriptor, bytes, size);
}

static ssize_t get(int descriptor, char *bytes, size_t size)
{
	return read(descriptor, bytes, size);
}

static void move(ssize_t (*step)(int, char *, size_t), int descriptor)
{
	char message[MESSAGE_BYTES] = {0};
	size_t done = 0;
	int64_t sent_ns;

	if (each_ns && step == put) {
		sent_ns = now_ns();
		memcpy(message, &sent_ns, sizeof(sent_ns));
	}
	while (done < sizeof(message)) {
		ssize_t moved = step(descriptor, message + done, sizeof(message) - done);

		if (moved <= 0)
			die(EXIT_MACHINE, "a message: %s", strerror(errno));
		done += moved;
	}
	if (each_ns && step == get) {
		memcpy(&sent_ns, message, sizeof(sent_ns));
		each_ns[__atomic_fetch_add(nr_each, 1, __ATOMIC_RELAXED)] = now_ns() - sent_ns;
	}
}

static void *run(void *argument)
{
	struct member *member = argument;
	char byte = 0;

	if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1)
		die(EXIT_MACHINE, "cannot start together: %s", strerror(errno));
	for (long i = 0; i < loops; i++)
		for (int peer = 0; peer < PEERS; peer++)
			if (member->sender)
				move(put, member->descriptors[peer]);
			else
				move(get, member->descriptors[0]);
	if (senders_ns && member->sender)
		__atomic_fetch_add(senders_ns, thread_ns(), __ATOMIC_RELAXED);
	return NULL;
}

static void start(struct member *member, int threads, pthread_t *id)
{
	if (threads) {
		pthread_attr_t small;

		pthread_attr_init(&small);
		pthread_attr_setstacksize(&small, 64 * 1024);
		if (pthread_create(id, &small, run, member))
			die(EXIT_MACHINE, "cannot start a thread");
		return;
	}
	switch (fork()) {
	case -1:
		die(EXIT_MACHINE, "fork: %s", strerror(errno));
	case 0:
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run(member);
		_exit(0);
	}
}

static void make_group(struct member *members, int pipes)
{
	for (int receiver = 0; receiver < PEERS; receiver++) {
		int ends[2];

		/* ends[0] reads, ends[1] writes. */
		if (pipes ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
			die(EXIT_MACHINE, "cannot connect: %s", strerror(errno));
		members[receiver].descriptors[0] = ends[0];
		for (int sender = 0; sender < PEERS; sender++) {
			members[PEERS + sender].sender = 1;
			members[PEERS + sender].descriptors[receiver] = ends[1];
		}
	}
}

enum option_id { GROUPS = 1, LOOPS, PIPES, THREADS, LABEL, EACH };

static const struct option options[] = {
    {"groups", 1, 0, GROUPS}, {"loops", 1, 0, LOOPS}, {"pipes", 0, 0, PIPES}, {"threads", 0, 0, THREADS},
    {"label", 1, 0, LABEL},   {"each", 0, 0, EACH},   {0, 0, 0, 0},
};

static const char usage[] =
    "hackbench [--groups 2] [--loops 200] [--pipes] [--threads] [--each] [--label TEXT]\n"
    "  --each  takes the time of each message from sender to receiver, and prints p50_ns and p99_ns";

int main(int argc, char **argv)
{
	struct rlimit many = {.rlim_cur = 65536, .rlim_max = 65536};
	int id, pipes = 0, threads = 0, takes_each = 0;
	const char *label = "";
	long groups = 2, members;
	int64_t from, until;

	while ((id = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (id) {
		case GROUPS:
			groups = number("groups", optarg, 1, 1000);
			break;
		case LOOPS:
			loops = number("loops", optarg, 1, 1000000);
			break;
		case PIPES:
			pipes = 1;
			break;
		case THREADS:
			threads = 1;
			break;
		case EACH:
			takes_each = 1;
			break;
		case LABEL:
			label = optarg;
			break;
		default:
			die(EXIT_USAGE, "see above\n%s", usage);
		}
	}
	if (optind != argc)
		die(EXIT_USAGE, "%s\n%s", argv[optind], usage);
	setrlimit(RLIMIT_NOFILE, &many);
	if (pipe(ready) || pipe(go))
		die(EXIT_MACHINE, "pipe: %s", strerror(errno));
	members = groups * 2 * PEERS;
	if (takes_each) {
		nr_each = shared(sizeof(*nr_each));
		senders_ns = shared(sizeof(*senders_ns));
		each_ns = shared(groups * PEERS * PEERS * loops * sizeof(*each_ns));
	}
	struct member *all = calloc(members, sizeof(*all));
	pthread_t *ids = calloc(members, sizeof(*ids));
	char *bytes = calloc(members, 1);

	if (!all || !ids || !bytes)
		die(EXIT_MACHINE, "no memory for %ld members", members);
	for (long group = 0; group < groups; group++)
		make_group(&all[group * 2 * PEERS], pipes);
	for (long i = 0; i < members; i++)
		start(&all[i], threads, &ids[i]);
	for (long i = 0; i < members; i++)
		if (read(ready[0], bytes, 1) != 1)
			die(EXIT_MACHINE, "cannot start together: %s", strerror(errno));
	from = now_ns();
	if (write(go[1], bytes, members) != members)
		die(EXIT_MACHINE, "cannot start together: %s", strerror(errno));
	for (long i = 0; i < members; i++) {
		int status = 0;

		if (threads)
			pthread_join(ids[i], NULL);
		else if (wait(&status) < 0 || status)
			die(EXIT_MACHINE, "a process failed");
	}
	until = now_ns();
	printf("{\"program\":\"hackbench\",\"label\":\"%s\",\"groups\":%ld,\"loops\":%ld,\"pipes\":%d,"
	       "\"threads\":%d,"
	       "\"time_us\":%lld",
	       label, groups, loops, pipes, threads, (long long)(until - from) / NSEC_PER_USEC);
	if (takes_each) {
		qsort(each_ns, *nr_each, sizeof(*each_ns), by_value);
		printf(",\"senders_us\":%lld,\"p50_ns\":%lld,\"p99_ns\":%lld",
		       (long long)*senders_ns / NSEC_PER_USEC, (long long)each_ns[*nr_each / 2],
		       (long long)each_ns[*nr_each * 99 / 100]);
	}
	printf("}\n");
	return 0;
}

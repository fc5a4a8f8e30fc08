/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * pairs: where a kernel lets processes run that ask and answer each other.
 *
 * A client and a server process for each pair pass a message back and forth, as tbench, netperf's TCP_RR and UnixBench's
 * context switching do; nothing else runs. Prints one line of JSON: round trips, and every 10 ms which pairs are on one
 * CPU, and how much of the machine idles. The simulator's counterpart is the workload `request_response`.
 */
#define _GNU_SOURCE
#include "common.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define PAIRS_MAX 256
#define MESSAGE_BYTES 64
#define SETTLE_NS (NSEC_PER_SEC / 2)
#define SAMPLE_NS (10 * 1000 * NSEC_PER_USEC)

enum option_id { PAIRS = 1, CHANNEL, DURATION, WORK };

static const struct option options[] = {
    {"pairs", 1, 0, PAIRS},
    {"channel", 1, 0, CHANNEL},
    {"duration-ms", 1, 0, DURATION},
    {"work", 1, 0, WORK},
    {0},
};

static const char usage[] = "pairs [--pairs 1] [--channel pipe|tcp] [--duration-ms 1000] [--work 100]\n"
			    "  --channel  two pipes, or a TCP connection over loopback, for each pair\n"
			    "  --work     turns of a loop that each side does for each message";

/* One process, in memory that all share. */
struct side {
	volatile uint64_t trips;
	volatile int cpu;
	char line[52]; /* no line in common with another one */
};

/* What one side reads from and writes to. */
struct ends {
	int in, out;
};

static void loopback_up(void)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	int s = socket(AF_INET, SOCK_DGRAM, 0);

	if (s < 0 || ioctl(s, SIOCSIFFLAGS, &request))
		die(EXIT_MACHINE, "lo: %s", strerror(errno));
	close(s);
}

static void connect_pipes(struct ends *client, struct ends *server)
{
	int there[2], back[2];

	if (pipe(there) || pipe(back))
		die(EXIT_MACHINE, "pipe: %s", strerror(errno));
	*client = (struct ends){back[0], there[1]};
	*server = (struct ends){there[0], back[1]};
}

static void connect_tcp(struct ends *client, struct ends *server)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, near, far;

	if (listener < 0 || bind(listener, (void *)&address, length) || listen(listener, 1) ||
	    getsockname(listener, (void *)&address, &length))
		die(EXIT_MACHINE, "listen: %s", strerror(errno));
	near = socket(AF_INET, SOCK_STREAM, 0);
	if (near < 0 || connect(near, (void *)&address, length))
		die(EXIT_MACHINE, "connect: %s", strerror(errno));
	far = accept(listener, NULL, NULL);
	if (far < 0 || setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) ||
	    setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		die(EXIT_MACHINE, "accept: %s", strerror(errno));
	close(listener);
	*client = (struct ends){near, near};
	*server = (struct ends){far, far};
}

static void receive(int fd)
{
	char message[MESSAGE_BYTES];
	ssize_t got, part;

	for (got = 0; got < MESSAGE_BYTES; got += part) {
		part = read(fd, message + got, MESSAGE_BYTES - (size_t)got);
		if (part <= 0)
			die(EXIT_MACHINE, "read: %s", strerror(errno));
	}
}

static pid_t begin(struct side *side, struct ends ends, int asks, int work)
{
	static const char message[MESSAGE_BYTES];
	pid_t pid = fork();

	if (pid < 0)
		die(EXIT_MACHINE, "fork: %s", strerror(errno));
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		if (!asks)
			receive(ends.in);
		turns(work);
		if (write(ends.out, message, MESSAGE_BYTES) != MESSAGE_BYTES)
			die(EXIT_MACHINE, "write: %s", strerror(errno));
		if (asks)
			receive(ends.in);
		side->cpu = sched_getcpu();
		side->trips++;
	}
}

/* Ticks of 10 ms that all CPUs together have idled, and that have gone by. */
static void look_at_cpus(long *idle, long *all)
{
	FILE *file = fopen("/proc/stat", "r");
	long ticks[8];

	if (!file || fscanf(file, "cpu %ld %ld %ld %ld %ld %ld %ld %ld", ticks, ticks + 1, ticks + 2,
			    ticks + 3, ticks + 4, ticks + 5, ticks + 6, ticks + 7) != 8)
		die(EXIT_MACHINE, "/proc/stat: %s", strerror(errno));
	fclose(file);
	*idle = ticks[3] + ticks[4];
	*all = 0;
	for (int i = 0; i < 8; i++)
		*all += ticks[i];
}

static uint64_t trips(const struct side *clients, int pairs)
{
	uint64_t sum = 0;

	for (int i = 0; i < pairs; i++)
		sum += clients[i].trips;
	return sum;
}

int main(int argc, char **argv)
{
	int pairs = 1, work = 100, tcp = 0, id;
	long duration_ms = 1000, idle, idle_after, all, all_after, together = 0, samples = 0;
	struct side *clients, *servers;
	int64_t from_ns, at_ns;
	uint64_t before;
	double seconds;

	while ((id = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (id) {
		case PAIRS:
			pairs = (int)number("pairs", optarg, 1, PAIRS_MAX);
			break;
		case CHANNEL:
			tcp = !strcmp(optarg, "tcp");
			if (!tcp && strcmp(optarg, "pipe"))
				die(EXIT_USAGE, "--channel %s: allowed: pipe, tcp", optarg);
			break;
		case DURATION:
			duration_ms = number("duration-ms", optarg, 100, 3600000);
			break;
		case WORK:
			work = (int)number("work", optarg, 0, 1000000000);
			break;
		default:
			die(EXIT_USAGE, "see above\n%s", usage);
		}
	}
	if (optind != argc)
		die(EXIT_USAGE, "%s\n%s", argv[optind], usage);
	clients = shared(2 * (size_t)pairs * sizeof(*clients));
	servers = clients + pairs;
	if (tcp)
		loopback_up();
	for (int i = 0; i < pairs; i++) {
		struct ends client, server;

		(tcp ? connect_tcp : connect_pipes)(&client, &server);
		begin(&servers[i], server, 0, work);
		begin(&clients[i], client, 1, work);
	}
	from_ns = now_ns() + SETTLE_NS;
	sleep_until(from_ns);
	look_at_cpus(&idle, &all);
	before = trips(clients, pairs);
	for (at_ns = from_ns + SAMPLE_NS; at_ns <= from_ns + duration_ms * 1000 * NSEC_PER_USEC;
	     at_ns += SAMPLE_NS) {
		sleep_until(at_ns);
		for (int i = 0; i < pairs; i++, samples++)
			together += clients[i].cpu == servers[i].cpu;
	}
	look_at_cpus(&idle_after, &all_after);
	seconds = (double)(now_ns() - from_ns) / NSEC_PER_SEC;
	printf("{\"program\":\"pairs\",\"channel\":\"%s\",\"pairs\":%d,\"round_trips_per_s\":%.0f,\"on_one_"
	       "cpu_percent\":%.1f,"
	       "\"idle_percent\":%.1f}\n",
	       tcp ? "tcp" : "pipe", pairs, (double)(trips(clients, pairs) - before) / seconds,
	       100.0 * together / samples, 100.0 * (idle_after - idle) / (all_after - all));
	return 0;
}

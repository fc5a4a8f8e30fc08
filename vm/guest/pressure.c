/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * pressure KIND GROUP MSEC [COUNT]: one side of a CPU for MSEC, in GROUP. Prints what it got: CPU time, and the longest
 * time in which its first thread executed nothing.
 *
 *	spin    COUNT processes that run without end
 *	births  a process is made every millisecond that runs for 1.5 ms of its own time and exits
 *	yield   calls sched_yield() without end
 *	naps    sleeps for 10 ms and works for 100 us in turn; the longest time is that by which it woke too late
 */
#define _GNU_SOURCE
#include "common.h"
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define NSEC_PER_MSEC 1000000LL
#define BIRTH_EVERY_NS (1 * NSEC_PER_MSEC)
#define BIRTH_WORK_NS (1500 * NSEC_PER_USEC)

static int64_t longest_ns;

static void passed(int64_t *last_ns, int64_t now)
{
	if (now - *last_ns > longest_ns)
		longest_ns = now - *last_ns;
	*last_ns = now;
}

static void spin(int64_t until_ns)
{
	int64_t last_ns = now_ns();

	while (last_ns < until_ns) {
		turns(2000);
		passed(&last_ns, now_ns());
	}
}

static void births(int64_t until_ns)
{
	int64_t at_ns = now_ns();

	signal(SIGCHLD, SIG_IGN);
	for (; at_ns < until_ns; at_ns += BIRTH_EVERY_NS) {
		sleep_until(at_ns);
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			while (thread_ns() < BIRTH_WORK_NS && now_ns() < until_ns)
				turns(2000);
			_exit(0);
		}
	}
}

static void yield(int64_t until_ns)
{
	int64_t last_ns = now_ns();

	while (last_ns < until_ns) {
		sched_yield();
		passed(&last_ns, now_ns());
	}
}

static void naps(int64_t until_ns)
{
	int64_t at_ns = now_ns() + 10 * NSEC_PER_MSEC;

	while (at_ns < until_ns) {
		int64_t woke_ns, begin_ns = thread_ns();

		sleep_until(at_ns);
		woke_ns = now_ns();
		if (woke_ns - at_ns > longest_ns)
			longest_ns = woke_ns - at_ns;
		while (thread_ns() < begin_ns + 100 * NSEC_PER_USEC)
			turns(100);
		at_ns = now_ns() + 10 * NSEC_PER_MSEC;
	}
}

static int64_t used_usec(const char *group)
{
	char text[2048];
	long long usec;

	cgroup_read(group, "cpu.stat", text, sizeof(text));
	if (sscanf(text, "usage_usec %lld", &usec) != 1)
		die(EXIT_MACHINE, "cpu.stat of %s cannot be read", group);
	return usec;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(int64_t until_ns);
	} kinds[] = {{"spin", spin}, {"births", births}, {"yield", yield}, {"naps", naps}};
	int64_t until_ns, before;
	size_t kind = 0;
	long msec, count, i;

	if (argc < 4)
		die(EXIT_USAGE, "give KIND GROUP MSEC [COUNT]");
	msec = number("msec", argv[3], 1, 100000);
	count = argc > 4 ? number("count", argv[4], 1, 1000) : 1;
	while (kind < sizeof(kinds) / sizeof(*kinds) && strcmp(kinds[kind].name, argv[1]))
		kind++;
	if (kind == sizeof(kinds) / sizeof(*kinds))
		die(EXIT_USAGE, "%s: allowed: spin, births, yield, naps", argv[1]);
	cgroup_join(argv[2]);
	before = used_usec(argv[2]);
	until_ns = now_ns() + msec * NSEC_PER_MSEC;
	for (i = 1; i < count; i++) {
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			kinds[kind].run(until_ns);
			_exit(0);
		}
	}
	kinds[kind].run(until_ns);
	printf("%lld %lld\n", (long long)(used_usec(argv[2]) - before) / 1000, (long long)longest_ns / 1000);
	return 0;
}

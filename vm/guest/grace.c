/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * grace ROUNDS: RCU's grace periods end in good time while processes in system calls are throttled.
 *
 * Everything that the kernel takes out of use waits for a grace period, and one ends only when every reader of RCU
 * has left. Beside a spinner for each CPU there are two processes for each that are in the kernel all the time, limited
 * to 2 ms in 200 ms together: one as its reader (its own CPU clock), one copying, too. A task that is throttled as a
 * reader, or held where it is one, holds grace periods up until it has run time again.
 */
#define _GNU_SOURCE
#include "crowd.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>

#define CPUS_MAX 64
/* A spinner of each CPU, two of its ticks, and the task that waits for the end has to run again: 10 to 30 ms. */
#define GRACE_MAX_NS (100 * NSEC_PER_MSEC)

int main(int argc, char **argv)
{
	long rounds = number("rounds", argc > 1 ? argv[1] : "20", 1, 1000000), round;
	int nr_cpus = cpus_online(), count = 0, cpu;
	struct member *members = shared(3 * CPUS_MAX * sizeof(*members));
	struct work spin = {0}, copy = {.zeros = 256 << 10};
	int64_t longest_ns = 0, sum_ns = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (nr_cpus < 2 || nr_cpus > CPUS_MAX)
		die(EXIT_MACHINE, "2 to %d CPUs are needed, here are %d", CPUS_MAX, nr_cpus);
	group_make("limited");
	group_write("limited", "cpu.max", "2000 200000");
	for (cpu = 0; cpu < nr_cpus; cpu++) {
		member_start(&members[count++], NULL, &spin);
		member_start(&members[count++], "limited", &spin);
		member_start(&members[count++], "limited", &copy);
	}
	/*
	 * Not until each has made progress: one copy takes 0.5 ms, four times that on the clock of a machine that emulates
	 * its CPUs in turn, and eight share 2 ms.
	 */
	doing = "starting the load";
	members_joined(members, count);
	pause_ms(1000);

	doing = "waiting for grace periods";
	for (round = 0; round < rounds; round++) {
		int64_t begin_ns = now_ns(), took_ns;

		if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0))
			die(EXIT_MACHINE, "the kernel has no membarrier: %s", strerror(errno));
		took_ns = now_ns() - begin_ns;
		sum_ns += took_ns;
		if (took_ns > longest_ns)
			longest_ns = took_ns;
		pause_ms(20);
	}
	doing = "killing";
	members_kill(members, count);
	group_remove("limited");
	doing = "looking how long they took";
	printf("grace: %ld grace periods, %lld ms each, %lld ms the longest\n", rounds,
	       (long long)(sum_ns / rounds / NSEC_PER_MSEC), (long long)longest_ns / NSEC_PER_MSEC);
	if (longest_ns > GRACE_MAX_NS)
		fail("a grace period took %lld ms", (long long)longest_ns / NSEC_PER_MSEC);
	return 0;
}

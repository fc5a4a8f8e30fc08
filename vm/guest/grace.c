/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * grace ROUNDS: RCU's grace periods end in good time while processes in system calls are throttled.
 *
 * Everything that the kernel takes out of use waits for a grace period, and one ends only when every reader of RCU
 * has left. Beside spinners, on every CPU are processes, each limited to 2 ms in 200 ms, that are in the kernel all
 * the time: half as its readers (their own CPU clock), half copying. Whoever is throttled as a reader, or held where it
 * is one, holds grace periods up until it has run time again.
 */
#define _GNU_SOURCE
#include "crowd.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>

#define LIMITED_PER_CPU 2
#define CPUS_MAX 64
#define BYTES (256 << 10)
/* A spinner of each CPU, two of its ticks, and who waits for the end has to be run again: 10 to 30 ms. */
#define GRACE_MAX_NS (100 * NSEC_PER_MSEC)

static pid_t copier_start(const char *group)
{
	static char buffer[BYTES];
	pid_t pid = fork();
	int fd;

	if (pid < 0)
		die(EXIT_MACHINE, "cannot fork: %s", strerror(errno));
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	cgroup_join(group);
	fd = open("/dev/zero", O_RDONLY);
	while (fd >= 0 && read(fd, buffer, sizeof(buffer)) > 0)
		;
	_exit(EXIT_MACHINE);
}

int main(int argc, char **argv)
{
	long rounds = number("rounds", argc > 1 ? argv[1] : "20", 1, 1000000), round;
	int nr_cpus = cpus_online(), nr_members = 0, nr_copiers = 0, cpu, i;
	struct member *members = shared(2 * CPUS_MAX * LIMITED_PER_CPU * sizeof(*members));
	pid_t copiers[CPUS_MAX];
	struct work spin = {0};
	int64_t longest_ns = 0, sum_ns = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (nr_cpus > CPUS_MAX)
		die(EXIT_MACHINE, "at most %d CPUs are expected, here are %d", CPUS_MAX, nr_cpus);
	group_make("limited");
	group_write("limited", "cpu.max", "2000 200000");
	for (cpu = 0; cpu < nr_cpus; cpu++) {
		member_start(&members[nr_members++], NULL, &spin);
		for (i = 0; i < LIMITED_PER_CPU; i++)
			if (i % 2)
				copiers[nr_copiers++] = copier_start("limited");
			else
				member_start(&members[nr_members++], "limited", &spin);
	}
	doing = "starting the load";
	members_progress(members, nr_members);

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
	for (i = 0; i < nr_copiers; i++)
		kill(copiers[i], SIGKILL);
	for (i = 0; i < nr_copiers; i++)
		waitpid(copiers[i], NULL, 0);
	members_kill(members, nr_members);
	group_remove("limited");
	doing = "looking how long they took";
	printf("grace: %ld grace periods, %lld ms each, %lld ms the longest\n", rounds,
	       (long long)(sum_ns / rounds / NSEC_PER_MSEC), (long long)longest_ns / NSEC_PER_MSEC);
	if (longest_ns > GRACE_MAX_NS)
		fail("a grace period took %lld ms", (long long)longest_ns / NSEC_PER_MSEC);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * hotplug CYCLES [SEED]: CPUs go off and come back under load; what waited for one of them runs elsewhere.
 *
 * The load: spinners without a limit, spinners in two throttled groups, spinners bound to one CPU each (the kernel
 * frees those from a CPU that goes away), and sleepers. After each CPU is off, and again once all are back, every
 * process makes progress, and none runs on a CPU that is off.
 */
#define _GNU_SOURCE
#include "crowd.h"

#define FREE 6
#define THROTTLED 8
#define BOUND_MAX 8
#define SLEEPERS 4
#define MEMBERS_MAX (FREE + THROTTLED + BOUND_MAX + SLEEPERS)
#define SWITCH_NS (10 * NSEC_PER_SEC) /* longer for one CPU to go or come, and it hangs */

static int nr_cpus;

static void cpu_switch(int cpu, int on)
{
	char path[64];
	int64_t begin_ns = now_ns();
	int fd;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
	fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, on ? "1" : "0", 1) != 1)
		fail("CPU %d does not go %s: %s", cpu, on ? "on" : "off", strerror(errno));
	close(fd);
	if (now_ns() - begin_ns > SWITCH_NS)
		fail("CPU %d took %lld ms to go %s", cpu, (long long)(now_ns() - begin_ns) / NSEC_PER_MSEC,
		     on ? "on" : "off");
}

static void rebind(struct member *bound)
{
	int cpu;

	for (cpu = 0; cpu < nr_cpus; cpu++)
		pin(bound[cpu].pid, 1ULL << cpu);
}

int main(int argc, char **argv)
{
	long cycles = number("cycles", argc > 1 ? argv[1] : "5", 1, 1000000);
	uint64_t seed = (uint64_t)number("seed", argc > 2 ? argv[2] : "1", 0, 1L << 40);
	struct member *members = shared(MEMBERS_MAX * sizeof(*members)), *bound;
	struct work spin = {0}, nap = {.sleep_ns = NSEC_PER_MSEC};
	int64_t longest_ns = 0, begin_ns;
	int count = 0, cpu, i;
	long cycle;

	setvbuf(stdout, NULL, _IOLBF, 0);
	nr_cpus = cpus_online();
	if (nr_cpus < 2 || nr_cpus > BOUND_MAX)
		die(EXIT_MACHINE, "2 to %d CPUs are needed, here are %d", BOUND_MAX, nr_cpus);
	group_make("slow");
	group_make("slower");
	group_write("slow", "cpu.max", "20000 100000");
	group_write("slower", "cpu.max", "2000 50000");
	for (i = 0; i < FREE; i++)
		member_start(&members[count++], NULL, &spin);
	for (i = 0; i < THROTTLED; i++)
		member_start(&members[count++], i % 2 ? "slow" : "slower", &spin);
	for (i = 0; i < SLEEPERS; i++)
		member_start(&members[count++], i % 2 ? "slow" : NULL, &nap);
	bound = members + count;
	for (cpu = 0; cpu < nr_cpus; cpu++)
		member_start(&members[count++], cpu % 2 ? "slow" : NULL, &spin);
	rebind(bound);
	doing = "starting the load";
	members_progress(members, count);

	for (cycle = 0; cycle < cycles; cycle++) {
		int first = 1 + (int)chance(&seed, (uint32_t)nr_cpus - 1);
		int all = !chance(&seed, 4); /* all but CPU 0 */

		doing = "switching CPUs off";
		for (cpu = 1; cpu < nr_cpus; cpu++)
			if (all || cpu == first) {
				begin_ns = now_ns();
				cpu_switch(cpu, 0);
				if (now_ns() - begin_ns > longest_ns)
					longest_ns = now_ns() - begin_ns;
			}
		doing = "looking for progress with CPUs off";
		/* Once before: a process may have read its CPU while that was on, and been preempted before it noted it. */
		members_progress(members, count);
		for (i = 0; i < count; i++)
			members[i].cpus = 0;
		members_progress(members, count);
		for (i = 0; i < count; i++)
			if (members[i].cpus >> first & 1)
				fail("process %d runs on CPU %d, which is off (of it and CPUs %#llx): %s",
				     members[i].pid, first, (unsigned long long)members[i].cpus,
				     state_of(members[i].pid));
		doing = "switching CPUs on";
		for (cpu = 1; cpu < nr_cpus; cpu++)
			if (all || cpu == first)
				cpu_switch(cpu, 1);
		rebind(bound);
		doing = "looking for progress with CPUs on again";
		members_progress(members, count);
		if (cycle % 25 == 24)
			fprintf(stderr, "cycle %ld of %ld\n", cycle + 1, cycles);
	}
	doing = "looking where bound processes run";
	members_progress(bound, nr_cpus);
	for (cpu = 0; cpu < nr_cpus; cpu++)
		bound[cpu].cpus = 0;
	members_progress(bound, nr_cpus);
	for (cpu = 0; cpu < nr_cpus; cpu++)
		if (bound[cpu].cpus != 1ULL << cpu)
			fail("process %d is bound to CPU %d and ran on CPUs %#llx", bound[cpu].pid, cpu,
			     (unsigned long long)bound[cpu].cpus);
	doing = "killing";
	members_kill(members, count);
	group_remove("slow");
	group_remove("slower");
	printf("hotplug: %ld cycles, %d processes, none lost; a CPU went off in %lld ms at most\n", cycles,
	       count, (long long)longest_ns / NSEC_PER_MSEC);
	return 0;
}

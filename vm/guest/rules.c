/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * rules: nice, affinity, cpusets and cpu.idle do what Linux says they do.
 *
 *	nice 0 against 1 and against 5 on one CPU: 1.25 and 3.05 times the CPU time (the kernel's own table of weights)
 *	a process bound to CPUs, or in a cpuset, never does a unit of work elsewhere, whatever pulls at it
 *	a group with cpu.idle leaves what it has to a group without, and takes what is left when that sleeps; groups below
 *	it do, too, and nice values keep their meaning there
 */
#define _GNU_SOURCE
#include "crowd.h"

#define MEASURED_MS 4000

/* Units that two spinners got on one CPU, the first divided by the second. */
static double ratio(const char *one_group, int one_nice, const char *two_group, int two_nice)
{
	struct member *members = shared(2 * sizeof(*members));
	struct work work[2] = {{.nice = one_nice}, {.nice = two_nice}};
	const char *groups[2] = {one_group, two_group};
	int64_t before[2];
	double result;
	int i;

	for (i = 0; i < 2; i++) {
		member_start(&members[i], groups[i], &work[i]);
		AWAIT(members[i].joined, "process %d does not start", members[i].pid);
		pin(members[i].pid, 2);
	}
	pause_ms(500);
	for (i = 0; i < 2; i++)
		before[i] = members[i].units;
	pause_ms(MEASURED_MS);
	result = (double)(members[0].units - before[0]) /
		 (double)(members[1].units - before[1] ? members[1].units - before[1] : 1);
	members_kill(members, 2);
	return result;
}

static void expect_between(const char *what, double measured, double least, double most)
{
	printf("  %-44s %8.3f, allowed %.3f to %.3f\n", what, measured, least, most);
	if (measured < least || measured > most)
		fail("%s: %.3f", what, measured);
}

static void expect_home(const char *what, struct member *members, int count, uint64_t cpus)
{
	int i;

	doing = what;
	for (i = 0; i < count; i++) {
		members[i].allowed = cpus;
		members[i].stray_units = 0;
	}
	pause_ms(1000);
	members_progress(members, count);
	for (i = 0; i < count; i++)
		if (members[i].stray_units)
			fail("process %d worked %lld times outside of CPUs %#llx", members[i].pid,
			     (long long)members[i].stray_units, (unsigned long long)cpus);
	printf("  %-44s %d processes on CPUs %#llx only\n", what, count, (unsigned long long)cpus);
}

int main(void)
{
	struct member *members = shared(12 * sizeof(*members));
	struct work spin = {0}, nap = {.sleep_ns = 3 * NSEC_PER_MSEC};
	int i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (cpus_online() < 4)
		die(EXIT_MACHINE, "4 CPUs are needed");
	group_make("plain");
	group_make("idle");
	group_write("idle", "cpu.idle", "1");
	group_make("outer");
	group_write("outer", "cgroup.subtree_control", "+cpu");
	group_make("outer/inner");
	group_write("outer", "cpu.idle", "1");
	doing = "comparing nice values";
	expect_between("nice 0 over nice 1", ratio("plain", 0, "plain", 1), 1.20, 1.30);
	expect_between("nice 0 over nice 5", ratio("plain", 0, "plain", 5), 2.90, 3.20);
	expect_between("nice -5 over nice 0", ratio("plain", -5, "plain", 0), 2.90, 3.20);
	doing = "comparing cpu.idle";
	/* 1024 : 3 by weight; a bounded wait gives the idle one a slice of 3 ms in each second, too. */
	expect_between("a plain group over a cpu.idle group", ratio("plain", 0, "idle", 0), 150, 1e9);
	expect_between("a plain group over a group in it", ratio("plain", 0, "outer/inner", 0), 150, 1e9);
	expect_between("nice 0 over nice 5 in there", ratio("outer/inner", 0, "outer/inner", 5), 2.90, 3.20);

	/* Four spinners that no one holds back pull and are pulled; the others must stay where they may be. */
	group_make("set");
	group_write("set", "cpuset.cpus", "1-2");
	for (i = 0; i < 12; i++)
		member_start(&members[i], i < 4 ? "plain" : i < 8 ? "set" : NULL, i % 2 ? &nap : &spin);
	for (i = 0; i < 12; i++)
		AWAIT(members[i].joined, "process %d does not start", members[i].pid);
	for (i = 8; i < 12; i++)
		pin(members[i].pid, 8);
	pause_ms(10);
	expect_home("affinity", members + 8, 4, 8);
	expect_home("cpuset", members + 4, 4, 6);
	group_write("set", "cpu.max", "10000 50000");
	group_write("set", "cpuset.cpus", "3");
	pause_ms(100);
	expect_home("cpuset changed, throttled", members + 4, 4, 8);
	for (i = 8; i < 12; i++)
		pin(members[i].pid, 1);
	pause_ms(100);
	expect_home("affinity changed", members + 8, 4, 1);
	doing = "killing";
	members_kill(members, 12);
	group_remove("plain");
	group_remove("idle");
	group_remove("outer/inner");
	group_remove("outer");
	group_remove("set");
	printf("rules: nice, affinity, cpusets and cpu.idle hold\n");
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * limits WRITES: limits are rewritten again and again under load, at two levels of a tree; the last ones hold.
 *
 * Two writers change cpu.max of a group and of its parent, together WRITES times, from next to nothing to no limit, while
 * ten spinners run or wait in the child and come and go between CPUs. Then a limit is left to stand and measured, and
 * then none.
 */
#define _GNU_SOURCE
#include "crowd.h"

#define SPINNERS 10
#define LAST "30000 100000"
#define LAST_PERCENT 30
#define MEASURED_MS 2000
/* A period's quota may fall on either side of both ends of the time measured. */
#define TOLERANCE_PERCENT 3

static const char *const limits[] = {"1000 1000000", "max 100000",    "1000 1000",	"50000 100000",
				     "2000 10000",   "400000 100000", "100000 1000000", "max 1000"};

static void __attribute__((noreturn)) writer_run(const char *group, long writes, uint64_t seed)
{
	long i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (i = 0; i < writes; i++) {
		group_write(group, "cpu.max", limits[chance(&seed, sizeof(limits) / sizeof(*limits))]);
		usleep(chance(&seed, 4000));
	}
	_exit(0);
}

/* Percent of one CPU that a group uses. */
static int used_percent(const char *group)
{
	int64_t begin_ns = now_ns(), before_us = group_usage_us(group);

	pause_ms(MEASURED_MS);
	return (int)((group_usage_us(group) - before_us) * 100 * NSEC_PER_USEC / (now_ns() - begin_ns));
}

int main(int argc, char **argv)
{
	long writes = number("writes", argc > 1 ? argv[1] : "50", 2, 10000000);
	struct member *members = shared(SPINNERS * sizeof(*members));
	struct work spin = {0};
	pid_t writers[2];
	int i, status, percent;

	setvbuf(stdout, NULL, _IOLBF, 0);
	cgroup_make("outer/inner/");
	for (i = 0; i < SPINNERS; i++)
		member_start(&members[i], "outer/inner", &spin);
	for (i = 0; i < 2; i++) {
		writers[i] = fork();
		if (!writers[i])
			writer_run(i ? "outer" : "outer/inner", writes / 2, (uint64_t)i + 1);
	}
	doing = "rewriting limits";
	for (i = 0; i < 2; i++)
		if (waitpid(writers[i], &status, 0) < 0 || status)
			fail("writer %d ended with status %#x", i, status);

	group_write("outer", "cpu.max", "max 100000");
	group_write("outer/inner", "cpu.max", LAST);
	members_progress(members, SPINNERS);
	doing = "measuring the last limit";
	percent = used_percent("outer/inner");
	if (percent < LAST_PERCENT - TOLERANCE_PERCENT || percent > LAST_PERCENT + TOLERANCE_PERCENT)
		fail("%d%% used of a CPU, the limit is %d%%", percent, LAST_PERCENT);
	doing = "looking for progress without a limit";
	group_write("outer/inner", "cpu.max", "max 100000");
	members_progress(members, SPINNERS);
	doing = "killing";
	members_kill(members, SPINNERS);
	group_remove("outer/inner");
	group_remove("outer");
	printf("limits: %ld writes, %d processes, none lost; the last limit of %d%% measured as %d%%\n",
	       writes, SPINNERS, LAST_PERCENT, percent);
	return 0;
}

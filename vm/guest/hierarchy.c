/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * hierarchy DEPTH WIDTH: a chain of groups DEPTH deep with a limit at every level, then WIDTH groups beside each other.
 *
 * At the bottom of the chain the tightest limit of all levels holds, at whatever level it is. Of the many groups every
 * one gets a limit, and every 100th a process that has work to finish.
 */
#define _GNU_SOURCE
#include "crowd.h"

#define SPINNERS 4
#define TIGHT "20000 100000"
#define TIGHT_PERCENT 20
#define LOOSE "90000 100000"
#define MEASURED_MS 3000
#define TOLERANCE_PERCENT 2

static void chain_name(char *name, size_t size, long depth)
{
	size_t length = 0;
	long i;

	for (i = 0; i < depth; i++)
		length += (size_t)snprintf(name + length, size - length, i ? "/%ld" : "deep%ld", i);
}

static void deep(long depth)
{
	struct member *members = shared(SPINNERS * sizeof(*members));
	struct work spin = {0};
	char name[400];
	long level, tight;
	int i;

	doing = "making a deep chain";
	for (level = 1; level <= depth; level++) {
		chain_name(name, sizeof(name), level);
		group_make(name);
		group_write(name, "cpu.max", LOOSE);
		if (level < depth)
			group_write(name, "cgroup.subtree_control", "+cpu");
	}
	for (i = 0; i < SPINNERS; i++)
		member_start(&members[i], name, &spin);
	doing = "looking for progress in a deep chain";
	members_progress(members, SPINNERS);
	for (tight = 1; tight <= depth; tight += depth > 2 ? (depth - 1) / 2 : 1) {
		char group[400];
		int64_t begin_ns, before_us;
		int percent;

		chain_name(group, sizeof(group), tight);
		group_write(group, "cpu.max", TIGHT);
		pause_ms(300);
		begin_ns = now_ns();
		before_us = group_usage_us(name);
		pause_ms(MEASURED_MS);
		percent =
		    (int)((group_usage_us(name) - before_us) * 100 * NSEC_PER_USEC / (now_ns() - begin_ns));
		printf("  depth %ld, limit at level %ld: %d%% of %d%%\n", depth, tight, percent,
		       TIGHT_PERCENT);
		if (percent < TIGHT_PERCENT - TOLERANCE_PERCENT ||
		    percent > TIGHT_PERCENT + TOLERANCE_PERCENT)
			fail("%d%% used of a CPU, level %ld of %ld allows %d%%", percent, tight, depth,
			     TIGHT_PERCENT);
		group_write(group, "cpu.max", LOOSE);
	}
	doing = "killing";
	members_kill(members, SPINNERS);
	for (level = depth; level > 0; level--) {
		chain_name(name, sizeof(name), level);
		group_remove(name);
	}
}

static void wide(long width)
{
	long count = (width + 99) / 100, i;
	struct member *members = shared((size_t)count * sizeof(*members));
	struct work work = {.goal = 5};
	char name[64];

	doing = "making many groups";
	group_make("wide");
	group_write("wide", "cgroup.subtree_control", "+cpu");
	for (i = 0; i < width; i++) {
		snprintf(name, sizeof(name), "wide/%ld", i);
		group_make(name);
		group_write(name, "cpu.max", "5000 10000");
		if (i % 100 == 0)
			member_start(&members[i / 100], name, &work);
	}
	doing = "working in many groups";
	for (i = 0; i < count; i++)
		member_reap_done(&members[i]);
	doing = "removing many groups";
	for (i = 0; i < width; i++) {
		snprintf(name, sizeof(name), "wide/%ld", i);
		group_remove(name);
	}
	group_remove("wide");
}

int main(int argc, char **argv)
{
	long depth = number("depth", argc > 1 ? argv[1] : "32", 0, 100);
	long width = number("width", argc > 2 ? argv[2] : "200", 0, 1000000);

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (depth)
		deep(depth);
	if (width)
		wide(width);
	printf("hierarchy: %ld deep, %ld wide, none lost\n", depth, width);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * churn ROUNDS [SEED]: groups are made, filled, limited, moved between, frozen, killed and removed while throttled.
 *
 * Eight lanes do so at once, each ROUNDS / 8 times, in groups of its own. Every process is accounted for: those with
 * work to finish have finished it, the others have made progress until they were killed, and none is left.
 */
#define _GNU_SOURCE
#include "crowd.h"

#define LANES 8
#define MEMBERS 5
#define FINITE 2 /* of them exit by themselves */

static const char *const limits[] = {"1000 5000",  "2000 10000",  "1000 10000", "3000 10000",
				     "max 100000", "10000 50000", "5000 5000"};

static const char *limit(uint64_t *seed)
{
	return limits[chance(seed, sizeof(limits) / sizeof(*limits))];
}

static void freeze(const char *group, struct member *members, int count)
{
	int64_t before[MEMBERS];
	int i;

	doing = "freezing";
	group_write(group, "cgroup.freeze", "1");
	AWAIT(group_value(group, "cgroup.events", "frozen") == 1, "group %s does not freeze", group);
	for (i = 0; i < count; i++)
		before[i] = members[i].units;
	pause_ms(10);
	for (i = 0; i < count; i++)
		if (members[i].units != before[i])
			fail("process %d runs in a frozen group", members[i].pid);
	group_write(group, "cgroup.freeze", "0");
}

static void round_of(const char *lane, struct member *members, uint64_t *seed)
{
	char outer[64], inner[80], other[64];
	uint64_t all = (1ULL << cpus_online()) - 1;
	int i;

	snprintf(outer, sizeof(outer), "%s/outer", lane);
	snprintf(inner, sizeof(inner), "%s/outer/inner", lane);
	snprintf(other, sizeof(other), "%s/other", lane);
	doing = "making groups";
	group_make(outer);
	group_write(outer, "cgroup.subtree_control", "+cpu");
	group_make(inner);
	group_make(other);
	group_write(outer, "cpu.max", "4000 10000");
	group_write(inner, "cpu.max", limit(seed));
	group_write(other, "cpu.max", limit(seed));

	doing = "filling";
	for (i = 0; i < MEMBERS; i++) {
		struct work work = {.goal = i < FINITE ? 1 + chance(seed, 5) : 0};

		member_start(&members[i], i % 2 ? inner : other, &work);
	}
	members_joined(members, MEMBERS);
	pause_ms(chance(seed, 20));

	doing = "moving";
	for (i = FINITE; i < MEMBERS; i++) {
		group_move(chance(seed, 2) ? inner : other, members[i].pid);
		if (!chance(seed, 3))
			pin(members[i].pid, 1 + chance(seed, (uint32_t)all));
	}

	doing = "limiting";
	group_write(inner, "cpu.max", limit(seed));
	group_write(outer, "cpu.max", "2000 10000");
	group_write(other, "cpu.max", limit(seed));
	group_write(other, "cpu.weight", chance(seed, 2) ? "1" : "10000");
	if (chance(seed, 2))
		group_write(inner, "cpu.idle", "1");

	freeze(chance(seed, 2) ? inner : other, members + FINITE, 0);
	for (i = FINITE; i < MEMBERS; i++)
		group_move(other, members[i].pid);
	freeze(other, members + FINITE, MEMBERS - FINITE);

	doing = "looking for progress";
	members_progress(members + FINITE, MEMBERS - FINITE);
	for (i = 0; i < FINITE; i++)
		member_reap_done(&members[i]);

	doing = "killing";
	group_move(inner, members[FINITE].pid);
	group_write(other, "cgroup.kill", "1");
	kill(members[FINITE].pid, SIGKILL);
	for (i = FINITE; i < MEMBERS; i++)
		member_reap_killed(&members[i]);

	doing = "removing";
	group_remove(inner);
	group_remove(outer);
	group_remove(other);
}

static void __attribute__((noreturn)) lane_run(int lane, int rounds, struct member *members, uint64_t seed)
{
	static char what[32];
	int round;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(what, sizeof(what), "churn/lane%d", lane);
	group_make(what);
	group_write(what, "cgroup.subtree_control", "+cpu");
	for (round = 0; round < rounds; round++) {
		uint64_t round_seed = seed + (uint64_t)(lane * 1000000 + round);

		chance(&round_seed, 2);
		round_of(what, members, &round_seed);
		if (lane == 0 && round % 25 == 24)
			fprintf(stderr, "round %d of %d\n", round + 1, rounds);
	}
	group_remove(what);
	_exit(0);
}

int main(int argc, char **argv)
{
	long rounds = number("rounds", argc > 1 ? argv[1] : "20", LANES, 1000000);
	uint64_t seed = (uint64_t)number("seed", argc > 2 ? argv[2] : "1", 0, 1L << 40);
	struct member *members = shared(LANES * MEMBERS * sizeof(*members));
	pid_t lanes[LANES];
	int lane, status, failed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	cgroup_make("churn/");
	group_write("churn", "cgroup.subtree_control", "+cpu");
	for (lane = 0; lane < LANES; lane++) {
		lanes[lane] = fork();
		if (!lanes[lane])
			lane_run(lane, (int)(rounds / LANES), members + lane * MEMBERS, seed);
	}
	for (lane = 0; lane < LANES; lane++) {
		while (waitpid(lanes[lane], &status, 0) < 0 && errno == EINTR)
			;
		if (status) {
			printf("lane %d ended with status %#x\n", lane, status);
			failed = 1;
			break; /* the others end with us */
		}
	}
	if (failed)
		return 1;
	group_remove("churn");
	printf("churn: %ld rounds, %ld processes, none lost\n", rounds / LANES * LANES,
	       rounds / LANES * LANES * MEMBERS);
	return 0;
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * What one CPU's writes of the policy's structs cost another CPU that works beside it. Two threads, each on a CPU of its
 * own; each case is timed with the first thread alone, and with the second beside it, in turns.
 *
 *	gcc -O2 -pthread -I policy -o target/false-sharing bench/false-sharing.c && target/false-sharing
 *
 * With -I of another commit's policy/ it measures that one's layout.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "group.h"

#define CPUS 2
#define ROUNDS 101
#define TURNS 100000u

/* Where it matters what stands beside what, as an engine's allocator begins it: on a line. */
static struct pl_group root, parent, group __attribute__((aligned(64)));
static struct {
	struct pl_config config;
} machine __attribute__((aligned(64)));
static struct {
	volatile int stop, ready;
	volatile u64 sink;
} shared __attribute__((aligned(64)));

static void *lines(size_t bytes)
{
	void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);

	memset(memory, 0, (bytes + 63) / 64 * 64);
	return memory;
}

static void make(struct pl_group *g, struct pl_group *above, u64 id)
{
	memset(g, 0, sizeof(*g));
	pl_group_init(g, above, id, lines(CPUS * sizeof(struct pl_queue)),
		      lines(CPUS * sizeof(struct pl_balance)), CPUS, lines(CPUS * sizeof(u32)), CPUS);
}

/* The turns of each case: what the measured thread does, and what the one beside it does. */
static u64 publish(u32 cpu, u64 now_ns)
{
	struct pl_load *load = &group.queues[cpu].load;

	load->contribution = load->contribution ? 0 : 1;
	pl_add(&group.load.load_avg, load->contribution ? 1 : -1);
	return now_ns;
}

static u64 walk(u32 cpu, u64 now_ns)
{
	return (u64)pl_group_throttled(&group, cpu) + pl_group_weight(&group) + (u64)group.parent + now_ns;
}

static u64 charge(u32 cpu, u64 now_ns)
{
	return pl_bw_charge(&group.pool, &group.pool.balances[cpu], 1, true, now_ns,
			    &machine.config.bandwidth);
}

static u64 run(u32 cpu, u64 now_ns)
{
	struct pl_queue *queue = &group.queues[cpu];

	pl_load_update(&queue->load, now_ns);
	queue->share += pl_fair_scale(1000, pl_queue_weight(queue));
	return queue->share;
}

static u64 ask(u32 cpu, u64 now_ns)
{
	(void)cpu;
	pl_add(&group.pool.runtime_ns, 1);
	return now_ns;
}

struct test {
	const char *name;
	u64 (*measured)(u32 cpu, u64 now_ns);
	u64 (*beside)(u32 cpu, u64 now_ns);
};

static const struct test *now; /* read by the second thread only */

static void *beside(void *unused)
{
	u64 time_ns = 0;

	shared.ready = 1;
	while (!shared.stop)
		shared.sink += now->beside(1, time_ns += 1000);
	return unused;
}

/* It begins on its own CPU: on the CPU of the thread that waits for it, it might never begin. */
static void begin_beside(pthread_t *other)
{
	pthread_attr_t attributes;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(1, &set);
	pthread_attr_init(&attributes);
	pthread_attr_setaffinity_np(&attributes, sizeof(set), &set);
	if (pthread_create(other, &attributes, beside, NULL)) {
		fputs("a second thread on CPU 1 could not be started\n", stderr);
		exit(3);
	}
	pthread_attr_destroy(&attributes);
	while (!shared.ready)
		sched_yield();
}

static double measured(const struct test *test, bool together)
{
	struct timespec from, to;
	pthread_t other;
	u64 sum = 0;
	u32 turn;

	now = test;
	shared.stop = shared.ready = 0;
	if (together)
		begin_beside(&other);
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (turn = 0; turn < TURNS; turn++) {
		sum += test->measured(0, turn * 1000ULL);
		asm volatile("" : "+r"(sum) : : "memory");
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	shared.stop = 1;
	if (together)
		pthread_join(other, NULL);
	return ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / TURNS;
}

static int smaller(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(void)
{
	static const struct test tests[] = {
	    {"walk the levels, beside a publication of load", walk, publish},
	    {"walk the levels, beside a pool that is asked", walk, ask},
	    {"charge a balance, beside the next CPU's charge", charge, charge},
	    {"charge a balance, beside a pool that is asked", charge, ask},
	    {"a queue's load and share, beside the next CPU's", run, run},
	};
	struct pl_bw_limits limits = {.quota_ns = PL_SEC, .period_ns = PL_SEC};
	cpu_set_t set;
	u32 i, round;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	sched_setaffinity(0, sizeof(set), &set);
	make(&root, NULL, 1);
	make(&parent, &root, 2);
	make(&group, &parent, 3);
	machine.config.bandwidth.slice_ns = PL_SEC;
	pl_bw_set(&group.pool, &limits, 0, 0, &machine.config.bandwidth);
	pl_group_link(&group);
	for (i = 0; i < CPUS; i++)
		group.queues[i].load.weight = PL_WEIGHT_UNIT << PL_LOAD_SHIFT;
	printf("struct pl_group %zu, per group and CPU %zu bytes\n", sizeof(struct pl_group),
	       sizeof(struct pl_queue) + sizeof(struct pl_balance));
	printf("%-52s %14s %14s\n", "ns a turn: median (quartiles) of 101", "alone", "beside");
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		double ns[2][ROUNDS];

		for (round = 0; round < ROUNDS; round++) {
			group.pool.balances[0].remaining_ns = group.pool.balances[1].remaining_ns = 1LL << 60;
			ns[0][round] = measured(&tests[i], false);
			ns[1][round] = measured(&tests[i], true);
		}
		qsort(ns[0], ROUNDS, sizeof(double), smaller);
		qsort(ns[1], ROUNDS, sizeof(double), smaller);
		printf("%-52s %5.1f (%.1f-%.1f) %5.1f (%.1f-%.1f)\n", tests[i].name, ns[0][ROUNDS / 2],
		       ns[0][ROUNDS / 4], ns[0][3 * ROUNDS / 4], ns[1][ROUNDS / 2], ns[1][ROUNDS / 4],
		       ns[1][3 * ROUNDS / 4]);
	}
	return 0;
}

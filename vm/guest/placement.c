/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * placement CORES THREADS: where a task that wakes up goes, on a machine of CORES cores with THREADS CPUs each.
 *
 * As many tasks as there are cores, each of which works and sleeps: each has a core to itself nearly always, as long as
 * cores are idle. The CPUs of core N are N * THREADS and the next ones, as QEMU numbers them. Cores 0 and 1 share a
 * last-level cache, as do 2 and 3, when the machine has two sockets.
 *
 * What costs is to change the cache, so changes are counted, not where a task is: an idle core in the other cache comes
 * before the sibling of a busy one in its own, and there it stays.
 */
#define _GNU_SOURCE
#include "crowd.h"

#define MEASURED_MS 3000
#define WORK_NS (3 * NSEC_PER_MSEC)
#define SLEEP_NS (2 * NSEC_PER_MSEC)
#define SHARED_PERCENT_MAX 5.0
#define CHANGED_PERCENT_MAX 5.0

/* One per task: the CPU that it works on now, -1 while it sleeps. */
static volatile int *at;
/* Per task: wake-ups, those beside a busy sibling, those in another cache than before. */
static volatile int64_t *counts;

static void __attribute__((noreturn)) task_run(int task, int tasks, int threads, int cpus_of_cache)
{
	int cache = sched_getcpu() / cpus_of_cache;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		int64_t until_ns;
		int i, cpu, together = 0;

		at[task] = -1;
		sleep_until(now_ns() + SLEEP_NS + task * 131 * NSEC_PER_USEC);
		cpu = sched_getcpu();
		at[task] = cpu;
		for (i = 0; i < tasks; i++)
			if (i != task && at[i] >= 0 && at[i] / threads == cpu / threads)
				together = 1;
		counts[3 * task]++;
		counts[3 * task + 1] += together;
		counts[3 * task + 2] += cpu / cpus_of_cache != cache;
		cache = cpu / cpus_of_cache;
		until_ns = thread_ns() + WORK_NS;
		while (thread_ns() < until_ns)
			;
	}
}

static void measure(const char *what, int tasks, int threads, int cpus_of_cache, int home, double *together,
		    double *changed)
{
	int64_t woken = 0, shared_core = 0, changes = 0;
	pid_t pids[64];
	int i;

	for (i = 0; i < tasks; i++) {
		at[i] = -1;
		pids[i] = fork();
		if (!pids[i]) {
			if (home >= 0) /* begins there, and may go anywhere */
				pin(0, ((1ULL << cpus_of_cache) - 1) << home * cpus_of_cache);
			usleep(1000);
			pin(0, ~0ULL);
			task_run(i, tasks, threads, cpus_of_cache);
		}
	}
	pause_ms(200);
	memset((void *)counts, 0, 64 * 3 * sizeof(*counts));
	pause_ms(MEASURED_MS);
	for (i = 0; i < tasks; i++) {
		woken += counts[3 * i];
		shared_core += counts[3 * i + 1];
		changes += counts[3 * i + 2];
	}
	for (i = 0; i < tasks; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	if (!woken)
		fail("%s: no task woke up", what);
	*together = 100.0 * (double)shared_core / (double)woken;
	*changed = 100.0 * (double)changes / (double)woken;
	printf("  %-28s %6lld wake-ups, %.1f%% beside a busy sibling, %.1f%% in another cache than before\n",
	       what, (long long)woken, *together, *changed);
}

int main(int argc, char **argv)
{
	int cores = (int)number("cores", argc > 1 ? argv[1] : "4", 2, 32);
	int threads = (int)number("threads", argc > 2 ? argv[2] : "2", 1, 8);
	int cpus = cores * threads;
	double together, changed;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (cpus != cpus_online())
		die(EXIT_MACHINE, "%d cores with %d CPUs each were said; here are %d CPUs", cores, threads,
		    cpus_online());
	at = shared(64 * sizeof(*at));
	counts = shared(64 * 3 * sizeof(*counts));
	doing = "waking as many tasks as cores";
	measure("a task per core", cores, threads, cpus, -1, &together, &changed);
	if (together > SHARED_PERCENT_MAX)
		fail("%.1f%% of wake-ups beside a busy sibling, with cores idle", together);
	doing = "waking tasks of one cache";
	measure("one cache's tasks", cores / 2, threads, cpus / 2, 1, &together, &changed);
	if (changed > CHANGED_PERCENT_MAX)
		fail("%.1f%% of wake-ups in another cache than before, with CPUs idle in their own", changed);
	printf("placement: idle cores first, the last-level cache kept\n");
	return 0;
}

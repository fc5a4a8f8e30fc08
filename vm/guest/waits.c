/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * waits SECONDS: how long anything waits beside and under limits that starve; stated bounds hold.
 *
 *	64 spinners in a group with 1 ms in each second: each is run again within PARKED_MAX_NS, as the kernel counts runs, and
 *	each looks at the clock. How long that took is printed only: the emulated machine takes its CPUs in turn, for longer
 *	than a grant lasts, so that a process may be given one, or several in a row, and have executed nothing when it ends.
 *	What they use together is printed only: docs/src/reference/live.md, Known faults
 *	a group with the least weight beside heavy spinners on every CPU: each process within LIGHT_MAX_NS
 *	a sleeper without limits beside all that: back on a CPU within SLEEPER_MAX_NS
 *	the kernel's own thread of each CPU: work for all of them is done about as soon as by real-time processes,
 *	one on each CPU, in half of the tries and in 99 of 100, and never longer than KTHREAD_MAX_NS
 */
#define _GNU_SOURCE
#include "crowd.h"
#include <sys/eventfd.h>

#define STARVED 64
#define ASKED_MAX 100000
#define LIGHT 4
#define HEAVY_PER_CPU 2
#define PARKED_MAX_NS (8 * NSEC_PER_SEC) /* PL_BW_STARVED_NS, 5 s, then a period, 1 s, then a turn among 64 */
#define LOOK_MS 50
#define LIGHT_MAX_NS                                                                                         \
	(20 * NSEC_PER_SEC) /* wait_max_ns, 10 s, then its place among those that waited as long */
/* A few dozen slices; set when tasks that came from other CPUs were paid what they were owed within 100 ms. */
#define SLEEPER_MAX_NS (150 * NSEC_PER_MSEC)
/*
 * One try takes the emulated machine two rounds over its CPUs, of up to 4 ms each as its timers fall, which differs from
 * boot to boot: a real-time process on each CPU, asked in turn with the kernel's threads, meets the same rounds and waits
 * for none. A thread that waited for another's turn, 3 ms and more, would show in the half and in 99 of 100.
 */
#define KTHREAD_HALF_MORE_NS (1 * NSEC_PER_MSEC)
#define KTHREAD_99_MORE_NS (4 * NSEC_PER_MSEC)
#define KTHREAD_MAX_NS (20 * NSEC_PER_MSEC)

/* How often the kernel has let a process run: the third number of its schedstat. */
static long runs(pid_t pid)
{
	char path[64], text[128] = "";
	long count = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	fd = open(path, O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0 || sscanf(text, "%*s %*s %ld", &count) != 1)
		fail("%s cannot be read", path);
	close(fd);
	return count;
}

/* What the kernel said of a spinner of the starved group. */
struct starved {
	pid_t pid;
	long runs;
	int64_t since_ns, longest_ns; /* without another run */
};

static void look_for_runs(struct starved *starved)
{
	int i;

	for (i = 0; i < STARVED; i++) {
		struct starved *one = &starved[i];
		long now_runs = runs(one->pid);
		int64_t at_ns = now_ns();

		if (at_ns - one->since_ns > one->longest_ns)
			one->longest_ns = at_ns - one->since_ns;
		if (now_runs != one->runs)
			one->since_ns = at_ns;
		one->runs = now_runs;
	}
}

/* Many times that a thread on every CPU took to do a little, asked by a real-time process. */
struct asked {
	int count;
	int64_t took_ns[ASKED_MAX];
};

enum asked_of { KTHREADS, REAL_TIME, ASKED_OF };

static void real_time(void)
{
	struct sched_param param = {.sched_priority = 10};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (sched_setscheduler(0, SCHED_FIFO, &param))
		die(EXIT_MACHINE, "no real-time class: %s", strerror(errno));
}

static int turns_make(void)
{
	int fd = eventfd(0, 0);

	if (fd < 0)
		die(EXIT_MACHINE, "eventfd: %s", strerror(errno));
	return fd;
}

static void turn_pass(int fd)
{
	uint64_t turns = 1;

	if (write(fd, &turns, sizeof(turns)) != sizeof(turns))
		die(EXIT_MACHINE, "eventfd: %s", strerror(errno));
}

static uint64_t turns_take(int fd)
{
	uint64_t turns;

	if (read(fd, &turns, sizeof(turns)) != sizeof(turns))
		die(EXIT_MACHINE, "eventfd: %s", strerror(errno));
	return turns;
}

/* A real-time process on each CPU, that answers what is asked through ask[CPU]. */
static void real_time_start(const int *ask, int answer, int cpus)
{
	int cpu;

	for (cpu = 0; cpu < cpus; cpu++) {
		pid_t pid = fork();

		if (pid < 0)
			die(EXIT_MACHINE, "cannot fork: %s", strerror(errno));
		if (pid)
			continue;
		real_time();
		pin(0, 1ULL << cpu);
		for (;;) {
			turns_take(ask[cpu]);
			turn_pass(answer);
		}
	}
}

/* Reading it has a work item done by a kernel thread of each CPU, and waits for all. */
static void kthreads_ask(void)
{
	char text[64];
	int fd = open("/proc/sys/vm/stat_refresh", O_RDONLY);

	if (fd < 0 || read(fd, text, sizeof(text)) < 0)
		die(EXIT_MACHINE, "vm.stat_refresh: %s", strerror(errno));
	close(fd);
}

static void real_time_ask(const int *ask, int answer, int cpus)
{
	int cpu;

	for (cpu = 0; cpu < cpus; cpu++)
		turn_pass(ask[cpu]);
	while (cpus)
		cpus -= (int)turns_take(answer);
}

/* Asks both in turn, so that both meet the same load and the same rounds of the emulated machine. */
static void __attribute__((noreturn)) ask(int64_t until_ns, struct asked *asked)
{
	int cpus = cpus_online(), asks[cpus], answer = turns_make(), cpu;
	int64_t turns;

	for (cpu = 0; cpu < cpus; cpu++)
		asks[cpu] = turns_make();
	real_time_start(asks, answer, cpus);
	real_time();
	for (turns = 0; now_ns() < until_ns; turns++) {
		enum asked_of of = turns % ASKED_OF;
		int64_t begin_ns = now_ns();

		if (of == KTHREADS)
			kthreads_ask();
		else
			real_time_ask(asks, answer, cpus);
		/* The first ones wait for threads to be made. */
		if (turns >= 5 * ASKED_OF && asked[of].count < ASKED_MAX)
			asked[of].took_ns[asked[of].count++] = now_ns() - begin_ns;
		pause_ms(47);
	}
	_exit(DONE);
}

static void look_while_asking(int64_t until_ns, struct starved *starved, struct asked *asked)
{
	int status;
	pid_t pid = fork(), ended;

	if (pid < 0)
		die(EXIT_MACHINE, "cannot fork: %s", strerror(errno));
	if (!pid)
		ask(until_ns, asked);
	doing = "waiting for the kernel's own threads";
	while (!(ended = waitpid(pid, &status, WNOHANG))) {
		look_for_runs(starved);
		pause_ms(LOOK_MS);
	}
	if (ended < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != DONE)
		fail("the real-time process ended with status %#x", status);
	if (!asked[KTHREADS].count || !asked[REAL_TIME].count)
		fail("no process answered");
}

/* At least `part` of 100 took no longer. */
static int64_t percentile_ns(const struct asked *asked, int part)
{
	return asked->took_ns[(asked->count * part + 99) / 100 - 1];
}

static int64_t longest_ns(const struct member *members, int count)
{
	int64_t longest = 0;
	int i;

	for (i = 0; i < count; i++)
		if (members[i].longest_ns > longest)
			longest = members[i].longest_ns;
	return longest;
}

static int over(const char *what, int64_t measured_ns, int64_t bound_ns)
{
	printf("  longest wait of %-36s %9.3f ms, at most %9.3f\n", what, (double)measured_ns / NSEC_PER_MSEC,
	       (double)bound_ns / NSEC_PER_MSEC);
	return measured_ns > bound_ns;
}

int main(int argc, char **argv)
{
	long seconds = number("seconds", argc > 1 ? argv[1] : "20", 10, 100000);
	int heavy_count = HEAVY_PER_CPU * cpus_online(), i, missed = 0;
	struct member *starved = shared((size_t)(STARVED + LIGHT + heavy_count + 1) * sizeof(*starved));
	struct member *light = starved + STARVED, *heavy = light + LIGHT, *sleeper = heavy + heavy_count;
	struct work spin = {0}, nap = {.sleep_ns = 7 * NSEC_PER_MSEC};
	struct asked *asked = shared(ASKED_OF * sizeof(*asked));
	struct starved looked[STARVED];
	int64_t unrun_ns = 0, begin_ns, used_us;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (i = 0; i < 3; i++)
		group_make((const char *const[]){"starved", "light", "heavy"}[i]);
	group_write("starved", "cpu.max", "1000 1000000");
	group_write("light", "cpu.weight", "1");
	for (i = 0; i < heavy_count; i++)
		member_start(&heavy[i], "heavy", &spin);
	for (i = 0; i < STARVED; i++)
		member_start(&starved[i], "starved", &spin);
	for (i = 0; i < LIGHT; i++)
		member_start(&light[i], "light", &spin);
	member_start(sleeper, NULL, &nap);
	doing = "starting the load";
	members_joined(starved, STARVED + LIGHT + heavy_count + 1);
	pause_ms(1000);
	for (i = 0; i < STARVED + LIGHT + heavy_count + 1; i++)
		starved[i].longest_ns = 0;
	for (i = 0; i < STARVED; i++)
		looked[i] = (struct starved){starved[i].pid, runs(starved[i].pid), now_ns(), 0};
	begin_ns = now_ns();
	used_us = group_usage_us("starved");
	look_while_asking(begin_ns + seconds * NSEC_PER_SEC, looked, asked);
	used_us = (group_usage_us("starved") - used_us) * NSEC_PER_SEC / (now_ns() - begin_ns);
	for (i = 0; i < ASKED_OF; i++)
		qsort(asked[i].took_ns, asked[i].count, sizeof(*asked[i].took_ns), by_value);

	/* A wait that has not ended yet does not show: every process must look at the clock once more. */
	doing = "looking for progress";
	members_progress(sleeper, 1);
	members_progress(light, LIGHT);
	members_progress(heavy, heavy_count);
	for (i = 0; i < STARVED; i++) {
		if (looked[i].longest_ns > unrun_ns)
			unrun_ns = looked[i].longest_ns;
		if (!starved[i].longest_ns)
			fail("process %d executed nothing in %ld s", starved[i].pid, seconds);
	}
	missed |= over("64 spinners on 1 ms/1 s", unrun_ns, PARKED_MAX_NS);
	printf("  used by them in a second %38lld us\n", (long long)used_us);
	printf("  longest of them to its next look at the clock   %9.3f ms\n",
	       (double)longest_ns(starved, STARVED) / NSEC_PER_MSEC);
	missed |= over("spinners of weight 1 beside 100", longest_ns(light, LIGHT), LIGHT_MAX_NS);
	missed |= over("a sleeper", sleeper->longest_ns, SLEEPER_MAX_NS);
	missed |= over("each CPU's kernel thread, half", percentile_ns(&asked[KTHREADS], 50),
		       percentile_ns(&asked[REAL_TIME], 50) + KTHREAD_HALF_MORE_NS);
	missed |= over("each CPU's kernel thread, 99 of 100", percentile_ns(&asked[KTHREADS], 99),
		       percentile_ns(&asked[REAL_TIME], 99) + KTHREAD_99_MORE_NS);
	missed |= over("each CPU's kernel thread", percentile_ns(&asked[KTHREADS], 100), KTHREAD_MAX_NS);
	if (missed)
		fail("what was measured is beyond its bound");
	/* Killed under this limit each still has to run to its end. */
	doing = "killing";
	group_write("starved", "cpu.max", "max");
	members_kill(starved, STARVED + LIGHT + heavy_count + 1);
	for (i = 0; i < 3; i++)
		group_remove((const char *const[]){"starved", "light", "heavy"}[i]);
	printf("waits: %ld s, none longer than its bound\n", seconds);
	return 0;
}

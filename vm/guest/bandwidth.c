/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * bandwidth: runs under a limit of the kernel's own, as rows that `plimsoll validate` reads.
 *
 * Each line of the file of cases is a run of its own, in a group of its own:
 *   label quota period burst nth work interval spin slow pin dur_ms aligned
 * (times in us; quota -1 is none). The limits are set while the group is empty, a child joins it 20 ms or more before
 * the first release, and the threads are those of bench/results/kernel-bandwidth-truth.md: spinners, duty threads, slow threads.
 * Where the group's periods begin is measured before the run: a spinner under the same period is stopped and resumed,
 * and it is resumed at boundaries. An aligned run releases 5 ms after one; one that is not begins at any time, and its
 * row leaves phase_us empty. Prints CSV rows, without a header.
 */
#define _GNU_SOURCE
#include "common.h"

#include <pthread.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define START_NS (20 * 1000 * NSEC_PER_USEC)
#define AFTER_BOUNDARY_US 5000
/* A spinner that does not run for so long was stopped by its limit: twice what a turn of the emulator takes. */
#define GAP_NS (1500 * NSEC_PER_USEC)
#define GAPS 5
#define LIMITED_MIN_US 1000
#define DUTY_TURNS 2000
#define SPIN_TURNS 10000
#define SLOW_TURNS 100
#define SLOW_SLEEP_US 10000

struct run {
	char label[64], group[80];
	long quota_us, period_us, burst_us, nth, work_us, interval_us, spin, slow, pin, dur_ms, aligned;
	int64_t start_ns, end_ns;
	int nr_threads;
	struct thread *threads;
};

struct thread {
	const struct run *run;
	int index, nr_latencies;
	int64_t cpu_ns;
	int64_t *latency_ns;
};

static void duty(struct thread *thread)
{
	const struct run *run = thread->run;

	for (int64_t k = 0; now_ns() <= run->end_ns; k++) {
		int64_t release_ns = run->start_ns + k * run->interval_us * NSEC_PER_USEC, begun_ns;

		if (release_ns >= run->end_ns)
			break;
		if (now_ns() < release_ns)
			sleep_until(release_ns);
		begun_ns = thread_ns();
		do
			turns(DUTY_TURNS);
		while (thread_ns() - begun_ns < run->work_us * NSEC_PER_USEC);
		thread->latency_ns[thread->nr_latencies++] = now_ns() - release_ns;
	}
}

static void *run_thread(void *argument)
{
	struct thread *thread = argument;
	const struct run *run = thread->run;
	int64_t born_ns;

	if (run->pin) {
		cpu_set_t cpus;

		CPU_ZERO(&cpus);
		CPU_SET(thread->index % get_nprocs(), &cpus);
		sched_setaffinity(0, sizeof(cpus), &cpus);
	}
	born_ns = thread_ns();
	if (thread->index < run->spin) {
		sleep_until(run->start_ns);
		while (now_ns() < run->end_ns)
			turns(SPIN_TURNS);
	} else if (thread->index < run->spin + run->slow) {
		sleep_until(run->start_ns);
		while (now_ns() < run->end_ns) {
			turns(SLOW_TURNS);
			usleep(SLOW_SLEEP_US);
		}
	} else {
		duty(thread);
	}
	thread->cpu_ns = thread_ns() - born_ns;
	return NULL;
}

/* The mainline's order: no burst may be above the quota at any moment. */
static void limit(const struct run *run, long quota_us, long burst_us)
{
	char knob[96];

	cgroup_set(run->group, "cpu.max.burst=0");
	if (quota_us < 0)
		snprintf(knob, sizeof(knob), "cpu.max=max %ld", run->period_us);
	else
		snprintf(knob, sizeof(knob), "cpu.max=%ld %ld", quota_us, run->period_us);
	cgroup_set(run->group, knob);
	snprintf(knob, sizeof(knob), "cpu.max.burst=%ld", burst_us);
	cgroup_set(run->group, knob);
}

/*
 * Where the group's periods begin, modulo their length: the median of the times at which a spinner goes on. The timer
 * keeps its place when the limit is taken off and set again.
 */
static long phase_us(const struct run *run)
{
	int64_t period_ns = run->period_us * NSEC_PER_USEC;
	int64_t *on_ns = shared(GAPS * sizeof(*on_ns)), phase_ns;
	long quota_us = run->period_us / 5;
	pid_t pid;

	limit(run, quota_us < LIMITED_MIN_US ? LIMITED_MIN_US : quota_us, 0);
	pid = fork();
	if (!pid) {
		int64_t last_ns, now, give_up_ns;

		cgroup_join(run->group);
		last_ns = now_ns();
		give_up_ns = last_ns + 40 * period_ns + NSEC_PER_SEC;
		for (int nr = 0; nr < GAPS && last_ns < give_up_ns; last_ns = now) {
			turns(100);
			now = now_ns();
			if (now - last_ns > GAP_NS)
				on_ns[nr++] = now;
		}
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	if (!on_ns[GAPS - 1])
		die(EXIT_MACHINE, "%s: a spinner was not stopped: where periods begin is not known",
		    run->label);
	/* Relative to the first, so that times on both sides of a boundary do not fall apart. */
	phase_ns = on_ns[0];
	for (int i = 0; i < GAPS; i++) {
		on_ns[i] = (on_ns[i] - phase_ns) % period_ns;
		if (on_ns[i] > period_ns / 2)
			on_ns[i] -= period_ns;
	}
	qsort(on_ns, GAPS, sizeof(*on_ns), by_value);
	phase_ns += on_ns[GAPS / 2];
	munmap(on_ns, GAPS * sizeof(*on_ns));
	limit(run, -1, 0);
	return phase_ns / NSEC_PER_USEC % run->period_us;
}

static void __attribute__((noreturn)) run_threads(const struct run *run)
{
	pthread_t ids[run->nr_threads];

	cgroup_join(run->group);
	for (int i = 0; i < run->nr_threads; i++)
		if (pthread_create(&ids[i], NULL, run_thread, &run->threads[i]))
			die(EXIT_MACHINE, "%s: cannot start thread %d", run->label, i);
	for (int i = 0; i < run->nr_threads; i++)
		pthread_join(ids[i], NULL);
	_exit(0);
}

/* A number of cpu.stat; -1 when the kernel has none of that name. */
static long long stat_of(const char *stat, const char *name)
{
	size_t length = strlen(name);

	for (const char *line = stat; line && *line; line = strchr(line, '\n'), line += line ? 1 : 0)
		if (!strncmp(line, name, length) && line[length] == ' ')
			return atoll(line + length + 1);
	return -1;
}

/* mean to max in whole us, or empty fields. */
static void print_latencies(const struct run *run)
{
	static const double ranks[] = {.5, .9, .95, .99, .999, 1};
	int64_t *all, *next;
	double sum = 0;
	int count = 0;

	for (int i = 0; i < run->nr_threads; i++)
		count += run->threads[i].nr_latencies;
	printf(",%d", count);
	if (!count) {
		printf(",,,,,,,\n");
		return;
	}
	next = all = malloc(count * sizeof(*all));
	if (!all)
		die(EXIT_MACHINE, "no memory for %d latencies", count);
	for (int i = 0; i < run->nr_threads; i++)
		for (int k = 0; k < run->threads[i].nr_latencies; k++)
			sum += *next++ = run->threads[i].latency_ns[k];
	qsort(all, count, sizeof(*all), by_value);
	printf(",%.0f", sum / count / NSEC_PER_USEC);
	for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
		printf(",%lld", (long long)(all[(int)((count - 1) * ranks[i] + .5)] / NSEC_PER_USEC));
	printf("\n");
	free(all);
}

static void print_row(const struct run *run, const char *kernel, const char *rep, const char *phase,
		      const char *before, const char *after)
{
	static const char *const names[] = {"nr_periods", "nr_throttled", "throttled_usec", "nr_bursts",
					    "burst_usec"};
	int64_t cpu_ns = 0;

	for (int i = 0; i < run->nr_threads; i++)
		cpu_ns += run->threads[i].cpu_ns;
	printf("%s,%d,%s,%s,%ld,%ld,%ld,%s,%ld,%ld,%ld,%ld,%ld,%ld,%ld,%lld", kernel, get_nprocs(), rep,
	       run->label, run->quota_us, run->period_us, run->burst_us, phase, run->nth, run->work_us,
	       run->interval_us, run->spin, run->slow, run->pin, run->dur_ms,
	       (long long)(cpu_ns / NSEC_PER_USEC));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		printf(",%lld", stat_of(after, names[i]) - stat_of(before, names[i]));
	print_latencies(run);
	fflush(stdout);
}

static void measure(struct run *run, const char *kernel, const char *rep)
{
	size_t latencies = run->dur_ms * 1000 / run->interval_us + 4;
	int64_t period_ns = run->period_us * NSEC_PER_USEC;
	char before[2048], after[2048], phase[32] = "", path[512];
	int status;
	pid_t pid;

	cgroup_make(run->group);
	if (run->aligned)
		snprintf(phase, sizeof(phase), "%ld", phase_us(run));
	run->nr_threads = run->nth + run->spin + run->slow;
	run->threads = shared(run->nr_threads * sizeof(*run->threads));
	for (int i = 0; i < run->nr_threads; i++) {
		run->threads[i].run = run;
		run->threads[i].index = i;
		run->threads[i].latency_ns = shared(latencies * sizeof(int64_t));
	}
	limit(run, run->quota_us, run->burst_us);
	cgroup_read(run->group, "cpu.stat", before, sizeof(before));
	run->start_ns = now_ns() + START_NS;
	if (run->aligned) {
		int64_t place_ns = (atol(phase) + AFTER_BOUNDARY_US) * NSEC_PER_USEC;

		run->start_ns += ((place_ns - run->start_ns) % period_ns + period_ns) % period_ns;
	}
	run->end_ns = run->start_ns + run->dur_ms * 1000 * NSEC_PER_USEC;
	pid = fork();
	if (pid < 0)
		die(EXIT_MACHINE, "fork: %s", strerror(errno));
	if (!pid)
		run_threads(run);
	waitpid(pid, &status, 0);
	if (status)
		die(EXIT_MACHINE, "%s: its process failed", run->label);
	cgroup_read(run->group, "cpu.stat", after, sizeof(after));
	print_row(run, kernel, rep, phase, before, after);
	for (int i = 0; i < run->nr_threads; i++)
		munmap(run->threads[i].latency_ns, latencies * sizeof(int64_t));
	munmap(run->threads, run->nr_threads * sizeof(*run->threads));
	cgroup_path(path, sizeof(path), run->group, "");
	if (rmdir(path))
		die(EXIT_MACHINE, "%s: %s", path, strerror(errno));
}

int main(int argc, char **argv)
{
	struct utsname host;
	char line[256];
	int major, minor, nr = 0;
	FILE *cases;

	if (argc != 3)
		die(EXIT_USAGE, "usage: bandwidth CASES REPETITION");
	cases = fopen(argv[1], "r");
	if (!cases)
		die(EXIT_USAGE, "%s: %s", argv[1], strerror(errno));
	if (uname(&host) || sscanf(host.release, "%d.%d", &major, &minor) != 2)
		die(EXIT_MACHINE, "a kernel of unknown version");
	snprintf(host.release, sizeof(host.release), "%d.%d", major, minor);
	while (fgets(line, sizeof(line), cases)) {
		struct run run = {0};
		int fields;

		nr++;
		if (*line == '#' || *line == '\n')
			continue;
		fields = sscanf(line, "%63s %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld", run.label,
				&run.quota_us, &run.period_us, &run.burst_us, &run.nth, &run.work_us,
				&run.interval_us, &run.spin, &run.slow, &run.pin, &run.dur_ms, &run.aligned);
		if (fields != 12 || run.interval_us < 1 || run.period_us < LIMITED_MIN_US)
			die(EXIT_USAGE,
			    "%s:%d: allowed is label quota period burst nth work interval spin slow pin "
			    "dur_ms aligned, all but the first numbers",
			    argv[1], nr);
		snprintf(run.group, sizeof(run.group), "run%d", nr);
		measure(&run, host.release, argv[2]);
	}
	fclose(cases);
	return 0;
}

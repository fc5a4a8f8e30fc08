/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * duty: cgroups with limits, threads in them, and what each group got.
 *
 * A parent outside the groups makes them, sets their knobs while they are empty, and starts one process for each, whose
 * threads begin together. Every thread writes down its own CPU time at fixed points of the clock, so a measure does not
 * depend on when the parent or the kernel's accounting gets to run. Prints one line of JSON.
 *
 * Threads of a group:
 *   spin  runs until the end;
 *   duty  request k is released at start + offset + k * interval, takes `work` of the thread's own CPU time, and its
 *         latency is its end less its release; a late one starts its next request at once. With `think`, a request
 *         is released so long after the last one ended instead, 50 to 150% of it by chance, the same chance every time;
 *         With `whole`, work includes what sleeping and waking costs: after k requests exactly k * work is used.
 *   slow  a few microseconds of work, then 10 ms of sleep, for ever.
 */
#define _GNU_SOURCE
#include "common.h"

#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/un.h>
#include <sys/wait.h>

#define GROUPS_MAX 512
#define KNOBS_MAX 16
#define STEPS_MAX 16
/* Distance of the points at which CPU time is written down. */
#define POINT_NS (10 * 1000 * NSEC_PER_USEC)
/* One look at the clock for so many turns, about 20 us of the guest's time. */
#define TURNS 2000
#define SLOW_TURNS 100
#define ANSWER_MAX (1 << 16)
#define SLOW_SLEEP_NS (10 * 1000 * NSEC_PER_USEC)

struct group {
	const char *name;
	const char *knobs[KNOBS_MAX];
	int nr_knobs, nr_spin, nr_duty, nr_slow, nr_threads, pin, nice, whole, leave, ask;
	int64_t work_ns[STEPS_MAX];
	int nr_work;
	int64_t interval_ns, stagger_ns, offset_ns, think_ns;
	struct thread *threads;
	char stat_before[2048], stat_after[2048];
	pid_t pid;
};

static char answer[ANSWER_MAX]; /* of the scheduler */

struct thread {
	const struct group *group;
	int index;
	int nr_latencies;
	int64_t *latency_ns;
	/* CPU time at start + k * POINT_NS, or at the first look after it. */
	int64_t *cpu_ns;
	int next_point;
	/* CPU time from its first instruction here to its last. */
	int64_t all_ns;
};

static struct group groups[GROUPS_MAX];
static int nr_groups, nr_points, nr_steps = 1;
static int64_t duration_ns = 5 * NSEC_PER_SEC, settle_ns, start_ns, end_ns;
static const char *label = "";

/* Time for which the machine's CPUs have been idle since it started, all together. */
static int64_t machine_idle_us(void)
{
	FILE *file = fopen("/proc/uptime", "r");
	double up, idle;

	if (!file || fscanf(file, "%lf %lf", &up, &idle) != 2)
		die(EXIT_MACHINE, "/proc/uptime cannot be read");
	fclose(file);
	return (int64_t)(idle * 1e6);
}

/* Writes down the CPU time for every point that has passed. */
static int64_t look(struct thread *thread)
{
	int64_t now = now_ns();

	if (thread->next_point < nr_points && now >= start_ns + thread->next_point * POINT_NS) {
		int64_t cpu = thread_ns();

		while (thread->next_point < nr_points && now >= start_ns + thread->next_point * POINT_NS)
			thread->cpu_ns[thread->next_point++] = cpu;
	}
	return now;
}

static void spin(struct thread *thread)
{
	while (look(thread) < end_ns)
		turns(TURNS);
}

static void slow(struct thread *thread)
{
	int64_t now;

	while ((now = look(thread)) < end_ns) {
		turns(SLOW_TURNS);
		sleep_until(now + SLOW_SLEEP_NS);
	}
}

static void duty(struct thread *thread, int index)
{
	const struct group *group = thread->group;
	int64_t first = start_ns + group->offset_ns + index * group->stagger_ns, think_until = first;
	uint64_t chance = index;
	/* CPU time that it will have used after the present request. */
	int64_t until_ns = thread_ns();

	for (int64_t k = 0;; k++) {
		int64_t release = group->think_ns ? think_until : first + k * group->interval_ns, work;

		if (release >= end_ns)
			break;
		if (look(thread) < release)
			sleep_until(release);
		work = group->work_ns[(release - start_ns) * group->nr_work / duration_ns];
		until_ns = work + (group->whole ? until_ns : thread_ns());
		while (thread_ns() < until_ns) {
			turns(TURNS);
			look(thread);
		}
		thread->latency_ns[thread->nr_latencies++] = look(thread) - release;
		chance = chance * 6364136223846793005ULL + 1442695040888963407ULL;
		think_until =
		    now_ns() + group->think_ns / 2 + group->think_ns * (int64_t)(chance >> 48) / 65536;
	}
	if (!group->leave && now_ns() < end_ns)
		sleep_until(end_ns);
}

static void *run_thread(void *argument)
{
	struct thread *thread = argument;
	const struct group *group = thread->group;
	int64_t born_ns = thread_ns();

	if (group->pin) {
		cpu_set_t cpus;

		CPU_ZERO(&cpus);
		CPU_SET(thread->index % get_nprocs(), &cpus);
		sched_setaffinity(0, sizeof(cpus), &cpus);
	}
	if (group->nice && setpriority(PRIO_PROCESS, 0, group->nice))
		die(EXIT_MACHINE, "cannot set nice %d: %s", group->nice, strerror(errno));
	sleep_until(start_ns);
	if (thread->index < group->nr_spin)
		spin(thread);
	else if (thread->index < group->nr_spin + group->nr_duty)
		duty(thread, thread->index - group->nr_spin);
	else
		slow(thread);
	look(thread);
	/* What it used until it left is what it used. */
	while (thread->next_point < nr_points)
		thread->cpu_ns[thread->next_point++] = thread_ns();
	thread->all_ns = thread_ns() - born_ns;
	return NULL;
}

static void __attribute__((noreturn)) run_group(struct group *group)
{
	pthread_t ids[group->nr_threads];
	pthread_attr_t small;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	cgroup_join(group->name);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 * 1024);
	for (int i = 0; i < group->nr_threads; i++)
		if (pthread_create(&ids[i], &small, run_thread, &group->threads[i]))
			die(EXIT_MACHINE, "group %s: cannot start thread %d", group->name, i);
	for (int i = 0; i < group->nr_threads; i++)
		pthread_join(ids[i], NULL);
	_exit(0);
}

/* CPU time of all threads of a group and of the groups below it from one point to another. */
static int64_t cpu_between(const struct group *group, int from, int to)
{
	size_t length = strlen(group->name);
	int64_t sum = 0;

	for (const struct group *each = groups; each < groups + nr_groups; each++) {
		if (each != group && (strncmp(each->name, group->name, length) || each->name[length] != '/'))
			continue;
		for (int i = 0; i < each->nr_threads; i++)
			sum += each->threads[i].cpu_ns[to] - each->threads[i].cpu_ns[from];
	}
	return sum;
}

/* The most CPU time within any second after the settling time, in windows that begin at every point; of all that time
 * when it is shorter. */
static int64_t cpu_second_max(const struct group *group)
{
	int window = NSEC_PER_SEC / POINT_NS, first = settle_ns / POINT_NS;
	int64_t most = 0;

	if (window > nr_points - 1 - first)
		window = nr_points - 1 - first;
	for (int from = first; from + window < nr_points; from++) {
		int64_t cpu = cpu_between(group, from, from + window);

		if (cpu > most)
			most = cpu;
	}
	return most;
}

static void print_latencies(const struct group *group)
{
	static const struct {
		const char *name;
		double rank;
	} ranks[] = {{"p50", .5}, {"p90", .9}, {"p95", .95}, {"p99", .99}, {"p999", .999}, {"max", 1}};
	double sum = 0;
	int count = 0;

	for (int i = 0; i < group->nr_threads; i++)
		count += group->threads[i].nr_latencies;
	if (!count)
		return;
	int64_t *all = malloc(count * sizeof(*all)), *next = all;

	if (!all)
		die(EXIT_MACHINE, "no memory for %d latencies", count);
	for (int i = 0; i < group->nr_threads; i++)
		for (int k = 0; k < group->threads[i].nr_latencies; k++)
			sum += *next++ = group->threads[i].latency_ns[k];
	qsort(all, count, sizeof(*all), by_value);
	printf(",\"latency_us\":{\"count\":%d,\"mean\":%.1f", count, sum / count / NSEC_PER_USEC);
	for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
		printf(",\"%s\":%.1f", ranks[i].name,
		       (double)all[(int)((count - 1) * ranks[i].rank + .5)] / NSEC_PER_USEC);
	printf("}");
	free(all);
}

/* Every line of cpu.stat, as its change over the run. */
static void print_stat(const struct group *group)
{
	const char *separator = "";

	printf(",\"cpu_stat\":{");
	for (const char *line = group->stat_after; *line; line++) {
		char name[64], before_name[64];
		long long after, before = 0, value;

		if (sscanf(line, "%63s %lld", name, &after) == 2) {
			for (const char *old = group->stat_before; *old; old++) {
				if (sscanf(old, "%63s %lld", before_name, &value) == 2 &&
				    !strcmp(name, before_name))
					before = value;
				old = strchr(old, '\n');
				if (!old)
					break;
			}
			printf("%s\"%s\":%lld", separator, name, after - before);
			separator = ",";
		}
		line = strchr(line, '\n');
		if (!line)
			break;
	}
	printf("}");
}

static void print_group(const struct group *group)
{
	int last = nr_points - 1, settle = settle_ns / POINT_NS;
	int64_t all_ns = 0;

	for (int i = 0; i < group->nr_threads; i++)
		all_ns += group->threads[i].all_ns;

	printf("{\"group\":\"%s\",\"spin\":%d,\"duty\":%d,\"slow\":%d", group->name, group->nr_spin,
	       group->nr_duty, group->nr_slow);
	printf(",\"cpu_all_us\":%lld", (long long)all_ns / NSEC_PER_USEC);
	printf(",\"cpu_us\":%lld,\"cpu_percent\":%.3f,\"cpu_second_max_us\":%lld",
	       (long long)cpu_between(group, 0, last) / NSEC_PER_USEC,
	       100. * cpu_between(group, 0, last) / (last * POINT_NS),
	       (long long)cpu_second_max(group) / NSEC_PER_USEC);
	if (nr_steps > 1 || settle_ns) {
		printf(",\"step_percent\":[");
		for (int step = 0; step < nr_steps; step++) {
			int from = last * step / nr_steps + settle, to = last * (step + 1) / nr_steps;

			printf("%s%.3f", step ? "," : "",
			       100. * cpu_between(group, from, to) / ((to - from) * POINT_NS));
		}
		printf("]");
	}
	print_latencies(group);
	print_stat(group);
	printf("}");
}

static void prepare(struct group *group)
{
	size_t latencies = 0;

	group->nr_threads = group->nr_spin + group->nr_duty + group->nr_slow;
	if (group->nr_duty && (!group->nr_work || !group->interval_ns == !group->think_ns))
		die(EXIT_USAGE, "group %s: --duty needs --work-us and one of --interval-us, --think-us",
		    group->name);
	if (group->interval_ns)
		latencies = duration_ns / group->interval_ns + 2;
	else if (group->think_ns)
		latencies = duration_ns / (group->think_ns / 2) + 2;
	group->threads = shared(group->nr_threads * sizeof(*group->threads));
	for (int i = 0; i < group->nr_threads; i++) {
		group->threads[i].group = group;
		group->threads[i].index = i;
		group->threads[i].latency_ns = shared(latencies * sizeof(int64_t));
		group->threads[i].cpu_ns = shared(nr_points * sizeof(int64_t));
	}
	cgroup_make(group->name);
	for (int i = 0; i < group->nr_knobs; i++)
		cgroup_set(group->name, group->knobs[i]);
}

enum option_id {
	DURATION = 1,
	START,
	STEPS,
	SETTLE,
	LABEL,
	GROUP,
	SET,
	SPIN,
	DUTY,
	SLOW,
	WORK,
	INTERVAL,
	THINK,
	STAGGER,
	OFFSET,
	PIN,
	WHOLE,
	LEAVE,
	ASK,
	NICE
};

static const struct option options[] = {
    {"duration-ms", 1, 0, DURATION},
    {"start-ms", 1, 0, START},
    {"steps", 1, 0, STEPS},
    {"settle-ms", 1, 0, SETTLE},
    {"label", 1, 0, LABEL},
    {"group", 1, 0, GROUP},
    {"set", 1, 0, SET},
    {"spin", 1, 0, SPIN},
    {"duty", 1, 0, DUTY},
    {"slow", 1, 0, SLOW},
    {"work-us", 1, 0, WORK},
    {"interval-us", 1, 0, INTERVAL},
    {"think-us", 1, 0, THINK},
    {"stagger-us", 1, 0, STAGGER},
    {"offset-us", 1, 0, OFFSET},
    {"pin", 0, 0, PIN},
    {"whole", 0, 0, WHOLE},
    {"leave", 0, 0, LEAVE},
    {"ask", 0, 0, ASK},
    {"nice", 1, 0, NICE},
    {0, 0, 0, 0},
};

static const char usage[] =
    "duty [--duration-ms 5000] [--start-ms 200] [--steps N] [--settle-ms M] [--label TEXT] GROUP...\n"
    "GROUP: --group PATH [--set KNOB=VALUE]... [--spin N] [--slow N] [--pin] [--nice N]\n"
    "       [--duty N --work-us U[,U...] --interval-us I|--think-us T [--stagger-us S] [--offset-us O] "
    "[--whole] [--leave] [--ask]]\n"
    "  --steps N      also print the CPU use of each Nth of the run\n"
    "  --settle-ms    without the first M of each step; cpu_second_max_us leaves out the first M of the run "
    "too\n"
    "  --work-us      several values: each for an equal part of the run\n"
    "  --set          a file of the cgroup, or an extended attribute user.*; set while the group is empty\n"
    "  --think-us     the next request is released 0.5 T to 1.5 T after the last one ended\n"
    "  --stagger-us   thread k of the group releases k * S later\n"
    "  --whole        work includes what sleeping and waking costs the thread\n"
    "  --leave        threads end with their last request, and not with the run\n"
    "  --ask          also print what the plimsoll scheduler has counted of the group when its threads have "
    "ended\n"
    "  --offset-us    all of them release O later\n"
    "  --start-ms     from setting the limits to the first release";

static void parse_work(struct group *group, char *list)
{
	for (char *item = strtok(list, ","); item; item = strtok(NULL, ",")) {
		if (group->nr_work == STEPS_MAX)
			die(EXIT_USAGE, "--work-us: at most %d values", STEPS_MAX);
		group->work_ns[group->nr_work++] = number("work-us", item, 0, 10000000) * NSEC_PER_USEC;
	}
}

static void parse_group(struct group *group, enum option_id id)
{
	if (!group)
		die(EXIT_USAGE, "--group comes before what belongs to it\n%s", usage);
	switch (id) {
	case SET:
		if (group->nr_knobs == KNOBS_MAX)
			die(EXIT_USAGE, "--set: at most %d for a group", KNOBS_MAX);
		group->knobs[group->nr_knobs++] = optarg;
		break;
	case SPIN:
		group->nr_spin = number("spin", optarg, 0, 4096);
		break;
	case DUTY:
		group->nr_duty = number("duty", optarg, 0, 4096);
		break;
	case SLOW:
		group->nr_slow = number("slow", optarg, 0, 4096);
		break;
	case WORK:
		parse_work(group, optarg);
		break;
	case INTERVAL:
		group->interval_ns = number("interval-us", optarg, 100, 100000000) * NSEC_PER_USEC;
		break;
	case THINK:
		group->think_ns = number("think-us", optarg, 10, 100000000) * NSEC_PER_USEC;
		break;
	case STAGGER:
		group->stagger_ns = number("stagger-us", optarg, 0, 100000000) * NSEC_PER_USEC;
		break;
	case OFFSET:
		group->offset_ns = number("offset-us", optarg, 0, 100000000) * NSEC_PER_USEC;
		break;
	case WHOLE:
		group->whole = 1;
		break;
	case LEAVE:
		group->leave = 1;
		break;
	case ASK:
		group->ask = 1;
		break;
	case PIN:
		group->pin = 1;
		break;
	case NICE:
		group->nice = number("nice", optarg, -20, 19);
		break;
	default:
		die(EXIT_USAGE, "see above\n%s", usage);
	}
}

/*
 * What `plimsoll status` prints, asked of the scheduler directly: starting the command takes long enough for another
 * period to end.
 */
static void ask(struct group *group)
{
	struct sockaddr_un address = {AF_UNIX, "/run/plimsoll.sock"};
	char path[512], request[600];
	ssize_t got = 0, length = 0;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	cgroup_path(path, sizeof(path), group->name, "");
	path[strlen(path) - 1] = '\0';
	snprintf(request, sizeof(request), "{\"status\":{\"cgroup\":\"%s\"}}\n", path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    write(fd, request, strlen(request)) != (ssize_t)strlen(request))
		die(EXIT_MACHINE, "no scheduler answers at %s: %s", address.sun_path, strerror(errno));
	while (length < ANSWER_MAX - 1 && (got = read(fd, answer + length, ANSWER_MAX - 1 - length)) > 0)
		length += got;
	close(fd);
	if (!length || answer[length - 1] != '\n')
		die(EXIT_MACHINE, "the scheduler's answer is cut off at %zd bytes", length);
	answer[length - 1] = '\0';
}

/* Waits for a group's process. Returns its status. */
static int reap(struct group *group)
{
	int status = 0;

	if (group->pid)
		waitpid(group->pid, &status, 0);
	group->pid = 0;
	return status;
}

int main(int argc, char **argv)
{
	struct group *group = NULL;
	int64_t start_delay_ns = 200 * 1000 * NSEC_PER_USEC;
	int64_t idle_us;
	int id, failed = 0;

	while ((id = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (id) {
		case DURATION:
			duration_ns = number("duration-ms", optarg, 10, 600000) * 1000 * NSEC_PER_USEC;
			break;
		case START:
			start_delay_ns = number("start-ms", optarg, 1, 60000) * 1000 * NSEC_PER_USEC;
			break;
		case STEPS:
			nr_steps = number("steps", optarg, 1, STEPS_MAX);
			break;
		case SETTLE:
			settle_ns = number("settle-ms", optarg, 0, 600000) * 1000 * NSEC_PER_USEC;
			break;
		case LABEL:
			label = optarg;
			break;
		case GROUP:
			if (nr_groups == GROUPS_MAX)
				die(EXIT_USAGE, "--group: at most %d", GROUPS_MAX);
			group = &groups[nr_groups++];
			group->name = optarg;
			break;
		default:
			parse_group(group, id);
		}
	}
	if (optind != argc || !nr_groups)
		die(EXIT_USAGE, "%s\n%s", nr_groups ? argv[optind] : "no --group", usage);
	nr_points = duration_ns / POINT_NS + 1;
	if (settle_ns >= duration_ns / nr_steps)
		die(EXIT_USAGE, "--settle-ms: less than a step");
	for (int i = 0; i < nr_groups; i++)
		prepare(&groups[i]);
	start_ns = now_ns() + start_delay_ns;
	end_ns = start_ns + duration_ns;
	for (int i = 0; i < nr_groups; i++) {
		cgroup_read(groups[i].name, "cpu.stat", groups[i].stat_before, sizeof(groups[i].stat_before));
		/* A group that only holds others takes no process of its own (cgroup v2 refuses it). */
		if (!groups[i].nr_threads)
			continue;
		groups[i].pid = fork();
		if (groups[i].pid < 0)
			die(EXIT_MACHINE, "fork: %s", strerror(errno));
		if (!groups[i].pid)
			run_group(&groups[i]);
	}
	sleep_until(start_ns);
	idle_us = machine_idle_us();
	for (int i = 0; i < nr_groups; i++)
		if (groups[i].ask) {
			failed |= reap(&groups[i]);
			ask(&groups[i]);
		}
	sleep_until(end_ns);
	idle_us = machine_idle_us() - idle_us;
	for (int i = 0; i < nr_groups; i++) {
		failed |= reap(&groups[i]);
		cgroup_read(groups[i].name, "cpu.stat", groups[i].stat_after, sizeof(groups[i].stat_after));
	}
	if (failed)
		die(EXIT_MACHINE, "a group's process failed");
	printf("{\"program\":\"duty\",\"label\":\"%s\",\"cpus\":%d,\"duration_us\":%lld,\"wall_us\":%lld,"
	       "\"idle_us\":%lld,\"groups\":[",
	       label, get_nprocs(), (long long)duration_ns / NSEC_PER_USEC,
	       (long long)(now_ns() - start_ns) / NSEC_PER_USEC, (long long)idle_us);
	for (int i = 0; i < nr_groups; i++) {
		printf("%s", i ? "," : "");
		print_group(&groups[i]);
	}
	printf("]");
	if (*answer)
		printf(",\"scheduler\":%s", answer);
	printf("}\n");
	return 0;
}

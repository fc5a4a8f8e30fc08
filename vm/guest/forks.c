/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * forks: how long processes take that are made one after the other.
 *
 * Every --every-us a process is forked that computes for --work-us and ends. From its fork to the end of its work it takes
 * what is printed: p50_us and p99_us. fork_us is what the fork itself takes its parent, of its own CPU time, on average; used_us,
 * with a group, what that used in all for each process, its end included.
 * Prints one line of JSON. The simulator's counterpart is in bench/live/src/bin/simulated.rs.
 */
#define _GNU_SOURCE
#include "common.h"

#include <getopt.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum option_id { COUNT = 1, EVERY, WORK, GROUP };

static const struct option options[] = {
    {"count", 1, 0, COUNT}, {"every-us", 1, 0, EVERY}, {"work-us", 1, 0, WORK}, {"group", 1, 0, GROUP},
    {0, 0, 0, 0},
};

static const char usage[] = "forks [--count 1000] [--every-us 2000] [--work-us 500] [--group PATH]";

/* CPU time that the group has used; 0: there is none. */
static long usage_us(const char *group)
{
	char text[4096];
	long us = 0;

	if (!group)
		return 0;
	cgroup_read(group, "cpu.stat", text, sizeof(text));
	if (sscanf(text, "usage_usec %ld", &us) != 1)
		die(EXIT_MACHINE, "%s: no usage_usec in cpu.stat", group);
	return us;
}

int main(int argc, char **argv)
{
	const char *group = NULL;
	long count = 1000, every_us = 2000, work_us = 500, before_us;
	int64_t *each_ns, at_ns, fork_ns = 0;
	int id;

	while ((id = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (id) {
		case COUNT:
			count = number("count", optarg, 1, 1000000);
			break;
		case EVERY:
			every_us = number("every-us", optarg, 1, 10000000);
			break;
		case WORK:
			work_us = number("work-us", optarg, 1, 10000000);
			break;
		case GROUP:
			group = optarg;
			cgroup_make(optarg);
			cgroup_join(optarg);
			break;
		default:
			die(EXIT_USAGE, "see above\n%s", usage);
		}
	}
	if (optind != argc)
		die(EXIT_USAGE, "%s\n%s", argv[optind], usage);
	each_ns = shared(count * sizeof(*each_ns));
	signal(SIGCHLD, SIG_IGN);
	at_ns = now_ns();
	before_us = usage_us(group);
	for (long i = 0; i < count; i++, at_ns += every_us * NSEC_PER_USEC) {
		int64_t begin_ns, used_ns;
		pid_t child;

		sleep_until(at_ns);
		begin_ns = now_ns();
		used_ns = thread_ns();
		child = fork();
		if (child < 0)
			die(EXIT_MACHINE, "fork: %s", strerror(errno));
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			while (thread_ns() < work_us * NSEC_PER_USEC)
				turns(100);
			each_ns[i] = now_ns() - begin_ns;
			_exit(0);
		}
		fork_ns += thread_ns() - used_ns;
	}
	while (wait(NULL) > 0 || errno == EINTR)
		;
	qsort(each_ns, count, sizeof(*each_ns), by_value);
	printf("{\"program\":\"forks\",\"count\":%ld,\"every_us\":%ld,\"work_us\":%ld,\"fork_us\":%.1f,"
	       "\"used_us\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f}\n",
	       count, every_us, work_us, fork_ns / 1e3 / count, (double)(usage_us(group) - before_us) / count,
	       each_ns[count / 2] / 1e3, each_ns[count * 99 / 100] / 1e3);
	return 0;
}

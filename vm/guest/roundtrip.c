/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * roundtrip: what it costs to wake another task and to be woken by it.
 *
 * Two processes pass one byte back and forth through two pipes, as `perf bench sched pipe` does; nothing else runs. They
 * run in the last of the given cgroups, so the depth of the hierarchy and limits on its levels show in the figure.
 * Prints one line of JSON; one operation is one way there and back.
 */
#define _GNU_SOURCE
#include "common.h"

#include <getopt.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* The figure is also given for each of so many parts, to show its spread. */
#define PARTS 10

enum option_id { COUNT = 1, WARMUP, LABEL, GROUP, SET, CPU, EACH };

static const struct option options[] = {
    {"count", 1, 0, COUNT}, {"warmup", 1, 0, WARMUP}, {"label", 1, 0, LABEL}, {"group", 1, 0, GROUP},
    {"set", 1, 0, SET},	    {"cpu", 1, 0, CPU},	      {"each", 0, 0, EACH},   {0, 0, 0, 0},
};

static const char usage[] =
    "roundtrip [--count 10000] [--warmup 1000] [--cpu N] [--each] [--label TEXT] [--group "
    "PATH [--set KNOB=VALUE]...]...\n"
    "  --cpu N    both on this CPU; without it the scheduler places them\n"
    "  --each     takes the time of each round trip, which makes it longer, and prints p50_ns and p99_ns\n"
    "  --group    made in this order; the processes run in the last one";

static void pass(int in, int out, long count, int first)
{
	char byte = 0;

	while (count--) {
		if (first && write(out, &byte, 1) != 1)
			die(EXIT_MACHINE, "write: %s", strerror(errno));
		if (read(in, &byte, 1) != 1)
			die(EXIT_MACHINE, "read: %s", strerror(errno));
		if (!first && write(out, &byte, 1) != 1)
			die(EXIT_MACHINE, "write: %s", strerror(errno));
	}
}

int main(int argc, char **argv)
{
	const char *group = NULL, *label = "";
	long count = 10000, warmup = 1000, cpu = -1;
	int64_t *each_ns = NULL;
	int takes_each = 0;
	double part_ns[PARTS], least, most, sum = 0;
	int there[2], back[2], id, status;
	pid_t other;

	while ((id = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (id) {
		case COUNT:
			count = number("count", optarg, PARTS, 100000000);
			break;
		case WARMUP:
			warmup = number("warmup", optarg, 0, 100000000);
			break;
		case LABEL:
			label = optarg;
			break;
		case GROUP:
			group = optarg;
			cgroup_make(group);
			break;
		case SET:
			if (!group)
				die(EXIT_USAGE, "--group comes before --set\n%s", usage);
			cgroup_set(group, optarg);
			break;
		case EACH:
			takes_each = 1;
			break;
		case CPU:
			cpu = number("cpu", optarg, 0, CPU_SETSIZE - 1);
			break;
		default:
			die(EXIT_USAGE, "see above\n%s", usage);
		}
	}
	if (optind != argc)
		die(EXIT_USAGE, "%s\n%s", argv[optind], usage);
	if (group)
		cgroup_join(group);
	if (cpu >= 0) {
		cpu_set_t cpus;

		CPU_ZERO(&cpus);
		CPU_SET(cpu, &cpus);
		if (sched_setaffinity(0, sizeof(cpus), &cpus))
			die(EXIT_USAGE, "--cpu %ld: %s", cpu, strerror(errno));
	}
	if (pipe(there) || pipe(back))
		die(EXIT_MACHINE, "pipe: %s", strerror(errno));
	count -= count % PARTS;
	each_ns = calloc(count, sizeof(*each_ns));
	if (!each_ns)
		die(EXIT_MACHINE, "no memory for %ld round trips", count);
	other = fork();
	if (other < 0)
		die(EXIT_MACHINE, "fork: %s", strerror(errno));
	if (!other) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pass(there[0], back[1], warmup + count, 0);
		_exit(0);
	}
	pass(back[0], there[1], warmup, 1);
	for (int i = 0; i < PARTS; i++) {
		int64_t from = now_ns();

		if (takes_each)
			for (long k = 0; k < count / PARTS; k++) {
				int64_t begin = now_ns();

				pass(back[0], there[1], 1, 1);
				each_ns[i * (count / PARTS) + k] = now_ns() - begin;
			}
		else
			pass(back[0], there[1], count / PARTS, 1);
		part_ns[i] = (double)(now_ns() - from) / (count / PARTS);
	}
	waitpid(other, &status, 0);
	least = most = part_ns[0];
	for (int i = 0; i < PARTS; i++) {
		sum += part_ns[i];
		least = part_ns[i] < least ? part_ns[i] : least;
		most = part_ns[i] > most ? part_ns[i] : most;
	}
	printf(
	    "{\"program\":\"roundtrip\",\"label\":\"%s\",\"count\":%ld,\"mean_ns\":%.1f,\"part_min_ns\":%.1f,"
	    "\"part_max_ns\":%.1f",
	    label, count, sum / PARTS, least, most);
	if (takes_each) {
		qsort(each_ns, count, sizeof(*each_ns), by_value);
		printf(",\"p50_ns\":%lld,\"p99_ns\":%lld", (long long)each_ns[count / 2],
		       (long long)each_ns[count * 99 / 100]);
	}
	printf("}\n");
	return 0;
}

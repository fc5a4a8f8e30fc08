/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * storm FORKS [STOPS]: processes are born and exit in throttled groups, and are stopped and continued there.
 *
 * FORKS processes are born by eight parents in two throttled groups, in trees two deep; every one exits with its own
 * code, which is looked at. Meanwhile spinners in the same groups are stopped STOPS times: a stopped process stands
 * still, a continued one goes on.
 */
#define _GNU_SOURCE
#include "crowd.h"

#define PARENTS 8
#define AT_ONCE 8
#define STOPPED 4

/* Waits for a child and compares its exit code. */
static void expect(pid_t pid, int code)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			_exit(2);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
		_exit(3);
}

static void __attribute__((noreturn)) parent_run(const char *group, long forks, volatile int64_t *born)
{
	pid_t children[AT_ONCE];
	long done = 0;
	int i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	cgroup_join(group);
	while (done < forks) {
		for (i = 0; i < AT_ONCE; i++) {
			children[i] = fork();
			if (children[i] < 0)
				_exit(4);
			if (!children[i]) {
				pid_t grandchild = fork();

				if (grandchild < 0)
					_exit(4);
				if (!grandchild)
					_exit(i + 100);
				expect(grandchild, i + 100);
				_exit(i);
			}
		}
		for (i = 0; i < AT_ONCE; i++)
			expect(children[i], i);
		done += 2 * AT_ONCE;
		*born = done;
	}
	_exit(0);
}

static void stop_and_continue(struct member *member)
{
	int status;
	int64_t before;
	pid_t got;

	doing = "stopping";
	kill(member->pid, SIGSTOP);
	AWAIT((got = waitpid(member->pid, &status, WUNTRACED | WNOHANG)) != 0, "process %d does not stop: %s",
	      member->pid, state_of(member->pid));
	if (got < 0 || !WIFSTOPPED(status))
		fail("process %d ended with status %#x instead of stopping", member->pid, status);
	before = member->units;
	pause_ms(2);
	if (member->units != before)
		fail("process %d runs although stopped", member->pid);
	kill(member->pid, SIGCONT);
	doing = "continuing";
	AWAIT(member->units > before, "process %d does not go on: %s", member->pid, state_of(member->pid));
}

int main(int argc, char **argv)
{
	long forks = number("forks", argc > 1 ? argv[1] : "1000", 1, 100000000);
	long stops = number("stops", argc > 2 ? argv[2] : "50", 0, 1000000);
	static const char *const groups[] = {"storm/a", "storm/b"};
	struct member *members = shared(STOPPED * sizeof(*members));
	volatile int64_t *born = shared(PARENTS * sizeof(*born));
	struct work spin = {0};
	pid_t parents[PARENTS];
	int64_t total = 0;
	int i, status;
	long stop;

	setvbuf(stdout, NULL, _IOLBF, 0);
	cgroup_make("storm/a/");
	group_make("storm/b");
	group_write("storm/a", "cpu.max", "10000 10000");
	group_write("storm/b", "cpu.max", "40000 50000");
	for (i = 0; i < STOPPED; i++)
		member_start(&members[i], groups[i % 2], &spin);
	for (i = 0; i < PARENTS; i++) {
		parents[i] = fork();
		if (!parents[i])
			parent_run(groups[i % 2], (forks + PARENTS - 1) / PARENTS, &born[i]);
	}
	for (stop = 0; stop < stops; stop++)
		stop_and_continue(&members[stop % STOPPED]);
	fprintf(stderr, "stopped and continued %ld times\n", stops);
	doing = "waiting for the storm";
	for (i = 0; i < PARENTS; i++) {
		int64_t seen = -1, looked_ns = 0;
		pid_t got;

		/* Not ended, yet not lost either while it gets on. */
		while (!(got = waitpid(parents[i], &status, WNOHANG))) {
			if (born[i] != seen) {
				seen = born[i];
				looked_ns = now_ns();
			} else if (now_ns() - looked_ns > LOST_NS) {
				fail("parent %d stands still after %lld births: %s", parents[i],
				     (long long)seen, state_of(parents[i]));
			}
			usleep(1000);
		}
		if (got < 0 || status)
			fail("parent %d ended with status %#x", parents[i], status);
		total += born[i];
	}
	doing = "killing";
	members_progress(members, STOPPED);
	members_kill(members, STOPPED);
	group_remove("storm/a");
	group_remove("storm/b");
	group_remove("storm");
	if (total < forks)
		fail("%lld were born instead of %ld", (long long)total, forks);
	printf("storm: %lld processes were born and exited, %ld stops; none lost\n", (long long)total, stops);
	return 0;
}

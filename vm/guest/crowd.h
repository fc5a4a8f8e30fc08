/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Processes in cgroups that count what they do, so that the parent sees whether one is lost.
 *
 * Nothing waits for ever: what has not happened LOST_NS after it should have is lost, and ends the program with 1.
 */
#ifndef PLIMSOLL_GUEST_CROWD_H
#define PLIMSOLL_GUEST_CROWD_H

#include "common.h"
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define NSEC_PER_MSEC 1000000LL
/* Well above the scheduler's own bound on waiting (5 s and a period), well below the kernel's watchdog (30 s). */
#define LOST_NS (15 * NSEC_PER_SEC)
#define UNIT_NS (100 * NSEC_PER_USEC)
#define DONE 42

/* One process. In memory that it shares with its parent. */
struct member {
	pid_t pid;
	volatile int joined;
	volatile int64_t units;	      /* stretches of UNIT_NS of its own CPU time */
	volatile int64_t longest_ns;  /* between two looks at the clock, or after a sleep should have ended */
	volatile uint64_t cpus;	      /* it was seen on these of the first 64 */
	volatile int64_t stray_units; /* units on a CPU outside `allowed` */
	uint64_t allowed;
};

/* What a member does until it is killed. */
struct work {
	int64_t goal;	  /* exits with DONE after so many units; 0: never */
	int64_t sleep_ns; /* sleeps so long after each unit; 0: never */
	int64_t zeros;	  /* bytes of /dev/zero read again and again; 0: none */
	int nice;
};

static const char *doing = "starting"; /* for messages: what the program does now */

static inline int file_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), failed = fd < 0 || write(fd, text, strlen(text)) < 0;

	if (fd >= 0)
		close(fd);
	return failed;
}

/* Prints what the scheduler knows of groups, CPUs and waiting tasks, which a loaded one tells the tracer when asked. */
static inline void dump_scheduler(void)
{
	char text[4096];
	ssize_t got;
	int fd;

	if (file_write("/sys/kernel/tracing/events/sched_ext/sched_ext_dump/enable", "1") ||
	    file_write("/proc/sysrq-trigger", "D"))
		return;
	sleep(1);
	fd = open("/sys/kernel/tracing/trace", O_RDONLY);
	while (fd >= 0 && (got = read(fd, text, sizeof(text))) > 0)
		fwrite(text, 1, (size_t)got, stdout);
}

static inline void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	printf("FAILED while %s: ", doing);
	vprintf(format, arguments);
	printf("\n");
	dump_scheduler();
	fflush(stdout);
	exit(1);
}

/* What the kernel says of a process: its state, where it waits and on which CPU it was last. */
static inline const char *state_of(pid_t pid)
{
	static char text[1024];
	char path[64];
	ssize_t got = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY);
	if (fd >= 0) {
		got = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	text[got > 0 ? got - 1 : 0] = '\0';
	return text;
}

#define AWAIT(condition, ...)                                                                                \
	do {                                                                                                 \
		int64_t give_up_ns = now_ns() + LOST_NS;                                                     \
		while (!(condition)) {                                                                       \
			if (now_ns() > give_up_ns)                                                           \
				fail(__VA_ARGS__);                                                           \
			usleep(500);                                                                         \
		}                                                                                            \
	} while (0)

static inline void pause_ms(int64_t ms)
{
	sleep_until(now_ns() + ms * NSEC_PER_MSEC);
}

static inline void __attribute__((noreturn)) member_run(struct member *member, const struct work *work)
{
	int64_t last_ns = now_ns(), unit_end_ns = thread_ns() + UNIT_NS;
	char *buffer = work->zeros ? malloc((size_t)work->zeros) : NULL;
	int zero = work->zeros ? open("/dev/zero", O_RDONLY) : -1;

	for (;;) {
		int64_t at_ns = now_ns();

		if (work->zeros && read(zero, buffer, (size_t)work->zeros) != work->zeros)
			die(EXIT_MACHINE, "cannot read /dev/zero: %s", strerror(errno));

		if (at_ns - last_ns > member->longest_ns)
			member->longest_ns = at_ns - last_ns;
		last_ns = at_ns;
		if (thread_ns() < unit_end_ns)
			continue;
		unsigned int cpu = (unsigned int)sched_getcpu() % 64;
		/* Whole: it is set to 0 from outside meanwhile. */
		__atomic_fetch_or(&member->cpus, 1ULL << cpu, __ATOMIC_RELAXED);
		if (!(member->allowed >> cpu & 1))
			member->stray_units++;
		member->units++;
		if (work->goal && member->units >= work->goal)
			_exit(DONE);
		if (work->sleep_ns) {
			last_ns = now_ns() + work->sleep_ns;
			sleep_until(last_ns);
		}
		unit_end_ns = thread_ns() + UNIT_NS;
	}
}

/* Starts a member in a group (NULL: where the caller is); it may still be on its way there on return. */
static inline void member_start(struct member *member, const char *group, const struct work *work)
{
	pid_t pid;

	memset(member, 0, sizeof(*member));
	member->allowed = ~0ULL;
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		die(EXIT_MACHINE, "cannot fork: %s", strerror(errno));
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* The shared page is mapped before the group may throttle us in the fault, which locks it. */
		member->joined = 0;
		if (group)
			cgroup_join(group);
		if (work->nice && setpriority(0, 0, work->nice))
			die(EXIT_MACHINE, "cannot set nice %d", work->nice);
		member->joined = 1;
		member_run(member, work);
	}
	member->pid = pid;
}

/* Every member is in its group from now on. */
static inline void members_joined(const struct member *members, int count)
{
	int i;

	for (i = 0; i < count; i++)
		AWAIT(members[i].joined, "process %d does not get into its group: %s", members[i].pid,
		      state_of(members[i].pid));
}

/* Reaps a member; its status as of waitpid. Lost if it has not ended in time. */
static inline int member_reap(struct member *member)
{
	int status = 0;
	pid_t got;

	AWAIT((got = waitpid(member->pid, &status, WNOHANG)) != 0, "process %d has not ended: %s",
	      member->pid, state_of(member->pid));
	if (got < 0)
		fail("process %d cannot be waited for: %s", member->pid, strerror(errno));
	return status;
}

static inline void member_reap_killed(struct member *member)
{
	int status = member_reap(member);

	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail("process %d ended with status %#x instead of being killed", member->pid, status);
}

static inline void member_reap_done(struct member *member)
{
	int status = member_reap(member);

	if (!WIFEXITED(status) || WEXITSTATUS(status) != DONE)
		fail("process %d ended with status %#x instead of finishing", member->pid, status);
}

/* Every member gets some work done from now on. */
static inline void members_progress(struct member *members, int count)
{
	int64_t before[count];
	int i;

	for (i = 0; i < count; i++)
		before[i] = members[i].units;
	for (i = 0; i < count; i++)
		AWAIT(members[i].units > before[i], "process %d (%d of %d) makes no progress: %s",
		      members[i].pid, i + 1, count, state_of(members[i].pid));
}

static inline void members_kill(struct member *members, int count)
{
	int i;

	for (i = 0; i < count; i++)
		kill(members[i].pid, SIGKILL);
	for (i = 0; i < count; i++)
		member_reap_killed(&members[i]);
}

/* cgroup_write that must succeed. */
static inline void group_write(const char *group, const char *file, const char *value)
{
	int error = cgroup_write(group, file, value);

	if (error)
		fail("%s: %s = %s: %s", group, file, value, strerror(error));
}

static inline void group_move(const char *group, pid_t pid)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", pid);
	group_write(group, "cgroup.procs", text);
}

static inline void group_make(const char *group)
{
	char path[512];

	cgroup_path(path, sizeof(path), group, "");
	if (mkdir(path, 0755))
		fail("mkdir %s: %s", group, strerror(errno));
}

static inline void group_remove(const char *group)
{
	char path[512];

	cgroup_path(path, sizeof(path), group, "");
	AWAIT(!rmdir(path) || errno != EBUSY, "rmdir %s: still busy", group);
}

/* A line `key value` of a flat file of a cgroup; -1: no such line. */
static inline int64_t group_value(const char *group, const char *file, const char *key)
{
	char text[4096], *line;
	size_t length = strlen(key);

	cgroup_read(group, file, text, sizeof(text));
	for (line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (!strncmp(line, key, length) && line[length] == ' ')
			return atoll(line + length + 1);
	return -1;
}

static inline int64_t group_usage_us(const char *group)
{
	return group_value(group, "cpu.stat", "usage_usec");
}

/* Small, seeded, good enough to vary what is done. */
static inline uint32_t chance(uint64_t *seed, uint32_t below)
{
	*seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(*seed >> 33) % below;
}

static inline int cpus_online(void)
{
	return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static inline void pin(pid_t pid, uint64_t cpus)
{
	cpu_set_t set;
	int cpu;

	CPU_ZERO(&set);
	for (cpu = 0; cpu < 64; cpu++)
		if (cpus >> cpu & 1)
			CPU_SET(cpu, &set);
	if (sched_setaffinity(pid, sizeof(set), &set))
		fail("process %d cannot be bound to CPUs %#llx: %s", pid, (unsigned long long)cpus,
		     strerror(errno));
}

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the guest programs share: clocks, work, files of cgroups, numbers from the command line, errors. */
#ifndef PLIMSOLL_GUEST_COMMON_H
#define PLIMSOLL_GUEST_COMMON_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define CGROUP_ROOT "/sys/fs/cgroup"
#define NSEC_PER_USEC 1000LL
#define NSEC_PER_SEC 1000000000LL

/* Exit codes, as of the plimsoll binary. */
enum { EXIT_USAGE = 2, EXIT_MACHINE = 3 };

static inline void __attribute__((noreturn, format(printf, 2, 3))) die(int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fprintf(stderr, "error: ");
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "\n");
	va_end(arguments);
	exit(code);
}

static inline int64_t clock_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * NSEC_PER_SEC + time.tv_nsec;
}

static inline int64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static inline int64_t thread_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static inline void sleep_until(int64_t at_ns)
{
	struct timespec time = {.tv_sec = at_ns / NSEC_PER_SEC, .tv_nsec = at_ns % NSEC_PER_SEC};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
		;
}

/* Work without memory or system calls: steps of the Fibonacci sequence. */
static inline void turns(int count)
{
	uint64_t one = 1, other = 1;

	for (int i = 0; i < count; i++) {
		uint64_t sum = one + other;

		one = other;
		other = sum;
		__asm__ volatile("" ::"r"(one), "r"(other));
	}
}

/* For qsort: numbers of 64 bits. */
static inline int by_value(const void *left, const void *right)
{
	int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

	return (a > b) - (a < b);
}

/* A whole number within [min, max], or the end of the program. */
static inline long number(const char *name, const char *text, long min, long max)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < min || value > max)
		die(EXIT_USAGE, "--%s %s: allowed: %ld..%ld", name, text, min, max);
	return value;
}

/* Memory that children share with their parent. */
static inline void *shared(size_t size)
{
	void *memory = mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die(EXIT_MACHINE, "no memory for %zu bytes", size);
	return memory;
}

static inline void cgroup_path(char *path, size_t size, const char *group, const char *file)
{
	if ((size_t)snprintf(path, size, "%s/%s/%s", CGROUP_ROOT, group, file) >= size)
		die(EXIT_USAGE, "group %s: the name is too long", group);
}

/* Writes a file of a cgroup; 0, or the errno of the failure. */
static inline int cgroup_write(const char *group, const char *file, const char *value)
{
	char path[512];
	ssize_t written;
	int fd, error;

	cgroup_path(path, sizeof(path), group, file);
	fd = open(path, O_WRONLY);
	if (fd < 0)
		return errno;
	written = write(fd, value, strlen(value));
	error = written < 0 ? errno : 0;
	close(fd);
	return error;
}

/* Reads a file of a cgroup as text; an empty text when it cannot be read. */
static inline void cgroup_read(const char *group, const char *file, char *text, size_t size)
{
	char path[512];
	ssize_t got = 0;
	int fd;

	cgroup_path(path, sizeof(path), group, file);
	fd = open(path, O_RDONLY);
	if (fd >= 0) {
		got = read(fd, text, size - 1);
		close(fd);
	}
	text[got > 0 ? got : 0] = '\0';
}

/* Makes a cgroup and those above it, each passing the cpu and cpuset controllers on to its children. */
static inline void cgroup_make(const char *group)
{
	char path[512], *slash;

	cgroup_path(path, sizeof(path), group, "");
	for (slash = path + strlen(CGROUP_ROOT) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		if (mkdir(path, 0755) && errno != EEXIST)
			die(EXIT_MACHINE, "%s: %s", path, strerror(errno));
		*slash = '/';
		if (slash[1]) {
			char parent[512];

			snprintf(parent, sizeof(parent), "%.*s",
				 (int)(slash - path - strlen(CGROUP_ROOT) - 1),
				 path + strlen(CGROUP_ROOT) + 1);
			if (cgroup_write(parent, "cgroup.subtree_control", "+cpu +cpuset"))
				die(EXIT_MACHINE, "%s: cannot pass on the cpu controller", path);
		}
	}
}

/* Sets a knob, `cpu.max=20000 100000`: a file of the cgroup, or an extended attribute when it begins with `user.`. */
static inline void cgroup_set(const char *group, const char *knob)
{
	const char *equals = strchr(knob, '=');
	char name[128], path[512];
	int error = 0;

	if (!equals || equals == knob || (size_t)(equals - knob) >= sizeof(name))
		die(EXIT_USAGE, "--set %s: give KNOB=VALUE", knob);
	snprintf(name, sizeof(name), "%.*s", (int)(equals - knob), knob);
	if (!strncmp(name, "user.", 5)) {
		cgroup_path(path, sizeof(path), group, "");
		if (setxattr(path, name, equals + 1, strlen(equals + 1), 0))
			error = errno;
	} else {
		error = cgroup_write(group, name, equals + 1);
	}
	if (error)
		die(EXIT_USAGE, "group %s: %s: %s", group, knob, strerror(error));
}

static inline void cgroup_join(const char *group)
{
	if (cgroup_write(group, "cgroup.procs", "0"))
		die(EXIT_MACHINE, "cannot join group %s", group);
}

#endif

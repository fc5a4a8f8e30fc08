/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * answer: a service over TCP that works for as long as it is asked to.
 *
 * A thread for each connection reads requests of 4 bytes, the microseconds of CPU time to spend (little-endian, at most
 * 10 s), spends them, and sends the same 4 bytes back. Runs until it is killed.
 */
#define _GNU_SOURCE
#include "common.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>

#define US_MAX 10000000u

static void *serve(void *argument)
{
	int connection = (int)(intptr_t)argument;
	uint32_t work_us;

	while (recv(connection, &work_us, sizeof(work_us), MSG_WAITALL) == sizeof(work_us) &&
	       work_us <= US_MAX) {
		int64_t until_ns = thread_ns() + work_us * NSEC_PER_USEC;

		while (thread_ns() < until_ns)
			turns(1000);
		if (send(connection, &work_us, sizeof(work_us), MSG_NOSIGNAL) != sizeof(work_us))
			break;
	}
	close(connection);
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	if (argc != 2)
		die(EXIT_USAGE, "usage: answer PORT");
	address.sin_port = htons((uint16_t)number("port", argv[1], 1, 65535));
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) ||
	    listen(listener, 64))
		die(EXIT_MACHINE, "port %s: %s", argv[1], strerror(errno));
	for (;;) {
		int connection = accept(listener, NULL, NULL);
		pthread_t thread;

		if (connection < 0)
			die(EXIT_MACHINE, "accept: %s", strerror(errno));
		if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)connection))
			die(EXIT_MACHINE, "no thread for a connection");
		pthread_detach(thread);
	}
}

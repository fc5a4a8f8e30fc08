/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * turns: has the CPUs of a guest in virtual time take turns at least this often.
 *
 * One thread of the host runs them one after the other. A CPU's turn is a part of the time to the machine's next timer, so while
 * all are busy and nothing is due but ticks, a CPU stands still for 1 ms and more, its own timers with it: a task that is to
 * wake up there waits for that long, whatever the kernel does. A timer of the machine that is due more often makes turns as much
 * shorter. Nothing but the emulator sees the clock chip's: its interrupt is routed nowhere.
 *
 *   turns HERTZ   2 to 8192, a power of two; 0: as before
 */
#include "common.h"

#include <sys/io.h>

#define ADDRESS 0x70
#define DATA 0x71
#define REGISTER_A 0x0a
#define REGISTER_B 0x0b
#define RATE 0x0f
#define PERIODIC 0x40
#define FASTEST 8192
#define RATE_OF_FASTEST 3

static unsigned char get(unsigned char number)
{
	outb(number, ADDRESS);
	return inb(DATA);
}

static void set(unsigned char number, unsigned char value)
{
	outb(number, ADDRESS);
	outb(value, DATA);
}

int main(int argc, char **argv)
{
	long hertz = argc == 2 ? strtol(argv[1], NULL, 10) : -1;
	unsigned char rate = RATE_OF_FASTEST;

	if (hertz < 0 || hertz > FASTEST || hertz == 1 || (hertz & (hertz - 1)))
		die(EXIT_USAGE, "turns HERTZ: a power of two from 2 to %d, or 0", FASTEST);
	if (ioperm(ADDRESS, 2, 1))
		die(EXIT_MACHINE, "ports of the clock: %s", strerror(errno));
	for (long at = FASTEST; hertz && at > hertz; at /= 2)
		rate++;
	if (hertz)
		set(REGISTER_A, (get(REGISTER_A) & ~RATE) | rate);
	set(REGISTER_B, (get(REGISTER_B) & ~PERIODIC) | (hertz ? PERIODIC : 0));
	return 0;
}

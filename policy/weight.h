/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * weight.h - nice levels and cpu.weight on one scale
 *
 * A task of nice 0 and a group of cpu.weight 100 weigh 1024. Nice levels are 1.25 apart: one level is about
 * 10% of CPU between two equal tasks. Source: Linux.
 */
#ifndef PL_WEIGHT_H
#define PL_WEIGHT_H

#include "port.h"

#define PL_WEIGHT_UNIT 1024 /* nice 0, cpu.weight 100 */
#define PL_CPU_WEIGHT_DEFAULT 100
#define PL_WEIGHT_IDLE 3 /* SCHED_IDLE and cpu.idle */
#define PL_NICE_MIN (-20)

/* round(1024 * 1.25^-nice) for nice -20 .. 19 */
static const u32 pl_nice_weight_table[40] = {
    88818, 71054, 56843, 45475, 36380, 29104, 23283, 18626, 14901, 11921, 9537, 7629, 6104, 4883,
    3906,  3125,  2500,	 2000,	1600,  1280,  1024,  819,   655,   524,	  419,	336,  268,  215,
    172,   137,	  110,	 88,	70,    56,    45,    36,    29,	   23,	  18,	15,
};

/* Weight of a task; nice outside -20 .. 19 is clamped. */
PL_FN u64 pl_weight_of_nice(s32 nice)
{
	s32 i = nice - PL_NICE_MIN;

	if (i < 0)
		i = 0;
	if (i > 39)
		i = 39;
	return pl_nice_weight_table[i];
}

/* Weight of a group; cpu_weight 1 .. 10000. */
PL_FN u64 pl_weight_of_cpu_weight(u32 cpu_weight)
{
	return pl_max(
	    pl_div((u64)cpu_weight * PL_WEIGHT_UNIT + PL_CPU_WEIGHT_DEFAULT / 2, PL_CPU_WEIGHT_DEFAULT),
	    PL_WEIGHT_IDLE);
}

#endif

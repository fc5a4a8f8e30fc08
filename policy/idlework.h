/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * idlework.h - who wakes up finds the CPUs that run nothing but idle work
 *
 * Problem    A CPU that runs only SCHED_IDLE tasks, or groups of cpu.idle, is not idle, but whoever wakes up there and is
 *            not idle work itself has it at once. Not found, such CPUs are left to that work while others have queues.
 *
 * Mechanism  They are in a sparsemask per LLC. Where no CPU is idle, a task that wakes up goes to the first of them
 *            that it may use, from its previous CPU on, and preempts what runs there (fair.h). It does not lose the CPU again
 *            as its slice ends: idle work that is queued waits for a turn of its own (task.h).
 *
 * Formula    in the mask: runnable here > 0, and all of it gives way to any other, and no other class runs here
 *
 * Trade-offs An idle CPU elsewhere comes before one of these, with a cold cache. Who is about to be counted there takes its
 *            bit away, or another that wakes up meanwhile would follow; counting, and each tick, show it again.
 *
 * Limits     Of the LLC of the previous CPU only. A waiting task of a group whose cpu.idle is written counts as what it was
 *            until it is weighed anew.
 *
 * Source: the kernel's select_idle_sibling(), which takes a CPU of sched_idle_cpu() for an idle one.
 */
#ifndef PL_IDLEWORK_H
#define PL_IDLEWORK_H

#include "fair.h"
#include "sparsemask.h"

/*
 * What is runnable on a CPU changed: keeps its bit. `others`: something of another class runs there. `element` is its number in
 * the LLC. Returns whether the mask was written.
 */
PL_FN bool pl_idlework_changed(struct pl_sparsemask PL_MEM *mask, u32 element,
			       const struct pl_fair_cpu PL_MEM *cpu, bool others)
{
	bool only = !others && pl_fair_only_idle(cpu);

	if (pl_sparsemask_test(mask, element) == only)
		return false;
	if (only)
		pl_sparsemask_set(mask, element);
	else
		pl_sparsemask_clear(mask, element);
	return true;
}

/* Whether a task that wakes up looks for such a CPU, having found no idle one: not if it is idle work itself. */
PL_FN bool pl_idlework_wanted(bool task_idle)
{
	return !task_idle;
}

#endif

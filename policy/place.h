/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * place.h - on which CPU a task that wakes up, or is born, waits
 *
 * Problem    A task that waits behind its waker while the next CPU idles loses time; one that leaves a waker that is
 *            about to sleep costs an interrupt, and finds its data in another cache.
 *
 * Mechanism  The first of these that there is, in the order of enum pl_place. What is idle the engine knows, and it searches:
 *            live, the kernel's own search does.
 *
 * Formula    passes on = sync and no other task is runnable on the waker's CPU
 *
 * Trade-offs A waker that said it would sleep and does not makes its task wait: the engine offers one of the two to an idle
 *            CPU soon. Where a task wakes up no queue is compared with another: a long one is stealing's to shorten (steal.h).
 *            A new task has no cache to come back to. Behind its parent, with others that the parent makes, it would wait
 *            until they are far enough behind to be taken over (domain.h): beside 4 spinners on 4 CPUs processes of
 *            0.5 ms each 2 ms took 10 ms, for 2.5 of the kernel's own.
 *
 * Limits     A task that may run on one CPU only is not placed, nor counted here.
 *
 * Source: the kernel's fair class, sched_idle_cpu() and wake_affine(); its built-in search for sched_ext.
 */
#ifndef PL_PLACE_H
#define PL_PLACE_H

#include "task.h"

/* After so long a task that waits for its waker is offered to an idle CPU. */
#define PL_PLACE_SYNC_WAIT_NS (200 * PL_US)

enum pl_place {
	PL_PLACE_WAKER, /* its waker's CPU: pl_place_passes_on */
	PL_PLACE_KEPT, /* the previous one, idle; where CPUs share cores, on an idle core, or else no core is idle */
	PL_PLACE_CACHE,	    /* another idle one of its cache, an idle core first */
	PL_PLACE_ELSEWHERE, /* any idle one */
	PL_PLACE_IDLE_WORK, /* one of its cache that runs what gives way to it (pl_task_yields_cpu), the previous one first */
	PL_PLACE_BEHIND, /* behind what is there: the previous one, of a new task the lightest of its cache (pl_place_lighter) */
	PL_PLACES
};

/* Whether a waker on a CPU leaves it to the task that it wakes: it is about to sleep (`sync`), and has it to itself. */
PL_FN bool pl_place_passes_on(const struct pl_fair_cpu PL_MEM *waker, bool sync)
{
	return sync && waker->nr_queued == 1;
}

/* Whether a new task waits on a CPU rather than on `other`: what is runnable there weighs less. */
PL_FN bool pl_place_lighter(const struct pl_fair_cpu PL_MEM *cpu, const struct pl_fair_cpu PL_MEM *other)
{
	return pl_read(&cpu->weight_sum) < pl_read(&other->weight_sum);
}

/* What an idle CPU is to a task. */
PL_FN u32 pl_place_idle(u32 previous, u32 cpu, bool same_cache)
{
	if (cpu == previous)
		return PL_PLACE_KEPT;
	return same_cache ? PL_PLACE_CACHE : PL_PLACE_ELSEWHERE;
}

#endif

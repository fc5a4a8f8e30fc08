/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * recorded.h - for replays only: what a task was owed as it was woken, where a recording says so
 *
 * Problem    Whose turn it is beside others follows from lag, and lag from all that ran before, threads among them of which a recording
 *            of one group knows little. Kernels differ in how they weigh what comes and goes, too.
 *
 * Mechanism  The recorder notes the lag of what is woken in the queue in which it stands beside what runs. A replay of the same
 *            wake-up begins with that lag, in the line where the two part, and leaves what follows from it to the rules. What the
 *            one is given the others there owe: the line's lags add up to nothing as before.
 *
 * Formula    leave and join of entity.h, with the recorded lag
 *
 * Trade-offs Only where nothing else of the woken task's group waits there: the group has just come, too.
 *
 * Limits     A lag is bounded as everywhere (pl_entity_bound).
 *
 * Source: bpf/record_owed.h
 */
#ifndef PL_RECORDED_H
#define PL_RECORDED_H

#include "steps.h"

/*
 * A task has just come beside the one that runs, and is owed owed_ns of service where the two part, below 0: owes that. After
 * pl_steps_enter.
 */
PL_FN void pl_recorded_owed(const struct pl_task PL_MEM *woken, const struct pl_turn PL_MEM *turn,
			    const struct pl_task PL_MEM *running, const struct pl_turn PL_MEM *current,
			    s64 owed_ns)
{
	struct pl_parting parting = pl_steps_part(woken, turn, running, current);
	struct pl_line PL_MEM *line = (struct pl_line PL_MEM *)parting.line;
	struct pl_entity PL_MEM *came = (struct pl_entity PL_MEM *)parting.woken;
	const struct pl_group PL_MEM *level = woken->group;

	for (; &pl_node_of(level, woken->cpu)->line != line && PL_LOOP; level = level->parent)
		if (pl_node_of(level, woken->cpu)->line.n > 1)
			return;
	pl_line_leave(line, came);
	pl_line_join(line, came, owed_ns * (1LL << PL_ENTITY_SHIFT));
}

#endif

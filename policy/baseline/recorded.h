/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * recorded.h - for replays only: what a task was owed as it was woken, where a recording says so
 *
 * Problem    Whose turn it is beside others follows from lag, and lag from all that ran before, threads among them of which a recording
 *            of one group knows little. Kernels differ in how they weigh what comes and goes, too.
 *
 * Mechanism  The recorder notes the lag of what is woken in the queue in which it stands beside what runs, and the lag of that. A replay
 *            of the same wake-up begins with both, in the line where the two part, and leaves what follows from them to the rules.
 *            What they are given the others there owe: the line's lags add up to nothing as before. One lag would not do beside a
 *            client of a hundred times the weight, which V follows: of what it interrupted it does not say who is ahead of whom.
 *
 * Formula    leave and join of entity.h, with the recorded lags
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
 * One of several in a line has a lag from now on, in ns * 2^20: it is moved, with its request and its turn, and the others stay.
 */
PL_INLINE void pl_recorded_place(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity, s64 lag)
{
	u64 v = entity->v, mean;

	pl_tree_remove(line, entity);
	line->sum_wv -= (s64)(v - line->v0) * (s64)entity->weight;
	line->sum_w -= entity->weight;
	mean = pl_line_mean(line) - (u64)pl_div_down(lag, line->sum_w);
	entity->v = mean - (u64)pl_div_down(lag, entity->weight);
	entity->deadline += entity->v - v;
	entity->protected_v += entity->v - v;
	entity->picked_v += entity->v - v;
	pl_line_center(line, mean);
	line->sum_wv += (s64)(entity->v - mean) * (s64)entity->weight;
	line->sum_w += entity->weight;
	pl_tree_insert(line, entity);
}

/*
 * Gives one that has just come to a line the lag of a recording in which `beside` ran there, ns of service, below 0: it owes that; and
 * `beside` its own. What they are given the others owe; of two what the one is owed the other owes. Where `beside` is not in the line now,
 * what has come is as far ahead of those that are as it was then.
 */
PL_FN void pl_recorded_lags(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *came,
			    struct pl_entity PL_MEM *beside, s64 owed_ns, s64 beside_ns)
{
	s64 lag = pl_entity_bounded(came, owed_ns * (1LL << PL_ENTITY_SHIFT));
	s64 other = beside_ns * (1LL << PL_ENTITY_SHIFT);

	pl_line_leave(line, came);
	if (beside->on && line->n > 1)
		/* Its lag changes as the other one joins, by its part of what that one is given. */
		pl_recorded_place(line, beside, other + pl_div_down(lag, line->sum_w) * (s64)beside->weight);
	else if (!beside->on && line->n)
		lag += pl_div_down(other, came->weight + line->sum_w) * (s64)came->weight;
	pl_line_join(line, came, lag);
}

/*
 * A task has just come where something runs. In a recording a thread of the group `beside` ran there, and where the two part the one
 * that came was owed owed_ns, and the other's group beside_ns. After pl_steps_enter.
 */
PL_FN void pl_recorded_owed(const struct pl_task PL_MEM *woken, struct pl_turn PL_MEM *turn,
			    const struct pl_group PL_MEM *beside, s64 owed_ns, s64 beside_ns)
{
	const struct pl_group PL_MEM *group = woken->group;
	struct pl_entity PL_MEM *came = &turn->entity;
	struct pl_entity PL_MEM *other = NULL;

	while (group != beside && PL_LOOP) {
		u32 depth = pl_max(group->depth, beside->depth);

		if (group->depth == depth) {
			if (pl_node_of(group, woken->cpu)->line.n > 1)
				return;
			came = &pl_node_of(group, woken->cpu)->entity;
			group = group->parent;
		}
		if (beside->depth == depth) {
			other = &pl_node_of(beside, woken->cpu)->entity;
			beside = beside->parent;
		}
	}
	/* A thread of a group above is one of many there. */
	if (other)
		pl_recorded_lags(&pl_node_of(group, woken->cpu)->line, came, other, owed_ns, beside_ns);
}

#endif

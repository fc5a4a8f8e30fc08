/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * steps.h - the steps of a task's life on a CPU, each as a whole, for entity.h's lines
 *
 * Problem    What a task's coming, running and going does to every level of the hierarchy is one thing to do in one
 *            order. Where engines put it together from small functions, they do so differently.
 *
 * Mechanism  Each group has on each CPU a line of what is runnable of it there, and is, while that is not empty, an entity
 *            of its parent's line, which weighs the group's share (load.h). Five steps:
 *              enter  a task begins to wait on a CPU: joins its group's line with the lag that it kept; groups of which
 *                     nothing was there join their parent's. While another member of a group is there, its members come
 *                     and go without moving any line above: their lags are their siblings' alone.
 *              pick   from the root's line down: whose turn it is; picked: and for how long
 *              ran    charges v at all levels; tell: of a task that runs on, before another one joins
 *              tick   weighs the groups of the running task anew; written: a group whose weight was written
 *              leave  the reverse of enter; throttling is leaving: a group of which nothing may run is in no line
 *            Three questions between steps: comes and owes_nothing, of a task that has just come beside the one that
 *            runs; pulls, whether a CPU takes a task over. yield: the running task gives its request away.
 *
 *            A group asks for as little at a time as the most modest of its members.
 *
 *            Where the kernel's fair class since 6.6 is simulated (as_kernel) all ask for a slice at a time, and a
 *            task that wakes up waits while the one that runs is owed time and the request that it was picked for is
 *            not served (RUN_TO_PARITY). What goes to sleep while it owes time stays in its line until that is paid,
 *            where the kernel does so (pl_line_delay). The live scheduler is built without any of this (PL_BASELINE).
 *
 * Formula    A task weighs in its group's line what its nice value is worth, a group in its parent's its share on that CPU (load.h).
 *            For how long one is picked: pl_steps_picked.
 *
 * Trade-offs A task moved by the engine keeps its lag, and one pulled because it is behind gets what it is behind added
 *            to that, pull_ns at most, from those that it comes to (domain.h).
 *
 * Limits     A task's weight changes while it is in no line; a group's at ticks, as its tasks come and as it is written. Waits
 *            follow from lag: a group that has had its share waits, however urgent its members.
 *
 * Source: the kernel's fair class, where a group's entity stands in its parent's queue; entity.h for each line.
 */
#ifndef PL_STEPS_H
#define PL_STEPS_H

#include "turn.h"

/*
 * What would owe nothing after so much service counts as such: two threads of a service that come at once beside a batch job of
 * equal weight need not wait for each other and for that.
 */
#define PL_STEPS_EARLY_NS (1 * PL_MS)
/*
 * How far ahead of its domain a task beside others may be. Source: chosen; times the heaviest weight it stays below
 * 2^62.
 */
#define PL_STEPS_AHEAD_NS (8 * PL_SEC)

PL_INLINE u64 pl_steps_early(const struct pl_fair_config PL_MEM *config)
{
	return pl_steps_as_kernel(config) ? 0 : PL_STEPS_EARLY_NS;
}

/*
 * What a group weighs as it joins its parent's line. One that was throttled has no share there until one of its tasks is picked: it
 * weighs what it is due now, as it would wait for ever with the least there is.
 */
PL_INLINE u64 pl_node_share(const struct pl_group PL_MEM *level, u32 cpu)
{
	const struct pl_queue PL_MEM *queue = &level->queues[cpu];

	return queue->share ?: pl_load_share(&level->load, &queue->load, pl_group_weight(level));
}

/* Weighs the groups of a task on its CPU: what each is worth in its parent's line is its share there. */
PL_FN void pl_steps_tick(const struct pl_task PL_MEM *task, const struct pl_fair_config PL_MEM *config)
{
	struct pl_group PL_MEM *level;

	for (level = task->group; level->parent && PL_LOOP; level = level->parent) {
		u64 share = level->queues[task->cpu].share;
		struct pl_entity PL_MEM *entity = &pl_node_of(level, task->cpu)->entity;
		struct pl_line PL_MEM *line = &pl_node_of(level->parent, task->cpu)->line;
		s64 more = 0;

		/* Without one it is throttled: what it weighed stays until its tasks have left. */
		if (!share || share == entity->weight || !entity->on)
			continue;
		if (PL_BASELINE(config->doubled_ns) && line->picked == entity && line->n > 1)
			more = pl_entity_doubled(line, entity, share, config->doubled_ns);
		pl_line_weigh(line, entity, share, more);
	}
}

/*
 * Likewise, unless no share has changed since it was last done: shares change as they are refreshed, or as a group
 * joins.
 */
PL_INLINE void pl_steps_weigh(const struct pl_task PL_MEM *task, const struct pl_fair_config PL_MEM *config)
{
	const struct pl_queue PL_MEM *queue = &task->group->queues[task->cpu];
	struct pl_node PL_MEM *node = pl_node_of(task->group, task->cpu);

	if (!pl_steps_as_kernel(config) && node->weighed_ns == queue->refreshed_ns &&
	    node->entity.weight == queue->share)
		return;
	node->weighed_ns = queue->refreshed_ns;
	pl_steps_tick(task, config);
}

/*
 * What the group weighs has been written: it counts at once, whether any of it is picked soon or not. After pl_queue_written, with
 * the CPU's lock.
 */
PL_FN void pl_steps_written(struct pl_group PL_MEM *group, u32 cpu, u64 now_ns, struct pl_touch PL_MEM *touch,
			    const struct pl_config PL_MEM *config)
{
	struct pl_entity PL_MEM *entity;
	u64 share;

	if (PL_BASELINE(!group->nodes) || !group->parent)
		return;
	entity = &pl_node_of(group, cpu)->entity;
	if (!entity->on)
		return;
	pl_load_update(&group->queues[cpu].load, now_ns);
	if (group->parent->parent)
		pl_load_update(&group->parent->queues[cpu].load, now_ns);
	share = pl_level_refresh(group, cpu, now_ns, touch, config);
	if (share)
		pl_line_weigh(&pl_node_of(group->parent, cpu)->line, entity, share, 0);
}

/*
 * A task begins to wait. After pl_task_runnable and pl_task_count. `id`: what pl_steps_pick is to return; not 0 live,
 * where 0 is nobody.
 */
PL_FN void pl_steps_enter(struct pl_part PL_MEM *part, struct pl_task PL_MEM *task,
			  struct pl_turn PL_MEM *turn, u64 id, u64 now_ns,
			  const struct pl_fair_config PL_MEM *config)
{
	struct pl_entity PL_MEM *entity = &turn->entity;
	struct pl_group PL_MEM *level = task->group;
	struct pl_node PL_MEM *node = pl_node_of(level, task->cpu);
	s64 behind = turn->behind;
	s64 lag;

	/* Sleep earns no right to be moved. What was parked or moved is behind as before. */
	pl_turn_counts(part, turn, task->effective, turn->since_ns ? config->lag_max_ns : config->pull_ns,
		       config->lag_max_ns);
	/* Before any joins. */
	pl_steps_weigh(task, config);
	if (PL_BASELINE(entity->on && turn->from != node))
		pl_line_forget(&turn->from->line, entity);
	entity->id = id;
	entity->slice_ns = pl_turn_request(turn, config);
	if (!turn->from)
		lag = -(s64)(entity->slice_ns << PL_ENTITY_SHIFT);
	else if (turn->from == node)
		lag = pl_entity_kept(&node->line, entity);
	else
#ifdef PL_MUTATE_DEBT
		lag = pl_smax(entity->lag, 0);
#else
		lag = entity->lag;
#endif
	turn->behind = 0;
	turn->from = node;
	if (node->line.n) {
		lag += behind;
		behind = 0;
	}
	if (PL_BASELINE(entity->on)) {
		pl_line_resume(&node->line, entity);
	} else {
		entity->weight = task->weight << PL_LOAD_SHIFT;
		pl_line_join(&node->line, entity, lag);
	}
	for (; level->parent && PL_LOOP; level = level->parent) {
		struct pl_entity PL_MEM *group = &node->entity;

		node = pl_node_of(level->parent, task->cpu);
		if (group->on) {
			if (PL_BASELINE(group->on == PL_ENTITY_DELAYED))
				pl_line_resume(&node->line, group);
			/* Its members ask for less at a time from now on; or it asks for as little already, and those above it do. */
			if (entity->slice_ns >= group->slice_ns && !pl_steps_as_kernel(config))
				break;
			if (entity->slice_ns < group->slice_ns)
				pl_line_hurry(&node->line, group, entity->slice_ns);
			continue;
		}
		group->line = &pl_node_of(level, task->cpu)->line;
		group->slice_ns = entity->slice_ns;
		lag = group->weight ? pl_entity_kept(&node->line, group) : 0;
		group->weight = pl_node_share(level, task->cpu);
		/* What a pulled task is behind is owed by those that are there, at the level where there are any. */
		if (node->line.n) {
			lag += behind;
			behind = 0;
		}
		pl_line_join(&node->line, group, lag);
	}
	while (level->parent && PL_LOOP)
		level = level->parent;
	pl_rota_come(&level->queues[task->cpu].rota, turn, now_ns);
}

/*
 * A task no longer waits or runs. Before pl_task_uncount. ran_ns: what it has run and pl_steps_ran has not been told
 * of. `sleeps`: else it moves or is parked. `delays`: what goes to sleep while it owes time stays, see pl_line_delay;
 * never live.
 */
PL_FN void pl_steps_leave(struct pl_part PL_MEM *part, struct pl_task PL_MEM *task,
			  struct pl_turn PL_MEM *turn, u64 ran_ns, bool sleeps, bool delays)
{
	struct pl_entity PL_MEM *entity = &turn->entity;
	struct pl_group PL_MEM *level;
	bool leaves = true;

	pl_turn_uncounts(part, turn);
	pl_rota_leave(turn);
	if (sleeps)
		turn->since_ns = 0;
	turn->used_ns += ran_ns;
	turn->told_ns += ran_ns;
	if (turn->told_ns > PL_STEPS_TOLD_NS)
		pl_turn_tells(task, turn);
	if (sleeps && turn->used_ns) {
		turn->usual_ns =
		    turn->usual_ns ? turn->usual_ns - turn->usual_ns / 8 + turn->used_ns / 8 : turn->used_ns;
		turn->used_ns = 0;
	}
	delays = PL_BASELINE(delays) && sleeps;
	for (level = task->group; level && PL_LOOP; level = level->parent) {
		struct pl_line PL_MEM *line = &pl_node_of(level, task->cpu)->line;

		/* A group that still has members is not asleep. */
		if (!leaves)
			pl_line_ran(line, entity, ran_ns);
		else if (delays && pl_line_delay(line, entity))
			return;
		else
			pl_line_leave_after(line, entity, ran_ns);
		if (level == task->group) {
			ran_ns += turn->above_ns;
			turn->above_ns = 0;
		}
		leaves = !line->n;
		if (!leaves && !ran_ns)
			return;
		entity = &pl_node_of(level, task->cpu)->entity;
	}
}

/*
 * A task ran: its group's line knows, and where `above` those above it, too, which had not been told before. Returns whether it is
 * alone in all lines that know.
 */
PL_INLINE bool pl_turn_ran(struct pl_task PL_MEM *task, struct pl_turn PL_MEM *turn, u64 delta_ns, bool above,
			   const struct pl_fair_config PL_MEM *config)
{
	struct pl_entity PL_MEM *entity = &turn->entity;
	struct pl_group PL_MEM *level;
	bool alone = true;

	turn->used_ns += delta_ns;
	turn->told_ns += delta_ns;
	turn->above_ns += delta_ns;
	if (turn->usual_ns && turn->used_ns > turn->usual_ns)
		entity->slice_ns = pl_turn_request(turn, config);
	for (level = task->group; level && PL_LOOP; level = level->parent) {
		struct pl_node PL_MEM *node = pl_node_of(level, task->cpu);

		pl_line_ran(&node->line, entity, delta_ns);
		alone = alone && node->line.n == 1;
		if (level == task->group) {
			if (!above)
				break;
			delta_ns = turn->above_ns;
			turn->above_ns = 0;
		}
		entity = &node->entity;
	}
	return alone;
}

/*
 * A task ran on, and one of `group` is about to join: the lines that this one may join are told first. Its u is not,
 * until the next pl_steps_ran.
 */
PL_FN void pl_steps_tell(struct pl_task PL_MEM *task, struct pl_turn PL_MEM *turn, u64 delta_ns,
			 const struct pl_group PL_MEM *group, const struct pl_fair_config PL_MEM *config)
{
	pl_turn_ran(task, turn, delta_ns, group != task->group, config);
}

/* A task ran, up to now_ns: all of its lines, its u and the rota are told. It is in its lines. */
PL_FN void pl_steps_ran(struct pl_part PL_MEM *part, struct pl_task PL_MEM *task, struct pl_turn PL_MEM *turn,
			u64 delta_ns, u64 now_ns, const struct pl_fair_config PL_MEM *config)
{
	bool alone = pl_turn_ran(task, turn, delta_ns, true, config);

	pl_rota_last(turn->rota, turn, now_ns);
	pl_turn_uncounts(part, turn);
	pl_turn_tells(task, turn);
	pl_turn_counts(part, turn, task->effective, config->lag_max_ns,
		       alone ? 2 * config->pull_ns : PL_STEPS_AHEAD_NS);
}

/*
 * It is a task's turn, and that of its groups, which are weighed. Returns run time until it may be another's: a slice, or what is
 * left of a group's request and of its own, or until another group that has the earlier deadline owes no time. What is left of its
 * own request alone is what the kernel's fair class goes by: with turns of PL_REQUEST_MIN_NS, for which all of its tasks ask,
 * hackbench made three to six times as many switches and wake-ups.
 */
PL_FN u64 pl_steps_picked(const struct pl_task PL_MEM *task, struct pl_turn PL_MEM *turn, u64 now_ns,
			  const struct pl_fair_config PL_MEM *config)
{
	struct pl_entity PL_MEM *entity = &turn->entity;
	struct pl_group PL_MEM *level;
	u64 slice_ns = pl_turn_late(turn, now_ns, config) ? PL_TURN_MIN_NS : config->slice_ns;

	pl_steps_weigh(task, config);
	for (level = task->group; level && PL_LOOP; level = level->parent) {
		struct pl_node PL_MEM *node = pl_node_of(level, task->cpu);

		pl_line_picked(&node->line, entity);
		if (pl_steps_as_kernel(config) && node->line.n > 1) {
			slice_ns = pl_min(slice_ns, pl_entity_left(entity));
		} else if (node->line.n > 1 && level != task->group) {
			const struct pl_entity PL_MEM *first = pl_line_first(&node->line);

			u64 own_ns = pl_max(pl_entity_left(&turn->entity), PL_REQUEST_MIN_NS);

			slice_ns = pl_min(slice_ns, pl_max(pl_entity_left(entity), own_ns));
			if ((s64)(first->deadline - entity->deadline) < 0)
				slice_ns = pl_min(slice_ns,
						  pl_line_until(&node->line,
								pl_line_early(&node->line, PL_STEPS_EARLY_NS),
								first->v, slice_ns));
		}
		entity = &node->entity;
	}
	return pl_max(slice_ns, PL_TURN_MIN_NS);
}

/*
 * What was picked of a line and has nothing to run leaves it: a task that sleeps, or a group of such. Returns whether it did.
 */
PL_INLINE bool pl_steps_forgets(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity)
{
	if (entity->on == PL_ENTITY_DELAYED)
		pl_line_forget(line, entity);
	else if (entity->line && !entity->line->n)
		pl_line_leave(line, entity);
	else
		return false;
	return true;
}

/*
 * Whose turn it is on a CPU: a task's id. Something is there. What has waited for too long has every other turn. As in
 * the kernel a group of which a task has stopped goes on with the next one while it is protected.
 */
PL_FN u64 pl_steps_pick(const struct pl_group PL_MEM *root, u32 cpu, u64 now_ns,
			const struct pl_fair_config PL_MEM *config)
{
	struct pl_rota PL_MEM *rota = &root->queues[cpu].rota;
	struct pl_line PL_MEM *line = &pl_node_of(root, cpu)->line;
	struct pl_entity PL_MEM *above = NULL;
	struct pl_entity PL_MEM *entity = NULL;
	u64 least_ns;

	rota->late = !rota->late && rota->first && pl_turn_late(rota->first, now_ns, config);
	if (rota->late)
		return rota->first->entity.id;
	while (line && PL_LOOP) {
		entity = pl_line_pick(line, pl_steps_early(config), &least_ns);
		if (pl_steps_as_kernel(config) && line->picked && line->picked->line &&
		    pl_entity_is_protected(line, line->picked))
			entity = line->picked;
		if (PL_BASELINE(entity && pl_steps_forgets(line, entity))) {
			line = &pl_node_of(root, cpu)->line;
			above = NULL;
			continue;
		}
		/* Within its group a task has the turn until it has had a slice. */
		if (!pl_steps_as_kernel(config) && line->picked && entity && !entity->line &&
		    !line->picked->line && pl_entity_had(line->picked) < config->slice_ns)
			entity = line->picked;
		if (above && above->slice_ns != least_ns) {
			above->slice_ns = least_ns;
			pl_tree_sum_up(above);
		}
		above = entity;
		line = entity ? entity->line : NULL;
	}
	return entity ? entity->id : 0;
}

/* Two CPUs, and how far what is runnable on each is served. */
struct pl_pull {
	const struct pl_part PL_MEM *from_part;
	const struct pl_part PL_MEM *to_part;
	const struct pl_fair_cpu PL_MEM *from;
	const struct pl_fair_cpu PL_MEM *to;
};

/*
 * Whether a CPU takes over a task that waits on another one, which is furthest behind there; of the CPU's own tasks the one
 * that is furthest behind is at `own`. If so, the task's lag grows by what it is behind. Before it leaves.
 *
 * A slice moves what is light by much, be it the one that waits or those of the CPU: the lighter of the two measures the
 * distance, but where the CPUs weigh more alike afterwards the heavier does. A task that weighs more than all others where
 * it is (by half: equals take turns) stays, unless it leaves more behind than it finds: it would have no more there, and it
 * is the light ones beside it that go. Without the two, a task that is due a whole CPU was pulled from light ones to light
 * ones for ever (0.87 to 0.96 of it, 2 CPUs), and groups of weight 100 beside 1000 had 7.5 to 9.0% for 9.1 (2 to 8 CPUs).
 */
PL_FN bool pl_steps_pulls(const struct pl_pull pull, const struct pl_task PL_MEM *task,
			  struct pl_turn PL_MEM *turn, bool has_own, u64 own,
			  const struct pl_fair_config PL_MEM *config)
{
	u64 weight = task->effective;
	u64 here = pl_read(&pull.from->weight_sum);
	u64 there = pl_read(&pull.to->weight_sum);
	u64 behind, theirs;

	if (!has_own)
		return true;
	if (5 * weight > 3 * here && here <= there + weight)
		return false;
	behind = weight;
	if (here > there + pl_max(weight, here / 8))
		behind = pl_max(weight, pl_div(there, pl_read(&pull.to->nr_queued)));
	theirs = pl_domain_translate(pl_turn_u(turn, pull.from_part), pull.from_part->domain,
				     pull.to_part->domain);
	if (!pl_domain_pulls(own, theirs, behind, config))
		return false;
	behind = pl_min(own - theirs, pl_fair_scale(config->pull_ns, weight));
	turn->behind = (s64)pl_min(behind * weight, config->pull_ns << PL_ENTITY_SHIFT);
	return true;
}

/*
 * The line in which two tasks on one CPU, or groups of theirs, stand beside each other, and the entity of each there.
 */
struct pl_parting {
	const struct pl_line PL_MEM *line;
	const struct pl_entity PL_MEM *woken;
	const struct pl_entity PL_MEM *running;
};

/* From the groups of both upwards, the deeper one first, to the nearest that both are below. */
PL_FN struct pl_parting pl_steps_part(const struct pl_task PL_MEM *woken, const struct pl_turn PL_MEM *turn,
				      const struct pl_task PL_MEM *running,
				      const struct pl_turn PL_MEM *current)
{
	const struct pl_group PL_MEM *a = woken->group;
	const struct pl_group PL_MEM *b = running->group;
	struct pl_parting parting = {.woken = &turn->entity, .running = &current->entity};

	while (a != b && PL_LOOP) {
		u32 depth = pl_max(a->depth, b->depth);

		if (a->depth == depth) {
			parting.woken = &pl_node_of(a, woken->cpu)->entity;
			a = a->parent;
		}
		if (b->depth == depth) {
			parting.running = &pl_node_of(b, woken->cpu)->entity;
			b = b->parent;
		}
	}
	parting.line = &pl_node_of(a, woken->cpu)->line;
	return parting;
}

/* What pl_steps_comes returns where the one that came does not go before the other: */
#define PL_TURN_NEXT (~0ULL)  /* it waits for the end of that one's turn, and owes no time */
#define PL_TURN_LATER (~1ULL) /* likewise, but it owes time */

/*
 * After how much run time of the task that runs one that has just come goes before it; 0: at once; PL_TURN_NEXT,
 * PL_TURN_LATER. The one that runs has been charged up to now. What is idle gives way. Else it is decided in the line
 * where their groups part (pl_steps_part), and three things have to be so:
 *  - the one that came owes no time (PL_STEPS_EARLY_NS);
 *  - it has the earlier deadline: now, or once the request of the other is served and the next one begun;
 *  - the other has had PL_REQUEST_MIN_NS of its turn, in the same group a slice: tasks that wake each other up take turns then,
 *    instead of taking the CPU from each other.
 */
PL_FN u64 pl_steps_comes(const struct pl_task PL_MEM *woken, const struct pl_turn PL_MEM *turn,
			 const struct pl_task PL_MEM *running, const struct pl_turn PL_MEM *current,
			 const struct pl_fair_config PL_MEM *config)
{
	const struct pl_entity PL_MEM *now, *came;
	struct pl_parting parting;
	u64 mean, deadline, had_ns, wait_ns;
	bool goes, same;

	if (woken->idle != running->idle)
		return running->idle ? 0 : PL_TURN_LATER;
	parting = pl_steps_part(woken, turn, running, current);
	now = parting.running;
	came = parting.woken;
	if (pl_steps_as_kernel(config))
		return pl_entity_is_protected(parting.line, now) ? PL_TURN_NEXT : 0;
	mean = pl_line_early(parting.line, PL_STEPS_EARLY_NS);
	had_ns = pl_entity_had(now);
	same = woken->group == running->group;
	if (same && had_ns < config->slice_ns)
		return (s64)(came->v - mean - pl_entity_scale(PL_TURN_MIN_NS, parting.line->sum_w)) <= 0
			   ? PL_TURN_NEXT
			   : PL_TURN_LATER;
	wait_ns = pl_line_until(parting.line, mean, came->v, config->slice_ns);
	if (wait_ns > config->slice_ns)
		return PL_TURN_LATER;
	deadline = now->deadline;
	if ((s64)(now->v - deadline) >= 0)
		deadline = now->v + pl_entity_scale(now->slice_ns, now->weight);
	goes = pl_goes_before(wait_ns ? mean : came->v, came->deadline, now->v, deadline, mean);
	if (same && !goes)
		return wait_ns > PL_TURN_MIN_NS ? PL_TURN_LATER : PL_TURN_NEXT;
	if (!goes)
		wait_ns = pl_max(wait_ns, ((deadline - now->v) * now->weight) >> PL_ENTITY_SHIFT);
	wait_ns = pl_max(wait_ns, PL_REQUEST_MIN_NS - pl_min(had_ns, PL_REQUEST_MIN_NS));
	return wait_ns ? pl_max(wait_ns, PL_TURN_MIN_NS) : 0;
}

/* Whether a task that has just come owes nothing, where its groups part from those of the one that runs. */
PL_FN bool pl_steps_owes_nothing(const struct pl_task PL_MEM *woken, const struct pl_turn PL_MEM *turn,
				 const struct pl_task PL_MEM *running, const struct pl_turn PL_MEM *current)
{
	struct pl_parting parting = pl_steps_part(woken, turn, running, current);

	return (s64)(pl_line_mean(parting.line) - parting.woken->v) >= 0;
}

/* The running task gives the rest of its request away: to those beside it, or where none are to those beside its group. */
PL_FN void pl_steps_yield(const struct pl_task PL_MEM *task, struct pl_turn PL_MEM *turn)
{
	struct pl_entity PL_MEM *entity = &turn->entity;
	struct pl_group PL_MEM *level;

	for (level = task->group; level && PL_LOOP; level = level->parent) {
		struct pl_node PL_MEM *node = pl_node_of(level, task->cpu);

		if (node->line.n > 1) {
			pl_line_ran(&node->line, entity, pl_entity_left(entity) + 1);
			return;
		}
		entity = &node->entity;
	}
}

#endif

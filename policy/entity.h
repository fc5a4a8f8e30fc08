/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * entity.h - one line of entities that share a CPU: earliest eligible virtual deadline first, with conserved lag
 *
 * Problem    Entities i of weight w_i (tasks, and groups beside them) share one CPU. Each is due service in proportion to
 *            its weight at every moment, can be served only one at a time, and comes, goes and changes its weight.
 *
 * Mechanism  v_i, the virtual time of entity i, advances by service / w_i. V is the mean of all v_i, weighted by w_i. What
 *            entity i is due and has not had is its lag, w_i (V - v_i), in units of service. From the definition of V
 *
 *                sum of w_i (V - v_i) = 0                                                                 (invariant)
 *
 *            What one is owed, the others owe. While entity j runs for t, v_j grows by t / w_j, V by t / sum of w, and
 *            each lag by its share of t: the line follows the ideal fluid division by itself. So V moves only through
 *            service, and through events that change the set; each must keep every lag as it is (up to the shift that
 *            closes the sum), or it makes or destroys service:
 *              join   with lag l: with W and V before and v the place looked for, V' = (W V + w v) / (W + w). The lag
 *                     afterwards is to be l = w (V' - v), so V' = V - l / W and v = V' - l / w
 *              leave  the same backwards: V' = V + l / (W - w); l goes along with the entity
 *              weigh  anew: l = w (V - v) = w' (V - v'), so v' = V - l / w'; V stays
 *            An entity is eligible while its lag is not negative: v_i <= V. It asks for a request of `slice_ns` at a
 *            time (the kernel's se->slice), and its deadline is d_i = v_i + slice / w_i from where the request began.
 *            Of those eligible the one of the earliest deadline runs. Then no lag is further from 0 than the longest
 *            request and what it overruns by.
 *
 * Formula    V = v0 + sum of w_i (v_i - v0) / sum of w_i, rounded down: one is always eligible
 *            v += delta * 2^20 / w         w carries PL_LOAD_SHIFT bits of fraction, as shares do
 *            l is kept as w (V - v): service in ns times 2^20
 *
 * Trade-offs A task that leaves while it is owed time keeps that while it is away, up to one request and a tick. What
 *            it owes is paid as V passes: without that one that has overrun once waits for it after hours of sleep. A
 *            task that goes to another line takes its lag along as it left. v0 follows V at some distance. Products are
 *            of a weight and a distance from V, which is service: for sums of lags below 2^43 ns (two hours) none
 *            exceeds 63 bits.
 *
 *            A line is a tree in order of deadlines, each of which knows the least v below it: a pick, like each other event,
 *            takes time in proportion to its depth, some log2 of the line's length. It is a treap: what is above has
 *            the lower rank, and ranks are as if drawn at random.
 *
 * Limits     Virtual times wrap; their differences decide.
 *
 * Source: Stoica and Abdel-Wahab, Earliest Eligible Virtual Deadline First, 1995; Seidel and Aragon, Randomized search
 * trees, 1996; the kernel's fair class for keeping sums near a moving origin.
 */
#ifndef PL_ENTITY_H
#define PL_ENTITY_H

#include "fair.h"
#include "load.h"

#define PL_ENTITY_SHIFT (PL_LOAD_SHIFT + 10) /* of v: an entity of nice 0 advances by 1 per ns */
/* Beyond its request an entity may owe or be owed what passes until the engine looks: a tick at HZ=100. */
#define PL_ENTITY_OVERRUN_NS (10 * PL_MS)
#define PL_ENTITY_REQUEST_MAX_NS (1 * PL_SEC)

struct pl_line;

/* What a walk through a tree reads comes first: a cache line of each one that it passes. */
struct pl_entity {
	u64 v;
	u64 deadline;
	u64 least_v;			   /* of it and all below it */
	u64 least_ns;			   /* likewise, the shortest request */
	struct pl_entity PL_MEM *below[2]; /* with an earlier and a later deadline */
	struct pl_entity PL_MEM *above;	   /* in its line's tree; NULL: at its top */
	u32 rank;			   /* drawn from its number: one above has a lower one */
	u32 on;				   /* PL_ENTITY_*; 0: it is in no line */
	u64 slice_ns;			   /* the request */
	u64 weight;			   /* PL_LOAD_SHIFT bits of fraction */
	u64 number;			   /* of equals the one with the lowest came first */
	u64 picked_v;			   /* v as it was picked */
	u64 id;				   /* the engine's name for a task */
	struct pl_line PL_MEM *line;	   /* of a group: what it serves; NULL: a task */
	s64 lag;    /* of one that is away: as it left, within pl_entity_bound; ns * 2^20 */
	u64 paid_v; /* of one that is away and owes time: that is paid once V is here */
	u64 protected_v; /* where the kernel is simulated: until v is here a woken one may have to wait; its vprot */
};

#define PL_ENTITY_ON 1
/* Its task sleeps, and it is still in its line, as it owes time. Only where the kernel is simulated: pl_line_delay. */
#define PL_ENTITY_DELAYED 2

struct pl_line {
	u64 v0;	    /* near V; of an empty line: V */
	s64 sum_wv; /* sum of w_i (v_i - v0) */
	u64 sum_w;
	u64 joined; /* how many have joined so far: the next one's number */
	struct pl_entity PL_MEM *top;
	struct pl_entity PL_MEM *picked; /* the one that was picked last, unless it has left */
	u32 n;				 /* entities */
	u32 reserved;
};

/* a / b rounded down, b > 0. BPF before cpu v4 divides unsigned numbers only. */
PL_INLINE s64 pl_div_down(s64 a, u64 b)
{
	return a >= 0 ? (s64)pl_div((u64)a, b) : -(s64)pl_div((u64)-a + b - 1, b);
}

/* V. Of an empty line: where it stood. What is alone in a line is at v0. */
PL_FN u64 pl_line_mean(const struct pl_line PL_MEM *line)
{
	return line->sum_wv ? line->v0 + (u64)pl_div_down(line->sum_wv, line->sum_w) : line->v0;
}

/*
 * Whether a sum of w (v - v0) is so far from 0, 2^56, that v0 is to be moved to the mean. Source: chosen; products stay
 * below 2^62.
 */
PL_INLINE bool pl_far(s64 sum)
{
	return (u64)sum + (1ULL << 56) > 1ULL << 57;
}

/* Virtual time of a line that service of so many ns is, at an entity's weight or the line's sum: not fair.h's unit. */
PL_INLINE u64 pl_entity_scale(u64 ns, u64 weight)
{
	return pl_div(pl_min(ns, PL_FAIR_DELTA_MAX_NS) << PL_ENTITY_SHIFT, pl_max(weight, 1));
}

/*
 * Where V will be after service of so many ns: where `early_ns` is given, what is eligible by then counts as eligible
 * now.
 */
PL_INLINE u64 pl_line_early(const struct pl_line PL_MEM *line, u64 early_ns)
{
	return pl_line_mean(line) + pl_entity_scale(early_ns, line->sum_w);
}

/* Measures from `v0` from now on. */
PL_INLINE void pl_line_center(struct pl_line PL_MEM *line, u64 v0)
{
	line->sum_wv -= (s64)(v0 - line->v0) * (s64)line->sum_w;
	line->v0 = v0;
}

/* The bound on a lag that is kept: a request and what it may overrun by. ns * 2^20 */
PL_INLINE s64 pl_entity_bound(const struct pl_entity PL_MEM *entity)
{
	return (s64)((pl_min(entity->slice_ns, PL_ENTITY_REQUEST_MAX_NS) + PL_ENTITY_OVERRUN_NS)
		     << PL_ENTITY_SHIFT);
}

/* The lag of one that is in the line: ns * 2^20. */
PL_FN s64 pl_entity_lag(const struct pl_line PL_MEM *line, const struct pl_entity PL_MEM *entity)
{
	return (s64)(pl_line_mean(line) - entity->v) * (s64)entity->weight;
}

/* A lag within -bound .. bound. */
PL_INLINE s64 pl_lag_within(s64 lag, s64 bound)
{
	return pl_smin(pl_smax(lag, -bound), bound);
}

PL_INLINE s64 pl_entity_bounded(const struct pl_entity PL_MEM *entity, s64 lag)
{
	return pl_lag_within(lag, pl_entity_bound(entity));
}

/* Its request begins anew where it is. */
PL_INLINE void pl_entity_request(struct pl_entity PL_MEM *entity)
{
	entity->deadline = entity->v + pl_entity_scale(entity->slice_ns, entity->weight);
}

/* The lag with which it comes back to the line that it left, ns * 2^20: what it owed is paid as V passes. */
PL_FN s64 pl_entity_kept(const struct pl_line PL_MEM *line, const struct pl_entity PL_MEM *entity)
{
	s64 left = (s64)(entity->paid_v - pl_line_mean(line));
	u64 owed = (u64)-entity->lag;

	if (entity->lag >= 0)
		return entity->lag;
	if (left <= 0)
		return 0;
	if (left < 1LL << 32)
		return pl_smax(-left * (s64)entity->weight, entity->lag);
	/* Others that joined with a lag above 0 have moved V back: it owes no more for that. */
	return (u64)left >= pl_div(owed, entity->weight) ? entity->lag : -left * (s64)entity->weight;
}

/* The least v and the shortest request of an entity and all below it. Returns whether either has changed. */
PL_INLINE bool pl_tree_sum(struct pl_entity PL_MEM *entity)
{
	u64 least_v = entity->v, least_ns = entity->slice_ns;
	u32 side;

	for (side = 0; side < 2; side++) {
		const struct pl_entity PL_MEM *below = entity->below[side];

		if (below) {
			least_v = (s64)(below->least_v - least_v) < 0 ? below->least_v : least_v;
			least_ns = pl_min(below->least_ns, least_ns);
		}
	}
	if (entity->least_v == least_v && entity->least_ns == least_ns)
		return false;
	entity->least_v = least_v;
	entity->least_ns = least_ns;
	return true;
}

/* From an entity that has changed, or below which something has, as far up as that is seen. Returns 0. */
PL_SUB u64 pl_tree_sum_up(struct pl_entity PL_MEM *entity PL_ARENA)
{
	while (entity && pl_tree_sum(entity) && PL_LOOP)
		entity = entity->above;
	return 0;
}

/* Has no other above or below it. */
PL_INLINE void pl_tree_alone(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity)
{
	line->top = entity;
	pl_write(&entity->above, NULL);
	pl_write(&entity->below[0], NULL);
	pl_write(&entity->below[1], NULL);
	entity->least_v = entity->v;
	entity->least_ns = entity->slice_ns;
}

/* Hangs `other`, which may be none, where an entity hangs. */
PL_INLINE void pl_tree_replace(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity,
			       struct pl_entity PL_MEM *other)
{
	struct pl_entity PL_MEM *above = entity->above;

	if (!above)
		line->top = other;
	else if (above->below[0] == entity)
		above->below[0] = other;
	else
		above->below[1] = other;
	if (other)
		other->above = above;
}

/* An entity comes to where the one above it is, which goes below it. Returns 0. */
PL_SUB u64 pl_tree_rise(struct pl_line PL_MEM *line PL_ARENA, struct pl_entity PL_MEM *entity PL_ARENA)
{
	struct pl_entity PL_MEM *above = entity->above;
	u32 side = above->below[1] == entity;
	struct pl_entity PL_MEM *between = entity->below[!side];

	pl_tree_replace(line, above, entity);
	above->below[side] = between;
	if (between)
		between->above = above;
	entity->below[!side] = above;
	above->above = entity;
	pl_tree_sum(above);
	pl_tree_sum(entity);
	return 0;
}

#define PL_TREE_SMALL 4 /* so few may stand in any shape: no path is long, and rotations take longer */

/* Into the tree by its deadline. Returns 0. */
PL_SUB u64 pl_tree_insert(struct pl_line PL_MEM *line PL_ARENA, struct pl_entity PL_MEM *entity PL_ARENA)
{
	struct pl_entity PL_MEM *above = NULL;
	struct pl_entity PL_MEM *at = line->top;
	u32 side = 0;

	while (at && PL_LOOP) {
		s64 later = (s64)(entity->deadline - at->deadline);

		above = at;
		at->least_v = (s64)(entity->v - at->least_v) < 0 ? entity->v : at->least_v;
		at->least_ns = pl_min(entity->slice_ns, at->least_ns);
		side = later > 0 || (!later && (s64)(entity->number - at->number) > 0);
		at = at->below[side];
	}
	entity->above = above;
	pl_write(&entity->below[0], NULL);
	pl_write(&entity->below[1], NULL);
	if (above)
		above->below[side] = entity;
	else
		line->top = entity;
	entity->least_v = entity->v;
	entity->least_ns = entity->slice_ns;
	while (line->n > PL_TREE_SMALL && entity->above && entity->rank < entity->above->rank && PL_LOOP)
		pl_tree_rise(line, entity);
	return 0;
}

/* Likewise, into a tree of one. */
PL_INLINE void pl_tree_second(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity)
{
	struct pl_entity PL_MEM *top = line->top;

	entity->above = top;
	pl_write(&entity->below[0], NULL);
	pl_write(&entity->below[1], NULL);
	entity->least_v = entity->v;
	entity->least_ns = entity->slice_ns;
	if ((s64)(entity->deadline - top->deadline) < 0)
		top->below[0] = entity;
	else
		top->below[1] = entity;
	top->least_v = (s64)(entity->v - top->v) < 0 ? entity->v : top->v;
	top->least_ns = pl_min(entity->slice_ns, top->slice_ns);
}

/* Out of the tree. Returns 0. */
PL_SUB u64 pl_tree_remove(struct pl_line PL_MEM *line PL_ARENA, struct pl_entity PL_MEM *entity PL_ARENA)
{
	struct pl_entity PL_MEM *only;

	while (entity->below[0] && entity->below[1] && PL_LOOP)
		pl_tree_rise(line, entity->below[entity->below[1]->rank < entity->below[0]->rank]);
	only = entity->below[0] ? entity->below[0] : entity->below[1];
	pl_tree_replace(line, entity, only);
	/* All the way: it may have run since those above it were summed up. */
	for (only = entity->above; only && PL_LOOP; only = only->above)
		pl_tree_sum(only);
	return 0;
}

/* Counts in one that has joined, and gives it its number and rank. */
PL_INLINE void pl_line_counts(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity)
{
	line->sum_w += entity->weight;
	line->n++;
	entity->on = PL_ENTITY_ON;
	entity->number = line->joined++;
	/* Knuth's multiplicative hash: ranks as if drawn at random keep the tree low. */
	entity->rank = (u32)entity->number * 2654435761U;
}

/* Joins a line where others are. Returns 0. */
PL_SUB u64 pl_line_join_others(struct pl_line PL_MEM *line PL_ARENA, struct pl_entity PL_MEM *entity PL_ARENA,
			       s64 lag)
{
	u64 mean = pl_line_mean(line);

	lag = pl_entity_bounded(entity, lag);
	if (lag)
		mean -= (u64)pl_div_down(lag, line->sum_w);
	pl_line_center(line, mean);
	entity->v = lag ? mean - (u64)pl_div_down(lag, entity->weight) : mean;
	pl_entity_request(entity);
	line->sum_wv += (s64)(entity->v - line->v0) * (s64)entity->weight;
	pl_line_counts(line, entity);
	if (line->n == 2)
		pl_tree_second(line, entity);
	else
		pl_tree_insert(line, entity);
	return 0;
}

/* Comes to an empty line: no other is there to owe it anything. */
PL_INLINE void pl_line_begin(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity)
{
	entity->v = line->v0;
	pl_entity_request(entity);
	pl_line_counts(line, entity);
	pl_tree_alone(line, entity);
}

/*
 * Joins a line with a lag (ns * 2^20), which is brought within pl_entity_bound first, and is lost where the line is
 * empty. weight, above 0, and slice_ns are set. Siblings whose weight changes because the new one joins are weighed
 * before.
 */
PL_FN void pl_line_join(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity, s64 lag)
{
	PL_ASSERT(!entity->on && entity->weight);
	/* Most often it is empty, all the way up, as a task wakes up on an idle CPU. */
	if (line->n)
		pl_line_join_others(line, entity, lag);
	else
		pl_line_begin(line, entity);
}

/* One of several ran, in virtual time. Its place in the tree is not looked at. */
PL_INLINE void pl_line_moves(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity, u64 delta)
{
	entity->v += delta;
	line->sum_wv += (s64)(delta * entity->weight);
}

/* Leaves a line where others are. Returns 0. */
PL_SUB u64 pl_line_leave_others(struct pl_line PL_MEM *line PL_ARENA,
				struct pl_entity PL_MEM *entity PL_ARENA, u64 ran_ns)
{
	s64 ahead, lag;
	bool whole;

	if (ran_ns)
		pl_line_moves(line, entity, pl_entity_scale(ran_ns, entity->weight));
	ahead = (s64)(entity->v - pl_line_mean(line));
	lag = pl_entity_bounded(entity, -ahead * (s64)entity->weight);
	whole = lag == -ahead * (s64)entity->weight;
#ifdef PL_MUTATE_LAG
	lag = 0;
#endif
	if (line->picked == entity)
		pl_write(&line->picked, NULL);
	entity->on = 0;
	line->sum_w -= entity->weight;
	if (--line->n == 1) {
		struct pl_entity PL_MEM *other = entity->above ?: entity->below[0] ?: entity->below[1];

		pl_tree_alone(line, other);
		line->v0 = other->v;
		line->sum_wv = 0;
	} else {
		pl_tree_remove(line, entity);
		line->sum_wv -= (s64)(entity->v - line->v0) * (s64)entity->weight;
		pl_line_center(line, pl_line_mean(line));
	}
	entity->lag = lag;
	entity->paid_v = line->v0;
	if (lag < 0)
		entity->paid_v += whole ? (u64)ahead : pl_div((u64)-lag, entity->weight);
	return 0;
}

/* The last one leaves its line: it owes nothing. */
PL_INLINE void pl_line_end(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity, u64 ran_ns)
{
	if (ran_ns)
		entity->v += pl_entity_scale(ran_ns, entity->weight);
	line->v0 = entity->v;
	line->sum_w = 0;
	line->n = 0;
	pl_write(&line->top, NULL);
	pl_write(&line->picked, NULL);
	entity->on = 0;
	entity->lag = 0;
	entity->paid_v = entity->v;
}

/*
 * Leaves its line with its lag, having run for ran_ns that the line was not told of. Siblings whose weight changes
 * because this one leaves are weighed afterwards.
 */
PL_FN void pl_line_leave_after(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity, u64 ran_ns)
{
	PL_ASSERT(entity->on && line->n);
	if (line->n > 1)
		pl_line_leave_others(line, entity, ran_ns);
	else
		pl_line_end(line, entity, ran_ns);
}

PL_FN void pl_line_leave(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity)
{
	pl_line_leave_after(line, entity, 0);
}

/*
 * An entity whose task goes to sleep while it owes time stays in its line until it is picked, or its task wakes up. Meanwhile V
 * advances as if it ran: beside an entity of a hundred times the weight that has just gone to sleep, what runs then is
 * far ahead of V, and what wakes up before the next pick goes first. Returns whether it stays. Source: DELAY_DEQUEUE of the
 * kernel's fair class, since 6.12.
 */
PL_FN bool pl_line_delay(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity)
{
	if (pl_entity_lag(line, entity) >= 0)
		return false;
	if (line->picked == entity)
		line->picked = NULL;
	entity->on = PL_ENTITY_DELAYED;
	return true;
}

/*
 * One that was delayed leaves: what it is owed by now it loses, as that came while it slept. The kernel's DELAY_ZERO.
 */
PL_FN void pl_line_forget(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity)
{
	pl_line_leave(line, entity);
	entity->lag = pl_smin(entity->lag, 0);
}

/* The task of one that was delayed has woken up: it stays, and what it is owed by now it loses, likewise. */
PL_FN void pl_line_resume(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity)
{
	entity->on = PL_ENTITY_ON;
	if (pl_entity_lag(line, entity) <= 0)
		return;
	pl_line_leave(line, entity);
	pl_line_join(line, entity, 0);
}

/*
 * The lag that the entity that runs comes by, times 2^20, as it is weighed anew by a kernel from 6.13 (6.12 from its 77th patch on)
 * to 7.0: it is placed by its lag as one that joins is, beside a mean that it is in already, so that part of its lag counts twice.
 * With l its lag, and c what of it is within bound_ns, v' = V + ((1 - w' / w) l - c) / (W - w + w') - c / w'.
 * Source: reweight_entity() and place_entity() of kernel/sched/fair.c; read from the code of a running 6.18.
 */
PL_FN s64 pl_entity_doubled(const struct pl_line PL_MEM *line, const struct pl_entity PL_MEM *entity,
			    u64 weight, u64 bound_ns)
{
	s64 lag = pl_entity_lag(line, entity);
	s64 counts = pl_lag_within(lag, (s64)(bound_ns << PL_ENTITY_SHIFT));
	s64 moves = counts - lag + pl_div_down(lag, entity->weight) * (s64)weight;
	s64 twice = pl_div_down(moves, line->sum_w - entity->weight + weight);

	return counts - lag + twice * (s64)weight;
}

/*
 * Weighs an entity anew. In a line it keeps its lag, of its request what is left, of its turn what it has had; V stays.
 * `more`: lag that it comes by, see pl_entity_doubled; 0 live. Returns 0.
 */
PL_SUB u64 pl_line_weigh(struct pl_line PL_MEM *line PL_ARENA, struct pl_entity PL_MEM *entity PL_ARENA,
			 u64 weight, s64 more)
{
	u64 mean, left, guarded, had;
	s64 lag;

	weight = pl_max(weight, 1);
	if (entity->on && weight != entity->weight) {
		mean = pl_line_mean(line);
		lag = pl_entity_lag(line, entity) + more;
		left = (u64)pl_smax((s64)(entity->deadline - entity->v), 0) * entity->weight;
		guarded =
		    PL_BASELINE((u64)pl_smax((s64)(entity->protected_v - entity->v), 0) * entity->weight);
		had = (entity->v - entity->picked_v) * entity->weight;
		pl_line_center(line, mean);
		pl_tree_remove(line, entity);
		line->sum_wv -= (s64)(entity->v - mean) * (s64)entity->weight;
#ifndef PL_MUTATE_WEIGH
		entity->v = mean - (u64)pl_div_down(lag, weight);
#endif
		entity->deadline = entity->v + pl_div(left, weight);
		if (PL_BASELINE(true))
			entity->protected_v = entity->v + pl_div(guarded, weight);
		entity->picked_v = entity->v - pl_div(had, weight);
		pl_tree_insert(line, entity);
		line->sum_wv += (s64)(entity->v - mean) * (s64)weight;
		line->sum_w += weight - entity->weight;
	}
	entity->weight = weight;
	return 0;
}

/* It asks for less at a time from now on: its deadline is no later than that of such a request from here. */
PL_FN void pl_line_hurry(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity, u64 slice_ns)
{
	pl_tree_remove(line, entity);
	entity->slice_ns = slice_ns;
	entity->deadline =
	    pl_fair_clamp(entity->deadline, entity->v, entity->v + pl_entity_scale(slice_ns, entity->weight));
	pl_tree_insert(line, entity);
}

/* One of several in a line ran. Returns 0. */
PL_SUB u64 pl_line_one_ran(struct pl_line PL_MEM *line PL_ARENA, struct pl_entity PL_MEM *entity PL_ARENA,
			   u64 delta_ns)
{
	pl_line_moves(line, entity, pl_entity_scale(delta_ns, entity->weight));
	/* Not each time: it takes a division. */
	if (pl_far(line->sum_wv))
		pl_line_center(line, pl_line_mean(line));
	if ((s64)(entity->v - entity->deadline) < 0) {
		pl_tree_sum_up(entity);
		return 0;
	}
	pl_tree_remove(line, entity);
	pl_entity_request(entity);
	pl_tree_insert(line, entity);
	return 0;
}

/* An entity of the line ran. If its request was served it begins the next. */
PL_FN void pl_line_ran(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity, u64 delta_ns)
{
	if (line->n > 1) {
		pl_line_one_ran(line, entity, delta_ns);
		return;
	}
	entity->v += pl_entity_scale(delta_ns, entity->weight);
	line->v0 = entity->v;
	if ((s64)(entity->v - entity->deadline) >= 0)
		pl_entity_request(entity);
	entity->least_v = entity->v;
	entity->least_ns = entity->slice_ns;
}

/* Run time left of the request. */
PL_INLINE u64 pl_entity_left(const struct pl_entity PL_MEM *entity)
{
	return ((u64)pl_smax((s64)(entity->deadline - entity->v), 0) * entity->weight) >> PL_ENTITY_SHIFT;
}

/* Run time in its turn so far, up to when its line was last told. */
PL_INLINE u64 pl_entity_had(const struct pl_entity PL_MEM *entity)
{
	return ((entity->v - entity->picked_v) * entity->weight) >> PL_ENTITY_SHIFT;
}

/* One at v, with that deadline, goes before another, both in a line whose mean is `mean`: eligible ones by deadline, then by v. */
PL_INLINE bool pl_goes_before(u64 v, u64 deadline, u64 other_v, u64 other_deadline, u64 mean)
{
	bool eligible = (s64)(mean - v) >= 0, other = (s64)(mean - other_v) >= 0;

	if (eligible != other)
		return eligible;
	return (eligible ? (s64)(deadline - other_deadline) : (s64)(v - other_v)) < 0;
}

/*
 * Whose turn it is, NULL in an empty line: of those eligible the first by deadline. early_ns: see pl_line_early. *least_ns: the
 * shortest request here, which is what the group above asks for on behalf of its members.
 */
PL_FN struct pl_entity PL_MEM *pl_line_pick(const struct pl_line PL_MEM *line, u64 early_ns, u64 *least_ns)
{
	u64 mean = pl_line_early(line, early_ns);
	struct pl_entity PL_MEM *entity = line->top;

	*least_ns = entity ? entity->least_ns : PL_ENTITY_REQUEST_MAX_NS;
	while (entity && PL_LOOP) {
		struct pl_entity PL_MEM *earlier = entity->below[0];

		if (earlier && (s64)(mean - earlier->least_v) >= 0)
			entity = earlier;
		else if ((s64)(mean - entity->v) >= 0)
			break;
		else
			entity = entity->below[1];
	}
	return entity;
}

/*
 * Service of the line in ns that brings V from `mean` to v: one that is at v owes nothing then. ~0: more than max_ns.
 */
PL_INLINE u64 pl_line_until(const struct pl_line PL_MEM *line, u64 mean, u64 v, u64 max_ns)
{
	u64 ahead = (u64)pl_smax((s64)(v - mean), 0);

	return ahead > pl_entity_scale(max_ns, line->sum_w) ? ~0ULL
							    : (ahead * line->sum_w) >> PL_ENTITY_SHIFT;
}

/* The one with the earliest deadline, of a line that is not empty. */
PL_INLINE struct pl_entity PL_MEM *pl_line_first(const struct pl_line PL_MEM *line)
{
	struct pl_entity PL_MEM *entity = line->top;

	while (entity->below[0] && PL_LOOP)
		entity = entity->below[0];
	return entity;
}

/* Its turn begins. One that is picked once more goes on with the same turn, and is protected for no longer. */
PL_FN void pl_line_picked(struct pl_line PL_MEM *line, struct pl_entity PL_MEM *entity)
{
	if (line->picked == entity)
		return;
	line->picked = entity;
	if (PL_BASELINE(true))
		entity->protected_v = entity->deadline;
	entity->picked_v = entity->v;
}

/*
 * Whether the entity that runs is left alone as another one wakes up: it is owed time, and the request that it was
 * picked for is not served. Only where the kernel is simulated: its RUN_TO_PARITY, protect_slice().
 */
PL_FN bool pl_entity_is_protected(const struct pl_line PL_MEM *line, const struct pl_entity PL_MEM *entity)
{
	return (s64)(pl_line_mean(line) - entity->v) >= 0 && (s64)(entity->protected_v - entity->v) > 0;
}

#endif

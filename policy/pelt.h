/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * pelt.h - a load average that decays geometrically
 *
 * Problem    A queue's weight right now says little: tasks come and go within a millisecond. Shares need a
 *            smooth figure that is cheap to keep and that every CPU computes alike.
 *
 * Mechanism  Time is cut into segments of 1024 us. A segment n segments ago counts y^n:
 *
 * Formula    sum = w_0 + w_1 y + w_2 y^2 + ...        y^32 = 1/2
 *              |<-- d1 -->|<----- full segments ----->|<- d3 ->|
 *              when p segment borders are crossed:
 *              sum' = sum y^p + w ( d1 y^p + 1024 (y + ... + y^(p-1)) + d3 )
 *              1024 (y + ... + y^(p-1)) = MAX - MAX y^p - 1024
 *              MAX = 47742 = 1024 (1 + y + ...), as an integer sum
 *
 *            avg = sum / (MAX - 1024 + d3)
 *
 * Trade-offs Time advances in units of 1024 ns (the rest is kept for the next call); y^n comes from a table
 *            of 32 factors of 2^32. The error against the real series is below one part in a thousand. The average
 *            is rounded to the nearest: a load of 2 that stays is 2, and not 1 to all but its own CPU.
 *
 * Limits     Weights up to 2^47: sum stays below 2^63.
 *
 * Source: the kernel's per-entity load tracking, whose constants system 4 refers to.
 */
#ifndef PL_PELT_H
#define PL_PELT_H

#include "port.h"

#define PL_PELT_MAX 47742
#define PL_PELT_SEGMENT 1024
#define PL_PELT_HALF_LIFE 32

/* floor(2^32 * 0.5^(n / 32)); the first is 2^32 - 1 because it has to fit. */
static const u32 pl_pelt_y_inv[PL_PELT_HALF_LIFE] = {
    0xffffffffu, 0xfa83b2dbu, 0xf5257d15u, 0xefe4b99bu, 0xeac0c6e7u, 0xe5b906e7u, 0xe0ccdeecu, 0xdbfbb797u,
    0xd744fccau, 0xd2a81d91u, 0xce248c15u, 0xc9b9bd86u, 0xc5672a11u, 0xc12c4ccau, 0xbd08a39fu, 0xb8fbaf47u,
    0xb504f333u, 0xb123f581u, 0xad583eeau, 0xa9a15ab4u, 0xa5fed6a9u, 0xa2704303u, 0x9ef53260u, 0x9b8d39b9u,
    0x9837f051u, 0x94f4efa8u, 0x91c3d373u, 0x8ea4398bu, 0x8b95c1e3u, 0x88980e80u, 0x85aac367u, 0x82cd8698u,
};

struct pl_pelt {
	u64 last_ns; /* up to when time is counted */
	u64 sum;
	u64 avg;     /* in units of the weight */
	u32 segment; /* how far into the current segment, 0 .. 1023 */
	u32 reserved;
};

/* value * y^n */
PL_INLINE u64 pl_pelt_decay(u64 value, u64 n)
{
	if (n > PL_PELT_HALF_LIFE * 63)
		return 0;
	value >>= n / PL_PELT_HALF_LIFE;
	/* A value of 2^32 and more would overflow with a factor of 2^32: the halves are multiplied apart. */
	return (value >> 32) * pl_pelt_y_inv[n % PL_PELT_HALF_LIFE] +
	       (((value & 0xffffffffu) * (u64)pl_pelt_y_inv[n % PL_PELT_HALF_LIFE]) >> 32);
}

/* What a sum is divided by for the average of the time that it covers. */
PL_INLINE u64 pl_pelt_divider(const struct pl_pelt PL_MEM *pelt)
{
	return PL_PELT_MAX - PL_PELT_SEGMENT + pelt->segment;
}

/*
 * Counts the time since the last call with `weight` throughout. now_ns may not go back; if it does (a clock
 * that differs between CPUs), the call counts nothing and starts anew from there. Returns whether the average is new.
 */
PL_SUB bool pl_pelt_update(struct pl_pelt PL_MEM *pelt PL_ARENA, u64 weight, u64 now_ns)
{
	u64 delta, segments, d1, contribution;

	if (now_ns < pelt->last_ns) {
		pelt->last_ns = now_ns;
		return false;
	}
	delta = (now_ns - pelt->last_ns) >> 10;
	if (!delta)
		return false;
	pelt->last_ns += delta << 10;

	contribution = delta;
	delta += pelt->segment;
	segments = delta / PL_PELT_SEGMENT;
	if (segments) {
		d1 = PL_PELT_SEGMENT - pelt->segment;
		pelt->sum = pl_pelt_decay(pelt->sum, segments);
		delta %= PL_PELT_SEGMENT;
		contribution = pl_pelt_decay(d1, segments) + PL_PELT_MAX -
			       pl_pelt_decay(PL_PELT_MAX, segments) - PL_PELT_SEGMENT + delta;
	}
	pelt->segment = (u32)delta;
	pelt->sum += weight * contribution;
	if (segments)
		pelt->avg = (pelt->sum + pl_pelt_divider(pelt) / 2) / pl_pelt_divider(pelt);
	return segments;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sparsemask.h - a bitmap that many CPUs write without sharing cache lines much
 *
 * Problem    Every CPU announces, at every 1 -> 2 and 2 -> 1 change of its queue, whether it can be stolen
 *            from. In a plain bitmap 512 CPUs write one cache line.
 *
 * Mechanism  Each cache line carries 2^density elements only (density 3: 8 CPUs), the rest of it is left
 *            unused.
 *
 * Formula    element e: chunk e >> density, bit e & (2^density - 1)
 *
 * Trade-offs A walk over all elements touches n / 8 lines instead of n / 512.
 *
 * Limits     Set and clear are of a byte-wide flag of the element's own, so that no atomic read-modify-
 *            write is needed: the arena takes no fetch_or. 8 flags fill an eighth of the line.
 *
 * Source: system 3.
 */
#ifndef PL_SPARSEMASK_H
#define PL_SPARSEMASK_H

#include "port.h"

#define PL_SPARSEMASK_DENSITY 3
#define PL_SPARSEMASK_PER_CHUNK (1u << PL_SPARSEMASK_DENSITY)

struct pl_sparsemask_chunk {
	u8 set[PL_SPARSEMASK_PER_CHUNK];
	u8 unused[PL_CACHE_LINE - PL_SPARSEMASK_PER_CHUNK];
};

/* One per LLC; elements are CPUs numbered within the LLC. */
struct pl_sparsemask {
	struct pl_sparsemask_chunk PL_MEM
	    *chunks; /* (elements + 7) / 8 of them, cache-line aligned, zeroed */
	u32 elements;
	u32 reserved;
};

#define PL_SPARSEMASK_NONE (~0u)

PL_FN void pl_sparsemask_set(struct pl_sparsemask PL_MEM *mask, u32 element)
{
	pl_write(&mask->chunks[element >> PL_SPARSEMASK_DENSITY].set[element & (PL_SPARSEMASK_PER_CHUNK - 1)],
		 1);
}

PL_FN void pl_sparsemask_clear(struct pl_sparsemask PL_MEM *mask, u32 element)
{
	pl_write(&mask->chunks[element >> PL_SPARSEMASK_DENSITY].set[element & (PL_SPARSEMASK_PER_CHUNK - 1)],
		 0);
}

PL_FN bool pl_sparsemask_test(const struct pl_sparsemask PL_MEM *mask, u32 element)
{
	return pl_read(
	    &mask->chunks[element >> PL_SPARSEMASK_DENSITY].set[element & (PL_SPARSEMASK_PER_CHUNK - 1)]);
}

/*
 * The next set element at or after `from`, wrapping around, having looked at no more than *left elements;
 **left is reduced by those looked at. PL_SPARSEMASK_NONE when there is none. A visit of all from x:
 *
 *	left = mask->elements;
 *	for (e = pl_sparsemask_next(mask, x, &left); e != PL_SPARSEMASK_NONE;
 *	     e = pl_sparsemask_next(mask, e + 1, &left))
 */
PL_FN u32 pl_sparsemask_next(const struct pl_sparsemask PL_MEM *mask, u32 from, u32 *left)
{
	u32 element = from;

	while (*left && PL_LOOP) {
		if (element >= mask->elements)
			element = 0;
		/* A chunk's eight flags are read as one word. */
		if (!(element & (PL_SPARSEMASK_PER_CHUNK - 1)) && *left >= PL_SPARSEMASK_PER_CHUNK &&
		    element + PL_SPARSEMASK_PER_CHUNK <= mask->elements &&
		    !pl_read((u64 PL_MEM *)&mask->chunks[element >> PL_SPARSEMASK_DENSITY].set[0])) {
			element += PL_SPARSEMASK_PER_CHUNK;
			*left -= PL_SPARSEMASK_PER_CHUNK;
			continue;
		}
		*left -= 1;
		if (pl_sparsemask_test(mask, element))
			return element;
		element++;
	}
	return PL_SPARSEMASK_NONE;
}

#endif

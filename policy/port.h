/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * port.h - what the policy needs from its engine
 *
 * The policy is plain C over memory that the engine owns: no allocation, no clock, no globals. Time comes in
 * as an argument. What differs between a BPF program and a native build is only
 *   - where shared state lives (PL_MEM: the BPF arena's address space; nothing natively),
 *   - how a word is changed when other CPUs change it too (pl_add, pl_cas, pl_xchg),
 *   - how a loop is bounded for the verifier (PL_LOOP),
 *   - what an impossible state does (PL_ASSERT).
 *
 * Atomics: only add, compare-and-exchange and exchange, because BPF's arena takes no others.
 * Division: unsigned only (BPF before cpu v4 has no signed division); a zero divisor gives 0 on both sides,
 * because BPF defines it so and a trap in one engine alone would be a difference between them.
 */
#ifndef PL_PORT_H
#define PL_PORT_H

#ifdef __bpf__

#ifndef __VMLINUX_H__
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
#define bool _Bool
#define true 1
#define false 0
#endif
#define PL_MEM __attribute__((address_space(1)))
/* Always inlined: a BPF function takes no more than five arguments. */
#define PL_FN static inline __attribute__((always_inline, unused))
/* Called rather than inlined, so that the verifier looks at it once for all callers. Pointers into the arena
 * are said to be such. */
#define PL_SUB __attribute__((noinline))
#define PL_ARENA __attribute__((btf_decl_tag("arg:arena")))
#ifndef can_loop
/* Where the adapter's own can_loop is not there (the dual-compile test), every loop is still bounded by its
 * own condition. */
#define can_loop 1
#endif
#define PL_LOOP (can_loop)
/* 0, computed so that the verifier does not know: from a constant start it would go through every turn of a
 * loop to `bound`. */
#define PL_START(bound)                                                                                      \
	({                                                                                                   \
		u64 bound_ = (bound), copy_ = bound_;                                                        \
		asm volatile("" : "+r"(copy_));                                                              \
		(u32)(bound_ - copy_);                                                                       \
	})
/* Computes an element's address as a number first: a verifier before 7.0 takes pointer + number, but not number +
 * pointer, which clang makes of an index that is a multiple of the size anyway. */
#define PL_ELEMENT(array, index)                                                                             \
	({                                                                                                   \
		typeof(&(array)[0]) element_ = &(array)[index];                                              \
		asm volatile("" : "+r"(element_));                                                           \
		element_;                                                                                    \
	})
#define PL_ASSERT(cond) ((void)0)
#define pl_read(p) (*(volatile typeof(*(p)) *)(p))
#define pl_write(p, v) (*(volatile typeof(*(p)) *)(p) = (v))

#else /* native */

#include <stdint.h>
#include <stdbool.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;
#define PL_MEM
#ifdef PL_EXPORT
#define PL_FN /* external linkage: Rust links against the very functions that BPF inlines */
#else
#define PL_FN static inline __attribute__((unused))
#endif
#define PL_LOOP 1
#define PL_START(bound) 0
#define PL_ELEMENT(array, index) (&(array)[index])
#define PL_SUB PL_FN
#define PL_ARENA
#ifdef NDEBUG
#define PL_ASSERT(cond) ((void)0)
#else
#define PL_ASSERT(cond)                                                                                      \
	do {                                                                                                 \
		if (!(cond))                                                                                 \
			__builtin_trap();                                                                    \
	} while (0)
#endif
#define pl_read(p) (*(volatile typeof(*(p)) *)(p))
#define pl_write(p, v) (*(volatile typeof(*(p)) *)(p) = (v))

#endif

#ifndef NULL
#define NULL ((void *)0)
#endif

/*
 * A condition that holds only where a comparison asks for the rule of another time or kernel. The live scheduler never does,
 * and is built without those rules (PL_LIVE): the kernel takes time for each instruction that it loads.
 */
#ifdef PL_LIVE
#define PL_BASELINE(condition) 0
#else
#define PL_BASELINE(condition) (condition)
#endif

/* What CPUs write often stands on a line of its own, apart from what others read and from the next CPU's. */
#define PL_CACHE_LINE 64
#define PL_OWN_LINE __attribute__((aligned(PL_CACHE_LINE)))

#define PL_INLINE static inline __attribute__((always_inline, unused))

#ifdef PL_SINGLE_THREADED
/* The simulator runs one machine on one thread: the same operations without the bus lock. */
PL_INLINE s64 pl_add(s64 PL_MEM *p, s64 v)
{
	return *p += v;
}
PL_INLINE u32 pl_add32(u32 PL_MEM *p, u32 v)
{
	return *p += v;
}
PL_INLINE bool pl_cas(s64 PL_MEM *p, s64 old, s64 new_value)
{
	if (*p != old)
		return false;
	*p = new_value;
	return true;
}
PL_INLINE u32 pl_xchg32(u32 PL_MEM *p, u32 v)
{
	u32 old = *p;
	*p = v;
	return old;
}
#else
/* Adds v and returns the new value. Never call with a constant 0: clang makes a fetch_or of it, which the
 * arena refuses. */
PL_INLINE s64 pl_add(s64 PL_MEM *p, s64 v)
{
	return __sync_fetch_and_add(p, v) + v;
}
PL_INLINE u32 pl_add32(u32 PL_MEM *p, u32 v)
{
	return __sync_fetch_and_add(p, v) + v;
}
/* Returns whether *p was old and is now new_value. */
PL_INLINE bool pl_cas(s64 PL_MEM *p, s64 old, s64 new_value)
{
	return __sync_val_compare_and_swap(p, old, new_value) == old;
}
PL_INLINE u32 pl_xchg32(u32 PL_MEM *p, u32 v)
{
	return __sync_lock_test_and_set(p, v);
}
#endif

PL_INLINE u64 pl_div(u64 a, u64 b)
{
	return b ? a / b : 0;
}
PL_INLINE u64 pl_min(u64 a, u64 b)
{
	return a < b ? a : b;
}
PL_INLINE u64 pl_max(u64 a, u64 b)
{
	return a > b ? a : b;
}
PL_INLINE s64 pl_smin(s64 a, s64 b)
{
	return a < b ? a : b;
}
PL_INLINE s64 pl_smax(s64 a, s64 b)
{
	return a > b ? a : b;
}

#define PL_US 1000ULL
#define PL_MS 1000000ULL
#define PL_SEC 1000000000ULL

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small things that every room needs.
 */
#ifndef REGX_BASE_UTIL_H
#define REGX_BASE_UTIL_H

#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/* The structure of `type` whose `member` is at `pointer`. */
#define REGX_CONTAINER_OF(pointer, type, member)                                                   \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static inline uint64_t regx_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t regx_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Bytes of a page of memory. Not for the data path: read it once and keep it. */
static inline size_t regx_page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* `address`, moved up to a multiple of `unit`, which is a power of two. */
static inline uintptr_t regx_align_up(uintptr_t address, uintptr_t unit)
{
    return (address + unit - 1) & ~(unit - 1);
}

/* What was stored before, also past the caches (movnt), is visible to all before what is stored
 * after. The processor need not wait for it, as for a full fence. */
static inline void regx_fence_stores(void)
{
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#else
    __sync_synchronize();
#endif
}

#endif

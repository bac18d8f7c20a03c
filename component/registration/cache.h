/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The registration cache: memory registered once and used again, and never used stale.
 *
 * A region covers exactly the pages that were asked for, never merged or widened: the kernel tells
 * of MADV_DONTNEED before the pages go, and a union registered in between would be stale without a
 * further event. An inner range is served by an outer region. A released region stays until its
 * budget or the device needs the room.
 *
 * Threads: acquire, release and progress by any thread, acquire and release of one use on different
 * ones. A hit takes no lock and writes no memory that other threads write (but where caches'
 * numbers are equal modulo four, a thread that has just used the other one takes a lock). Nothing
 * here runs inside hooks or the notifier's reader, so the cache's lock may be held while
 * allocating. The argument why no stale region is used stands in cache.c.
 *
 * Budget: what is kept stays within config->bytes. Regions that have changed and are still pinned
 * may add a quarter to it; beyond that nothing new is kept until they are deregistered. That is
 * done by acquire and progress, and, where the monitor has a thread anyway and the device pins, by
 * a thread of the cache's own, some 10 ms after the change.
 *
 * Memory: some 150 bytes per region, and 8 for each thread that uses it; for each thread's look-up
 * cache up to half a MiB, and half a MiB for what was seen before and for the log of changes.
 */
#ifndef REGX_REGISTRATION_CACHE_H
#define REGX_REGISTRATION_CACHE_H

#include "registration/device.h"
#include "registration/monitor.h"

typedef struct regx_cache regx_cache_t;

#define REGX_UNLIMITED UINT64_MAX

typedef enum { REGX_ADMIT_FIRST, REGX_ADMIT_SECOND } regx_admit_t;
typedef enum { REGX_INUSE_IGNORE, REGX_INUSE_WARN, REGX_INUSE_ABORT } regx_inuse_t;

typedef struct regx_cache_config {
    uint64_t bytes;     /* that kept regions may hold in all; REGX_UNLIMITED allowed */
    uint64_t count;     /* regions kept; REGX_UNLIMITED allowed (then what the table holds) */
    regx_admit_t admit; /* SECOND: a range's first use does not push out others */
    regx_inuse_t inuse; /* what progress does about a buffer that changed while in use */
    /* Called from progress, acquire or close, with no lock held, at the first such buffer (WARN) or
     * at each (ABORT), once its last use has ended. May be NULL. */
    void (*changed_in_use)(void *context, const void *base, size_t length);
    void *context;
} regx_cache_config_t;

/* NULL: no memory. The registry's monitor must be running. */
regx_cache_t *regx_cache_open(regx_registry_t *registry, const regx_cache_config_t *config);
/* Every use must be released. Deregisters all. */
void regx_cache_close(regx_cache_t *cache);

/* base and length need not be aligned; the region is of whole pages. REGX_INVALID: empty or beyond
 * the address space. REGX_NO_MEMORY, REGX_DENIED: not registered, even after giving up other
 * regions; bounce instead. */
regx_status_t regx_cache_acquire(regx_cache_t *cache, void *base, size_t length, unsigned access,
                                 regx_region_t *region);
/* Whether acquire would find it, as far as can be told at once: what this thread has used lately.
 * Not to be relied on. */
bool regx_cache_seems_kept(regx_cache_t *cache, const void *base, size_t length, unsigned access);
/* As acquire, but registers nothing. false: no region serves it, or none that is true now. */
bool regx_cache_acquire_kept(regx_cache_t *cache, const void *base, size_t length, unsigned access,
                             regx_region_t *region);
void regx_cache_release(regx_cache_t *cache, regx_region_t *region);

/* Acts on changes and deregisters what is dead and no longer used, a bounded amount. Cheap when
 * there is nothing to do. */
void regx_cache_progress(regx_cache_t *cache);

/* Brings hits and the like, which threads count for themselves, into the counters. */
void regx_cache_count(regx_cache_t *cache);

#endif

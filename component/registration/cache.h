/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The registration cache: memory registered once and used again, and never used stale.
 *
 * A region covers exactly the pages that were asked for, never merged or widened: the kernel
 * reports MADV_DONTNEED before the pages go, and a union registered in between would be stale
 * without a further event. An inner range is served by an outer region. A released region stays
 * until its budget or the device needs the room; then one goes that was not hit lately.
 *
 * Budget: what is kept stays within config->bytes. Regions that have changed and are still pinned
 * may add a quarter to it; beyond that nothing new is kept until they are deregistered. That is
 * done by acquire and progress, and, where the monitor has a thread anyway and the device pins, by
 * a thread of the cache's own, some 10 ms after the change.
 *
 * Memory: some 200 bytes per region, and a quarter of a MiB for the places of the latest look-ups.
 *
 *   cache.c    looked up, used, released; regions end by changes and for room, and are deregistered
 *   miss.c     what is not found is registered, to be kept or for one use
 *   regions.c  the table of regions, and their index by address
 *   once.c     what serves one use each
 *   owned.c    what is registered for its life
 *
 * Threads: any, acquire and release of one use on different ones. One lock, a leaf: no other one of
 * ours is taken under it. What is called there and is not the cache's: the log's readers, and libc, of
 * which the index has its blocks. Hooks and the notifier's reader, which may run inside that, take no
 * lock of the cache: they write to the log (monitor/monitor.h). "locked" in a comment means that the
 * caller holds it. Why no stale region is used: component/design/cache.md.
 */
#ifndef REGX_REGISTRATION_CACHE_H
#define REGX_REGISTRATION_CACHE_H

#include "base/thread.h"
#include "registration/regions.h"

/* Where look-ups found their regions lately: two places for each of so many hashes of the page in
 * which a request began. A hint: what lies there may be dead, or another region by now. Six times as
 * many places as there are regions by default: without one a look-up searches the index, which takes
 * as long as five of these. */
#define REGX_HINTS_LOG 15

typedef struct regx_cache {
    regx_registry_t *registry; /* never changed, as what follows up to the lock */
    regx_monitor_t *monitor;
    regx_inval_log_t *log; /* the monitor's */
    unsigned char *mark;   /* of this process: a child does nothing */
    regx_cache_config_t config;
    unsigned applied_max; /* REGX_APPLIED_MAX; tests make it less */
    struct {              /* the cache's thread (cache.c), of who opened the cache */
        pthread_t thread;
        bool runs;
        _Atomic uint32_t stop;
    } reclaimer;

    /* It covers what follows. What is atomic is also read without it. */
    _Alignas(64) regx_spin_t lock;
    _Atomic bool work;        /* there are regions to be deregistered: `dead` is not empty */
    uint32_t dead;            /* stack of regions that ended and have no users */
    _Atomic uint64_t applied; /* all regions that changes below it touched have ended */
    uint64_t hits;            /* that are not in the counters yet */
    regx_regions_t regions;
    regx_index_t index; /* of the regions that are alive */
    uint32_t hand;      /* the region that eviction looked at last */
    struct {            /* what is kept, against the budget */
        uint64_t bytes; /* of regions that are alive, and of those being registered */
        uint64_t count;
        uint64_t pinned;     /* bytes: also of regions that are dead and not yet deregistered */
        uint64_t pinned_max; /* beyond it nothing more is kept */
    } room;
    struct { /* the first buffer that changed while in use, to be reported */
        bool warned;
        _Atomic bool to_warn;
        uintptr_t start;
        size_t size;
    } warning;
    uint32_t hints[1u << REGX_HINTS_LOG][2];
} regx_cache_t;

/* NULL: no memory. The registry's monitor must be running. */
regx_cache_t *regx_cache_open(regx_registry_t *registry, const regx_cache_config_t *config);
/* Every use must be released. Deregisters all. */
void regx_cache_close(regx_cache_t *cache);

static inline bool regx_cache_in_child(const regx_cache_t *cache)
{
    return regx_process_is_child(cache->mark);
}

/* A request, which is a range, and what came of looking for it. */
typedef struct regx_request {
    uintptr_t address;
    size_t length;
    unsigned access;
    bool refused; /* a region would have served, had it not changed */
    bool exists;  /* one is there that cannot be shown to be true now */
    bool busy;    /* since a change of something is under way at this moment */
} regx_request_t;

/* Uses what is kept, if anything serves the request and is true. Not locked. */
bool regx_cache_look_up(regx_cache_t *cache, regx_request_t *request, regx_region_t *region);
/* Whether there is something, as far as is known without the monitor's being asked. */
bool regx_cache_has(regx_cache_t *cache, const regx_request_t *request);
/* Ends a use of a kept region. */
void regx_cache_release(regx_cache_t *cache, const regx_region_t *region);
/* Acts on changes and deregisters, a bounded amount; reports what changed in use. */
void regx_cache_progress(regx_cache_t *cache);
void regx_cache_count(regx_cache_t *cache);

/* miss.c. As regx_region_acquire, and with `registers` false as acquire_kept (REGX_DENIED: nothing). */
regx_status_t regx_cache_acquire(regx_cache_t *cache, const void *base, size_t length,
                                 unsigned access, bool registers, regx_region_t *region);

/* ---- for miss.c ---- */

/* Locked. Ends regions that logged changes touched, so many at the most: some that are alive may not be
 * true after it. `request` may be NULL. */
void regx_cache_catch_up_locked(regx_cache_t *cache, regx_request_t *request);
/* Of one call, in regions ended or what takes as long: some five microseconds. Changes that touch
 * nothing are passed at 5 ns each, 45 where there are 10,000 regions. */
#define REGX_APPLIED_MAX 256u

/* Locked. The region is used once more, by who asked for that range. */
void regx_cache_use_locked(regx_cache_t *cache, uint32_t number, uintptr_t address, size_t length,
                           regx_region_t *region);

/* Locked. Requests that begin in that page will find that region at once. */
void regx_cache_hint_locked(regx_cache_t *cache, uintptr_t address, uint32_t number);

/* Locked. Gives up a region, or one that was not hit lately. Returns its bytes; 0: all have users. */
void regx_cache_give_up_locked(regx_cache_t *cache, uint32_t number);
uint64_t regx_cache_evict_locked(regx_cache_t *cache);
/* Deregistered by one progress, or by one miss beside those that it gave up itself: that may take tens
 * of microseconds each. */
#define REGX_RETIRED_MAX 16u
/* Deregisters so many of the dead regions at the most; returns how many it did. Not locked. */
unsigned regx_cache_retire(regx_cache_t *cache, unsigned max);
/* Reports what is left to report. Not locked. */
void regx_cache_warn(regx_cache_t *cache);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The cache from inside. For its files and tests.
 *
 *   cache.c    opened, closed, hit, released; the argument why no use is stale
 *   miss.c     what is not found is registered
 *   evict.c    the budget: what is kept, and what is given up for it
 *   retire.c   changes end regions; dead regions are deregistered
 *   regions.h  the table of regions, and their index by address
 *   thread_state.h  what each thread writes
 *
 * One lock, a leaf: no other one of ours is taken under it. What is called there and is not the
 * cache's: monitor->valid, the log's readers, and libc, of which memory is had and given back (the
 * index's blocks, thread states): a hook or the notifier's reader that hears of that takes no lock
 * either. "locked" in a comment means that the caller holds it.
 */
#ifndef REGX_REGISTRATION_CACHE_INTERNAL_H
#define REGX_REGISTRATION_CACHE_INTERNAL_H

#include "base/lock.h"
#include "registration/cache.h"
#include "registration/regions.h"
#include "registration/thread_state.h"
#include "registration/uffd.h"

/* Which ranges were asked for before, cheaply and forgetfully: a table of fixed size of their
 * hashes. */
#define REGX_GHOST_SETS 4096u
#define REGX_GHOST_WAYS 4u

typedef struct regx_ghost {
    uint64_t seen[REGX_GHOST_SETS][REGX_GHOST_WAYS]; /* the latest first */
} regx_ghost_t;

typedef struct regx_range {
    uintptr_t start;
    size_t size;
} regx_range_t;

/* The cache's thread (retire.c). */
typedef struct regx_reclaimer {
    pthread_t thread;
    bool runs;
    _Atomic uint32_t stop;
} regx_reclaimer_t;

struct regx_cache {
    /* What look-ups read; written when regions die, at the most. */
    _Alignas(64) uint64_t serial;
    uint64_t fast;          /* the same where neither query nor fence is needed, else none */
    regx_record_t *records; /* the table's */
    regx_holding_t *holdings;
    regx_inval_log_t *log;
    regx_monitor_t *monitor;
    _Atomic uint64_t drained; /* all regions that changes below it touched have ended */
    bool queries;             /* the monitor has a query */
    bool fences;              /* no membarrier here: counting a use is a full barrier by itself */
    const regx_uffd_t *query; /* the query, if it is nothing more; else NULL */

    _Alignas(64) _Atomic bool work; /* there may be something to retire */
    _Atomic bool released;          /* a use of a dead region ended */

    _Alignas(64) regx_lock_t lock; /* of all that follows */
    regx_registry_t *registry;
    regx_cache_config_t config;
    uintptr_t page;       /* bytes */
    unsigned drained_max; /* REGX_DRAINED_MAX; tests make it less */
    regx_regions_t regions;
    regx_index_t index; /* of the regions that are alive */
    uint64_t bytes;     /* of these, and of those being registered */
    uint64_t count;
    _Atomic uint64_t pinned;  /* bytes: also of regions that are dead and not yet deregistered */
    uint64_t pinned_max;      /* beyond it nothing more is kept */
    regx_index_cursor_t hand; /* where eviction looks next */
    regx_region_list_t
        dead; /* regions that may still have users that no look at the counts shows */
    regx_region_list_t ripe; /* … whose counts show all users */
    regx_region_list_t busy; /* … and had some */
    bool closing;            /* nobody looks up any more */
    bool warned;             /* of a buffer that changed while in use, or about to be: */
    _Atomic bool to_warn;
    regx_range_t changed;
    uint64_t hits_counted;
    regx_thread_state_t *states;
    regx_thread_state_t *common; /* for releases by threads that have none; under the lock */
    regx_ghost_t ghost;
    regx_reclaimer_t reclaimer;
};

/* A request, in whole pages, and what came of it so far. */
typedef struct regx_request {
    uintptr_t start, end;
    unsigned access;
    bool refused;      /* a region would have served, had it not changed */
    bool exists;       /* one is there that cannot be shown to be true now */
    bool busy;         /* since a change of something is under way at this moment */
    unsigned given_up; /* regions given up for it */
} regx_request_t;

static inline bool regx_cache_in_child(const regx_cache_t *cache)
{
    return !cache->common->present;
}

/* Where the calling thread remembers its thread state in this cache, or in another one. */
static inline struct regx_last_state *regx_cache_last_state(const regx_cache_t *cache)
{
    return regx_last_state_of(cache->serial);
}

/* The calling thread's thread state, to be found by the fast path from now on. Locked. NULL: no
 * memory. */
static inline regx_thread_state_t *regx_cache_thread_state(regx_cache_t *cache)
{
    return regx_thread_states_here(&cache->states, cache->regions.capacity, cache->serial);
}

/* There may be something to retire. Not a plain store: it could hide from who retires what another
 * thread that set it before had done. */
static inline void regx_cache_has_work(regx_cache_t *cache)
{
    atomic_exchange_explicit(&cache->work, true, memory_order_release);
    if (cache->reclaimer.runs) {
        regx_inval_log_wake(cache->log);
    }
}

/* Changes the calling thread's count of a region's uses. With membarrier on the other side it
 * needs no fence, only that the compiler keeps the order; see cache.c. */
static inline void regx_cache_use(_Atomic uint64_t *uses, uint64_t by, bool fences)
{
    if (fences) {
        atomic_fetch_add(uses, by);
    } else {
        atomic_store_explicit(uses, atomic_load_explicit(uses, memory_order_relaxed) + by,
                              memory_order_release);
        atomic_signal_fence(memory_order_seq_cst);
    }
}

/* Fills in a use of a kept region, of what was asked for, which no change from number `since` on
 * had touched. */
static inline regx_status_t regx_cache_serve(const regx_cache_t *cache, uint32_t number,
                                             uintptr_t start, size_t length, uint64_t since,
                                             regx_region_t *region)
{
    region->mr = &cache->holdings[number].mr;
    region->kept = number;
    region->start = start;
    region->length = length;
    region->since = since;
    return REGX_OK;
}

static inline void regx_cache_count_hit(regx_thread_state_t *ts)
{
    atomic_store_explicit(&ts->hits, atomic_load_explicit(&ts->hits, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* miss.c: what the fast path does not serve. */
regx_status_t regx_cache_acquire_slow(regx_cache_t *cache, void *base, size_t length,
                                      unsigned access, regx_region_t *region);

/* miss.c: likewise, but of what is kept alone. */
bool regx_cache_find_slow(regx_cache_t *cache, const void *base, size_t length, unsigned access,
                          regx_region_t *region);

/* retire.c. Locked: ends regions that logged changes touched, so many at the most. Some that are
 * alive may not be true after it. `request` may be NULL. */
void regx_cache_drain_locked(regx_cache_t *cache, regx_request_t *request);
/* Of one call, in regions ended or what takes as long: some five microseconds. Changes that touch
 * nothing are passed at 5 ns each, 45 where there are 10,000 regions. */
#define REGX_DRAINED_MAX 256u

/* evict.c. Locked: gives up one region that seems unused; returns its bytes, 0: there is none. */
uint64_t regx_cache_evict_locked(regx_cache_t *cache);
/* Has the processor fetch what the next function is going to look at. Not locked. */
void regx_cache_expect(regx_cache_t *cache, const regx_request_t *request);
/* Locked: whether the request's range is worth keeping; it has now been seen. */
bool regx_cache_admits_locked(regx_cache_t *cache, const regx_request_t *request);
/* Locked: makes room for one more region, of the request's size, within the budget. Gives up
 * REGX_EVICTED_MAX regions at the most: a large one may be refused a few times before there is
 * room. */
bool regx_cache_reserve_locked(regx_cache_t *cache, regx_request_t *request);
#define REGX_EVICTED_MAX 64u

/* retire.c. Locked: a region that is out of the index, or being taken out, gives no new use. When
 * all are dead that are to be, the caller says so (regx_cache_has_work). */
void regx_cache_kill_locked(regx_cache_t *cache, uint32_t number, regx_region_state_t state);
/* Looked at by one progress, or by one miss beside those that it gave up itself: deregistering may
 * take tens of microseconds each. */
#define REGX_RETIRED_MAX 16u
/* Deregisters dead regions without users, looking at so many at the most; returns how many it
 * deregistered. Not locked. */
unsigned regx_cache_retire(regx_cache_t *cache, unsigned max);
/* The same, but nobody is told of buffers that changed while in use; that is left to others. */
unsigned regx_cache_retire_quietly(regx_cache_t *cache, unsigned max);
/* Tells what is left to be told. Not locked. */
void regx_cache_warn(regx_cache_t *cache);
/* Whether membarrier can be used from now on. */
bool regx_cache_membarrier_works(void);

/* retire.c: the cache's thread, where there is to be one. */
void regx_cache_start_reclaiming(regx_cache_t *cache);
void regx_cache_stop_reclaiming(regx_cache_t *cache);

#endif

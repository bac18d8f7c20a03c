/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The registration cache: memory registered once and used again, and never used stale.
 *
 * A region covers exactly the pages that were asked for, never merged or widened: the kernel
 * reports MADV_DONTNEED before the pages go, and a union registered in between would be stale
 * without a further event. An inner range is served by an outer region. A released region stays
 * until its budget or the device needs the room.
 *
 * Threads: acquire, release and progress by any thread, acquire and release of one use on different
 * ones. A hit takes no lock and writes no memory that other threads write. (With more than four
 * caches two share a thread's slot, REGX_LAST_STATES: each change of these takes a lock.) Nothing
 * here runs inside hooks or the notifier's reader, so the cache's lock may be held while
 * allocating. Why no stale region is used: component/design/cache.md.
 *
 * Budget: what is kept stays within config->bytes. Regions that have changed and are still pinned
 * may add a quarter to it; beyond that nothing new is kept until they are deregistered. That is
 * done by acquire and progress, and, where the monitor has a thread anyway and the device pins, by
 * a thread of the cache's own, some 10 ms after the change.
 *
 * Memory: some 150 bytes per region, and 8 for each thread that uses it; for each thread's look-up
 * cache up to half a MiB, and half a MiB for what was seen before and for the log of changes.
 *
 *   cache.c    opened, closed, hit, released
 *   miss.c     what is not found is registered, to be kept or for one use
 *   retire.c   what each thread counts and remembers; changes end regions, and so does want of
 *              room; dead regions are deregistered
 *   regions.c  the table of regions, and their index by address
 *   owned.c    what is registered for its life
 *
 * One lock, a leaf: no other one of ours is taken under it. What is called there and is not the
 * cache's: monitor->valid, the log's readers, and libc, of which memory is had and given back (the
 * index's blocks, thread states): a hook or the notifier's reader that hears of that takes no lock
 * either. "locked" in a comment means that the caller holds it.
 */
#ifndef REGX_REGISTRATION_CACHE_H
#define REGX_REGISTRATION_CACHE_H

#include <sys/types.h>

#include "registration/monitor/uffd.h"
#include "registration/registry.h"

typedef struct regx_cache regx_cache_t;

/* NULL: no memory. The registry's monitor must be running. */
regx_cache_t *regx_cache_open(regx_registry_t *registry, const regx_cache_config_t *config);
/* Every use must be released. Deregisters all. */
void regx_cache_close(regx_cache_t *cache);

/* ---- regions (regions.c) ----
 * The table of regions: records that stay where they are, and stay records, as long as the cache
 * lives. So a look-up may read any of them without a lock, at worst to find that it now describes
 * another region. A region's number is its place in the table; numbers are used again.
 *
 * What look-ups read is written before the state becomes ALIVE, and not again before it has been
 * dead and without users (retire.c). All else is under the cache's lock. */

#define REGX_REGIONS_MAX (1u << 20) /* alive at once; address space, until used */

typedef enum regx_region_state {
    REGX_REGION_NONE,     /* never used */
    REGX_REGION_ALIVE,    /* may be used */
    REGX_REGION_GIVEN_UP, /* for room or for a better one: no new use */
    REGX_REGION_CHANGED   /* its memory changed: no new use */
} regx_region_state_t;

/* What look-ups and releases read: small, so that ten thousand stay close. */
typedef struct regx_record {
    _Alignas(32) _Atomic uintptr_t start;
    _Atomic size_t size;
    _Atomic uint32_t state;
    _Atomic uint8_t access;
    _Atomic bool used_changed; /* it changed while it was in use */
    uint32_t next;             /* in a list */
} regx_record_t;

/* The rest. */
typedef struct regx_holding {
    regx_mr_t mr;  /* as the device knows it */
    uint32_t cost; /* of registering it: nanoseconds */
    uint32_t heat; /* how often it was used, the older the less; see retire.c */
    uint32_t seen; /* acquisitions when heat was last brought up to date */
} regx_holding_t;

/* Number 0 is no region. */
typedef struct regx_regions {
    regx_record_t *records;
    regx_holding_t *holdings;
    uint32_t capacity;
    uint32_t used;   /* numbers from here on have never been used */
    uint32_t unused; /* list of those that have been */
} regx_regions_t;

/* For that many that are alive, or REGX_REGIONS_MAX. false: no memory. */
bool regx_regions_init(regx_regions_t *regions, uint64_t max);
void regx_regions_fini(regx_regions_t *regions);

/* 0: the table is full. What was put back last is taken first: it is in the processor's caches. */
uint32_t regx_regions_take(regx_regions_t *regions);
void regx_regions_put(regx_regions_t *regions, uint32_t number);

/* Whether the record's region serves that request. Refuses what is empty or wraps around. */
static inline bool regx_record_serves(const regx_record_t *record, uintptr_t address, size_t length,
                                      unsigned access)
{
    const uintptr_t offset = address - atomic_load_explicit(&record->start, memory_order_relaxed);
    const size_t size = atomic_load_explicit(&record->size, memory_order_relaxed);
    const unsigned has = atomic_load_explicit(&record->access, memory_order_relaxed);

    return offset < size && length - 1 < size - offset && (access & ~has) == 0;
}

/* A list is the number of its first region; 0: it is empty. The regions are linked by `next`. */
void regx_regions_push(regx_regions_t *regions, uint32_t *list, uint32_t number);
uint32_t regx_regions_pop(regx_regions_t *regions, uint32_t *list); /* 0: empty */

/* ---- by address ----
 * The index of regions for all but the fast path: blocks of up to 64 in order of their starts. A
 * search passes over the blocks that cannot matter at two compares each; a change that ends
 * thousands of regions reads their blocks one after the other. Regions may overlap. Under the
 * cache's lock. */

typedef struct regx_index_entry {
    uintptr_t start, end;
    uint32_t number;
    unsigned access;
} regx_index_entry_t;

typedef struct regx_index_block {
    uintptr_t start, end; /* the least start and the greatest end of its entries */
    uint32_t count;       /* at least 1 */
    regx_index_entry_t *entries;
} regx_index_block_t;

typedef struct regx_index {
    regx_index_block_t *blocks;
    size_t count, room;
    uintptr_t longest; /* no region is longer, nor was */
} regx_index_t;

void regx_index_fini(regx_index_t *index);

/* false: no memory; nothing happened. */
bool regx_index_insert(regx_index_t *index, const regx_index_entry_t *entry);
void regx_index_remove(regx_index_t *index, uintptr_t start, uint32_t number);

/* A region that covers the range and has that access, of several one that begins last; 0: none. */
uint32_t regx_index_cover(const regx_index_t *index, uintptr_t start, uintptr_t end,
                          unsigned access);
/* Removes at most *max regions that overlap the range, and calls `removed` with up to a block of
 * them at a time. Takes from *max how many were removed; blocks that were only looked at count in
 * proportion to their time. false: there may be more. */
typedef void (*regx_index_removed_t)(void *context, const uint32_t *numbers, uint32_t count);
bool regx_index_cut(regx_index_t *index, uintptr_t start, uintptr_t end, size_t *max,
                    regx_index_removed_t removed, void *context);

/* ---- registered with the transport's memory domain, counted (miss.c) ---- */

/* REGX_NO_MEMORY also of what the device does not take. `evicts`: if it has no room, this cache gives up
 * regions, and it is tried once more; NULL: it is not. */
regx_status_t regx_mr_register(regx_registry_t *registry, void *base, size_t length,
                               unsigned access, regx_cache_t *evicts, regx_mr_t *mr);
void regx_mr_deregister(regx_registry_t *registry, regx_mr_t *mr); /* regions.c */

/* ---- registrations that serve one use each (miss.c) ----
 * All of them with backend none, with a cache those that are not kept. They are pinned as long as
 * they last, so their bytes are bounded: a message that finds no room goes by bounce. Without a
 * bound the kernel would end processes when more is pinned than the machine can spare. What is kept
 * has a budget of its own. */

/* Registers exactly that range, counted as uncached. REGX_NO_MEMORY also where there is no room, as
 * is noted in the region. `evicts` as above. `reason`: why it is not kept, for the trace; NULL: nothing
 * is. */
regx_status_t regx_once_register(regx_registry_t *registry, void *base, size_t length,
                                 unsigned access, regx_cache_t *evicts, const char *reason,
                                 regx_region_t *region);
/* Gives the room back, too. */
void regx_once_deregister(regx_registry_t *registry, regx_region_t *region);

/* ---- owned memory (owned.c) ---- */

/* Whether it may lie in a block: most other memory does not lie between them. */
static inline bool regx_owned_maybe(const regx_registry_t *registry, const void *base)
{
    const regx_owned_t *owned = registry->owned;

    return owned != NULL &&
           (uintptr_t)base >= atomic_load_explicit(&owned->low, memory_order_relaxed) &&
           (uintptr_t)base < atomic_load_explicit(&owned->high, memory_order_relaxed) &&
           !registry->transport->forked; /* a child has no registration */
}

/* As acquire, or acquire_kept (registers is false), of what lies in a block. false: nothing serves it
 * but what serves other memory. */
bool regx_owned_acquire(regx_registry_t *registry, const void *base, size_t length, bool registers,
                        regx_region_t *region);
/* Whether that would serve it, as far as is known. */
bool regx_owned_seems_kept(const regx_registry_t *registry, const void *base, size_t length);
/* A use of the block has ended. The last one of a block that was freed ends it. */
void regx_owned_release(regx_owned_t *owned, regx_owned_block_t *block);
/* The registry closes: nobody uses anything of it. */
void regx_owned_close(regx_registry_t *registry);

/* ---- thread states (retire.c) ----
 * A thread state is what one thread writes of one cache, so that a hit writes no memory that
 * another thread writes: its counts of uses, and where it found regions lately (the look-up cache).
 * The number of uses of a region is the sum over all thread states; an acquisition counts where it
 * is made and the release where that is made, so a single thread state's count means nothing (it
 * may be below zero, modulo 2^64). They outlive their threads, and the cache gives them to later
 * ones.
 *
 * A forked child finds its thread states empty (MADV_WIPEONFORK; also after a raw clone): it cannot
 * hit. */

/* In a count of uses: acquisitions above, those not yet released below. */
#define REGX_USE_ACQUIRED ((UINT64_C(1) << 32) + 1)
#define REGX_USE_RELEASED UINT64_MAX /* -1 */

/* Sixteen times as many places as are filled by 8,000 regions: what is not found at the first place
 * costs a mispredicted branch, and that more than the caches' misses (10,000 regions found in turn:
 * 7 ns each; with half the sets 12, with a quarter 15). */
#define REGX_LOOKUP_SETS 8192u
#define REGX_LOOKUP_WAYS 16u /* of one cache line */
#define REGX_LOOKUP_NUMBER_BITS 21

/* What the look-up cache knows: a region, by the page in which the request began. A hint: it may be
 * of a region that is dead, or of another one by now. */
typedef _Atomic uint32_t regx_lookup_t; /* tag above, the region's number below; 0: empty */

typedef struct regx_thread_state {
    _Alignas(64) _Atomic uint64_t hits;
    bool present; /* false in a forked child */
    /* Under the cache's lock, as far as `random`. */
    pid_t process, owner; /* the thread's ids, */
    uint64_t thread;      /* and the number that it has here (self_number in retire.c) */
    struct regx_thread_state *next;
    uint32_t random; /* which place of a full set of the look-up cache is given up next */
    _Alignas(64) regx_lookup_t lookup[REGX_LOOKUP_SETS][REGX_LOOKUP_WAYS];
    _Atomic uint64_t uses[]; /* per region of the table */
} regx_thread_state_t;

/* A thread state that this thread used last, and of which cache: one for each of a few caches
 * (there is one for each port), by the cache's serial number. The library is loaded at start or
 * within the loader's reserve: initial-exec, a few bytes. */
#define REGX_LAST_STATES 4
struct regx_last_state {
    uint64_t cache; /* its serial number: never used again, so a thread state that is gone is not
                       touched */
    regx_thread_state_t *ts;
};
extern _Thread_local struct regx_last_state regx_last_state[REGX_LAST_STATES]
    __attribute__((tls_model("initial-exec")));

/* As the cache opens; false: no memory. Says whether uses need fences. */
bool regx_thread_states_open(regx_cache_t *cache);
void regx_thread_states_close(regx_cache_t *cache);
/* The calling thread's thread state, to be found by the fast path from now on: its own, that of a
 * thread that has ended, or a new one. Locked. NULL: no memory, or none that a child would not
 * see. */
regx_thread_state_t *regx_thread_state_here(regx_cache_t *cache);

/* Sum of the counts of uses of one region. */
static inline uint64_t regx_thread_states_uses(const regx_thread_state_t *states, uint32_t region)
{
    uint64_t sum = 0;

    for (; states != NULL; states = states->next) {
        sum += atomic_load(&states->uses[region]);
    }
    return sum;
}

/* Where the requests that begin in an address's page are looked for. */
typedef struct regx_lookup_key {
    uint32_t set, way;
    uint32_t tag; /* its bits below REGX_LOOKUP_NUMBER_BITS are 0 */
} regx_lookup_key_t;

static inline regx_lookup_key_t regx_lookup_key(uintptr_t address)
{
    const uint64_t hash = (address >> 12) * UINT64_C(0x9e3779b97f4a7c15);

    return (regx_lookup_key_t){.set = (uint32_t)(hash >> 51),
                               .way = (uint32_t)(hash >> 47) % REGX_LOOKUP_WAYS,
                               .tag = (uint32_t)(hash >> 36) << REGX_LOOKUP_NUMBER_BITS};
}

/* Whether the entry is of that key's page, as far as is known, and of which region. */
static inline bool regx_lookup_is(uint32_t entry, const regx_lookup_key_t *key)
{
    return (entry ^ key->tag) >> REGX_LOOKUP_NUMBER_BITS == 0;
}

static inline uint32_t regx_lookup_number(uint32_t entry)
{
    return entry & ((1u << REGX_LOOKUP_NUMBER_BITS) - 1);
}

/* The place that is tried at the nth probe. */
static inline regx_lookup_t *regx_lookup_place(regx_thread_state_t *ts,
                                               const regx_lookup_key_t *key, uint32_t probe)
{
    return &ts->lookup[key->set][key->way ^ probe];
}

static inline uint32_t regx_lookup_entry(regx_thread_state_t *ts, const regx_lookup_key_t *key,
                                         uint32_t probe)
{
    return atomic_load_explicit(regx_lookup_place(ts, key, probe), memory_order_relaxed);
}

/* Makes the thread state find that region for requests that begin there. Its own thread only. */
void regx_thread_state_remember(regx_thread_state_t *ts, uintptr_t address, uint32_t region);

/* ---- the cache ---- */

/* Which ranges were asked for before, cheaply and forgetfully: a table of fixed size of their
 * hashes. */
#define REGX_GHOST_SETS 4096u
#define REGX_GHOST_WAYS 4u

struct regx_cache {
    /* What look-ups read; written when regions die, at the most. */
    _Alignas(64) uint64_t serial;
    uint64_t
        fast; /* `serial` if a hit needs neither a system call nor a fence; else that of no thread */
    regx_record_t *records; /* the table's */
    regx_holding_t *holdings;
    regx_inval_log_t *log;
    regx_monitor_t *monitor;
    _Atomic uint64_t applied; /* all regions that changes below it touched have ended */
    bool queries;             /* the monitor has a query */
    bool fences;              /* no membarrier here: counting a use is a full barrier by itself */
    const regx_uffd_t
        *query; /* the notifier's userfaultfd, if asking it is all of the query; else NULL */
    /* Where the query is a comparison of two words, as with the kernel module: these. Where there is
     * no query both point to one word, so they are equal. */
    const _Atomic uint64_t *told, *logged;

    _Alignas(64) _Atomic bool work; /* there may be something to retire */
    _Atomic bool released;          /* a use of a dead region ended */

    /* It covers what follows, except registry and config (never changed), reclaimer (the thread's
     * that opened the cache), and what is atomic. `warning` is written before an atomic publishes it. */
    _Alignas(64) regx_lock_t lock;
    regx_registry_t *registry;
    regx_cache_config_t config;
    unsigned applied_max; /* REGX_APPLIED_MAX; tests make it less */
    regx_regions_t regions;
    regx_index_t index; /* of the regions that are alive */
    uint32_t hand;      /* the region that eviction looked at last */
    struct {            /* what is kept, against the budget */
        uint64_t bytes; /* of regions that are alive, and of those being registered */
        uint64_t count;
        _Atomic uint64_t pinned; /* bytes: also of regions that are dead and not yet deregistered */
        uint64_t pinned_max;     /* beyond it nothing more is kept */
    } room;
    struct {           /* regions that have ended and are not yet deregistered (retire.c) */
        uint32_t dead; /* list: to be looked at */
        uint32_t busy; /* list: had users when they were looked at */
        bool closing;  /* no more look-ups come */
    } limbo;
    struct { /* the first buffer that changed while in use, to be reported */
        _Atomic bool warned, to_warn; /* there is one; it is not yet reported */
        uintptr_t start;
        size_t size;
    } warning;
    struct { /* the thread states of this cache (retire.c) */
        regx_thread_state_t *first;
        regx_thread_state_t *common; /* for releases by threads that have none; under the lock */
        uint64_t hits_counted;
    } threads;
    uint64_t ghosts[REGX_GHOST_SETS][REGX_GHOST_WAYS]; /* of a set the latest first */
    struct {                                           /* the cache's thread (retire.c) */
        pthread_t thread;
        bool runs;
        _Atomic uint32_t stop;
    } reclaimer;
};

/* A request, and what came of it so far. */
typedef struct regx_request {
    uintptr_t address;
    unsigned wanted;         /* access */
    uintptr_t start, end;    /* in whole pages */
    unsigned access;         /* to be registered: also what a region of that range had */
    regx_thread_state_t *ts; /* NULL: no memory */
    uint32_t number;         /* the region found, or reserved; 0: none */
    uint64_t since;          /* no change from that one on has touched it, so far as is known */
    bool refused;            /* a region would have served, had it not changed */
    bool exists;             /* one is there that cannot be shown to be true now */
    bool busy;               /* since a change of something is under way at this moment */
    unsigned given_up;       /* regions given up for it */
} regx_request_t;

static inline bool regx_cache_in_child(const regx_cache_t *cache)
{
    return !cache->threads.common->present;
}

/* Where the calling thread remembers its thread state in this cache, or in another one. */
static inline struct regx_last_state *regx_cache_last_state(const regx_cache_t *cache)
{
    return &regx_last_state[cache->serial % REGX_LAST_STATES];
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
 * needs no fence, only that the compiler keeps the order; see component/design/cache.md. */
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

/* miss.c: what the fast path does not serve. `registers`: what is not kept is registered; else
 * REGX_DENIED. */
regx_status_t regx_cache_acquire_slow(regx_cache_t *cache, const void *base, size_t length,
                                      unsigned access, bool registers, regx_region_t *region);

/* retire.c. Locked: ends regions that logged changes touched, so many at the most. Some that are
 * alive may not be true after it. `request` may be NULL. */
void regx_cache_catch_up_locked(regx_cache_t *cache, regx_request_t *request);
/* Of one call, in regions ended or what takes as long: some five microseconds. Changes that touch
 * nothing are passed at 5 ns each, 45 where there are 10,000 regions. */
#define REGX_APPLIED_MAX 256u

/* retire.c. Locked: a region that is out of the index, or being taken out, gives no new use. When
 * all are dead that are to be, the caller says so (regx_cache_has_work). */
void regx_cache_kill_locked(regx_cache_t *cache, uint32_t number, regx_region_state_t state);
/* retire.c. Locked: gives up a region, or the one that seems of least use. Returns its bytes; 0:
 * all have users. */
void regx_cache_give_up_locked(regx_cache_t *cache, uint32_t number);
uint64_t regx_cache_evict_locked(regx_cache_t *cache);
/* Looked at by one progress, or by one miss beside those that it gave up itself: deregistering may
 * take tens of microseconds each. */
#define REGX_RETIRED_MAX 16u
/* Deregisters dead regions without users, looking at so many at the most; returns how many it
 * deregistered. Not locked. */
unsigned regx_cache_retire(regx_cache_t *cache, unsigned max);
/* Reports what is left to report. Not locked. */
void regx_cache_warn(regx_cache_t *cache);

/* retire.c: the cache's thread, where there is to be one. */
void regx_cache_start_reclaiming(regx_cache_t *cache);
void regx_cache_stop_reclaiming(regx_cache_t *cache);

#endif

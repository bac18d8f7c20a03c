/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A thread state is what one thread writes of one cache, so that a hit writes no memory that
 * another thread writes: its counts of uses, and where it found regions lately (the look-up cache).
 * The number of uses of a region is the sum over all thread states; an acquisition counts where it
 * is made and the release where that is made, so a single thread state's count means nothing (it
 * may be below zero, modulo 2^64). They outlive their threads, and the cache gives them to later
 * ones.
 *
 * A forked child finds its thread states empty (MADV_WIPEONFORK; also after a raw clone): it cannot
 * hit.
 */
#ifndef REGX_REGISTRATION_THREAD_STATE_H
#define REGX_REGISTRATION_THREAD_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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
    bool present;         /* false in a forked child */
    pid_t process, owner; /* the thread's ids; what follows is under the cache's lock */
    uint64_t thread;
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

static inline struct regx_last_state *regx_last_state_of(uint64_t cache)
{
    return &regx_last_state[cache % REGX_LAST_STATES];
}

/* All under the cache's lock. NULL: no memory, or none that a child would not see. */
regx_thread_state_t *regx_thread_states_add(regx_thread_state_t **states, uint32_t regions);
/* The calling thread's thread state: its own, that of a thread that has ended, or a new one. */
regx_thread_state_t *regx_thread_states_mine(regx_thread_state_t **states, uint32_t regions);
/* The same, remembered in regx_last_state for the cache of that serial number. */
regx_thread_state_t *regx_thread_states_here(regx_thread_state_t **states, uint32_t regions,
                                             uint64_t cache);
void regx_thread_states_free(regx_thread_state_t **states, uint32_t regions);

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

/* Whether the entry is of that key's page, as far as can be told, and of which region. */
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

#endif

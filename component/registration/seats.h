/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A seat is what one thread writes of one cache, so that a hit writes no memory that another
 * thread writes: its counts of uses, and where it found regions lately (the front table). The
 * number of uses of a region is the sum over all seats; an acquisition counts where it is made and
 * the release where that is made, so a single seat's count means nothing (it may be below zero,
 * modulo 2^64). Seats outlive their threads, and the cache gives them to later ones.
 *
 * A forked child finds its seats empty (MADV_WIPEONFORK; also after a raw clone): it cannot hit.
 */
#ifndef REGX_REGISTRATION_SEATS_H
#define REGX_REGISTRATION_SEATS_H

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
#define REGX_FRONT_SETS 8192u
#define REGX_FRONT_WAYS 16u /* of one cache line */
#define REGX_FRONT_NUMBER_BITS 21

/* What the front table knows: a region, by the page in which the request began. A hint: it may be
 * of a region that is dead, or of another one by now. */
typedef _Atomic uint32_t regx_front_t; /* tag above, the region's number below; 0: empty */

typedef struct regx_seat {
    _Alignas(64) _Atomic uint64_t hits;
    bool present;         /* false in a forked child */
    pid_t process, owner; /* the thread's ids; what follows is under the cache's lock */
    uint64_t thread;
    struct regx_seat *next;
    uint32_t random; /* which place of a full set of the front table is given up next */
    _Alignas(64) regx_front_t front[REGX_FRONT_SETS][REGX_FRONT_WAYS];
    _Atomic uint64_t uses[]; /* per region of the table */
} regx_seat_t;

/* A seat that this thread used last, and of which cache: one for each of a few caches (there is one
 * for each port), by the cache's serial number. The library is loaded at start or within the
 * loader's reserve: initial-exec, a few bytes. */
#define REGX_HERE 4
struct regx_here {
    uint64_t cache; /* its serial number: never used again, so a seat that is gone is not touched */
    regx_seat_t *seat;
};
extern _Thread_local struct regx_here regx_here[REGX_HERE]
    __attribute__((tls_model("initial-exec")));

static inline struct regx_here *regx_here_of(uint64_t cache)
{
    return &regx_here[cache % REGX_HERE];
}

/* All under the cache's lock. NULL: no memory, or none that a child would not see. */
regx_seat_t *regx_seats_add(regx_seat_t **seats, uint32_t regions);
/* The calling thread's seat: its own, that of a thread that has ended, or a new one. */
regx_seat_t *regx_seats_mine(regx_seat_t **seats, uint32_t regions);
/* The same, remembered in regx_here for the cache of that serial number. */
regx_seat_t *regx_seats_here(regx_seat_t **seats, uint32_t regions, uint64_t cache);
void regx_seats_free(regx_seat_t **seats, uint32_t regions);

/* Sum of the counts of uses of one region. */
static inline uint64_t regx_seats_uses(const regx_seat_t *seats, uint32_t region)
{
    uint64_t sum = 0;

    for (; seats != NULL; seats = seats->next) {
        sum += atomic_load(&seats->uses[region]);
    }
    return sum;
}

/* Where the requests that begin in an address's page are looked for. */
typedef struct regx_front_key {
    uint32_t set, way;
    uint32_t tag; /* its bits below REGX_FRONT_NUMBER_BITS are 0 */
} regx_front_key_t;

static inline regx_front_key_t regx_front_key(uintptr_t address)
{
    const uint64_t hash = (address >> 12) * UINT64_C(0x9e3779b97f4a7c15);

    return (regx_front_key_t){.set = (uint32_t)(hash >> 51),
                              .way = (uint32_t)(hash >> 47) % REGX_FRONT_WAYS,
                              .tag = (uint32_t)(hash >> 36) << REGX_FRONT_NUMBER_BITS};
}

/* Whether the entry is of that key's page, as far as can be told, and of which region. */
static inline bool regx_front_is(uint32_t entry, const regx_front_key_t *key)
{
    return (entry ^ key->tag) >> REGX_FRONT_NUMBER_BITS == 0;
}

static inline uint32_t regx_front_number(uint32_t entry)
{
    return entry & ((1u << REGX_FRONT_NUMBER_BITS) - 1);
}

/* The place that is tried at the nth probe. */
static inline regx_front_t *regx_front_place(regx_seat_t *seat, const regx_front_key_t *key,
                                             uint32_t probe)
{
    return &seat->front[key->set][key->way ^ probe];
}

static inline uint32_t regx_front_entry(regx_seat_t *seat, const regx_front_key_t *key,
                                        uint32_t probe)
{
    return atomic_load_explicit(regx_front_place(seat, key, probe), memory_order_relaxed);
}

/* Makes the seat find that region for requests that begin there. Its own thread only. */
void regx_seat_remember(regx_seat_t *seat, uintptr_t address, uint32_t region);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of regions: records that stay where they are, and stay records, as long as the cache
 * lives. So a look-up may read any of them without a lock, at worst to find that it now describes
 * another region. A region's number is its place in the table; numbers are used again.
 *
 * What look-ups read is written before the state becomes ALIVE, and not again before it has been
 * dead and without users (retire.c). All else is under the cache's lock.
 */
#ifndef REGX_REGISTRATION_REGIONS_H
#define REGX_REGISTRATION_REGIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/transport.h"

#define REGX_REGIONS_MOST (1u << 20) /* alive at once; address space, until used */

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
    uint32_t next;             /* in a list of regx_list_t */
} regx_record_t;

/* The rest. */
typedef struct regx_holding {
    regx_mr_t mr;  /* as the device knows it */
    uint32_t cost; /* of registering it: nanoseconds */
    uint32_t heat; /* how often it was used, the older the less; see evict.c */
    uint32_t seen; /* acquisitions when heat was last brought up to date */
} regx_holding_t;

/* Number 0 is no region. */
typedef struct regx_regions {
    regx_record_t *records;
    regx_holding_t *holdings;
    uint32_t capacity;
    uint32_t used;   /* numbers from here on have never been used */
    uint32_t unused; /* first of those that have been */
} regx_regions_t;

/* For that many that are alive, or REGX_REGIONS_MOST. false: no memory. */
bool regx_regions_init(regx_regions_t *regions, uint64_t most);
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

/* Regions in a row, linked by `next`. */
typedef struct regx_list {
    uint32_t first, last;
} regx_list_t;

void regx_list_push(regx_regions_t *regions, regx_list_t *list, uint32_t number);
uint32_t regx_list_pop(regx_regions_t *regions, regx_list_t *list); /* 0: empty */
/* All of `from` goes before what is in `list`. */
void regx_list_prepend(regx_regions_t *regions, regx_list_t *list, regx_list_t *from);

#endif

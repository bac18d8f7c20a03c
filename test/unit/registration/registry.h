/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the cache: a registry over a device that only notes what is registered and can
 * refuse, and over a monitor whose log the test writes. No memory is touched: any address will do.
 * Or over a real monitor, with real memory.
 */
#pragma once

#include "../unit.h"

#include "registration/cache.h"
#include "registration/registry.h"

#define PAGE ((uintptr_t)4096)
#define UNLIMITED REGX_UNLIMITED
#define RING ((uint64_t)REGX_INVAL_LOG_RING)

typedef struct registry {
    regx_transport_t transport; /* first */
    regx_monitor_t monitor;
    regx_counters_t counters;
    regx_registry_t registry;
    regx_cache_t *cache;
    /* The device. */
    _Atomic unsigned regs; /* calls */
    _Atomic unsigned deregs;
    _Atomic unsigned live;
    regx_status_t refusal; /* what it answers to the next `refusals` calls … */
    unsigned refusals;
    unsigned refuse_access; /* … and to all that ask for this */
    _Atomic unsigned asked; /* the access that was asked for last */
    bool no_room;           /* refuses as long as there is any registration */
    void (*during)(struct registry *r, uintptr_t start, uintptr_t end); /* each call */
    _Atomic uintptr_t
        deregistered[64]; /* the bases of those deregistered, in order, modulo its size */
    /* The monitor. */
    _Atomic bool changing;              /* a change is under way */
    bool refuses_to_watch;              /* subscribe is refused */
    void (*asking)(struct registry *r); /* called within each query */
    unsigned asks, subscribes;
    /* Buffers that changed while in use, as told. */
    unsigned told;
    const void *told_base;
    size_t told_length;
} registry_t;

/* asks: the monitor is one that is asked (a notifier); else all is logged before it happens. */
registry_t *registry_open(uint64_t bytes, uint64_t count, bool asks);

registry_t *registry_open_large(bool asks);

/* Over a monitor of the test's own, which is running; registry_close leaves it running. */
registry_t *registry_open_over(regx_monitor_t *monitor, const regx_cache_config_t *config);

/* Keeps nothing, and pins so much at a time; 0: as much as it takes. */
registry_t *registry_open_none(uint64_t once_bytes);

registry_t *registry_open_threaded(uint64_t count, bool asks);

/* Everything must be released. */
void registry_close(registry_t *r);

/* A test of a registry that is opened so: `r`. */
#define REGISTRY_TEST(name, opened)                                                                \
    UNIT_TEST_WITH(name, NULL, registry_t *, r, opened, registry_close(r))

regx_status_t registry_try(registry_t *r, uintptr_t base, size_t length, unsigned access,
                           regx_region_t *region);

void registry_get(registry_t *r, uintptr_t base, size_t length, regx_region_t *region);

/* Uses a range once. */
void registry_use(registry_t *r, uintptr_t base, size_t length);

/* How that use was served. */
typedef enum { HIT = 'h', MISS = 'm', ONCE = 'o' } served_t;

served_t registry_served(registry_t *r, uintptr_t base, size_t length);

void registry_log(registry_t *r, uintptr_t start, size_t length);

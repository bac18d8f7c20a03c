/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the cache: a registry over a device that only notes what is registered and can
 * refuse, and over a watch whose log the test writes. No memory is touched: any address will do.
 */
#ifndef REGX_TEST_REGISTRY_H
#define REGX_TEST_REGISTRY_H

#include "../unit.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "registration/backend.h"
#include "registration/cache_internal.h"

#define PAGE ((uintptr_t)4096)
#define UNLIMITED REGX_UNLIMITED
#define RING ((uint64_t)REGX_CHANGES_RING)

typedef struct registry {
    regx_transport_t transport; /* first */
    regx_watch_t watch;
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
    unsigned asked;         /* the access that was asked for last */
    bool no_room;           /* refuses as long as there is any registration */
    void (*during)(struct registry *r, uintptr_t start, uintptr_t end); /* each call */
    uintptr_t undone[64]; /* the bases of those deregistered, in order, modulo its size */
    /* The watch. */
    _Atomic bool loud;                  /* a change is under way */
    bool blind;                         /* cover is refused */
    void (*asking)(struct registry *r); /* called within each query */
    unsigned asks, covers;
    /* Buffers that changed while in use, as told. */
    unsigned told;
    const void *told_base;
    size_t told_length;
} registry_t;

static inline regx_status_t registry_reg(regx_transport_t *transport, void *base, size_t length,
                                         unsigned access, regx_mr_t *mr)
{
    registry_t *r = (registry_t *)transport;

    r->regs++;
    r->asked = access;
    if (r->during != NULL) {
        r->during(r, (uintptr_t)base, (uintptr_t)base + length);
    }
    if (r->refusals > 0) {
        r->refusals--;
        return r->refusal;
    }
    if ((access & r->refuse_access) != 0) {
        return REGX_DENIED;
    }
    if (r->no_room && r->live > 0) {
        return REGX_NO_MEMORY;
    }
    r->live++;
    *mr = (regx_mr_t){.base = base, .length = length, .access = access, .handle = r};
    return REGX_OK;
}

static inline void registry_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    registry_t *r = (registry_t *)transport;

    assert_ptr_equal(mr->handle, r);
    r->undone[r->deregs % 64] = (uintptr_t)mr->base;
    r->deregs++;
    r->live--;
    memset(mr, 0xee, sizeof(*mr)); /* nothing of it may be used after */
}

static const regx_transport_ops_t registry_ops = {
    .abi = REGX_TRANSPORT_ABI, .name = "noting", .reg = registry_reg, .dereg = registry_dereg};

static inline registry_t *registry_of_watch(regx_watch_t *watch)
{
    return (registry_t *)((char *)watch - offsetof(registry_t, watch));
}

static inline bool registry_quiet(regx_watch_t *watch, uintptr_t start, uintptr_t end)
{
    registry_t *r = registry_of_watch(watch);

    assert_true(start < end && start % PAGE == 0 && end % PAGE == 0);
    r->asks++;
    if (r->asking != NULL) {
        r->asking(r);
    }
    return !r->loud;
}

static inline regx_status_t registry_cover(regx_watch_t *watch, uintptr_t start, uintptr_t end,
                                           uint64_t *since)
{
    registry_t *r = registry_of_watch(watch);

    assert_true(start < end && start % PAGE == 0 && end % PAGE == 0);
    r->covers++;
    *since = watch->changes->head;
    return r->blind ? REGX_DENIED : REGX_OK;
}

static inline void registry_told(void *context, const void *base, size_t length)
{
    registry_t *r = context;

    r->told++;
    r->told_base = base;
    r->told_length = length;
}

/* asks: the watch is one that is asked (a notifier); else all is logged before it happens. */
static inline registry_t *registry_open(uint64_t bytes, uint64_t count, regx_admit_t admit,
                                        bool asks)
{
    registry_t *r = calloc(1, sizeof(*r));

    assert_non_null(r);
    r->transport.ops = &registry_ops;
    r->watch.name = "test";
    r->watch.changes = regx_changes_open();
    assert_non_null(r->watch.changes);
    if (asks) {
        r->watch.quiet = registry_quiet;
        r->watch.cover = registry_cover;
    }
    const regx_cache_config_t config = {.bytes = bytes,
                                        .count = count,
                                        .admit = admit,
                                        .inuse = REGX_INUSE_WARN,
                                        .changed_in_use = registry_told,
                                        .context = r};
    assert_int_equal(regx_registry_open(&r->registry, &regx_backend_none, &r->watch, &config,
                                        &r->transport, &r->counters),
                     REGX_OK);
    r->cache = r->registry.cache;
    return r;
}

static inline registry_t *registry_open_large(bool asks)
{
    return registry_open(UNLIMITED, UNLIMITED, REGX_ADMIT_SECOND, asks);
}

/* As where the kernel has no membarrier. */
static inline void registry_use_fences(regx_cache_t *cache, bool fences)
{
    if (fences) {
        cache->fences = true;
        cache->fast = UINT64_MAX;
    }
}

static inline registry_t *registry_open_threaded(uint64_t count, bool asks, bool fences)
{
    registry_t *r = registry_open(REGX_UNLIMITED, count, REGX_ADMIT_FIRST, asks);

    r->counters.threads = true;
    registry_use_fences(r->cache, fences);
    return r;
}

/* Everything must be released. */
static inline void registry_close(registry_t *r)
{
    regx_registry_close(&r->registry);
    assert_int_equal(r->live, 0);
    assert_int_equal(r->counters.registrations, r->counters.deregistrations);
    assert_int_equal(r->counters.registered_bytes, 0);
    /* Nobody is interested in anything any more: no change is logged. */
    const uint64_t head = r->watch.changes->head;

    for (uintptr_t at = PAGE; at < (UINT64_C(1) << 30); at += (uintptr_t)1 << 21) {
        regx_changes_log(r->watch.changes, at, at + PAGE);
    }
    assert_int_equal(r->watch.changes->head, head);
    regx_changes_close(r->watch.changes);
    free(r);
}

static inline regx_status_t registry_try(registry_t *r, uintptr_t base, size_t length,
                                         unsigned access, regx_region_t *region)
{
    return regx_region_acquire(&r->registry, (void *)base, length, access, region);
}

static inline void registry_get(registry_t *r, uintptr_t base, size_t length, regx_region_t *region)
{
    assert_int_equal(registry_try(r, base, length, REGX_ACCESS_REMOTE_WRITE, region), REGX_OK);
    assert_true((uintptr_t)region->mr->base <= base &&
                base + length <= (uintptr_t)region->mr->base + region->mr->length);
    assert_true((region->mr->access & REGX_ACCESS_REMOTE_WRITE) != 0);
}

/* Uses a range once. */
static inline void registry_use(registry_t *r, uintptr_t base, size_t length)
{
    regx_region_t region;

    registry_get(r, base, length, &region);
    regx_region_release(&r->registry, &region);
}

/* How that use was served. */
typedef enum { HIT = 'h', MISS = 'm', ONCE = 'o' } served_t;

static inline served_t registry_served(registry_t *r, uintptr_t base, size_t length)
{
    const unsigned regs = r->regs;
    const uint64_t misses = r->counters.misses, once = r->counters.uncached;

    regx_registry_count(&r->registry);
    const uint64_t hits = r->counters.hits;

    registry_use(r, base, length);
    regx_registry_count(&r->registry);
    assert_int_equal(
        r->counters.hits - hits + r->counters.misses - misses + r->counters.uncached - once, 1);
    assert_true((r->regs == regs) == (r->counters.hits > hits));
    return r->counters.hits > hits ? HIT : r->counters.misses > misses ? MISS : ONCE;
}

static inline void registry_log(registry_t *r, uintptr_t start, size_t length)
{
    regx_changes_log(r->watch.changes, start, start + length);
}

#endif

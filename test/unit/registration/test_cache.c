/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the cache keeps and finds again.
 */
#include "registry.h"

REGISTRY_TEST(a_region_covers_exactly_the_pages_that_were_asked_for,
              registry_open(UNLIMITED, UNLIMITED, true))
{
    static const struct {
        uintptr_t base;
        size_t length;
        uintptr_t start, end;
    } cases[] = {
        {0x100000, 1, 0x100000, 0x101000},
        {0x120fff, 2, 0x120000, 0x122000},
        {0x160800, 0x801, 0x160000, 0x162000},
        {0x200000, 0x200000, 0x200000, 0x400000},
        {0x7ffffffff000, 4096, 0x7ffffffff000, 0x800000000000},
    };

    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        regx_region_t region;

        registry_get(r, cases[i].base, cases[i].length, &region);
        assert_ptr_equal(region.mr->base, cases[i].start);
        assert_int_equal(region.mr->length, cases[i].end - cases[i].start);
        regx_region_release(&r->registry, &region);
        assert_int_equal(registry_served(r, cases[i].start, region.mr->length), HIT);
    }
    /* Neighbours and overlaps are never joined. */
    assert_int_equal(registry_served(r, 0x101000, 0x1000), MISS);
    assert_int_equal(registry_served(r, 0x100000, 0x2000), MISS);
    assert_int_equal(registry_served(r, 0x0ff000, 0x2000), MISS);
    assert_int_equal(r->counters.registrations, r->counters.misses);
    assert_int_equal(r->deregs, 0);
}

REGISTRY_TEST(more_access_replaces_the_region, registry_open(UNLIMITED, UNLIMITED, false))
{
    regx_region_t local, both;

    assert_int_equal(registry_try(r, 0x100000, 0x4000, REGX_ACCESS_LOCAL, &local), REGX_OK);
    assert_int_equal(local.mr->access, REGX_ACCESS_LOCAL);
    assert_int_equal(registry_try(r, 0x100000, 0x4000, REGX_ACCESS_REMOTE_WRITE, &both), REGX_OK);
    assert_int_equal(both.mr->access, REGX_ACCESS_LOCAL | REGX_ACCESS_REMOTE_WRITE);
    assert_int_equal(r->live, 2); /* the old one is in use */
    regx_region_release(&r->registry, &local);
    regx_registry_progress(&r->registry);
    assert_int_equal(r->live, 1);
    assert_int_equal(registry_try(r, 0x101000, 0x1000, REGX_ACCESS_LOCAL, &local), REGX_OK);
    assert_ptr_equal(local.mr, both.mr);
    regx_region_release(&r->registry, &local);
    regx_region_release(&r->registry, &both);
    assert_int_equal(r->regs, 2);
    assert_int_equal(r->counters.evictions, 0);
    /* Inside another: a region of its own, the outer one stays. */
    assert_int_equal(registry_try(r, 0x102000, 0x1000, REGX_ACCESS_REMOTE_READ, &both), REGX_OK);
    assert_int_equal(both.mr->access, REGX_ACCESS_REMOTE_READ);
    regx_region_release(&r->registry, &both);
    assert_int_equal(registry_served(r, 0x100000, 0x4000), HIT);
    assert_int_equal(r->live, 2);
    assert_int_equal(r->cache->room.count, 2);
    assert_int_equal(r->cache->room.bytes, 0x5000);
}

/* What was writable once need not be so for ever: the new use must not fail for the old one. */
REGISTRY_TEST(access_that_is_refused_by_now_is_not_asked_again,
              registry_open(UNLIMITED, UNLIMITED, false))
{
    regx_region_t region;

    registry_use(r, 0x100000, 0x4000);
    r->refuse_access = REGX_ACCESS_REMOTE_WRITE;
    assert_int_equal(registry_try(r, 0x100000, 0x4000, REGX_ACCESS_LOCAL, &region), REGX_OK);
    assert_int_equal(region.mr->access, REGX_ACCESS_LOCAL);
    regx_region_release(&r->registry, &region);
    assert_int_equal(registry_try(r, 0x100000, 0x4000, REGX_ACCESS_REMOTE_WRITE, &region),
                     REGX_DENIED);
}

static bool found_kept(registry_t *r, uintptr_t base, size_t length, unsigned access)
{
    regx_region_t region;
    const unsigned regs = r->regs;
    const bool found =
        regx_region_acquire_kept(&r->registry, (void *)base, length, access, &region);

    if (found) {
        assert_true((uintptr_t)region.mr->base <= base &&
                    base + length <= (uintptr_t)region.mr->base + region.mr->length);
        assert_int_equal(region.mr->access & access, access);
        regx_region_release(&r->registry, &region);
    }
    assert_int_equal(r->regs, regs); /* whatever is found */
    return found;
}

/* At its beginning or inside; not with more access, nor what sticks out, nor what has changed or
 * may just be changing, nor what is no range. */
UNIT_TEST(what_is_kept_is_found_without_registering)
{
    const unsigned access = REGX_ACCESS_REMOTE_WRITE;

    for (int asks = 0; asks <= 1; asks++) {
        registry_t *r = registry_open(UNLIMITED, UNLIMITED, asks);

        assert_false(found_kept(r, 0x100000, 0x4000, access));
        registry_use(r, 0x100000, 0x4000);
        for (unsigned i = 0; i < 3; i++) {
            assert_true(found_kept(r, 0x100000, 0x4000, access));
            assert_true(found_kept(r, 0x102001, 0x1fff, access));
            assert_false(found_kept(r, 0x100000, 0x4000, access | REGX_ACCESS_LOCAL));
            assert_false(found_kept(r, 0x100000, 0x4001, access));
            assert_false(found_kept(r, 0x100000, 0, access));
            assert_false(found_kept(r, 0, 0x4000, access));
        }
        regx_registry_count(&r->registry);
        assert_int_equal(r->counters.hits, 6);
        r->changing = asks;
        r->asks = 0;
        assert_int_equal(found_kept(r, 0x100000, 0x4000, access), !asks);
        assert_in_range(r->asks, 0, 2); /* copying is as good: it does not ask again and again */
        r->changing = false;
        assert_true(found_kept(r, 0x100000, 0x4000, access));
        registry_log(r, 0x102000, PAGE);
        const uint64_t prevented = r->counters.stale_prevented;
        assert_false(found_kept(r, 0x100000, 0x4000, access));
        assert_int_equal(r->counters.stale_prevented, prevented + 1);
        assert_int_equal(registry_served(r, 0x100000, 0x4000), MISS);
        registry_close(r);
    }
}

#define TAG ((uintptr_t)1 << 56) /* the lowest that an address may have */

/* Whoever reports a change of that memory names it without its tag. */
REGISTRY_TEST(an_address_with_a_tag_serves_one_use, registry_open(UNLIMITED, UNLIMITED, true))
{
    for (uintptr_t tag = TAG; tag != 0; tag <<= 1) {
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(registry_served(r, tag + 0x100000, PAGE), ONCE);
        }
    }
}

REGISTRY_TEST(what_cannot_be_a_range_is_refused, registry_open(UNLIMITED, UNLIMITED, true))
{
    static const struct {
        uintptr_t base;
        size_t length;
    } cases[] = {
        {0, 4096},
        {0, 0},
        {0x100000, 0},
        {0x100800, 0},
        {0x100000, SIZE_MAX},
        {0x100800, SIZE_MAX - 0x7ff},
        {0x100000, (size_t)INTPTR_MAX},
        {UINTPTR_MAX, 2},
        {UINTPTR_MAX - 4095, 4097},
        {TAG - 1, 2},
    };
    regx_region_t region;

    registry_use(r, 0x100000, 0x4000); /* those that begin in it must not hit it either */
    assert_int_equal(registry_served(r, 0x100800, 0x1000), HIT);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(
            registry_try(r, cases[i].base, cases[i].length, REGX_ACCESS_REMOTE_WRITE, &region),
            REGX_DENIED);
    }
    assert_int_equal(r->regs, 1);
    assert_int_equal(registry_served(r, 0x100000, 0x4000), HIT);
}

/* The device refuses from the nth use on, for every n of a mixed sequence but the last, which hits.
 */
UNIT_TEST(any_registration_may_fail)
{
    enum { STEPS = 40 };

    for (unsigned n = 1; n < STEPS; n++) {
        for (unsigned times = 1; times <= 2; times++) {
            registry_t *r = registry_open(8 * PAGE, UNLIMITED, true);
            unsigned failed = 0;
            uint64_t random = 7;

            for (unsigned i = 1; i <= STEPS; i++) {
                const uintptr_t at = 0x100000 + chance_next(&random) % 6 * 4 * PAGE;
                regx_region_t region;

                if (i == n) {
                    r->refusal = REGX_NO_MEMORY;
                    r->refusals = times;
                }
                const regx_status_t status =
                    registry_try(r, at, (1 + i % 4) * PAGE, REGX_ACCESS_LOCAL, &region);

                if (status != REGX_OK) {
                    assert_int_equal(status, REGX_NO_MEMORY);
                    failed++;
                    continue;
                }
                assert_true(region.mr->handle == r && (uintptr_t)region.mr->base <= at);
                regx_region_release(&r->registry, &region);
                regx_registry_progress(&r->registry);
                assert_int_equal(r->counters.registered_bytes, r->cache->room.bytes);
                assert_int_equal(r->live, r->cache->room.count);
            }
            /* Once, what is kept makes way; a hit postpones a refusal, but does not use it up. */
            assert_int_equal(failed, n == 1 ? times : times - 1);
            assert_int_equal(r->refusals, 0);
            registry_close(r);
        }
    }
}

/* ---- uses by several threads ---- */

static void run(void *(*function)(void *), void *argument)
{
    const pthread_t thread = unit_thread(function, argument);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

typedef struct job {
    registry_t *r;
    regx_region_t regions[8];
} job_t;

static void *release_all(void *argument)
{
    job_t *job = argument;

    for (unsigned i = 0; i < 8; i++) {
        regx_region_release(&job->r->registry, &job->regions[i]);
    }
    return NULL;
}

static void *acquire_all(void *argument)
{
    job_t *job = argument;

    for (unsigned i = 0; i < 8; i++) {
        registry_get(job->r, 0x100000, PAGE, &job->regions[i]);
    }
    return NULL;
}

UNIT_TEST(a_release_by_another_thread_counts)
{
    job_t job = {.r = registry_open_threaded(1, false)};

    for (unsigned round = 0; round < 4; round++) {
        /* By this thread and another, or by two others; both ways. */
        if (round % 2 == 0) {
            acquire_all(&job);
        } else {
            run(acquire_all, &job);
        }
        assert_int_equal(registry_served(job.r, 0x900000, PAGE), ONCE); /* no room: in use */
        if (round / 2 == 0) {
            run(release_all, &job);
        } else {
            release_all(&job);
        }
        assert_int_equal(registry_served(job.r, 0x900000, PAGE), MISS);
        assert_int_equal(job.r->live, 1);
    }
    registry_close(job.r);
}

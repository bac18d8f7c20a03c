/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the cache keeps and finds again; what it gives up, and when.
 */
#include "registry.h"

#include <limits.h>

#define UNLIMITED REGX_UNLIMITED

/* The example of the proposal's thread. */
static void the_example_of_the_proposal(void **state)
{
    registry_t *r = registry_open(1 << 20, 100, REGX_ADMIT_SECOND, false);
    regx_region_t first, second, third;

    (void)state;
    registry_get(r, 0x1000, 0x3000, &first);
    registry_get(r, 0x2000, 0x1000, &second);
    assert_int_equal(r->regs, 1);
    assert_ptr_equal(second.mr, first.mr);
    regx_region_release(&r->registry, &first);
    regx_registry_progress(&r->registry);
    assert_int_equal(r->deregs, 0);
    regx_region_release(&r->registry, &second);
    regx_registry_progress(&r->registry);
    assert_int_equal(r->deregs, 0);
    assert_int_equal(registry_served(r, 0x1000, 0x3000), HIT);
    assert_int_equal(registry_served(r, 0x2000, 0x1000), HIT);
    assert_int_equal(r->regs, 1);

    r->refusals = 1;
    r->refusal = REGX_NO_MEMORY;
    registry_get(r, 0x10000, 0x1000, &third);
    assert_int_equal(r->regs, 3);
    assert_int_equal(r->deregs, 1);
    assert_int_equal(r->undone[0], 0x1000);
    assert_int_equal(r->counters.evictions, 1);
    regx_region_release(&r->registry, &third);
    assert_int_equal(registry_served(r, 0x10000, 0x1000), HIT);
    registry_close(r);
}

static void unlimited_gives_nothing_up_before_a_failure(void **state)
{
    registry_t *r = registry_open(UNLIMITED, UNLIMITED, REGX_ADMIT_SECOND, false);
    enum { MANY = 5000 };

    (void)state;
    for (uintptr_t i = 0; i < MANY; i++) {
        assert_int_equal(registry_served(r, (i + 1) << 16, 0x8000), MISS);
        regx_registry_progress(&r->registry);
    }
    assert_int_equal(r->deregs, 0);
    for (uintptr_t i = 0; i < MANY; i++) {
        assert_int_equal(registry_served(r, (i + 1) << 16, 0x8000), HIT);
    }
    r->refusals = 1;
    r->refusal = REGX_NO_MEMORY;
    assert_int_equal(registry_served(r, (uintptr_t)MANY << 17, 0x14000), MISS);
    assert_int_equal(r->deregs, 3); /* at least the bytes that were asked for */
    registry_close(r);
}

static void a_region_covers_exactly_the_pages_that_were_asked_for(void **state)
{
    static const struct {
        uintptr_t base;
        size_t length;
        uintptr_t start, end;
    } cases[] = {
        {0x100000, 1, 0x100000, 0x101000},
        {0x110fff, 1, 0x110000, 0x111000},
        {0x120fff, 2, 0x120000, 0x122000},
        {0x130000, 4096, 0x130000, 0x131000},
        {0x140001, 4096, 0x140000, 0x142000},
        {0x150800, 0x800, 0x150000, 0x151000},
        {0x160800, 0x801, 0x160000, 0x162000},
        {0x200000, 0x200000, 0x200000, 0x400000},
        {0x7ffffffff000, 4096, 0x7ffffffff000, 0x800000000000},
    };
    registry_t *r = registry_open(UNLIMITED, UNLIMITED, REGX_ADMIT_SECOND, true);

    (void)state;
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
    registry_close(r);
}

static void an_inner_range_is_served_by_an_outer_region(void **state)
{
    registry_t *r = registry_open(UNLIMITED, UNLIMITED, REGX_ADMIT_SECOND, false);
    regx_region_t outer, inner;

    (void)state;
    assert_int_equal(registry_served(r, 0x300000, 0x1000), MISS); /* lies inside: stays */
    registry_get(r, 0x100000, 0x400000, &outer);
    for (uintptr_t at = 0x100000; at < 0x500000; at += 0x1234) {
        const size_t length = at + 0x2000 < 0x500000 ? 0x2000 : 0x500000 - at;

        registry_get(r, at, length, &inner);
        regx_region_release(&r->registry, &inner);
        assert_int_equal(registry_served(r, at, length), HIT);
    }
    assert_int_equal(r->regs, 2);
    assert_int_equal(registry_served(r, 0x4ff000, 0x1001), MISS); /* sticks out */
    regx_region_release(&r->registry, &outer);
    registry_close(r);
}

/* Two buffers that start at one place, in turns: both are found. */
static void one_start_and_several_lengths(void **state)
{
    registry_t *r = registry_open(UNLIMITED, UNLIMITED, REGX_ADMIT_SECOND, false);

    (void)state;
    for (size_t length = PAGE; length <= 6 * PAGE; length += PAGE) {
        assert_int_equal(registry_served(r, 0x100000, length), MISS);
    }
    for (unsigned i = 0; i < 10; i++) {
        for (size_t length = PAGE; length <= 6 * PAGE; length += PAGE) {
            assert_int_equal(registry_served(r, 0x100000, length), HIT);
        }
    }
    registry_close(r);
}

static void more_access_replaces_the_region(void **state)
{
    registry_t *r = registry_open(UNLIMITED, UNLIMITED, REGX_ADMIT_SECOND, false);
    regx_region_t local, both;

    (void)state;
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
    assert_int_equal(r->cache->count, 2);
    assert_int_equal(r->cache->bytes, 0x5000);
    registry_close(r);
}

/* What was writable once need not be so for ever: the new use must not fail for the old one. */
static void access_that_is_refused_by_now_is_not_asked_again(void **state)
{
    registry_t *r = registry_open(UNLIMITED, UNLIMITED, REGX_ADMIT_SECOND, false);
    regx_region_t region;

    (void)state;
    registry_use(r, 0x100000, 0x4000);
    r->refuse_access = REGX_ACCESS_REMOTE_WRITE;
    assert_int_equal(registry_try(r, 0x100000, 0x4000, REGX_ACCESS_LOCAL, &region), REGX_OK);
    assert_int_equal(region.mr->access, REGX_ACCESS_LOCAL);
    regx_region_release(&r->registry, &region);
    assert_int_equal(registry_try(r, 0x100000, 0x4000, REGX_ACCESS_REMOTE_WRITE, &region),
                     REGX_DENIED);
    registry_close(r);
}

static void what_cannot_be_a_range_is_refused(void **state)
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
        {0x100000, (size_t)-0x100},
        {0x100000, (size_t)-0x100000},
        {0x100000, (size_t)-0x100001},
        {0x100800, SIZE_MAX - 0x7ff},
        {0x100000, (size_t)INTPTR_MAX},
        {UINTPTR_MAX, 1},
        {UINTPTR_MAX - 4095, 4096},
        {(uintptr_t)INTPTR_MAX + 1, 1},
    };
    registry_t *r = registry_open(UNLIMITED, UNLIMITED, REGX_ADMIT_SECOND, true);
    regx_region_t region;

    (void)state;
    registry_use(r, 0x100000, 0x4000); /* those that begin in it must not hit it either */
    assert_int_equal(registry_served(r, 0x100800, 0x1000), HIT);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(
            registry_try(r, cases[i].base, cases[i].length, REGX_ACCESS_REMOTE_WRITE, &region),
            REGX_INVALID);
    }
    assert_int_equal(r->regs, 1);
    assert_int_equal(registry_served(r, 0x100000, 0x4000), HIT);
    registry_close(r);
}

/* ---- the budget ---- */

static void bytes_kept_stay_within_the_budget(void **state)
{
    registry_t *r = registry_open(64 * PAGE, UNLIMITED, REGX_ADMIT_FIRST, false);
    uint64_t random = 1;

    (void)state;
    for (unsigned i = 0; i < 2000; i++) {
        const size_t length = (1 + unit_random(&random) % 16) * PAGE;

        registry_use(r, 0x100000 + unit_random(&random) % 4096 * PAGE, length);
        assert_in_range(r->counters.registered_bytes, 1, 64 * PAGE);
    }
    assert_in_range(r->counters.registered_bytes, 49 * PAGE, 64 * PAGE);
    assert_true(r->counters.registered_high > 60 * PAGE);
    assert_true(r->counters.evictions > 100);
    registry_close(r);
}

static void regions_kept_stay_within_the_budget(void **state)
{
    registry_t *r = registry_open(UNLIMITED, 10, REGX_ADMIT_FIRST, false);

    (void)state;
    for (uintptr_t i = 1; i <= 1000; i++) {
        assert_int_equal(registry_served(r, i << 16, PAGE), MISS);
        assert_int_equal(r->live, i < 10 ? i : 10);
    }
    assert_int_equal(r->counters.evictions, 990);
    assert_in_range(r->cache->regions.used, 1, 16); /* records are used again */
    registry_close(r);
}

static void a_budget_smaller_than_a_region_keeps_nothing_of_it(void **state)
{
    registry_t *r = registry_open(4 * PAGE, UNLIMITED, REGX_ADMIT_FIRST, false);

    (void)state;
    assert_int_equal(registry_served(r, 0x100000, 3 * PAGE), MISS);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(registry_served(r, 0x200000, 5 * PAGE), ONCE);
        assert_int_equal(registry_served(r, 0x200800, 4 * PAGE), ONCE); /* five pages, too */
        assert_int_equal(r->live, 1);
    }
    assert_int_equal(registry_served(r, 0x100000, 3 * PAGE), HIT);
    assert_int_equal(registry_served(r, 0x200000, 4 * PAGE), MISS);
    registry_close(r);

    r = registry_open(UNLIMITED, 0, REGX_ADMIT_FIRST, false);
    assert_int_equal(registry_served(r, 0x100000, PAGE), ONCE);
    assert_int_equal(registry_served(r, 0x100000, PAGE), ONCE);
    assert_int_equal(r->live, 0);
    registry_close(r);
}

static void what_is_in_use_is_not_given_up(void **state)
{
    registry_t *r = registry_open(UNLIMITED, 4, REGX_ADMIT_FIRST, false);
    regx_region_t regions[4], more;

    (void)state;
    for (uintptr_t i = 0; i < 4; i++) {
        registry_get(r, (i + 1) << 16, PAGE, &regions[i]);
    }
    registry_get(r, 0x900000, PAGE, &more); /* served nevertheless */
    assert_int_equal(r->counters.uncached, 1);
    assert_int_equal(r->counters.evictions, 0);
    regx_region_release(&r->registry, &more);
    assert_int_equal(r->live, 4);
    regx_region_release(&r->registry, &regions[2]);
    assert_int_equal(registry_served(r, 0x900000, PAGE), MISS);
    assert_int_equal(r->deregs, 2);
    assert_int_equal(r->undone[1], 0x30000);
    for (unsigned i = 0; i < 4; i++) {
        if (i != 2) {
            regx_region_release(&r->registry, &regions[i]);
            assert_int_equal(registry_served(r, (uintptr_t)(i + 1) << 16, PAGE), HIT);
        }
    }
    registry_close(r);
}

static uint32_t number_of(registry_t *r, uintptr_t start, size_t length)
{
    return regx_index_exact(&r->cache->index, start, start + length);
}

/* Used alike: the cheapest per byte goes. The same cost: the least used goes. */
static void eviction_weighs_cost_and_use_against_bytes(void **state)
{
    static const uint32_t costs[] = {5000, 800, 3000, 700, 9000, 650, 2000, 100000};
    static const size_t sizes[] = {4, 4, 4, 1, 4, 2, 4, 16}; /* pages */
    static const unsigned expected[] = {1, 5, 6, 3, 2, 0, 4, 7};
    enum { COUNT = sizeof(costs) / sizeof(costs[0]) };
    registry_t *r = registry_open(UNLIMITED, UNLIMITED, REGX_ADMIT_FIRST, false);

    (void)state;
    for (unsigned i = 0; i < COUNT; i++) {
        const uintptr_t start = (uintptr_t)(i + 1) << 20;

        registry_use(r, start, sizes[i] * PAGE);
        for (unsigned j = 0; j < 9; j++) {
            assert_int_equal(registry_served(r, start, sizes[i] * PAGE), HIT);
        }
        r->cache->holdings[number_of(r, start, sizes[i] * PAGE)].cost = costs[i];
    }
    r->no_room = true;
    r->refusals = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        regx_region_t region;

        r->refusal = REGX_NO_MEMORY;
        r->refusals = 2; /* give up one region of a page at least, and still fail */
        assert_int_equal(registry_try(r, 0x80000000, PAGE, REGX_ACCESS_LOCAL, &region),
                         REGX_NO_MEMORY);
        assert_int_equal(r->deregs, i + 1);
        assert_int_equal(r->undone[i], (uintptr_t)(expected[i] + 1) << 20);
    }
    registry_close(r);

    r = registry_open(UNLIMITED, 10, REGX_ADMIT_FIRST, false);
    for (uintptr_t i = 1; i <= 10; i++) {
        for (uintptr_t j = 0; j < (i == 7 ? 2 : 20); j++) {
            registry_use(r, i << 20, PAGE);
        }
        r->cache->holdings[number_of(r, i << 20, PAGE)].cost = 1000;
    }
    registry_use(r, 0x80000000, PAGE);
    assert_int_equal(r->undone[0], 7 << 20);
    registry_close(r);
}

/* ---- admission ---- */

static void a_first_use_does_not_push_out_others(void **state)
{
    enum { WARM = 100, FRESH = 3000 };
    registry_t *r = registry_open(UNLIMITED, WARM, REGX_ADMIT_SECOND, true);

    (void)state;
    for (uintptr_t i = 1; i <= WARM; i++) {
        assert_int_equal(registry_served(r, i << 16, PAGE), MISS); /* there is room */
    }
    for (uintptr_t i = 1; i <= FRESH; i++) {
        assert_int_equal(registry_served(r, (i + 1000) << 16, PAGE), ONCE);
        assert_int_equal(r->live, WARM);
    }
    assert_int_equal(r->covers, WARM); /* nor is watched what is not kept */
    for (uintptr_t i = 1; i <= WARM; i++) {
        assert_int_equal(registry_served(r, i << 16, PAGE), HIT);
    }
    assert_int_equal(r->counters.evictions, 0);
    /* The second use of one of the latest counts. */
    assert_int_equal(registry_served(r, (uintptr_t)(FRESH + 1000) << 16, PAGE), MISS);
    assert_int_equal(registry_served(r, (uintptr_t)(FRESH + 1000) << 16, PAGE), HIT);
    assert_int_equal(r->counters.evictions, 1);
    registry_close(r);

    r = registry_open(UNLIMITED, WARM, REGX_ADMIT_FIRST, false);
    for (uintptr_t i = 1; i <= 2 * WARM; i++) {
        assert_int_equal(registry_served(r, i << 16, PAGE), MISS);
    }
    assert_int_equal(r->counters.evictions, WARM);
    registry_close(r);
}

/* What cannot be watched pushes nobody out, however often it is used. */
static void what_cannot_be_watched_is_not_kept(void **state)
{
    registry_t *r = registry_open(UNLIMITED, 4, REGX_ADMIT_SECOND, true);

    (void)state;
    for (uintptr_t i = 1; i <= 4; i++) {
        registry_use(r, i << 16, PAGE);
    }
    r->blind = true;
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(registry_served(r, 0x900000, PAGE), ONCE);
    }
    for (uintptr_t i = 1; i <= 4; i++) {
        assert_int_equal(registry_served(r, i << 16, PAGE), HIT);
    }
    assert_int_equal(r->counters.evictions, 0);
    registry_close(r);
}

/* ---- refusals ---- */

static void a_refusal_gives_up_others_and_tries_once_more(void **state)
{
    registry_t *r = registry_open(UNLIMITED, UNLIMITED, REGX_ADMIT_SECOND, false);
    regx_region_t held, region;

    (void)state;
    /* Nothing to give up. */
    r->refusal = REGX_NO_MEMORY;
    r->refusals = 1;
    assert_int_equal(registry_try(r, 0x100000, PAGE, REGX_ACCESS_LOCAL, &region), REGX_NO_MEMORY);
    assert_int_equal(r->regs, 1);
    /* Only what is in use. */
    registry_get(r, 0x200000, PAGE, &held);
    r->refusals = 1;
    assert_int_equal(registry_try(r, 0x100000, PAGE, REGX_ACCESS_LOCAL, &region), REGX_NO_MEMORY);
    assert_int_equal(r->regs, 3);
    /* Refused again. */
    registry_use(r, 0x300000, PAGE);
    r->refusals = 2;
    assert_int_equal(registry_try(r, 0x100000, PAGE, REGX_ACCESS_LOCAL, &region), REGX_NO_MEMORY);
    assert_int_equal(r->regs, 6);
    assert_int_equal(r->live, 1);
    /* The device takes no more than one at a time. */
    regx_region_release(&r->registry, &held);
    r->no_room = true;
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
        assert_int_equal(registry_served(r, 0x200000, PAGE), MISS);
        assert_int_equal(registry_served(r, 0x200000, PAGE), HIT);
    }
    assert_int_equal(r->cache->count, 1);
    assert_int_equal(r->cache->bytes, PAGE);
    registry_close(r);
}

/* However few are left of however many. */
static void what_can_be_given_up_is_found(void **state)
{
    enum { MANY = 5000 };
    static regx_region_t held[MANY];
    registry_t *r = registry_open(UNLIMITED, UNLIMITED, REGX_ADMIT_SECOND, false);

    (void)state;
    for (uintptr_t i = 1; i <= MANY; i++) {
        assert_int_equal(registry_served(r, i << 16, PAGE), MISS);
    }
    registry_log(r, 0, (uintptr_t)MANY << 16); /* all but the last */
    for (unsigned i = 0; i < MANY && r->live > 1; i++) {
        regx_registry_progress(&r->registry);
    }
    assert_int_equal(r->live, 1);
    r->no_room = true;
    assert_int_equal(registry_served(r, (uintptr_t)MANY << 17, PAGE), MISS);
    assert_int_equal(r->counters.evictions, 1);
    registry_close(r);

    /* All but one in use, wherever that one is. */
    r = registry_open(UNLIMITED, MANY, REGX_ADMIT_FIRST, false);
    for (uintptr_t i = 0; i < MANY; i++) {
        registry_get(r, (i + 1) << 16, PAGE, &held[i]);
    }
    for (uintptr_t i = 0; i < MANY; i += MANY / 10 - 1) {
        regx_region_release(&r->registry, &held[i]);
        assert_int_equal(registry_served(r, (uintptr_t)MANY << 17, PAGE), MISS);
        assert_int_equal(r->undone[(r->deregs - 1) % 64], (i + 1) << 16);
        registry_get(r, (i + 1) << 16, PAGE, &held[i]);
        assert_true(held[i].kept != 0); /* in place of that one */
    }
    assert_int_equal(registry_served(r, (uintptr_t)MANY << 17, PAGE), ONCE);
    for (unsigned i = 0; i < MANY; i++) {
        regx_region_release(&r->registry, &held[i]);
    }
    registry_close(r);
}

/* Unlimited is what the table holds; then others make way as for any budget. */
static void a_full_table_keeps_what_is_new(void **state)
{
    enum { ROOM = 100, MORE = 1000, FULL = REGX_REGIONS_MOST - ROOM };
    registry_t *r = registry_open(UNLIMITED, UNLIMITED, REGX_ADMIT_FIRST, false);

    (void)state;
    r->cache->count += FULL; /* as if that many were there */
    r->cache->regions.used += FULL;
    for (uintptr_t i = 1; i <= ROOM + MORE; i++) {
        assert_int_equal(registry_served(r, i * PAGE, PAGE), MISS);
        assert_int_equal(registry_served(r, i * PAGE, PAGE), HIT);
    }
    assert_int_equal(r->counters.evictions, MORE);
    assert_int_equal(r->live, ROOM);
    r->cache->count -= FULL;
    registry_close(r);
}

static void a_first_use_gets_room_when_the_device_has_none(void **state)
{
    registry_t *r = registry_open(2 * PAGE, UNLIMITED, REGX_ADMIT_SECOND, false);

    (void)state;
    registry_use(r, 0x100000, PAGE);
    registry_use(r, 0x200000, PAGE);
    r->refusal = REGX_NO_MEMORY;
    r->refusals = 1;
    assert_int_equal(registry_served(r, 0x300000, 4 * PAGE), ONCE); /* larger than the budget */
    assert_int_equal(r->live, 0);
    registry_close(r);
}

/* What is not for lack of room is not cured by making room. */
static void what_is_denied_costs_nobody_else(void **state)
{
    registry_t *r = registry_open(UNLIMITED, UNLIMITED, REGX_ADMIT_SECOND, false);
    regx_region_t region;

    (void)state;
    registry_use(r, 0x100000, PAGE);
    r->refusal = REGX_DENIED;
    r->refusals = 1;
    assert_int_equal(registry_try(r, 0x200000, PAGE, REGX_ACCESS_LOCAL, &region), REGX_DENIED);
    assert_int_equal(r->regs, 2);
    assert_int_equal(registry_served(r, 0x100000, PAGE), HIT);
    assert_int_equal(registry_served(r, 0x200000, PAGE), MISS);
    registry_close(r);
}

/* The nth call of the device fails, for every n of a mixed sequence: all is as without, but those.
 */
static void any_registration_may_fail(void **state)
{
    enum { STEPS = 40 };

    (void)state;
    for (unsigned n = 1; n <= STEPS; n++) {
        for (unsigned times = 1; times <= 2; times++) {
            registry_t *r = registry_open(8 * PAGE, UNLIMITED, REGX_ADMIT_SECOND, true);
            unsigned failed = 0;
            uint64_t random = 7;

            for (unsigned i = 1; i <= STEPS; i++) {
                const uintptr_t at = 0x100000 + unit_random(&random) % 6 * 4 * PAGE;
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
                assert_int_equal(r->counters.registered_bytes, r->cache->bytes);
                assert_int_equal(r->live, r->cache->count);
            }
            assert_in_range(failed, 0, 2); /* a hit postpones a refusal, but does not use it up */
            r->refusals = 0;
            registry_close(r);
        }
    }
}

static void closing_deregisters_all(void **state)
{
    registry_t *r = registry_open(UNLIMITED, UNLIMITED, REGX_ADMIT_SECOND, true);
    regx_region_t held;

    (void)state;
    for (uintptr_t i = 1; i <= 1000; i++) {
        registry_use(r, i << 16, PAGE);
    }
    registry_get(r, 0x10000, PAGE, &held);
    registry_log(r, 0x10000, PAGE); /* dead, and in use until just now */
    regx_registry_progress(&r->registry);
    assert_int_equal(r->live, 1000);
    regx_region_release(&r->registry, &held);
    registry_close(r); /* asserts it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_of_the_proposal),
        cmocka_unit_test(unlimited_gives_nothing_up_before_a_failure),
        cmocka_unit_test(a_region_covers_exactly_the_pages_that_were_asked_for),
        cmocka_unit_test(an_inner_range_is_served_by_an_outer_region),
        cmocka_unit_test(one_start_and_several_lengths),
        cmocka_unit_test(more_access_replaces_the_region),
        cmocka_unit_test(access_that_is_refused_by_now_is_not_asked_again),
        cmocka_unit_test(what_cannot_be_a_range_is_refused),
        cmocka_unit_test(bytes_kept_stay_within_the_budget),
        cmocka_unit_test(regions_kept_stay_within_the_budget),
        cmocka_unit_test(a_budget_smaller_than_a_region_keeps_nothing_of_it),
        cmocka_unit_test(what_is_in_use_is_not_given_up),
        cmocka_unit_test(eviction_weighs_cost_and_use_against_bytes),
        cmocka_unit_test(a_first_use_does_not_push_out_others),
        cmocka_unit_test(what_cannot_be_watched_is_not_kept),
        cmocka_unit_test(a_refusal_gives_up_others_and_tries_once_more),
        cmocka_unit_test(what_can_be_given_up_is_found),
        cmocka_unit_test(a_full_table_keeps_what_is_new),
        cmocka_unit_test(a_first_use_gets_room_when_the_device_has_none),
        cmocka_unit_test(what_is_denied_costs_nobody_else),
        cmocka_unit_test(any_registration_may_fail),
        cmocka_unit_test(closing_deregisters_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

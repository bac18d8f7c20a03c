/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the cache gives up, and when: to stay within its budget (hazard 17), and where the device has no room
 * (hazard 16).
 * And without a cache: no more is pinned at a time than is allowed.
 */
#include "registry.h"

/* ---- the budget ---- */

REGISTRY_TEST(what_is_in_use_is_not_given_up, registry_open(UNLIMITED, 4, false))
{
    regx_region_t regions[4], more;

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
    assert_int_equal(r->deregistered[1], 0x30000);
    for (unsigned i = 0; i < 4; i++) {
        if (i != 2) {
            regx_region_release(&r->registry, &regions[i]);
            assert_int_equal(registry_served(r, (uintptr_t)(i + 1) << 16, PAGE), HIT);
        }
    }
}

/* What was hit stays for a round, though it was registered first; also what is in use just now. */
REGISTRY_TEST(what_was_not_hit_lately_is_given_up, registry_open(UNLIMITED, 8, false))
{
    static const uintptr_t again[] = {3, 1, 6}, given_up[] = {2, 4, 5, 8, 1, 9};
    regx_region_t used, region;

    for (uintptr_t i = 1; i <= 8; i++) {
        assert_int_equal(registry_served(r, i << 20, PAGE), MISS);
    }
    registry_get(r, 7 << 20, PAGE, &used);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(registry_served(r, again[i] << 20, PAGE), HIT);
    }
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(registry_served(r, (uintptr_t)(i + 9) << 20, PAGE), MISS);
        assert_int_equal(r->deregs, i + 1);
        assert_int_equal(r->deregistered[i], given_up[i] << 20);
    }
    regx_region_release(&r->registry, &used);
    assert_int_equal(registry_served(r, 0x80000000, PAGE), MISS);
    assert_int_equal(r->deregistered[6], 3 << 20);
    /* The same where the device has no room. */
    r->refusal = REGX_NO_MEMORY;
    r->refusals = 1;
    assert_int_equal(registry_try(r, 10 << 20, PAGE, REGX_ACCESS_REMOTE_READ, &region), REGX_OK);
    regx_region_release(&r->registry, &region);
    assert_int_equal(r->counters.evictions, 8);
}

/* What cannot be watched pushes no region out, however often it is used. */
REGISTRY_TEST(what_cannot_be_watched_is_not_kept, registry_open(UNLIMITED, 4, true))
{
    for (uintptr_t i = 1; i <= 4; i++) {
        registry_use(r, i << 16, PAGE);
    }
    r->refuses_to_watch = true;
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(registry_served(r, 0x900000, PAGE), ONCE);
    }
    for (uintptr_t i = 1; i <= 4; i++) {
        assert_int_equal(registry_served(r, i << 16, PAGE), HIT);
    }
    assert_int_equal(r->counters.evictions, 0);
}

/* ---- refusals ---- */

REGISTRY_TEST(a_refusal_gives_up_others_and_tries_once_more,
              registry_open(UNLIMITED, UNLIMITED, false))
{
    regx_region_t held, region;

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
    assert_int_equal(r->cache->room.count, 1);
    assert_int_equal(r->cache->room.bytes, PAGE);
}

/* ---- what is not kept, and what is dead ---- */

REGISTRY_TEST(what_is_not_kept_is_bounded_and_what_is_kept_is_not,
              registry_open(4 * PAGE, UNLIMITED, false))
{
    regx_region_t once, kept, more;

    r->registry.once_max = 5 * PAGE;
    for (unsigned i = 0; i < 3; i++) {
        registry_get(r, 0x200000, 5 * PAGE, &once); /* larger than the cache */
        assert_int_equal(registry_try(r, 0x300000, 5 * PAGE, REGX_ACCESS_REMOTE_WRITE, &more),
                         REGX_NO_MEMORY);
        registry_get(r, 0x100000, 4 * PAGE, &kept);
        /* All that is kept is in use. */
        assert_int_equal(registry_try(r, 0x400000, PAGE, REGX_ACCESS_REMOTE_WRITE, &more),
                         REGX_NO_MEMORY);
        regx_region_release(&r->registry, &once);
        registry_get(r, 0x300000, 5 * PAGE, &more);
        regx_region_release(&r->registry, &more);
        regx_region_release(&r->registry, &kept);
        assert_int_equal(r->registry.once[true], 0);
    }
    regx_registry_count(&r->registry);
    assert_int_equal(r->counters.hits, 2);
}

REGISTRY_TEST(what_came_out_untrue_needs_room, registry_open_large(true))
{
    regx_region_t untrue, more;

    r->registry.once_max = 3 * PAGE;
    r->changing = true; /* so it is registered for this use alone, after it was to be kept */
    registry_get(r, 0x100000, 2 * PAGE, &untrue);
    assert_int_equal(r->counters.uncached, 1);
    assert_int_equal(r->registry.once[true], 2 * PAGE);
    assert_int_equal(registry_try(r, 0x300000, 2 * PAGE, REGX_ACCESS_REMOTE_WRITE, &more),
                     REGX_NO_MEMORY);
    assert_true(more.over_share);
    assert_int_equal(r->live, 1);
    assert_int_equal(r->registry.once[true], 2 * PAGE);
    r->changing = false;
    registry_get(r, 0x200000, 4 * PAGE, &more); /* this one is kept */
    regx_region_release(&r->registry, &more);
    regx_region_release(&r->registry, &untrue);
    assert_int_equal(r->registry.once[true], 0);
}

/* Buffers that are not among the first pages. */
#define FAR ((uintptr_t)1 << 32)

/* Uses each of the pages from the first to the last once. */
static void use_pages(registry_t *r, uintptr_t first, uintptr_t last)
{
    for (uintptr_t page = first; page <= last; page++) {
        registry_use(r, page * PAGE, PAGE);
    }
}

UNIT_TEST(what_is_dead_counts_while_it_is_pinned)
{
    enum { BUDGET = 4096, LARGE = 64 };
    registry_t *r = registry_open(BUDGET * PAGE, UNLIMITED, false);

    use_pages(r, 1, BUDGET);
    registry_log(r, PAGE, BUDGET * PAGE);
    for (uintptr_t i = 0; i < 4 * BUDGET / LARGE; i++) {
        registry_use(r, FAR + i * LARGE * PAGE, LARGE * PAGE);
    }
    assert_in_range(r->counters.registered_high, BUDGET * PAGE,
                    BUDGET * PAGE * 5 / 4 + LARGE * PAGE); /* what is used once is not kept */
    registry_close(r);
}

UNIT_TEST(room_for_a_large_region_is_made_in_parts)
{
    enum { BUDGET = 5000, LARGE = 4000 };
    registry_t *r = registry_open(BUDGET * PAGE, UNLIMITED, false);
    served_t served = ONCE;
    unsigned rounds = 0;

    use_pages(r, 1, BUDGET);
    for (; served == ONCE && rounds < 1000; rounds++) {
        const unsigned before = r->deregs;

        served = registry_served(r, FAR, LARGE * PAGE);
        assert_in_range(r->deregs - before, 1, 200);
    }
    assert_int_equal(served, MISS);
    assert_in_range(r->counters.evictions, LARGE, LARGE + 200);
    assert_int_equal(registry_served(r, FAR, LARGE * PAGE), HIT);
    registry_close(r);
}

/* ---- backend none: each use by itself ---- */

enum { BOUND = 10000 };

static regx_status_t use(registry_t *r, size_t length, regx_region_t *region)
{
    return registry_try(r, 0x100005, length, REGX_ACCESS_LOCAL, region);
}

/* The same range every time, also while it is in use: nothing is kept, nothing shared. */
REGISTRY_TEST(each_use_registers_exactly_what_is_asked, registry_open_none(0))
{
    regx_region_t region, other;

    for (unsigned i = 1; i <= 3; i++) {
        assert_int_equal(use(r, 1000, &region), REGX_OK);
        assert_ptr_equal(region.mr->base, 0x100005);
        assert_int_equal(region.mr->length, 1000);
        assert_int_equal(region.mr->access, REGX_ACCESS_LOCAL);
        assert_int_equal(use(r, 500, &other), REGX_OK);
        assert_int_equal(r->live, 2);
        assert_int_equal(r->counters.registered_bytes, 1500);
        regx_region_release(&r->registry, &region);
        regx_region_release(&r->registry, &other);
        assert_int_equal(r->live, 0);
        assert_int_equal(r->counters.uncached, 2 * i);
    }
    assert_int_equal(r->counters.hits + r->counters.misses, 0);
    assert_int_equal(r->counters.registered_high, 1500);
}

/* Once refused it is not tried again: the caller bounces instead. */
REGISTRY_TEST(a_refusal_is_told_and_takes_no_room, registry_open_none((uint64_t)2 * BOUND))
{
    regx_region_t region;

    r->refusals = 1;
    r->refusal = REGX_DENIED;
    assert_int_equal(use(r, BOUND, &region), REGX_DENIED);
    assert_int_equal(r->regs, 1);
    assert_int_equal(use(r, BOUND, &region), REGX_OK);
    regx_region_release(&r->registry, &region);
}

REGISTRY_TEST(what_would_pin_too_much_is_refused, registry_open_none((uint64_t)2 * BOUND))
{
    regx_region_t first, second, third;

    assert_int_equal(use(r, BOUND + 1, &first), REGX_NO_MEMORY);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(use(r, BOUND - 1000, &first), REGX_OK);
        assert_int_equal(use(r, 1001, &second), REGX_NO_MEMORY);
        assert_int_equal(use(r, 1000, &second), REGX_OK);
        assert_int_equal(use(r, 1, &third), REGX_NO_MEMORY);
        /* The other direction has as much. */
        assert_int_equal(registry_try(r, 0x100005, BOUND, REGX_ACCESS_REMOTE_WRITE, &third),
                         REGX_OK);
        regx_region_release(&r->registry, &third);
        regx_region_release(&r->registry, &first);
        assert_int_equal(use(r, BOUND - 1000, &third), REGX_OK);
        regx_region_release(&r->registry, &second);
        regx_region_release(&r->registry, &third);
    }
    assert_int_equal(r->regs, 12); /* the device was not asked for the others */
    assert_int_equal(r->counters.registered_high, 2 * BOUND);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is pinned and no longer needed stays near the budget together with what is kept, and room
 * for a large region is made of small ones in parts. No memory is touched.
 */
#include "registry.h"

/* Buffers that are not among the first pages. */
#define FAR ((uintptr_t)1 << 32)
#define FARTHER ((uintptr_t)1 << 33)

/* Uses each of the pages from the first to the last once. */
static void use_pages(registry_t *r, uintptr_t first, uintptr_t last)
{
    for (uintptr_t page = first; page <= last; page++) {
        registry_use(r, page * PAGE, PAGE);
    }
}

static void what_is_dead_counts_while_it_is_pinned(void **state)
{
    enum { BUDGET = 4096, LARGE = 64 };
    registry_t *r = registry_open(BUDGET * PAGE, UNLIMITED, REGX_ADMIT_FIRST, false);

    (void)state;
    use_pages(r, 1, BUDGET);
    registry_log(r, PAGE, BUDGET * PAGE);
    for (uintptr_t i = 0; i < 4 * BUDGET / LARGE; i++) {
        registry_use(r, FAR + i * LARGE * PAGE, LARGE * PAGE);
    }
    assert_in_range(r->counters.registered_high, BUDGET * PAGE,
                    BUDGET * PAGE * 5 / 4 + LARGE * PAGE); /* what is used once is not kept */
    registry_close(r);
}

static void room_for_a_large_region_is_made_in_parts(void **state)
{
    enum { BUDGET = 5000, LARGE = 4000 };
    registry_t *r = registry_open(BUDGET * PAGE, UNLIMITED, REGX_ADMIT_FIRST, false);
    served_t served = ONCE;
    unsigned rounds = 0;

    (void)state;
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

/* A large buffer and many small ones in turn: what is given up for the large one is not taken by
 * those that come back. */
static void small_uses_do_not_take_the_room_of_a_large_region(void **state)
{
    enum { BUDGET = 5000, LARGE = 2000, SMALL = 200, ROUNDS = 300 };
    registry_t *r = registry_open(BUDGET * PAGE, UNLIMITED, REGX_ADMIT_FIRST, false);
    served_t served = ONCE;
    unsigned rounds = 0;

    (void)state;
    use_pages(r, 1, BUDGET);
    for (; served == ONCE && rounds < ROUNDS; rounds++) {
        const unsigned before = r->deregs;

        served = registry_served(r, FAR, LARGE * PAGE);
        assert_in_range(r->deregs - before, 1, 200);
        for (uintptr_t i = 0; i < SMALL && served == ONCE; i++) {
            registry_use(r, (1 + (rounds * SMALL + i) % BUDGET) * PAGE, PAGE);
            assert_in_range(r->counters.registered_bytes, 1, BUDGET * PAGE);
        }
    }
    assert_int_equal(served, MISS);
    assert_in_range(rounds, LARGE / REGX_EVICTED_MAX, 2 * LARGE / REGX_EVICTED_MAX);
    registry_close(r);
}

/* Of two that each need more room than one call makes, one waits for the other, and gives up
 * nothing meanwhile. */
static void large_regions_are_made_room_for_one_after_the_other(void **state)
{
    enum { BUDGET = 5000, LARGE = 2000 };
    registry_t *r = registry_open(BUDGET * PAGE, UNLIMITED, REGX_ADMIT_FIRST, false);
    const uintptr_t large[] = {FAR, FARTHER};
    bool kept[] = {false, false};

    (void)state;
    use_pages(r, 1, BUDGET);
    for (unsigned rounds = 0; rounds < 100 && !(kept[0] && kept[1]); rounds++) {
        for (unsigned i = 0; i < 2; i++) {
            const uint64_t evictions = r->counters.evictions;

            kept[i] = registry_served(r, large[i], LARGE * PAGE) != ONCE;
            assert_true(i == 0 || kept[0] || r->counters.evictions == evictions);
        }
    }
    assert_true(kept[0] && kept[1]);
    registry_close(r);
}

static void room_that_is_not_fetched_is_given_back(void **state)
{
    enum { BUDGET = 5000, LARGE = 4000 };
    registry_t *r = registry_open(BUDGET * PAGE, UNLIMITED, REGX_ADMIT_FIRST, false);

    (void)state;
    use_pages(r, 1, BUDGET);
    assert_int_equal(registry_served(r, FAR, LARGE * PAGE), ONCE);
    assert_true(r->counters.evictions > 0);
    for (unsigned round = 0; round < 20; round++) {
        use_pages(r, 1, BUDGET);
    }
    for (uintptr_t i = 1; i <= BUDGET; i++) {
        assert_int_equal(registry_served(r, i * PAGE, PAGE), HIT);
    }
    registry_close(r);
}

/* What it needs is in use and stays so, however often it asks. */
static void a_large_region_that_finds_no_room_leaves_it_to_small_ones(void **state)
{
    enum { BUDGET = 1024, IN_USE = 600, LARGE = 500, SMALL = 10, ROUNDS = 100 };
    registry_t *r = registry_open(BUDGET * PAGE, UNLIMITED, REGX_ADMIT_FIRST, false);
    regx_region_t held;
    unsigned hits = 0;

    (void)state;
    registry_get(r, FARTHER, IN_USE * PAGE, &held);
    use_pages(r, 1, BUDGET - IN_USE);
    for (unsigned round = 0; round < 2 * ROUNDS; round++) {
        assert_int_equal(registry_served(r, FAR, LARGE * PAGE), ONCE);
        for (uintptr_t i = 1; i <= SMALL; i++) {
            registry_use(r, i * PAGE, PAGE);
            hits += registry_served(r, i * PAGE, PAGE) == HIT && round >= ROUNDS;
        }
    }
    assert_int_equal(hits, ROUNDS * SMALL);
    regx_region_release(&r->registry, &held);
    assert_int_equal(registry_served(r, FAR, LARGE * PAGE), MISS);
    registry_close(r);
}

/* The last that it needs is in use, for now. */
static void what_was_made_stays_while_the_rest_is_in_use(void **state)
{
    enum { BUDGET = 1024, LARGE = 1000, IN_USE = 30, OTHERS = 200 };
    registry_t *r = registry_open(BUDGET * PAGE, UNLIMITED, REGX_ADMIT_FIRST, false);
    regx_region_t held[IN_USE];

    (void)state;
    for (uintptr_t i = 0; i < IN_USE; i++) {
        registry_get(r, (1 + i) * PAGE, PAGE, &held[i]);
    }
    use_pages(r, 1 + IN_USE, BUDGET);
    for (unsigned i = 0; i < 2 * BUDGET / REGX_EVICTED_MAX; i++) {
        assert_int_equal(registry_served(r, FAR, LARGE * PAGE), ONCE);
    }
    for (uintptr_t i = 0; i < OTHERS; i++) {
        assert_int_equal(registry_served(r, FARTHER + i * PAGE, PAGE), ONCE);
    }
    for (unsigned i = 0; i < IN_USE; i++) {
        regx_region_release(&r->registry, &held[i]);
    }
    assert_int_equal(registry_served(r, FAR, LARGE * PAGE), MISS);
    registry_close(r);
}

/* Its buffer is gone; the next large one is elsewhere. */
static void room_that_is_not_fetched_goes_to_the_next_large_region(void **state)
{
    enum { BUDGET = 5000, LARGE = 2000 };
    registry_t *r = registry_open(BUDGET * PAGE, UNLIMITED, REGX_ADMIT_FIRST, false);
    served_t served = ONCE;
    unsigned rounds = 0;

    (void)state;
    use_pages(r, 1, BUDGET);
    assert_int_equal(registry_served(r, FAR, LARGE * PAGE), ONCE);
    for (; served == ONCE && rounds < BUDGET; rounds++) {
        served = registry_served(r, FARTHER, LARGE * PAGE);
    }
    assert_int_equal(served, MISS);
    assert_in_range(rounds, 1, LARGE / REGX_EVICTED_MAX + 10);
    registry_close(r);
}

/* Nor do those that are not worth keeping: however many come, what is set aside is not theirs. */
static void uses_of_buffers_once_do_not_take_the_room_of_a_large_region(void **state)
{
    enum { BUDGET = 5000, LARGE = 2000, ONCE_EACH = 1000, ROUNDS = 300 };
    registry_t *r = registry_open(BUDGET * PAGE, UNLIMITED, REGX_ADMIT_SECOND, false);
    served_t served = ONCE;
    unsigned rounds = 0;

    (void)state;
    use_pages(r, 1, BUDGET);
    for (; served == ONCE && rounds < ROUNDS; rounds++) {
        served = registry_served(r, FAR, LARGE * PAGE);
        for (uintptr_t i = 0; i < ONCE_EACH && served == ONCE; i++) {
            const uintptr_t number = rounds * ONCE_EACH + i;

            assert_int_equal(registry_served(r, FARTHER + number * PAGE, PAGE), ONCE);
        }
    }
    assert_int_equal(served, MISS);
    assert_in_range(rounds, LARGE / REGX_EVICTED_MAX, 2 * LARGE / REGX_EVICTED_MAX);
    registry_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_dead_counts_while_it_is_pinned),
        cmocka_unit_test(room_for_a_large_region_is_made_in_parts),
        cmocka_unit_test(small_uses_do_not_take_the_room_of_a_large_region),
        cmocka_unit_test(large_regions_are_made_room_for_one_after_the_other),
        cmocka_unit_test(room_that_is_not_fetched_is_given_back),
        cmocka_unit_test(a_large_region_that_finds_no_room_leaves_it_to_small_ones),
        cmocka_unit_test(what_was_made_stays_while_the_rest_is_in_use),
        cmocka_unit_test(room_that_is_not_fetched_goes_to_the_next_large_region),
        cmocka_unit_test(uses_of_buffers_once_do_not_take_the_room_of_a_large_region),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

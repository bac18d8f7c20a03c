/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is pinned and no longer needed stays near the budget together with what is kept, and room
 * for a large region is made of small ones in parts. No memory is touched.
 */
#include "registry.h"

/* Buffers that are not among the first pages. */
#define FAR ((uintptr_t)1 << 32)

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
    registry_t *r = registry_open(BUDGET * PAGE, UNLIMITED, true, false);

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
    registry_t *r = registry_open(BUDGET * PAGE, UNLIMITED, true, false);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_dead_counts_while_it_is_pinned),
        cmocka_unit_test(room_for_a_large_region_is_made_in_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

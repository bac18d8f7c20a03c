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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_of_the_proposal),
        cmocka_unit_test(unlimited_gives_nothing_up_before_a_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Registration with backend `none`: each use by itself, and no more pinned at a time than is
 * allowed.
 */
#include "registry.h"

enum { BOUND = 10000 };

static regx_status_t use(registry_t *r, size_t length, regx_region_t *region)
{
    return registry_try(r, 0x100005, length, REGX_ACCESS_LOCAL, region);
}

/* The same range every time, also while it is in use: nothing is kept, nothing shared. */
static void each_use_registers_exactly_what_is_asked(void **state)
{
    registry_t *r = registry_open_none(0);
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
    registry_close(r);
}

/* Once refused it is not tried again: the caller bounces instead. */
static void a_refusal_is_told_and_takes_no_room(void **state)
{
    registry_t *r = registry_open_none((uint64_t)2 * BOUND);
    regx_region_t region;

    r->refusals = 1;
    r->refusal = REGX_DENIED;
    assert_int_equal(use(r, BOUND, &region), REGX_DENIED);
    assert_int_equal(r->regs, 1);
    assert_int_equal(use(r, BOUND, &region), REGX_OK);
    regx_region_release(&r->registry, &region);
    registry_close(r);
}

static void what_would_pin_too_much_is_refused(void **state)
{
    registry_t *r = registry_open_none((uint64_t)2 * BOUND);
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
    registry_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_use_registers_exactly_what_is_asked),
        cmocka_unit_test(a_refusal_is_told_and_takes_no_room),
        cmocka_unit_test(what_would_pin_too_much_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

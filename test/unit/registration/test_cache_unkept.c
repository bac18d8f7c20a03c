/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is registered without being kept: how much of it there may be; and what the trace says of
 * what is not kept, or refused.
 */
#include "registry.h"

/* ---- tracing ---- */

static void traces(const char *said)
{
    if (strstr(registry_traced, said) == NULL) {
        fail_msg("traced: \"%s\", not \"%s\"", registry_traced, said);
    }
    registry_traced[0] = '\0';
}

static void every_fallback_is_traced_with_its_reason(void **state)
{
    registry_t *r = registry_open(8 * PAGE, UNLIMITED, false, true);
    regx_region_t region, held;

    (void)state;
    registry_get(r, 0x100000, 8 * PAGE, &held);
    r->trace.level = REGX_TRACE_PATH;
    assert_int_equal(registry_served(r, 0x200000, PAGE), ONCE);
    traces("4096 bytes at 0x200000: for this use alone, not worth keeping yet");
    assert_int_equal(registry_served(r, 0x200000, PAGE), ONCE);
    traces("for this use alone, no room");
    assert_int_equal(registry_served(r, 0x300000, 9 * PAGE), ONCE);
    traces("36864 bytes at 0x300000: for this use alone, larger than the cache");
    r->refuses_to_watch = true;
    assert_int_equal(registry_served(r, 0x200000, PAGE), ONCE);
    traces("for this use alone, changes of it would not be reported");
    r->changing = true;
    assert_int_equal(registry_served(r, 0x100000, PAGE), ONCE);
    traces("for this use alone, a change is under way");
    r->changing = false;
    r->refusal = REGX_DENIED;
    r->refusals = 1;
    assert_int_equal(registry_try(r, 0x200000, PAGE, REGX_ACCESS_LOCAL, &region), REGX_DENIED);
    traces("4096 bytes at 0x200000: refused, not to be used so");
    r->refusal = REGX_NO_MEMORY;
    r->refusals = 1; /* nothing can be given up */
    assert_int_equal(registry_try(r, 0x200000, PAGE, REGX_ACCESS_LOCAL, &region), REGX_NO_MEMORY);
    traces("refused, no room");
    r->trace.level = REGX_TRACE_CONNECTION;
    assert_int_equal(registry_served(r, 0x300000, PAGE), ONCE);
    assert_string_equal(registry_traced, "");
    regx_region_release(&r->registry, &held);
    registry_close(r);
}

/* ---- what is not kept ---- */

static void what_is_not_kept_is_bounded_and_what_is_kept_is_not(void **state)
{
    registry_t *r = registry_open(4 * PAGE, UNLIMITED, true, false);
    regx_region_t once, kept, more;

    (void)state;
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
    registry_close(r);
}

static void what_came_out_untrue_needs_room(void **state)
{
    registry_t *r = registry_open_large(true);
    regx_region_t untrue, more;

    (void)state;
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
    registry_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fallback_is_traced_with_its_reason),
        cmocka_unit_test(what_is_not_kept_is_bounded_and_what_is_kept_is_not),
        cmocka_unit_test(what_came_out_untrue_needs_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

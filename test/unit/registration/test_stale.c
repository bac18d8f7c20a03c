/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The cache and changes of the address space: what changed is not used again, and nothing else is
 * given up for it.
 */
#include "registry.h"

static void exactly_what_changed_misses(void **state)
{
    enum { COUNT = 300, ROUNDS = 200 };

    for (int asks = 0; asks <= 1; asks++) {
        registry_t *r = registry_open_large(asks);
        uint64_t random = 3, control_hits = 0;

        for (uintptr_t i = 1; i <= COUNT; i++) {
            registry_use(r, i * 4 * PAGE, 4 * PAGE); /* side by side */
        }
        for (unsigned round = 0; round < ROUNDS; round++) {
            const uintptr_t victim = 1 + chance_next(&random) % (COUNT - 1);
            const uintptr_t first = chance_next(&random) % 4;
            const size_t length = 1 + chance_next(&random) % ((4 - first) * PAGE);

            registry_log(r, victim * 4 * PAGE + first * PAGE, length);
            for (uintptr_t i = 1; i <= COUNT; i++) {
                assert_int_equal(registry_served(r, i * 4 * PAGE, 4 * PAGE),
                                 i == victim ? MISS : HIT);
            }
            control_hits += registry_served(r, COUNT * 4 * PAGE, 4 * PAGE) == HIT;
        }
        assert_int_equal(control_hits, ROUNDS);
        assert_int_equal(r->counters.invalidations, ROUNDS);
        assert_int_equal(r->counters.stale_prevented, ROUNDS);
        assert_int_equal(r->live, COUNT);
        registry_close(r);
    }
}

/* Acts on one region at a time, while all kinds of requests come. */
static void what_has_not_ended_yet_is_not_used(void **state)
{
    enum { COUNT = 64, FIRST = 16, LAST = 48 };

    for (int asks = 0; asks <= 1; asks++) {
        for (unsigned lapped = 0; lapped <= 1; lapped++) {
            registry_t *r = registry_open_large(asks);

            r->cache->applied_max = 1;
            for (uintptr_t i = 1; i <= COUNT; i++) {
                registry_use(r, i * 2 * PAGE, 2 * PAGE);
            }
            registry_log(r, FIRST * 2 * PAGE + PAGE, (LAST - FIRST) * 2 * PAGE);
            for (uint64_t i = 0; i < lapped * RING; i++) {
                registry_log(r, 0, PAGE); /* of no region */
            }
            /* Backwards, since the first end first. */
            for (uintptr_t i = COUNT; i >= 1; i--) {
                const bool touched = lapped == 1 || (i >= FIRST && i <= LAST);
                const served_t served = registry_served(r, i * 2 * PAGE, 2 * PAGE);

                assert_true((served == HIT) == !touched);
                assert_in_range(r->counters.invalidations, 1, 2 * COUNT);
            }
            while (r->monitor.log->head != r->cache->applied) {
                const uint64_t applied = r->cache->applied, ended = r->counters.invalidations;

                regx_registry_progress(&r->registry);
                assert_true(r->cache->applied > applied || r->counters.invalidations == ended + 1);
            }
            for (uintptr_t i = 1; i <= COUNT; i++) {
                registry_use(r, i * 2 * PAGE, 2 * PAGE);
                assert_int_equal(registry_served(r, i * 2 * PAGE, 2 * PAGE), HIT);
            }
            registry_close(r);
        }
    }
}

/* Made of what is there after a change that has not been acted on: it serves at once, and either
 * stays or ends along, for nothing. */
static void what_is_made_before_all_has_ended_is_used(void **state)
{
    registry_t *r = registry_open_large(true);
    regx_region_t region;

    for (uintptr_t i = 1; i <= 8; i++) {
        registry_use(r, i * 2 * PAGE, PAGE);
    }
    registry_log(r, 2 * PAGE, 7 * 2 * PAGE); /* not the last */
    r->cache->applied_max = 1;
    assert_int_equal(registry_served(r, 3 * PAGE, PAGE), MISS); /* ends two */
    assert_int_equal(r->counters.invalidations, 2);
    assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
    assert_int_equal(registry_served(r, 0x100000, PAGE), HIT); /* that did not change */
    registry_get(r, 2 * PAGE, PAGE, &region);
    regx_registry_progress(&r->registry);
    assert_int_equal(r->counters.invalidations, 8);
    regx_region_release(&r->registry, &region);
    regx_registry_progress(&r->registry);
    assert_int_equal(r->counters.inuse_changes, 0); /* though it ended in use */
    assert_int_equal(registry_served(r, 8 * 2 * PAGE, PAGE), HIT);
    assert_int_equal(registry_served(r, 0x100000, PAGE), HIT);
    registry_close(r);
}

/* A writer in the middle of logging: what, is not known yet. */
static void a_change_being_written_is_a_miss_and_no_wait(void **state)
{
    registry_t *r = registry_open_large(false);

    registry_use(r, 0x100000, PAGE);
    atomic_fetch_add(&r->monitor.log->head, 1); /* as that writer does first */
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(registry_served(r, 0x100000, PAGE), ONCE);
        /* Made after that was begun: kept, and used again once it is known what it was. */
        assert_int_equal(registry_served(r, 0x110000, PAGE), i == 0 ? MISS : ONCE);
        regx_registry_progress(&r->registry);
    }
    assert_int_equal(r->counters.stale_prevented, 5);
    while (r->monitor.log->head < RING + 1) { /* it never comes back */
        registry_log(r, 0x101000, PAGE);
    }
    assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
    assert_int_equal(registry_served(r, 0x100000, PAGE), HIT);
    registry_close(r);
}

static void while_a_change_is_under_way_nothing_hits(void **state)
{
    registry_t *r = registry_open_large(true);

    registry_use(r, 0x100000, PAGE);
    for (unsigned i = 0; i < 3; i++) {
        r->changing = true;
        assert_int_equal(registry_served(r, 0x100000, PAGE), ONCE);
        assert_int_equal(registry_served(r, 0x200000 + i * PAGE, PAGE), ONCE); /* nor is kept */
        r->changing = false;
        assert_int_equal(registry_served(r, 0x100000, PAGE), HIT); /* it was of something else */
    }
    assert_int_equal(r->counters.stale_prevented, 3);
    assert_int_equal(r->counters.invalidations, 0);
    /* It was of this: logged when it is over. */
    r->changing = true;
    const unsigned asked = r->asks;
    assert_int_equal(registry_served(r, 0x100000, PAGE), ONCE);
    assert_in_range(r->asks - asked, 2, 100); /* not for ever */
    registry_log(r, 0x100000, PAGE);
    r->changing = false;
    assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
    registry_close(r);
}

/* ---- changes that end soon ---- */

static bool time_stands_still;

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    if (!time_stands_still) {
        return __real_clock_gettime(clock, time);
    }
    *time = (struct timespec){0};
    return 0;
}

/* It is over when it has been asked about a few times. */
static void end_soon(registry_t *r)
{
    r->changing = r->asks % 4 != 0;
}

static void a_change_that_ends_soon_costs_no_registration(void **state)
{
    registry_t *r = registry_open_large(true);

    r->asking = end_soon;
    time_stands_still = true;
    assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(registry_served(r, 0x100000, PAGE), HIT);
    }
    assert_in_range(r->asks, 12, 60);
    time_stands_still = false;
    registry_close(r);
}

static void while_news_is_not_logged_nothing_hits(void **state)
{
    registry_t *r = registry_open_large(true);

    registry_use(r, 0x100000, PAGE);
    r->monitor.log->sequence++;
    assert_int_equal(registry_served(r, 0x100000, PAGE), ONCE);
    assert_int_equal(registry_served(r, 0x200000, PAGE), ONCE);
    r->monitor.log->sequence++;
    assert_int_equal(registry_served(r, 0x100000, PAGE), HIT);
    r->monitor.log->sequence++;
    registry_log(r, 0x100000, PAGE);
    assert_int_equal(registry_served(r, 0x100000, PAGE), ONCE);
    r->monitor.log->sequence++;
    assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
    registry_close(r);
}

static void log_while_asking(registry_t *r)
{
    registry_log(r, 0x100000, PAGE);
}

static void take_news_while_asking(registry_t *r)
{
    r->monitor.log->sequence += 1 - r->monitor.log->sequence % 2;
}

/* The query comes first: what it does not see any more is in the log or on its way there. */
static void what_ends_within_the_query_is_seen(void **state)
{
    static void (*const asking[])(registry_t *) = {log_while_asking, take_news_while_asking};

    for (unsigned i = 0; i < sizeof(asking) / sizeof(asking[0]); i++) {
        registry_t *r = registry_open_large(true);

        registry_use(r, 0x100000, PAGE);
        assert_int_equal(registry_served(r, 0x100000, PAGE), HIT);
        r->asking = asking[i];
        assert_int_equal(registry_served(r, 0x100000, PAGE), ONCE);
        assert_int_equal(registry_served(r, 0x100000, PAGE), ONCE);
        assert_int_equal(registry_served(r, 0x100800, 1), ONCE);
        assert_true(r->asks > 3);
        r->asking = NULL;
        registry_close(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exactly_what_changed_misses),
        cmocka_unit_test(what_has_not_ended_yet_is_not_used),
        cmocka_unit_test(what_is_made_before_all_has_ended_is_used),
        cmocka_unit_test(a_change_being_written_is_a_miss_and_no_wait),
        cmocka_unit_test(while_a_change_is_under_way_nothing_hits),
        cmocka_unit_test(a_change_that_ends_soon_costs_no_registration),
        cmocka_unit_test(while_news_is_not_logged_nothing_hits),
        cmocka_unit_test(what_ends_within_the_query_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The cache and changes of the address space: what changed is not used again, and nothing else is
 * given up for it; also while it is being registered or is in use. And a child of fork, in which
 * nothing is done.
 */
#include "../process.h"
#include "registry.h"

UNIT_TEST(exactly_what_changed_misses)
{
    enum { COUNT = 300, ROUNDS = 200 };

    for (int asks = 0; asks <= 1; asks++) {
        registry_t *r = registry_open_large(asks);
        uint64_t random = 3;

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
        }
        assert_int_equal(r->counters.invalidations, ROUNDS);
        assert_int_equal(r->counters.stale_prevented, ROUNDS);
        assert_int_equal(r->live, COUNT);
        registry_close(r);
    }
}

/* Acts on one region at a time, while all kinds of requests come; also where more has changed than the
 * log holds (hazard 6). */
UNIT_TEST(what_has_not_ended_yet_is_not_used)
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
REGISTRY_TEST(what_is_made_before_all_has_ended_is_used, registry_open_large(true))
{
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
}

/* A writer in the middle of logging: what, is not known yet. */
REGISTRY_TEST(a_change_being_written_is_a_miss_and_no_wait, registry_open_large(false))
{
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
}

REGISTRY_TEST(while_a_change_is_under_way_nothing_hits, registry_open_large(true))
{
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
    assert_in_range(r->asks - asked, 2, 1000); /* not for ever */
    registry_log(r, 0x100000, PAGE);
    r->changing = false;
    assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
}

/* ---- changes that end soon ---- */

static bool time_stands_still;

UNIT_WRAP(int, clock_gettime, clockid_t clock, struct timespec *time)
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

REGISTRY_TEST(a_change_that_ends_soon_costs_no_registration, registry_open_large(true))
{
    r->asking = end_soon;
    time_stands_still = true;
    assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(registry_served(r, 0x100000, PAGE), HIT);
    }
    assert_in_range(r->asks, 12, 60);
    time_stands_still = false;
}

REGISTRY_TEST(while_news_is_not_logged_nothing_hits, registry_open_large(true))
{
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
UNIT_TEST(what_ends_within_the_query_is_seen)
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

/* ---- between pinning and keeping ---- */

static void log_it(registry_t *r, uintptr_t start, uintptr_t end)
{
    regx_inval_log_write(r->monitor.log, end - PAGE, end);
}

static void begin_change(registry_t *r, uintptr_t start, uintptr_t end)
{
    r->changing = true;
}

static void take_news(registry_t *r, uintptr_t start, uintptr_t end)
{
    r->monitor.log->sequence++;
}

static void draw_number(registry_t *r, uintptr_t start, uintptr_t end)
{
    atomic_fetch_add(&r->monitor.log->head, 1);
}

/* The progress of another thread: acts on the change before the region is there. */
static void log_and_catch_up(registry_t *r, uintptr_t start, uintptr_t end)
{
    log_it(r, start, end);
    regx_registry_progress(&r->registry);
}

static void lap(registry_t *r, uintptr_t start, uintptr_t end)
{
    log_it(r, start, end);
    for (uint64_t i = 0; i < RING; i++) {
        regx_inval_log_write(r->monitor.log, start - 2 * PAGE, start - PAGE);
    }
    regx_registry_progress(&r->registry);
}

UNIT_TEST(a_change_while_pinning_makes_it_one_use)
{
    static void (*const during[])(registry_t *, uintptr_t, uintptr_t) = {
        log_it, begin_change, take_news, draw_number, log_and_catch_up, lap};

    for (unsigned i = 0; i < sizeof(during) / sizeof(during[0]); i++) {
        for (int asks = 0; asks <= 1; asks++) {
            registry_t *r = registry_open_large(asks);

            if (during[i] == begin_change && asks == 0) {
                registry_close(r);
                continue;
            }
            r->during = during[i];
            assert_int_equal(registry_served(r, 0x100000, 4 * PAGE), ONCE);
            assert_int_equal(r->live, 0);
            assert_int_equal(r->cache->room.count, 0);
            assert_int_equal(r->cache->room.bytes, 0);
            r->during = NULL;
            r->changing = false;
            r->monitor.log->sequence += r->monitor.log->sequence % 2;
            if (during[i] != draw_number) {
                assert_int_equal(registry_served(r, 0x100000, 4 * PAGE), MISS);
                assert_int_equal(registry_served(r, 0x100000, 4 * PAGE), HIT);
            }
            registry_close(r);
        }
    }
}

/* Another thread's, in the midst of ours. */
static void acquire_the_same(registry_t *r, uintptr_t start, uintptr_t end)
{
    r->during = NULL;
    assert_int_equal(registry_served(r, start, end - start), MISS);
}

REGISTRY_TEST(of_two_that_register_at_once_one_is_kept, registry_open_large(true))
{
    regx_region_t region;

    r->during = acquire_the_same;
    registry_get(r, 0x100000, 4 * PAGE, &region);
    assert_int_equal(r->live, 2);
    assert_int_equal(r->counters.uncached, 1);
    regx_region_release(&r->registry, &region);
    assert_int_equal(r->live, 1);
    assert_int_equal(r->cache->room.count, 1);
    assert_int_equal(registry_served(r, 0x100000, 4 * PAGE), HIT);
}

/* ---- in use ---- */

REGISTRY_TEST(a_change_while_in_use_is_counted_and_told, registry_open_large(true))
{
    regx_region_t first, second;

    for (unsigned round = 1; round <= 3; round++) {
        const uintptr_t at = round << 20;
        const unsigned live = r->live;

        registry_get(r, at, 4 * PAGE, &first);
        registry_get(r, at + PAGE, PAGE, &second);
        registry_use(r, 0x10000000, PAGE);
        registry_log(r, at + 3 * PAGE, PAGE);
        registry_log(r, 0x10000000, PAGE); /* not in use: nothing to tell */
        regx_registry_progress(&r->registry);
        assert_int_equal(r->live, live + 1);
        assert_int_equal(registry_served(r, at, 4 * PAGE), MISS); /* no new use */
        regx_region_release(&r->registry, &second);
        regx_registry_progress(&r->registry);
        assert_int_equal(r->live, live + 2); /* the first still uses it */
        assert_int_equal(first.mr->handle, r);
        regx_region_release(&r->registry, &first);
        assert_int_equal(r->counters.inuse_changes, round);
        regx_registry_progress(&r->registry);
        assert_int_equal(r->live, live + 1);
        assert_int_equal(r->told, 1); /* once */
        assert_ptr_equal(r->told_base, 1 << 20);
        assert_int_equal(r->told_length, 4 * PAGE);
    }
}

/* A part of a region is used, and another part is given back: no error. */
REGISTRY_TEST(a_change_beside_what_is_used_is_not_told, registry_open_large(true))
{
    regx_region_t inner;

    for (unsigned hit = 0; hit <= 1; hit++) { /* served by the slow path, and by the fast one */
        registry_use(r, 0x100000, 8 * PAGE);
        if (hit == 1) {
            registry_use(r, 0x100000 + PAGE, PAGE + 1);
        }
        registry_get(r, 0x100000 + PAGE, PAGE + 1, &inner); /* pages 1 and 2 */
        assert_ptr_equal(inner.mr->base, 0x100000);
        registry_log(r, 0x100000, PAGE);
        registry_log(r, 0x100000 + 3 * PAGE, 5 * PAGE);
        regx_registry_progress(&r->registry);
        regx_region_release(&r->registry, &inner);
        regx_registry_progress(&r->registry);
        assert_int_equal(r->counters.inuse_changes, 0);
        assert_int_equal(r->told, 0);
    }
    registry_use(r, 0x100000, 8 * PAGE);
    registry_get(r, 0x100000 + PAGE, PAGE + 1, &inner);
    registry_log(r, 0x100000 + 2 * PAGE, PAGE); /* one byte of it */
    regx_registry_progress(&r->registry);
    regx_region_release(&r->registry, &inner);
    regx_registry_progress(&r->registry);
    assert_int_equal(r->counters.inuse_changes, 1);
    assert_int_equal(r->told, 1);
}

/* ---- news that is logged when it is asked for ---- */

static uint64_t news;

static bool log_news(regx_monitor_t *monitor)
{
    for (; news > 0; news--) {
        regx_inval_log_write(monitor->log, 0x100000, 0x100000 + PAGE);
    }
    return true;
}

UNIT_TEST(news_that_is_logged_when_asked_for_is_acted_on)
{
    regx_monitor_t monitor = {
        .log = regx_inval_log_open(), .valid = log_news, .logs_when_asked = true};
    const regx_cache_config_t config = {.bytes = UNLIMITED, .count = UNLIMITED};
    registry_t *r = registry_open_over(&monitor, &config);

    for (unsigned progresses = 0; progresses <= 1; progresses++) {
        assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
        assert_int_equal(registry_served(r, 0x100000, PAGE), HIT);
        news = 1;
        if (progresses == 1) {
            regx_registry_progress(&r->registry);
            assert_int_equal(news, 0);
            assert_int_equal(r->live, 0);
        }
    }
    assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
    registry_close(r);
    regx_inval_log_close(monitor.log);
}

/* ---- fork ---- */

static void in_the_child(registry_t *r, regx_region_t *kept, regx_region_t *once)
{
    const unsigned regs = r->regs, deregs = r->deregs;
    regx_region_t region;
    bool good = true;

    for (int i = 0; i < 3; i++) {
        good = good && registry_try(r, 0x100000, PAGE, REGX_ACCESS_LOCAL, &region) == REGX_DENIED;
        good = good && registry_try(r, 0x900000, PAGE, REGX_ACCESS_LOCAL, &region) == REGX_DENIED;
    }
    registry_log(r, 0x100000, PAGE);
    regx_region_release(&r->registry, kept);
    regx_region_release(&r->registry, once);
    regx_registry_progress(&r->registry);
    regx_registry_count(&r->registry);
    regx_registry_close(&r->registry);
    _exit(good && r->regs == regs && r->deregs == deregs ? 0 : 1);
}

UNIT_TEST(a_child_is_inert)
{
    for (int raw = 0; raw <= 1; raw++) {
        registry_t *r = registry_open_large(true);
        regx_region_t kept, once;

        registry_get(r, 0x100000, PAGE, &kept);
        r->refuses_to_watch = true;
        registry_get(r, 0x200000, PAGE, &once);
        assert_int_equal(once.kept, 0);
        regx_spin_lock(&r->cache->lock); /* as another thread may at that moment */
        const pid_t child =
            raw ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();

        if (child == 0) {
            alarm(UNIT_PATIENCE); /* rather than for ever */
            in_the_child(r, &kept, &once);
        }
        regx_spin_unlock(&r->cache->lock);
        process_must_end_well(child);
        regx_region_release(&r->registry, &kept);
        regx_region_release(&r->registry, &once);
        assert_int_equal(registry_served(r, 0x100000, PAGE), HIT);
        registry_close(r);
    }
}

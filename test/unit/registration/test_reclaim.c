/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is pinned and no longer needed: it is given back though the application calls nothing, and
 * together with what is kept it stays near the budget. Over the notifier, with real memory, and
 * over a monitor of the test's own.
 */
#include "../../registration/hold.h"
#include "registry.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LENGTH = 16 * 4096 };

static regx_counters_t counters;

static regx_monitor_t *start(regx_check_t check)
{
    const regx_monitor_config_t config = {.check = check, .threads = true, .counters = &counters};
    regx_monitor_t *monitor = NULL;
    char error[256] = "";

    if (regx_backend_notifier.start(&config, &monitor, error, sizeof(error)) != REGX_OK) {
        print_message("not tried: %s\n", error);
        skip();
    }
    return monitor;
}

static registry_t *open_over(regx_monitor_t *monitor)
{
    const regx_cache_config_t config = {.bytes = UNLIMITED,
                                        .count = UNLIMITED,
                                        .admit = REGX_ADMIT_FIRST,
                                        .inuse = REGX_INUSE_ABORT};

    alarm(60); /* a hang is a failure, not the end of all tests */
    return registry_open_over(monitor, &config);
}

static void settle(const regx_monitor_t *monitor)
{
    while (atomic_load(&monitor->log->sequence) % 2 == 1) {
        sched_yield();
    }
}

static uintptr_t map(size_t length)
{
    void *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(base, MAP_FAILED);
    return (uintptr_t)base;
}

/* ---- a cache's thread that is about to sleep ---- */

enum { GO_ON, HOLD_NEXT, HELD };
static _Atomic int before_sleep;
static _Atomic unsigned sleeps; /* of those that were not held */

void __real_regx_thread_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds);
void __wrap_regx_thread_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds);
void __wrap_regx_thread_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds)
{
    int next = HOLD_NEXT;

    if (milliseconds == 0 && atomic_compare_exchange_strong(&before_sleep, &next, HELD)) {
        while (atomic_load(&before_sleep) == HELD) {
            sched_yield();
        }
    } else if (milliseconds == 0) {
        sleeps++;
    }
    __real_regx_thread_wait(word, value, milliseconds);
}

static void *close_it(void *r)
{
    registry_close(r);
    return NULL;
}

/* The wake that ends one cache's thread also wakes the other's, which goes to sleep again before
 * the first has come to sleep at all. */
static void a_cache_closes_though_another_on_the_same_monitor_goes_on_sleeping(void **state)
{
    regx_monitor_t monitor = {
        .name = "test", .flags = REGX_MONITOR_THREAD, .log = regx_inval_log_open()};
    pthread_t thread;

    (void)state;
    assert_non_null(monitor.log);
    atomic_store(&before_sleep, HOLD_NEXT);
    registry_t *first = open_over(&monitor);
    while (atomic_load(&before_sleep) != HELD) {
        sched_yield();
    }
    atomic_store(&sleeps, 0);
    registry_t *second = open_over(&monitor);
    while (atomic_load(&sleeps) < 1) {
        sched_yield();
    }
    assert_int_equal(pthread_create(&thread, NULL, close_it, first), 0);
    while (atomic_load(&sleeps) < 2) {
        sched_yield();
    }
    atomic_store(&before_sleep, GO_ON);
    pthread_join(thread, NULL);
    registry_close(second);
    regx_inval_log_close(monitor.log);
}

/* ---- in the background ---- */

static void freed_memory_is_deregistered_while_nobody_calls(void **state)
{
    enum { BUFFERS = 300 };
    regx_monitor_t *monitor = start(REGX_CHECK_ALWAYS);
    registry_t *r = open_over(monitor);
    uintptr_t buffers[BUFFERS];

    (void)state;
    for (unsigned i = 0; i < BUFFERS; i++) {
        buffers[i] = map(LENGTH);
        settle(monitor);
        assert_int_equal(registry_served(r, buffers[i], LENGTH), MISS);
    }
    const uintptr_t kept = map(LENGTH);
    assert_int_equal(registry_served(r, kept, LENGTH), MISS);
    for (unsigned i = 0; i < BUFFERS; i++) {
        assert_int_equal(munmap((void *)buffers[i], LENGTH), 0);
    }
    while (r->live > 1) {
        sched_yield(); /* and nothing else */
    }
    assert_int_equal(registry_served(r, kept, LENGTH), HIT);
    registry_close(r);
    monitor->stop(monitor);
    munmap((void *)kept, LENGTH);
}

static void what_was_in_use_is_deregistered_after_its_last_use(void **state)
{
    regx_monitor_t *monitor = start(REGX_CHECK_ALWAYS);
    registry_t *r = open_over(monitor);
    regx_region_t region, other;

    (void)state;
    const uintptr_t buffer = map(LENGTH), before = map(LENGTH);
    registry_get(r, before, LENGTH, &other);
    registry_get(r, buffer, LENGTH, &region);
    assert_int_equal(munmap((void *)buffer, LENGTH), 0);
    assert_int_equal(munmap((void *)before, LENGTH), 0);
    regx_region_release(&r->registry, &other);
    while (r->live > 1) {
        sched_yield();
    }
    assert_true(region.kept != 0);
    regx_region_release(&r->registry, &region);
    while (r->live > 0) {
        sched_yield();
    }
    registry_close(r);
    monitor->stop(monitor);
}

/* Buffers that changed while in use are told to the user by the application's own threads. */
static void the_background_calls_nobody_back(void **state)
{
    regx_monitor_t *monitor = start(REGX_CHECK_ALWAYS);
    registry_t *r = open_over(monitor);
    regx_region_t region;

    (void)state;
    const uintptr_t buffer = map(LENGTH);
    registry_get(r, buffer, LENGTH, &region);
    assert_int_equal(munmap((void *)buffer, LENGTH), 0);
    settle(monitor);
    regx_registry_progress(&r->registry); /* the region is dead, and in use */
    regx_region_release(&r->registry, &region);
    while (r->live > 0) {
        sched_yield();
    }
    assert_int_equal(r->told, 0);
    while (r->told == 0) {
        regx_registry_progress(&r->registry);
    }
    assert_int_equal(r->told_base, buffer);
    registry_close(r);
    monitor->stop(monitor);
}

static void what_is_left_to_be_told_is_told_at_close(void **state)
{
    regx_monitor_t *monitor = start(REGX_CHECK_ALWAYS);
    registry_t *r = open_over(monitor);
    regx_region_t region;

    (void)state;
    const uintptr_t buffer = map(LENGTH);
    registry_get(r, buffer, LENGTH, &region);
    assert_int_equal(munmap((void *)buffer, LENGTH), 0);
    settle(monitor);
    regx_registry_progress(&r->registry); /* the region is dead, and in use */
    regx_region_release(&r->registry, &region);
    while (r->live > 0) {
        sched_yield();
    }
    while (!atomic_load(&r->cache->to_warn)) {
        sched_yield(); /* deregistered first, then noted */
    }
    assert_int_equal(r->told, 0);
    regx_registry_close(&r->registry);
    assert_int_equal(r->told, 1);
    assert_int_equal(r->told_base, buffer);
    free(r);
    monitor->stop(monitor);
}

/* ---- the budget ---- */

static void what_is_dead_counts_while_it_is_pinned(void **state)
{
    enum { BUDGET = 4096, LARGE = 64 };
    registry_t *r = registry_open(BUDGET * PAGE, UNLIMITED, REGX_ADMIT_FIRST, false);

    (void)state;
    for (uintptr_t i = 1; i <= BUDGET; i++) {
        registry_use(r, i * PAGE, PAGE);
    }
    registry_log(r, PAGE, BUDGET * PAGE);
    for (uintptr_t i = 0; i < 4 * BUDGET / LARGE; i++) {
        registry_use(r, ((uintptr_t)1 << 32) + i * LARGE * PAGE, LARGE * PAGE);
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
    for (uintptr_t i = 1; i <= BUDGET; i++) {
        registry_use(r, i * PAGE, PAGE);
    }
    for (; served == ONCE && rounds < 1000; rounds++) {
        const unsigned before = r->deregs;

        served = registry_served(r, (uintptr_t)1 << 32, LARGE * PAGE);
        assert_in_range(r->deregs - before, 1, 200);
    }
    assert_int_equal(served, MISS);
    assert_in_range(r->counters.evictions, LARGE, LARGE + 200);
    assert_int_equal(registry_served(r, (uintptr_t)1 << 32, LARGE * PAGE), HIT);
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
    for (uintptr_t i = 1; i <= BUDGET; i++) {
        registry_use(r, i * PAGE, PAGE);
    }
    for (; served == ONCE && rounds < ROUNDS; rounds++) {
        const unsigned before = r->deregs;

        served = registry_served(r, (uintptr_t)1 << 32, LARGE * PAGE);
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
    const uintptr_t large[] = {(uintptr_t)1 << 32, (uintptr_t)1 << 33};
    bool kept[] = {false, false};

    (void)state;
    for (uintptr_t i = 1; i <= BUDGET; i++) {
        registry_use(r, i * PAGE, PAGE);
    }
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
    for (uintptr_t i = 1; i <= BUDGET; i++) {
        registry_use(r, i * PAGE, PAGE);
    }
    assert_int_equal(registry_served(r, (uintptr_t)1 << 32, LARGE * PAGE), ONCE);
    assert_true(r->counters.evictions > 0);
    for (unsigned round = 0; round < 20; round++) {
        for (uintptr_t i = 1; i <= BUDGET; i++) {
            registry_use(r, i * PAGE, PAGE);
        }
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
    registry_get(r, (uintptr_t)1 << 33, IN_USE * PAGE, &held);
    for (uintptr_t i = 1; i <= BUDGET - IN_USE; i++) {
        registry_use(r, i * PAGE, PAGE);
    }
    for (unsigned round = 0; round < 2 * ROUNDS; round++) {
        assert_int_equal(registry_served(r, (uintptr_t)1 << 32, LARGE * PAGE), ONCE);
        for (uintptr_t i = 1; i <= SMALL; i++) {
            registry_use(r, i * PAGE, PAGE);
            hits += registry_served(r, i * PAGE, PAGE) == HIT && round >= ROUNDS;
        }
    }
    assert_int_equal(hits, ROUNDS * SMALL);
    regx_region_release(&r->registry, &held);
    assert_int_equal(registry_served(r, (uintptr_t)1 << 32, LARGE * PAGE), MISS);
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
    for (uintptr_t i = IN_USE; i < BUDGET; i++) {
        registry_use(r, (1 + i) * PAGE, PAGE);
    }
    for (unsigned i = 0; i < 2 * BUDGET / REGX_EVICTED_MAX; i++) {
        assert_int_equal(registry_served(r, (uintptr_t)1 << 32, LARGE * PAGE), ONCE);
    }
    for (uintptr_t i = 0; i < OTHERS; i++) {
        assert_int_equal(registry_served(r, ((uintptr_t)1 << 33) + i * PAGE, PAGE), ONCE);
    }
    for (unsigned i = 0; i < IN_USE; i++) {
        regx_region_release(&r->registry, &held[i]);
    }
    assert_int_equal(registry_served(r, (uintptr_t)1 << 32, LARGE * PAGE), MISS);
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
    for (uintptr_t i = 1; i <= BUDGET; i++) {
        registry_use(r, i * PAGE, PAGE);
    }
    assert_int_equal(registry_served(r, (uintptr_t)1 << 32, LARGE * PAGE), ONCE);
    for (; served == ONCE && rounds < BUDGET; rounds++) {
        served = registry_served(r, (uintptr_t)1 << 33, LARGE * PAGE);
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
    for (uintptr_t i = 1; i <= BUDGET; i++) {
        registry_use(r, i * PAGE, PAGE);
    }
    for (; served == ONCE && rounds < ROUNDS; rounds++) {
        served = registry_served(r, (uintptr_t)1 << 32, LARGE * PAGE);
        for (uintptr_t i = 0; i < ONCE_EACH && served == ONCE; i++) {
            const uintptr_t number = rounds * ONCE_EACH + i;

            assert_int_equal(registry_served(r, ((uintptr_t)1 << 33) + number * PAGE, PAGE), ONCE);
        }
    }
    assert_int_equal(served, MISS);
    assert_in_range(rounds, LARGE / REGX_EVICTED_MAX, 2 * LARGE / REGX_EVICTED_MAX);
    registry_close(r);
}

/* ---- changed in use ---- */

static void *unmap_it(void *base)
{
    munmap(base, LENGTH);
    return NULL;
}

/* Without the query an event may come long after the change, when the address is another buffer's:
 * who used what when cannot be told, and a correct program must not be ended for it. */
static void an_event_that_comes_late_accuses_nobody(void **state)
{
    regx_monitor_t *monitor = start(REGX_CHECK_NEVER);
    registry_t *r = open_over(monitor);
    regx_region_t region;
    pthread_t thread;

    (void)state;
    const uintptr_t buffer = map(LENGTH);
    registry_use(r, buffer, LENGTH);
    hold_reader(HOLD_BEFORE_READ);
    assert_int_equal(pthread_create(&thread, NULL, unmap_it, (void *)buffer), 0);
    while (!hold_is_held()) {
        sched_yield();
    }
    assert_ptr_equal(mmap((void *)buffer, LENGTH, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                     (void *)buffer);
    registry_get(r, buffer, LENGTH, &region); /* the new owner's */
    hold_reader(HOLD_NOWHERE);
    pthread_join(thread, NULL);
    settle(monitor);
    regx_registry_progress(&r->registry);
    regx_region_release(&r->registry, &region);
    regx_registry_progress(&r->registry);
    assert_int_equal(r->counters.inuse_changes, 0);
    assert_int_equal(r->told, 0);
    registry_close(r);
    monitor->stop(monitor);
    munmap((void *)buffer, LENGTH);
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
        cmocka_unit_test(an_event_that_comes_late_accuses_nobody),
        cmocka_unit_test(a_cache_closes_though_another_on_the_same_monitor_goes_on_sleeping),
        cmocka_unit_test(freed_memory_is_deregistered_while_nobody_calls),
        cmocka_unit_test(what_was_in_use_is_deregistered_after_its_last_use),
        cmocka_unit_test(the_background_calls_nobody_back),
        cmocka_unit_test(what_is_left_to_be_told_is_told_at_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is pinned and no longer needed is given back though the application calls nothing. Over the
 * notifier, with real memory, and over a monitor of the test's own.
 */
#include "../../below_room.h"
#include "registry.h"

enum { LENGTH = 16 * 4096 };

static regx_counters_t counters;

static regx_monitor_t *start(void)
{
    const regx_monitor_config_t config = {.counters = &counters};
    regx_monitor_t *monitor = NULL;
    regx_error_t error = "";

    unit_need(regx_backend_notifier.start(&config, &monitor, error) == REGX_OK, "%s", error);
    return monitor;
}

static registry_t *open_over(regx_monitor_t *monitor)
{
    const regx_cache_config_t config = {.bytes = UNLIMITED, .count = UNLIMITED};

    return registry_open_over(monitor, &config);
}

static void settle(const regx_monitor_t *monitor)
{
    await(atomic_load(&monitor->log->sequence) % 2 == 0);
}

static uintptr_t map(size_t length)
{
    void *base = map_below_room(length);

    assert_ptr_not_equal(base, MAP_FAILED);
    return (uintptr_t)base;
}

/* ---- a cache's thread that is about to sleep ---- */

enum { GO_ON, HOLD_NEXT, HELD };
static _Atomic int before_sleep;
static _Atomic unsigned sleeps; /* of those that were not held */

UNIT_WRAP(void, regx_thread_wait, _Atomic uint32_t *word, uint32_t value, unsigned milliseconds)
{
    int next = HOLD_NEXT;

    if (milliseconds == 0 && atomic_compare_exchange_strong(&before_sleep, &next, HELD)) {
        await(atomic_load(&before_sleep) != HELD);
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
UNIT_TEST(a_cache_closes_though_another_on_the_same_monitor_goes_on_sleeping)
{
    regx_monitor_t monitor = {.has_thread = true, .log = regx_inval_log_open()};

    assert_non_null(monitor.log);
    atomic_store(&before_sleep, HOLD_NEXT);
    registry_t *first = open_over(&monitor);
    await(atomic_load(&before_sleep) == HELD);
    atomic_store(&sleeps, 0);
    registry_t *second = open_over(&monitor);
    await(atomic_load(&sleeps) >= 1);
    const pthread_t thread = unit_thread(close_it, first);
    await(atomic_load(&sleeps) >= 2);
    atomic_store(&before_sleep, GO_ON);
    pthread_join(thread, NULL);
    registry_close(second);
    regx_inval_log_close(monitor.log);
}

/* ---- in the background ---- */

UNIT_TEST(what_was_in_use_is_deregistered_after_its_last_use)
{
    regx_monitor_t *monitor = start();
    registry_t *r = open_over(monitor);
    regx_region_t region, other;

    const uintptr_t buffer = map(LENGTH), before = map(LENGTH);
    registry_get(r, before, LENGTH, &other);
    registry_get(r, buffer, LENGTH, &region);
    assert_int_equal(munmap((void *)buffer, LENGTH), 0);
    assert_int_equal(munmap((void *)before, LENGTH), 0);
    regx_region_release(&r->registry, &other);
    await(r->live <= 1);
    assert_true(region.kept != 0);
    regx_region_release(&r->registry, &region);
    await(r->live == 0);
    registry_close(r);
    monitor->stop(monitor);
}

/* Unmaps a buffer in use, ends the use, and waits until it is deregistered. Returns its address. */
static uintptr_t change_in_use(registry_t *r, const regx_monitor_t *monitor)
{
    const uintptr_t buffer = map(LENGTH);
    regx_region_t region;

    registry_get(r, buffer, LENGTH, &region);
    assert_int_equal(munmap((void *)buffer, LENGTH), 0);
    settle(monitor);
    regx_registry_progress(&r->registry); /* the region is dead, and in use */
    regx_region_release(&r->registry, &region);
    await(r->live == 0);
    return buffer;
}

/* Buffers that changed while in use are told to the user by the application's own threads. */
UNIT_TEST(the_background_calls_nobody_back)
{
    regx_monitor_t *monitor = start();
    registry_t *r = open_over(monitor);

    const uintptr_t buffer = change_in_use(r, monitor);
    assert_int_equal(r->told, 0);
    until(r->told != 0, regx_registry_progress(&r->registry));
    assert_int_equal(r->told_base, buffer);
    registry_close(r);
    monitor->stop(monitor);
}

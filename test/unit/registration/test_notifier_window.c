/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The notifier, in the middle of a change by another thread: the window between a change and its
 * entry, held open. And when it is asked at all.
 */
#include "../../registration/hold.h"
#include "monitored.h"

#include <pthread.h>

static _Atomic bool returned;

static void *unmap_it(void *base)
{
    munmap(base, LENGTH);
    atomic_store(&returned, true);
    return NULL;
}

/* Another thread changes `region`; the reader has been stopped at `where`. */
static pthread_t change_and_hold(region_t *region, void *(*change)(void *), hold_t where)
{
    pthread_t thread;

    atomic_store(&returned, false);
    hold_reader(where);
    assert_int_equal(pthread_create(&thread, NULL, change, (void *)region->start), 0);
    while (!hold_is_held()) {
        sched_yield();
    }
    return thread;
}

static void take_address(const region_t *region)
{
    assert_ptr_equal(mmap((void *)region->start, region->end - region->start,
                          PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                          -1, 0),
                     (void *)region->start);
}

/* The thread that unmaps has not come back, and the address is somebody else's already. */
static void an_address_taken_over_before_the_event_is_read_misses(void **state)
{
    region_t region = must_keep(*state, map(LENGTH), LENGTH);
    region_t neighbour = must_keep(*state, map(LENGTH), LENGTH);

    assert_true(hits_in_the_end(&region));
    const pthread_t thread = change_and_hold(&region, unmap_it, HOLD_BEFORE_READ);
    take_address(&region);
    assert_false(atomic_load(&returned));
    /* The query alone knows. */
    assert_int_equal(atomic_load(&region.monitor->log->sequence) % 2, 0);
    assert_false(
        regx_inval_log_touched(region.monitor->log, region.since, region.start, region.end));
    assert_false(hits(&region));
    hold_reader(HOLD_NOWHERE);
    pthread_join(thread, NULL);
    assert_false(hits_in_the_end(&region));
    assert_true(hits_in_the_end(&neighbour));
    munmap((void *)region.start, LENGTH);
    drop(&region);
    drop(&neighbour);
}

/* The thread that unmapped goes on, but the log does not have it yet: the sequence alone knows. */
static void a_change_that_was_read_and_not_logged_misses(void **state)
{
    region_t region = must_keep(*state, map(LENGTH), LENGTH);

    assert_true(hits_in_the_end(&region));
    const pthread_t thread = change_and_hold(&region, unmap_it, HOLD_BEFORE_LOG);
    pthread_join(thread, NULL);
    take_address(&region);
    assert_true(region.monitor->valid(region.monitor, region.start, region.end));
    assert_false(
        regx_inval_log_touched(region.monitor->log, region.since, region.start, region.end));
    assert_false(hits(&region));
    hold_reader(HOLD_NOWHERE);
    assert_false(hits_in_the_end(&region));
    munmap((void *)region.start, LENGTH);
    drop(&region);
}

/* What is newly kept in the middle of a change is not of what was there before. */
static void what_is_kept_during_a_change_is_not_of_what_was_there_before(void **state)
{
    region_t region = must_keep(*state, map(LENGTH), LENGTH);
    const pthread_t thread = change_and_hold(&region, unmap_it, HOLD_BEFORE_READ);

    take_address(&region);
    region_t newer = must_keep(*state, (void *)region.start, LENGTH);
    hold_reader(HOLD_NOWHERE);
    pthread_join(thread, NULL);
    assert_false(hits_in_the_end(&region));
    drop(&newer); /* hit or not: the event may have come before or after */
    newer = must_keep(*state, (void *)region.start, LENGTH);
    assert_true(hits_in_the_end(&newer));
    assert_int_equal(madvise((void *)region.start, PAGE, MADV_DONTNEED), 0);
    assert_false(hits(&newer));
    munmap((void *)region.start, LENGTH);
    drop(&region);
    drop(&newer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WATCHED(an_address_taken_over_before_the_event_is_read_misses),
        WATCHED(a_change_that_was_read_and_not_logged_misses),
        WATCHED(what_is_kept_during_a_change_is_not_of_what_was_there_before),
    };

    return refused() ? 0 : cmocka_run_group_tests(tests, give_up_in_time, NULL);
}

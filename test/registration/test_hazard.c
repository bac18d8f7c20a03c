/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Hazards of registration caches that are changes of memory: what was kept is not used, and nothing
 * else is lost.
 */
#include "hazard.h"

#include <pthread.h>
#include <sched.h>

/* ---- 1 ---- */

static void same_address(direction_t direction)
{
    uint8_t *control, *buffer;
    uint64_t control_hits = 0;

    open_rig((rig_config_t){0});
    control = map_at(NULL, LENGTH);
    buffer = map_at(NULL, LENGTH);
    for (uint64_t round = 1; round <= 10000; round++) {
        rig_fill(buffer, 4096, round);
        assert_false(right(direction, buffer, LENGTH, round).hit);
        rig_settle(&rig);
        right(direction, buffer, LENGTH, round);
        assert_true(right(direction, buffer, 4096, round).hit); /* inside what is kept */
        control_hits += right(direction, control, 4096, round).hit;
        assert_int_equal(munmap(buffer, LENGTH), 0);
        assert_ptr_equal(map_at(buffer, LENGTH), buffer);
        regx_registry_progress(&rig.registry);
    }
    assert_in_range(control_hits, 9900, 9999);
    assert_in_range(oracle_registered(rig.oracle), 1, 2);
    munmap(buffer, LENGTH);
    munmap(control, LENGTH);
}

static void hazard_1_same_address_new_pages_sent(void **state)
{
    (void)state;
    same_address(SEND);
}

static void hazard_1_same_address_new_pages_received(void **state)
{
    (void)state;
    same_address(RECEIVE);
}

/* ---- 5 ---- */

static void *unmap_in_thread(void *buffer)
{
    change_munmap(BY_LIBC, buffer, LENGTH);
    return NULL;
}

/* The kernel's news is there and not read yet: the thread that unmapped still waits, and another
 * thread has the address. */
static void hazard_5_news_that_is_not_read(void **state)
{
    uint8_t *buffer;

    (void)state;
    open_rig((rig_config_t){0});
    if (!rig_can_hold(&rig)) {
        print_message("not tried: nothing is read, hooks run in the thread that unmaps\n");
        skip();
    }
    buffer = map_at(NULL, LENGTH);
    for (uint64_t round = 1; round <= 20; round++) {
        const direction_t direction = round % 2 == 0 ? SEND : RECEIVE;
        pthread_t thread;

        rig_fill(buffer, LENGTH, 2 * round);
        right(direction, buffer, LENGTH, round);
        assert_true(right(direction, buffer, LENGTH, round).hit);

        rig_hold(&rig, true);
        assert_int_equal(pthread_create(&thread, NULL, unmap_in_thread, buffer), 0);
        while (!rig_held(&rig)) {
            sched_yield();
        }
        assert_ptr_equal(map_at(buffer, LENGTH), buffer);
        rig_fill(buffer, LENGTH, 2 * round + 1);
        for (unsigned i = 0; i < 3; i++) {
            assert_false(right(direction, buffer, LENGTH, round + i).hit);
        }
        rig_hold(&rig, false);
        pthread_join(thread, NULL);
        right(direction, buffer, LENGTH, round);
        rig_settle(&rig);
        right(direction, buffer, LENGTH, round);
        assert_true(right(direction, buffer, LENGTH, round).hit);
    }
    munmap(buffer, LENGTH);
}

/* ---- 6 ---- */

/* More changes than the log holds: what changed among them is not used. No look-up is made
 * meanwhile, so all is given up. */
static void hazard_6_a_flush_is_not_lost(void **state)
{
    enum { OTHERS = 64, CHANGES = REGX_INVAL_LOG_RING + 100 };
    uint8_t *buffer, *others;
    uint64_t before;

    (void)state;
    need_locked((size_t)16 << 20);
    open_rig((rig_config_t){.alone = true});
    buffer = map_at(NULL, LENGTH);
    others = map_at(NULL, (size_t)OTHERS * LENGTH);
    for (unsigned i = 0; i < OTHERS; i++) {
        right(SEND, others + (size_t)i * LENGTH, LENGTH, 0);
    }
    rig_fill(buffer, LENGTH, 1);
    right(SEND, buffer, LENGTH, 0);
    assert_true(right(SEND, buffer, LENGTH, 0).hit);
    before = count(&rig.counters.invalidations);

    assert_int_equal(munmap(buffer, LENGTH), 0); /* the change that counts, the first */
    assert_ptr_equal(map_at(buffer, LENGTH), buffer);
    for (unsigned i = 0; i < CHANGES; i++) {
        assert_int_equal(madvise(others, 4096, MADV_DONTNEED), 0);
    }
    rig_fill(buffer, LENGTH, 2);
    assert_false(right(SEND, buffer, LENGTH, 0).hit);
    rig_settle(&rig);
    right(SEND, buffer, LENGTH, 0);
    /* All was given up, also what did not change. */
    assert_int_equal(count(&rig.counters.invalidations) - before, OTHERS + 1);
    for (unsigned i = 0; i < OTHERS; i++) {
        assert_false(right(SEND, others + (size_t)i * LENGTH, LENGTH, 0).hit);
        assert_true(right(SEND, others + (size_t)i * LENGTH, LENGTH, 0).hit);
    }
    munmap(buffer, LENGTH);
    munmap(others, (size_t)OTHERS * LENGTH);
}

/* ---- 7 ---- */

static void hazard_7_changed_while_in_use(void **state)
{
    static uint8_t data[LENGTH];
    const size_t half = LENGTH / 2;
    regx_region_t region;
    uint8_t *buffer;

    (void)state;
    open_rig((rig_config_t){0});
    for (unsigned round = 0; round < 3; round++) {
        const uint64_t changes = count(&rig.counters.inuse_changes);
        const unsigned registered = oracle_registered(rig.oracle);

        buffer = map_at(NULL, LENGTH);
        memset(data, 'd', sizeof(data));
        memset(buffer, 'a', LENGTH);
        assert_int_equal(
            regx_region_acquire(&rig.registry, buffer, LENGTH, REGX_ACCESS_REMOTE_WRITE, &region),
            REGX_OK);
        oracle_flight_t *flight = oracle_receive_start(rig.oracle, region.mr, buffer, LENGTH);

        /* Half of it becomes something else. */
        assert_int_equal(munmap(buffer + half, half), 0);
        assert_ptr_equal(map_at(buffer + half, half), buffer + half);
        memset(buffer + half, 'b', half);
        rig_settle(&rig);
        regx_registry_progress(&rig.registry);
        assert_in_range(oracle_registered(rig.oracle), registered + 1, registered + 2);
        /* No new use of the old registration. */
        assert_false(right(SEND, buffer, LENGTH, 0).hit);

        oracle_receive_end(flight, data);
        assert_memory_equal(buffer, data, half); /* what is left of it is received */
        for (size_t i = half; i < LENGTH; i++) {
            assert_int_equal(buffer[i], 'b'); /* and nothing foreign is written */
        }
        regx_region_release(&rig.registry, &region);
        assert_int_equal(count(&rig.counters.inuse_changes) - changes, 1);
        assert_int_equal(munmap(buffer, LENGTH), 0);
        settle();
        assert_int_equal(oracle_registered(rig.oracle), registered);
    }
}

/* ---- 9 ---- */

/* Beside our thread, which ends the regions too. */
static void hazard_9_one_munmap_over_5000_regions(void **state)
{
    enum { REGIONS = 5000 };
    uint8_t *memory, *control;

    (void)state;
    need_locked((size_t)32 << 20);
    open_rig((rig_config_t){0});
    control = map_at(NULL, LENGTH);
    memory = map_at(NULL, (size_t)REGIONS * 4096);
    right(SEND, control, LENGTH, 0);
    for (unsigned round = 0; round < 3; round++) {
        const uint64_t before = count(&rig.counters.invalidations);

        for (unsigned i = 0; i < REGIONS; i++) {
            assert_false(right(SEND, memory + (size_t)i * 4096, 4096, 0).hit);
        }
        for (unsigned i = 0; i < REGIONS; i++) {
            assert_true(right(SEND, memory + (size_t)i * 4096, 4096, 0).hit);
        }
        assert_int_equal(oracle_registered(rig.oracle), REGIONS + 1);
        assert_int_equal(munmap(memory, (size_t)REGIONS * 4096), 0);
        assert_ptr_equal(map_at(memory, (size_t)REGIONS * 4096), memory);
        await_registered(1);
        assert_int_equal(count(&rig.counters.invalidations) - before, REGIONS);
        assert_true(right(SEND, control, LENGTH, 0).hit);
    }
    munmap(memory, (size_t)REGIONS * 4096);
    munmap(control, LENGTH);
}

/* ---- 23 ---- */

static void hazard_23_parts_of_huge_pages(void **state)
{
    const size_t huge = 2 << 20;
    uint8_t *memory, *at;

    (void)state;
    need_locked((size_t)32 << 20);
    open_rig((rig_config_t){0});
    memory = map_at(NULL, 4 * huge);
    at = memory + (huge - (uintptr_t)memory % huge) % huge;
    madvise(at, 2 * huge, MADV_HUGEPAGE);
    rig_fill(at, 2 * huge, 1);
    right(SEND, at, 2 * huge, 0);
    assert_true(right(RECEIVE, at + 4096, huge, 2).status == REGX_OK);
    for (size_t part = 4096; part <= huge; part *= 8) {
        /* A part across the border of two huge pages goes and comes back. */
        uint8_t *hole = at + huge - part / 2 - part / 2 % 4096;

        right(SEND, at, 2 * huge, 0);
        assert_true(right(SEND, at, 2 * huge, 0).hit);
        assert_int_equal(munmap(hole, part), 0);
        assert_ptr_equal(map_at(hole, part), hole);
        rig_fill(hole, part, part);
        assert_false(right(SEND, at, 2 * huge, 0).hit);
        assert_false(right(RECEIVE, at, 2 * huge, part).hit);
    }
    munmap(memory, 4 * huge);
}

int main(void)
{
    static const struct CMUnitTest hazards[] = {
        HAZARD(hazard_1_same_address_new_pages_sent),
        HAZARD(hazard_1_same_address_new_pages_received),
        HAZARD(hazard_5_news_that_is_not_read),
        HAZARD(hazard_6_a_flush_is_not_lost),
        HAZARD(hazard_7_changed_while_in_use),
        HAZARD(hazard_9_one_munmap_over_5000_regions),
        HAZARD(hazard_23_parts_of_huge_pages),
    };
    enum { HAZARDS = sizeof(hazards) / sizeof(hazards[0]) };
    static struct CMUnitTest tests[HAZARDS * BACKENDS];

    hazards_with_backends(hazards, HAZARDS, tests);
    rig_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

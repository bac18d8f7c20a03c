/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The log of changes: what is written can be read until the ring has gone past it, and what nobody
 * is interested in is left out.
 */
#include "../unit.h"

#include <pthread.h>

#include "registration/monitor/monitor.h"

#define RING ((uint64_t)REGX_INVAL_LOG_RING)
#define MB ((uintptr_t)1 << 20)
#define ALL MB, 1024 * MB

static void what_is_logged_is_read(void **state)
{
    regx_inval_log_t *log = regx_inval_log_open();
    regx_change_t change;

    (void)state;
    assert_non_null(log);
    regx_inval_log_interest(log, ALL, 1);
    assert_int_equal(log->head, 0);
    assert_int_equal(log->sequence % 2, 0);
    assert_int_equal(regx_inval_log_read(log, 0, &change), REGX_CHANGE_LATER);
    for (uintptr_t i = 0; i < RING; i++) {
        regx_inval_log_write(log, MB + i, 2 * MB + 3 * i);
        assert_int_equal(log->head, i + 1);
    }
    regx_inval_log_write(log, 2 * MB, 2 * MB); /* empty, or none: nothing to tell */
    regx_inval_log_write(log, 2 * MB, MB);
    assert_int_equal(log->head, RING);
    for (uintptr_t i = 0; i < RING; i++) {
        assert_int_equal(regx_inval_log_read(log, i, &change), REGX_CHANGE_READ);
        assert_int_equal(change.start, MB + i);
        assert_int_equal(change.end, 2 * MB + 3 * i);
    }
    assert_int_equal(regx_inval_log_read(log, RING, &change), REGX_CHANGE_LATER);
    regx_inval_log_close(log);
}

static void what_the_ring_has_passed_is_lost(void **state)
{
    regx_inval_log_t *log = regx_inval_log_open();
    regx_change_t change;

    (void)state;
    regx_inval_log_interest(log, ALL, 1);
    for (uintptr_t i = 0; i < 3 * RING + 5; i++) {
        regx_inval_log_write(log, MB + i, MB + i + 1);
        assert_false(regx_inval_log_touched(log, log->head, ALL));
    }
    for (uint64_t i = 0; i < 2 * RING + 5; i++) {
        assert_int_equal(regx_inval_log_read(log, i, &change), REGX_CHANGE_LOST);
        assert_true(regx_inval_log_touched(log, i, 900 * MB, 901 * MB)); /* or may have */
    }
    for (uint64_t i = 2 * RING + 5; i < 3 * RING + 5; i++) {
        assert_int_equal(regx_inval_log_read(log, i, &change), REGX_CHANGE_READ);
        assert_int_equal(change.start, MB + i);
        assert_false(regx_inval_log_touched(log, i, 900 * MB, 901 * MB));
        assert_true(regx_inval_log_touched(log, i, MB + i, MB + i + 1));
        assert_false(regx_inval_log_touched(log, i + 1, MB + i, MB + i + 1));
    }
    regx_inval_log_close(log);
}

static void only_changes_that_overlap_touch_a_range(void **state)
{
    regx_inval_log_t *log = regx_inval_log_open();

    (void)state;
    regx_inval_log_interest(log, ALL, 1);
    regx_inval_log_write(log, 10 * MB, 11 * MB);
    regx_inval_log_write(log, 20 * MB, 21 * MB);
    assert_false(regx_inval_log_touched(log, 0, 9 * MB, 10 * MB));
    assert_true(regx_inval_log_touched(log, 0, 9 * MB, 10 * MB + 1));
    assert_true(regx_inval_log_touched(log, 0, 10 * MB + 5, 10 * MB + 6));
    assert_true(regx_inval_log_touched(log, 0, 11 * MB - 1, 12 * MB));
    assert_false(regx_inval_log_touched(log, 0, 11 * MB, 20 * MB));
    assert_true(regx_inval_log_touched(log, 0, MB, 100 * MB));
    assert_true(regx_inval_log_touched(log, 1, MB, 100 * MB));
    assert_false(regx_inval_log_touched(log, 1, 10 * MB, 11 * MB));
    assert_false(regx_inval_log_touched(log, 2, MB, 100 * MB));
    regx_inval_log_close(log);
}

/* A writer that has drawn its number and not yet written: what it will write is not known. */
static void a_change_being_written_may_be_any(void **state)
{
    regx_inval_log_t *log = regx_inval_log_open();
    regx_change_t change;

    (void)state;
    regx_inval_log_interest(log, ALL, 1);
    regx_inval_log_write(log, 10 * MB, 11 * MB);
    atomic_fetch_add(&log->head, 1); /* as that writer does */
    regx_inval_log_write(log, 20 * MB, 21 * MB);
    assert_int_equal(regx_inval_log_read(log, 0, &change), REGX_CHANGE_READ);
    assert_int_equal(regx_inval_log_read(log, 1, &change), REGX_CHANGE_LATER);
    assert_int_equal(regx_inval_log_read(log, 2, &change), REGX_CHANGE_READ);
    assert_true(regx_inval_log_touched(log, 0, 900 * MB, 901 * MB));
    assert_true(regx_inval_log_touched(log, 1, 900 * MB, 901 * MB));
    assert_false(regx_inval_log_touched(log, 2, 900 * MB, 901 * MB));
    /* Should it never come back, the ring goes past it. */
    while (log->head < RING + 1) {
        regx_inval_log_write(log, 20 * MB, 21 * MB);
    }
    assert_int_equal(regx_inval_log_read(log, 1, &change), REGX_CHANGE_LATER);
    regx_inval_log_write(log, 30 * MB, 31 * MB);
    assert_int_equal(regx_inval_log_read(log, 1, &change), REGX_CHANGE_LOST);
    assert_int_equal(regx_inval_log_read(log, RING + 1, &change), REGX_CHANGE_READ);
    assert_int_equal(change.start, 30 * MB);
    regx_inval_log_close(log);
}

static bool is_logged(regx_inval_log_t *log, uintptr_t start, uintptr_t end)
{
    const uint64_t head = log->head;

    regx_inval_log_write(log, start, end);
    return log->head == head + 1;
}

static void what_nobody_is_interested_in_is_left_out(void **state)
{
    regx_inval_log_t *log = regx_inval_log_open();
    const uintptr_t slot = 2 * MB, gigabyte = 1024 * MB;

    (void)state;
    assert_false(is_logged(log, 10 * slot, 11 * slot));
    regx_inval_log_interest(log, 10 * slot + 4096, 10 * slot + 8192, 1);
    regx_inval_log_interest(log, 10 * slot + 4096, 10 * slot + 8192, 1);
    regx_inval_log_interest(log, 20 * slot - 4096, 22 * slot + 4096, 1);
    for (uintptr_t i = 5; i < 30; i++) {
        assert_int_equal(is_logged(log, i * slot + 4096, (i + 1) * slot - 4096),
                         i == 10 || (i >= 19 && i <= 22));
    }
    assert_true(is_logged(log, 5 * slot, 15 * slot)); /* one in the middle */
    assert_false(is_logged(log, 5 * slot, 10 * slot));
    assert_false(is_logged(log, 11 * slot, 19 * slot));
    regx_inval_log_interest(log, 10 * slot + 4096, 10 * slot + 8192, -1);
    assert_true(is_logged(log, 10 * slot, 11 * slot));
    regx_inval_log_interest(log, 10 * slot + 4096, 10 * slot + 8192, -1);
    assert_false(is_logged(log, 10 * slot, 11 * slot));
    regx_inval_log_interest(log, 20 * slot - 4096, 22 * slot + 4096, -1);
    assert_false(is_logged(log, 18 * slot, 25 * slot));
    /* Of many slots. */
    regx_inval_log_interest(log, 10 * gigabyte, 20 * gigabyte, 1);
    assert_true(is_logged(log, 11 * gigabyte, 11 * gigabyte + 4096));
    regx_inval_log_interest(log, 10 * gigabyte, 20 * gigabyte, -1);
    assert_false(is_logged(log, 11 * gigabyte, 11 * gigabyte + 4096));
    regx_inval_log_interest(log, 10 * gigabyte + slot, 1000 * gigabyte, 1); /* of all */
    regx_inval_log_interest(log, 10 * slot, 11 * slot, 1);
    assert_true(is_logged(log, 11 * gigabyte, 11 * gigabyte + 4096));
    assert_true(is_logged(log, 999 * gigabyte, 999 * gigabyte + 4096));
    regx_inval_log_interest(log, 10 * gigabyte + slot, 1000 * gigabyte, -1);
    for (uintptr_t i = 0; i < 1000; i++) {
        assert_int_equal(is_logged(log, i * gigabyte + 10 * slot, i * gigabyte + 11 * slot),
                         i == 0);
    }
    assert_true(is_logged(log, 10 * slot, 11 * slot));
    assert_true(is_logged(log, 0, 100 * gigabyte));
    assert_true(is_logged(log, 0, UINTPTR_MAX));
    regx_inval_log_close(log);
}

/* ---- many writers ---- */

enum { WRITERS = 3, ROUNDS = 60000 };

typedef struct writers {
    regx_inval_log_t *log;
    _Atomic unsigned running;
} writers_t;

/* What a writer logs can be told from its start alone. */
static uintptr_t end_of(uintptr_t start)
{
    return start + 1 + (start * UINT64_C(0x9e3779b97f4a7c15) >> 45);
}

static void *write_many(void *argument)
{
    writers_t *writers = argument;
    const uintptr_t who = writers->running++;

    for (uintptr_t i = 0; i < ROUNDS; i++) {
        const uintptr_t start = (who + 1) * 64 * MB + i * 4096;

        regx_inval_log_write(writers->log, start, end_of(start));
    }
    writers->running--;
    return NULL;
}

static void writers_at_once_tear_nothing(void **state)
{
    writers_t writers = {.log = regx_inval_log_open()};
    uint64_t at = 0, read = 0, later = 0;
    pthread_t threads[WRITERS];

    (void)state;
    regx_inval_log_interest(writers.log, ALL, 1);
    for (unsigned i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, &writers), 0);
    }
    while (at < (uint64_t)WRITERS * ROUNDS) {
        regx_change_t change;

        if (at == writers.log->head) {
            continue;
        }
        switch (regx_inval_log_read(writers.log, at, &change)) {
        case REGX_CHANGE_READ:
            assert_int_equal(change.end, end_of(change.start));
            read++;
            at++;
            break;
        case REGX_CHANGE_LATER:
            later++;
            break;
        case REGX_CHANGE_LOST:
            at++;
            break;
        }
    }
    for (unsigned i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(writers.log->head, (uint64_t)WRITERS * ROUNDS);
    assert_true(read > 0);
    print_message("# read %ju of %ju, found %ju unfinished\n", (uintmax_t)read,
                  (uintmax_t)WRITERS * ROUNDS, (uintmax_t)later);
    regx_inval_log_close(writers.log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_logged_is_read),
        cmocka_unit_test(what_the_ring_has_passed_is_lost),
        cmocka_unit_test(only_changes_that_overlap_touch_a_range),
        cmocka_unit_test(a_change_being_written_may_be_any),
        cmocka_unit_test(what_nobody_is_interested_in_is_left_out),
        cmocka_unit_test(writers_at_once_tear_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

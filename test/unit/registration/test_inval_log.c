/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The log of changes: what is read is what was written, by several writers at once too; a change of
 * memory in which no cache is interested is left out.
 */
#include "../unit.h"

#include <pthread.h>

#include "registration/monitor/monitor.h"

#define MB ((uintptr_t)1 << 20)
#define ALL MB, 1024 * MB

static bool is_logged(regx_inval_log_t *log, uintptr_t start, uintptr_t end)
{
    const uint64_t head = log->head;

    regx_inval_log_write(log, start, end);
    return log->head == head + 1;
}

static void memory_without_interest_is_left_out(void **state)
{
    regx_inval_log_t *log = regx_inval_log_open();
    const uintptr_t slot = 2 * MB, gigabyte = 1024 * MB;

    assert_false(is_logged(log, 10 * slot, 11 * slot));
    regx_inval_log_interest(log, 10 * slot + 4096, 10 * slot + 8192, 1);
    regx_inval_log_interest(log, 20 * slot - 4096, 22 * slot + 4096, 1);
    for (uintptr_t i = 5; i < 30; i++) {
        assert_int_equal(is_logged(log, i * slot + 4096, (i + 1) * slot - 4096),
                         i == 10 || (i >= 19 && i <= 22));
    }
    assert_true(is_logged(log, 5 * slot, 15 * slot)); /* one in the middle */
    regx_inval_log_interest(log, 10 * slot + 4096, 10 * slot + 8192, -1);
    assert_false(is_logged(log, 10 * slot, 11 * slot));
    regx_inval_log_interest(log, 10 * gigabyte, 1000 * gigabyte, 1); /* of all slots */
    assert_true(is_logged(log, 999 * gigabyte, 999 * gigabyte + 4096));
    regx_inval_log_interest(log, 10 * gigabyte, 1000 * gigabyte, -1);
    assert_false(is_logged(log, 11 * gigabyte, 11 * gigabyte + 4096));
    assert_true(is_logged(log, 0, UINTPTR_MAX)); /* too long to be looked at */
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
    uint64_t at = 0, read = 0;
    pthread_t threads[WRITERS];

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
    regx_inval_log_close(writers.log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_without_interest_is_left_out),
        cmocka_unit_test(writers_at_once_tear_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

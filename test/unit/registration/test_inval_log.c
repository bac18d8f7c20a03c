/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The log of changes: what is read is what was written, by several writers at once too; a change of
 * memory in which no cache is interested is left out. A watch sees each change of its range that is
 * told, the lowest first address of them, and says when it cannot be certain.
 */
#include "../unit.h"

#include "base/util.h"
#include "registration/monitor/monitor.h"

static bool is_valid;
static regx_status_t answer;

static bool valid(regx_monitor_t *monitor)
{
    return is_valid;
}

static regx_status_t subscribe(regx_monitor_t *monitor, uintptr_t start, uintptr_t end,
                               uint64_t *since)
{
    regx_inval_log_write(monitor->log, start, end); /* as of what is watched anew */
    *since = monitor->log->head;
    return answer;
}

typedef struct rig {
    regx_monitor_t monitor;
    regx_watch_t watch;
    uintptr_t page, start, first; /* 16 pages from start on, of which 2 to 10 are watched */
} rig_t;

static rig_t *rig_open(void)
{
    rig_t *rig = calloc(1, sizeof(*rig));

    assert_non_null(rig);
    rig->monitor.log = regx_inval_log_open();
    rig->page = regx_page_size();
    rig->start = (uintptr_t)unit_map(NULL, 16 * rig->page);
    is_valid = true;
    answer = REGX_OK;
    assert_true(regx_watch_begin(&rig->watch, &rig->monitor,
                                 (void *)(rig->start + 2 * rig->page + 1), 8 * rig->page - 2));
    return rig;
}

static void rig_close(rig_t *rig)
{
    regx_watch_end(&rig->watch);
    regx_watch_end(&rig->watch); /* nothing */
    munmap((void *)rig->start, 16 * rig->page);
    regx_inval_log_close(rig->monitor.log);
    free(rig);
}

/* Of a rig that is open. */
#define RIG_TEST(name) UNIT_TEST_WITH(name, NULL, rig_t *, rig, rig_open(), rig_close(rig))

static void change(rig_t *rig, unsigned first, unsigned last)
{
    regx_inval_log_write(rig->monitor.log, rig->start + first * rig->page,
                         rig->start + last * rig->page);
}

static regx_watch_state_t look(rig_t *rig, bool certain)
{
    return regx_watch_look(&rig->watch, certain, &rig->first);
}

RIG_TEST(changes_of_the_range_are_seen_once)
{
    assert_int_equal(look(rig, true), REGX_WATCH_QUIET);
    change(rig, 0, 2);
    change(rig, 10, 16);
    assert_true(regx_watch_has_news(&rig->watch));
    assert_int_equal(look(rig, true), REGX_WATCH_QUIET);
    change(rig, 9, 10);
    change(rig, 4, 5);
    change(rig, 6, 7);
    assert_int_equal(look(rig, false), REGX_WATCH_CHANGED);
    assert_true(rig->first == rig->start + 4 * rig->page);
    assert_false(regx_watch_has_news(&rig->watch));
    assert_int_equal(look(rig, true), REGX_WATCH_QUIET);
    change(rig, 0, 16);
    assert_int_equal(look(rig, false), REGX_WATCH_CHANGED);
    assert_true(rig->first == rig->start + 2 * rig->page);
}

RIG_TEST(when_the_log_has_gone_round_all_has_changed)
{
    for (unsigned i = 0; i <= REGX_INVAL_LOG_RING; i++) {
        change(rig, 12, 13);
    }
    assert_int_equal(look(rig, false), REGX_WATCH_CHANGED);
    assert_true(rig->first == rig->start + 2 * rig->page);
    assert_int_equal(look(rig, true), REGX_WATCH_QUIET);
}

/* But by the caches; and a change of all of it by another thread is seen beside it. */
RIG_TEST(what_is_flushed_is_no_change)
{
    const uint64_t head = rig->monitor.log->head;

    regx_watch_flush(&rig->watch);
    assert_true(
        regx_inval_log_touched(rig->monitor.log, head, rig->watch.start, rig->watch.end, true));
    assert_int_equal(look(rig, true), REGX_WATCH_QUIET);
    for (unsigned i = 0; i < 2; i++) {
        i == 0 ? change(rig, 2, 10) : regx_watch_flush(&rig->watch);
        i == 1 ? change(rig, 2, 10) : regx_watch_flush(&rig->watch);
        assert_int_equal(look(rig, true), REGX_WATCH_CHANGED);
        assert_int_equal(look(rig, true), REGX_WATCH_QUIET);
    }
}

/* A neighbour that shares a page sees it, for it may have used what was registered; but it has not
 * changed itself, and by that two would flush each other without end. */
RIG_TEST(what_another_flushes_is_known_as_that)
{
    regx_watch_t other;

    assert_true(regx_watch_begin(&other, &rig->monitor, (void *)(rig->start + 9 * rig->page + 5),
                                 4 * rig->page));
    regx_watch_flush(&other);
    assert_true(other.changed);
    assert_int_equal(look(rig, true), REGX_WATCH_CHANGED);
    assert_true(rig->first == rig->start + 9 * rig->page);
    assert_false(rig->watch.changed);
    change(rig, 2, 3);
    assert_int_equal(look(rig, true), REGX_WATCH_CHANGED);
    assert_true(rig->watch.changed);
    regx_watch_end(&other);
}

RIG_TEST(while_a_change_is_under_way_it_is_not_certain)
{
    rig->monitor.valid = valid;
    assert_int_equal(look(rig, true), REGX_WATCH_QUIET);
    is_valid = false;
    assert_int_equal(look(rig, true), REGX_WATCH_UNSURE);
    assert_int_equal(look(rig, false), REGX_WATCH_QUIET);
    is_valid = true;
    rig->monitor.log->sequence = 1;
    assert_int_equal(look(rig, true), REGX_WATCH_UNSURE);
    change(rig, 3, 4);
    assert_int_equal(look(rig, true), REGX_WATCH_CHANGED);
    rig->monitor.log->sequence = 2;
    assert_int_equal(look(rig, true), REGX_WATCH_QUIET);
}

RIG_TEST(what_nobody_tells_of_is_not_watched)
{
    const uintptr_t tag = (uintptr_t)1 << 56;
    regx_watch_t watch;

    assert_false(regx_watch_begin(&watch, &rig->monitor, (void *)(rig->start + tag), rig->page));
    rig->monitor.subscribe = subscribe;
    answer = REGX_DENIED;
    assert_false(regx_watch_begin(&watch, &rig->monitor, (void *)rig->start, rig->page));
    assert_null(watch.monitor);
    assert_false(regx_watch_renew(&rig->watch));
    rig->monitor.by_device = true;
    assert_false(regx_watch_begin(&watch, &rig->monitor, (void *)rig->start, rig->page));
    assert_false(regx_watch_begin(&watch, NULL, (void *)rig->start, rig->page));
}

RIG_TEST(memory_that_is_gone_is_not_mapped)
{
    void *const hole = (void *)(rig->start + 4 * rig->page);

    assert_true(regx_watch_is_mapped(&rig->watch, rig->watch.start));
    assert_int_equal(munmap(hole, rig->page), 0);
    assert_false(regx_watch_is_mapped(&rig->watch, rig->watch.start));
    assert_false(regx_watch_is_mapped(&rig->watch, rig->start + 5 * rig->page - 1));
    assert_true(regx_watch_is_mapped(&rig->watch, rig->start + 5 * rig->page));
}

/* ---- the log of changes ---- */

#define MB ((uintptr_t)1 << 20)
#define ALL MB, 1024 * MB

static bool is_logged(regx_inval_log_t *log, uintptr_t start, uintptr_t end)
{
    const uint64_t head = log->head;

    regx_inval_log_write(log, start, end);
    return log->head == head + 1;
}

UNIT_TEST(memory_without_interest_is_left_out)
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

UNIT_TEST(writers_at_once_tear_nothing)
{
    writers_t writers = {.log = regx_inval_log_open()};
    uint64_t at = 0, read = 0;
    pthread_t threads[WRITERS];

    regx_inval_log_interest(writers.log, ALL, 1);
    for (unsigned i = 0; i < WRITERS; i++) {
        threads[i] = unit_thread(write_many, &writers);
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

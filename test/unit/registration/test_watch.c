/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A watch sees each change of its range that is told, the lowest first address of them, and says
 * when it cannot be certain.
 */
#include "../unit.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/util.h"
#include "registration/registration.h"

static bool is_valid;
static regx_status_t answer;

static bool valid(regx_monitor_t *monitor)
{
    (void)monitor;
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
    rig->start = (uintptr_t)mmap(NULL, 16 * rig->page, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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

static void change(rig_t *rig, unsigned first, unsigned last)
{
    regx_inval_log_write(rig->monitor.log, rig->start + first * rig->page,
                         rig->start + last * rig->page);
}

static regx_watch_state_t look(rig_t *rig, bool certain)
{
    return regx_watch_look(&rig->watch, certain, &rig->first);
}

static void changes_of_the_range_are_seen_once(void **state)
{
    rig_t *rig = rig_open();

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
    rig_close(rig);
}

static void when_the_log_has_gone_round_all_has_changed(void **state)
{
    rig_t *rig = rig_open();

    for (unsigned i = 0; i <= REGX_INVAL_LOG_RING; i++) {
        change(rig, 12, 13);
    }
    assert_int_equal(look(rig, false), REGX_WATCH_CHANGED);
    assert_true(rig->first == rig->start + 2 * rig->page);
    assert_int_equal(look(rig, true), REGX_WATCH_QUIET);
    rig_close(rig);
}

/* But by the caches; and a change of all of it by another thread is seen beside it. */
static void what_is_flushed_is_no_change(void **state)
{
    rig_t *rig = rig_open();
    const uint64_t head = rig->monitor.log->head;

    regx_watch_flush(&rig->watch);
    assert_true(regx_inval_log_touched(rig->monitor.log, head, rig->watch.start, rig->watch.end));
    assert_int_equal(look(rig, true), REGX_WATCH_QUIET);
    for (unsigned i = 0; i < 2; i++) {
        i == 0 ? change(rig, 2, 10) : regx_watch_flush(&rig->watch);
        i == 1 ? change(rig, 2, 10) : regx_watch_flush(&rig->watch);
        assert_int_equal(look(rig, true), REGX_WATCH_CHANGED);
        assert_int_equal(look(rig, true), REGX_WATCH_QUIET);
    }
    rig_close(rig);
}

static void while_a_change_is_under_way_it_is_not_certain(void **state)
{
    rig_t *rig = rig_open();

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
    rig_close(rig);
}

static void what_nobody_tells_of_is_not_watched(void **state)
{
    rig_t *rig = rig_open();
    regx_watch_t watch;

    rig->monitor.subscribe = subscribe;
    answer = REGX_DENIED;
    assert_false(regx_watch_begin(&watch, &rig->monitor, (void *)rig->start, rig->page));
    assert_null(watch.monitor);
    assert_false(regx_watch_renew(&rig->watch));
    rig->monitor.by_device = true;
    assert_false(regx_watch_begin(&watch, &rig->monitor, (void *)rig->start, rig->page));
    assert_false(regx_watch_begin(&watch, NULL, (void *)rig->start, rig->page));
    rig_close(rig);
}

static void memory_that_is_gone_is_not_mapped(void **state)
{
    rig_t *rig = rig_open();
    void *const hole = (void *)(rig->start + 4 * rig->page);

    assert_true(regx_watch_is_mapped(&rig->watch, rig->watch.start));
    assert_int_equal(munmap(hole, rig->page), 0);
    assert_false(regx_watch_is_mapped(&rig->watch, rig->watch.start));
    assert_false(regx_watch_is_mapped(&rig->watch, rig->start + 5 * rig->page - 1));
    assert_true(regx_watch_is_mapped(&rig->watch, rig->start + 5 * rig->page));
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_of_the_range_are_seen_once),
        cmocka_unit_test(when_the_log_has_gone_round_all_has_changed),
        cmocka_unit_test(what_is_flushed_is_no_change),
        cmocka_unit_test(while_a_change_is_under_way_it_is_not_certain),
        cmocka_unit_test(what_nobody_tells_of_is_not_watched),
        cmocka_unit_test(memory_that_is_gone_is_not_mapped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

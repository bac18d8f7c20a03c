/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The cache and changes of memory while it is being registered or is in use; and a child of fork,
 * in which nothing is done.
 */
#include "registry.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- between pinning and keeping ---- */

static void log_it(registry_t *r, uintptr_t start, uintptr_t end)
{
    regx_inval_log_write(r->monitor.log, end - PAGE, end);
    (void)start;
}

static void begin_change(registry_t *r, uintptr_t start, uintptr_t end)
{
    (void)start;
    (void)end;
    r->changing = true;
}

static void take_news(registry_t *r, uintptr_t start, uintptr_t end)
{
    (void)start;
    (void)end;
    r->monitor.log->sequence++;
}

static void draw_number(registry_t *r, uintptr_t start, uintptr_t end)
{
    (void)start;
    (void)end;
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

static void a_change_while_pinning_makes_it_one_use(void **state)
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

static void of_two_that_register_at_once_one_is_kept(void **state)
{
    registry_t *r = registry_open_large(true);
    regx_region_t region;

    r->during = acquire_the_same;
    registry_get(r, 0x100000, 4 * PAGE, &region);
    assert_int_equal(r->live, 2);
    assert_int_equal(r->counters.uncached, 1);
    regx_region_release(&r->registry, &region);
    assert_int_equal(r->live, 1);
    assert_int_equal(r->cache->room.count, 1);
    assert_int_equal(registry_served(r, 0x100000, 4 * PAGE), HIT);
    registry_close(r);
}

/* ---- in use ---- */

static void a_change_while_in_use_is_counted_and_told(void **state)
{
    registry_t *r = registry_open_large(true);
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
    registry_close(r);
}

/* A part of a region is used, and another part is given back: no error. */
static void a_change_beside_what_is_used_is_not_told(void **state)
{
    registry_t *r = registry_open_large(true);
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
    registry_close(r);
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

static void a_child_is_inert(void **state)
{
    for (int raw = 0; raw <= 1; raw++) {
        registry_t *r = registry_open_large(true);
        regx_region_t kept, once;
        int status = -1;

        registry_get(r, 0x100000, PAGE, &kept);
        r->refuses_to_watch = true;
        registry_get(r, 0x200000, PAGE, &once);
        assert_int_equal(once.kept, 0);
        regx_lock(&r->cache->lock); /* as another thread may at that moment */
        const pid_t child =
            raw ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();

        if (child == 0) {
            alarm(UNIT_PATIENCE); /* rather than for ever */
            in_the_child(r, &kept, &once);
        }
        regx_unlock(&r->cache->lock);
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        regx_region_release(&r->registry, &kept);
        regx_region_release(&r->registry, &once);
        assert_int_equal(registry_served(r, 0x100000, PAGE), HIT);
        registry_close(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_while_pinning_makes_it_one_use),
        cmocka_unit_test(of_two_that_register_at_once_one_is_kept),
        cmocka_unit_test(a_change_while_in_use_is_counted_and_told),
        cmocka_unit_test(a_change_beside_what_is_used_is_not_told),
        cmocka_unit_test(a_child_is_inert),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Uses of regions by many threads: counted by each for itself, seen by who retires; regions that
 * are dead and in use.
 */
#include "registry.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Barriers (syscall is linked by --wrap). */
static struct {
    _Atomic unsigned count;
    bool fail;
    _Atomic uint64_t *uses; /* what becomes visible by the barrier, and not before */
} barriers;

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (number == SYS_membarrier && a == MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        barriers.count++;
        if (barriers.fail) {
            errno = ENOMEM;
            return -1;
        }
        if (barriers.uses != NULL) {
            *barriers.uses += REGX_USE_ACQUIRED;
        }
    }
    return __real_syscall(number, a, b, c, d, e, f);
}

/* Also after a failure, for the tests that follow. */
static int free_barriers(void **state)
{
    (void)state;
    barriers.fail = false;
    barriers.uses = NULL;
    return 0;
}

static void run(void *(*function)(void *), void *argument)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, function, argument), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

typedef struct job {
    registry_t *r;
    regx_region_t regions[8];
    served_t served[8];
} job_t;

static void *release_all(void *argument)
{
    job_t *job = argument;

    for (unsigned i = 0; i < 8; i++) {
        regx_region_release(&job->r->registry, &job->regions[i]);
    }
    return NULL;
}

static void *acquire_all(void *argument)
{
    job_t *job = argument;

    for (unsigned i = 0; i < 8; i++) {
        registry_get(job->r, 0x100000, PAGE, &job->regions[i]);
    }
    return NULL;
}

static void a_release_by_another_thread_counts(void **state)
{
    (void)state;
    for (int fences = 0; fences <= 1; fences++) {
        job_t job = {.r = registry_open_threaded(1, false, fences)};

        for (unsigned round = 0; round < 4; round++) {
            /* By this thread and another, or by two others; both ways. */
            if (round % 2 == 0) {
                acquire_all(&job);
            } else {
                run(acquire_all, &job);
            }
            assert_int_equal(registry_served(job.r, 0x900000, PAGE), ONCE); /* no room: in use */
            if (round / 2 == 0) {
                run(release_all, &job);
            } else {
                release_all(&job);
            }
            assert_int_equal(registry_served(job.r, 0x900000, PAGE), MISS);
            assert_int_equal(job.r->live, 1);
        }
        registry_close(job.r);
    }
}

static void *serve_all(void *argument)
{
    job_t *job = argument;

    for (unsigned i = 0; i < 8; i++) {
        job->served[i] = registry_served(job->r, 0x100000, PAGE);
    }
    return NULL;
}

static unsigned states(const registry_t *r)
{
    unsigned count = 0;

    for (const regx_thread_state_t *ts = r->cache->threads.first; ts != NULL; ts = ts->next) {
        count++;
    }
    return count;
}

static void threads_that_end_leave_their_states_and_their_uses(void **state)
{
    job_t job = {.r = registry_open_threaded(REGX_UNLIMITED, false, false)};

    (void)state;
    registry_use(job.r, 0x100000, PAGE);
    for (unsigned round = 0; round < 50; round++) {
        run(serve_all, &job);
        for (unsigned i = 0; i < 8; i++) {
            assert_int_equal(job.served[i], HIT);
        }
    }
    assert_in_range(states(job.r), 3, 4); /* the common one, ours, and one for all of them */
    run(acquire_all, &job);               /* its uses outlive it */
    registry_log(job.r, 0x100000, PAGE);
    run(serve_all, &job);
    assert_int_equal(job.served[0], MISS);
    assert_int_equal(job.r->live, 2);
    regx_registry_progress(&job.r->registry);
    assert_int_equal(job.r->live, 2);
    release_all(&job);
    regx_registry_progress(&job.r->registry);
    assert_int_equal(job.r->live, 1);
    assert_int_equal(job.r->counters.hits, 50 * 8 + 8 + 7);
    registry_close(job.r);
}

/* ---- dead and in use ---- */

/* Uses that a look-up takes back: region dead, or not known to be true. */
static void a_refused_use_holds_nothing(void **state)
{
    (void)state;
    for (int fences = 0; fences <= 1; fences++) {
        registry_t *r = registry_open_threaded(REGX_UNLIMITED, true, fences);
        regx_region_t held;

        registry_use(r, 0x100000, PAGE);
        r->changing = true;
        assert_int_equal(registry_served(r, 0x100000, PAGE), ONCE);
        r->changing = false;
        registry_get(r, 0x100000, PAGE, &held);
        registry_log(r, 0x100000, PAGE);
        assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
        regx_registry_progress(&r->registry);
        assert_int_equal(r->live, 2);
        regx_region_release(&r->registry, &held);
        regx_registry_progress(&r->registry);
        assert_int_equal(r->live, 1);
        registry_close(r);
    }
}

static void end_it_while_asking(registry_t *r)
{
    r->asking = NULL;
    registry_log(r, 0x100000, PAGE);
    regx_registry_progress(&r->registry);
    assert_int_equal(r->counters.invalidations, 1);
    assert_int_equal(r->live, 1); /* in use, as far as anybody can see */
    assert_false(r->cache->work);
}

/* It was looked at while the look-up held it: the look-up is the last to know. */
static void a_refused_use_that_held_up_deregistering_has_it_tried_again(void **state)
{
    (void)state;
    for (int fences = 0; fences <= 1; fences++) {
        registry_t *r = registry_open_threaded(REGX_UNLIMITED, true, fences);

        registry_use(r, 0x100000, PAGE);
        r->asking = end_it_while_asking;
        assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
        assert_null(r->asking);
        regx_registry_progress(&r->registry);
        assert_int_equal(r->live, 1); /* the new one */
        registry_close(r);
    }
}

/* A use whose count nobody sees before a barrier, of a region that died after it was found. */
static void uses_are_counted_after_a_barrier(void **state)
{
    registry_t *r = registry_open_threaded(REGX_UNLIMITED, false, false);
    regx_region_t held;

    (void)state;
    if (r->cache->fences) {
        registry_close(r);
        print_message("not tried: without membarrier each use has a barrier of its own\n");
        skip();
    }
    registry_get(r, 0x100000, PAGE, &held);
    barriers.uses = &regx_cache_last_state(r->cache)->ts->uses[held.kept];
    *barriers.uses -= REGX_USE_ACQUIRED;
    registry_log(r, 0x100000, PAGE);
    regx_registry_progress(&r->registry);
    barriers.uses = NULL;
    assert_int_equal(r->live, 1);
    regx_registry_progress(&r->registry);
    assert_int_equal(r->live, 1);
    regx_region_release(&r->registry, &held);
    regx_registry_progress(&r->registry);
    assert_int_equal(r->live, 0);
    registry_close(r);
}

/* One for all that died meanwhile, none for nothing; without one nothing is deregistered. */
static void one_barrier_serves_all_that_died_meanwhile(void **state)
{
    enum { COUNT = 100 };

    (void)state;
    for (int fences = 0; fences <= 1; fences++) {
        registry_t *r = registry_open_threaded(REGX_UNLIMITED, false, fences);
        const unsigned one = r->cache->fences ? 0 : 1;

        for (unsigned round = 0; round < 3; round++) {
            for (uintptr_t i = 1; i <= COUNT; i++) {
                registry_use(r, i * PAGE, PAGE);
            }
            registry_log(r, PAGE, COUNT * PAGE);
            barriers.count = 0;
            if (round == 1) {
                barriers.fail = true;
                regx_registry_progress(&r->registry);
                assert_int_equal(barriers.count, one);
                assert_int_equal(r->live == COUNT, one == 1);
                barriers.fail = false;
                barriers.count = 0;
            }
            for (unsigned i = 0; i < COUNT; i++) {
                regx_registry_progress(&r->registry);
            }
            assert_int_equal(barriers.count, one);
            assert_int_equal(r->live, 0);
        }
        registry_use(r, PAGE, PAGE);
        barriers.fail = true;
        registry_close(r); /* needs none, and asserts that all is deregistered */
        barriers.fail = false;
    }
}

/* Many that are dead and in use: progress does not look at them again and again for nothing. */
static void progress_with_nothing_to_do_does_nothing(void **state)
{
    enum { COUNT = 500 };
    static regx_region_t held[COUNT];
    registry_t *r = registry_open_threaded(REGX_UNLIMITED, false, false);

    (void)state;
    for (uintptr_t i = 0; i < COUNT; i++) {
        registry_get(r, (i + 1) * PAGE, PAGE, &held[i]);
    }
    registry_log(r, PAGE, COUNT * PAGE);
    for (unsigned i = 0; i < COUNT && (i == 0 || r->cache->work); i++) {
        regx_registry_progress(&r->registry);
    }
    assert_false(r->cache->work);
    assert_int_equal(r->live, COUNT);
    regx_region_release(&r->registry, &held[COUNT / 2]);
    for (unsigned i = 0; i < COUNT && r->cache->work; i++) {
        regx_registry_progress(&r->registry);
    }
    assert_false(r->cache->work);
    assert_int_equal(r->live, COUNT - 1);
    for (unsigned i = 0; i < COUNT; i++) {
        if (i != COUNT / 2) {
            regx_region_release(&r->registry, &held[i]);
        }
    }
    registry_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_release_by_another_thread_counts),
        cmocka_unit_test(threads_that_end_leave_their_states_and_their_uses),
        cmocka_unit_test(a_refused_use_holds_nothing),
        cmocka_unit_test(a_refused_use_that_held_up_deregistering_has_it_tried_again),
        cmocka_unit_test_teardown(uses_are_counted_after_a_barrier, free_barriers),
        cmocka_unit_test_teardown(one_barrier_serves_all_that_died_meanwhile, free_barriers),
        cmocka_unit_test(progress_with_nothing_to_do_does_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The thread that sleeps until something comes by tcp, on pipes.
 */
#include "../../unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "transport/tcp/tcp_watch.h"

typedef struct fixture {
    regx_tcp_watch_t watch;
    atomic_bool asleep;
    int events[2];
    int listener[2];
} fixture_t;

static int setup(void **state)
{
    static fixture_t fixture;

    fixture = (fixture_t){.watch.state = REGX_TCP_WATCH_NONE};
    assert_int_equal(pipe(fixture.events), 0);
    assert_int_equal(pipe(fixture.listener), 0);
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *fixture = *state;

    regx_tcp_watch_stop(&fixture->watch);
    for (int end = 0; end < 2; end++) {
        close(fixture->events[end]);
        close(fixture->listener[end]);
    }
    return 0;
}

static int threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    int count = 0;

    assert_non_null(folder);
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        count += entry->d_name[0] != '.';
    }
    closedir(folder);
    return count;
}

static regx_status_t arm(fixture_t *fixture)
{
    atomic_store(&fixture->asleep, true);
    return regx_tcp_watch_arm(&fixture->watch, fixture->events[0], fixture->listener[0],
                              &fixture->asleep);
}

/* While the thread sleeps in it: a race that the thread sanitizer need not tell. So is dup3
 * below. */
static void close_unseen(int descriptor)
{
    assert_int_equal(syscall(SYS_close, descriptor), 0);
}

static void wait_until_awake(fixture_t *fixture)
{
    while (atomic_load(&fixture->asleep)) {
        sched_yield();
    }
    assert_true(atomic_load(&fixture->watch.fired));
}

static void test_either_descriptor_wakes_the_owner(void **state)
{
    fixture_t *fixture = *state;
    char byte = 1;

    assert_int_equal(arm(fixture), REGX_OK);
    assert_int_equal(write(fixture->events[1], &byte, 1), 1);
    wait_until_awake(fixture);
    assert_int_equal(read(fixture->events[0], &byte, 1), 1);

    assert_int_equal(arm(fixture), REGX_OK);
    assert_false(atomic_load(&fixture->watch.fired));
    assert_int_equal(write(fixture->listener[1], &byte, 1), 1);
    wait_until_awake(fixture);
}

static void test_what_is_there_already_wakes_at_once(void **state)
{
    fixture_t *fixture = *state;
    const char byte = 1;

    assert_int_equal(write(fixture->events[1], &byte, 1), 1);
    assert_int_equal(arm(fixture), REGX_OK);
    wait_until_awake(fixture);
}

static void test_it_stops_while_it_sleeps(void **state)
{
    fixture_t *fixture = *state;

    assert_int_equal(arm(fixture), REGX_OK);
    regx_tcp_watch_stop(&fixture->watch);
    assert_int_equal(fixture->watch.state, REGX_TCP_WATCH_NONE);
    assert_true(atomic_load(&fixture->asleep));
}

/* A daemon closes all descriptors; the thread must not write into the owner's memory later. */
static void test_it_stops_after_the_program_closed_its_descriptor(void **state)
{
    fixture_t *fixture = *state;

    const int before = threads();

    assert_int_equal(arm(fixture), REGX_OK);
    close_unseen(fixture->watch.epoll);
    regx_tcp_watch_stop(&fixture->watch);
    while (threads() > before) { /* the kernel lists one for a moment after it was joined */
        sched_yield();
    }
}

/* And the number may be another file's by then, which stays open. */
static void test_it_leaves_open_what_has_its_number_now(void **state)
{
    fixture_t *fixture = *state;

    for (unsigned armed_again = 0; armed_again < 2; armed_again++) {
        assert_int_equal(arm(fixture), REGX_OK);
        const int number = fixture->watch.epoll;
        assert_int_equal(syscall(SYS_dup3, fixture->events[1], number, 0), number);
        if (armed_again) {
            assert_int_equal(arm(fixture), REGX_DENIED);
        }
        regx_tcp_watch_stop(&fixture->watch);
        assert_int_not_equal(fcntl(number, F_GETFD), -1);
        assert_int_equal(close(number), 0);
    }
}

static void test_its_descriptor_is_closed(void **state)
{
    fixture_t *fixture = *state;

    assert_int_equal(arm(fixture), REGX_OK);
    const int number = fixture->watch.epoll;
    regx_tcp_watch_stop(&fixture->watch);
    assert_int_equal(fcntl(number, F_GETFD), -1);
}

/* Whichever of those it watches the program has closed before. */
static void test_its_descriptor_is_closed_after_one_that_it_watches(void **state)
{
    fixture_t *fixture = *state;
    int *const watched[] = {&fixture->events[0], &fixture->listener[0]};

    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(arm(fixture), REGX_OK);
        const int number = fixture->watch.epoll;
        close_unseen(*watched[i]);
        regx_tcp_watch_stop(&fixture->watch);
        assert_int_equal(fcntl(number, F_GETFD), -1);
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        *watched[i] = ends[0]; /* for the next, and to be closed at the end */
        close(ends[1]);
    }
}

static void test_a_closed_descriptor_refuses_the_watch(void **state)
{
    fixture_t *fixture = *state;

    assert_int_equal(arm(fixture), REGX_OK);
    close_unseen(fixture->watch.epoll);
    assert_int_equal(arm(fixture), REGX_DENIED);
    assert_int_equal(fixture->watch.state, REGX_TCP_WATCH_REFUSED);
    assert_int_equal(arm(fixture), REGX_DENIED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_either_descriptor_wakes_the_owner, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_there_already_wakes_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_it_stops_while_it_sleeps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_it_stops_after_the_program_closed_its_descriptor,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_it_leaves_open_what_has_its_number_now, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_its_descriptor_is_closed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_its_descriptor_is_closed_after_one_that_it_watches,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_closed_descriptor_refuses_the_watch, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

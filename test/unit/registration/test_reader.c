/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The notifier's reader as a thread among the application's: it calls nothing that a tracer may
 * have wrapped, runs where and when it can, and survives that its descriptors are closed.
 */
#include "monitored.h"

#include <poll.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "../process.h"

/* ---- a tracer, as if preloaded ---- */

static _Atomic unsigned traced; /* calls by other threads than the first */

static void trace(void)
{
    if (syscall(SYS_gettid) != getpid()) {
        atomic_fetch_add(&traced, 1);
    }
}

ssize_t read(int fd, void *buffer, size_t length)
{
    trace();
    return syscall(SYS_read, fd, buffer, length);
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    trace();
    return (int)syscall(SYS_ppoll, fds, count,
                        timeout < 0 ? NULL : &(struct timespec){.tv_nsec = timeout * 1000000L},
                        NULL, 0);
}

static void events_are_read_without_libcs_read_and_poll(void **state)
{
    (void)state;
    atomic_store(&traced, 0);
    regx_monitor_t *monitor = start();
    for (unsigned i = 0; i < 10; i++) {
        region_t region = must_keep(monitor, map(LENGTH), LENGTH);

        assert_int_equal(munmap((void *)region.start, LENGTH), 0);
        assert_false(hits(&region));
        drop(&region);
    }
    monitor->stop(monitor);
    assert_int_equal(atomic_load(&traced), 0);
}

/* ---- where and when it runs ---- */

static pid_t reader_id(void)
{
    return process_thread("regx-notifier");
}

static void it_inherits_neither_cores_nor_policy(void **state)
{
    const struct sched_param none = {0};
    cpu_set_t before, one, its;
    size_t cpu = 0;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    if (CPU_COUNT(&before) < 2) {
        print_message("not tried: one core alone\n");
        skip();
    }
    while (!CPU_ISSET(cpu, &before)) {
        cpu++;
    }
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    regx_monitor_t *monitor = start();
    pid_t reader;
    while ((reader = reader_id()) == 0) {
        sched_yield(); /* it has not got its name yet */
    }
    const int failed = sched_getaffinity(reader, sizeof(its), &its);
    const int policy = sched_getscheduler(reader);
    assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &none), 0);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    monitor->stop(monitor);
    assert_int_equal(failed, 0);
    assert_true(CPU_COUNT(&its) >= CPU_COUNT(&before));
    assert_int_equal(policy, SCHED_OTHER);
}

/* ---- descriptors that somebody else closes ---- */

static int lowest_free(void)
{
    const int fd = dup(0);

    assert_true(fd >= 0);
    close(fd);
    return fd;
}

/* As a program does that knows of no descriptors but its own (closefrom, before exec or not). */
static void after_closefrom_nothing_is_kept_and_no_other_file_is_touched(void **state)
{
    enum { FILES = 12 };
    int files[FILES];

    (void)state;
    const int first = lowest_free();
    regx_monitor_t *monitor = start();
    region_t region = must_keep(monitor, map(LENGTH), LENGTH);

    assert_true(hits_in_the_end(&region));
    assert_int_equal(syscall(SYS_close_range, first, ~0U, 0), 0);
    for (int i = 0; i < FILES; i++) { /* the numbers are others' now */
        files[i] = memfd_create("others", 0);
        assert_true(files[i] >= 0);
    }
    assert_int_equal(munmap((void *)region.start, LENGTH), 0); /* waits for nobody */
    assert_false(hits(&region));
    region_t later = keep(monitor, map(LENGTH), LENGTH);
    assert_int_equal(later.status, REGX_DENIED);
    assert_false(hits(&region) || hits(&later));
    while (reader_id() != 0) {
        sched_yield(); /* it does not spin for ever */
    }
    drop(&region);
    drop(&later);
    munmap((void *)later.start, LENGTH);
    monitor->stop(monitor);
    for (int i = 0; i < FILES; i++) {
        assert_int_equal(lseek(files[i], 0, SEEK_END), 0); /* open, and nothing was written */
        close(files[i]);
    }
}

static void a_forked_child_closes_no_other_file_either(void **state)
{
    int files[12], status = -1;

    (void)state;
    const int first = lowest_free();
    regx_monitor_t *monitor = start();
    assert_int_equal(syscall(SYS_close_range, first, ~0U, 0), 0);
    for (unsigned i = 0; i < 12; i++) {
        files[i] = memfd_create("others", 0);
    }
    const pid_t child = fork();
    if (child == 0) {
        int closed = 0;

        for (unsigned i = 0; i < 12; i++) {
            closed += lseek(files[i], 0, SEEK_END) != 0;
        }
        /* _exit would have the thread sanitizer miss the reader, which has ended. */
        syscall(SYS_exit_group, closed);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    monitor->stop(monitor);
    for (unsigned i = 0; i < 12; i++) {
        close(files[i]);
    }
}

/* The reader notices at the next change; stop must not write to a pipe that nobody reads, which
 * would end the process (SIGPIPE). */
static void stopping_outlives_the_loss_of_any_one_descriptor(void **state)
{
    const int first = lowest_free();

    (void)state;
    for (int lost = first;; lost++) {
        regx_monitor_t *monitor = start();
        const int end = dup(0); /* beyond them all */

        close(end);
        if (lost >= end) {
            monitor->stop(monitor);
            break;
        }
        region_t region = keep(monitor, map(LENGTH), LENGTH);
        assert_int_equal(syscall(SYS_close, lost), 0);
        assert_int_equal(munmap((void *)region.start, LENGTH), 0);
        drop(&region);
        monitor->stop(monitor);
        assert_int_equal(lowest_free(), first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_read_without_libcs_read_and_poll),
        cmocka_unit_test(it_inherits_neither_cores_nor_policy),
        cmocka_unit_test(after_closefrom_nothing_is_kept_and_no_other_file_is_touched),
        cmocka_unit_test(a_forked_child_closes_no_other_file_either),
        cmocka_unit_test(stopping_outlives_the_loss_of_any_one_descriptor),
    };

    return refused() ? 0 : cmocka_run_group_tests(tests, give_up_in_time, NULL);
}

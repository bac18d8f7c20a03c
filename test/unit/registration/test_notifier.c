/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The notifier: what it watches and what it refuses, a change in the middle, threads that change
 * memory all the time, and its reader as a thread among the application's. What each change does
 * to what is kept is in test/registration (the table of staleness).
 */
#include "../../registration/hold.h"
#include "../process.h"
#include "base/file.h"
#include "monitored.h"

#include <poll.h>
#include <sys/shm.h>
#include <sys/timerfd.h>
#include <time.h>

/* ---- kinds of memory ---- */

static void attach_over(char *base)
{
    const int id = shmget(IPC_PRIVATE, LENGTH, 0600);

    assert_ptr_equal(shmat(id, base, SHM_REMAP), base);
    assert_int_equal(shmctl(id, IPC_RMID, NULL), 0);
}

/* What replaced it unseen is watched along with a neighbour: nothing kept from before may come back
 * to life. */
WATCHED(what_was_replaced_unseen_stays_ended_when_watched_again)
{
    char *base = mmap(NULL, (size_t)4 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *inside = (char *)(((uintptr_t)base + (2 << 20) - 1) >> 21 << 21);

    munmap(base, (size_t)4 << 20);
    unit_map(inside, 2 * LENGTH);
    region_t region = must_keep(*state, inside, LENGTH / 2);
    assert_true(hits_in_the_end(&region));
    attach_over(inside);
    shmdt(inside);
    unit_map(inside, LENGTH);
    region_t part = must_keep(*state, inside + LENGTH / 2, LENGTH);
    assert_false(hits_in_the_end(&region));
    assert_true(hits_in_the_end(&part));
    drop(&region);
    drop(&part);
    munmap(inside, 2 * LENGTH);
}

static uint64_t tally(const char *reason)
{
    return atomic_load(&regx_tally_find(counters.fallbacks, reason)->count);
}

static void must_not_keep(regx_monitor_t *monitor, void *base, size_t length, const char *reason)
{
    const uint64_t before = tally(reason);
    region_t region = keep(monitor, base, length);

    unit_expect(region.status == REGX_DENIED && tally(reason) == before + 1 &&
                    strstr(traced_line, reason) != NULL,
                "answered %d, traced \"%s\", expected: %s", (int)region.status, traced_line,
                reason);
    drop(&region);
}

WATCHED(shared_memory_and_files_are_refused_with_the_reason)
{
    const int fd = memfd_create("regx", MFD_CLOEXEC);
    char *shared = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *private = map(3 * LENGTH);

    assert_int_equal(ftruncate(fd, LENGTH), 0);
    char *file = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    assert_true(shared != MAP_FAILED && file != MAP_FAILED);
    must_not_keep(*state, shared, LENGTH, "not watched: shared memory");
    must_not_keep(*state, file, LENGTH, "not watched: a mapping of a file");
    attach_over(private + LENGTH);
    must_not_keep(*state, private, 3 * LENGTH, "not watched: shared memory");
    shmdt(private + LENGTH);
    must_not_keep(*state, private, 3 * LENGTH, "not watched: not all of it is mapped");
    must_not_keep(*state, private + LENGTH, LENGTH, "not watched: not all of it is mapped");
    assert_int_equal(munmap(private + 3 * LENGTH - PAGE, PAGE), 0);
    must_not_keep(*state, private + 2 * LENGTH, LENGTH, "not watched: not all of it is mapped");
    munmap(private, 3 * LENGTH);
    munmap(shared, LENGTH);
    munmap(file, LENGTH);
    close(fd);
}

/* Watching a part of a mapping would split it for good: the program could not move it any more. */
WATCHED(a_mapping_of_which_a_part_is_watched_can_be_moved)
{
    char *base = map(2 * LENGTH);
    region_t region = must_keep(*state, base + PAGE, PAGE);
    char *onto = map(2 * LENGTH);

    assert_ptr_equal(mremap(base, 2 * LENGTH, 2 * LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, onto),
                     onto);
    assert_false(hits(&region));
    drop(&region);
    munmap(onto, 2 * LENGTH);
}

/* ---- in the middle of a change ---- */

static void *unmap_it(void *base)
{
    munmap(base, LENGTH);
    return NULL;
}

/* The thread that unmapped goes on, but the log does not have it yet: the sequence alone knows. */
WATCHED(a_change_that_was_read_and_not_logged_misses)
{
    region_t region = must_keep(*state, map(LENGTH), LENGTH);

    assert_true(hits_in_the_end(&region));
    hold_reader(HOLD_BEFORE_LOG);
    const pthread_t thread = unit_thread(unmap_it, (void *)region.start);
    await(hold_is_held());
    pthread_join(thread, NULL);
    assert_true(region.monitor->valid(region.monitor));
    assert_false(
        regx_inval_log_touched(region.monitor->log, region.since, region.start, region.end, true));
    assert_false(hits(&region));
    hold_reader(HOLD_NOWHERE);
    assert_false(hits_in_the_end(&region));
    drop(&region);
}

/* ---- threads that change memory ---- */

static _Atomic bool enough;

static void *map_and_unmap(void *unused)
{
    while (!atomic_load(&enough)) {
        /* Not map(): each would leave the page that closes its gap, and there is a limit. */
        char *base = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(base, LENGTH);
    }
    return NULL;
}

/* The end comes while others change what is watched. */
UNIT_TEST(stopping_while_threads_map_and_unmap_hangs_none)
{
    pthread_t threads[2];

    atomic_store(&enough, false);
    for (int i = 0; i < 2; i++) {
        threads[i] = unit_thread(map_and_unmap, NULL);
    }
    for (int round = 0; round < 5; round++) {
        regx_monitor_t *monitor = start();
        char *base = map((size_t)8 << 20); /* some of theirs lies beside it */

        for (int i = 0; i < 50; i++) {
            region_t region = keep(monitor, base, (size_t)8 << 20);
            drop(&region);
        }
        monitor->stop(monitor);
        munmap(base, (size_t)8 << 20);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
}

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

UNIT_TEST(events_are_read_without_libcs_read_and_poll)
{
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

static uint64_t blocked_signals(pid_t thread)
{
    char path[64], line[128];
    uint64_t blocked = 0;

    snprintf(path, sizeof(path), "/proc/self/task/%d/status", (int)thread);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "SigBlk: %lx", &blocked);
    }
    fclose(file);
    return blocked;
}

UNIT_TEST(it_takes_no_signal_and_inherits_neither_cores_nor_policy)
{
    const uint64_t own = UINT64_C(1) << (SIGKILL - 1) | UINT64_C(1) << (SIGSTOP - 1);
    const struct sched_param none = {0};
    cpu_set_t before, one, its;
    size_t cpu = 0;

    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    unit_need(CPU_COUNT(&before) >= 2, "one core alone");
    while (!CPU_ISSET(cpu, &before)) {
        cpu++;
    }
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    regx_monitor_t *monitor = start();
    pid_t reader;
    await((reader = reader_id()) != 0); /* it has not got its name yet */
    const uint64_t blocked = blocked_signals(reader);
    const int failed = sched_getaffinity(reader, sizeof(its), &its);
    const int policy = sched_getscheduler(reader);
    assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &none), 0);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    monitor->stop(monitor);
    assert_int_equal((uint32_t)(blocked | own) & 0x7fffffff, 0x7fffffff);
    assert_int_equal(failed, 0);
    assert_true(CPU_COUNT(&its) >= CPU_COUNT(&before));
    assert_int_equal(policy, SCHED_OTHER);
}

/* ---- descriptors that the program closes ---- */

/* least: REGX_DESCRIPTOR_HIGH, of those that regx takes, or 0, of the program's. */
static int lowest_free(int least)
{
    const int fd = fcntl(0, F_DUPFD, least);

    close(fd);
    return fd;
}

/* As a program does that knows of no descriptors but its own (closefrom, before exec or not). */
UNIT_TEST(after_closefrom_nothing_is_kept_and_no_other_file_is_touched)
{
    enum { FILES = 12 };
    int files[FILES];

    const int first = lowest_free(REGX_DESCRIPTOR_HIGH);
    regx_monitor_t *monitor = start();
    region_t region = must_keep(monitor, map(LENGTH), LENGTH);

    assert_true(hits_in_the_end(&region));
    assert_int_equal(syscall(SYS_close_range, first, ~0U, 0), 0);
    for (int i = 0; i < FILES; i++) { /* the numbers are others' now */
        files[i] = regx_descriptor_move(memfd_create("others", 0));
        assert_true(files[i] >= 0);
    }
    if (process_in_child()) { /* which closes no other file, either */
        int closed = 0;

        for (int i = 0; i < FILES; i++) {
            closed += lseek(files[i], 0, SEEK_END) != 0;
        }
        /* _exit would have the thread sanitizer miss the reader, which has ended. */
        syscall(SYS_exit_group, closed);
    }
    assert_int_equal(munmap((void *)region.start, LENGTH), 0); /* waits for no one */
    assert_false(hits(&region));
    await(reader_id() == 0);                         /* it does not spin for ever */
    assert_int_equal(monitor->log->sequence % 2, 1); /* whatever the query's number becomes */
    assert_int_equal(monitor->subscribe(monitor, region.start, region.end, &region.since),
                     REGX_DENIED);
    assert_false(hits(&region));
    drop(&region);
    monitor->stop(monitor);
    for (int i = 0; i < FILES; i++) {
        assert_int_equal(lseek(files[i], 0, SEEK_END), 0); /* open, and nothing was written */
        close(files[i]);
    }
}

/* The reader notices in time, also if its number is then a file of which it would never hear; stop
 * must not write to a pipe without a reader, which would end the process (SIGPIPE). */
UNIT_TEST(stopping_outlives_the_loss_of_any_one_descriptor)
{
    const int silent = timerfd_create(CLOCK_MONOTONIC, 0), low = lowest_free(0);
    const int first = lowest_free(REGX_DESCRIPTOR_HIGH);

    for (int lost = first, end = first + 1; lost < end; lost++) {
        for (int taken = 0; taken <= 1; taken++) {
            regx_monitor_t *monitor = start();
            region_t region = keep(monitor, map(LENGTH), LENGTH);

            end = lowest_free(REGX_DESCRIPTOR_HIGH);
            assert_int_equal(lowest_free(0), low); /* a standard stream that is closed stays so */
            assert_int_equal(syscall(SYS_close, lost), 0);
            assert_true(taken == 0 || dup2(silent, lost) == lost);
            assert_int_equal(munmap((void *)region.start, LENGTH), 0);
            drop(&region);
            monitor->stop(monitor);
            assert_true(taken == 0 || close(lost) == 0);
            assert_int_equal(lowest_free(REGX_DESCRIPTOR_HIGH), first);
        }
    }
    close(silent);
}

static void *stop_without_descriptors(void *monitor)
{
    if (unshare(CLONE_FILES) == 0 && syscall(SYS_close_range, REGX_DESCRIPTOR_HIGH, ~0U, 0) == 0) {
        ((regx_monitor_t *)monitor)->stop(monitor);
        return monitor;
    }
    return NULL;
}

/* A thread that has a table of its own has closed there what it does not know: it cannot wake the
 * reader. */
UNIT_TEST(a_thread_that_closed_them_for_itself_can_stop_it)
{
    const int first = lowest_free(REGX_DESCRIPTOR_HIGH);
    regx_monitor_t *monitor = start();
    region_t region = must_keep(monitor, map(LENGTH), LENGTH);
    void *stopped;

    drop(&region);
    const pthread_t thread = unit_thread(stop_without_descriptors, monitor);
    assert_int_equal(pthread_join(thread, &stopped), 0);
    assert_ptr_equal(stopped, monitor);
    assert_int_equal(munmap((void *)region.start, LENGTH), 0); /* waits for no one */
    assert_int_equal(syscall(SYS_close_range, first, ~0U, 0), 0);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The notifier and processes: none is in another's way, and nothing is left in this one at the end.
 */
#include "../process.h"
#include "monitored.h"

#include <spawn.h>

extern char **environ;

/* In a child, where nothing may be asserted: 0 if it is inert. */
static int inert(region_t *region)
{
    regx_monitor_t *monitor = region->monitor;
    uint64_t since;

    return hits(region)                                                                     ? 1
           : monitor->subscribe(monitor, region->start, region->end, &since) != REGX_DENIED ? 2
           : munmap((void *)region->start, region->end - region->start) != 0                ? 3
                                                                                            : 0;
}

UNIT_TEST(a_forked_child_is_inert)
{
    const unsigned without = process_descriptors();
    regx_monitor_t *monitor = start();
    region_t region = must_keep(monitor, map(LENGTH), LENGTH);

    assert_true(hits_in_the_end(&region));
    if (process_in_child()) {
        alarm(UNIT_PATIENCE);
        int fault = inert(&region);
        if (fault == 0 && process_descriptors() != without) {
            fault = 4;
        }
        monitor->stop(monitor);
#ifndef __SANITIZE_THREAD__ /* which lets no thread start here */
        /* It may have a monitor of its own. */
        monitor = start();
        region = keep(monitor, map(LENGTH), LENGTH);
        if (fault == 0 && (region.status != REGX_OK || !hits_in_the_end(&region))) {
            fault = 5;
        }
        monitor->stop(monitor);
#endif
        _exit(fault);
    }
    assert_true(hits_in_the_end(&region)); /* nothing of ours changed */
    assert_int_equal(munmap((void *)region.start, PAGE), 0);
    assert_false(hits(&region));
    drop(&region);
    monitor->stop(monitor);
}

/* Raw clone runs no handlers: the child lives on with our descriptor. */
UNIT_TEST(a_cloned_child_is_inert)
{
    int went[2];
    int go[2];
    char byte = 0;

    regx_monitor_t *monitor = start();
    char *base = map(2 * LENGTH);
    region_t region = must_keep(monitor, base, LENGTH);

    assert_true(pipe(went) == 0 && pipe(go) == 0);
    assert_true(hits_in_the_end(&region));
    const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        alarm(UNIT_PATIENCE);
        close(go[1]);
        const int fault = inert(&region);
#ifndef __SANITIZE_THREAD__ /* which takes the child for one of our threads */
        monitor->stop(monitor);
#endif
        if (write(went[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 0) {
            _exit(9);
        }
        _exit(fault);
    }
    close(go[0]);
    assert_int_equal(read(went[0], &byte, 1), 1); /* it has done what it could do to us */
    assert_true(hits_in_the_end(&region));
    assert_int_equal(munmap(base, PAGE), 0);
    assert_false(hits(&region));
    drop(&region);
    monitor->stop(monitor);
    assert_int_equal(munmap(base + PAGE, PAGE), 0); /* does not wait */
    assert_int_equal(munmap(base + LENGTH, LENGTH), 0);
    /* And again, with that child still there. */
    monitor = start();
    region = must_keep(monitor, base + 2 * PAGE, PAGE);
    assert_int_equal(munmap(base + 2 * PAGE, PAGE), 0);
    assert_false(hits(&region));
    drop(&region);
    monitor->stop(monitor);
    close(go[1]);
    close(went[0]);
    close(went[1]);
    process_must_end_well(child);
}

static struct {
    char *low, *high;
    atomic_bool end;
    atomic_uint moves;
} mover;

static void *move_to_and_fro(void *unused)
{
    char *from = mover.high;

    while (!atomic_load(&mover.end)) {
        char *to = from == mover.high ? mover.low : mover.high;

        assert_true(mremap(from, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
        from = to;
        atomic_fetch_add(&mover.moves, 1);
    }
    return NULL;
}

/* What a thread moves from where stopping has yet to look to where it has looked must not stay
 * watched: with such a child there, its next move would never be read, and that thread would wait
 * for ever. */
UNIT_TEST(stopping_leaves_nothing_watched_while_a_thread_moves_memory)
{
    enum { BETWEEN = 300 }; /* mappings that stopping has to look at on its way */
    const size_t length = 2 * BETWEEN * PAGE + 2 * LENGTH;

    for (int round = 0; round < 3; round++) {
        char *area =
            mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        int go[2];
        char byte;

        mover.low = area;
        mover.high = area + length - LENGTH;
        for (int i = 0; i < BETWEEN; i++) {
            assert_true(mprotect(area + LENGTH + (size_t)(2 * i) * PAGE, PAGE, PROT_READ) == 0);
        }
        assert_true(mprotect(mover.high, LENGTH, PROT_READ | PROT_WRITE) == 0);
        memset(mover.high, 1, LENGTH);
        regx_monitor_t *monitor = start();
        region_t region = must_keep(monitor, mover.high, LENGTH);
        drop(&region);
        assert_int_equal(pipe(go), 0);
        const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
            alarm(UNIT_PATIENCE);
            close(go[1]);
            _exit(read(go[0], &byte, 1) == 0 ? 0 : 9);
        }
        close(go[0]);
        atomic_store(&mover.end, false);
        atomic_store(&mover.moves, 0);
        const pthread_t thread = unit_thread(move_to_and_fro, NULL);
        await(atomic_load(&mover.moves) >= 10);
        monitor->stop(monitor);
        const unsigned moves = atomic_load(&mover.moves);
        await(atomic_load(&mover.moves) >= moves + 3); /* it does not wait */
        atomic_store(&mover.end, true);
        pthread_join(thread, NULL);
        close(go[1]);
        process_must_end_well(child);
        munmap(area, length);
    }
}

WATCHED(programs_are_started_in_other_ways)
{
    char *const arguments[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c",
                               (char *)(uintptr_t) "! ls -l /proc/self/fd | grep userfault", NULL};
    region_t region = must_keep(*state, map(LENGTH), LENGTH);
    char line[256];
    pid_t child;

    assert_true(hits_in_the_end(&region));
    assert_int_equal(posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ), 0);
    process_must_end_well(child);
    assert_int_equal(system(arguments[2]), 0);
    FILE *output = popen("ls -l /proc/self/fd", "r");
    assert_non_null(output);
    while (fgets(line, sizeof(line), output) != NULL) {
        assert_null(strstr(line, "userfault"));
    }
    pclose(output);
    child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    process_must_end_well(child);
    assert_true(hits_in_the_end(&region));
    assert_int_equal(munmap((void *)region.start, LENGTH), 0);
    assert_false(hits(&region));
    drop(&region);
}

/* Forks from one thread while monitors come and go in another: no child keeps a descriptor. */
static _Atomic bool enough;

static void *fork_often(void *without)
{
    unsigned long wrong = 0;

    for (int i = 0; i < 12; i++) {
        int status = -1;
        const pid_t child = fork();

        if (child == 0) {
            _exit(process_descriptors() == *(unsigned *)without ? 0 : 1);
        }
        waitpid(child, &status, 0);
        wrong += status != 0;
    }
    atomic_store(&enough, true);
    return (void *)wrong;
}

UNIT_TEST(forks_while_it_starts_and_stops)
{
    unsigned without = process_descriptors();
    void *wrong;

    atomic_store(&enough, false);
    const pthread_t thread = unit_thread(fork_often, &without);
    while (!atomic_load(&enough)) {
        regx_monitor_t *monitor = start();
        monitor->stop(monitor);
    }
    pthread_join(thread, &wrong);
    assert_null(wrong);
}

static unsigned watched_mappings(void)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned count = 0;

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " uw") != NULL) {
            count++;
        }
    }
    fclose(file);
    return count;
}

UNIT_TEST(stop_leaves_no_descriptor_thread_or_watched_memory)
{
    const unsigned before = process_descriptors();
    char *base = map((size_t)16 << 20);
    const unsigned threads_before = process_threads();

    for (int again = 0; again < 2; again++) {
        regx_monitor_t *monitor = start();
        region_t heap = keep(monitor, (void *)((uintptr_t)sbrk(0) - LENGTH), LENGTH);
        region_t region = must_keep(monitor, base, LENGTH);
        region_t another = must_keep(monitor, base + (10 << 20), LENGTH);

        assert_true(watched_mappings() >= (heap.status == REGX_OK ? 2u : 1u));
        /* Watched memory that went elsewhere. */
        assert_ptr_not_equal(mremap(base, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0),
                             MAP_FAILED);
        drop(&heap);
        drop(&region);
        drop(&another);
        monitor->stop(monitor);
        assert_int_equal(watched_mappings(), 0);
        assert_int_equal(process_descriptors(), before);
        await(process_threads() <= threads_before); /* one that was joined may yet be seen */
    }
    munmap(base, (size_t)16 << 20);
}

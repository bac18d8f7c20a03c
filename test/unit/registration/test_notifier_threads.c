/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The notifier and threads: those that change what it monitors, in malloc too, and its own.
 */
#include "monitored.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* Blocks of malloc's that come and go, so that free unmaps and trims with malloc's lock held, while
 * they are watched. */
static void *allocate(void *monitor)
{
    for (int i = 0; i < 3000; i++) {
        const size_t length = (size_t)(1 + i % 40) * 16 * 1024;
        char *block = malloc(length);

        block[0] = 1;
        char *first = (char *)(((uintptr_t)block + PAGE - 1) / PAGE * PAGE);
        region_t region = keep(monitor, first, (size_t)(block + length - first) / PAGE * PAGE);
        free(block);
        drop(&region);
    }
    return NULL;
}

static void threads_inside_malloc_do_not_hang(void **state)
{
    pthread_t threads[3];

    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, allocate, *state), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_not_equal(((regx_monitor_t *)*state)->log->head, 0);
}

static _Atomic bool enough;

static void *map_and_unmap(void *unused)
{
    (void)unused;
    while (!atomic_load(&enough)) {
        /* Not map(): each would leave the page that closes its gap, and there is a limit. */
        char *base = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(base, LENGTH);
    }
    return NULL;
}

/* The end comes while others change what is watched. */
static void stopping_while_threads_map_and_unmap_hangs_nobody(void **state)
{
    pthread_t threads[2];

    (void)state;
    atomic_store(&enough, false);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, map_and_unmap, NULL), 0);
    }
    for (int round = 0; round < 20; round++) {
        regx_monitor_t *monitor = start();
        char *base = map((size_t)8 << 20); /* some of theirs lies beside it */

        for (int i = 0; i < 200; i++) {
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

/* How many threads of that name there are, and what one of them blocks. */
static unsigned readers(uint64_t *blocked)
{
    DIR *directory = opendir("/proc/self/task");
    struct dirent *entry;
    unsigned count = 0;

    assert_non_null(directory);
    while ((entry = readdir(directory)) != NULL) {
        char path[300];
        char line[128];
        bool ours = false;

        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
            if (strcmp(line, "Name:\tregx-notifier\n") == 0) {
                ours = true;
                count++;
            } else if (ours) {
                (void)sscanf(line, "SigBlk: %lx", blocked);
            }
        }
        if (file != NULL) {
            fclose(file);
        }
    }
    closedir(directory);
    return count;
}

static void the_reader_takes_no_signal(void **state)
{
    uint64_t blocked = 0;
    sigset_t mine;

    (void)state;
    while (readers(&blocked) > 1) { /* the one of the test before, which was joined */
        sched_yield();
    }
    assert_int_equal(readers(&blocked), 1);
    for (int number = 1; number < 32; number++) {
        if (number != SIGKILL && number != SIGSTOP) {
            assert_true((blocked >> (number - 1) & 1) == 1);
        }
    }
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    assert_int_equal(sigismember(&mine, SIGUSR1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WATCHED(threads_inside_malloc_do_not_hang),
        cmocka_unit_test(stopping_while_threads_map_and_unmap_hangs_nobody),
        WATCHED(the_reader_takes_no_signal),
    };

    return refused() ? 0 : cmocka_run_group_tests(tests, give_up_in_time, NULL);
}

// SPDX-License-Identifier: BSD-3-Clause
//
// Changes of memory: of what is registered, and of what is not.

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { MANY = 5000, UNMAPS = 201, KEPT = 1000, TURNS = 201, TURN = 16 };

// With a second thread, as each MPI process has, munmap takes some percent longer, though it sleeps
// and whatever watches; the notifier's reader must not look like the cause.
static void *sleep_on(void *core)
{
    bench_bind(*(const int *)core);
    for (;;) {
        pause();
    }
    return NULL;
}

static void have_company(void)
{
    static bool had;
    pthread_t sleeper;
    if (!had && pthread_create(&sleeper, NULL, sleep_on, &bench.cores[bench.core_count - 1]) != 0) {
        bench_fail("no thread");
    }
    had = true;
}

// ---- many regions at once

// apart: with the next acquire of something else, and all deregistrations that are left then.
static void many(const metric_t *metric)
{
    const size_t bytes = (size_t)MANY * 2 * bench.page;
    double times[TIMES];

    have_company();
    for (int time = 0; time < TIMES; time++) {
        unsigned char *other = bench_map_apart(REGION), *memory = bench_map(bytes);
        madvise(memory, bytes, MADV_NOHUGEPAGE);
        memset(memory, 1, bytes);
        bench_use(other, REGION);
        for (size_t i = 0; i < MANY; i++) {
            bench_use(memory + i * 2 * bench.page, bench.page);
        }
        const uint64_t deregistrations = cache_deregistrations();
        const double start = bench_now();
        bench_unmap(memory, bytes);
        const double unmapped = bench_now();
        bench_use(other, REGION);
        cache_settle();
        times[time] = metric->apart ? bench_now() - unmapped : unmapped - start;
        if (bench.kind == TOLD && cache_deregistrations() - deregistrations < MANY) {
            bench_fail("%s: not all regions that were unmapped were deregistered", metric->name);
        }
        bench_unmap_apart(other, REGION);
        cache_settle();
    }
    bench_print(metric, 1e6 * bench_median(times, TIMES));
}

// ---- munmap of 64 KiB

// apart: of what was never registered, while other memory is.
static void unmap_each(const metric_t *metric)
{
    unsigned char *kept = bench_map(KEPT * STRIDE);
    double times[UNMAPS];
    have_company();
    for (size_t i = 0; i < KEPT && metric->apart; i++) {
        bench_use(kept + i * STRIDE, REGION);
    }
    for (int i = 0; i < UNMAPS; i++) {
        unsigned char *memory = bench_map_apart(REGION);
        memset(memory, 1, REGION);
        if (!metric->apart) {
            bench_use(memory, REGION);
        }
        const double start = bench_now();
        bench_unmap(memory, REGION);
        times[i] = bench_now() - start;
        bench_unmap(memory - bench.page, bench.page);
        bench_unmap(memory + REGION, bench.page);
        cache_settle();
    }
    bench_print(metric, 1e6 * bench_median(times, UNMAPS));
    bench_unmap(kept, KEPT * STRIDE);
    cache_settle();
}

// ---- changes of memory that is not registered, beside regions that are

typedef enum { MMAP, MUNMAP, MADVISE } change_t; // count of a metric

// Of memory at that address, where nothing else is near: what mmap and munmap do depends on their neighbours.
// The median of some. The first follow a change of processes, and do not count.
static double change_time(change_t change, unsigned char *place)
{
    enum { FIRST = 4 };
    double times[TURN];
    for (int i = -FIRST; i < TURN; i++) {
        const double before = bench_now();
        unsigned char *memory = mmap(place, REGION, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        const double mapped = bench_now();
        if (memory != place) {
            bench_fail("cannot map at a place of its own");
        }
        madvise(memory, REGION, MADV_NOHUGEPAGE);
        memset(memory, 1, REGION);
        const double filled = bench_now();
        if (change == MADVISE) {
            madvise(memory, bench.page, MADV_DONTNEED);
        } else {
            bench_unmap(memory, REGION);
        }
        const double changed = bench_now();
        times[i < 0 ? 0 : i] = change == MMAP ? mapped - before : changed - filled;
        if (change == MADVISE) {
            bench_unmap(memory, REGION);
        }
    }
    return bench_median(times, TURN);
}

// How many times as long it takes as in a process that keeps nothing: a child, forked before anything is
// registered, which takes turns with this process on the same core.
static void beside(const metric_t *metric)
{
    unsigned char *kept = bench_map(KEPT * STRIDE);
    const size_t apart = (size_t)16 << 30;
    unsigned char *hole = bench_map(2 * apart), *place = hole + apart;
    double ratios[TURNS], theirs;
    int turn[2], answer[2];
    char go = 0;

    munmap(hole, 2 * apart);
    if (pipe(turn) != 0 || pipe(answer) != 0) {
        bench_fail("no pipe");
    }
    bench_bind(bench.cores[0]);
    const pid_t child = fork();
    if (child < 0) {
        bench_fail("no child");
    }
    if (child == 0) {
        close(turn[1]);
        while (read(turn[0], &go, 1) == 1) {
            theirs = change_time((change_t)metric->count, place);
            if (write(answer[1], &theirs, sizeof(theirs)) != sizeof(theirs)) {
                break;
            }
        }
        _exit(0);
    }
    close(answer[1]);
    for (size_t i = 0; i < KEPT; i++) {
        bench_use(kept + i * STRIDE, REGION);
    }
    for (int i = 0; i < TURNS; i++) {
        const double ours = change_time((change_t)metric->count, place);
        if (write(turn[1], &go, 1) != 1 ||
            read(answer[0], &theirs, sizeof(theirs)) != sizeof(theirs)) {
            bench_fail("%s: the child ended", metric->name);
        }
        ratios[i] = ours / theirs;
    }
    bench_print(metric, bench_median(ratios, TURNS));
    close(turn[0]);
    close(turn[1]);
    close(answer[0]);
    waitpid(child, NULL, 0);
    bench_unmap(kept, KEPT * STRIDE);
    cache_settle();
}

const metric_t change_metrics[] = {
    // First: later this process has a second thread, which the child has not.
    {.name = "beside_mmap", .measure = beside, .count = MMAP, .unmaps = true},
    {.name = "beside_munmap", .measure = beside, .count = MUNMAP, .unmaps = true},
    {.name = "beside_madvise", .measure = beside, .count = MADVISE, .unmaps = true},
    {.name = "many_unmapped", .measure = many, .unmaps = true},
    {.name = "many_settled", .measure = many, .apart = true, .unmaps = true},
    {.name = "unmap_unwatched", .measure = unmap_each, .apart = true, .unmaps = true},
    {.name = "unmap_watched", .measure = unmap_each, .unmaps = true},
    {.name = NULL},
};

// SPDX-License-Identifier: BSD-3-Clause
//
// Changes of memory: munmap of what is registered and of what is not.

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"

enum { MANY = 5000, UNMAPS = 201, KEPT = 1000 };

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

const metric_t change_metrics[] = {
    {.name = "many_unmapped", .measure = many, .unmaps = true},
    {.name = "many_settled", .measure = many, .apart = true, .unmaps = true},
    {.name = "unmap_unwatched", .measure = unmap_each, .apart = true, .unmaps = true},
    {.name = "unmap_watched", .measure = unmap_each, .unmaps = true},
    {.name = NULL},
};

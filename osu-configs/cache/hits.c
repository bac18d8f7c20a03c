// SPDX-License-Identifier: BSD-3-Clause
//
// Hits: acquire and release of what is kept, by one thread and by several at once; and what the
// question to the kernel costs that some ask.

#include <pthread.h>
#include <stdlib.h>

#include "bench.h"

#define OPERATIONS 100000 // of one batch: whole walks through 10,000 regions
enum { WALKERS = 4 };

typedef struct walk {
    unsigned char **regions; // shuffled
    size_t count;
    double median; // of the batches' times
    int core;
    pthread_barrier_t *start;
} walk_t;

static void run_walk(const walk_t *walk, uint64_t operations)
{
    cache_use_t use; // without bench_use, which would cost a call
    size_t at = 0;
    for (uint64_t i = 0; i < operations; i++) {
        if (cache_acquire(walk->regions[at], REGION, &use) != 0) {
            bench_fail("not registered");
        }
        cache_release(&use);
        at = at + 1 == walk->count ? 0 : at + 1;
    }
}

static void *walk_thread(void *argument)
{
    walk_t *walk = argument;
    double times[TIMES];
    bench_bind(walk->core);
    run_walk(walk, 2 * walk->count); // finds them; the second time by the fast way, if there is one
    for (int time = 0; time < TIMES; time++) {
        pthread_barrier_wait(walk->start);
        const double begun = bench_now();
        run_walk(walk, OPERATIONS);
        times[time] = bench_now() - begun;
    }
    walk->median = bench_median(times, TIMES);
    return NULL;
}

static unsigned char **shuffled(unsigned char *memory, size_t count)
{
    unsigned char **regions = malloc(count * sizeof(*regions));
    uint64_t random = 88172645463325252u;
    if (regions == NULL) {
        bench_fail("out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        const size_t other = random % (i + 1);
        regions[i] = regions[other];
        regions[other] = memory + i * STRIDE;
    }
    return regions;
}

static void hits(const metric_t *metric)
{
    const size_t count = (size_t)metric->count, sets = metric->apart ? (size_t)metric->threads : 1;
    walk_t walks[WALKERS];
    pthread_t ids[WALKERS];
    pthread_barrier_t start;
    double sum = 0;

    if (bench.kind == PER_USE || (metric->threads > 1 && bench.core_count < 2)) { // not at once
        return;
    }
    unsigned char *memory = bench_map(sets * count * STRIDE);
    pthread_barrier_init(&start, NULL, (unsigned)metric->threads);
    for (size_t i = 0; i < WALKERS; i++) {
        walks[i] = (walk_t){.regions = shuffled(memory + i % sets * count * STRIDE, count),
                            .count = count,
                            .core = bench.cores[i % (size_t)bench.core_count],
                            .start = &start};
        run_walk(&walks[i], 2 * count);
    }
    const uint64_t registrations = cache_registrations();
    for (int i = 0; i < metric->threads; i++) {
        if (pthread_create(&ids[i], NULL, walk_thread, &walks[i]) != 0) {
            bench_fail("no thread");
        }
    }
    for (int i = 0; i < metric->threads; i++) {
        pthread_join(ids[i], NULL);
        sum += walks[i].median;
    }
    bench_check_misses(registrations, 0);
    // More threads than cores take turns: a batch then lasts as long as those of all.
    const int turns = metric->threads > bench.core_count ? metric->threads / bench.core_count : 1;
    bench_print(metric, 1e9 * sum / metric->threads / OPERATIONS / turns);
    pthread_barrier_destroy(&start);
    for (size_t i = 0; i < WALKERS; i++) {
        free(walks[i].regions);
    }
    bench_unmap(memory, sets * count * STRIDE);
    cache_settle();
}

static void query(const metric_t *metric)
{
    double times[TIMES];
    for (int time = 0; time < TIMES; time++) {
        const double start = bench_now();
        for (int i = 0; i < OPERATIONS && cache_query(); i++) {
        }
        times[time] = bench_now() - start;
    }
    if (cache_query()) {
        bench_print(metric, 1e9 * bench_median(times, TIMES) / OPERATIONS);
    }
}

const metric_t hit_metrics[] = {
    {.name = "query", .measure = query},
    {.name = "hit_1", .measure = hits, .count = 1, .threads = 1},
    {.name = "hit_100", .measure = hits, .count = 100, .threads = 1},
    {.name = "hit_10000", .measure = hits, .count = 10000, .threads = 1},
    {.name = "hit_same_1", .measure = hits, .count = 1, .threads = 2},
    {.name = "hit_same_100", .measure = hits, .count = 100, .threads = 2},
    {.name = "hit_same_10000", .measure = hits, .count = 10000, .threads = 2},
    {.name = "hit_four_1", .measure = hits, .count = 1, .threads = 4},
    {.name = "hit_four_100", .measure = hits, .count = 100, .threads = 4},
    {.name = "hit_four_10000", .measure = hits, .count = 10000, .threads = 4},
    {.name = "hit_apart_1", .measure = hits, .count = 1, .threads = 2, .apart = true},
    {.name = "hit_apart_100", .measure = hits, .count = 100, .threads = 2, .apart = true},
    {.name = "hit_apart_10000", .measure = hits, .count = 10000, .threads = 2, .apart = true},
    {.name = NULL},
};

// SPDX-License-Identifier: BSD-3-Clause
//
// Misses: acquire and release of what was not registered before: in a mapping of its own, and by
// several threads at once, each in a large mapping, as of one large array.

#include <pthread.h>

#include "bench.h"

enum { APART = 200, EACH = 1000, THREADS_MAX = 8 };

static void miss_apart(const metric_t *metric)
{
    unsigned char *memory[APART];
    double times[TIMES];
    for (int time = 0; time < TIMES; time++) {
        for (int i = 0; i < APART; i++) {
            memory[i] = bench_map_apart(REGION);
        }
        const uint64_t registrations = cache_registrations();
        const double start = bench_now();
        for (int i = 0; i < APART; i++) {
            bench_use(memory[i], REGION);
        }
        times[time] = (bench_now() - start) / APART;
        bench_check_misses(registrations, APART);
        for (int i = 0; i < APART; i++) {
            bench_unmap_apart(memory[i], REGION);
        }
        cache_settle();
    }
    bench_print(metric, 1e9 * bench_median(times, TIMES));
}

typedef struct misser {
    unsigned char *memory;
    pthread_barrier_t *gate;
    double begun, ended;
} misser_t;

static void *miss_all(void *argument)
{
    misser_t *misser = argument;
    pthread_barrier_wait(misser->gate);
    misser->begun = bench_now();
    for (size_t i = 1; i <= EACH; i++) {
        bench_use(misser->memory + i * STRIDE, REGION);
    }
    misser->ended = bench_now();
    return NULL;
}

// Of one miss, in seconds, from when the first thread begins to when the last ends: threads that do
// not hold one another up make it less, as long as there are cores for them.
static double missed_at_once(misser_t *missers, int threads)
{
    pthread_t ids[THREADS_MAX];
    const uint64_t registrations = cache_registrations();
    for (int i = 0; i < threads; i++) {
        if (pthread_create(&ids[i], NULL, miss_all, &missers[i]) != 0) {
            bench_fail("no thread");
        }
    }
    double begun = bench_now(), ended = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        begun = missers[i].begun < begun ? missers[i].begun : begun;
        ended = missers[i].ended > ended ? missers[i].ended : ended;
    }
    bench_check_misses(registrations, (size_t)threads * EACH);
    return (ended - begun) / (threads * EACH);
}

static void miss_threads(const metric_t *metric)
{
    const size_t bytes = (EACH + 1) * STRIDE;
    misser_t missers[THREADS_MAX];
    double times[TIMES];
    pthread_barrier_t gate;
    pthread_barrier_init(&gate, NULL, (unsigned)metric->threads);
    for (int time = 0; time < TIMES; time++) {
        for (int i = 0; i < metric->threads; i++) {
            missers[i] = (misser_t){.memory = bench_map_apart(bytes), .gate = &gate};
            bench_use(missers[i].memory, bench.page); // what is near is watched
        }
        times[time] = missed_at_once(missers, metric->threads);
        for (int i = 0; i < metric->threads; i++) {
            bench_unmap_apart(missers[i].memory, bytes);
        }
        cache_settle();
    }
    pthread_barrier_destroy(&gate);
    bench_print(metric, 1e9 * bench_median(times, TIMES));
}

const metric_t miss_metrics[] = {
    {.name = "miss_apart", .measure = miss_apart},
    {.name = "miss_1", .measure = miss_threads, .threads = 1},
    {.name = "miss_2", .measure = miss_threads, .threads = 2},
    {.name = "miss_4", .measure = miss_threads, .threads = 4},
    {.name = "miss_8", .measure = miss_threads, .threads = THREADS_MAX},
    {.name = NULL},
};

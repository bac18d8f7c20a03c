// SPDX-License-Identifier: BSD-3-Clause
//
// Misses: acquire and release of what was not registered before, by one thread and by several at
// once.

#include <pthread.h>

#include "bench.h"
#include "metric.h"

// Ranges of one mapping, as of one large array.
static void miss_near(const char *metric)
{
    enum { COUNT = 2000 };
    double times[TIMES];
    for (int time = 0; time < TIMES; time++) {
        unsigned char *memory = bench_map(COUNT * STRIDE, 0);
        bench_use(memory, bench.page); // what is near is watched
        const uint64_t registrations = subject_registrations();
        const double start = bench_now();
        for (size_t i = 1; i < COUNT; i++) {
            bench_use(memory + i * STRIDE, REGION);
        }
        times[time] = (bench_now() - start) / (COUNT - 1);
        bench_check_misses(registrations, COUNT - 1);
        bench_unmap(memory, COUNT * STRIDE);
        subject_settle();
    }
    bench_print(metric, 1e9 * bench_median(times, TIMES));
}

// Each in a mapping of its own.
static void miss_apart(const char *metric)
{
    enum { COUNT = 200 };
    unsigned char *memory[COUNT];
    double times[TIMES];
    for (int time = 0; time < TIMES; time++) {
        for (size_t i = 0; i < COUNT; i++) {
            memory[i] = bench_map_apart(REGION);
        }
        const uint64_t registrations = subject_registrations();
        const double start = bench_now();
        for (size_t i = 0; i < COUNT; i++) {
            bench_use(memory[i], REGION);
        }
        times[time] = (bench_now() - start) / COUNT;
        bench_check_misses(registrations, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            bench_unmap_apart(memory[i], REGION);
        }
        subject_settle();
    }
    bench_print(metric, 1e9 * bench_median(times, TIMES));
}

// ---- by several threads at once, each in a large mapping of its own

enum { COUNT_EACH = 1000 };

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
    for (size_t i = 1; i <= COUNT_EACH; i++) {
        bench_use(misser->memory + i * STRIDE, REGION);
    }
    misser->ended = bench_now();
    return NULL;
}

// Of one miss, in seconds, from when the first thread begins to when the last ends: threads that do
// not hold one another up make it less, as long as there are cores for them.
static double missed_at_once(misser_t *missers, unsigned threads)
{
    pthread_t ids[8];
    const uint64_t registrations = subject_registrations();
    for (unsigned i = 0; i < threads; i++) {
        if (pthread_create(&ids[i], NULL, miss_all, &missers[i]) != 0) {
            bench_fail("no thread");
        }
    }
    double begun = bench_now(), ended = begun;
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        begun = missers[i].begun < begun ? missers[i].begun : begun;
        ended = missers[i].ended > ended ? missers[i].ended : ended;
    }
    bench_check_misses(registrations, (size_t)threads * COUNT_EACH);
    return (ended - begun) / (threads * COUNT_EACH);
}

static void miss_threads(const char *metric, unsigned threads)
{
    const size_t bytes = (COUNT_EACH + 1) * STRIDE;
    misser_t missers[8];
    double times[TIMES];
    pthread_barrier_t gate;
    pthread_barrier_init(&gate, NULL, threads);
    for (int time = 0; time < TIMES; time++) {
        for (unsigned i = 0; i < threads; i++) {
            missers[i] = (misser_t){.memory = bench_map_apart(bytes), .gate = &gate};
            bench_use(missers[i].memory, bench.page); // what is near is watched
        }
        times[time] = missed_at_once(missers, threads);
        for (unsigned i = 0; i < threads; i++) {
            bench_unmap_apart(missers[i].memory, bytes);
        }
        subject_settle();
    }
    pthread_barrier_destroy(&gate);
    bench_print(metric, 1e9 * bench_median(times, TIMES));
}

static void miss_1(const char *metric)
{
    miss_threads(metric, 1);
}

static void miss_2(const char *metric)
{
    miss_threads(metric, 2);
}

static void miss_4(const char *metric)
{
    miss_threads(metric, 4);
}

static void miss_8(const char *metric)
{
    miss_threads(metric, 8);
}

const metric_t miss_metrics[] = {
    {"miss_near", miss_near, false},
    {"miss_apart", miss_apart, false},
    {"miss_1", miss_1, false},
    {"miss_2", miss_2, false},
    {"miss_4", miss_4, false},
    {"miss_8", miss_8, false},
    {NULL, NULL, false},
};

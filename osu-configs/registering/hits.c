// SPDX-License-Identifier: BSD-3-Clause
//
// Hits: acquire and release of what is kept, by one thread and by two at once.

#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"
#include "metric.h"

#define BATCH_SECONDS 0.01

typedef struct walk {
    unsigned char **regions; // shuffled
    size_t count;
    uint64_t operations; // of one batch
    double times[TIMES]; // of the batches
    int core;
    pthread_barrier_t *start;
} walk_t;

static void run_walk(walk_t *walk, uint64_t operations)
{
    subject_use_t use;
    size_t at = 0;
    for (uint64_t i = 0; i < operations; i++) {
        if (subject_acquire(walk->regions[at], REGION, &use) != 0) {
            bench_fail("not registered");
        }
        subject_release(&use);
        at = at + 1 == walk->count ? 0 : at + 1;
    }
}

static double timed_walk(walk_t *walk)
{
    const double start = bench_now();
    run_walk(walk, walk->operations);
    return bench_now() - start;
}

static void *walk_thread(void *argument)
{
    walk_t *walk = argument;
    bench_bind(walk->core);
    run_walk(walk, 2 * walk->count); // finds them; the second time by the fast way, if there is one
    for (int time = 0; time < TIMES; time++) {
        pthread_barrier_wait(walk->start);
        walk->times[time] = timed_walk(walk);
    }
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
        regions[i] = memory + i * STRIDE;
    }
    for (size_t i = count - 1; i > 0; i--) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        const size_t other = random % (i + 1);
        unsigned char *held = regions[i];
        regions[i] = regions[other];
        regions[other] = held;
    }
    return regions;
}

// As many that one batch takes a while.
static uint64_t operations_for(walk_t *walk)
{
    walk->operations = walk->count < 64 ? 64 : walk->count;
    for (;;) {
        const double seconds = timed_walk(walk);
        if (seconds >= BATCH_SECONDS / 2) {
            return (uint64_t)((double)walk->operations * BATCH_SECONDS / seconds) + 1;
        }
        walk->operations *= 2;
    }
}

static void hits(const char *metric, size_t count, int threads, bool same)
{
    const size_t sets = threads == 1 || same ? 1 : 2;
    walk_t walks[2] = {{.count = count, .core = bench.cores[0]},
                       {.count = count, .core = bench.cores[1]}};
    double value = 0;

    if (bench.kind == PER_USE || threads > bench.core_count) { // one after the other is not at once
        return;
    }
    unsigned char *memory = bench_map(sets * count * STRIDE, 0);
    walks[0].regions = shuffled(memory, count);
    walks[1].regions = sets == 1 ? walks[0].regions : shuffled(memory + count * STRIDE, count);
    bench_bind(bench.cores[0]);
    run_walk(&walks[0], 2 * count);
    run_walk(&walks[1], 2 * count);
    const uint64_t registrations = subject_registrations();
    walks[0].operations = walks[1].operations = operations_for(&walks[0]);
    if (threads == 1) {
        for (int time = 0; time < TIMES; time++) {
            walks[0].times[time] = timed_walk(&walks[0]);
        }
        value = bench_median(walks[0].times, TIMES);
    } else {
        pthread_t others[2];
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, 2);
        for (int i = 0; i < 2; i++) {
            walks[i].start = &start;
            if (pthread_create(&others[i], NULL, walk_thread, &walks[i]) != 0) {
                bench_fail("no thread");
            }
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(others[i], NULL);
        }
        pthread_barrier_destroy(&start);
        value = (bench_median(walks[0].times, TIMES) + bench_median(walks[1].times, TIMES)) / 2;
    }
    if (subject_registrations() != registrations) {
        bench_fail("%s: %llu were not hits", metric,
                   (unsigned long long)(subject_registrations() - registrations));
    }
    bench_print(metric, 1e9 * value / (double)walks[0].operations);
    bench_unbind();
    if (sets == 2) {
        free(walks[1].regions);
    }
    free(walks[0].regions);
    bench_unmap(memory, sets * count * STRIDE);
    subject_settle();
}

static void null_call(const char *metric)
{
    enum { CALLS = 20000 };
    double times[TIMES];
    for (int time = 0; time < TIMES; time++) {
        const double start = bench_now();
        for (int i = 0; i < CALLS; i++) {
            syscall(SYS_getppid);
        }
        times[time] = (bench_now() - start) / CALLS;
    }
    bench_print(metric, 1e9 * bench_median(times, TIMES));
}

static void query(const char *metric)
{
    enum { CALLS = 20000 };
    double times[TIMES];
    if (!subject_query()) {
        return;
    }
    for (int time = 0; time < TIMES; time++) {
        const double start = bench_now();
        for (int i = 0; i < CALLS; i++) {
            subject_query();
        }
        times[time] = (bench_now() - start) / CALLS;
    }
    bench_print(metric, 1e9 * bench_median(times, TIMES));
}

static void hit_1(const char *metric)
{
    hits(metric, 1, 1, true);
}

static void hit_100(const char *metric)
{
    hits(metric, 100, 1, true);
}

static void hit_10000(const char *metric)
{
    hits(metric, 10000, 1, true);
}

static void same_1(const char *metric)
{
    hits(metric, 1, 2, true);
}

static void same_100(const char *metric)
{
    hits(metric, 100, 2, true);
}

static void same_10000(const char *metric)
{
    hits(metric, 10000, 2, true);
}

static void apart_1(const char *metric)
{
    hits(metric, 1, 2, false);
}

static void apart_100(const char *metric)
{
    hits(metric, 100, 2, false);
}

static void apart_10000(const char *metric)
{
    hits(metric, 10000, 2, false);
}

const metric_t hit_metrics[] = {
    {"null_call", null_call, false},
    {"query", query, false},
    {"hit_1", hit_1, false},
    {"hit_100", hit_100, false},
    {"hit_10000", hit_10000, false},
    {"hit_same_1", same_1, false},
    {"hit_same_100", same_100, false},
    {"hit_same_10000", same_10000, false},
    {"hit_apart_1", apart_1, false},
    {"hit_apart_100", apart_100, false},
    {"hit_apart_10000", apart_10000, false},
    {NULL, NULL, false},
};

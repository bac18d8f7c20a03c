// SPDX-License-Identifier: BSD-3-Clause
//
// Misses: acquire and release of what was not registered before.

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

const metric_t miss_metrics[] = {
    {"miss_near", miss_near, false},
    {"miss_apart", miss_apart, false},
    {NULL, NULL, false},
};

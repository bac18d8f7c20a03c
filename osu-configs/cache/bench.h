// SPDX-License-Identifier: BSD-3-Clause
//
// What all measurements use: metrics, what is known of the machine, time, memory, and the ways to
// print a figure and to give up.
#ifndef CACHE_BENCH_H
#define CACHE_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "subject.h"

#define REGION ((size_t)64 << 10)
#define STRIDE (2 * REGION) // regions do not touch: they may not be merged
#define TIMES 7             // of which the median is taken

// One file for each table of them, which ends with a name that is NULL.
typedef struct metric {
    const char *name;
    void (*measure)(const struct metric *metric);
    int count, threads; // whatever the function makes of them
    bool apart, unmaps; // unmaps: a subject that is blind to munmap does nothing then
} metric_t;

extern const metric_t hit_metrics[], miss_metrics[], change_metrics[];

// Filled by main, before anything is measured.
extern struct bench {
    size_t page;
    subject_kind_t kind;
    int cores[2]; // the first two that we may use
    int core_count;
} bench;

// One line, and the end.
__attribute__((format(printf, 1, 2), noreturn)) void bench_fail(const char *format, ...);

double bench_now(void); // seconds

// Sorts them.
double bench_median(double *values, size_t count);

void bench_print(const metric_t *metric, double value);

// Private anonymous memory, not touched yet; or the end.
unsigned char *bench_map(size_t bytes);
void bench_unmap(void *memory, size_t bytes);

// Memory between pages that nobody may touch: a mapping of its own. Of small pages, so that one
// address does not cost what another does not.
unsigned char *bench_map_apart(size_t bytes);
void bench_unmap_apart(unsigned char *memory, size_t bytes);

// Registers it for one use.
void bench_use(void *base, size_t length);

// What was to be so many misses, since there were so many registrations, was.
void bench_check_misses(uint64_t registrations, size_t misses);

void bench_bind(int core);

#endif

// SPDX-License-Identifier: BSD-3-Clause
//
// What all measurements use: what they know of the machine, time, memory, threads, and the ways to
// print a figure and to give up.
#ifndef REGISTERING_BENCH_H
#define REGISTERING_BENCH_H

#include <stddef.h>
#include <stdint.h>

#include "subject.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define REGION (64 * KIB)
#define STRIDE (2 * REGION) // regions do not touch: nobody may merge them
#define HUGE (2 * MIB)
#define TIMES 7 // of which the median is taken

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

void bench_print(const char *metric, double value);

// Private anonymous memory, not touched yet; or the end.
unsigned char *bench_map(size_t bytes, int flags);
void bench_unmap(void *memory, size_t bytes);

// Memory between pages that nobody may touch: a mapping of its own. Of small pages, so that one
// address does not cost what another does not.
unsigned char *bench_map_apart(size_t bytes);
void bench_unmap_apart(unsigned char *memory, size_t bytes);

// Registers it for one use.
void bench_use(void *base, size_t length);

// What was to be so many misses, since there were so many registrations, was.
void bench_check_misses(uint64_t registrations, size_t misses);

// A field of /proc/self/status or smaps_rollup, in bytes.
double bench_proc(const char *file, const char *field);

void bench_find_cores(void);
void bench_bind(int core);
void bench_unbind(void); // to both

#endif

// SPDX-License-Identifier: BSD-3-Clause
//
// What all measurements use: the cache, metrics, what is known of the machine, time, memory, and
// the ways to print a figure and to give up.
#ifndef CACHE_BENCH_H
#define CACHE_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- regx.c: the cache with one backend, over an empty memory domain: to register costs nothing,
// so what is measured is the keeping

// One use of a registration, between acquire and release, in place.
typedef struct cache_use {
    _Alignas(16) unsigned char bytes[128];
} cache_use_t;

// What becomes of a registration that is released.
typedef enum {
    PER_USE, // it is deregistered: there are no hits
    TOLD,    // it is kept until its memory changes
    BLIND    // it is kept, whatever becomes of its memory
} cache_kind_t;

// false: it cannot be had here, and why, in one line.
bool cache_open(const char *name, cache_kind_t *kind, char *why, size_t size);

// 0, or what the cache itself answers to say that it is not registered.
int cache_acquire(void *base, size_t length, cache_use_t *use);
void cache_release(cache_use_t *use);

// What a hit asks the monitor, alone. false: this one asks nothing.
bool cache_query(void);

// Does what is left to do, until nothing dead is registered any more.
void cache_settle(void);

// Calls of the domain so far: they tell hits from misses.
uint64_t cache_registrations(void);
uint64_t cache_deregistrations(void);

// ---- bench.c

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
    cache_kind_t kind;
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

// Memory between pages that may not be touched: a mapping of its own. Of small pages, so that one
// address does not cost what another does not.
unsigned char *bench_map_apart(size_t bytes);
void bench_unmap_apart(unsigned char *memory, size_t bytes);

// Registers it for one use.
void bench_use(void *base, size_t length);

// What was to be so many misses, since there were so many registrations, was.
void bench_check_misses(uint64_t registrations, size_t misses);

void bench_bind(int core);

#endif

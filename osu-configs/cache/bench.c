// SPDX-License-Identifier: BSD-3-Clause
//
// Measures one way of keeping registrations:
//
//   cache BACKEND [METRIC...]
//
// and prints one line "METRIC VALUE" for each metric; tools/registration.py says what they are. A
// value is the median of several, each over many operations where they are short. What should have
// been a hit and was not ends the program: it would be a measurement of something else.

#include "bench.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CANNOT 3 // exit status: the subject cannot be had here

struct bench bench;

static const metric_t *const tables[] = {hit_metrics, miss_metrics, change_metrics};
enum { TABLES = sizeof(tables) / sizeof(tables[0]) };

void bench_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "registration: ");
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare_doubles);
    return values[count / 2];
}

void bench_print(const metric_t *metric, double value)
{
    printf("%s %.6g\n", metric->name, value);
    fflush(stdout);
}

// ---- memory

unsigned char *bench_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        bench_fail("cannot map %zu bytes", bytes);
    }
    return memory;
}

// A subject that is blind to it must not meet the address again.
void bench_unmap(void *memory, size_t bytes)
{
    if ((bench.kind == BLIND ? madvise(memory, bytes, MADV_DONTNEED) : munmap(memory, bytes)) !=
        0) {
        bench_fail("cannot unmap");
    }
}

unsigned char *bench_map_apart(size_t bytes)
{
    unsigned char *memory = bench_map(bytes + 2 * bench.page);
    if (mprotect(memory, bench.page, PROT_NONE) != 0 ||
        mprotect(memory + bench.page + bytes, bench.page, PROT_NONE) != 0 ||
        madvise(memory + bench.page, bytes, MADV_NOHUGEPAGE) != 0) {
        bench_fail("cannot protect");
    }
    return memory + bench.page;
}

void bench_unmap_apart(unsigned char *memory, size_t bytes)
{
    bench_unmap(memory - bench.page, bytes + 2 * bench.page);
}

void bench_use(void *base, size_t length)
{
    cache_use_t use;
    if (cache_acquire(base, length, &use) != 0) {
        bench_fail("not registered: %zu bytes", length);
    }
    cache_release(&use);
}

void bench_check_misses(uint64_t registrations, size_t misses)
{
    if (cache_registrations() - registrations != misses) {
        bench_fail("%zu misses made %llu registrations", misses,
                   (unsigned long long)(cache_registrations() - registrations));
    }
}

// ---- cores

void bench_bind(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static void find_cores(void)
{
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    for (int core = 0; core < CPU_SETSIZE && bench.core_count < 2; core++) {
        if (CPU_ISSET((size_t)core, &set)) {
            bench.cores[bench.core_count++] = core;
        }
    }
}

// ---- the command line

// Among those named, or, if none is, anyway.
static bool is_wanted(const char *name, char **wanted)
{
    bool any = *wanted != NULL;
    for (; *wanted != NULL; wanted++) {
        if (strcmp(*wanted, name) == 0) {
            return true;
        }
    }
    return !any;
}

int main(int argc, char **argv)
{
    char why[512] = "";

    if (argc < 2 || argv[1][0] == '-') {
        bench_fail("usage: cache BACKEND [METRIC...]");
    }
    bench.page = (size_t)sysconf(_SC_PAGESIZE);
    find_cores();
    if (!cache_open(argv[1], &bench.kind, why, sizeof(why))) {
        fprintf(stderr, "registration: %s: %s\n", argv[1], why);
        return CANNOT;
    }
    for (size_t i = 0; i < TABLES; i++) {
        for (const metric_t *metric = tables[i]; metric->name != NULL; metric++) {
            if (is_wanted(metric->name, argv + 2) && !(metric->unmaps && bench.kind == BLIND)) {
                metric->measure(metric);
            }
        }
    }
    _exit(0); // the libraries' own ends are not measured
}

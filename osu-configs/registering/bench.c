// SPDX-License-Identifier: BSD-3-Clause

#include "bench.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct bench bench;

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
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

void bench_print(const char *metric, double value)
{
    printf("%s %.6g\n", metric, value);
    fflush(stdout);
}

// ---- memory

unsigned char *bench_map(size_t bytes, int flags)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    if (memory == MAP_FAILED) {
        bench_fail("cannot map %zu bytes", bytes);
    }
    return memory;
}

// Who is blind to it must not meet the address again.
void bench_unmap(void *memory, size_t bytes)
{
    if ((bench.kind == BLIND ? madvise(memory, bytes, MADV_DONTNEED) : munmap(memory, bytes)) !=
        0) {
        bench_fail("cannot unmap");
    }
}

unsigned char *bench_map_apart(size_t bytes)
{
    unsigned char *memory = bench_map(bytes + 2 * bench.page, 0);
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
    subject_use_t use;
    if (subject_acquire(base, length, &use) != 0) {
        bench_fail("not registered: %zu bytes", length);
    }
    subject_release(&use);
}

void bench_check_misses(uint64_t registrations, size_t misses)
{
    if (subject_registrations() - registrations != misses) {
        bench_fail("%zu misses made %llu registrations", misses,
                   (unsigned long long)(subject_registrations() - registrations));
    }
}

double bench_proc(const char *file, const char *field)
{
    char line[256];
    double kib = 0;
    FILE *text = fopen(file, "r");
    if (text == NULL) {
        bench_fail("cannot read %s", file);
    }
    while (fgets(line, sizeof(line), text) != NULL) {
        if (strncmp(line, field, strlen(field)) == 0) {
            kib += strtod(line + strlen(field), NULL);
        }
    }
    fclose(text);
    return kib * 1024;
}

// ---- threads

void bench_bind(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

void bench_unbind(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)bench.cores[0], &set);
    CPU_SET((size_t)bench.cores[1], &set);
    sched_setaffinity(0, sizeof(set), &set);
}

void bench_find_cores(void)
{
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    for (int core = 0; core < CPU_SETSIZE && bench.core_count < 2; core++) {
        if (CPU_ISSET((size_t)core, &set)) {
            bench.cores[bench.core_count++] = core;
        }
    }
    if (bench.core_count == 1) {
        bench.cores[1] = bench.cores[0];
    }
}

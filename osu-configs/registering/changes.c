// SPDX-License-Identifier: BSD-3-Clause
//
// Changes of memory: munmap of what is registered and of what is not, and fork.

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "metric.h"

// With a second thread, as each MPI process has, munmap takes some percent longer, though it sleeps
// and whoever watches; the notifier's reader must not look like the cause.
static void *sleep_on(void *core)
{
    bench_bind(*(const int *)core);
    for (;;) {
        pause();
    }
    return NULL;
}

static void have_company(void)
{
    static bool had;
    pthread_t sleeper;
    if (!had && pthread_create(&sleeper, NULL, sleep_on, &bench.cores[bench.core_count - 1]) != 0) {
        bench_fail("no thread");
    }
    had = true;
}

// ---- invalidation

enum { MANY = 5000 };

// The munmap, the next acquire of something else, and all that is left then.
typedef struct ending {
    double unmapped, next, settled;
} ending_t;

static ending_t end_many(bool registered)
{
    const size_t bytes = (size_t)MANY * 2 * bench.page;
    unsigned char *other = bench_map_apart(REGION), *memory = bench_map(bytes, 0);
    ending_t ending;

    madvise(memory, bytes, MADV_NOHUGEPAGE);
    memset(memory, 1, bytes);
    bench_use(other, REGION);
    for (size_t i = 0; registered && i < MANY; i++) {
        bench_use(memory + i * 2 * bench.page, bench.page);
    }
    const uint64_t deregistrations = subject_deregistrations();
    const double start = bench_now();
    bench_unmap(memory, bytes);
    const double unmapped = bench_now();
    bench_use(other, REGION);
    const double next = bench_now();
    subject_settle();
    ending = (ending_t){unmapped - start, next - unmapped, bench_now() - next};
    if (registered && bench.kind == TOLD && subject_deregistrations() - deregistrations < MANY) {
        bench_fail("of %d regions that were unmapped, %llu were deregistered", MANY,
                   (unsigned long long)(subject_deregistrations() - deregistrations));
    }
    bench_unmap_apart(other, REGION);
    subject_settle();
    return ending;
}

static double ended(bool registered, double (*part)(const ending_t *))
{
    double times[TIMES];
    have_company();
    for (int time = 0; time < TIMES; time++) {
        const ending_t ending = end_many(registered);
        times[time] = part(&ending);
    }
    return 1e6 * bench_median(times, TIMES);
}

static double part_unmapped(const ending_t *ending)
{
    return ending->unmapped;
}

static double part_next(const ending_t *ending)
{
    return ending->next;
}

static double part_settled(const ending_t *ending)
{
    return ending->next + ending->settled;
}

static void many_unmapped(const char *metric)
{
    bench_print(metric, ended(true, part_unmapped));
}

static void many_bare(const char *metric)
{
    bench_print(metric, ended(false, part_unmapped));
}

static void many_next(const char *metric)
{
    bench_print(metric, ended(true, part_next));
}

static void many_settled(const char *metric)
{
    bench_print(metric, ended(true, part_settled));
}

// ---- munmap of 64 KiB

enum { UNMAPS = 201 };

static void unmap_64k(const char *metric, bool registered, bool worst)
{
    double times[UNMAPS];
    have_company();
    for (int i = 0; i < UNMAPS; i++) {
        unsigned char *memory = bench_map_apart(REGION);
        memset(memory, 1, REGION);
        if (registered) {
            bench_use(memory, REGION);
        }
        const double start = bench_now();
        bench_unmap(memory, REGION);
        times[i] = bench_now() - start;
        bench_unmap(memory - bench.page, bench.page);
        bench_unmap(memory + REGION, bench.page);
        subject_settle();
    }
    const double middle = bench_median(times, UNMAPS);
    bench_print(metric, 1e6 * (worst ? times[UNMAPS - 1] : middle));
}

static void unmap_watched(const char *metric)
{
    unmap_64k(metric, true, false);
}

// Of what was never registered, while other memory is.
static void unmap_unwatched(const char *metric)
{
    unsigned char *memory = bench_map(1000 * STRIDE, 0);
    for (size_t i = 0; i < 1000; i++) {
        bench_use(memory + i * STRIDE, REGION);
    }
    unmap_64k(metric, false, false);
    bench_unmap(memory, 1000 * STRIDE);
    subject_settle();
}

static _Atomic bool spinning;

static void *spin(void *core)
{
    bench_bind(*(const int *)core);
    while (atomic_load_explicit(&spinning, memory_order_relaxed)) {
    }
    return NULL;
}

// While each core has something else to do.
static void busily(const char *metric, bool worst)
{
    pthread_t spinners[2];
    atomic_store(&spinning, true);
    for (int i = 0; i < bench.core_count; i++) {
        if (pthread_create(&spinners[i], NULL, spin, &bench.cores[i]) != 0) {
            bench_fail("no thread");
        }
    }
    unmap_64k(metric, true, worst);
    atomic_store(&spinning, false);
    for (int i = 0; i < bench.core_count; i++) {
        pthread_join(spinners[i], NULL);
    }
}

static void unmap_busy(const char *metric)
{
    busily(metric, false);
}

static void unmap_busy_worst(const char *metric)
{
    busily(metric, true);
}

// ---- fork

static void fork_full(const char *metric)
{
    enum { COUNT = 1000 };
    unsigned char *memory = bench_map(COUNT * STRIDE, 0);
    double times[TIMES];
    madvise(memory, COUNT * STRIDE, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < COUNT; i++) {
        memset(memory + i * STRIDE, 1, REGION);
        bench_use(memory + i * STRIDE, REGION);
    }
    for (int time = 0; time < TIMES; time++) {
        const double start = bench_now();
        const pid_t child = fork();
        if (child == 0) {
            _exit(0);
        }
        times[time] = bench_now() - start;
        if (child < 0 || waitpid(child, NULL, 0) != child) {
            bench_fail("cannot fork");
        }
    }
    bench_print(metric, 1e6 * bench_median(times, TIMES));
    bench_unmap(memory, COUNT * STRIDE);
    subject_settle();
}

const metric_t change_metrics[] = {
    {"many_bare", many_bare, true},
    {"many_unmapped", many_unmapped, true},
    {"many_next", many_next, true},
    {"many_settled", many_settled, true},
    {"unmap_unwatched", unmap_unwatched, true},
    {"unmap_watched", unmap_watched, true},
    {"unmap_busy", unmap_busy, true},
    {"unmap_busy_worst", unmap_busy_worst, true},
    {"fork_full", fork_full, false},
    {NULL, NULL, false},
};

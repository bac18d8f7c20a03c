// SPDX-License-Identifier: BSD-3-Clause
//
// The first touch of memory that is registered, and what becomes of its huge pages.

#include <sys/mman.h>

#include "bench.h"
#include "metric.h"

static double touch(int advice, bool registered, double *huge)
{
    const size_t bytes = 64 * MIB, step = advice == MADV_HUGEPAGE ? HUGE : bench.page;
    unsigned char *memory = bench_map(bytes + HUGE, 0);
    unsigned char *base = (unsigned char *)(((uintptr_t)memory + HUGE - 1) / HUGE * HUGE);

    madvise(base, bytes, advice);
    if (registered) {
        bench_use(base, bytes);
    }
    const double before =
        huge != NULL ? bench_proc("/proc/self/smaps_rollup", "AnonHugePages:") : 0;
    const double start = bench_now();
    for (size_t at = 0; at < bytes; at += step) {
        *(volatile unsigned char *)(base + at) = 1;
    }
    const double seconds = bench_now() - start;
    if (huge != NULL) {
        *huge = (bench_proc("/proc/self/smaps_rollup", "AnonHugePages:") - before) / (double)bytes;
    }
    bench_unmap(memory, bytes + HUGE);
    subject_settle();
    return seconds / (double)(bytes / step);
}

static void touches(const char *metric, int advice, bool registered)
{
    double times[TIMES];
    for (int time = 0; time < TIMES; time++) {
        times[time] = touch(advice, registered, NULL);
    }
    bench_print(metric, 1e9 * bench_median(times, TIMES));
}

static void touch_small(const char *metric)
{
    touches(metric, MADV_NOHUGEPAGE, true);
}

static void touch_small_bare(const char *metric)
{
    touches(metric, MADV_NOHUGEPAGE, false);
}

static void touch_huge(const char *metric)
{
    touches(metric, MADV_HUGEPAGE, true);
}

static void touch_huge_bare(const char *metric)
{
    touches(metric, MADV_HUGEPAGE, false);
}

// Percent of watched memory that gets huge pages when it is touched.
static void huge_got(const char *metric)
{
    double share;
    touch(MADV_HUGEPAGE, true, &share);
    bench_print(metric, 100 * share);
}

// Percent of memory in huge pages that still is after 64 KiB of each were registered.
static void huge_kept(const char *metric)
{
    const size_t bytes = 64 * MIB;
    unsigned char *memory = bench_map(bytes + HUGE, 0);
    unsigned char *base = (unsigned char *)(((uintptr_t)memory + HUGE - 1) / HUGE * HUGE);
    const char *file = "/proc/self/smaps_rollup", *field = "AnonHugePages:";
    const double others = bench_proc(file, field);

    madvise(base, bytes, MADV_HUGEPAGE);
    for (size_t at = 0; at < bytes; at += HUGE) {
        base[at] = 1;
    }
    const double before = bench_proc(file, field) - others;
    for (size_t at = 0; at < bytes; at += HUGE) {
        bench_use(base + at + MIB, REGION);
    }
    if (before > 0) {
        bench_print(metric, 100 * (bench_proc(file, field) - others) / before);
    }
    bench_unmap(memory, bytes + HUGE);
    subject_settle();
}

const metric_t touch_metrics[] = {
    {"touch_small_bare", touch_small_bare, false},
    {"touch_small", touch_small, false},
    {"touch_huge_bare", touch_huge_bare, false},
    {"touch_huge", touch_huge, false},
    {"huge_got", huge_got, false},
    {"huge_kept", huge_kept, false},
    {NULL, NULL, false},
};

// SPDX-License-Identifier: BSD-3-Clause
//
// Memory that is held by the keeping itself.

#include <stdio.h>

#include "bench.h"
#include "metric.h"

static double resident(void)
{
    return bench_proc("/proc/self/smaps_rollup", "Rss:") +
           bench_proc("/proc/self/status", "VmPTE:");
}

static double mappings(void)
{
    int c;
    double lines = 0;
    FILE *text = fopen("/proc/self/maps", "r");
    while (text != NULL && (c = getc(text)) != EOF) {
        lines += c == '\n';
    }
    if (text != NULL) {
        fclose(text);
    }
    return lines;
}

static void region_bytes(const char *metric)
{
    enum { COUNT = 10000 };
    unsigned char *memory = bench_map(COUNT * STRIDE, 0);
    bench_use(memory, REGION);
    const double before = resident();
    for (size_t i = 1; i < COUNT; i++) {
        bench_use(memory + i * STRIDE, REGION);
    }
    bench_print(metric, (resident() - before) / (COUNT - 1));
    bench_unmap(memory, COUNT * STRIDE);
    subject_settle();
}

static void gib_bytes(const char *metric)
{
    unsigned char *memory = bench_map(GIB, 0);
    const double before = resident();
    bench_use(memory, GIB);
    bench_print(metric, resident() - before);
    bench_unmap(memory, GIB);
    subject_settle();
}

// More mappings there are for 512 regions in 1 GiB.
static void gib_mappings(const char *metric)
{
    unsigned char *memory = bench_map(GIB, 0);
    const double before = mappings();
    for (size_t at = 0; at < GIB; at += HUGE) {
        bench_use(memory + at + MIB, REGION);
    }
    bench_print(metric, mappings() - before);
    bench_unmap(memory, GIB);
    subject_settle();
}

const metric_t held_metrics[] = {
    {"region_bytes", region_bytes, false},
    {"gib_bytes", gib_bytes, false},
    {"gib_mappings", gib_mappings, false},
    {NULL, NULL, false},
};

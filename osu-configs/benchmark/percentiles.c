// SPDX-License-Identifier: BSD-3-Clause
//
// Percentiles of single one-way times: half a round trip each. A mean hides a stall that comes once
// in a while; these do not.

#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#define CLOCK_READS 1001

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The nearest rank: the smallest time that this share of all times does not exceed.
static double percentile(const double *sorted, int count, double share)
{
    int rank = (int)(share * count + 0.999999);
    return sorted[rank < 1 ? 0 : rank > count ? count - 1 : rank - 1];
}

// A round trip is timed by two readings of the clock, and has the cost of one in it.
void print_clock(void)
{
    static double difference[CLOCK_READS];
    double last = MPI_Wtime();
    for (int i = 0; i < CLOCK_READS; i++) {
        double now = MPI_Wtime();
        difference[i] = now - last;
        last = now;
    }
    qsort(difference, CLOCK_READS, sizeof difference[0], compare_doubles);
    printf("# a reading of the clock takes %.3f us; each one-way time has half of that in it\n",
           1e6 * percentile(difference, CLOCK_READS, 0.5));
}

void print_percentiles_header(void)
{
    printf("# the last column: the largest of %d one-way times, the median over all such windows\n",
           TAIL_WINDOW);
    print_clock();
    printf("%-10s%14s%14s%14s%18s\n", "# Size", "p50 (us)", "p99 (us)", "p99.9 (us)",
           "max1000 (us)");
}

// Of the whole windows; what is left of the last one does not count.
static double median_of_largest(const double *times, int count)
{
    int windows = count / TAIL_WINDOW;
    double *largest = calloc((size_t)windows + 1, sizeof *largest), median = 0;
    if (largest == NULL)
        return 0;
    for (int i = 0; i < windows * TAIL_WINDOW; i++)
        if (times[i] > largest[i / TAIL_WINDOW])
            largest[i / TAIL_WINDOW] = times[i];
    qsort(largest, (size_t)windows, sizeof *largest, compare_doubles);
    median = percentile(largest, windows, 0.5);
    free(largest);
    return median;
}

void print_percentiles(size_t size, double *times, int count)
{
    double largest = median_of_largest(times, count);
    qsort(times, (size_t)count, sizeof *times, compare_doubles);
    printf("%-10zu%14.3f%14.3f%14.3f%18.3f\n", size, 1e6 * percentile(times, count, 0.5),
           1e6 * percentile(times, count, 0.99), 1e6 * percentile(times, count, 0.999),
           1e6 * largest);
    fflush(stdout);
}

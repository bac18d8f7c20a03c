// SPDX-License-Identifier: BSD-3-Clause
//
// Measures one way of keeping registrations:
//
//   regx|ucx|grdma SUBJECT [METRIC…]
//
// and prints one line "METRIC VALUE" for each metric; registering/metrics.py says what they are.
// A value is the median of several, each over many operations where they are short. What should
// have been a hit and was not ends the program: it would be a measurement of something else.

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "metric.h"

#define CANNOT 3 // exit status: the subject cannot be had here

// Memory held first, as long as nobody has memory to use again.
static const metric_t *const tables[] = {held_metrics, hit_metrics, miss_metrics, change_metrics,
                                         touch_metrics};
enum { TABLES = sizeof(tables) / sizeof(tables[0]) };

static bool is_wanted(const char *name, char **wanted)
{
    bool any = false;
    for (; *wanted != NULL; wanted++) {
        any = true;
        if (strcmp(*wanted, name) == 0) {
            return true;
        }
    }
    return !any;
}

static bool is_known(const char *name)
{
    for (size_t i = 0; i < TABLES; i++) {
        for (const metric_t *metric = tables[i]; metric->name != NULL; metric++) {
            if (strcmp(name, metric->name) == 0) {
                return true;
            }
        }
    }
    return false;
}

static void measure(const metric_t *metric, char **wanted)
{
    for (; metric->name != NULL; metric++) {
        if (is_wanted(metric->name, wanted) && (bench.kind != BLIND || !metric->unmaps)) {
            metric->measure(metric->name);
        }
    }
}

int main(int argc, char **argv)
{
    char why[512] = "";

    if (argc < 2 || argv[1][0] == '-') {
        bench_fail("usage: SUBJECT [METRIC...]; subjects: %s", subject_names);
    }
    for (char **name = argv + 2; *name != NULL; name++) {
        if (!is_known(*name)) {
            bench_fail("unknown metric \"%s\"", *name);
        }
    }
    bench.page = (size_t)sysconf(_SC_PAGESIZE);
    bench_find_cores();
    if (!subject_open(argv[1], &bench.kind, why, sizeof(why))) {
        fprintf(stderr, "registration: %s: %s\n", argv[1], why);
        return CANNOT;
    }
    for (size_t i = 0; i < TABLES; i++) {
        measure(tables[i], argv + 2);
    }
    fflush(stdout);
    _exit(0); // the libraries' own ends are not measured
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the notifier: a monitor, memory that a cache would have it watch, and the
 * cache's look-up.
 */
#pragma once

#include "../unit.h"

#include "registration/monitor/monitor.h"

enum { PAGE = 4096, LENGTH = 16 * PAGE };

extern regx_counters_t counters;
extern char traced_line[256]; /* the line that was traced last */

regx_monitor_t *start(void);

int setup(void **state);

int teardown(void **state);

/* Memory that a cache would keep a registration of. */
typedef struct region {
    regx_monitor_t *monitor;
    uintptr_t start, end;
    uint64_t since;
    regx_status_t status;
} region_t;

region_t keep(regx_monitor_t *monitor, void *base, size_t length);

region_t must_keep(regx_monitor_t *monitor, void *base, size_t length);

void drop(region_t *region);

/* A cache's look-up, in its order. */
bool hits(const region_t *region);

/* The same, once nothing is under way. */
bool hits_in_the_end(const region_t *region);

char *map(size_t length);

#define WATCHED(test) UNIT_TEST_BETWEEN(test, setup, teardown)

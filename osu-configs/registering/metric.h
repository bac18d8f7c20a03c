// SPDX-License-Identifier: BSD-3-Clause
//
// What is measured: one file for each table, which ends with a name that is NULL.
#ifndef REGISTERING_METRIC_H
#define REGISTERING_METRIC_H

#include <stdbool.h>

typedef struct metric {
    const char *name;
    void (*measure)(const char *name);
    bool unmaps; // measures an munmap: who is blind to it does nothing then
} metric_t;

extern const metric_t held_metrics[], hit_metrics[], miss_metrics[], change_metrics[],
    touch_metrics[];

#endif

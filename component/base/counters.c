/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/counters.h"

#include <stdio.h>
#include <string.h>

const regx_counter_t regx_paths[] = {
#define PATH(name, help) {#name, help, REGX_COUNT, REGX_PATH_##name},
    REGX_PATHS(PATH)
#undef PATH
        {NULL, NULL, REGX_COUNT, 0}};

const regx_counter_t regx_counter_table[] = {
#define COUNTER(name, kind, help) {#name, help, REGX_##kind, offsetof(regx_counters_t, name)},
    REGX_COUNTERS(COUNTER)
#undef COUNTER
        {NULL, NULL, REGX_COUNT, 0}};

enum { EMPTY, CLAIMED, READY };

/* Whether the tally is that reason's, now or from now on. No lock: each plugin holds its own copy
 * of this code and would have its own lock. */
static bool serves(regx_tally_t *tally, const char *reason)
{
    uint32_t state = EMPTY;

    if (atomic_compare_exchange_strong(&tally->state, &state, CLAIMED)) {
        snprintf(tally->reason, sizeof(tally->reason), "%s", reason);
        atomic_store_explicit(&tally->state, READY, memory_order_release);
        return true;
    }
    while (state != READY) { /* another thread copies a few bytes */
        state = atomic_load_explicit(&tally->state, memory_order_acquire);
    }
    return strncmp(tally->reason, reason, REGX_REASON_LENGTH - 1) == 0;
}

regx_tally_t *regx_tally_find(regx_tally_t tallies[REGX_REASONS_MAX], const char *reason)
{
    for (int i = 0; i < REGX_REASONS_MAX - 1; i++) {
        if (serves(&tallies[i], reason)) {
            return &tallies[i];
        }
    }
    serves(&tallies[REGX_REASONS_MAX - 1], "other");
    return &tallies[REGX_REASONS_MAX - 1];
}

void regx_tally(regx_tally_t tallies[REGX_REASONS_MAX], const char *reason)
{
    atomic_fetch_add_explicit(&regx_tally_find(tallies, reason)->count, 1, memory_order_relaxed);
}

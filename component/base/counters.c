/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/counters.h"

#include <stdio.h>
#include <string.h>

#include "base/thread.h"

const char *const regx_path_names[] = {
#define PATH(name, help) [REGX_PATH_##name] = #name,
    REGX_PATHS(PATH)
#undef PATH
};

const char *const regx_why_texts[] = {
#define WHY(text, name) [REGX_WHY_##name] = text,
    REGX_WHYS(WHY)
#undef WHY
};

const regx_counter_t regx_counter_table[] = {
#define PATH(name, help)                                                                           \
    {"messages_" #name, "messages " help, REGX_MESSAGES, REGX_PATH_##name},                        \
        {"bytes_" #name, "their bytes", REGX_BYTES, REGX_PATH_##name},
    REGX_PATHS(PATH)
#undef PATH
#define COUNTER(name, kind, help) {#name, help, REGX_##kind, offsetof(regx_counters_t, name)},
        REGX_COUNTERS(COUNTER)
#undef COUNTER
            {NULL, NULL, REGX_COUNT, 0}};

uint64_t regx_counter_value(const regx_counters_t *counters, const regx_counter_t *counter)
{
    uint64_t value = 0;

    if (counter->kind == REGX_COUNT || counter->kind == REGX_LEVEL) {
        return *(const _Atomic uint64_t *)(const void *)((const char *)counters + counter->where);
    }
    for (unsigned i = 0; i < REGX_FLOWS; i++) {
        const regx_flow_t *flow = counters->flows[i];

        for (unsigned way = 0; flow != NULL && way < REGX_WAYS; way++) {
            const _Atomic uint64_t *counts =
                counter->kind == REGX_BYTES ? flow->bytes[way] : flow->messages[way];
            const bool belongs = counter->where == REGX_PATH_fallback
                                     ? regx_why_is_fallback(way % REGX_WHY_COUNT)
                                     : counter->where == way / REGX_WHY_COUNT;

            for (unsigned size = 0; size < REGX_FLOW_SIZES && belongs; size++) {
                value += counts[size];
            }
        }
    }
    return value;
}

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
    while (state != READY) { /* another thread copies a few bytes, perhaps at a lower priority */
        regx_thread_wait(&tally->state, CLAIMED, 1);
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

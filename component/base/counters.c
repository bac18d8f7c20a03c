/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/counters.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* New reasons are rare (a handful per process), so one lock for all tables will do. */
static pthread_mutex_t new_reason = PTHREAD_MUTEX_INITIALIZER;

static regx_tally_t *find(regx_tally_t tallies[REGX_REASONS_MAX], const char *reason)
{
    for (int i = 0; i < REGX_REASONS_MAX; i++) {
        if (tallies[i].reason[0] == '\0') {
            const char *name = i == REGX_REASONS_MAX - 1 ? "other" : reason;

            snprintf(tallies[i].reason, sizeof(tallies[i].reason), "%s", name);
            return &tallies[i];
        }
        if (strncmp(tallies[i].reason, reason, REGX_REASON_LENGTH - 1) == 0) {
            return &tallies[i];
        }
    }
    return &tallies[REGX_REASONS_MAX - 1];
}

regx_tally_t *regx_tally_find(regx_tally_t tallies[REGX_REASONS_MAX], const char *reason)
{
    pthread_mutex_lock(&new_reason);
    regx_tally_t *tally = find(tallies, reason);
    pthread_mutex_unlock(&new_reason);
    return tally;
}

void regx_tally(regx_tally_t tallies[REGX_REASONS_MAX], const char *reason)
{
    atomic_fetch_add_explicit(&regx_tally_find(tallies, reason)->count, 1, memory_order_relaxed);
}

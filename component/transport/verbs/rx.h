/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Completions: frames that arrived, work that is done, and what went wrong.
 */
#ifndef REGX_VERBS_RX_H
#define REGX_VERBS_RX_H

#include "transport/verbs/verbs.h"

/* Handles what has completed, a bounded amount; returns how many. `empty`: the completion queue was
 * seen empty. */
int regx_verbs_poll(regx_verbs_t *verbs, bool *empty);
/* Handles all that has completed until now: also of a queue pair that was just destroyed, while its
 * number still leads to its endpoint. false: the completion queue cannot be read. */
bool regx_verbs_drain(regx_verbs_t *verbs);

#endif

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

#endif

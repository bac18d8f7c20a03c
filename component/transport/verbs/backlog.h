/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Completions in the order in which they came. Those that are polled while a queue pair is ended
 * are kept here, and handled before what the completion queue has next.
 */
#ifndef REGX_VERBS_BACKLOG_H
#define REGX_VERBS_BACKLOG_H

#include "transport/verbs/verbs.h"

#define REGX_BACKLOG_BATCH 64 /* kept by one poll */

/* The next completions, at most `max`. `kept`: they were. Returns how many; negative: the
 * completion queue cannot be polled. */
int regx_backlog_take(regx_verbs_t *verbs, struct ibv_wc *completions, int max, bool *kept);
/* Polls the completion queue and keeps what it has, at most REGX_BACKLOG_BATCH. REGX_OK, `empty`:
 * that was all; REGX_NO_MEMORY; REGX_FAILED: it cannot be polled. */
regx_status_t regx_backlog_keep(regx_verbs_t *verbs, bool *empty);
/* Keeps all that has completed until now. REGX_OK; the others as above. */
regx_status_t regx_backlog_keep_all(regx_verbs_t *verbs);
static inline bool regx_backlog_has_some(const regx_verbs_t *verbs)
{
    return verbs->backlog.first != verbs->backlog.end;
}
/* Drops what is kept of a queue pair that is about to be destroyed. The device may give its number
 * to the next queue pair, which must not get that. */
void regx_backlog_drop(regx_verbs_t *verbs, uint32_t qpn);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/backlog.h"

#include <stdlib.h>
#include <string.h>

#include "transport/verbs/buffers.h"

static void empty_if_read(regx_backlog_t *backlog)
{
    if (backlog->first == backlog->end) {
        backlog->first = backlog->end = 0;
    }
}

int regx_backlog_take(regx_verbs_t *verbs, struct ibv_wc *completions, int max, bool *kept)
{
    regx_backlog_t *backlog = &verbs->backlog;
    const uint32_t left = backlog->end - backlog->first;

    *kept = left > 0;
    if (left == 0) {
        return ibv_poll_cq(verbs->cq, max, completions);
    }
    const uint32_t count = (uint32_t)regx_min(left, (uint32_t)max);
    memcpy(completions, backlog->entries + backlog->first, count * sizeof(completions[0]));
    backlog->first += count;
    empty_if_read(backlog);
    return (int)count;
}

static bool reserve(regx_backlog_t *backlog, uint32_t count)
{
    if (backlog->end + count > backlog->size) {
        const uint32_t size = 2 * backlog->size + count;
        struct ibv_wc *more = realloc(backlog->entries, size * sizeof(more[0]));

        if (more == NULL) {
            return false;
        }
        backlog->entries = more;
        backlog->size = size;
    }
    return true;
}

regx_status_t regx_backlog_keep(regx_verbs_t *verbs, bool *empty)
{
    regx_backlog_t *backlog = &verbs->backlog;

    *empty = false;
    if (!reserve(backlog, REGX_BACKLOG_BATCH)) {
        return REGX_NO_MEMORY;
    }
    const int polled = ibv_poll_cq(verbs->cq, REGX_BACKLOG_BATCH, backlog->entries + backlog->end);
    if (polled < 0) {
        return REGX_FAILED;
    }
    backlog->end += (uint32_t)polled;
    *empty = polled < REGX_BACKLOG_BATCH;
    return REGX_OK;
}

regx_status_t regx_backlog_keep_all(regx_verbs_t *verbs)
{
    /* More cannot have completed before: so many the completion queue has room for. */
    const uint32_t max =
        verbs->outstanding_max + verbs->buffers.receives_max + REGX_CM_RECEIVES + REGX_CM_SENDS;
    regx_status_t status = REGX_OK;
    bool empty = false;

    for (uint32_t kept = 0; kept <= max && !empty && status == REGX_OK;
         kept += REGX_BACKLOG_BATCH) {
        status = regx_backlog_keep(verbs, &empty);
    }
    return status;
}

void regx_backlog_drop(regx_verbs_t *verbs, uint32_t qpn)
{
    regx_backlog_t *backlog = &verbs->backlog;
    uint32_t end = backlog->first;

    for (uint32_t i = backlog->first; i < backlog->end; i++) {
        const struct ibv_wc *wc = &backlog->entries[i];

        if (wc->qp_num != qpn) {
            backlog->entries[end++] = *wc;
        } else if ((wc->wr_id & REGX_RECEIVED) != 0) {
            regx_buffer_return(verbs, (uint32_t)wc->wr_id);
        }
    }
    backlog->end = end;
    empty_if_read(backlog);
}

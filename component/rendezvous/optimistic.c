/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/optimistic.h"

#include <assert.h>

#include "base/clock.h"
#include "base/util.h"

void regx_go_back_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, uint64_t offset)
{
    regx_revocable_t *revoke = &recv->revoke;

    recv->phase = REGX_RECV_REVOKING;
    recv->buffer_suspect = true;
    regx_list_set(&rndv->pending_recvs, &recv->link, false);
    revoke->from = regx_min(offset, recv->length - 1);
    revoke->noticed = regx_now_ns();
    revoke->wait.reason = NULL;
    revoke->times++;
    regx_count(rndv->counters, &rndv->counters->grants_restarted, 1);
    atomic_store_explicit(&rndv->looks_due, true, memory_order_relaxed);
}

bool regx_go_back_failed_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                const regx_control_t *nack)
{
    if (!regx_goes_back(recv) || !nack->failed || recv->revoke.failures == REGX_FAILURES_MAX) {
        return false;
    }
    if (recv->phase == REGX_RECV_STARTED) {
        recv->revoke.failures++;
        regx_go_back_locked(rndv, recv, nack->offset);
    }
    return true;
}

bool regx_is_drained_locked(const regx_rndv_recv_t *recv)
{
    return recv->chunks_out == 0 && recv->slots_out == 0 && !recv->outbox.full;
}

/* Up to where all has landed, of what was granted. */
static uint64_t landed_until(const regx_rndv_t *rndv, const regx_rndv_recv_t *recv)
{
    uint64_t until = recv->granted;

    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        assert(recv->chunks[i].state != REGX_CHUNK_GRANTED);
        if (recv->chunks[i].state == REGX_CHUNK_BY_SLOTS) {
            until = regx_min(until, recv->chunks[i].offset);
        }
    }
    return until;
}

void regx_went_back_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    regx_revocable_t *revoke = &recv->revoke;
    const uint64_t lost = regx_min(revoke->from, landed_until(rndv, recv));
    const uint64_t resume = lost - lost % rndv->config.chunk_size;

    regx_count(rndv->counters, &rndv->counters->bytes_regranted, recv->granted - resume);
    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        recv->chunks[i].state = REGX_CHUNK_FREE;
    }
    revoke->resume = revoke->from = resume;
    revoke->lowest = regx_min(revoke->lowest, resume);
    recv->landed = recv->granted = resume;
    recv->slots_only = atomic_load(&recv->peer->no_puts);
    recv->phase = REGX_RECV_REVOKED;
}

void regx_resume_locked(regx_rndv_recv_t *recv)
{
    const regx_control_t message = {
        .type = REGX_CONTROL_RESUME, .to = recv->sender, .offset = recv->revoke.resume};

    regx_channel_post(recv->peer, &recv->outbox, &message);
}

/* An honest receiver sends RESUME when each grant is acknowledged: then none is queued or held, and
 * no NACK is unsent. Else it is malformed. */
bool regx_resume_send_control_locked(regx_rndv_send_t *send, const regx_control_t *control)
{
    if (control->type != REGX_CONTROL_RESUME || !send->optimistic ||
        send->agreement != REGX_AGREEMENT_DUE || control->offset > send->granted ||
        control->offset >= send->length || send->count > 0 || send->held != NULL ||
        send->nacks != NULL) {
        return false;
    }
    send->rewound += send->granted - control->offset;
    send->granted = control->offset;
    send->sent_slots = regx_min(send->sent_slots, control->offset);
    send->restarts++;
    return true;
}

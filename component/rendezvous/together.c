/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Together: the sender puts the first half, as one chunk, while the receiver gets the second. For
 * two processes of one node between which the kernel copies.
 */
#include "rendezvous/together.h"

#include "base/util.h"
#include "rendezvous/bounce.h"
#include "rendezvous/get.h"
#include "rendezvous/put.h"

static const char *obstacle(const regx_peer_t *peer)
{
    const char *put = regx_put_obstacle(peer);

    if (!peer->conn->single_copy) {
        return "together: the kernel does not copy to this peer";
    }
    return put != NULL ? put : regx_get_obstacle(peer);
}

/* Half, in whole pages, so that no page is copied to by both. */
static uint64_t first_half(const regx_rndv_t *rndv, const regx_rndv_recv_t *recv)
{
    const uintptr_t base = (uintptr_t)recv->base;
    const uint64_t length = regx_align_up(base + recv->length / 2, rndv->page) - base;

    return length > 0 && length < recv->length ? length : recv->length;
}

/* The half has its own chunk, behind those that are got. */
static bool recv_open(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_cts_t *cts)
{
    regx_chunk_t *half = &recv->chunks[rndv->config.chunk_depth];

    return regx_put_grant_first(rndv, recv, half, first_half(rndv, recv), cts) &&
           regx_get_recv_open(rndv, recv, cts);
}

static bool recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                const regx_control_t *control, regx_recv_work_t *work)
{
    return regx_put_recv_control_locked(rndv, recv, control, work) ||
           regx_get_recv_control_locked(rndv, recv, control, work);
}

static void revoke_chunks(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    regx_put_revoke_chunks(rndv, recv);
    regx_get_revoke_chunks(rndv, recv);
}

static bool send_open(const regx_rndv_t *rndv, regx_rndv_send_t *send, const regx_cts_t *cts)
{
    return regx_put_take_first(send, cts) && regx_get_send_open(rndv, send, cts);
}

static bool send_control_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                const regx_control_t *control, regx_send_work_t *work)
{
    return regx_put_send_control_locked(rndv, send, control, work) ||
           regx_get_send_control_locked(rndv, send, control, work);
}

static regx_status_t flush_locked(regx_rndv_send_t *send)
{
    const regx_status_t status = regx_put_flush_locked(send);

    return status == REGX_OK ? regx_get_flush_locked(send) : status;
}

static bool drop_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_work_t *work)
{
    return regx_put_drop_locked(rndv, send, work) || regx_get_drop_locked(rndv, send, work);
}

const regx_protocol_t regx_protocol_together = {.obstacle = obstacle,
                                                .recv_open = recv_open,
                                                .recv_control_locked = recv_control_locked,
                                                .advance_locked = regx_get_advance_locked,
                                                .revoke_slots_locked =
                                                    regx_bounce_revoke_slots_locked,
                                                .revoke_chunks = revoke_chunks,
                                                .send_open = send_open,
                                                .send_control_locked = send_control_locked,
                                                .flush_locked = flush_locked,
                                                .next_locked = regx_get_next_locked,
                                                .drop_locked = drop_locked};

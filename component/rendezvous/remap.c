/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Remap: as put, but a chunk is written to landing pages of the receiver's, and these are moved
 * under the user's address once it is acknowledged (landing.h, where the argument stands why no
 * byte is wrong). For two processes of a node between which the kernel copies: a device writes to
 * the pages that it knows, whatever address they have by then.
 *
 * Chunks end at the end of a page, but the last, so that only the first and the last bytes of the
 * message share a page with anything else.
 */
#include <assert.h>

#include "base/util.h"
#include "rendezvous/landing.h"
#include "rendezvous/proto.h"

static uint64_t chunk_length(const regx_rndv_t *rndv, const regx_rndv_recv_t *recv)
{
    return regx_min(recv->length - recv->granted,
                    regx_landing_room(&rndv->landings, recv->base + recv->granted));
}

/* Gives the chunk a landing that the peer may write. */
static void assign_landing(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    regx_transport_t *transport = rndv->registry->transport;
    regx_chunk_t *chunk = work->chunk;
    const char *to = work->recv->base + chunk->offset;
    regx_landing_t *landing = regx_landing_get(&rndv->landings, to, chunk->length);
    char *at;

    work->status = REGX_NO_MEMORY;
    if (landing == NULL) {
        regx_fall_back(rndv, "remap: all landing pages are in use");
        return;
    }
    at = regx_landing_at(&rndv->landings, landing, to);
    work->status =
        transport->ops->reg(transport, at, chunk->length, REGX_ACCESS_REMOTE_WRITE, &landing->mr);
    if (work->status != REGX_OK) {
        regx_fall_back(rndv, "remap: no key for landing pages");
        regx_landing_put(&rndv->landings, landing);
        return;
    }
    chunk->landing = landing;
    chunk->region.mr = &landing->mr;
    chunk->start = (uint64_t)(at - (char *)landing->mr.base);
    chunk->written = 0;
}

static void take_key_back(regx_rndv_t *rndv, regx_chunk_t *chunk)
{
    regx_transport_t *transport = rndv->registry->transport;

    transport->ops->dereg(transport, &chunk->landing->mr);
}

static bool recv_open(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    const char *refusal = regx_landings_refusal(&rndv->landings, recv->base, recv->length);
    regx_recv_work_t work = {.recv = recv, .chunk = &recv->chunks[0]};

    if (refusal != NULL) {
        regx_fall_back(rndv, refusal);
        return false;
    }
    work.chunk->length = chunk_length(rndv, recv);
    assign_landing(rndv, &work);
    if (work.status == REGX_OK) {
        regx_put_fill_cts(rndv, recv, work.chunk);
    }
    return work.status == REGX_OK;
}

static bool advance_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_recv_work_t *work)
{
    if (!regx_put_take_chunk_locked(rndv, recv, work, chunk_length(rndv, recv))) {
        return regx_bounce_advance_locked(rndv, recv, work);
    }
    work->act = assign_landing;
    return true;
}

static void take_acknowledgement(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    const regx_control_t *control = work->control;
    regx_rndv_recv_t *recv = work->recv;
    regx_chunk_t *chunk = work->chunk;

    take_key_back(rndv, chunk);
    if (control->type == REGX_CONTROL_ATP_CHUNK) {
        const char *reason = regx_landing_deliver(&rndv->landings, chunk->landing,
                                                  recv->base + chunk->offset, chunk->length);

        if (reason != NULL) {
            regx_fall_back(rndv, reason);
        }
        work->mismatch = !regx_recv_verify(rndv, recv, control);
    }
    regx_landing_put(&rndv->landings, chunk->landing);
}

static bool recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                const regx_control_t *control, regx_recv_work_t *work)
{
    regx_chunk_t *chunk = regx_put_find_granted(rndv, recv, control);

    if (chunk == NULL) {
        return regx_bounce_recv_control_locked(rndv, recv, control, work);
    }
    work->chunk = chunk;
    work->act = take_acknowledgement;
    work->acted_locked = regx_put_acknowledged_locked;
    return true;
}

static void revoke_chunks(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        regx_chunk_t *chunk = &recv->chunks[i];

        if (chunk->state == REGX_CHUNK_GRANTED) {
            take_key_back(rndv, chunk);
            regx_landing_put(&rndv->landings, chunk->landing);
            chunk->state = REGX_CHUNK_FREE;
        }
    }
}

static const regx_protocol_t protocol = {.grants = REGX_GRANTS_CHUNK,
                                         .recv_open = recv_open,
                                         .recv_control_locked = recv_control_locked,
                                         .advance_locked = advance_locked,
                                         .revoke_chunks = revoke_chunks,
                                         .send_open = regx_put_send_open,
                                         .send_control_locked = regx_put_send_control_locked,
                                         .flush_locked = regx_put_flush_locked,
                                         .next_locked = regx_put_next_locked,
                                         .drop_locked = regx_put_drop_locked};

const regx_strategy_t regx_strategy_remap = {
    .name = "remap", .path = REGX_PATH_remap, .protocol = &protocol, .copies = true};

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Put: the receiver registers and grants chunks of the user's buffer, the sender writes them (paths
 * pipeline and direct); or landing pages, which are moved to the user (remap; landing.c).
 *
 * Chunks are cut at multiples of the chunk size from the transfer's base. The path direct has one
 * chunk, the whole. So has pipeline, by the strategy auto, where the buffer has been received into
 * before and is no longer than what could be in flight at once: there is no registration to overlap
 * with the wire, and one grant takes fewer messages. A sender to whom its buffer is new writes it
 * in parts all the same.
 *
 * By the strategy `pipeline`, over a device, the sender registers the first chunk while it waits for the
 * CTS, at the same time as the receiver (early.c): else its registration would come after the receiver's.
 * With several ports it does not: ob1 divides a message among them.
 *
 * A chunk may be served by a region that was registered for more. Should the buffer be unmapped
 * while it is granted, the region is dead: no later chunk gets it, but this one is written and acknowledged
 * like any other, and the region ends with its last use.
 */
#include "rendezvous/send.h"

/* Whether a buffer that is longer than a chunk has been used before: registered as a whole, or at
 * its beginning, so that it is worth registering the whole. A registered beginning no longer counts once to
 * register a whole buffer failed for want of memory that may be locked: each try would evict what is kept.
 * (A refusal because other transfers use up once_bytes does not count: they give it back when they end.) */
static bool is_known(const regx_rndv_t *rndv, const void *base, uint64_t length, unsigned access)
{
    return regx_region_seems_kept(rndv->registry, base, length, access) ||
           (!atomic_load(&rndv->whole_refused) &&
            regx_region_seems_kept(rndv->registry, base, rndv->config.chunk_size, access));
}

/* ---- the receive side ---- */

static uint64_t chunk_length(const regx_rndv_t *rndv, const regx_rndv_recv_t *recv)
{
    const uint64_t left = recv->buffer.length - recv->granted;

    switch (recv->path) {
    case REGX_PATH_direct:
        return left;
    case REGX_PATH_remap:
        return regx_min(left,
                        regx_landing_room(&rndv->landings, recv->buffer.base + recv->granted));
    default:
        return regx_min(left, rndv->config.chunk_size);
    }
}

/* As regx_recv_register; by the path remap the chunk gets a landing that the peer may write. Chunks of
 * that path end at the end of a page, but the last, so that only the first and the last bytes of the
 * message share a page with anything else. */
static regx_status_t register_chunk(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_chunk_t *chunk)
{
    regx_transport_t *transport = rndv->registry->transport;
    const char *to = recv->buffer.base + chunk->offset;

    if (recv->path != REGX_PATH_remap) {
        return regx_recv_register(rndv, recv, chunk, REGX_ACCESS_REMOTE_WRITE);
    }
    regx_landing_t *landing = regx_landing_get(&rndv->landings, to, chunk->length);
    if (landing == NULL) {
        regx_fall_back(rndv, "remap: all landing pages are in use");
        return REGX_NO_MEMORY;
    }
    char *at = regx_landing_at(&rndv->landings, landing, to);
    const regx_status_t status =
        transport->ops->reg(transport, at, chunk->length, REGX_ACCESS_REMOTE_WRITE, &landing->mr);
    if (status != REGX_OK) {
        regx_fall_back(rndv, "remap: no key for landing pages");
        regx_landing_put(&rndv->landings, landing);
        return status;
    }
    chunk->landing = landing;
    chunk->region.mr = &landing->mr;
    chunk->start = (uint64_t)(at - (char *)landing->mr.base);
    chunk->written = 0;
    return REGX_OK;
}

/* The chunk was written, or not, or is taken back. failed: perhaps its memory is gone. */
static void release_chunk(regx_rndv_t *rndv, const regx_rndv_recv_t *recv, regx_chunk_t *chunk,
                          bool written, bool failed)
{
    regx_transport_t *transport = rndv->registry->transport;

    if (recv->path != REGX_PATH_remap) {
        regx_buffer_release(rndv, &chunk->region, failed);
        return;
    }
    transport->ops->dereg(transport, &chunk->landing->mr);
    if (written) { /* its bytes are brought to the user */
        const char *reason = regx_landing_deliver(&rndv->landings, chunk->landing,
                                                  recv->buffer.base + chunk->offset, chunk->length);

        if (reason != NULL) {
            regx_fall_back(rndv, reason);
        }
    }
    regx_landing_put(&rndv->landings, chunk->landing);
}

static bool put_grant_first(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    const uint64_t whole = recv->buffer.length;
    const unsigned access = REGX_ACCESS_REMOTE_WRITE;
    regx_chunk_t *chunk = &recv->chunks[0];
    bool registered = false;

    if (recv->path == REGX_PATH_remap) {
        const char *refusal = regx_landings_refusal(&rndv->landings, recv->buffer.base, whole);

        if (refusal != NULL) {
            regx_fall_back(rndv, refusal);
            return false;
        }
    } else if (rndv->config.grant != REGX_GRANT_FINAL) {
        regx_revoke_recv_open(rndv, recv);
    }
    chunk->offset = 0;
    chunk->written = 0;
    /* A buffer that is known is granted whole, if it can be registered whole. */
    if (rndv->config.strategy->grants_known_whole && recv->path == REGX_PATH_pipeline &&
        whole > rndv->config.chunk_size &&
        whole <= rndv->config.chunk_size * rndv->config.chunk_depth &&
        is_known(rndv, recv->buffer.base, whole, access)) {
        chunk->length = whole;
        const regx_status_t status =
            regx_region_acquire(rndv->registry, recv->buffer.base, whole, access, &chunk->region);
        registered = status == REGX_OK;
        if (registered) {
            regx_recv_set_start(recv, chunk);
            /* Parts cannot be NACKed one by one, which a revocable transfer needs. */
            recv->cts.bits = regx_recv_ends_by_arrived(recv) ? 0 : REGX_CTS_SPLITTABLE;
        } else if (status == REGX_NO_MEMORY && !chunk->region.over_share) {
            atomic_store(&rndv->whole_refused, true);
        }
    }
    if (!registered) {
        chunk->length = chunk_length(rndv, recv);
        if (register_chunk(rndv, recv, chunk) != REGX_OK) {
            return false;
        }
    }
    chunk->state = REGX_CHUNK_GRANTED;
    recv->granted = chunk->length;
    recv->cts.count = 1;
    recv->cts.chunk_length = chunk->length;
    recv->cts.chunk_start = chunk->start;
    recv->cts.key = chunk->region.mr->key;
    recv->chunks_out++;
    return true;
}

static void put_recv_next_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_step_t *step)
{
    regx_chunk_t *chunk;

    if (regx_revoke_is_on(recv) && regx_watch_has_news(&recv->revoke.watch)) { /* look first */
        regx_revoke_set_due(rndv);
        return;
    }
    if (recv->outbox.count > 0 || recv->slots.only || recv->granted == recv->buffer.length ||
        recv->slots.out + recv->chunks_out >= REGX_GRANTS_MAX ||
        (chunk = regx_recv_chunk_find(rndv, recv, REGX_CHUNK_FREE)) == NULL) {
        regx_bounce_recv_next_locked(rndv, recv, step);
        return;
    }
    chunk->offset = recv->granted;
    chunk->length = chunk_length(rndv, recv);
    recv->granted += chunk->length;
    assert(recv->granted <= recv->buffer.length);
    step->chunk = chunk;
    step->stage = REGX_STAGE_GRANT;
}

regx_status_t regx_stage_grant(regx_rndv_t *rndv, regx_step_t *step)
{
    regx_rndv_recv_t *recv = step->recv;
    regx_chunk_t *chunk = step->chunk;
    const regx_status_t status = register_chunk(rndv, recv, chunk);

    regx_lock(&rndv->lock);
    if (status != REGX_OK) {
        chunk->state = REGX_CHUNK_BY_SLOTS;
        recv->slots.only = true;
        return REGX_OK;
    }
    /* If the receive was closed meanwhile, put_give_up_chunks finds it so. */
    chunk->state = REGX_CHUNK_GRANTED;
    recv->chunks_out++;
    if (recv->phase == REGX_RECV_STARTED) {
        const regx_control_t message = {.type = REGX_CONTROL_CTS_CHUNK,
                                        .to = recv->sender,
                                        .offset = chunk->offset,
                                        .length = chunk->length,
                                        .start = chunk->start,
                                        .key = chunk->region.mr->key};

        regx_control_post(recv->peer->conn, &recv->outbox, &message);
    }
    return REGX_OK;
}

regx_status_t regx_stage_acknowledge(regx_rndv_t *rndv, regx_step_t *step)
{
    const regx_control_t *control = step->control;
    regx_rndv_recv_t *recv = step->recv;
    regx_chunk_t *chunk = step->chunk;
    const bool written = control->type == REGX_CONTROL_ATP_CHUNK;
    const bool failed = (control->bits & REGX_CONTROL_FAILED) != 0;
    /* Whether it is the last of its chunk, as a NACK is. */
    const bool ends = control->length == chunk->length - chunk->written;

    if (ends) {
        release_chunk(rndv, recv, chunk, written, failed);
    }
    regx_recv_verify(rndv, recv, control, recv->path);
    regx_lock(&rndv->lock);
    recv->chunks_out -= ends;
    if (written) {
        recv->landed += control->length;
        assert(recv->landed <= recv->buffer.length);
        chunk->written += control->length;
        chunk->state = ends ? REGX_CHUNK_FREE : REGX_CHUNK_GRANTED;
        return REGX_OK;
    }
    if ((control->bits & REGX_CONTROL_PERMANENT) != 0) {
        atomic_store(&recv->peer->no_puts, true);
    }
    if ((failed || recv->phase == REGX_RECV_RESTARTING) &&
        regx_revoke_lost_locked(rndv, recv, control->offset)) {
        chunk->state = REGX_CHUNK_FREE;
        return REGX_OK;
    }
    chunk->state = REGX_CHUNK_BY_SLOTS;
    chunk->offset = control->offset;
    chunk->length = control->length;
    recv->slots.only = true;
    recv->buffer.suspect |= failed;
    return REGX_OK;
}

static bool put_recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                    const regx_control_t *control, regx_step_t *step)
{
    const bool atp = control->type == REGX_CONTROL_ATP_CHUNK;
    const bool parts = (recv->cts.bits & REGX_CTS_SPLITTABLE) != 0 && atp;

    if (!atp && control->type != REGX_CONTROL_NACK) {
        return regx_revoke_recv_control_locked(recv, control, step) ||
               regx_bounce_recv_control_locked(rndv, recv, control, step);
    }
    /* It has to be what is expected next of some granted chunk. */
    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        regx_chunk_t *chunk = &recv->chunks[i];
        const uint64_t left = chunk->length - chunk->written;

        if (chunk->state == REGX_CHUNK_GRANTED &&
            control->offset == chunk->offset + chunk->written &&
            (control->length == left || (parts && control->length > 0 && control->length < left))) {
            step->chunk = chunk;
            step->stage = REGX_STAGE_ACKNOWLEDGE;
            return true;
        }
    }
    return false;
}

static void put_give_up_chunks(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    regx_chunk_t *chunk;

    while ((chunk = regx_recv_chunk_find(rndv, recv, REGX_CHUNK_GRANTED)) != NULL) {
        release_chunk(rndv, recv, chunk, false, false);
        chunk->state = REGX_CHUNK_FREE;
    }
}

/* ---- the send side ---- */

/* A chunk is granted, which begins at `start` in the region that the key names. Whether that is so
 * is for the transport to check, which knows what a key is worth. It is written in parts if it is
 * longer than `part_max`. false: malformed. */
static bool take_chunk(regx_rndv_send_t *send, uint64_t offset, uint64_t length, uint64_t start,
                       const regx_key_t *key, uint64_t part_max)
{
    const uint64_t parts = part_max < length ? (length - 1) / part_max + 1 : 1;
    regx_grant_t grant = {
        .offset = offset, .chunk = true, .part = parts > 1, .target_offset = start, .key = *key};

    if (!regx_send_may_grant(send, offset, length, (unsigned)parts)) {
        return false;
    }
    for (uint64_t left = length; left > 0; left -= grant.length) {
        grant.length = regx_min(left, part_max);
        regx_send_grant(send, &grant);
        grant.offset += grant.length;
        grant.target_offset += grant.length;
    }
    return true;
}

static bool put_send_control_locked(regx_rndv_send_t *send, const regx_control_t *control,
                                    regx_step_t *step)
{
    if (control->type == REGX_CONTROL_CTS_CHUNK) {
        return take_chunk(send, control->offset, control->length, control->start, &control->key,
                          UINT64_MAX);
    }
    return regx_bounce_send_control_locked(send, control, step) ||
           regx_revoke_send_control_locked(send, control, step);
}

static bool put_send_take_cts(regx_rndv_send_t *send, const regx_cts_t *cts)
{
    const regx_rndv_t *rndv = send->rndv;
    const uint64_t size = rndv->config.chunk_size;
    const bool revocable = (cts->bits & REGX_CTS_REVOCABLE) != 0;
    /* A buffer that is new here is registered part by part, while the one before is on the wire. The
     * receiver needs to hear of parts in their order. On a node a put is only queued, and a NACK that is
     * sent after it would overtake its ATP. So there are no parts there, though the receiver may offer
     * them. */
    const bool parts = (cts->bits & REGX_CTS_SPLITTABLE) != 0 && !send->peer->conn->shares_pool &&
                       cts->chunk_length <= size * REGX_GRANTS_MAX &&
                       !is_known(rndv, send->buffer.base, cts->chunk_length, REGX_ACCESS_LOCAL);

    if (!take_chunk(send, 0, cts->chunk_length, cts->chunk_start, &cts->key,
                    parts ? size : UINT64_MAX)) {
        return false;
    }
    send->chunk_size = cts->chunk_length;
    send->agreement.state = revocable ? REGX_AGREEMENT_DUE : REGX_AGREEMENT_NOT_NEEDED;
    if (send->chunk_size < send->buffer.length) {
        send->intro = REGX_INTRO_READY_DUE;
    } else {
        send->intro = revocable ? REGX_INTRO_BY_NEXT : REGX_INTRO_DONE;
    }
    return true;
}

static const regx_protocol_t protocol = {.grants = REGX_GRANTS_CHUNK,
                                         .grant_first = put_grant_first,
                                         .recv_control_locked = put_recv_control_locked,
                                         .recv_next_locked = put_recv_next_locked,
                                         .give_up_chunks = put_give_up_chunks,
                                         .send_take_cts = put_send_take_cts,
                                         .send_control_locked = put_send_control_locked};

const regx_strategy_t regx_strategy_pipeline = {
    .path = REGX_PATH_pipeline, .protocol = &protocol, .sender_writes = true, .revocable = true};

const regx_strategy_t regx_strategy_direct = {
    .path = REGX_PATH_direct, .protocol = &protocol, .sender_writes = true, .revocable = true};

/* For two processes of a node between which the kernel copies: a device writes to the pages that it
 * knows, whatever address they have by then. */
const regx_strategy_t regx_strategy_remap = {
    .path = REGX_PATH_remap, .protocol = &protocol, .copies = true};

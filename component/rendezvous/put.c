/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Put: the receiver registers and grants chunks of the user's buffer, the sender writes them (paths
 * pipeline and direct).
 *
 * Chunks are cut at multiples of the chunk size from the transfer's base. The path direct has one
 * chunk, the whole. So has pipeline, by the strategy auto, where the buffer has been received into
 * before and is no longer than what could be in flight at once: there is no registration to overlap
 * with the wire, and one grant takes fewer messages. A sender to whom its buffer is new writes it
 * in pieces all the same.
 *
 * A chunk may be served by a region that was registered for more. Should the buffer be unmapped
 * while it is granted, the region is dead: no later chunk gets it, but this one is drained like any
 * other, and the region ends with its last use.
 */
#include "rendezvous/proto.h"

#include <assert.h>
#include <stdlib.h>

#include "base/util.h"

/* Whether a buffer that is longer than a chunk has been used before: registered as a whole, or at
 * its beginning, so that it is worth registering the whole. The latter does not count once memory
 * did not suffice for a whole: each time, what is kept would be given up for it. (What others of
 * the transfers under way took of their share comes back with their end.) */
static bool is_known(const regx_rndv_t *rndv, const void *base, uint64_t length, unsigned access)
{
    return regx_region_seems_kept(rndv->registry, base, length, access) ||
           (!atomic_load(&rndv->whole_refused) &&
            regx_region_seems_kept(rndv->registry, base, rndv->config.chunk_size, access));
}

/* ---- the receive side ---- */

static uint64_t chunk_length(const regx_rndv_t *rndv, const regx_rndv_recv_t *recv)
{
    const uint64_t left = recv->length - recv->granted;

    return recv->path == REGX_PATH_direct ? left : regx_min(left, rndv->config.chunk_size);
}

void regx_put_fill_cts(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_chunk_t *chunk)
{
    (void)rndv;
    chunk->state = REGX_CHUNK_GRANTED;
    recv->granted = chunk->length;
    recv->cts.count = 1;
    recv->cts.chunk_length = chunk->length;
    recv->cts.chunk_start = chunk->start;
    recv->cts.key = chunk->region.mr->key;
    recv->chunks_out++;
}

/* Makes the chunk the whole buffer, registered. false: the buffer is not known, or cannot be. */
static bool take_known_whole(regx_rndv_t *rndv, const regx_rndv_recv_t *recv, regx_chunk_t *chunk)
{
    const uint64_t whole = recv->length;
    const unsigned access = REGX_ACCESS_REMOTE_WRITE;

    if (!rndv->config.strategy->grants_known_whole || recv->path != REGX_PATH_pipeline ||
        whole <= rndv->config.chunk_size ||
        whole > rndv->config.chunk_size * rndv->config.chunk_depth ||
        !is_known(rndv, recv->base, whole, access)) {
        return false;
    }
    const regx_status_t status =
        regx_region_acquire(rndv->registry, recv->base, whole, access, &chunk->region);
    if (status == REGX_NO_MEMORY && !chunk->region.over_share) {
        atomic_store(&rndv->whole_refused, true);
    }
    chunk->length = whole;
    if (status == REGX_OK) {
        regx_recv_set_start(recv, chunk);
    }
    return status == REGX_OK;
}

static bool recv_open(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    regx_chunk_t *chunk = &recv->chunks[0];

    if (rndv->config.revocable) {
        regx_revoke_recv_open(rndv, recv);
    }
    if (take_known_whole(rndv, recv, chunk)) {
        recv->cts.bits = regx_recv_is_revocable(recv) ? 0 : REGX_CTS_PIECES; /* none fails alone */
    } else {
        chunk->length = chunk_length(rndv, recv);
        if (regx_recv_register(rndv, recv, chunk, REGX_ACCESS_REMOTE_WRITE) != REGX_OK) {
            return false;
        }
    }
    regx_put_fill_cts(rndv, recv, chunk);
    return true;
}

static void register_chunk(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    work->status = regx_recv_register(rndv, work->recv, work->chunk, REGX_ACCESS_REMOTE_WRITE);
}

static void grant_chunk_locked(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    (void)rndv;
    regx_rndv_recv_t *recv = work->recv;
    regx_chunk_t *chunk = work->chunk;

    if (work->status != REGX_OK) {
        chunk->state = REGX_CHUNK_BY_SLOTS;
        recv->slots.only = true;
        return;
    }
    chunk->state = REGX_CHUNK_GRANTED; /* also where it is to be revoked */
    recv->chunks_out++;
    if (recv->phase == REGX_RECV_STARTED) {
        const regx_control_t message = {.type = REGX_CONTROL_CTS_CHUNK,
                                        .to = recv->sender,
                                        .offset = chunk->offset,
                                        .length = chunk->length,
                                        .start = chunk->start,
                                        .key = chunk->region.mr->key};

        regx_control_post(recv->peer, &recv->outbox, &message);
    }
}

bool regx_put_take_chunk_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_recv_work_t *work,
                                uint64_t length)
{
    regx_chunk_t *chunk;

    if (recv->outbox.full || recv->slots.only || recv->granted == recv->length ||
        recv->slots.out + recv->chunks_out >= REGX_GRANTS_MAX ||
        (chunk = regx_recv_free_chunk(rndv, recv)) == NULL) {
        return false;
    }
    chunk->offset = recv->granted;
    chunk->length = length;
    recv->granted += length;
    assert(recv->granted <= recv->length);
    work->chunk = chunk;
    work->acted_locked = grant_chunk_locked;
    return true;
}

static bool advance_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_recv_work_t *work)
{
    if (regx_revoke_is_on(recv) && regx_watch_has_news(&recv->revoke.watch)) { /* look first */
        atomic_store_explicit(&rndv->watched.looks_due, true, memory_order_relaxed);
        return false;
    }
    if (!regx_put_take_chunk_locked(rndv, recv, work, chunk_length(rndv, recv))) {
        return regx_bounce_advance_locked(rndv, recv, work);
    }
    work->act = register_chunk;
    return true;
}

regx_chunk_t *regx_put_find_granted(const regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                    const regx_control_t *control)
{
    const bool pieces =
        (recv->cts.bits & REGX_CTS_PIECES) != 0 && control->type == REGX_CONTROL_ATP_CHUNK;

    if (control->type != REGX_CONTROL_ATP_CHUNK && control->type != REGX_CONTROL_NACK) {
        return NULL;
    }
    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        regx_chunk_t *chunk = &recv->chunks[i];
        const uint64_t left = chunk->length - chunk->written;

        if (chunk->state == REGX_CHUNK_GRANTED &&
            control->offset == chunk->offset + chunk->written &&
            (control->length == left ||
             (pieces && control->length > 0 && control->length < left))) {
            return chunk;
        }
    }
    return NULL;
}

/* Whether that acknowledgement, positive or not, is the last of its chunk. */
static bool ends_chunk(const regx_recv_work_t *work)
{
    return work->control->length == work->chunk->length - work->chunk->written;
}

static void take_acknowledgement(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    work->mismatch = !regx_recv_verify(rndv, work->recv, work->control);
    if ((work->control->bits & REGX_CONTROL_FAILED) !=
        0) { /* perhaps the buffer was unmapped: it still counts as in use */
        regx_registry_progress(rndv->registry);
    }
    if (ends_chunk(work)) {
        regx_region_release(rndv->registry, &work->chunk->region);
    }
}

void regx_put_acknowledged_locked(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    const regx_control_t *control = work->control;
    regx_rndv_recv_t *recv = work->recv;
    regx_chunk_t *chunk = work->chunk;
    const bool ends = ends_chunk(work);

    recv->chunks_out -= ends;
    if (control->type == REGX_CONTROL_ATP_CHUNK) {
        recv->landed += control->length;
        assert(recv->landed <= recv->length);
        chunk->written += control->length;
        chunk->state = ends ? REGX_CHUNK_FREE : REGX_CHUNK_GRANTED;
        return;
    }
    chunk->state = REGX_CHUNK_BY_SLOTS;
    chunk->offset = control->offset;
    chunk->length = control->length;
    if (regx_revoke_nacked_locked(rndv, recv, control)) {
        return;
    }
    recv->slots.only = true;
    if ((control->bits & REGX_CONTROL_PERMANENT) != 0) {
        atomic_store(&recv->peer->no_puts, true);
    }
    recv->buffer_suspect |= (control->bits & REGX_CONTROL_FAILED) != 0;
}

static bool take_acknowledgement_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                        const regx_control_t *control, regx_recv_work_t *work)
{
    regx_chunk_t *chunk = regx_put_find_granted(rndv, recv, control);

    if (chunk == NULL) {
        return false;
    }
    work->chunk = chunk;
    work->act = take_acknowledgement;
    work->acted_locked = regx_put_acknowledged_locked;
    return true;
}

static bool recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                const regx_control_t *control, regx_recv_work_t *work)
{
    return take_acknowledgement_locked(rndv, recv, control, work) ||
           regx_revoke_recv_control_locked(recv, control, work) ||
           regx_bounce_recv_control_locked(rndv, recv, control, work);
}

static void revoke_chunks(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        if (recv->chunks[i].state == REGX_CHUNK_GRANTED) {
            regx_region_release(rndv->registry, &recv->chunks[i].region);
            recv->chunks[i].state = REGX_CHUNK_FREE;
        }
    }
}

/* ---- the send side ---- */

static regx_status_t prepare_chunk(regx_rndv_t *rndv, regx_write_t *write)
{
    const regx_put_t *put = &write->put;
    const regx_status_t status = regx_write_register(rndv, write);

    if (status == REGX_OK) {
        return REGX_OK;
    }
    regx_buffer_refused(rndv, REGX_SENDER, status, &write->region, put->local, put->length);
    if (status == REGX_NO_MEMORY && !write->region.over_share &&
        put->length > rndv->config.chunk_size) {
        atomic_store(&rndv->whole_refused, true);
    }
    /* This chunk alone: REGX_DENIED would be of the peer's memory, and permanent. */
    return status == REGX_DENIED ? REGX_FAILED : REGX_NO_MEMORY;
}

/* Or as slots. */
static bool is_granted_again(const regx_rndv_send_t *send, const regx_write_t *write)
{
    return send->agreement.state == REGX_AGREEMENT_REVOKED ||
           (send->agreement.state != REGX_AGREEMENT_NOT_NEEDED && write->failed);
}

/* What a chunk could not carry is NACKed and goes by slots, with all of it that is still queued. */
static bool chunk_unsent_locked(regx_rndv_t *rndv, regx_write_t *write, regx_status_t status)
{
    regx_rndv_send_t *send = write->send;

    (void)rndv;
    if (status == REGX_UNREACHABLE) {
        regx_send_fail_locked(send, status);
        return false;
    }
    write->permanent = status == REGX_DENIED;
    write->failed = status == REGX_FAILED;
    write->put.length += regx_write_take_rest(send, write->grant.offset + write->put.length);
    write->next = send->writes.nacks;
    send->writes.nacks = write;
    send->buffer_suspect |= write->failed;
    send->fallback |= !is_granted_again(send, write);
    send->bytes.granted -= write->put.length;
    return true;
}

static const regx_grant_kind_t chunk_kind = {
    .chunk = true, .prepare = prepare_chunk, .unsent_locked = chunk_unsent_locked};

/* Where in the region the chunk begins is for the transport to check, which knows what a key is
 * worth. */
static bool take_chunk(regx_rndv_send_t *send, uint64_t offset, uint64_t length, uint64_t start,
                       const regx_key_t *key)
{
    const regx_grant_t grant = {
        .offset = offset, .length = length, .kind = &chunk_kind, .place = start, .key = *key};

    if (!regx_write_may_grant(send, offset, length, 1)) {
        return false;
    }
    regx_write_grant(send, &grant);
    return true;
}

/* The receiver needs to hear of pieces in their order. Where puts are the kernel's copies within
 * the node, they end later than what is sent behind them: no pieces there (the receiver's way back
 * may be another wire, so it may have offered them). */
static bool goes_in_pieces(const regx_rndv_t *rndv, const regx_rndv_send_t *send,
                           const regx_cts_t *cts)
{
    return (cts->bits & REGX_CTS_PIECES) != 0 && send->chunk.size > rndv->config.chunk_size &&
           !send->peer->conn->shares_pool &&
           !is_known(rndv, send->base, send->chunk.size, REGX_ACCESS_LOCAL);
}

/* Who may send REVOKE has to know the sender at once; who sends RESUME alone, once all is written.
 */
static regx_intro_t first_intro(const regx_rndv_send_t *send, const regx_cts_t *cts)
{
    const bool revocable = (cts->bits & REGX_CTS_REVOCABLE) != 0;
    const bool optimistic = (cts->bits & REGX_CTS_OPTIMISTIC) != 0;

    if (send->chunk.size < send->length || (revocable && !optimistic)) {
        return REGX_INTRO_READY_DUE;
    }
    return revocable ? REGX_INTRO_BY_NEXT : REGX_INTRO_DONE;
}

bool regx_put_send_open(const regx_rndv_t *rndv, regx_rndv_send_t *send, const regx_cts_t *cts)
{
    if (cts->count > 0 && !take_chunk(send, 0, cts->chunk_length, cts->chunk_start, &cts->key)) {
        return false;
    }
    send->chunk.size = cts->count > 0 ? cts->chunk_length : 0;
    if (goes_in_pieces(rndv, send, cts)) {
        send->chunk.piece_max = rndv->config.chunk_size;
    }
    send->agreement.state =
        (cts->bits & REGX_CTS_REVOCABLE) != 0 ? REGX_AGREEMENT_DUE : REGX_AGREEMENT_NOT_NEEDED;
    send->intro = first_intro(send, cts);
    return true;
}

static bool take_chunk_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                              const regx_control_t *control, regx_send_work_t *work)
{
    (void)rndv, (void)work;
    return control->type == REGX_CONTROL_CTS_CHUNK &&
           take_chunk(send, control->offset, control->length, control->start, &control->key);
}

bool regx_put_send_control_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                  const regx_control_t *control, regx_send_work_t *work)
{
    return take_chunk_locked(rndv, send, control, work) ||
           regx_revoke_send_control_locked(send, control, work) ||
           regx_bounce_send_control_locked(rndv, send, control, work);
}

regx_status_t regx_put_flush_locked(regx_rndv_send_t *send)
{
    while (send->writes.nacks != NULL) {
        regx_write_t *write = send->writes.nacks;
        regx_control_t nack = regx_send_message(send, REGX_CONTROL_NACK);

        nack.offset = write->grant.offset;
        nack.length = write->put.length;
        nack.bits = (write->permanent ? REGX_CONTROL_PERMANENT : 0) |
                    (write->failed ? REGX_CONTROL_FAILED : 0);
        const regx_status_t status = regx_control_send(send->peer, &nack);
        if (status != REGX_OK) {
            return status;
        }
        send->writes.nacks = write->next;
        free(write);
    }
    return REGX_OK;
}

bool regx_put_drop_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_work_t *work)
{
    while (send->writes.nacks != NULL) {
        regx_write_t *write = send->writes.nacks;

        send->writes.nacks = write->next;
        free(write);
    }
    return regx_write_drop_locked(rndv, send, work);
}

regx_status_t regx_put_next_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                   regx_send_work_t *work)
{
    return send->agreement.state == REGX_AGREEMENT_DIFFERS
               ? regx_revoke_answer_locked(send)
               : regx_write_next_locked(rndv, send, work);
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

const regx_strategy_t regx_strategy_pipeline = {
    .name = "pipeline", .path = REGX_PATH_pipeline, .protocol = &protocol, .revocable = true};

const regx_strategy_t regx_strategy_direct = {
    .name = "direct", .path = REGX_PATH_direct, .protocol = &protocol, .revocable = true};

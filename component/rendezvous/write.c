/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writing what was granted: the send side's queue of grants, and the put of each. Slots and chunks
 * differ in how local memory is prepared and in what a failure means.
 *
 * A grant waits in the queue in the order in which it came. A put that finds no room is held, and
 * goes before the queue.
 *
 * A transport may want few writes to a peer at once (put_window in transport.h). Then sends wait,
 * and the end of a write lets progress try them again, in the order in which they began to wait.
 * While others wait for its peer, a send that is under way writes nothing more before it has waited
 * behind them. So a long message does not hold up the others until its end.
 */
#include "rendezvous/send.h"

#include <assert.h>
#include <stdlib.h>

bool regx_write_may_grant(const regx_rndv_send_t *send, uint64_t offset, uint64_t length,
                          unsigned count)
{
    return length > 0 && regx_within(offset, length, send->buffer.length) &&
           length <= send->buffer.length - send->bytes.granted &&
           send->queue.count + count <= REGX_GRANTS_MAX;
}

void regx_write_grant(regx_rndv_send_t *send, const regx_grant_t *grant)
{
    send->queue.grants[(send->queue.first + send->queue.count++) % REGX_GRANTS_MAX] = *grant;
    send->bytes.granted += grant->length;
    assert(send->queue.count <= REGX_GRANTS_MAX && send->bytes.granted <= send->buffer.length);
}

static void drop_first_grant(regx_rndv_send_t *send)
{
    send->queue.first = (send->queue.first + 1) % REGX_GRANTS_MAX;
    send->queue.count--;
}

/* Takes the first grant, or as much of it as may be written at once. */
static regx_grant_t next_piece(regx_rndv_send_t *send)
{
    regx_grant_t *first = &send->queue.grants[send->queue.first];
    const bool whole = !first->chunk || first->length <= send->chunk.piece_max;

    first->piece |= !whole;
    regx_grant_t piece = *first;
    if (whole) {
        drop_first_grant(send);
        return piece;
    }
    piece.length = send->chunk.piece_max;
    first->offset += piece.length;
    first->place += piece.length;
    first->length -= piece.length;
    return piece;
}

/* Takes from the queue what is left of a chunk of which the piece up to that offset was the last to
 * be taken; returns how many bytes. */
static uint64_t take_rest(regx_rndv_send_t *send, uint64_t offset)
{
    const regx_grant_t *first = &send->queue.grants[send->queue.first];
    const bool more = send->queue.count > 0 && first->piece && first->offset == offset;

    if (more) {
        drop_first_grant(send);
    }
    return more ? first->length : 0;
}

/* Gives up what a put had of local memory. */
static void release_local(regx_write_t *write, regx_status_t status)
{
    if (write->registered) {
        regx_buffer_release(write->send->rndv, &write->region, status == REGX_FAILED);
    }
    free(write->copy);
}

/* Whether the peer is being written as much as its transport wants, or others were first. Two
 * writes at least, so that it never runs dry between them. */
static bool must_wait_locked(const regx_rndv_send_t *send)
{
    const regx_peer_t *peer = send->peer;
    const size_t window = peer->conn->transport->put_window;

    if (window == 0 || peer->writes == 0 || !send->queue.grants[send->queue.first].chunk) {
        return false;
    }
    return (peer->writes >= 2 && peer->writing >= window) ||
           (peer->waiting > 0 && !send->window.waited);
}

static void enter_window_locked(const regx_write_t *write)
{
    if (write->grant.chunk) {
        write->send->peer->writing += write->grant.length;
        write->send->peer->writes++;
    }
}

static void leave_window_locked(const regx_write_t *write)
{
    regx_peer_t *peer = write->send->peer;

    if (write->grant.chunk) {
        assert(peer->writes > 0);
        peer->writing -= write->grant.length;
        peer->writes--;
        if (peer->waiting > 0) {
            atomic_store_explicit(&write->send->rndv->work.retry_sends, true, memory_order_relaxed);
        }
    }
}

/* Whether what failed will be granted again, rather than go by slots. */
static bool is_granted_again(const regx_rndv_send_t *send, regx_status_t status)
{
    return send->agreement.state == REGX_AGREEMENT_REVOKED ||
           (send->agreement.state != REGX_AGREEMENT_NOT_NEEDED && status == REGX_FAILED);
}

/* What a chunk could not carry is NACKed and goes by slots, with all of it that is still queued. */
static void nack_locked(const regx_write_t *write, regx_status_t status)
{
    regx_rndv_send_t *send = write->send;
    regx_control_t nack = regx_send_message(send, REGX_CONTROL_NACK);

    nack.offset = write->grant.offset;
    nack.length = write->put.length + take_rest(send, write->grant.offset + write->put.length);
    nack.bits = status == REGX_DENIED   ? REGX_CONTROL_PERMANENT
                : status == REGX_FAILED ? REGX_CONTROL_FAILED
                                        : 0;
    regx_send_post_locked(send, &nack);
    send->buffer.suspect |= status == REGX_FAILED;
    if (!is_granted_again(send, status)) {
        send->why = REGX_WHY_sender;
    }
    send->bytes.granted -= nack.length;
}

/* What became of a put. Nothing could carry what a slot could not. */
static void ended_locked(regx_write_t *write, regx_status_t status)
{
    regx_rndv_send_t *send = write->send;
    regx_rndv_t *rndv = send->rndv;
    const bool chunk = write->grant.chunk;
    /* Acknowledged, since RESUME was sent: the receiver believes that it has it. */
    const bool old = write->restarts != send->agreement.restarts;

    assert(send->in_flight > 0);
    send->in_flight--;
    leave_window_locked(write);
    if (status == REGX_OK) {
        send->bytes.sent += write->put.length;
        regx_count(rndv->counters, &rndv->counters->puts, 1);
        send->bytes.slots += chunk || old ? 0 : write->put.length;
    } else if (chunk && !old && status != REGX_UNREACHABLE) {
        nack_locked(write, status);
    } else {
        regx_send_fail_locked(send, status);
    }
    regx_spares_give(&rndv->spares.writes, write);
}

/* The acknowledgement as immediate data; 0: it does not fit. `chunk_size`: the length of the first
 * chunk that was granted. */
static uint32_t pack_immediate(const regx_control_t *notice, uint64_t chunk_size)
{
    const uint32_t head = REGX_IMMEDIATE_ATP |
                          regx_immediate_low(notice->to.generation, REGX_IMMEDIATE_GENERATION_BITS)
                              << REGX_IMMEDIATE_WHAT_BITS;

    if ((notice->bits & REGX_CONTROL_CHECKSUM) != 0) {
        return 0;
    }
    if (notice->type == REGX_CONTROL_ATP_SLOT) {
        const uint32_t unit = notice->slot / REGX_IMMEDIATE_SLOT_UNIT;
        const bool whole = notice->slot % REGX_IMMEDIATE_SLOT_UNIT == 0;

        return whole && unit >> REGX_IMMEDIATE_WHAT_BITS == 0 ? head | unit : 0;
    }
    if (notice->offset % chunk_size != 0 ||
        notice->offset / chunk_size >> REGX_IMMEDIATE_CHUNK_BITS != 0 ||
        notice->to.id >> REGX_IMMEDIATE_RECV_BITS != 0) {
        return 0;
    }
    return head | REGX_IMMEDIATE_CHUNK |
           (uint32_t)(notice->offset / chunk_size) << REGX_IMMEDIATE_RECV_BITS | notice->to.id;
}

static regx_status_t prepare_chunk(regx_write_t *write)
{
    regx_rndv_t *rndv = write->send->rndv;
    const regx_put_t *put = &write->put;
    const regx_status_t status =
        regx_region_acquire(rndv->registry, (void *)(uintptr_t)put->local, put->length,
                            rndv->send_access, &write->region);

    write->registered = status == REGX_OK;
    if (write->registered) {
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

/* A slot is written straight from where its bytes are registered already, if they are: that spares
 * the transport's own copies. Nothing is registered for it. REGX_FAILED: some of its bytes are not
 * there, and the send ends. */
static regx_status_t prepare_slot(regx_write_t *write)
{
    regx_rndv_t *rndv = write->send->rndv;
    regx_put_t *put = &write->put;

    if (write->suspect) {
        write->copy = malloc(put->length);
        if (write->copy == NULL) {
            return REGX_NO_MEMORY;
        }
        if (!regx_buffer_read(write->copy, put->local, put->length)) {
            write->send->buffer.gone = true;
            return REGX_FAILED;
        }
        put->local = write->copy;
    }
    write->registered = rndv->registry->transport->registers &&
                        regx_region_acquire_kept(rndv->registry, put->local, put->length,
                                                 REGX_ACCESS_LOCAL, &write->region);
    return REGX_OK;
}

/* Fills the put: field by field, since clearing the rest would cost as much as all of this. */
static regx_status_t prepare(regx_write_t *write)
{
    const regx_grant_t *grant = &write->grant;
    const bool chunk = grant->chunk;
    regx_rndv_send_t *send = write->send;
    regx_put_t *put = &write->put;

    put->local = send->buffer.base + grant->offset;
    put->target = chunk ? REGX_TARGET_REGION : REGX_TARGET_POOL;
    put->offset = grant->place;
    put->key = grant->key;
    put->context = write;
    const regx_status_t status = chunk ? prepare_chunk(write) : prepare_slot(write);
    put->region = write->registered ? write->region.mr : NULL;
    const bool introduced = send->intro == REGX_INTRO_DONE;
    send->intro = REGX_INTRO_DONE; /* by this notice, or by the NACK in its place */
    if (status != REGX_OK) {
        return status;
    }
    regx_control_t notice =
        regx_send_message(send, chunk ? REGX_CONTROL_ATP_CHUNK : REGX_CONTROL_ATP_SLOT);
    notice.slot = chunk ? 0 : (uint32_t)grant->place;
    notice.offset = grant->offset;
    notice.length = grant->length;
    if (send->verify) {
        notice.bits = REGX_CONTROL_CHECKSUM;
        notice.checksum = regx_buffer_checksum(put->local, put->length);
    }
    put->tag = REGX_TAG_CONTROL;
    put->notice_length = (uint8_t)regx_control_pack(&notice, put->notice);
    put->immediate = introduced && !grant->piece ? pack_immediate(&notice, send->chunk.size) : 0;
    return REGX_OK;
}

/* Hands the put to the transport. Once that answers REGX_PENDING the record belongs to who is told
 * of its end. */
static regx_status_t act_put(void *object)
{
    regx_write_t *write = object;
    regx_conn_t *conn = write->send->peer->conn;
    regx_status_t status = write->prepared ? REGX_OK : prepare(write);

    if (status == REGX_OK) {
        write->prepared = true;
        status = conn->transport->ops->put(conn, &write->put);
    }
    if (status != REGX_AGAIN && status != REGX_PENDING) {
        release_local(write, status);
    }
    return status;
}

static regx_status_t acted_locked(void *object, regx_status_t status)
{
    regx_write_t *write = object;

    if (status == REGX_AGAIN) {
        write->send->held = write;
        return REGX_AGAIN;
    }
    if (status != REGX_PENDING) {
        ended_locked(object, status);
    }
    return REGX_OK;
}

static regx_status_t act_drop(void *object)
{
    release_local(object, REGX_OK);
    return REGX_OK;
}

/* A put that will not be made: its chunk is NACKed, unless the send has failed. */
static regx_status_t not_begun_locked(void *object, regx_status_t status)
{
    (void)status;
    ended_locked(object, REGX_NO_MEMORY);
    return REGX_OK;
}

/* A chunk of which REVOKE takes back what is not begun: it is NACKed. */
static bool is_revoked(const regx_rndv_send_t *send, const regx_grant_t *grant)
{
    return send->agreement.state == REGX_AGREEMENT_REVOKED && grant->chunk;
}

static regx_write_t *take_first_grant(regx_rndv_send_t *send)
{
    regx_write_t *write = regx_spares_take(&send->rndv->spares.writes);

    if (write == NULL && (write = malloc(sizeof(*write))) == NULL) {
        return NULL;
    }
    write->send = send;
    write->grant = next_piece(send);
    write->put.length = write->grant.length;
    write->registered = write->prepared = false;
    write->copy = NULL;
    write->suspect = send->buffer.suspect;
    write->restarts = send->agreement.restarts;
    send->in_flight++;
    enter_window_locked(write);
    return write;
}

regx_status_t regx_write_next_locked(regx_rndv_send_t *send,
                                     void (*done)(regx_put_t *put, regx_status_t status),
                                     regx_send_work_t *work)
{
    regx_write_t *write = send->held;

    if (write == NULL) {
        const regx_grant_t *first = &send->queue.grants[send->queue.first];

        if (send->queue.count == 0 ||
            (first->piece && send->in_flight >= send->rndv->config.chunk_depth)) {
            return REGX_PENDING;
        }
        if (!is_revoked(send, first) && must_wait_locked(send)) {
            send->window.waits = true;
            send->peer->waiting++;
            return REGX_AGAIN;
        }
        write = take_first_grant(send);
        if (write == NULL) {
            return REGX_AGAIN;
        }
        write->put.done = done;
    }
    send->held = NULL;
    *work = is_revoked(send, &write->grant) ? (regx_send_work_t){act_drop, not_begun_locked, write}
                                            : (regx_send_work_t){act_put, acted_locked, write};
    return REGX_OK;
}

static regx_status_t act_completed(void *object)
{
    regx_write_t *write = object;

    release_local(write, write->status);
    return write->status;
}

static regx_status_t completed_locked(void *object, regx_status_t status)
{
    const regx_write_t *write = object;

    if (write->grant.piece && status != REGX_OK) {
        /* The pieces behind it may be under way: no NACK can speak of it alone any more. */
        regx_send_fail_locked(write->send, status);
    }
    ended_locked(object, status);
    return REGX_OK;
}

regx_send_work_t regx_write_ended(regx_write_t *write, regx_status_t status)
{
    write->status = status;
    return (regx_send_work_t){act_completed, completed_locked, write};
}

bool regx_write_drop_locked(regx_rndv_send_t *send, regx_send_work_t *work)
{
    send->queue.count = 0;
    if (send->held == NULL) {
        return false;
    }
    *work = (regx_send_work_t){act_drop, not_begun_locked, send->held};
    send->held = NULL;
    return true;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/write.h"

#include <assert.h>
#include <stdlib.h>

#include "rendezvous/checksum.h"
#include "rendezvous/immediate.h"

static void put_done(regx_put_t *put, regx_status_t status);

bool regx_write_may_grant(const regx_rndv_send_t *send, uint64_t offset, uint64_t length,
                          unsigned count)
{
    return length > 0 && offset <= send->length && length <= send->length - offset &&
           length <= send->length - send->granted && send->count + count <= REGX_GRANTS_MAX;
}

void regx_write_grant(regx_rndv_send_t *send, const regx_grant_t *grant)
{
    send->queue[(send->first + send->count++) % REGX_GRANTS_MAX] = *grant;
    send->granted += grant->length;
    assert(send->count <= REGX_GRANTS_MAX && send->granted <= send->length);
}

static void drop_first_grant(regx_rndv_send_t *send)
{
    send->first = (send->first + 1) % REGX_GRANTS_MAX;
    send->count--;
}

/* Takes the first grant, or as much of it as may be written at once. */
static regx_grant_t next_piece(regx_rndv_send_t *send)
{
    regx_grant_t *first = &send->queue[send->first];
    const bool whole = !first->kind->chunk || first->length <= send->piece_max;

    first->piece |= !whole;
    regx_grant_t piece = *first;
    if (whole) {
        drop_first_grant(send);
        return piece;
    }
    piece.length = send->piece_max;
    first->offset += piece.length;
    first->place += piece.length;
    first->length -= piece.length;
    return piece;
}

uint64_t regx_write_take_rest(regx_rndv_send_t *send, uint64_t offset)
{
    const regx_grant_t *first = &send->queue[send->first];
    const bool more = send->count > 0 && first->piece && first->offset == offset;

    if (more) {
        drop_first_grant(send);
    }
    return more ? first->length : 0;
}

static regx_write_t *write_new(regx_rndv_send_t *send)
{
    regx_write_t *write = send->spare;

    send->spare = NULL;
    return write != NULL ? write : malloc(sizeof(*write));
}

static void write_free(regx_rndv_send_t *send, regx_write_t *write)
{
    if (send->spare == NULL) {
        send->spare = write;
    } else {
        free(write);
    }
}

/* Gives up what a put had of local memory. If it failed the buffer may have been unmapped, which is
 * looked for while it still counts as in use. */
static void release_local(regx_write_t *write, regx_status_t status)
{
    regx_registry_t *registry = write->rndv->registry;

    if (write->registered) {
        if (status == REGX_FAILED) {
            regx_registry_progress(registry);
        }
        regx_region_release(registry, &write->region);
    }
    free(write->copy);
}

/* Whether the peer is being written as much as its transport wants, or others were first. Two
 * writes at least, so that it never runs dry between them. */
static bool must_wait_locked(const regx_rndv_send_t *send)
{
    const regx_peer_t *peer = send->peer;
    const size_t window = peer->conn->transport->put_window;

    if (window == 0 || peer->writes == 0 || !send->queue[send->first].kind->chunk) {
        return false;
    }
    return (peer->writes >= 2 && peer->writing >= window) || (peer->waiting > 0 && !send->waited);
}

static void enter_window_locked(const regx_write_t *write)
{
    if (write->grant.kind->chunk) {
        write->send->peer->writing += write->grant.length;
        write->send->peer->writes++;
    }
}

static void leave_window_locked(const regx_write_t *write)
{
    regx_peer_t *peer = write->send->peer;

    if (write->grant.kind->chunk) {
        assert(peer->writes > 0);
        peer->writing -= write->grant.length;
        peer->writes--;
        if (peer->waiting > 0) {
            atomic_store_explicit(&write->rndv->work.retry_sends, true, memory_order_relaxed);
        }
    }
}

/* What became of a put. */
static void ended_locked(regx_write_t *write, regx_status_t status)
{
    const regx_grant_kind_t *kind = write->grant.kind;
    regx_rndv_send_t *send = write->send;
    regx_rndv_t *rndv = write->rndv;
    const bool old = write->restarts != send->restarts; /* acknowledged: RESUME was sent */

    assert(send->in_flight > 0);
    send->in_flight--;
    leave_window_locked(write);
    if (status == REGX_OK) {
        send->sent += write->put.length;
        regx_count(rndv->counters, &rndv->counters->puts, 1);
        send->sent_slots += kind->chunk || old ? 0 : write->put.length;
    } else if (old) { /* it cannot be granted again: the receiver believes that it has it */
        regx_send_fail_locked(send, status);
    } else if (kind->unsent_locked(rndv, write, status)) {
        return;
    }
    write_free(send, write);
}

regx_status_t regx_write_register(regx_rndv_t *rndv, regx_write_t *write)
{
    const regx_status_t status =
        regx_region_acquire(rndv->registry, (void *)(uintptr_t)write->put.local, write->put.length,
                            rndv->send_access, &write->region);

    write->registered = status == REGX_OK;
    if (write->registered) {
        write->put.region = write->region.mr;
    }
    return status;
}

/* Fills the put: field by field, since clearing the rest would cost as much as all of this. */
static regx_status_t prepare(regx_rndv_t *rndv, regx_write_t *write)
{
    const regx_grant_t *grant = &write->grant;
    const regx_grant_kind_t *kind = grant->kind;
    regx_rndv_send_t *send = write->send;
    regx_put_t *put = &write->put;

    put->local = send->base + grant->offset;
    put->region = NULL;
    put->target = kind->chunk ? REGX_TARGET_REGION : REGX_TARGET_POOL;
    put->offset = grant->place;
    put->key = grant->key;
    put->done = put_done;
    put->context = write;
    const regx_status_t status = kind->prepare(rndv, write);
    const bool introduced = send->intro == REGX_INTRO_DONE;
    send->intro = REGX_INTRO_DONE; /* by this notice, or by the NACK in its place */
    if (status != REGX_OK) {
        return status;
    }
    regx_control_t notice =
        regx_send_message(send, kind->chunk ? REGX_CONTROL_ATP_CHUNK : REGX_CONTROL_ATP_SLOT);
    notice.slot = kind->chunk ? 0 : (uint32_t)grant->place;
    notice.offset = grant->offset;
    notice.length = grant->length;
    notice.has_checksum = send->verify;
    if (send->verify) {
        notice.checksum = regx_checksum(put->local, put->length);
    }
    put->tag = REGX_TAG_CONTROL;
    put->notice_length = (uint8_t)regx_control_pack(&notice, put->notice);
    put->immediate =
        introduced && !grant->piece ? regx_immediate_pack(&notice, send->chunk_size) : 0;
    return REGX_OK;
}

/* Hands the put to the transport. Once that answers REGX_PENDING the record is put_done's. */
static regx_status_t put(regx_write_t *write)
{
    regx_conn_t *conn = write->send->peer->conn;
    const regx_status_t status = conn->transport->ops->put(conn, &write->put);

    if (status != REGX_AGAIN && status != REGX_PENDING) {
        release_local(write, status);
    }
    return status;
}

static regx_status_t act_first(regx_rndv_t *rndv, void *object)
{
    regx_write_t *write = object;
    const regx_status_t status = prepare(rndv, write);

    if (status != REGX_OK) {
        release_local(write, status);
        return status;
    }
    return put(write);
}

static regx_status_t act_held(regx_rndv_t *rndv, void *object)
{
    (void)rndv;
    return put(object);
}

static regx_status_t acted_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, void *object,
                                  regx_status_t status)
{
    (void)rndv;
    if (status == REGX_AGAIN) {
        send->held = object;
        return REGX_AGAIN;
    }
    if (status != REGX_PENDING) {
        ended_locked(object, status);
    }
    return REGX_OK;
}

static const regx_work_ops_t first_ops = {.act = act_first, .acted_locked = acted_locked};
static const regx_work_ops_t held_ops = {.act = act_held, .acted_locked = acted_locked};

static regx_status_t act_drop(regx_rndv_t *rndv, void *object)
{
    (void)rndv;
    release_local(object, REGX_OK);
    return REGX_OK;
}

static regx_status_t revoked_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, void *object,
                                    regx_status_t status)
{
    (void)rndv, (void)send, (void)status;
    ended_locked(object, REGX_NO_MEMORY);
    return REGX_OK;
}

static const regx_work_ops_t revoked_ops = {.act = act_drop, .acted_locked = revoked_locked};

/* A chunk of which REVOKE takes back what is not begun: it is NACKed. */
static bool is_revoked(const regx_rndv_send_t *send, const regx_grant_t *grant)
{
    return send->agreement == REGX_AGREEMENT_REVOKED && grant->kind->chunk;
}

static regx_write_t *take_first_grant(regx_rndv_t *rndv, regx_rndv_send_t *send)
{
    regx_write_t *write = write_new(send);

    if (write == NULL) {
        return NULL;
    }
    write->rndv = rndv;
    write->send = send;
    write->grant = next_piece(send);
    write->put.length = write->grant.length;
    write->registered = false;
    write->copy = NULL;
    write->suspect = send->buffer_suspect;
    write->restarts = send->restarts;
    send->in_flight++;
    enter_window_locked(write);
    return write;
}

regx_status_t regx_write_next_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                     regx_send_work_t *work)
{
    regx_write_t *write = send->held;

    if (write != NULL) {
        send->held = NULL;
        *work =
            (regx_send_work_t){is_revoked(send, &write->grant) ? &revoked_ops : &held_ops, write};
        return REGX_OK;
    }
    if (send->count == 0 ||
        (send->queue[send->first].piece && send->in_flight >= rndv->config.chunk_depth)) {
        return REGX_PENDING;
    }
    const bool revoked = is_revoked(send, &send->queue[send->first]);
    if (!revoked && must_wait_locked(send)) {
        send->waits = true;
        send->peer->waiting++;
        return REGX_AGAIN;
    }
    write = take_first_grant(rndv, send);
    if (write == NULL) {
        return REGX_AGAIN;
    }
    if (write->grant.kind->chunk && !revoked) {
        regx_count_high(&rndv->counters->chunks_high, send->in_flight);
    }
    *work = (regx_send_work_t){revoked ? &revoked_ops : &first_ops, write};
    return REGX_OK;
}

static regx_status_t act_completed(regx_rndv_t *rndv, void *object)
{
    regx_write_t *write = object;

    (void)rndv;
    release_local(write, write->status);
    return write->status;
}

static regx_status_t completed_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, void *object,
                                      regx_status_t status)
{
    const regx_write_t *write = object;

    (void)rndv;
    if (write->grant.piece && status != REGX_OK) {
        /* The pieces behind it may be under way: no NACK can speak of it alone any more. */
        regx_send_fail_locked(send, status);
    }
    ended_locked(object, status);
    return REGX_OK;
}

static const regx_work_ops_t completed_ops = {.act = act_completed,
                                              .acted_locked = completed_locked};

static void put_done(regx_put_t *put, regx_status_t status)
{
    regx_write_t *write = put->context;

    write->status = status;
    regx_send_run(write->rndv, write->send, (regx_send_work_t){&completed_ops, write});
}

static regx_status_t dropped_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, void *object,
                                    regx_status_t status)
{
    (void)rndv;
    send->in_flight--;
    leave_window_locked(object);
    free(object);
    return status;
}

static const regx_work_ops_t drop_ops = {.act = act_drop, .acted_locked = dropped_locked};

bool regx_write_drop_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_work_t *work)
{
    (void)rndv;
    send->count = 0;
    if (send->held == NULL) {
        return false;
    }
    *work = (regx_send_work_t){&drop_ops, send->held};
    send->held = NULL;
    return true;
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The send side, in the order in which it happens: a send is opened, messages of its receiver come,
 * the next stage is chosen, a grant is written. engine.h lists the stages.
 *
 * Slots and chunks differ in how local memory is prepared and in what a failure means. A grant waits
 * in the queue in the order in which it came. A put that finds no room is held, and goes before the
 * queue.
 *
 * A transport may want few writes to a peer at once (put_inflight_max in transport.h). Then sends wait,
 * and the end of a write lets progress try them again, in the order in which they began to wait.
 * While others wait for its peer, a send that is under way writes nothing more before it has waited
 * behind them. So a long message does not hold up the others until its end.
 */
#include "rendezvous/send.h"

#include <string.h>

static void do_stages(regx_rndv_t *rndv, regx_step_t step);
static void go_on_and_unlock(regx_rndv_send_t *send);

/* ---- a send is opened ---- */

void regx_rndv_send_open(regx_rndv_t *rndv, regx_peer_t *peer, const void *base, size_t length,
                         const uint8_t bytes[REGX_CTS_SIZE], regx_rndv_send_done_t done,
                         void *context)
{
    const unsigned path = bytes[offsetof(regx_cts_t, path)];
    const regx_strategy_t *strategy = path < REGX_PATH_COUNT ? rndv->paths[path] : NULL;
    regx_cts_t cts;

    if (strategy == NULL || strategy->reads ||
        !regx_cts_unpack(bytes, strategy->protocol->grants, &cts) || cts.length != length ||
        length == 0) {
        regx_count_malformed(rndv->counters);
        done(context, REGX_INVALID);
        return;
    }
    regx_lock(&rndv->lock);
    regx_rndv_send_t *send = regx_spares_take(&rndv->spares.sends);
    regx_unlock(&rndv->lock);
    if (send == NULL && (send = malloc(sizeof(*send))) == NULL) {
        done(context, REGX_NO_MEMORY);
        return;
    }
    memset(send, 0, offsetof(regx_rndv_send_t, queue.grants));
    send->rndv = rndv;
    send->outbox = (regx_outbox_t){.room = REGX_SEND_MESSAGES, .messages = send->messages};
    send->peer = peer;
    send->buffer.base = base;
    send->buffer.length = length;
    send->owner.done = done;
    send->owner.context = context;
    send->recv = cts.recv;
    send->path = (regx_path_t)path;
    send->protocol = strategy->protocol;
    send->why = (regx_why_t)cts.why;
    send->buffer.suspect = (cts.bits & REGX_CTS_SUSPECT) != 0;
    send->verify = (cts.bits & REGX_CTS_VERIFY) != 0 || rndv->config.verify;
    send->drain = regx_drain_hold(rndv->registry->drain, base, length);
    const bool valid = send->protocol->send_take_cts(send, &cts);
    peer->chunked = send->path == REGX_PATH_pipeline;
    if (!peer->chunked) {
        regx_rndv_unexpect(rndv, peer);
    }
    regx_lock(&rndv->lock);
    if (valid && regx_handle_table_add(&rndv->sends, send, &send->handle)) {
        go_on_and_unlock(send);
        return;
    }
    regx_drain_let_go(rndv->registry->drain, send->drain);
    regx_spares_give(&rndv->spares.sends, send);
    regx_unlock(&rndv->lock);
    if (!valid) {
        regx_count_malformed(rndv->counters);
    }
    done(context, valid ? REGX_NO_MEMORY : REGX_INVALID);
}

/* ---- a message of the receiver arrives ---- */

void regx_send_control(regx_rndv_t *rndv, uint64_t sender, const regx_control_t *control)
{
    regx_lock(&rndv->lock);
    regx_rndv_send_t *send = regx_handle_table_find(&rndv->sends, control->to);
    regx_step_t step = {.stage = REGX_STAGE_NONE, .news = true, .send = send};
    if (send == NULL || send->peer->id != sender ||
        !send->protocol->send_control_locked(send, control, &step)) {
        regx_unlock(&rndv->lock);
        regx_count_malformed(rndv->counters);
    } else if (step.stage == REGX_STAGE_NONE) {
        go_on_and_unlock(send);
    } else {
        regx_unlock(&rndv->lock);
        do_stages(rndv, step);
    }
}

/* ---- the next stage is chosen ---- */

/* Chooses to write the put that is held, or the next grant, if there is one. REGX_AGAIN: there is, but
 * no memory or no room for it, or others go first. */
static regx_status_t next_write_locked(regx_rndv_send_t *send, regx_step_t *step)
{
    regx_peer_t *peer = send->peer;
    regx_write_t *write = send->held;

    if (write == NULL) {
        if (send->queue.count == 0) {
            return REGX_OK;
        }
        const size_t max = peer->conn->transport->put_inflight_max;
        /* It has to wait if enough bytes are under way to the peer, in at least two writes (with one the
         * wire would be idle between them), or if another send waited first. */
        if (max > 0 && peer->writes > 0 && regx_send_first_grant(send)->chunk &&
            ((peer->writes >= 2 && peer->writing >= max) ||
             (peer->waiting > 0 && send->limit != REGX_LIMIT_ITS_TURN))) {
            regx_link_t *list = &send->rndv->send_lists.stalled;
            regx_link_t *round = &send->rndv->send_lists.round;

            /* If progress is trying those that wait, one by one, a send that begins to wait now goes to
             * the end of that round: in `stalled` it would come before those of the round that have to
             * wait again. */
            if (send->limit != REGX_LIMIT_ITS_TURN && !regx_list_empty(round)) {
                list = round;
            }
            regx_list_set(list, &send->link, true);
            send->limit = REGX_LIMIT_WAITS;
            peer->waiting++;
            return REGX_AGAIN;
        }
        write = regx_write_take_locked(send);
        if (write == NULL) {
            return REGX_AGAIN;
        }
        write->send = send;
        write->grant = *regx_send_first_grant(send);
        regx_send_drop_grant(send);
        write->put.length = write->grant.length;
        write->put.done = NULL; /* it is not prepared */
        write->copy = NULL;
        write->suspect = send->buffer.suspect;
        write->restarts = send->agreement.restarts;
        send->in_flight++;
        if (write->grant.chunk) {
            peer->writing += write->grant.length;
            peer->writes++;
        }
    }
    send->held = NULL;
    step->stage = REGX_STAGE_WRITE;
    step->write = write;
    return REGX_OK;
}

/* Counts the message, unless it failed. The record is free from here on; the caller calls `done`. */
static void finish_locked(regx_rndv_send_t *send, regx_step_t *step)
{
    regx_rndv_t *rndv = send->rndv;

    assert(send->held == NULL && send->limit != REGX_LIMIT_WAITS);
    step->stage = REGX_STAGE_END;
    step->done = send->owner.done;
    step->context = send->owner.context;
    step->status = send->status == REGX_FAILED && send->buffer.gone ? REGX_DENIED : send->status;
    regx_handle_table_remove(&rndv->sends, send->handle);
    regx_list_remove(&send->link);
    regx_drain_let_go(rndv->registry->drain, send->drain);
    if (send->status == REGX_OK) {
        regx_flow_t *flow = rndv->config.flow;
        const uint64_t length = send->buffer.length, in_slots = regx_min(send->bytes.slots, length);
        const regx_path_t path = in_slots == length ? REGX_PATH_bounce : send->path;

        regx_count_part(flow, path, send->why, length, 1, length - in_slots);
        regx_count_part(flow, REGX_PATH_bounce, send->why, length, 0, in_slots);
    }
    regx_spares_give(&rndv->spares.sends, send);
}

/* Chooses the next stage of a send on which this thread works from now on, or was working. `status`:
 * REGX_OK; or why it cannot go on now. */
static void next_stage_locked(regx_rndv_send_t *send, regx_status_t status, regx_step_t *step)
{
    regx_rndv_t *rndv = send->rndv;
    const bool waits = send->limit == REGX_LIMIT_WAITS;

    *step = (regx_step_t){.stage = REGX_STAGE_NONE, .send = send};
    send->busy = true;
    /* Whether it has to wait for its peer's writes is decided anew. One that waited and is in no list is
     * one that progress has taken out to try it: it is its turn. */
    assert(send->peer->waiting >= waits);
    send->peer->waiting -= waits;
    send->limit =
        waits && !regx_list_has(&send->link) ? REGX_LIMIT_ITS_TURN : REGX_LIMIT_NOT_WAITING;

    /* READY, if it is due, and what found no room before. */
    if (status == REGX_OK && send->status == REGX_OK) {
        if (send->intro == REGX_INTRO_READY_DUE) {
            const regx_control_t ready = regx_send_message(send, REGX_CONTROL_READY);

            send->intro = REGX_INTRO_DONE;
            regx_send_post_locked(send, &ready);
        }
        status = regx_control_flush(send->peer->conn, &send->outbox);
    }
    if (status == REGX_OK && send->status == REGX_OK) {
        status = next_write_locked(send, step);
        if (step->stage != REGX_STAGE_NONE) {
            return;
        }
    }

    /* If it has failed, what it has is given up, one by one. */
    if (status == REGX_UNREACHABLE) {
        regx_send_fail_locked(send, status);
    }
    if (send->status != REGX_OK) {
        send->queue.count = 0;
        if (send->held != NULL) {
            step->stage = REGX_STAGE_WRITTEN;
            step->status = REGX_NO_MEMORY;
            step->write = send->held;
            send->held = NULL;
            return;
        }
    }

    /* There is nothing to be done now. REGX_AGAIN: progress is to try again. */
    send->busy = false;
    regx_list_set(&rndv->send_lists.stalled, &send->link, status == REGX_AGAIN);
    if (status == REGX_AGAIN &&
        send->limit != REGX_LIMIT_WAITS) { /* else the end of a write lets it try again */
        atomic_store_explicit(&rndv->work.retry_sends, true, memory_order_relaxed);
    }
    const uint64_t all = send->buffer.length + send->agreement.rewound;
    const bool agreed = send->agreement.state == REGX_AGREEMENT_NOT_NEEDED ||
                        send->agreement.state == REGX_AGREEMENT_REACHED;

    assert(send->bytes.sent <= all);
    if (send->in_flight == 0 && (send->status != REGX_OK || (send->bytes.sent == all && agreed))) {
        finish_locked(send, step);
    }
}

/* Does that stage and those that follow, until the send has to wait or has ended. */
static void do_stages(regx_rndv_t *rndv, regx_step_t step)
{
    while (step.stage != REGX_STAGE_NONE && step.stage != REGX_STAGE_END) {
        regx_rndv_send_t *send = step.send;
        const bool news = step.news;
        const regx_status_t status = rndv->stages[step.stage](rndv, &step);

        step.stage = REGX_STAGE_NONE;
        if (!news || !send->busy) { /* else the thread that works on it finds what is new */
            next_stage_locked(send, news ? REGX_OK : status, &step);
        }
        regx_unlock(&rndv->lock);
    }
    if (step.stage == REGX_STAGE_END) {
        step.done(step.context, step.status);
    }
}

/* Goes on with the send, unless another thread works on it: that one finds what is new. Called with
 * the lock held, returns without it. May end the send: then the done callback is called last. */
static void go_on_and_unlock(regx_rndv_send_t *send)
{
    regx_rndv_t *rndv = send->rndv;
    regx_step_t step = {.stage = REGX_STAGE_NONE};

    if (!send->busy) {
        next_stage_locked(send, REGX_OK, &step);
    }
    regx_unlock(&rndv->lock);
    do_stages(rndv, step);
}

/* ---- a grant is written ---- */

void regx_send_nack_locked(regx_rndv_send_t *send, uint64_t offset, uint64_t length, uint8_t bits)
{
    regx_control_t nack = regx_send_message(send, REGX_CONTROL_NACK);

    nack.offset = offset;
    nack.length = length;
    nack.bits = bits;
    send->bytes.granted -= length;
    regx_send_post_locked(send, &nack);
}

/* Makes the copy by which a suspect slot's bytes go. Without memory for it they go straight from where they
 * are, if reading them has just found all of them. false: some are not there. */
static bool copy_suspect(regx_write_t *write)
{
    regx_put_t *put = &write->put;
    const char *from = put->local;
    uint64_t sum;

    write->copy = malloc(put->length);
    if (write->copy == NULL) {
        return regx_buffer_prove(from, put->length, &sum);
    }
    put->local = write->copy;
    return regx_buffer_read(write->copy, from, put->length);
}

/* The transport has ended a put that it had answered by REGX_PENDING. */
static void put_completed(regx_put_t *put, regx_status_t status)
{
    regx_write_t *write = put->context;
    const regx_step_t step = {.stage = REGX_STAGE_WRITTEN,
                              .news = true,
                              .status = status,
                              .send = write->send,
                              .write = write};

    do_stages(write->send->rndv, step);
}

regx_status_t regx_stage_write(regx_rndv_t *rndv, regx_step_t *step)
{
    regx_write_t *write = step->write;
    regx_rndv_send_t *send = step->send;
    regx_conn_t *conn = send->peer->conn;
    const regx_grant_t *grant = &write->grant;
    const bool chunk = grant->chunk;
    regx_put_t *put = &write->put;
    regx_status_t status = REGX_OK;

    if (put->done == NULL) { /* else it is prepared, and found no room before */
        /* Field by field, since clearing the rest would cost as much as all of this. */
        put->local = send->buffer.base + grant->offset;
        put->target = chunk ? REGX_TARGET_REGION : REGX_TARGET_POOL;
        put->offset = grant->target_offset;
        put->key = grant->key;
        put->done = put_completed;
        put->context = write;
        if (chunk) {
            status = regx_write_register(rndv, write);
        } else if (write->suspect && !copy_suspect(write)) {
            send->buffer.gone = true;
            status = REGX_FAILED; /* and the send ends */
        } else {
            /* Straight from where its bytes are registered already, if they are: that spares the
             * transport's own copies. Nothing is registered for a slot. */
            write->registered = rndv->registry->transport->registers &&
                                regx_region_acquire_kept(rndv->registry, put->local, put->length,
                                                         REGX_ACCESS_LOCAL, &write->region);
        }
        put->region = write->registered ? write->region.mr : NULL;
        const bool introduced = send->intro == REGX_INTRO_DONE;
        send->intro = REGX_INTRO_DONE; /* by this notice, or by the NACK in its place */
        if (status == REGX_OK) {
            regx_control_t notice =
                regx_send_message(send, chunk ? REGX_CONTROL_ATP_CHUNK : REGX_CONTROL_ATP_SLOT);

            notice.slot = chunk ? 0 : (uint32_t)grant->target_offset;
            notice.offset = grant->offset;
            notice.length = grant->length;
            if (send->verify) {
                notice.bits = REGX_CONTROL_CHECKSUM;
                notice.checksum = regx_buffer_checksum(put->local, put->length);
            }
            put->tag = REGX_TAG_CONTROL;
            put->notice_length = (uint8_t)regx_control_pack(&notice, put->notice);
            put->immediate =
                introduced && !grant->part ? regx_immediate_pack(&notice, send->chunk_size) : 0;
        }
    }
    if (status == REGX_OK) {
        status = conn->transport->ops->put(conn, put);
    }
    if (status != REGX_PENDING && status != REGX_AGAIN) { /* it has ended, or is not made */
        step->status = status;
        return regx_stage_written(rndv, step);
    }
    regx_lock(&rndv->lock);
    if (status == REGX_AGAIN) {
        send->held = write;
        return REGX_AGAIN;
    }
    return REGX_OK; /* it is put_completed's, perhaps freed already */
}

/* A chunk that failed can still go by slots; if a slot fails, so does the send. */
regx_status_t regx_stage_written(regx_rndv_t *rndv, regx_step_t *step)
{
    const regx_status_t status = step->status;
    regx_write_t *write = step->write;
    regx_rndv_send_t *send = step->send;
    regx_peer_t *peer = send->peer;
    const bool chunk = write->grant.chunk;

    if (write->registered) {
        regx_buffer_release(rndv, &write->region, status == REGX_FAILED);
    }
    free(write->copy);
    regx_lock(&rndv->lock);
    if (step->news && write->grant.part && status != REGX_OK) {
        /* It was under way, and so may be the parts behind it: no NACK can speak of it alone any more. */
        regx_send_fail_locked(send, status);
    }
    assert(send->in_flight > 0);
    send->in_flight--;
    if (chunk) {
        assert(peer->writes > 0);
        peer->writing -= write->grant.length;
        peer->writes--;
        if (peer->waiting > 0) {
            atomic_store_explicit(&rndv->work.retry_sends, true, memory_order_relaxed);
        }
    }
    /* old: the write was granted before the last RESUME. The receiver sends that when all is acknowledged, so
     * it believes that these bytes have arrived: a failure cannot be mended any more. */
    const bool old = write->restarts != send->agreement.restarts;
    if (status == REGX_OK) {
        send->bytes.sent += write->put.length;
        regx_count(rndv->counters, &rndv->counters->puts, 1);
        send->bytes.slots += chunk || old ? 0 : write->put.length;
    } else if (chunk && !old && status != REGX_UNREACHABLE) {
        /* It is NACKed, together with those of its parts that are still queued. The receiver then grants
         * slots for it or, of a transfer that may be revoked, grants it anew. */
        uint64_t length = write->put.length;
        uint8_t bits = 0;

        while (write->grant.part && send->queue.count > 0 && regx_send_first_grant(send)->part) {
            length += regx_send_first_grant(send)->length;
            regx_send_drop_grant(send);
        }
        if (status == REGX_DENIED) {
            bits = REGX_CONTROL_PERMANENT;
        } else if (status == REGX_FAILED) {
            bits = REGX_CONTROL_FAILED;
            send->buffer.suspect = true;
        }
        regx_send_nack_locked(send, write->grant.offset, length, bits);
        if (status != REGX_FAILED || send->agreement.state == REGX_AGREEMENT_NOT_NEEDED) {
            send->why = REGX_WHY_sender;
        }
    } else {
        regx_send_fail_locked(send, status);
    }
    regx_spares_give(&rndv->spares.writes, write);
    return REGX_OK;
}

/* ---- progress ---- */

void regx_sends_advance(regx_rndv_t *rndv)
{
    regx_early_register(rndv);
    regx_lock(&rndv->lock);
    atomic_store_explicit(&rndv->work.retry_sends, false, memory_order_relaxed);
    regx_list_move(&rndv->send_lists.round, &rndv->send_lists.stalled);
    while (!regx_list_empty(&rndv->send_lists.round)) {
        regx_rndv_send_t *send =
            REGX_CONTAINER_OF(rndv->send_lists.round.next, regx_rndv_send_t, link);

        regx_list_remove(&send->link);
        go_on_and_unlock(send);
        regx_lock(&rndv->lock);
    }
    regx_unlock(&rndv->lock);
}

void regx_sends_forget(regx_rndv_t *rndv, const regx_peer_t *peer)
{
    regx_rndv_unexpect(rndv, peer);
    regx_lock(&rndv->lock);
    for (uint32_t i = 0; i < rndv->sends.count; i++) {
        regx_rndv_send_t *send = regx_handle_table_at(&rndv->sends, i);

        if (send != NULL && send->peer == peer) {
            regx_send_fail_locked(send, REGX_UNREACHABLE);
            go_on_and_unlock(send);
            regx_lock(&rndv->lock);
        }
    }
    regx_unlock(&rndv->lock);
}

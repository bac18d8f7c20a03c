/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/send.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* What a thread that may work on a send is to do next: a piece of work, or report the end. */
typedef struct regx_send_turn {
    regx_send_work_t work;
    regx_rndv_send_done_t done; /* NULL: it has not ended */
    void *context;
    regx_status_t status;
} regx_send_turn_t;

static regx_rndv_send_t *send_new(regx_rndv_t *rndv)
{
    regx_lock(&rndv->lock);
    regx_rndv_send_t *send = regx_spares_take(&rndv->spares.sends);
    regx_unlock(&rndv->lock);
    if (send == NULL && (send = malloc(sizeof(*send))) == NULL) {
        return NULL;
    }
    memset(send, 0, offsetof(regx_rndv_send_t, queue.grants));
    regx_list_init(&send->link);
    return send;
}

static void count_message(const regx_rndv_send_t *send)
{
    regx_flow_t *flow = send->rndv->config.flow;
    const uint64_t length = send->buffer.length, in_slots = regx_min(send->bytes.slots, length);
    const regx_path_t path = in_slots == length ? REGX_PATH_bounce : send->path;

    regx_count_part(flow, path, send->why, length, 1, length - in_slots);
    regx_count_part(flow, REGX_PATH_bounce, send->why, length, 0, in_slots);
}

/* Sends what has to go before anything else. */
static regx_status_t flush_locked(regx_rndv_send_t *send)
{
    if (send->intro == REGX_INTRO_READY_DUE) {
        const regx_control_t ready = regx_send_message(send, REGX_CONTROL_READY);

        send->intro = REGX_INTRO_DONE;
        regx_send_post_locked(send, &ready);
    }
    return regx_control_flush(send->peer, &send->outbox);
}

static void put_done(regx_put_t *put, regx_status_t status);

/* Chooses the next piece of work, as regx_write_next_locked. */
static regx_status_t next_work_locked(regx_rndv_send_t *send, regx_send_work_t *work)
{
    const regx_status_t status = regx_write_next_locked(send, put_done, work);

    return status == REGX_PENDING ? regx_get_next_locked(send, work) : status;
}

/* The record is free from here on; the caller reports the end. */
static void finish_locked(regx_rndv_send_t *send, regx_send_turn_t *turn)
{
    regx_rndv_t *rndv = send->rndv;

    assert(send->held == NULL && send->get.rkeys == NULL && !send->window.waits);
    turn->done = send->owner.done;
    turn->context = send->owner.context;
    turn->status = send->status == REGX_FAILED && send->buffer.gone ? REGX_DENIED : send->status;
    regx_handle_table_remove(&rndv->sends, send->handle);
    regx_list_remove(&send->link);
    regx_drain_let_go(rndv->registry->drain, send->drain);
    if (send->status == REGX_OK) {
        count_message(send);
    }
    regx_spares_give(&rndv->spares.sends, send);
}

/* It is looked at anew whether the send has to wait for its peer's window. If progress tries it, it
 * is in no list. */
static void end_wait_locked(regx_rndv_send_t *send)
{
    send->window.waited = send->window.waits && !regx_list_has(&send->link);
    if (send->window.waits) {
        assert(send->peer->waiting > 0);
        send->window.waits = false;
        send->peer->waiting--;
    }
}

/* Where a send that found no room is kept. One that begins to wait for a window goes behind those
 * that progress has still to try: else it would be before them the next time. */
static regx_link_t *list_locked(const regx_rndv_send_t *send)
{
    regx_rndv_t *rndv = send->rndv;
    const bool begins = send->window.waits && !send->window.waited;

    return begins && !regx_list_empty(&rndv->send_lists.round) ? &rndv->send_lists.round
                                                               : &rndv->send_lists.stalled;
}

/* Goes on as far as possible under the lock. The caller is the thread that works on the send;
 * `status` is how that went so far. */
static regx_send_turn_t next_turn_locked(regx_rndv_send_t *send, regx_status_t status)
{
    regx_send_turn_t turn = {.done = NULL};

    send->taken = true;
    end_wait_locked(send);
    if (status == REGX_OK && send->status != REGX_UNREACHABLE) {
        status = flush_locked(send); /* also if it has failed: chunks may be advertised */
    }
    if (status == REGX_OK && send->status == REGX_OK) {
        status = next_work_locked(send, &turn.work);
        if (status == REGX_OK) {
            return turn;
        }
    }
    if (status == REGX_UNREACHABLE) {
        regx_send_fail_locked(send, status);
    }
    if (send->status != REGX_OK &&
        (regx_write_drop_locked(send, &turn.work) || regx_get_drop_locked(send, &turn.work))) {
        return turn;
    }
    send->taken = false;
    const bool stalled = status == REGX_AGAIN;
    regx_list_set(list_locked(send), &send->link, stalled);
    if (stalled && !send->window.waits) {
        atomic_store_explicit(&send->rndv->work.retry_sends, true, memory_order_relaxed);
    }
    const uint64_t all = send->buffer.length + send->agreement.rewound;
    assert(send->bytes.sent <= all);
    const bool agreed = send->agreement.state == REGX_AGREEMENT_NOT_NEEDED ||
                        send->agreement.state == REGX_AGREEMENT_THERE;
    if (send->in_flight == 0 && (send->status != REGX_OK || (send->bytes.sent == all && agreed))) {
        finish_locked(send, &turn);
    }
    return turn;
}

/* Does one piece of work after the other, and reports the end if it comes to that. */
static void take_turns(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_turn_t turn)
{
    while (turn.work.act != NULL) {
        const regx_send_work_t work = turn.work;
        regx_status_t status = work.act(work.object);

        regx_lock(&rndv->lock);
        status = work.acted_locked(work.object, status);
        turn = next_turn_locked(send, status);
        regx_unlock(&rndv->lock);
    }
    if (turn.done != NULL) {
        turn.done(turn.context, turn.status);
    }
}

/* Goes on with the send, unless another thread works on it: that one finds what is new. Called with
 * the lock held, returns without it. May end the send: then the done callback is called last. */
static void go_on_and_unlock(regx_rndv_send_t *send)
{
    regx_rndv_t *rndv = send->rndv;
    regx_send_turn_t turn = {.done = NULL};

    if (!send->taken) {
        turn = next_turn_locked(send, REGX_OK);
    }
    regx_unlock(&rndv->lock);
    take_turns(rndv, send, turn);
}

/* Does a piece of work that a message or a completion made, and goes on. */
static void run(regx_rndv_send_t *send, regx_send_work_t work)
{
    const regx_status_t status = work.act(work.object);

    regx_lock(&send->rndv->lock);
    work.acted_locked(work.object, status);
    go_on_and_unlock(send);
}

static void put_done(regx_put_t *put, regx_status_t status)
{
    regx_write_t *write = put->context;

    run(write->send, regx_write_ended(write, status));
}

/* Takes apart the CTS that a peer sent. false: malformed, or no strategy has its path. */
static bool read_cts(const regx_rndv_t *rndv, const uint8_t bytes[REGX_CTS_SIZE], regx_cts_t *cts)
{
    const unsigned path = bytes[offsetof(regx_cts_t, path)];

    return path < REGX_PATH_COUNT && rndv->paths[path] != NULL &&
           regx_cts_unpack(bytes, rndv->paths[path]->protocol->grants, cts);
}

void regx_rndv_send_open(regx_rndv_t *rndv, regx_peer_t *peer, const void *base, size_t length,
                         const uint8_t bytes[REGX_CTS_SIZE], regx_rndv_send_done_t done,
                         void *context)
{
    regx_cts_t cts;

    if (!read_cts(rndv, bytes, &cts) || cts.length != length || length == 0) {
        regx_count_malformed(rndv->counters);
        done(context, REGX_INVALID);
        return;
    }
    regx_rndv_send_t *send = send_new(rndv);
    if (send == NULL) {
        done(context, REGX_NO_MEMORY);
        return;
    }
    send->rndv = rndv;
    send->outbox = (regx_outbox_t){.room = REGX_SEND_MESSAGES, .messages = send->messages};
    send->peer = peer;
    send->buffer.base = base;
    send->buffer.length = length;
    send->owner.done = done;
    send->owner.context = context;
    send->recv = cts.recv;
    send->path = (regx_path_t)cts.path;
    send->why = (regx_why_t)cts.why;
    send->buffer.suspect = (cts.bits & REGX_CTS_SUSPECT) != 0;
    send->verify = (cts.bits & REGX_CTS_VERIFY) != 0 || rndv->config.verify;
    send->chunk.piece_max = UINT64_MAX;
    send->drain = regx_drain_hold(rndv->registry->drain, base, length);
    const bool valid = rndv->paths[cts.path]->protocol->send_open(send, &cts);
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

/* Takes a message of the receiver, and sets up the work that it makes, if any. false: it does not
 * fit, and has had no effect. */
static bool take_control_locked(regx_rndv_send_t *send, const regx_control_t *control,
                                regx_send_work_t *work)
{
    switch (control->type) {
    case REGX_CONTROL_CTS_SLOTS:
        return regx_bounce_take_slots(send, control->offset, control->slots, control->slot_count);
    case REGX_CONTROL_CTS_CHUNK:
        return send->chunk.size > 0 && /* the CTS granted one, too */
               regx_put_take_grant(send, control->offset, control->length, control->start,
                                   &control->key);
    case REGX_CONTROL_ATS:
        return regx_get_take_ats_locked(send, control, work);
    default:
        return regx_revoke_send_control_locked(send, control, work);
    }
}

void regx_send_control(regx_rndv_t *rndv, uint64_t sender, const regx_control_t *control)
{
    regx_send_work_t work = {.act = NULL};

    regx_lock(&rndv->lock);
    regx_rndv_send_t *send = regx_handle_table_find(&rndv->sends, control->to);
    const bool takes =
        send != NULL && send->peer->id == sender && take_control_locked(send, control, &work);
    if (takes && work.act == NULL) {
        go_on_and_unlock(send);
        return;
    }
    regx_unlock(&rndv->lock);
    if (takes) {
        run(send, work);
    } else {
        regx_count_malformed(rndv->counters);
    }
}

void regx_sends_advance(regx_rndv_t *rndv)
{
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

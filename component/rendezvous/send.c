/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/send.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "rendezvous/proto.h"

/* What a thread that may work on a send is to do next: a piece of work, or report the end. */
typedef struct regx_send_turn {
    regx_send_work_t work;
    regx_rndv_send_done_t done; /* NULL: it has not ended */
    void *context;
    regx_status_t status;
} regx_send_turn_t;

static regx_rndv_send_t *of_link(regx_link_t *link)
{
    return REGX_CONTAINER_OF(link, regx_rndv_send_t, link);
}

static regx_rndv_send_t *send_new(regx_rndv_t *rndv)
{
    regx_rndv_send_t *send = NULL;

    regx_lock(&rndv->lock);
    if (!regx_list_empty(&rndv->free_sends)) {
        send = of_link(rndv->free_sends.next);
        regx_list_remove(&send->link);
    }
    regx_unlock(&rndv->lock);
    const bool again = send != NULL;
    if (!again) {
        send = malloc(sizeof(*send));
        if (send == NULL) {
            return NULL;
        }
    }
    regx_write_t *spare = again ? send->spare : NULL;

    memset(send, 0, offsetof(regx_rndv_send_t, queue));
    send->spare = spare;
    regx_list_init(&send->link);
    return send;
}

regx_control_t regx_send_message(const regx_rndv_send_t *send, regx_control_type_t type)
{
    return (regx_control_t){.type = type, .to = send->recv, .from = send->handle};
}

void regx_send_fail_locked(regx_rndv_send_t *send, regx_status_t status)
{
    if (send->status != REGX_UNREACHABLE) {
        send->status = status == REGX_UNREACHABLE ? REGX_UNREACHABLE : REGX_FAILED;
    }
}

static void count_message(regx_rndv_t *rndv, const regx_rndv_send_t *send)
{
    regx_counters_t *counters = rndv->counters;
    const uint64_t in_slots = regx_min(send->sent_slots, send->length);
    const bool by_slots = in_slots == send->length;

    regx_count(counters, &counters->messages[by_slots ? REGX_PATH_bounce : send->path], 1);
    regx_count(counters, &counters->bytes[REGX_PATH_bounce], in_slots);
    if (send->path != REGX_PATH_bounce) {
        regx_count(counters, &counters->bytes[send->path], send->length - in_slots);
    }
    if (send->fallback) {
        regx_count_message(counters, REGX_PATH_fallback, send->length);
    }
}

/* Sends what has to go before anything else. */
static regx_status_t flush_locked(regx_rndv_send_t *send)
{
    if (send->intro == REGX_INTRO_READY_DUE) {
        const regx_control_t ready = regx_send_message(send, REGX_CONTROL_READY);
        const regx_status_t status = regx_channel_send(send->peer, &ready);

        if (status != REGX_OK) {
            return status;
        }
        send->intro = REGX_INTRO_DONE;
    }
    return send->protocol->flush_locked != NULL ? send->protocol->flush_locked(send) : REGX_OK;
}

/* The record is free from here on; the caller reports the end. */
static void finish_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_turn_t *turn)
{
    assert(send->held == NULL && send->nacks == NULL && send->get.rkeys == NULL && !send->waits);
    turn->done = send->done;
    turn->context = send->context;
    turn->status = send->status;
    regx_handle_table_remove(&rndv->sends, send->handle);
    regx_list_remove(&send->link);
    regx_registry_let_go(rndv->registry, send->drain);
    if (send->status == REGX_OK) {
        count_message(rndv, send);
    }
    regx_list_append(&rndv->free_sends, &send->link);
}

/* It is looked at anew whether the send has to wait for its peer's window. If progress tries it, it
 * is in no list. */
static void end_wait_locked(regx_rndv_send_t *send)
{
    send->waited = send->waits && !regx_list_has(&send->link);
    if (send->waits) {
        assert(send->peer->waiting > 0);
        send->waits = false;
        send->peer->waiting--;
    }
}

/* Where a send that found no room is kept. One that begins to wait for a window goes behind those
 * that progress has still to try: else it would be before them the next time. */
static regx_link_t *list_locked(regx_rndv_t *rndv, const regx_rndv_send_t *send)
{
    return send->waits && !send->waited && !regx_list_empty(&rndv->send_round)
               ? &rndv->send_round
               : &rndv->stalled_sends;
}

/* Goes on as far as possible under the lock. The caller is the thread that works on the send;
 * `status` is how that went so far. */
static regx_send_turn_t next_turn_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                         regx_status_t status)
{
    regx_send_turn_t turn = {.done = NULL};

    send->taken = true;
    end_wait_locked(send);
    if (status == REGX_OK && send->status == REGX_OK) {
        status = flush_locked(send);
        if (status == REGX_OK) {
            status = send->protocol->next_locked(rndv, send, &turn.work);
        }
        if (status == REGX_OK) {
            return turn;
        }
    }
    if (status == REGX_UNREACHABLE) {
        regx_send_fail_locked(send, status);
    }
    if (send->status != REGX_OK && send->protocol->drop_locked(rndv, send, &turn.work)) {
        return turn;
    }
    send->taken = false;
    const bool stalled = status == REGX_AGAIN && send->status == REGX_OK;
    regx_list_set(list_locked(rndv, send), &send->link, stalled);
    if (stalled && !send->waits) {
        atomic_store_explicit(&rndv->work.retry_sends, true, memory_order_relaxed);
    }
    const uint64_t all = send->length + send->rewound;
    assert(send->sent <= all);
    const bool agreed =
        send->agreement == REGX_AGREEMENT_NOT_NEEDED || send->agreement == REGX_AGREEMENT_THERE;
    if (send->in_flight == 0 && (send->status != REGX_OK || (send->sent == all && agreed))) {
        finish_locked(rndv, send, &turn);
    }
    return turn;
}

/* As above, unless another thread works on the send: that one finds what is new. */
static regx_send_turn_t first_turn_locked(regx_rndv_t *rndv, regx_rndv_send_t *send)
{
    if (send->taken) {
        return (regx_send_turn_t){.done = NULL};
    }
    return next_turn_locked(rndv, send, REGX_OK);
}

/* Does one piece of work after the other, and reports the end if it comes to that. */
static void take_turns(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_turn_t turn)
{
    while (turn.work.ops != NULL) {
        const regx_send_work_t work = turn.work;
        regx_status_t status = work.ops->act(rndv, work.object);

        regx_lock(&rndv->lock);
        status = work.ops->acted_locked(rndv, send, work.object, status);
        turn = next_turn_locked(rndv, send, status);
        regx_unlock(&rndv->lock);
    }
    if (turn.done != NULL) {
        turn.done(turn.context, turn.status);
    }
}

void regx_send_run(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_work_t work)
{
    const regx_status_t status = work.ops->act(rndv, work.object);

    regx_lock(&rndv->lock);
    work.ops->acted_locked(rndv, send, work.object, status);
    const regx_send_turn_t turn = first_turn_locked(rndv, send);
    regx_unlock(&rndv->lock);
    take_turns(rndv, send, turn);
}

bool regx_send_read_cts(const regx_rndv_t *rndv, const uint8_t bytes[REGX_CTS_SIZE],
                        regx_cts_t *cts)
{
    const unsigned path = regx_cts_path(bytes);
    const regx_protocol_t *protocol = path < REGX_PATH_COUNT ? rndv->protocols[path] : NULL;

    return protocol != NULL && regx_cts_unpack(bytes, protocol->grants, cts);
}

void regx_rndv_send_open(regx_rndv_t *rndv, regx_peer_t *peer, const void *base, size_t length,
                         const uint8_t bytes[REGX_CTS_SIZE], regx_rndv_send_done_t done,
                         void *context)
{
    regx_send_turn_t turn = {.done = done, .context = context, .status = REGX_NO_MEMORY};
    regx_cts_t cts;

    if (!regx_send_read_cts(rndv, bytes, &cts) || cts.length != length || length == 0) {
        regx_malformed(rndv);
        done(context, REGX_INVALID);
        return;
    }
    regx_rndv_send_t *send = send_new(rndv);
    if (send == NULL) {
        done(context, REGX_NO_MEMORY);
        return;
    }
    send->peer = peer;
    send->base = base;
    send->length = length;
    send->done = done;
    send->context = context;
    send->recv = cts.recv;
    send->path = cts.path;
    send->protocol = rndv->protocols[cts.path];
    send->fallback = cts.fallback;
    send->buffer_suspect = cts.suspect;
    send->verify = cts.verify || rndv->config.verify;
    send->chunk_size = cts.chunk_length;
    send->piece_max = UINT64_MAX;
    send->drain = regx_registry_hold(rndv->registry, base, length);
    const bool valid = send->protocol->send_open(rndv, send, &cts);
    regx_lock(&rndv->lock);
    if (valid && regx_handle_table_add(&rndv->sends, send, &send->handle)) {
        turn = next_turn_locked(rndv, send, REGX_OK);
    } else {
        regx_registry_let_go(rndv->registry, send->drain);
        regx_list_append(&rndv->free_sends, &send->link);
    }
    regx_unlock(&rndv->lock);
    if (!valid) {
        regx_malformed(rndv);
        turn.status = REGX_INVALID;
    }
    take_turns(rndv, send, turn);
}

void regx_send_control(regx_rndv_t *rndv, uint64_t sender, const regx_control_t *control)
{
    regx_send_work_t work = {.ops = NULL};
    regx_send_turn_t turn = {.done = NULL};

    regx_lock(&rndv->lock);
    regx_rndv_send_t *send = regx_handle_table_find(&rndv->sends, control->to);
    if (send == NULL || send->peer->id != sender ||
        !send->protocol->send_control_locked(rndv, send, control, &work)) {
        regx_unlock(&rndv->lock);
        regx_malformed(rndv);
        return;
    }
    if (work.ops == NULL) {
        turn = first_turn_locked(rndv, send);
    }
    regx_unlock(&rndv->lock);
    if (work.ops != NULL) {
        regx_send_run(rndv, send, work);
    } else {
        take_turns(rndv, send, turn);
    }
}

int regx_sends_advance(regx_rndv_t *rndv)
{
    int advanced = 0;

    regx_lock(&rndv->lock);
    atomic_store_explicit(&rndv->work.retry_sends, false, memory_order_relaxed);
    regx_list_move(&rndv->send_round, &rndv->stalled_sends);
    while (!regx_list_empty(&rndv->send_round)) {
        regx_rndv_send_t *send = of_link(rndv->send_round.next);

        regx_list_remove(&send->link);
        const regx_send_turn_t turn = first_turn_locked(rndv, send);
        regx_unlock(&rndv->lock);
        take_turns(rndv, send, turn);
        regx_lock(&rndv->lock);
        advanced++;
    }
    regx_unlock(&rndv->lock);
    return advanced;
}

void regx_sends_forget(regx_rndv_t *rndv, const regx_peer_t *peer)
{
    regx_lock(&rndv->lock);
    for (uint32_t i = 0; i < rndv->sends.count; i++) {
        regx_rndv_send_t *send = regx_handle_table_at(&rndv->sends, i);

        if (send != NULL && send->peer == peer) {
            regx_send_fail_locked(send, REGX_UNREACHABLE);
            const regx_send_turn_t turn = first_turn_locked(rndv, send);
            regx_unlock(&rndv->lock);
            take_turns(rndv, send, turn);
            regx_lock(&rndv->lock);
        }
    }
    regx_unlock(&rndv->lock);
}

void regx_sends_free(regx_rndv_t *rndv)
{
    while (!regx_list_empty(&rndv->free_sends)) {
        regx_rndv_send_t *send = of_link(rndv->free_sends.next);

        regx_list_remove(&send->link);
        free(send->spare);
        free(send);
    }
}

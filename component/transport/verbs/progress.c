/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Completions: frames that arrived, work that is done, and what went wrong.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/verbs/internal.h"

#define BATCH 16
#define BATCHES 4            /* of one progress */
#define GRH_SIZE 40          /* before what a UD queue pair receives */
#define EVENT_INTERVAL 4096u /* calls of progress between two looks at what the device reports */
#define EVENTS 64            /* of one look */

#define STATUS_MAX 96

static void say_status(const struct ibv_wc *wc, char text[STATUS_MAX])
{
    snprintf(text, STATUS_MAX, "%s (status %d, vendor's %#x)", ibv_wc_status_str(wc->status),
             (int)wc->status, wc->vendor_err);
}

static void malformed(const regx_verbs_t *verbs)
{
    regx_count(verbs->config.counters, &verbs->config.counters->malformed, 1);
}

static void deliver(const regx_pair_t *pair, uint8_t tag, const void *data, size_t length)
{
    const regx_transport_events_t *events = &pair->verbs->config.events;

    pair->verbs->events++;
    events->deliver(events->context, pair->peer, tag, data, length);
}

/* Keeps a piece of a frame until the last one comes. */
static bool gather(regx_pair_t *pair, const uint8_t *data, size_t length)
{
    if (pair->gathered == NULL) {
        pair->gathered = malloc(REGX_VERBS_LEND_MAX);
        pair->gathered_length = 0;
    }
    if (pair->gathered == NULL) {
        pair->garbled = true;
        regx_pair_break(pair, "receiving", "no memory for a frame");
        return false;
    }
    if (length > REGX_VERBS_LEND_MAX - pair->gathered_length) {
        pair->garbled = true;
        malformed(pair->verbs);
        regx_pair_break(pair, "receiving", "a frame is longer than allowed");
        return false;
    }
    memcpy(pair->gathered + pair->gathered_length, data, length);
    pair->gathered_length += length;
    return true;
}

static void receive_last(regx_pair_t *pair, uint8_t tag, const uint8_t *data, size_t length)
{
    if (pair->gathered == NULL) {
        deliver(pair, tag, data, length);
    } else if (gather(pair, data, length)) {
        uint8_t *whole = pair->gathered;

        pair->gathered = NULL;
        deliver(pair, tag, whole, pair->gathered_length);
        free(whole);
    }
}

static void receive_frame(regx_pair_t *pair, uint32_t immediate, const uint8_t *data, size_t length)
{
    const uint8_t tag = (uint8_t)immediate;

    regx_pair_ready(pair); /* it would not send otherwise */
    if (immediate != regx_piece_pack(immediate >> 24, tag)) {
        malformed(pair->verbs);
        return;
    }
    switch (immediate >> 24) {
    case REGX_PIECE_LAST:
        pair->parted = false;
        if (!pair->garbled) {
            receive_last(pair, tag, data, length);
        }
        break;
    case REGX_PIECE_MORE:
        pair->parted = false;
        if (!pair->garbled) {
            gather(pair, data, length);
        }
        break;
    case REGX_PIECE_GOODBYE:
        pair->parted = true;
        pair->verbs->leaving = true;
        break;
    default:
        malformed(pair->verbs);
    }
}

/* The peer has written where we let it. */
static void receive_written(regx_pair_t *pair, uint32_t immediate)
{
    const regx_transport_events_t *events = &pair->verbs->config.events;

    regx_pair_ready(pair);
    if (immediate >> 24 != REGX_PIECE_WRITTEN || events->immediate == NULL) {
        malformed(pair->verbs);
        return;
    }
    pair->parted = false;
    pair->verbs->events++;
    events->immediate(events->context, pair->peer, immediate & REGX_IMMEDIATE_MAX);
}

/* What became of a work request of the UD queue pair. A receive that failed is not posted again: it
 * would come back the same way, without end. */
static void hello_done(regx_verbs_t *verbs, const struct ibv_wc *wc)
{
    const bool arrived = (wc->wr_id & REGX_RECEIVED) != 0;
    const uint32_t index = (uint32_t)wc->wr_id;
    int error = 0;

    if (!arrived) {
        regx_buffer_hello_done(verbs);
    }
    if (wc->status != IBV_WC_SUCCESS) {
        char why[STATUS_MAX];

        say_status(wc, why);
        regx_hello_fail(verbs, why);
    } else if (arrived) {
        if (wc->byte_len >= GRH_SIZE) {
            regx_hello_receive(verbs, regx_buffer_hello(verbs, index), wc->byte_len - GRH_SIZE);
        }
        error = regx_buffer_hello_post(verbs, index);
    }
    if (error != 0) {
        regx_hello_fail(verbs, strerror(error));
    }
}

static void received(regx_verbs_t *verbs, const struct ibv_wc *wc)
{
    const uint32_t index = (uint32_t)wc->wr_id;

    if (wc->qp_num == verbs->ud->qp_num) {
        hello_done(verbs, wc);
        return;
    }
    regx_pair_t *pair = regx_pair_find_qpn(verbs, wc->qp_num);
    if (pair != NULL && wc->status != IBV_WC_SUCCESS) {
        regx_pair_break(pair, "receiving", ibv_wc_status_str(wc->status));
    } else if (pair != NULL && wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        receive_written(pair, be32toh(wc->imm_data));
    } else if (pair != NULL && (wc->wc_flags & IBV_WC_WITH_IMM) != 0) {
        receive_frame(pair, be32toh(wc->imm_data), regx_buffer_received(verbs, index),
                      wc->byte_len);
    } else if (pair != NULL) {
        malformed(verbs);
    }
    regx_buffer_return(verbs, index);
}

static void sent(regx_verbs_t *verbs, const struct ibv_wc *wc)
{
    if (wc->qp_num == verbs->ud->qp_num) {
        hello_done(verbs, wc);
        return;
    }
    regx_pair_t *pair = regx_pair_find_qpn(verbs, wc->qp_num);
    if (pair == NULL) {
        return; /* of one that was cut */
    }
    if (wc->status == IBV_WC_SUCCESS) {
        regx_post_done(pair, wc->wr_id);
        return;
    }
    /* What comes after the first is only flushed. */
    if (wc->status != IBV_WC_WR_FLUSH_ERR || pair->state != REGX_PAIR_BROKEN) {
        char why[STATUS_MAX];

        say_status(wc, why);
        regx_pair_break(pair, pair->works[wc->wr_id % REGX_PAIR_DEPTH].what, why);
    }
}

int regx_verbs_poll(regx_verbs_t *verbs)
{
    struct ibv_wc completions[BATCH];
    int count = 0, polled = BATCH;

    for (int batch = 0; batch < BATCHES && polled == BATCH; batch++) {
        polled = ibv_poll_cq(verbs->cq, BATCH, completions);
        if (polled < 0) {
            regx_pairs_break(verbs, "completion queue", "it cannot be polled");
        }
        if (polled < BATCH) { /* it is empty now */
            verbs->outstanding -= verbs->stale;
            verbs->stale = 0;
        }
        for (int i = 0; i < polled; i++) {
            if ((completions[i].wr_id & REGX_RECEIVED) != 0) {
                received(verbs, &completions[i]);
            } else {
                sent(verbs, &completions[i]);
            }
        }
        count += polled > 0 ? polled : 0;
        /* The answer to what was just received should not wait for this. */
        if (count == 0 || verbs->buffers.returned_count >= verbs->buffers.receives / 4) {
            regx_buffers_repost(verbs);
        }
    }
    return count;
}

static void queue_pair_failed(regx_verbs_t *verbs, const struct ibv_qp *qp, const char *why)
{
    regx_pair_t *pair = regx_pair_find_qpn(verbs, qp->qp_num);

    if (qp == verbs->ud) {
        regx_hello_fail(verbs, why);
    } else if (pair != NULL) {
        regx_pair_break(pair, "queue pair", why);
    }
}

/* The queue pair is in error; why, its completions may tell. */
static void last_taken(regx_verbs_t *verbs, const struct ibv_qp *qp)
{
    regx_pair_t *pair = verbs->pairs; /* one that rests is not found by number */

    while (pair != NULL && pair->qp != qp) {
        pair = pair->next;
    }
    if (pair != NULL) {
        pair->last_taken = true;
        verbs->broke = true;
    }
}

/* Its file descriptor does not block. */
void regx_verbs_look(regx_verbs_t *verbs)
{
    struct ibv_async_event event;

    for (int i = 0; i < EVENTS && ibv_get_async_event(verbs->port.context, &event) == 0; i++) {
        switch (event.event_type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
            queue_pair_failed(verbs, event.element.qp, ibv_event_type_str(event.event_type));
            break;
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            last_taken(verbs, event.element.qp);
            break;
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_DEVICE_FATAL:
            regx_pairs_break(verbs, "device", ibv_event_type_str(event.event_type));
            break;
        default: /* such as a port that goes down: retries tell whether it comes back in time */
            break;
        }
        ibv_ack_async_event(&event);
    }
}

int regx_verbs_progress(regx_transport_t *transport)
{
    regx_verbs_t *verbs = regx_verbs_of(transport);
    int events;

    if (!regx_enter(&verbs->entrance)) {
        return 0;
    }
    verbs->events = 0;
    const bool empty = regx_verbs_poll(verbs) < BATCH * BATCHES;
    if (verbs->turns.first != NULL) {
        regx_post_turns(verbs);
    }
    if (verbs->asking != NULL) {
        regx_hello_progress(verbs);
    }
    if (verbs->broke) {
        regx_pairs_mourn(verbs, empty);
    }
    if (verbs->leaving) {
        regx_pairs_part(verbs);
    }
    if (++verbs->calls % EVENT_INTERVAL == 0 || verbs->broke) {
        regx_verbs_look(verbs);
        regx_keepalive_progress(verbs);
    }
    events = verbs->events;
    regx_leave(&verbs->entrance);
    return events;
}

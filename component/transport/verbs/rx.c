/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/rx.h"

#include <assert.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/verbs/backlog.h"
#include "transport/verbs/buffers.h"
#include "transport/verbs/cm.h"
#include "transport/verbs/cm_queue.h"
#include "transport/verbs/ep.h"
#include "transport/verbs/tx.h"

#define BATCH 16
#define BATCHES 4 /* of one poll */
#define STATUS_MAX 96

static void format_status(const struct ibv_wc *wc, char text[STATUS_MAX])
{
    snprintf(text, STATUS_MAX, "%s (status %d, vendor's %#x)", ibv_wc_status_str(wc->status),
             (int)wc->status, wc->vendor_err);
}

static void deliver(const regx_ep_t *ep, uint8_t tag, const void *data, size_t length)
{
    const regx_transport_events_t *events = &ep->verbs->config.events;

    ep->verbs->events++;
    events->deliver(events->context, ep->peer, tag, data, length);
}

/* Keeps a segment of a frame until the last one comes. */
static bool gather(regx_ep_t *ep, const uint8_t *data, size_t length)
{
    if (ep->gathered == NULL) {
        ep->gathered = malloc(REGX_VERBS_ZCOPY_MAX);
        ep->gathered_length = 0;
    }
    if (ep->gathered == NULL) {
        ep->discards = true;
        regx_ep_break(ep, "receiving", "no memory for a frame");
        return false;
    }
    if (length > REGX_VERBS_ZCOPY_MAX - ep->gathered_length) {
        ep->discards = true;
        regx_count_malformed(ep->verbs);
        regx_ep_break(ep, "receiving", "a frame is longer than allowed");
        return false;
    }
    memcpy(ep->gathered + ep->gathered_length, data, length);
    ep->gathered_length += length;
    return true;
}

static void receive_last(regx_ep_t *ep, uint8_t tag, const uint8_t *data, size_t length)
{
    if (ep->gathered == NULL) {
        deliver(ep, tag, data, length);
    } else if (gather(ep, data, length)) {
        uint8_t *whole = ep->gathered;

        ep->gathered = NULL;
        deliver(ep, tag, whole, ep->gathered_length);
        free(whole);
    }
}

static void receive_frame(regx_ep_t *ep, uint32_t immediate, const uint8_t *data, size_t length)
{
    const uint8_t tag = (uint8_t)immediate;

    if (ep->state == REGX_EP_CONNECTED) {
        regx_cm_connected(ep); /* it would not send otherwise */
    }
    ep->used = ++ep->verbs->uses;
    if (immediate != regx_segment_pack(immediate >> 24, tag) || ep->remote != REGX_EP_REMOTE_OPEN) {
        regx_count_malformed(ep->verbs);
        return;
    }
    switch (immediate >> 24) {
    case REGX_SEGMENT_LAST:
        if (!ep->discards) {
            receive_last(ep, tag, data, length);
        }
        break;
    case REGX_SEGMENT_MORE:
        if (!ep->discards) {
            gather(ep, data, length);
        }
        break;
    case REGX_SEGMENT_GOODBYE:
        regx_cm_left(ep, tag == REGX_GOODBYE_RETIRE);
        break;
    default:
        regx_count_malformed(ep->verbs);
    }
}

/* The peer has written where we let it. */
static void receive_written(regx_ep_t *ep, uint32_t immediate)
{
    const regx_transport_events_t *events = &ep->verbs->config.events;

    regx_cm_connected(ep);
    ep->used = ++ep->verbs->uses;
    if (immediate >> 24 != REGX_SEGMENT_WRITTEN || events->immediate == NULL) {
        regx_count_malformed(ep->verbs);
        return;
    }
    ep->verbs->events++;
    events->immediate(events->context, ep->peer, immediate & REGX_IMMEDIATE_MAX);
}

/* The IPv4 address of a sender over RoCE v2, as a GID, behind 20 bytes of the GRH's room. */
static bool read_ipv4(const uint8_t header[REGX_GRH_SIZE], uint8_t gid[REGX_VERBS_GID_SIZE])
{
    const uint8_t *ip = header + 20;

    memset(gid, 0, REGX_VERBS_GID_SIZE);
    gid[10] = gid[11] = 0xff;
    memcpy(gid + 12, ip + 12, 4);
    return ip[0] == 0x45 && header[0] >> 4 != 6;
}

/* Where a datagram came from, as the device saw it. `gid` has room for the answer's. */
static regx_cm_source_t find_source(const regx_verbs_t *verbs, const struct ibv_wc *wc,
                                    const uint8_t header[REGX_GRH_SIZE],
                                    uint8_t gid[REGX_VERBS_GID_SIZE])
{
    const bool ethernet = verbs->address.link_layer == REGX_VERBS_ETHERNET;
    regx_cm_source_t source = {.qpn = wc->src_qp};

    if ((wc->wc_flags & IBV_WC_GRH) == 0) {
        source.lid = ethernet ? 0 : wc->slid;
    } else if (header[0] >> 4 == 6) {
        memcpy(gid, header + 8, REGX_VERBS_GID_SIZE);
        source.gid = gid;
    } else if (ethernet && read_ipv4(header, gid)) {
        source.gid = gid;
    }
    return source;
}

static void datagram_arrived(regx_verbs_t *verbs, const struct ibv_wc *wc)
{
    const uint8_t *bytes = regx_buffer_datagram(verbs, (uint32_t)wc->wr_id);
    uint8_t gid[REGX_VERBS_GID_SIZE];

    if (wc->byte_len >= REGX_GRH_SIZE) {
        const regx_cm_source_t source = find_source(verbs, wc, bytes - REGX_GRH_SIZE, gid);

        regx_cm_receive(verbs, bytes, wc->byte_len - REGX_GRH_SIZE, &source);
    }
}

/* What became of a work request of the UD queue pair. A receive that failed is not posted again: it
 * would come back the same way, without end. All are when the queue pair is used again. */
static void datagram_done(regx_verbs_t *verbs, const struct ibv_wc *wc)
{
    const bool arrived = (wc->wr_id & REGX_RECEIVED) != 0;
    int error = 0;

    if (arrived) {
        verbs->cm.receives--;
    } else {
        regx_cm_sent(verbs);
    }
    if (wc->status != IBV_WC_SUCCESS) {
        char why[STATUS_MAX];

        format_status(wc, why);
        regx_cm_queue_failed(verbs, why);
    } else if (arrived) {
        datagram_arrived(verbs, wc);
        error = verbs->cm.rests ? 0 : regx_buffer_datagram_post(verbs, (uint32_t)wc->wr_id);
    } else {
        verbs->cm.failing_since = 0;
    }
    if (error != 0) {
        regx_eps_break_unready(verbs, strerror(error));
    }
}

static void receive_failed(regx_ep_t *ep, enum ibv_wc_status status)
{
    if (status == IBV_WC_WR_FLUSH_ERR) {
        regx_ep_fail(ep, "receiving", ibv_wc_status_str(status));
    } else {
        regx_ep_break(ep, "receiving", ibv_wc_status_str(status));
    }
}

static void received(regx_verbs_t *verbs, const struct ibv_wc *wc)
{
    const uint32_t index = (uint32_t)wc->wr_id;

    if (wc->qp_num == verbs->cm.qp->qp_num) {
        datagram_done(verbs, wc);
        return;
    }
    regx_ep_t *ep = regx_ep_find_qpn(verbs, wc->qp_num);
    if (ep != NULL && wc->status == IBV_WC_SUCCESS) {
        ep->handled++;
    }
    if (ep != NULL && wc->status != IBV_WC_SUCCESS) {
        receive_failed(ep, wc->status);
    } else if (ep != NULL && wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        receive_written(ep, be32toh(wc->imm_data));
    } else if (ep != NULL && (wc->wc_flags & IBV_WC_WITH_IMM) != 0) {
        receive_frame(ep, be32toh(wc->imm_data), regx_buffer_received(verbs, index), wc->byte_len);
    } else if (ep != NULL) {
        regx_count_malformed(verbs);
    }
    regx_buffer_return(verbs, index);
}

/* Whether the next queue pair may do what this one could not. Where the own port is down, Soft-RoCE
 * says IBV_WC_LOC_QP_OP_ERR. */
static bool may_pass(enum ibv_wc_status status)
{
    return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR ||
           status == IBV_WC_LOC_QP_OP_ERR;
}

static void sent(regx_verbs_t *verbs, const struct ibv_wc *wc)
{
    if (wc->qp_num == verbs->cm.qp->qp_num) {
        datagram_done(verbs, wc);
        return;
    }
    regx_ep_t *ep = regx_ep_find_qpn(verbs, wc->qp_num);
    if (ep == NULL) {
        return; /* of one that was cut */
    }
    if (wc->status == IBV_WC_SUCCESS) {
        regx_tx_done(ep, wc->wr_id);
        return;
    }
    /* What comes after the first is only flushed. */
    if (wc->status != IBV_WC_WR_FLUSH_ERR ||
        (ep->state != REGX_EP_BROKEN && ep->state != REGX_EP_RESTING)) {
        char why[STATUS_MAX];

        format_status(wc, why);
        if (may_pass(wc->status)) {
            regx_ep_fail(ep, ep->works[wc->wr_id % ep->depth].what, why);
        } else {
            regx_ep_break(ep, ep->works[wc->wr_id % ep->depth].what, why);
        }
    }
}

static void handle(regx_verbs_t *verbs, const struct ibv_wc *completions, int count)
{
    for (int i = 0; i < count; i++) {
        if ((completions[i].wr_id & REGX_RECEIVED) != 0) {
            received(verbs, &completions[i]);
        } else {
            sent(verbs, &completions[i]);
        }
    }
}

static void repost(regx_verbs_t *verbs)
{
    const int error = regx_buffers_repost(verbs);

    if (error != 0) {
        regx_eps_break(verbs, "receive queue", strerror(error));
    }
}

int regx_verbs_poll(regx_verbs_t *verbs, bool *empty)
{
    struct ibv_wc completions[BATCH];
    int count = 0, polled = BATCH;

    *empty = false;
    for (int batch = 0; batch < BATCHES && !*empty; batch++) {
        bool kept;

        polled = regx_backlog_take(verbs, completions, BATCH, &kept);
        *empty = polled < BATCH && !kept;
        if (polled < 0) {
            regx_eps_break(verbs, "completion queue", "it cannot be polled");
        }
        if (*empty) {
            assert(verbs->outstanding >= verbs->stale);
            verbs->outstanding -= verbs->stale;
            verbs->stale = 0;
        }
        handle(verbs, completions, polled);
        count += polled > 0 ? polled : 0;
        /* The answer to what was just received should not wait for this. */
        if (count == 0 || verbs->buffers.returned_count >= verbs->buffers.receives / 4) {
            repost(verbs);
        }
    }
    return count;
}

bool regx_verbs_drain(regx_verbs_t *verbs)
{
    bool empty;

    if (regx_backlog_keep_all(verbs) != REGX_OK) {
        return false;
    }
    while (regx_backlog_has_some(verbs)) {
        regx_verbs_poll(verbs, &empty);
    }
    return true;
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One step of everything: frames that arrived, work that is done, what the device reports, and what
 * waits in line.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/verbs/ep.h"

/* Between two looks at what the device reports, each of which is a system call. */
#define LOOK_NS INT64_C(10000000)
#define IDLE_NS INT64_C(10000000000) /* after which a peer is probed */
#define CLOCK_INTERVAL 4096u /* calls of progress between two looks at the clock; a power of two */
#define TURN_ENDPOINTS 16
#define EVENTS 64 /* of one look */
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
    if (ep->gathered.memory == NULL) {
        ep->gathered.memory = malloc(REGX_VERBS_ZCOPY_MAX);
        ep->gathered.length = 0;
    }
    const bool too_long = length > REGX_VERBS_ZCOPY_MAX - ep->gathered.length;
    if (ep->gathered.memory == NULL || too_long) {
        ep->gathered.discards = true;
        regx_ep_break(ep, "receiving",
                      too_long ? "a frame is longer than allowed" : "no memory for a frame");
        if (too_long) {
            regx_verbs_count_malformed(ep->verbs);
        }
        return false;
    }
    memcpy(ep->gathered.memory + ep->gathered.length, data, length);
    ep->gathered.length += length;
    return true;
}

static void receive_last(regx_ep_t *ep, uint8_t tag, const uint8_t *data, size_t length)
{
    if (ep->gathered.memory == NULL) {
        deliver(ep, tag, data, length);
    } else if (gather(ep, data, length)) {
        uint8_t *whole = ep->gathered.memory;

        ep->gathered.memory = NULL;
        deliver(ep, tag, whole, ep->gathered.length);
        free(whole);
    }
}

static void receive_frame(regx_ep_t *ep, uint32_t immediate, const uint8_t *data, size_t length)
{
    const uint8_t tag = (uint8_t)immediate;

    regx_cm_heard(ep);
    if (immediate != regx_verbs_segment_pack(immediate >> 24, tag) || ep->peer_left) {
        regx_verbs_count_malformed(ep->verbs);
        return;
    }
    switch (immediate >> 24) {
    case REGX_SEGMENT_LAST:
        if (!ep->gathered.discards) {
            receive_last(ep, tag, data, length);
        }
        break;
    case REGX_SEGMENT_MORE:
        if (!ep->gathered.discards) {
            gather(ep, data, length);
        }
        break;
    case REGX_SEGMENT_GOODBYE:
        regx_cm_left(ep);
        break;
    default:
        regx_verbs_count_malformed(ep->verbs);
    }
}

/* The peer has written where we let it. */
static void receive_written(regx_ep_t *ep, uint32_t immediate)
{
    const regx_transport_events_t *events = &ep->verbs->config.events;

    regx_cm_heard(ep);
    if (immediate >> 24 != REGX_SEGMENT_WRITTEN || events->immediate == NULL) {
        regx_verbs_count_malformed(ep->verbs);
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
    const uint8_t *bytes = regx_verbs_buffer_datagram(verbs, (uint32_t)wc->wr_id);
    uint8_t gid[REGX_VERBS_GID_SIZE];

    if (wc->byte_len >= REGX_GRH_SIZE) {
        const regx_cm_source_t source = find_source(verbs, wc, bytes - REGX_GRH_SIZE, gid);

        regx_cm_receive(verbs, bytes, wc->byte_len - REGX_GRH_SIZE, &source);
    }
}

/* What became of a work request of the UD queue pair. A receive that failed is not posted again: it
 * would come back the same way, without end. */
static void datagram_done(regx_verbs_t *verbs, const struct ibv_wc *wc)
{
    const bool arrived = (wc->wr_id & REGX_RECEIVED) != 0;

    if (!arrived) {
        regx_cm_sent(verbs);
    }
    if (wc->status != IBV_WC_SUCCESS) {
        char why[STATUS_MAX];

        format_status(wc, why);
        regx_cm_failed(verbs, why);
    } else if (arrived) {
        datagram_arrived(verbs, wc);
        const int error = regx_verbs_buffer_datagram_post(verbs, (uint32_t)wc->wr_id);
        if (error != 0) {
            regx_cm_failed(verbs, strerror(error));
        }
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
    if (ep != NULL && wc->status != IBV_WC_SUCCESS) {
        regx_ep_break(ep, "receiving", ibv_wc_status_str(wc->status));
    } else if (ep != NULL && wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        receive_written(ep, be32toh(wc->imm_data));
    } else if (ep != NULL && (wc->wc_flags & IBV_WC_WITH_IMM) != 0) {
        receive_frame(ep, be32toh(wc->imm_data), regx_verbs_buffer_received(verbs, index),
                      wc->byte_len);
    } else if (ep != NULL) {
        regx_verbs_count_malformed(verbs);
    }
    regx_verbs_buffer_return(verbs, index);
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
        regx_sq_done(ep, wc->wr_id);
        return;
    }
    /* What comes after the first is only flushed. */
    if (ep->state != REGX_EP_BROKEN) {
        char why[STATUS_MAX];

        format_status(wc, why);
        regx_ep_break(ep, ep->sq.works[wc->wr_id % ep->sq.depth].what, why);
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

void regx_verbs_poll(regx_verbs_t *verbs, bool *empty)
{
    struct ibv_wc completions[BATCH];
    int count = 0, polled = BATCH;

    for (int batch = 0; batch < BATCHES && polled == BATCH; batch++) {
        polled = ibv_poll_cq(verbs->cq, BATCH, completions);
        if (polled < 0) {
            regx_eps_break(verbs, "completion queue", "it cannot be polled");
        }
        handle(verbs, completions, polled);
        count += polled > 0 ? polled : 0;
        /* The answer to what was just received should not wait for this. */
        if (count == 0 || verbs->buffers.returned_count >= verbs->buffers.receives / 4) {
            const int error = regx_verbs_buffers_repost(verbs);
            if (error != 0) {
                regx_eps_break(verbs, "receive queue", strerror(error));
            }
        }
    }
    *empty = polled < BATCH;
}

/* The device reports something of a queue pair. An endpoint that is at rest is not found by
 * number. */
static void queue_pair_failed(regx_verbs_t *verbs, const struct ibv_async_event *event)
{
    const struct ibv_qp *qp = event->element.qp;
    const char *why = ibv_event_type_str(event->event_type);

    if (qp == verbs->cm.qp) {
        regx_cm_failed(verbs, why);
    }
    for (regx_link_t *at = verbs->table.eps.next; at != &verbs->table.eps; at = at->next) {
        regx_ep_t *ep = REGX_CONTAINER_OF(at, regx_ep_t, link);

        if (ep->qp != qp) {
            continue;
        }
        if (event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED) {
            ep->rest.last_taken = true; /* it is in error; its completions may show why */
            regx_ep_set_ending(ep);
        } else {
            regx_ep_break(ep, "queue pair", why);
        }
    }
}

void regx_verbs_look(regx_verbs_t *verbs)
{
    struct ibv_async_event event;

    for (int i = 0; i < EVENTS && ibv_get_async_event(verbs->port.context, &event) == 0; i++) {
        switch (event.event_type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            queue_pair_failed(verbs, &event);
            break;
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_DEVICE_FATAL:
            regx_eps_break(verbs, "device", ibv_event_type_str(event.event_type));
            break;
        default: /* such as a port that goes down: retries show whether it comes back in time */
            break;
        }
        ibv_ack_async_event(&event);
    }
}

/* Moves the lines of puts and gets on; bounded. */
static void take_turns(regx_verbs_t *verbs)
{
    for (int turns = 0; turns < TURN_ENDPOINTS && !regx_list_empty(&verbs->turns); turns++) {
        regx_ep_t *ep = REGX_CONTAINER_OF(verbs->turns.next, regx_ep_t, turn);
        const bool last = ep->turn.next == &verbs->turns;

        regx_list_remove(&ep->turn);
        if (regx_sq_is_open(ep)) {
            regx_verbs_put_take_turn(ep);
            regx_verbs_get_take_turn(ep);
        }
        if ((ep->puts.first != NULL || ep->gets.line.first != NULL) &&
            ep->state != REGX_EP_BROKEN) {
            regx_list_set(&verbs->turns, &ep->turn, true);
        }
        if (last) {
            break; /* all had a turn */
        }
    }
}

/* Whether a request is under way whose end is reported. That end tells what a probe would. */
static bool awaits_report(const regx_ep_t *ep)
{
    return ep->sq.posted - ep->sq.done > ep->sq.unsignaled;
}

/* A device learns that a peer is gone only when it sends to it, and something may be awaited from
 * there. So where nothing was sent for a while, a probe is. The peer's device answers it, also
 * while its process computes. Probes take a quarter of the room for requests at most. */
static void probe_idle(regx_verbs_t *verbs)
{
    const int64_t now = regx_now_ns();

    if (now < verbs->look.probe_next) {
        return;
    }
    verbs->look.probe_next = now + IDLE_NS;
    for (regx_link_t *at = verbs->table.eps.next; at != &verbs->table.eps; at = at->next) {
        regx_ep_t *ep = REGX_CONTAINER_OF(at, regx_ep_t, link);

        if (ep->state == REGX_EP_READY && ep->conn != NULL && ep->sq.posted == ep->sq.seen &&
            !awaits_report(ep) && verbs->requests.outstanding < verbs->requests.max / 4 &&
            regx_sq_has_room(ep, 1)) {
            regx_sq_probe(ep);
        }
        ep->sq.seen = ep->sq.posted;
    }
}

static bool is_time_to_look(regx_verbs_t *verbs)
{
    const int64_t now =
        (++verbs->look.calls & (CLOCK_INTERVAL - 1)) == 0 ? regx_now_ns() : INT64_MIN;

    if (now < verbs->look.next) {
        return false;
    }
    verbs->look.next = now + LOOK_NS;
    return true;
}

int regx_verbs_progress(regx_transport_t *transport)
{
    regx_verbs_t *verbs = regx_verbs_of(transport);
    bool empty;

    if (!regx_try_lock_enter(&verbs->try_lock)) {
        return 0;
    }
    verbs->events = 0;
    regx_verbs_poll(verbs, &empty);
    take_turns(verbs);
    if (!regx_list_empty(&verbs->cm.asking) || !regx_list_empty(&verbs->cm.due)) {
        regx_cm_ask_due(verbs);
    }
    if (!regx_list_empty(&verbs->ending)) {
        regx_cm_end(verbs, empty);
    }
    if (is_time_to_look(verbs) || !regx_list_empty(&verbs->ending)) {
        regx_verbs_look(verbs);
        probe_idle(verbs);
    }
    const int events = verbs->events;
    regx_try_lock_leave(&verbs->try_lock);
    return events;
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One step of everything: frames that arrived, work that is done, what waits in line, and now and
 * then a look at what the device reports.
 */
#include <endian.h>

#include "transport/verbs/ep.h"

/* Between two looks at what the device reports, each of which is a system call. */
#define LOOK_NS INT64_C(10000000)
#define IDLE_NS INT64_C(10000000000) /* after which a peer is probed */
#define CLOCK_INTERVAL 4096u /* calls of progress between two looks at the clock; a power of two */
#define TURN_ENDPOINTS 16
#define BATCH 16
#define BATCHES 4 /* of one poll */
#define STATUS_MAX 144

/* Of the first that failed. What is flushed comes behind an error, but Soft-RoCE says no more of
 * memory that it cannot read (seen in Linux 6.12 and 7.3). */
static void format_status(const struct ibv_wc *wc, char text[STATUS_MAX])
{
    snprintf(text, STATUS_MAX, "%s (status %d, vendor's %#x)%s", ibv_wc_status_str(wc->status),
             (int)wc->status, wc->vendor_err,
             wc->status == IBV_WC_WR_FLUSH_ERR ? " and no error before it: its memory cannot be "
                                                 "reached, or the queue pair failed"
                                               : "");
}

static void receive_frame(regx_ep_t *ep, uint32_t immediate, const uint8_t *data, size_t length)
{
    const regx_transport_events_t *events = &ep->verbs->config.events;
    const uint8_t tag = (uint8_t)immediate;

    regx_cm_heard(ep);
    if (ep->peer_left) { /* nothing follows a goodbye */
        regx_count_malformed(ep->verbs->config.counters);
    } else if (immediate == regx_verbs_immediate(REGX_VERBS_FRAME, tag)) {
        ep->verbs->events++;
        events->deliver(events->context, ep->peer, tag, data, length);
    } else if (immediate == regx_verbs_immediate(REGX_VERBS_GOODBYE, tag) &&
               tag <= REGX_VERBS_EVICTED) {
        regx_cm_left(ep, (regx_verbs_goodbye_t)tag);
    } else {
        regx_count_malformed(ep->verbs->config.counters);
    }
}

/* The peer has written where we let it. */
static void receive_written(regx_ep_t *ep, uint32_t immediate)
{
    const regx_transport_events_t *events = &ep->verbs->config.events;

    regx_cm_heard(ep);
    if (immediate >> 24 != REGX_VERBS_WRITTEN || events->immediate == NULL) {
        regx_count_malformed(ep->verbs->config.counters);
        return;
    }
    ep->verbs->events++;
    events->immediate(events->context, ep->peer, immediate & REGX_IMMEDIATE_MAX);
}

/* What became of a work request of the UD queue pair. A receive that failed is not posted again: it
 * would come back the same way, without end. Whichever fails, no peer can be connected any more. */
static void datagram_done(regx_verbs_t *verbs, const struct ibv_wc *wc, bool arrived)
{
    if (!arrived) {
        regx_cm_sent(verbs);
    }
    if (wc->status != IBV_WC_SUCCESS) {
        char why[STATUS_MAX];

        format_status(wc, why);
        regx_eps_break(verbs, REGX_EP_ACCEPTED, "connecting", why);
    } else if (arrived) {
        regx_cm_receive(verbs, wc);
        const int error = regx_verbs_buffer_datagram_post(verbs, (uint32_t)wc->wr_id);
        if (error != 0) {
            regx_eps_break(verbs, REGX_EP_ACCEPTED, "connecting", strerror(error));
        }
    }
}

static void arrived(regx_ep_t *ep, const struct ibv_wc *wc)
{
    const uint8_t *data = ep->verbs->buffers.area->received[(uint32_t)wc->wr_id];

    if (wc->status != IBV_WC_SUCCESS) {
        regx_ep_break(ep, "receiving", ibv_wc_status_str(wc->status));
    } else if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        receive_written(ep, be32toh(wc->imm_data));
    } else if ((wc->wc_flags & IBV_WC_WITH_IMM) != 0) {
        receive_frame(ep, be32toh(wc->imm_data), data, wc->byte_len);
    } else {
        regx_count_malformed(ep->verbs->config.counters);
    }
}

static void request_done(regx_ep_t *ep, const struct ibv_wc *wc)
{
    char why[STATUS_MAX];

    if (wc->status == IBV_WC_SUCCESS) {
        regx_sq_done(ep, wc->wr_id);
    } else if (ep->state != REGX_EP_BROKEN) { /* what comes after the first is only flushed */
        format_status(wc, why);
        regx_ep_break(ep, ep->sq.works[wc->wr_id % REGX_VERBS_DEPTH].what, why);
    }
}

bool regx_verbs_poll(regx_verbs_t *verbs)
{
    struct ibv_wc completions[BATCH];
    int count = 0, polled = BATCH;

    for (int batch = 0; batch < BATCHES && polled == BATCH; batch++) {
        polled = ibv_poll_cq(verbs->cq, BATCH, completions);
        if (polled < 0) {
            regx_eps_break(verbs, REGX_EP_BROKEN, "completion queue", "it cannot be polled");
        }
        for (int i = 0; i < polled; i++) {
            const struct ibv_wc *wc = &completions[i];
            const bool received = (wc->wr_id & REGX_RECEIVED) != 0;

            if (wc->qp_num == verbs->cm.qp->qp_num) {
                datagram_done(verbs, wc, received);
                continue;
            }
            regx_ep_t *ep = regx_ep_find_qpn(verbs, wc->qp_num); /* NULL: it was cut */
            if (ep != NULL && received) {
                arrived(ep, wc);
            } else if (ep != NULL) {
                request_done(ep, wc);
            }
            if (received) {
                verbs->buffers.returned[verbs->buffers.returned_count++] = (uint32_t)wc->wr_id;
            }
        }
        count += polled > 0 ? polled : 0;
        /* The answer to what was just received should not wait for this. */
        if (count == 0 || verbs->buffers.returned_count >= verbs->buffers.receives / 4) {
            const int error = regx_verbs_buffers_repost(verbs);
            if (error != 0) {
                regx_eps_break(verbs, REGX_EP_BROKEN, "receive queue", strerror(error));
            }
        }
    }
    return polled < BATCH;
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
        /* Something may come from the peer: a goodbye at least, to who has said goodbye. */
        const bool awaits = (ep->state == REGX_EP_READY && ep->conn != NULL) ||
                            (ep->state == REGX_EP_LEFT && !ep->peer_left);

        /* A report that is awaited tells what a probe would. */
        if (awaits && ep->sq.posted == ep->sq.seen && !regx_sq_awaits_report(ep) &&
            verbs->requests.outstanding < verbs->requests.max / 4 && regx_sq_has_room(ep)) {
            regx_sq_probe(ep);
        }
        ep->sq.seen = ep->sq.posted;
    }
}

int regx_verbs_progress(regx_transport_t *transport)
{
    regx_verbs_t *verbs = regx_verbs_of(transport);
    bool last = false;

    if (!regx_trylock(&verbs->lock)) {
        return 0;
    }
    verbs->events = 0;
    const bool empty = regx_verbs_poll(verbs);
    /* The lines of puts and gets move on, until all had a turn. */
    for (int turns = 0; turns < TURN_ENDPOINTS && !regx_list_empty(&verbs->turns) && !last;
         turns++) {
        regx_ep_t *ep = REGX_CONTAINER_OF(verbs->turns.next, regx_ep_t, turn);

        last = ep->turn.next == &verbs->turns;
        regx_list_remove(&ep->turn);
        regx_verbs_put_take_turn(ep);
        regx_verbs_get_take_turn(ep);
        regx_verbs_wait_if_left(ep);
    }
    if (!regx_list_empty(&verbs->cm.waiting)) {
        regx_cm_send_due(verbs);
    }
    if (!regx_list_empty(&verbs->ending)) {
        regx_cm_end(verbs, empty);
    }
    const int64_t now =
        (++verbs->look.calls & (CLOCK_INTERVAL - 1)) == 0 ? regx_now_ns() : INT64_MIN;
    const bool is_time = now >= verbs->look.next;
    if (is_time) {
        verbs->look.next = now + LOOK_NS;
    }
    if (is_time || !regx_list_empty(&verbs->ending)) {
        regx_verbs_look(verbs);
        probe_idle(verbs);
    }
    const int events = verbs->events;
    regx_unlock(&verbs->lock);
    return events;
}

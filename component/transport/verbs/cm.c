/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/ep.h"

#include <inttypes.h>

#define REST_NS INT64_C(100000000)

/* ---- states ---- */

/* Nothing is sent to the peer any more, unless it is heard again. */
static void fall_silent(regx_ep_t *ep)
{
    regx_cm_stop(ep);
    regx_cm_forget_route(ep);
}

/* The peer is known to be connected to ours. `unanswered`: it does not know the same of us. */
static void become_ready(regx_ep_t *ep, bool unanswered)
{
    ep->state = REGX_EP_READY;
    if (unanswered) {
        ep->cm.asks = false;
        regx_cm_answer(ep);
    } else {
        fall_silent(ep);
    }
    if (ep->conn != NULL) {
        ep->conn->left = false;
    }
    regx_trace(ep->verbs->config.trace, REGX_TRACE_CONNECTION,
               "verbs: connected on %s to queue pair %u of process %#" PRIx64, ep->verbs->port.name,
               ep->theirs.qpn, ep->peer);
    if (ep->leaves) {
        regx_cm_leave(ep);
    }
}

/* Of an endpoint that is ASKING. false: it cannot be, and is BROKEN; or not now, and the peer's
 * message comes again. */
static bool become_accepted(regx_ep_t *ep, const regx_cm_message_t *message)
{
    const int error = regx_ep_connect(ep, message);

    /* With its route it cannot be given one again: then the error is not of that. */
    if (error != 0 && ep->theirs.epoch == 0 && regx_ep_may_route_later(ep, error)) {
        return false;
    }
    if (error != 0) {
        regx_ep_break(ep, "connecting the queue pair", strerror(error));
        return false;
    }
    ep->state = REGX_EP_ACCEPTED;
    return true;
}

void regx_cm_heard(regx_ep_t *ep)
{
    if (ep->state == REGX_EP_ACCEPTED) {
        become_ready(ep, false); /* it would not send otherwise */
    }
}

void regx_cm_leave(regx_ep_t *ep)
{
    ep->leaves = true;
    if (ep->state == REGX_EP_READY) {
        ep->state = REGX_EP_LEAVING;
    } else if (ep->state < REGX_EP_READY) {
        fall_silent(ep); /* the peer may be the one that knows */
    }
    regx_ep_set_ending(ep);
}

/* What is accepted is posted, then goodbye; nobody has disconnected. */
static void part(regx_ep_t *ep)
{
    ep->evicted = true;
    if (ep->state == REGX_EP_READY) {
        ep->state = REGX_EP_LEAVING;
    }
    regx_ep_set_ending(ep);
}

void regx_cm_left(regx_ep_t *ep, regx_verbs_goodbye_t how)
{
    ep->peer_left = true;
    if (how == REGX_VERBS_EVICTED) {
        part(ep);
        return;
    }
    if (ep->conn != NULL) {
        ep->conn->left = true;
    }
    regx_cm_leave(ep);
}

/* The oldest idle one by which nothing was sent lately, else the oldest idle one. */
void regx_cm_evict(regx_verbs_t *verbs)
{
    regx_ep_t *oldest = NULL;

    for (regx_link_t *at = verbs->table.eps.next; at != &verbs->table.eps; at = at->next) {
        regx_ep_t *ep = REGX_CONTAINER_OF(at, regx_ep_t, link);
        const bool idle = ep->state == REGX_EP_READY && !regx_ep_has_line(ep) &&
                          !regx_sq_awaits_report(ep) && ep->gets.posted == 0;

        if (idle && (oldest == NULL ||
                     (oldest->sq.posted != oldest->sq.seen && ep->sq.posted == ep->sq.seen))) {
            oldest = ep;
        }
    }
    if (oldest != NULL) {
        regx_transport_fall_back(&verbs->config, REGX_TRACE_CONNECTION,
                                 "verbs: a peer's queue pair is given to another");
        part(oldest);
    }
}

/* Whether a caller here has to hear that the endpoint broke: something may have got lost. */
static bool is_missed(const regx_ep_t *ep)
{
    const bool has_all =
        ep->peer_left && (!ep->evicted || (ep->sq.goodbye != 0 && ep->sq.done >= ep->sq.goodbye));

    return !ep->leaves && (ep->reported || !has_all);
}

#define EVICT_TRIES 100u /* tries, a second, that an evicted peer has to answer */

/* As regx_ep_new. While the device has no queue pair, peers that are idle give up theirs. */
static regx_ep_t *make_ep(regx_verbs_t *verbs, uint64_t peer, const regx_verbs_address_t *address)
{
    const unsigned before = verbs->table.refusals;
    regx_ep_t *ep = regx_ep_new(verbs, peer, address);

    if (ep == NULL && verbs->table.refusals != before && verbs->table.refusals % EVICT_TRIES == 1) {
        regx_cm_evict(verbs);
    }
    return ep;
}

/* ---- what callers want ---- */

regx_status_t regx_cm_make_ready(regx_verbs_conn_t *conn)
{
    regx_verbs_t *verbs = regx_verbs_of(conn->super.transport);
    regx_ep_t *ep = conn->ep;

    if (ep == NULL) {
        ep = regx_ep_find(verbs, conn->super.peer);
        if (ep == NULL) {
            ep = make_ep(verbs, conn->super.peer, &conn->address);
            if (ep == NULL) {
                return REGX_AGAIN;
            }
        } else if (ep->conn != NULL) {
            return REGX_AGAIN; /* another connection's, which is about to be disconnected */
        } else if (memcmp(&ep->address, &conn->address, sizeof(conn->address)) != 0) {
            /* It took the peer's name before that was known here. */
            regx_count_malformed(verbs->config.counters);
            ep->leaves = true;
            regx_ep_break(ep, "connecting", "another process has taken the peer's name");
            return REGX_AGAIN;
        } else if (ep->state >= REGX_EP_LEAVING && (ep->leaves || ep->peer_left)) {
            return REGX_AGAIN; /* it ends in a moment */
        }
        ep->conn = conn;
        ep->leaves = false;
        conn->ep = ep;
    }
    if (ep->state < REGX_EP_READY) {
        regx_cm_ask(ep);
    } else if (ep->state == REGX_EP_READY) {
        return REGX_OK;
    }
    /* Open MPI names no reason for a message that fails: it is told first. */
    return ep->state == REGX_EP_BROKEN && ep->reported ? REGX_UNREACHABLE : REGX_AGAIN;
}

/* From here on the device reads and writes nothing for it. */
static void cut(regx_ep_t *ep)
{
    ep->state = REGX_EP_BROKEN;
    fall_silent(ep);
    regx_list_remove(&ep->turn);
    if (ep->qp != NULL) {
        regx_list_remove(&ep->by_qpn);
        regx_verbs_port_has_device(&ep->verbs->port);
        ibv_destroy_qp(ep->qp);
        ep->qp = NULL;
    }
    regx_sq_fail(ep);
}

/* What was under way or in line is completed with REGX_FAILED first. */
static void end(regx_ep_t *ep)
{
    cut(ep);
    regx_ep_free(ep);
}

/* ---- messages ---- */

/* Whether a process of that address may be that peer: nothing else is known of the peer here. */
static bool may_be(regx_verbs_t *verbs, uint64_t peer, const regx_verbs_address_t *address)
{
    const regx_link_t *bucket = regx_verbs_bucket(verbs->conns.by_peer, peer);
    bool known = false, same = false;

    regx_lock(&verbs->conns.lock);
    for (regx_link_t *at = bucket->next; at != bucket; at = at->next) {
        const regx_verbs_conn_t *conn = REGX_CONTAINER_OF(at, regx_verbs_conn_t, link);

        if (conn->super.peer == peer) {
            known = true;
            same = same || memcmp(&conn->address, address, sizeof(*address)) == 0;
        }
    }
    regx_unlock(&verbs->conns.lock);
    return same || !known;
}

/* Whether a datagram came from where that address is, as far as the device saw. Over RoCE v2 with
 * IPv4 the header is in the second half of the room for it, and the first half is undefined. */
static bool comes_from(const regx_verbs_t *verbs, const struct ibv_wc *wc, const uint8_t *header,
                       const regx_verbs_address_t *address)
{
    const bool ethernet = verbs->address.link_layer == REGX_VERBS_ETHERNET;
    uint8_t mapped[REGX_VERBS_GID_SIZE] = {[10] = 0xff, [11] = 0xff};

    if (wc->src_qp != address->qpn) {
        return false;
    }
    if ((wc->wc_flags & IBV_WC_GRH) == 0) {
        return ethernet || wc->slid == 0 || wc->slid == address->lid;
    }
    memcpy(mapped + 12, header + 32, 4);
    if (ethernet && address->gid_type == 2 && memcmp(mapped, address->gid, 12) == 0 &&
        header[20] == 0x45) {
        return memcmp(mapped, address->gid, sizeof(mapped)) == 0;
    }
    if (header[0] >> 4 == 6) {
        return memcmp(header + 8, address->gid, REGX_VERBS_GID_SIZE) == 0;
    }
    return !ethernet || header[20] != 0x45;
}

/* Whether it is a message of this version. */
static bool is_well_formed(const regx_cm_message_t *message)
{
    regx_verbs_address_t address;

    return message->version == REGX_VERBS_VERSION && message->kind >= REGX_CM_REQUEST &&
           message->kind <= REGX_CM_READY && message->zero == 0 && message->zeros == 0 &&
           message->qpn != 0 && message->qpn <= 0xffffff && message->psn <= 0xffffff &&
           message->epoch != 0 && (message->known == 0) == (message->kind == REGX_CM_REQUEST) &&
           message->pool + message->pool_size >= message->pool &&
           regx_verbs_address_read(&message->address, sizeof(address), &address);
}

void regx_cm_receive(regx_verbs_t *verbs, const struct ibv_wc *wc)
{
    const uint8_t *header = verbs->buffers.area->datagrams[(uint32_t)wc->wr_id];
    regx_cm_message_t message;

    memcpy(&message, header + REGX_GRH_SIZE, sizeof(message));
    if (wc->byte_len != REGX_GRH_SIZE + sizeof(message) || !is_well_formed(&message) ||
        message.to != verbs->config.self ||
        message.address.link_layer != verbs->address.link_layer ||
        !comes_from(verbs, wc, header, &message.address) ||
        !may_be(verbs, message.from, &message.address)) {
        regx_count_malformed(verbs->config.counters);
        return;
    }
    regx_ep_t *ep = regx_ep_find(verbs, message.from);
    if (ep != NULL && ep->state == REGX_EP_ACCEPTED && message.epoch > ep->theirs.epoch) {
        /* Nothing was sent by it: it gives way to that of a newer queue pair of the peer's. */
        regx_trace(verbs->config.trace, REGX_TRACE_CONNECTION,
                   "verbs: process %#" PRIx64 " has another queue pair", message.from);
        end(ep);
        ep = NULL;
    }
    if (ep == NULL && message.kind != REGX_CM_READY && !verbs->closing) {
        ep = make_ep(verbs, message.from, &message.address);
    }
    if (ep == NULL || ep->state == REGX_EP_BROKEN) {
        return;
    }
    if (message.kind == REGX_CM_REQUEST) {
        if (ep->state == REGX_EP_ASKING) {
            become_accepted(ep, &message);
        }
        if (ep->state == REGX_EP_ACCEPTED && message.epoch == ep->theirs.epoch) {
            regx_cm_answer(ep);
        } else if (ep->state == REGX_EP_READY && message.epoch > ep->theirs.epoch) {
            /* A peer takes no other queue pair without a goodbye. */
            regx_count_malformed(verbs->config.counters);
        }
        return;
    }
    /* ACCEPT or READY: the peer says which queue pair of ours its own is connected to. */
    const bool knows = message.known == ep->epoch, unanswered = message.kind == REGX_CM_ACCEPT;
    if (ep->state == REGX_EP_ASKING) {
        if (knows && !become_accepted(ep, &message)) {
            return;
        }
    } else if (!knows || message.epoch != ep->theirs.epoch) {
        return;
    }
    if (ep->state == REGX_EP_ACCEPTED) {
        become_ready(ep, unanswered);
    } else if (unanswered && ep->state != REGX_EP_BROKEN) {
        regx_cm_answer(ep);
    }
}

/* ---- the end ---- */

/* Whether the queue pair of a BROKEN endpoint may be destroyed. Where completions of receives are
 * still in the completion queue then, some devices (mlx5) drop them, and the buffers that they took
 * of the shared receive queue would never come back. So the queue pair is first driven to error,
 * which ends what it has taken. The device reports when it takes no more; some do not (Soft-RoCE in
 * older kernels), hence a limit in time of 0.1 s. Once the completion queue was seen empty after
 * that, nothing is left. */
static bool rests(regx_ep_t *ep, bool empty)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    if (ep->qp == NULL || ep->theirs.qpn == 0 || ep->verbs->closing) {
        return true; /* nothing is left, or can have come, or matters */
    }
    if (ep->rest.since == 0) {
        regx_list_remove(&ep->by_qpn); /* completions of it are not heeded any more */
        ep->rest.since = regx_now_ns();
        regx_verbs_port_has_device(&ep->verbs->port);
        if (ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE) != 0) {
            ep->rest.last_taken = true;
        }
        return false;
    }
    return empty && (ep->rest.last_taken || regx_now_ns() - ep->rest.since >= REST_NS);
}

static void end_broken(regx_ep_t *ep, bool empty)
{
    regx_verbs_t *verbs = ep->verbs;

    if (!ep->reported && is_missed(ep)) {
        ep->reported = true;
        verbs->events++;
        regx_trace(verbs->config.trace, REGX_TRACE_CONNECTION, "verbs: connection on %s broke: %s",
                   verbs->port.name, ep->what);
        verbs->config.events.broken(verbs->config.events.context, ep->peer, false, ep->what);
    }
    if (!rests(ep, empty)) {
        regx_ep_set_ending(ep);
    } else if (!is_missed(ep)) {
        end(ep);
    } else {
        cut(ep);
    }
}

/* A step of an endpoint that is LEAVING or LEFT. When all is closed, the peer is not waited for,
 * nor what it might acknowledge if it has left. */
static void end_leaving(regx_ep_t *ep)
{
    const bool closing = ep->verbs->closing;

    if (closing && ep->peer_left) {
        end(ep);
    } else if (ep->state == REGX_EP_LEAVING) {
        if (regx_sq_post_goodbye(ep) == REGX_OK && ep->state == REGX_EP_LEAVING) {
            ep->state = REGX_EP_LEFT;
        }
        regx_ep_set_ending(ep);
    } else if (ep->sq.done < ep->sq.goodbye) {
        regx_ep_set_ending(ep);
    } else if (closing || (ep->peer_left && ep->sq.done == ep->sq.posted)) {
        end(ep);
    } else if (ep->peer_left) { /* nobody answers the probe that is under way */
        regx_ep_break(ep, "leaving", "the peer has left");
    }
}

void regx_cm_end(regx_verbs_t *verbs, bool empty)
{
    regx_link_t now = {&now, &now};

    regx_list_move(&now, &verbs->ending);
    while (!regx_list_empty(&now)) {
        regx_ep_t *ep = REGX_CONTAINER_OF(now.next, regx_ep_t, ending);

        regx_list_remove(&ep->ending);
        if (ep->rest.last_taken && empty) { /* a completion would have told more */
            regx_ep_break(ep, "queue pair", ibv_event_type_str(IBV_EVENT_QP_LAST_WQE_REACHED));
            regx_list_remove(&ep->ending);
        }
        if (ep->state == REGX_EP_BROKEN) {
            end_broken(ep, empty);
        } else if (ep->state > REGX_EP_READY) {
            end_leaving(ep);
        } else if (ep->state == REGX_EP_READY && ep->rest.last_taken) {
            regx_ep_set_ending(ep);
        } else if (ep->state < REGX_EP_READY && verbs->closing) {
            end(ep);
        }
    }
}

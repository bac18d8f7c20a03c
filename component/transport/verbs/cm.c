/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/cm.h"

#include <inttypes.h>
#include <string.h>

#include "transport/verbs/bound.h"
#include "transport/verbs/cleanup.h"
#include "transport/verbs/cm_queue.h"
#include "transport/verbs/qp.h"
#include "transport/verbs/tx.h"

void regx_cm_add(regx_verbs_t *verbs, regx_verbs_conn_t *conn)
{
    regx_verbs_conn_t **bucket = &verbs->conns[regx_verbs_bucket(conn->super.peer)];

    regx_lock(&verbs->conns_lock);
    conn->next = *bucket;
    *bucket = conn;
    regx_unlock(&verbs->conns_lock);
}

void regx_cm_remove(regx_verbs_t *verbs, regx_verbs_conn_t *conn)
{
    regx_verbs_conn_t **at = &verbs->conns[regx_verbs_bucket(conn->super.peer)];

    regx_lock(&verbs->conns_lock);
    while (*at != conn) {
        at = &(*at)->next;
    }
    *at = conn->next;
    regx_unlock(&verbs->conns_lock);
}

static bool is_same(const regx_verbs_address_t *a, const regx_verbs_address_t *b)
{
    uint8_t bytes_a[REGX_VERBS_ADDRESS_SIZE], bytes_b[REGX_VERBS_ADDRESS_SIZE];

    regx_verbs_address_pack(a, bytes_a);
    regx_verbs_address_pack(b, bytes_b);
    return memcmp(bytes_a, bytes_b, sizeof(bytes_a)) == 0;
}

/* Whether a process of that address may be that peer: nothing else is known of the peer here. */
static bool may_be(regx_verbs_t *verbs, uint64_t peer, const regx_verbs_address_t *address)
{
    bool known = false, same = false;

    regx_lock(&verbs->conns_lock);
    for (const regx_verbs_conn_t *conn = verbs->conns[regx_verbs_bucket(peer)]; conn != NULL;
         conn = conn->next) {
        if (conn->super.peer == peer) {
            known = true;
            same = same || is_same(&conn->address, address);
        }
    }
    regx_unlock(&verbs->conns_lock);
    return same || !known;
}

/* Whether a datagram came from where that address is. */
static bool comes_from(const regx_cm_source_t *source, const regx_verbs_address_t *address)
{
    return source->qpn == address->qpn && (source->lid == 0 || source->lid == address->lid) &&
           (source->gid == NULL || memcmp(source->gid, address->gid, REGX_VERBS_GID_SIZE) == 0);
}

static void set_leaving(regx_ep_t *ep)
{
    regx_list_set(&ep->verbs->leaving, &ep->leaving_link, true);
}

/* The queue pair was replaced. Before anything new is posted, what is left is. */
static void goes_on(regx_ep_t *ep)
{
    ep->restarts = false;
    ep->restart_done = ep->done;
    ep->restart_posted = ep->posted;
    ep->ready_at = regx_now_ns();
    regx_list_remove(&ep->restart_link);
    regx_count_transport(ep->verbs->config.counters, REGX_COUNTER_restarts, 1);
    regx_tx_repeat(ep);
}

void regx_cm_connected(regx_ep_t *ep)
{
    if (ep->state == REGX_EP_CONNECTED) {
        ep->state = REGX_EP_READY;
        regx_cm_stop(ep);
        regx_trace(ep->verbs->config.trace, REGX_TRACE_CONNECTION,
                   "verbs: connected on %s to queue pair %u", ep->verbs->port.name, ep->peer_qpn);
        if (regx_ep_restarts(ep)) {
            goes_on(ep);
        }
        if (ep->local != REGX_EP_OPEN) {
            set_leaving(ep);
        }
    }
}

void regx_cm_left(regx_ep_t *ep, bool stays)
{
    ep->remote = stays ? REGX_EP_REMOTE_CLOSED_FOR_ROOM : REGX_EP_REMOTE_CLOSED;
    if (stays && ep->local == REGX_EP_OPEN) {
        regx_bound_retire(ep, false);
        regx_cm_leave(ep);
    }
    if (ep->local == REGX_EP_CLOSED) {
        regx_cm_stop(ep); /* that is what it was asked for */
    }
    if (ep->local != REGX_EP_OPEN) {
        set_leaving(ep);
    }
}

void regx_cm_leave(regx_ep_t *ep)
{
    if (ep->local == REGX_EP_OPEN) {
        ep->local = REGX_EP_CLOSING;
    }
    if (regx_ep_restarts(ep)) {
        regx_ep_break(ep, ep->retires ? "closed for room" : "disconnected",
                      "before it was connected again");
    }
    set_leaving(ep);
    if (ep->state == REGX_EP_BROKEN) {
        regx_list_set(&ep->verbs->broken, &ep->broken_link, true);
    }
}

/* Whether an endpoint may be made now; if not, sees to room for it. */
static bool admits(regx_verbs_t *verbs, bool asks)
{
    regx_ep_t *close;
    const bool admitted = regx_bound_admits(verbs, asks, &close);

    if (close != NULL) {
        regx_bound_retire(close, true);
        regx_cm_leave(close);
    }
    return admitted;
}

/* An endpoint for a peer whose address was published. */
static regx_ep_t *make(const regx_verbs_conn_t *conn)
{
    regx_verbs_t *verbs = regx_verbs_of(conn->super.transport);
    int error;

    if (!admits(verbs, true)) {
        return NULL;
    }
    struct ibv_ah *route = regx_qp_route(verbs, &conn->address, &error);

    return regx_ep_new(verbs, conn->super.peer, &conn->address, route, error);
}

/* Somebody here wants to send by an endpoint that has sent goodbye. */
static void want_back(regx_ep_t *ep)
{
    if (ep->remote == REGX_EP_REMOTE_OPEN && ep->state == REGX_EP_READY && regx_ep_is_done(ep)) {
        regx_cm_ask(ep);
    }
}

/* The endpoint that a connection without one shall use. NULL: none now. */
static regx_ep_t *attach(regx_verbs_conn_t *conn)
{
    regx_verbs_t *verbs = regx_verbs_of(conn->super.transport);
    regx_ep_t *ep = regx_ep_find(verbs, conn->super.peer);

    if (ep == NULL) {
        ep = make(conn);
    } else if (ep->conn != NULL) {
        return NULL; /* another connection's, which is about to be disconnected */
    } else if (!is_same(&ep->address, &conn->address)) {
        regx_count_malformed(verbs); /* it took the peer's name before that was known here */
        regx_ep_break(ep, "connecting", "another process has taken the peer's name");
        regx_cm_leave(ep);
        return NULL;
    } else if (ep->local == REGX_EP_CLOSED) {
        want_back(ep);
        return NULL;
    } else if (ep->local == REGX_EP_CLOSING && (ep->state == REGX_EP_BROKEN || ep->retires ||
                                                ep->remote == REGX_EP_REMOTE_CLOSED_FOR_ROOM)) {
        return NULL; /* it ends in a moment */
    }
    if (ep != NULL) {
        ep->conn = conn;
        ep->local = REGX_EP_OPEN;
        regx_list_remove(&ep->leaving_link);
        conn->ep = ep;
    }
    return ep;
}

regx_status_t regx_cm_make_ready(regx_verbs_conn_t *conn)
{
    regx_ep_t *ep = conn->ep != NULL ? conn->ep : attach(conn);

    if (ep == NULL || ep->local != REGX_EP_OPEN) {
        if (ep != NULL && ep->local == REGX_EP_CLOSED) {
            want_back(ep); /* it was closed for room */
        }
        return REGX_AGAIN;
    }
    if (ep->state == REGX_EP_READY) {
        return REGX_OK;
    }
    if (ep->state == REGX_EP_BROKEN) {
        /* First the reason is reported: Open MPI names none for a message that fails. */
        regx_ep_want_report(ep);
        return ep->report == REGX_EP_REPORTED ? REGX_UNREACHABLE : REGX_AGAIN;
    }
    if (ep->state != REGX_EP_RESTING) {
        regx_cm_ask(ep);
    }
    return REGX_AGAIN;
}

static struct regx_cm_waiting *waiting_at(regx_verbs_t *verbs, uint32_t number)
{
    return &verbs->cm.waiting[(verbs->cm.waiting_first + number) % REGX_CM_WAITING];
}

/* The request of that peer that waits for room; or NULL. */
static struct regx_cm_waiting *find_waiting(regx_verbs_t *verbs, uint64_t peer)
{
    for (uint32_t i = 0; i < verbs->cm.waiting_count; i++) {
        struct regx_cm_waiting *place = waiting_at(verbs, i);

        if (place->message.kind == REGX_CM_REQUEST && place->message.from == peer) {
            return place;
        }
    }
    return NULL;
}

/* Keeps a request until there is room. If the peer has asked before, this takes that one's
 * place. */
static void let_wait(regx_verbs_t *verbs, const regx_cm_message_t *message)
{
    struct regx_cm_waiting *place = find_waiting(verbs, message->from);

    if (place == NULL && verbs->cm.waiting_count < REGX_CM_WAITING) {
        place = waiting_at(verbs, verbs->cm.waiting_count++);
    }
    if (place != NULL) {
        *place = (struct regx_cm_waiting){.message = *message, .requested_at = regx_now_ns()};
    }
}

/* An endpoint for a peer that asks. Where its address leads nowhere, that concerns it alone. */
static regx_ep_t *accept(regx_verbs_t *verbs, const regx_cm_message_t *message)
{
    int error;

    if (!admits(verbs, false)) {
        let_wait(verbs, message);
        return NULL;
    }
    struct ibv_ah *route = regx_qp_route(verbs, &message->address, &error);

    if (route == NULL && !regx_is_scarce(error)) {
        regx_count_malformed(verbs);
        return NULL;
    }
    return regx_ep_new(verbs, message->from, &message->address, route, error);
}

/* The endpoint that such a message is for, if it is of a queue pair that replaces one, or the
 * endpoint's own is being replaced. NULL: none, or the message is late. */
static regx_ep_t *restarted(regx_ep_t *ep, const regx_cm_message_t *message)
{
    const bool is_newer = message->epoch > ep->peer_epoch;
    /* The peer's may have been connected to one of ours that failed before that was known there. */
    const bool is_connected = message->epoch == ep->peer_epoch && message->known == ep->epoch;

    if (ep->peer_born == 0 && message->with == ep->born) {
        return ep; /* the first that is heard of the peer */
    }
    if (message->born != ep->peer_born || message->with != ep->born) {
        if (regx_ep_restarts(ep) && is_newer) {
            regx_ep_break_wanted(ep, "connecting again", "the peer has given the connection up");
        }
        return NULL;
    }
    switch (ep->state) {
    case REGX_EP_CONNECTED:
    case REGX_EP_READY:
        if (is_newer) {
            regx_ep_fail(ep, "queue pair",
                         ep->requests != NULL
                             ? "the peer replaces its own"
                             : "the peer replaces its own, but verbs_restart_limit is 0 here");
            return NULL; /* it asks again */
        }
        return message->epoch == ep->peer_epoch ? ep : NULL;
    case REGX_EP_CONNECTING:
        return is_newer || is_connected ? ep : NULL;
    case REGX_EP_RESTING:
    case REGX_EP_BROKEN:
        break;
    }
    return NULL;
}

/* The endpoint that a request or an answer is for; made if need be. NULL: none that can be
 * connected, for a reason that is counted or reported. */
static regx_ep_t *addressee(regx_verbs_t *verbs, const regx_cm_message_t *message)
{
    regx_ep_t *ep = regx_ep_find(verbs, message->from);
    const bool restarts = message->born != message->epoch;

    if (ep == NULL) {
        ep = message->kind == REGX_CM_REQUEST && !verbs->closing && !restarts
                 ? accept(verbs, message)
                 : NULL;
    } else if (restarts || regx_ep_restarts(ep)) {
        ep = restarted(ep, message);
    } else if (ep->remote != REGX_EP_REMOTE_OPEN && ep->local == REGX_EP_OPEN &&
               ep->state >= REGX_EP_READY && message->epoch > ep->peer_epoch) {
        /* The peer left and has lost its queue pair, so that a goodbye would not reach it. What it
         * asks for next is accepted by a new endpoint. */
        regx_ep_break(ep, "connecting", "the peer has lost its queue pair");
        regx_cm_leave(ep);
        ep = NULL;
    } else if (ep->state == REGX_EP_CONNECTED && message->epoch > ep->peer_epoch) {
        /* What ours is connected to is no more, and nothing was sent by it. */
        ep = regx_ep_begin_anew(ep) ? ep : NULL;
        regx_trace(verbs->config.trace, REGX_TRACE_CONNECTION,
                   "verbs: process %#" PRIx64 " has another queue pair; %s", message->from,
                   ep != NULL ? "so do we" : "there is none for it now");
    } else if (ep->state == REGX_EP_CONNECTED || ep->state == REGX_EP_READY) {
        if (message->epoch > ep->peer_epoch && ep->local == REGX_EP_OPEN &&
            ep->remote == REGX_EP_REMOTE_OPEN) {
            regx_count_malformed(verbs); /* nobody may take another queue pair unasked */
        }
        ep = message->epoch == ep->peer_epoch ? ep : NULL;
    }
    return ep == NULL || ep->state == REGX_EP_BROKEN ? NULL : ep;
}

/* The peer has sent goodbye and wants to come back. */
static void renew(regx_verbs_t *verbs, const regx_cm_message_t *message)
{
    regx_ep_t *ep = regx_ep_find(verbs, message->from);

    if (ep != NULL && message->known == ep->epoch && message->epoch == ep->peer_epoch &&
        ep->local == REGX_EP_OPEN && !regx_ep_restarts(ep)) {
        regx_bound_retire(ep, false);
        regx_cm_leave(ep);
    }
}

static bool is_well_formed(regx_verbs_t *verbs, const uint8_t *bytes, size_t length,
                           const regx_cm_source_t *source, regx_cm_message_t *message)
{
    return regx_cm_message_unpack(bytes, length, message) == REGX_OK &&
           message->to == verbs->config.self &&
           message->address.link_layer == verbs->address.link_layer &&
           comes_from(source, &message->address) && may_be(verbs, message->from, &message->address);
}

/* Connects the queue pair to the peer's. false: it cannot be. */
static bool connect_ep(regx_ep_t *ep, const regx_cm_message_t *message)
{
    if (!regx_ep_connect(ep, message)) {
        if (ep->state == REGX_EP_BROKEN) {
            regx_ep_want_report(ep);
        }
        return false;
    }
    if (regx_ep_restarts(ep) && !regx_tx_settle(ep, message->handled)) {
        regx_count_malformed(ep->verbs);
        regx_ep_break_wanted(ep, "connecting again", "the two do not agree on what has arrived");
        return false;
    }
    return true;
}

/* A request or an answer. */
static void connect_to(regx_verbs_t *verbs, const regx_cm_message_t *message)
{
    regx_ep_t *ep = addressee(verbs, message);

    if (ep == NULL) {
        return;
    }
    struct regx_cm_waiting *earlier = find_waiting(verbs, message->from);
    if (earlier != NULL) {
        earlier->message.kind = 0;
    }
    /* A queue pair that is connected to one of ours that is no more is not connected to. Our answer
     * notifies the peer, which makes another. */
    const bool fits = message->known == 0 || message->known == ep->epoch;
    const bool connects = fits && ep->state == REGX_EP_CONNECTING;
    if (connects && !connect_ep(ep, message)) {
        return;
    }
    if (message->known == ep->epoch) {
        regx_cm_connected(ep);
    }
    if (connects && ep->born != ep->epoch && message->kind == REGX_CM_ACCEPT) {
        regx_cm_answer(ep); /* the peer may have much to send, and we nothing */
    }
    if (message->kind == REGX_CM_REQUEST) {
        regx_trace(verbs->config.trace, REGX_TRACE_CONNECTION,
                   "verbs: accept process %#" PRIx64 " on %s, queue pair %u", message->from,
                   verbs->port.name, ep->peer_qpn);
        regx_cm_answer(ep);
    }
}

void regx_cm_receive(regx_verbs_t *verbs, const uint8_t *bytes, size_t length,
                     const regx_cm_source_t *source)
{
    regx_cm_message_t message;

    if (!is_well_formed(verbs, bytes, length, source, &message)) {
        regx_count_malformed(verbs);
    } else if (message.kind == REGX_CM_RENEW) {
        renew(verbs, &message);
    } else {
        connect_to(verbs, &message);
    }
}

/* Requests that have waited, as far as there is room for them now. Those that are too old give way
 * also where there is none. */
static void accept_waiting(regx_verbs_t *verbs)
{
    while (verbs->cm.waiting_count > 0) {
        const struct regx_cm_waiting first = *waiting_at(verbs, 0);
        const bool counts = first.message.kind == REGX_CM_REQUEST &&
                            regx_now_ns() - first.requested_at < REGX_BOUND_KEEP_NS;

        if (counts && !regx_bound_has_room(verbs)) {
            break;
        }
        verbs->cm.waiting_first = (verbs->cm.waiting_first + 1) % REGX_CM_WAITING;
        verbs->cm.waiting_count--;
        if (counts) {
            connect_to(verbs, &first.message);
        }
    }
}

/* One step of an endpoint that is in no list of those that leave. */
static void leave(regx_verbs_t *verbs, regx_ep_t *ep)
{
    const bool closing = verbs->closing;
    /* Who closes does not wait for a peer that has left to acknowledge anything. */
    const bool skip_goodbye = closing && ep->remote == REGX_EP_REMOTE_CLOSED;

    if (ep->state == REGX_EP_BROKEN) {
        return; /* cleanup frees it */
    }
    if (ep->state == REGX_EP_READY && ep->local == REGX_EP_CLOSING && !skip_goodbye) {
        if (regx_tx_post_goodbye(ep) == REGX_OK) {
            ep->local = REGX_EP_CLOSED;
            ep->goodbye = ep->posted;
        }
        set_leaving(ep);
        return;
    }
    if (!regx_ep_is_done(ep) && !skip_goodbye) {
        set_leaving(ep);
    } else if (ep->remote != REGX_EP_REMOTE_OPEN && ep->posted != ep->done && !closing) {
        /* A question is under way. What comes of it must not be taken for that of another queue
         * pair with the same number. */
        regx_ep_break(ep, "disconnected", "while asked for a sign of life");
    } else if (closing || ep->remote != REGX_EP_REMOTE_OPEN) {
        regx_ep_delete(ep);
    } else if (ep->state != REGX_EP_READY) {
        regx_cm_stop(ep); /* where the handshake is not over the peer may be the one that knows */
    }
    /* Else the peer may still send, and is heard until it leaves. */
}

void regx_cm_progress(regx_verbs_t *verbs)
{
    regx_link_t now;

    regx_list_init(&now);
    regx_list_move(&now, &verbs->leaving);
    while (!regx_list_empty(&now)) {
        regx_ep_t *ep = REGX_CONTAINER_OF(now.next, regx_ep_t, leaving_link);

        regx_list_remove(&ep->leaving_link);
        leave(verbs, ep);
    }
    accept_waiting(verbs);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The datagrams that connect endpoints, over one UD queue pair, and who waits to send one: ep.h.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/random.h>

#include "transport/verbs/ep.h"
#include "transport/verbs/memory.h"

#define FIRST_WAIT_NS INT64_C(20000000)
#define DOUBLINGS 6u
#define ASKS_REPORTED 500u /* some ten minutes */
#define ASKS_LEFT 10u      /* some five seconds */
#define ASKS_ROUTED 16u    /* by one route: the peer's hardware address may have changed */

/* A device may look the route of a datagram up until it has gone. */
typedef struct regx_route {
    struct ibv_ah *ah;
    uint32_t users; /* the endpoint, and each datagram under way */
} regx_route_t;

static void route_give(regx_route_t *route)
{
    if (--route->users == 0) {
        ibv_destroy_ah(route->ah);
        free(route);
    }
}

/* The endpoint's, made if need be. NULL: see errno. */
static regx_route_t *route_take(regx_ep_t *ep)
{
    if (ep->cm.route == NULL) {
        struct ibv_ah *ah = regx_qp_route(ep->verbs, &ep->address);
        regx_route_t *route = ah != NULL ? malloc(sizeof(*route)) : NULL;

        if (ah != NULL && route == NULL) {
            ibv_destroy_ah(ah);
            errno = ENOMEM;
        }
        if (route == NULL) {
            return NULL;
        }
        *route = (regx_route_t){.ah = ah, .users = 1};
        ep->cm.route = route;
    }
    ep->cm.route->users++;
    return ep->cm.route;
}

void regx_cm_forget_route(regx_ep_t *ep)
{
    if (ep->cm.route != NULL) {
        route_give(ep->cm.route);
        ep->cm.route = NULL;
    }
}

regx_status_t regx_cm_open(regx_verbs_t *verbs, regx_error_t error)
{
    struct ibv_qp_init_attr attr = {.send_cq = verbs->cq,
                                    .recv_cq = verbs->cq,
                                    .cap = {.max_send_wr = REGX_CM_SENDS,
                                            .max_recv_wr = REGX_CM_RECEIVES,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1},
                                    .qp_type = IBV_QPT_UD};
    struct ibv_qp_attr init = {
        .qp_state = IBV_QPS_INIT, .pkey_index = verbs->pkey_index, .port_num = verbs->port.number};
    struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR};
    struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS};
    uint32_t qkey = 0;

    /* A process that does not know this number does not reach the queue pair. The highest bit is
     * kept for privileged ones. */
    (void)!getrandom(&qkey, sizeof(qkey), 0);
    verbs->address.qkey = (qkey & 0x7fffffff) | 1;
    init.qkey = verbs->address.qkey;
    verbs->cm.qp = ibv_create_qp(verbs->pd, &attr);
    if (verbs->cm.qp == NULL ||
        ibv_modify_qp(verbs->cm.qp, &init,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) != 0 ||
        ibv_modify_qp(verbs->cm.qp, &receive, IBV_QP_STATE) != 0 ||
        ibv_modify_qp(verbs->cm.qp, &send, IBV_QP_STATE | IBV_QP_SQ_PSN) != 0) {
        return regx_verbs_port_refuse(&verbs->port, "UD queue pair", error);
    }
    verbs->address.qpn = verbs->cm.qp->qp_num;
    return REGX_OK;
}

void regx_cm_close(regx_verbs_t *verbs)
{
    if (verbs->cm.qp != NULL) {
        ibv_destroy_qp(verbs->cm.qp);
        while (verbs->cm.done != verbs->cm.sent) {
            regx_cm_sent(verbs);
        }
    }
}

void regx_cm_sent(regx_verbs_t *verbs)
{
    route_give(verbs->cm.under_way[verbs->cm.done++ % REGX_CM_SENDS]);
}

/* Sends a message from the room that is next. There is room. A route that cannot be made now is
 * made when the question is repeated. */
static void send_message(regx_ep_t *ep)
{
    regx_verbs_t *verbs = ep->verbs;
    const uint32_t index = (uint32_t)(verbs->cm.sent % REGX_CM_SENDS);
    regx_cm_message_t *message = &verbs->buffers.area->messages[index];
    struct ibv_sge segment = {.addr = (uintptr_t)message,
                              .length = REGX_CM_MESSAGE_SIZE,
                              .lkey = verbs->buffers.own.mr->lkey};
    struct ibv_send_wr request = {
        .sg_list = &segment,
        .num_sge = 1,
        .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.ud = {.remote_qpn = ep->address.qpn, .remote_qkey = ep->address.qkey}};
    struct ibv_send_wr *refused;
    regx_cm_kind_t kind = REGX_CM_READY;
    regx_route_t *route = route_take(ep);

    if (route == NULL) {
        const int error = errno;

        if (!regx_ep_may_route_later(ep, error)) { /* it leads nowhere */
            /* If only the peer has given the address, that concerns the peer alone. */
            if (ep->conn == NULL) {
                regx_count_malformed(verbs->config.counters);
                ep->leaves = true;
            }
            regx_ep_break(ep, "making a route", strerror(error));
        }
        return;
    }
    ep->cm.unrouted = 0;
    if (ep->state < REGX_EP_READY) {
        kind = ep->state == REGX_EP_ASKING ? REGX_CM_REQUEST : REGX_CM_ACCEPT;
    }
    *message = (regx_cm_message_t){.version = REGX_VERBS_VERSION,
                                   .kind = (uint8_t)kind,
                                   .reads = verbs->can.reads_answered,
                                   .qpn = ep->qpn,
                                   .psn = ep->psn,
                                   .from = verbs->config.self,
                                   .to = ep->peer,
                                   .epoch = ep->epoch,
                                   .known = kind == REGX_CM_REQUEST ? 0 : ep->theirs.epoch,
                                   .pool = (uintptr_t)verbs->super.pool_memory,
                                   .pool_size = verbs->super.pool_size,
                                   .pool_key = verbs->buffers.pool.mr->rkey,
                                   .address = verbs->address};
    request.wr.ud.ah = route->ah;
    const int error =
        regx_verbs_may_post(verbs) ? ibv_post_send(verbs->cm.qp, &request, &refused) : EBADF;
    if (error != 0) {
        route_give(route);
        regx_ep_break(ep, "connecting", strerror(error));
        return;
    }
    verbs->cm.under_way[index] = route;
    verbs->cm.sent++;
}

static void note_sent(regx_ep_t *ep)
{
    regx_verbs_t *verbs = ep->verbs;
    const regx_transport_events_t *events = &verbs->config.events;

    regx_list_remove(&ep->cm.waiting);
    if (!ep->cm.asks) {
        if (ep->state >= REGX_EP_READY) { /* the peer has what it needs, unless this gets lost */
            regx_cm_forget_route(ep);
        }
        return;
    }
    if (++ep->cm.asked % ASKS_ROUTED == 0) {
        regx_cm_forget_route(ep);
    }
    const int64_t wait = FIRST_WAIT_NS << regx_min(ep->cm.asked - 1, DOUBLINGS);
    /* Within a quarter of the usual time, as the endpoint has drawn. */
    ep->cm.next = regx_now_ns() + wait / 4 * 3 + (wait / 2 * ep->psn >> 24);
    regx_list_append(&verbs->cm.waiting, &ep->cm.waiting);
    regx_trace(verbs->config.trace, REGX_TRACE_CONNECTION,
               "verbs: asked process %#" PRIx64 " on %s for a connection, %u times so far",
               ep->peer, verbs->port.name, ep->cm.asked);
    /* It is not known whether the peer is gone or computes. */
    if (ep->cm.asked == ASKS_REPORTED && events->silent != NULL) {
        events->silent(events->context, ep->peer);
    }
}

void regx_cm_answer(regx_ep_t *ep)
{
    ep->cm.next = 0;
    ep->verbs->cm.next = 0;
    regx_list_set(&ep->verbs->cm.waiting, &ep->cm.waiting, true);
}

void regx_cm_ask(regx_ep_t *ep)
{
    if (!ep->cm.asks) {
        ep->cm.asks = true;
        ep->cm.asked = 0;
        regx_cm_answer(ep);
    }
}

bool regx_cm_may_answer(regx_conn_t *super)
{
    const regx_verbs_conn_t *conn = (const regx_verbs_conn_t *)super;
    const regx_ep_t *ep = conn->ep;

    return ep == NULL ||
           (ep->state != REGX_EP_BROKEN &&
            !(ep->cm.asks && ep->cm.asked >= (conn->left ? ASKS_LEFT : ASKS_REPORTED)));
}

void regx_cm_send_due(regx_verbs_t *verbs)
{
    const int64_t now = regx_now_ns();

    if (now < verbs->cm.next || verbs->port.away != NULL) {
        return;
    }
    verbs->cm.next = INT64_MAX;
    for (regx_link_t *at = verbs->cm.waiting.next, *next; at != &verbs->cm.waiting; at = next) {
        regx_ep_t *ep = REGX_CONTAINER_OF(at, regx_ep_t, cm.waiting);

        next = at->next;
        if (verbs->cm.sent - verbs->cm.done == REGX_CM_SENDS) { /* there is no room */
            verbs->cm.next = 0;
            break;
        }
        if (now >= ep->cm.next) {
            send_message(ep);
            note_sent(ep);
        }
        if (regx_list_has(at) && ep->cm.next < verbs->cm.next) {
            verbs->cm.next = ep->cm.next;
        }
    }
}

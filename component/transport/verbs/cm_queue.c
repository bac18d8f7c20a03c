/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/cm_queue.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "transport/verbs/buffers.h"

#define FIRST_WAIT_NS INT64_C(20000000)
#define DOUBLINGS 6u
#define REST_NS INT64_C(1000000000) /* in which a queue pair that failed ends what it holds */
#define ASKS_REPORTED 500u          /* some ten minutes */
#define ASKS_GONE 30u               /* some 30 s */

static bool start(const regx_verbs_t *verbs)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = verbs->pkey_index,
                               .port_num = verbs->port.number,
                               .qkey = verbs->address.qkey};
    struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR};
    struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS};

    return ibv_modify_qp(verbs->cm.qp, &init,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0 &&
           ibv_modify_qp(verbs->cm.qp, &receive, IBV_QP_STATE) == 0 &&
           ibv_modify_qp(verbs->cm.qp, &send, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0;
}

regx_status_t regx_cm_queue_open(regx_verbs_t *verbs, char *error, size_t error_size)
{
    struct ibv_qp_init_attr attr = {.send_cq = verbs->cq,
                                    .recv_cq = verbs->cq,
                                    .cap = {.max_send_wr = REGX_CM_SENDS,
                                            .max_recv_wr = REGX_CM_RECEIVES,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1},
                                    .qp_type = IBV_QPT_UD};
    uint32_t qkey;

    /* Whoever does not know this number does not reach the queue pair. The highest bit is kept for
     * privileged ones. */
    if (getrandom(&qkey, sizeof(qkey), 0) != sizeof(qkey)) {
        qkey = 0;
    }
    verbs->address.qkey = (qkey & 0x7fffffff) | 1;
    verbs->cm.random = verbs->config.self | 1;
    verbs->cm.qp = ibv_create_qp(verbs->pd, &attr);
    if (verbs->cm.qp == NULL || !start(verbs)) {
        snprintf(error, error_size, "%s gives no UD queue pair: %s", verbs->port.name,
                 strerror(errno));
        return REGX_UNREACHABLE;
    }
    verbs->address.qpn = verbs->cm.qp->qp_num;
    return REGX_OK;
}

void regx_cm_queue_close(regx_verbs_t *verbs)
{
    if (verbs->cm.qp != NULL) {
        ibv_destroy_qp(verbs->cm.qp);
        verbs->cm.qp = NULL;
        while (verbs->cm.done != verbs->cm.sent) {
            regx_cm_sent(verbs);
        }
    }
}

/* Posts a datagram from the room that is next. There is room. 0, or the error. */
static int post(regx_ep_t *ep, const regx_cm_message_t *message)
{
    regx_verbs_t *verbs = ep->verbs;
    const uint32_t index = (uint32_t)(verbs->cm.sent % REGX_CM_SENDS);
    uint8_t *room = regx_buffer_datagram_send(verbs, index);
    struct ibv_sge segment = {
        .addr = (uintptr_t)room, .length = REGX_CM_MESSAGE_SIZE, .lkey = verbs->buffers.mr->lkey};
    struct ibv_send_wr request = {
        .sg_list = &segment,
        .num_sge = 1,
        .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.ud = {.ah = ep->ah, .remote_qpn = ep->address.qpn, .remote_qkey = ep->address.qkey}};
    struct ibv_send_wr *refused;

    regx_cm_message_pack(message, room);
    const int error = ibv_post_send(verbs->cm.qp, &request, &refused);
    if (error == 0) {
        verbs->cm.under_way[index].route = ep->ah;
        verbs->cm.sent++;
    }
    return error;
}

static void send_message(regx_ep_t *ep, regx_cm_kind_t kind)
{
    const regx_verbs_t *verbs = ep->verbs;
    const regx_cm_message_t message = {.kind = kind,
                                       .reads = verbs->reads_answered,
                                       .qpn = ep->qpn,
                                       .psn = ep->psn,
                                       .from = verbs->config.self,
                                       .to = ep->peer,
                                       .epoch = ep->epoch,
                                       .known =
                                           ep->state == REGX_EP_CONNECTING ? 0 : ep->peer_epoch,
                                       .born = ep->born,
                                       .with = ep->peer_born,
                                       .handled = ep->handled_before,
                                       .pool = (uintptr_t)verbs->super.pool_memory,
                                       .pool_size = verbs->super.pool_size,
                                       .pool_key = verbs->pool_mr->rkey,
                                       .address = verbs->address};
    const int error = post(ep, &message);

    if (error != 0) {
        regx_ep_break(ep, "connecting", strerror(error));
    }
}

static bool is_asking(const regx_ep_t *ep)
{
    return regx_list_has(&ep->asking_link);
}

/* How long to wait for an answer: at random within a quarter of the usual time. */
static int64_t wait_after(regx_verbs_t *verbs, unsigned asked)
{
    const int64_t wait = FIRST_WAIT_NS << regx_min(asked - 1, DOUBLINGS);

    verbs->cm.random = verbs->cm.random * UINT64_C(6364136223846793005) + 1;
    return wait / 4 * 3 + (int64_t)((verbs->cm.random >> 33) % (uint64_t)(wait / 2));
}

static void ask(regx_ep_t *ep)
{
    regx_verbs_t *verbs = ep->verbs;

    send_message(ep, ep->local == REGX_EP_CLOSED ? REGX_CM_RENEW : REGX_CM_REQUEST);
    ep->asked++;
    regx_trace(verbs->config.trace, REGX_TRACE_CONNECTION,
               "verbs: asked process %#" PRIx64 " on %s for %s, %u times so far", ep->peer,
               verbs->port.name, ep->local == REGX_EP_CLOSED ? "its goodbye" : "a connection",
               ep->asked);
    ep->ask_next = regx_now_ns() + wait_after(verbs, ep->asked);
    if (ep->ask_next < verbs->cm.ask_next) {
        verbs->cm.ask_next = ep->ask_next;
    }
}

static void answer(regx_ep_t *ep)
{
    ep->answer_due = false;
    send_message(ep, REGX_CM_ACCEPT);
    if (is_asking(ep)) {
        ep->verbs->cm.ask_next = 0; /* it leaves the queue with its question not sent */
    }
}

static void send_due(regx_verbs_t *verbs)
{
    while (!verbs->cm.rests && !regx_list_empty(&verbs->cm.due) &&
           verbs->cm.sent - verbs->cm.done < REGX_CM_SENDS) {
        regx_ep_t *ep = REGX_CONTAINER_OF(verbs->cm.due.next, regx_ep_t, due_link);

        regx_list_remove(&ep->due_link);
        if (ep->state == REGX_EP_BROKEN) {
            regx_cm_stop(ep);
        } else if (ep->answer_due) {
            answer(ep);
        } else {
            ask(ep);
        }
    }
}

void regx_cm_ask(regx_ep_t *ep)
{
    regx_verbs_t *verbs = ep->verbs;

    if (!is_asking(ep)) {
        if (regx_list_empty(&verbs->cm.asking)) {
            verbs->cm.failing_since = 0;
        }
        ep->asked = 0;
        ep->ask_next = 0;
        regx_list_append(&verbs->cm.asking, &ep->asking_link);
        regx_list_set(&verbs->cm.due, &ep->due_link, true);
        send_due(verbs);
    }
}

void regx_cm_answer(regx_ep_t *ep)
{
    ep->answer_due = true;
    regx_list_set(&ep->verbs->cm.due, &ep->due_link, true);
    send_due(ep->verbs);
}

void regx_cm_stop(regx_ep_t *ep)
{
    ep->answer_due = false;
    regx_list_remove(&ep->asking_link);
    regx_list_remove(&ep->due_link);
}

bool regx_cm_is_late(const regx_ep_t *ep)
{
    /* With a bound a peer may end while a connection to it is closed. It does not answer then. */
    return is_asking(ep) &&
           ep->asked >= (ep->verbs->settings.connections != 0 ? ASKS_GONE : ASKS_REPORTED);
}

/* Puts an endpoint in the queue whose time has come. */
static void become_due(regx_ep_t *ep)
{
    const regx_transport_events_t *events = &ep->verbs->config.events;

    regx_list_append(&ep->verbs->cm.due, &ep->due_link);
    /* Nobody knows whether the peer is gone or computes. */
    if (ep->asked == ASKS_REPORTED - 1 && events->silent != NULL) {
        events->silent(events->context, ep->peer);
    }
}

static void find_due(regx_verbs_t *verbs, int64_t now)
{
    verbs->cm.ask_next = INT64_MAX;
    for (regx_link_t *at = verbs->cm.asking.next, *next; at != &verbs->cm.asking; at = next) {
        regx_ep_t *ep = REGX_CONTAINER_OF(at, regx_ep_t, asking_link);

        next = at->next;
        if (regx_list_has(&ep->due_link)) {
            continue;
        }
        if (now >= ep->ask_next) {
            become_due(ep);
        } else if (ep->ask_next < verbs->cm.ask_next) {
            verbs->cm.ask_next = ep->ask_next;
        }
    }
}

void regx_cm_queue_progress(regx_verbs_t *verbs)
{
    const int64_t now = regx_list_empty(&verbs->cm.asking) ? INT64_MIN : regx_now_ns();

    if (now >= verbs->cm.ask_next) {
        find_due(verbs, now);
    }
    send_due(verbs);
}

void regx_cm_queue_failed(regx_verbs_t *verbs, const char *why)
{
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    const int64_t limit = verbs->settings.restart_limit * INT64_C(1000000000);
    const int64_t now = regx_now_ns();

    if (verbs->cm.rests) {
        return;
    }
    if (verbs->cm.failing_since == 0 || regx_list_empty(&verbs->cm.asking)) {
        verbs->cm.failing_since = now;
    }
    if (now - verbs->cm.failing_since >= limit ||
        ibv_modify_qp(verbs->cm.qp, &error, IBV_QP_STATE) != 0) {
        regx_eps_break_unready(verbs, why);
        return;
    }
    verbs->cm.rests = true;
    verbs->cm.rests_since = now;
    verbs->clock_mask = 0;
}

void regx_cm_queue_revive(regx_verbs_t *verbs, bool empty)
{
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    const bool holds = verbs->cm.receives > 0 || verbs->cm.sent != verbs->cm.done;
    bool works = !holds;

    if (holds && (!empty || regx_now_ns() - verbs->cm.rests_since < REST_NS)) {
        return;
    }
    verbs->cm.rests = false;
    works = works && ibv_modify_qp(verbs->cm.qp, &reset, IBV_QP_STATE) == 0 && start(verbs);
    for (uint32_t i = 0; i < REGX_CM_RECEIVES && works; i++) {
        works = regx_buffer_datagram_post(verbs, i) == 0;
    }
    if (!works) {
        regx_eps_break_unready(verbs, "the queue pair of datagrams failed");
    }
}

void regx_cm_sent(regx_verbs_t *verbs)
{
    const uint64_t index = verbs->cm.done++ % REGX_CM_SENDS;

    if (verbs->cm.under_way[index].orphaned) {
        ibv_destroy_ah(verbs->cm.under_way[index].route);
        verbs->cm.under_way[index].orphaned = false;
    }
}

void regx_cm_drop_route(regx_verbs_t *verbs, struct ibv_ah *route)
{
    for (uint64_t i = verbs->cm.sent; i != verbs->cm.done; i--) {
        const uint64_t index = (i - 1) % REGX_CM_SENDS;

        if (verbs->cm.under_way[index].route == route) {
            verbs->cm.under_way[index].orphaned = true;
            return;
        }
    }
    ibv_destroy_ah(route);
}

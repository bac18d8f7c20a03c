/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/ep.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/memlock.h"
#include "transport/verbs/memory.h"

/* With a device that has no memory for a queue pair: how often it is asked, for how long, and after
 * what time without a question it is another matter. */
#define TRY_NS INT64_C(10000000)
#define PATIENCE_NS INT64_C(60000000000)
#define FORGET_NS INT64_C(5000000000)

#define RETRIES 6     /* Soft-RoCE takes 7 as endless: a peer that died would not be noticed */
#define RNR_RETRIES 7 /* endless: a peer that computes frees no receive buffers */
#define RNR_TIMER 12  /* 0.64 ms between two tries at a receiver without a buffer */
#define HOP_LIMIT 64
#define INLINE_MIN 16u /* less is not worth asking for */

/* Never 0: libraries have forgotten to say why. */
static int last_error(void)
{
    return errno != 0 ? errno : EIO;
}

/* A GRH is used on Ethernet, to other InfiniBand subnets, and where either port requires it, as
 * virtual ports of InfiniBand do. */
static struct ibv_ah_attr describe_route(const regx_verbs_t *verbs,
                                         const regx_verbs_address_t *address)
{
    struct ibv_ah_attr attr = {
        .dlid = address->lid, .sl = verbs->settings.service_level, .port_num = verbs->port.number};

    if (address->link_layer == REGX_VERBS_ETHERNET ||
        ((address->flags | verbs->address.flags) & REGX_VERBS_NEEDS_GRH) != 0 ||
        memcmp(address->gid, verbs->address.gid, sizeof(uint64_t)) != 0) {
        attr.is_global = 1;
        memcpy(attr.grh.dgid.raw, address->gid, REGX_VERBS_GID_SIZE);
        attr.grh.sgid_index = (uint8_t)verbs->port.gid.gid_index;
        attr.grh.hop_limit = HOP_LIMIT;
        attr.grh.traffic_class = verbs->settings.traffic_class;
    }
    return attr;
}

struct ibv_ah *regx_qp_route(const regx_verbs_t *verbs, const regx_verbs_address_t *address)
{
    struct ibv_ah_attr attr = describe_route(verbs, address);

    errno = 0;
    struct ibv_ah *route = ibv_create_ah(verbs->pd, &attr);
    errno = last_error();
    return route;
}

/* Asks for a queue pair; attr tells what it can. NULL: see last_error. */
static struct ibv_qp *make_qp(const regx_verbs_t *verbs, uint32_t depth, uint32_t inline_max,
                              struct ibv_qp_init_attr *attr)
{
    *attr = (struct ibv_qp_init_attr){
        .send_cq = verbs->cq,
        .recv_cq = verbs->cq,
        .srq = verbs->srq,
        .cap = {.max_send_wr = depth, .max_send_sge = 1, .max_inline_data = inline_max},
        .qp_type = IBV_QPT_RC};
    errno = 0;
    return ibv_create_qp(verbs->pd, attr);
}

/* What is asked for next where a device refused so much; depth 0: nothing. A queue shall hold the
 * longest frame. */
static void ask_for_less(uint32_t *depth, uint32_t *inline_max)
{
    if (*inline_max > 0) {
        *inline_max = *inline_max / 2 < INLINE_MIN ? 0 : *inline_max / 2;
    } else {
        *depth =
            *depth > REGX_VERBS_SEGMENTS ? (uint32_t)regx_max(*depth / 2, REGX_VERBS_SEGMENTS) : 0;
        *inline_max = REGX_VERBS_INLINE;
    }
}

/* What a request can carry itself differs between devices, also from what they report; so does how
 * many requests fit a queue. Only trying shows. It is tried once, at the start, when a lack of
 * memory cannot be taken for a limit of the device. */
regx_status_t regx_qp_probe(regx_verbs_t *verbs, char *error, size_t error_size)
{
    struct ibv_qp_init_attr attr;
    struct ibv_qp *qp = NULL;
    uint32_t depth = verbs->can.depth, inline_max = REGX_VERBS_INLINE;
    int cause = 0;

    if (depth < REGX_VERBS_SEGMENTS) {
        snprintf(error, error_size, "%s takes %u requests of a queue pair, fewer than %u",
                 verbs->port.name, depth, REGX_VERBS_SEGMENTS);
        return REGX_UNREACHABLE;
    }
    while (qp == NULL && depth > 0) {
        qp = make_qp(verbs, depth, inline_max, &attr);
        if (qp == NULL) {
            cause = last_error();
            ask_for_less(&depth, &inline_max);
        }
    }
    if (qp == NULL && cause == ENOMEM) {
        return REGX_OK;
    }
    if (qp == NULL) {
        snprintf(error, error_size, "%s gives no RC queue pair: %s", verbs->port.name,
                 strerror(cause));
        return REGX_UNREACHABLE;
    }
    verbs->can.depth = depth;
    verbs->can.inline_max = (uint32_t)regx_min(attr.cap.max_inline_data, REGX_VERBS_INLINE);
    ibv_destroy_qp(qp);
    return REGX_OK;
}

int regx_ep_connect(regx_ep_t *ep, const regx_cm_message_t *message)
{
    const regx_verbs_t *verbs = ep->verbs;
    struct ibv_qp_attr receive = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)regx_min(verbs->address.mtu, message->address.mtu),
        .dest_qp_num = message->qpn,
        .rq_psn = message->psn,
        .max_dest_rd_atomic = verbs->can.reads_answered,
        .min_rnr_timer = RNR_TIMER,
        .ah_attr = describe_route(verbs, &message->address)};

    ep->theirs.epoch = message->epoch;
    ep->theirs.qpn = message->qpn;
    ep->theirs.pool = message->pool;
    ep->theirs.pool_size = message->pool_size;
    ep->theirs.pool_key = message->pool_key;
    ep->gets.max = (uint8_t)regx_min(message->reads, verbs->can.reads_made);
    int error = ibv_modify_qp(ep->qp, &receive,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error == 0) {
        struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS,
                                   .sq_psn = ep->psn,
                                   .timeout = verbs->can.ack_timeout,
                                   .retry_cnt = RETRIES,
                                   .rnr_retry = RNR_RETRIES,
                                   .max_rd_atomic = ep->gets.max};

        error = ibv_modify_qp(ep->qp, &send,
                              IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                  IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    }
    return error;
}

regx_ep_t *regx_ep_find(const regx_verbs_t *verbs, uint64_t peer)
{
    regx_ep_t *ep = verbs->table.by_peer[regx_verbs_bucket(peer)];

    while (ep != NULL && ep->peer != peer) {
        ep = ep->next.by_peer;
    }
    return ep;
}

regx_ep_t *regx_ep_find_qpn(regx_verbs_t *verbs, uint32_t qpn)
{
    regx_ep_t *ep = verbs->table.last_found;

    if (ep == NULL || ep->qpn != qpn) {
        ep = verbs->table.by_qpn[regx_verbs_bucket(qpn)];
        while (ep != NULL && ep->qpn != qpn) {
            ep = ep->next.by_qpn;
        }
        verbs->table.last_found = ep;
    }
    return ep;
}

/* Gives an endpoint its queue pair. 0, or the error. */
static int take_qp(regx_ep_t *ep)
{
    regx_verbs_t *verbs = ep->verbs;
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = verbs->pkey_index,
                               .port_num = verbs->port.number,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    struct ibv_qp_init_attr attr;

    if (verbs->table.count >= REGX_VERBS_EPS_MAX) {
        return E2BIG;
    }
    ep->qp = make_qp(verbs, verbs->can.depth, verbs->can.inline_max, &attr);
    if (ep->qp == NULL || getrandom(&ep->psn, sizeof(ep->psn), 0) != sizeof(ep->psn)) {
        return last_error();
    }
    ep->epoch = ++verbs->table.last_epoch;
    ep->qpn = ep->qp->qp_num;
    ep->psn &= 0xffffff;
    ep->inline_max = (uint32_t)regx_min(attr.cap.max_inline_data, verbs->can.inline_max);
    return ibv_modify_qp(ep->qp, &init,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/* What the device pins for a queue pair counts against the limit of locked memory, and registered
 * buffers may have used that up for now. */
static void note_refused(regx_ep_t *ep, int error)
{
    const uint64_t limit = error == ENOMEM ? regx_memlock_limit() : REGX_MEMLOCK_NONE;
    char why[128];

    if (error == E2BIG) {
        snprintf(why, sizeof(why), "more than %u peers", REGX_VERBS_EPS_MAX);
    } else if (limit == REGX_MEMLOCK_NONE) {
        snprintf(why, sizeof(why), "%s", strerror(error));
    } else {
        snprintf(why, sizeof(why), "%s; the limit of locked memory (ulimit -l) is %" PRIu64 " KiB",
                 strerror(error), limit / 1024);
    }
    regx_ep_break(ep, "making a queue pair", why);
}

/* Whether there may be memory later. */
static bool may_pass(regx_verbs_t *verbs, int error, int64_t now)
{
    regx_verbs_table_t *table = &verbs->table;

    if (regx_verbs_refusal(error) != REGX_NO_MEMORY) {
        return false;
    }
    if (table->starved_since == 0 || now - table->starved_until > FORGET_NS) {
        table->starved_since = now;
        regx_transport_fall_back(&verbs->config, REGX_TRACE_CONNECTION,
                                 "verbs: no memory for a peer for a while");
    }
    table->starved_until = now + TRY_NS;
    return now - table->starved_since < PATIENCE_NS;
}

static void free_memory(regx_ep_t *ep)
{
    if (ep->qp != NULL) {
        ibv_destroy_qp(ep->qp);
    }
    free(ep->sq.works);
    free(ep);
}

static regx_ep_t *allocate(regx_verbs_t *verbs)
{
    regx_ep_t *ep = calloc(1, sizeof(*ep));

    if (ep == NULL) {
        return NULL;
    }
    ep->verbs = verbs;
    ep->sq.depth = verbs->can.depth;
    ep->sq.works = calloc(ep->sq.depth, sizeof(ep->sq.works[0]));
    if (ep->sq.works == NULL) {
        free_memory(ep);
        return NULL;
    }
    regx_list_init(&ep->link);
    regx_list_init(&ep->ending);
    regx_list_init(&ep->turn);
    regx_list_init(&ep->cm.asking);
    regx_list_init(&ep->cm.due);
    return ep;
}

regx_ep_t *regx_ep_new(regx_verbs_t *verbs, uint64_t peer, const regx_verbs_address_t *address)
{
    regx_verbs_table_t *table = &verbs->table;
    const int64_t now = regx_now_ns();
    regx_ep_t *ep = now < table->starved_until ? NULL : allocate(verbs);

    if (ep == NULL) {
        return NULL;
    }
    ep->peer = peer;
    ep->address = *address;
    const int error = take_qp(ep);
    if (may_pass(verbs, error, now)) {
        free_memory(ep);
        return NULL;
    }
    if (error == 0) {
        regx_ep_t **bucket = &table->by_qpn[regx_verbs_bucket(ep->qpn)];

        table->starved_since = 0;
        ep->next.by_qpn = *bucket;
        *bucket = ep;
    } else {
        note_refused(ep, error);
    }
    ep->next.by_peer = table->by_peer[regx_verbs_bucket(peer)];
    table->by_peer[regx_verbs_bucket(peer)] = ep;
    regx_list_append(&table->eps, &ep->link);
    table->count++;
    return ep;
}

void regx_ep_break(regx_ep_t *ep, const char *what, const char *why)
{
    if (ep->state != REGX_EP_BROKEN) {
        ep->state = REGX_EP_BROKEN;
        snprintf(ep->what, sizeof(ep->what), "%s: %s", what, why);
    }
    regx_ep_set_ending(ep);
}

void regx_eps_break(regx_verbs_t *verbs, const char *what, const char *why)
{
    for (regx_link_t *at = verbs->table.eps.next; at != &verbs->table.eps; at = at->next) {
        regx_ep_break(REGX_CONTAINER_OF(at, regx_ep_t, link), what, why);
    }
}

void regx_ep_forget_qpn(regx_ep_t *ep)
{
    regx_verbs_table_t *table = &ep->verbs->table;
    regx_ep_t **at = &table->by_qpn[regx_verbs_bucket(ep->qpn)];

    while (*at != NULL && *at != ep) {
        at = &(*at)->next.by_qpn;
    }
    if (*at != NULL) {
        *at = ep->next.by_qpn;
    }
    if (table->last_found == ep) {
        table->last_found = NULL;
    }
}

void regx_ep_free(regx_ep_t *ep)
{
    regx_verbs_table_t *table = &ep->verbs->table;
    regx_ep_t **at = &table->by_peer[regx_verbs_bucket(ep->peer)];

    while (*at != ep) {
        at = &(*at)->next.by_peer;
    }
    *at = ep->next.by_peer;
    regx_list_remove(&ep->link);
    regx_list_remove(&ep->ending);
    table->count--;
    if (ep->conn != NULL) {
        ep->conn->ep = NULL;
    }
    free_memory(ep);
}

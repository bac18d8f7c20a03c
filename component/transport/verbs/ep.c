/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/ep.h"

#include <assert.h>
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/memlock.h"
#include "transport/verbs/memory.h"

/* After what time a device is asked again that has no memory for a queue pair, and after what time
 * without a question it is another matter. */
#define TRY_NS INT64_C(10000000)
#define FORGET_NS INT64_C(5000000000)

#define RETRIES 6     /* Soft-RoCE takes 7 as endless: a peer that died would not be noticed */
#define RNR_RETRIES 7 /* endless: a peer that computes frees no receive buffers */
#define RNR_TIMER 12  /* 0.64 ms between two tries at a receiver without a buffer */
#define HOP_LIMIT 64
#define ROUTE_TRIES 10
#define INLINE_MIN 16u /* less is not worth asking for */

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
        attr.grh.traffic_class = verbs->traffic_class;
    }
    return attr;
}

/* Libraries have forgotten to say why they refuse: then it is EIO. */
struct ibv_ah *regx_qp_route(regx_verbs_t *verbs, const regx_verbs_address_t *address)
{
    struct ibv_ah_attr attr = describe_route(verbs, address);

    regx_verbs_port_has_device(&verbs->port);
    errno = EIO;
    return ibv_create_ah(verbs->pd, &attr);
}

bool regx_ep_may_route_later(regx_ep_t *ep, int error)
{
    if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH) {
        regx_trace(ep->verbs->config.trace, REGX_TRACE_CONNECTION,
                   "verbs: no route to process %#" PRIx64 " on %s: %s", ep->peer,
                   ep->verbs->port.name, strerror(error));
        return ++ep->cm.unrouted < ROUTE_TRIES;
    }
    return regx_verbs_refusal(error) == REGX_NO_MEMORY;
}

/* Asks for a queue pair. *inline_max: bytes that its requests shall carry, and can. */
static struct ibv_qp *make_qp(const regx_verbs_t *verbs, uint32_t *inline_max)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = verbs->cq,
        .recv_cq = verbs->cq,
        .srq = verbs->srq,
        .cap = {.max_send_wr = verbs->can.depth, .max_send_sge = 1, .max_inline_data = *inline_max},
        .qp_type = IBV_QPT_RC};

    errno = EIO;
    struct ibv_qp *qp = ibv_create_qp(verbs->pd, &attr);
    *inline_max = attr.cap.max_inline_data;
    return qp;
}

/* What a request can carry itself differs between devices, also from what they report. Only trying
 * shows. It is tried once, at the start, when a lack of memory cannot be taken for a limit of the
 * device. */
regx_status_t regx_qp_probe(regx_verbs_t *verbs, regx_error_t error)
{
    uint32_t wanted = REGX_VERBS_INLINE, can = wanted;
    struct ibv_qp *qp = make_qp(verbs, &can);

    while (qp == NULL && wanted > 0) {
        wanted = wanted / 2 < INLINE_MIN ? 0 : wanted / 2;
        can = wanted;
        qp = make_qp(verbs, &can);
    }
    if (qp == NULL) {
        return regx_verbs_refusal(errno) == REGX_NO_MEMORY
                   ? REGX_OK
                   : regx_verbs_port_refuse(&verbs->port, "RC queue pair", error);
    }
    verbs->can.inline_max = (uint32_t)regx_min(can, REGX_VERBS_INLINE);
    ibv_destroy_qp(qp);
    return REGX_OK;
}

int regx_ep_connect(regx_ep_t *ep, const regx_cm_message_t *message)
{
    regx_verbs_t *verbs = ep->verbs;
    struct ibv_qp_attr receive = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)regx_min(verbs->address.mtu, message->address.mtu),
        .dest_qp_num = message->qpn,
        .rq_psn = message->psn,
        .max_dest_rd_atomic = verbs->can.reads_answered,
        .min_rnr_timer = RNR_TIMER,
        .ah_attr = describe_route(verbs, &message->address)};

    regx_verbs_port_has_device(&verbs->port);
    ep->gets.max = (uint8_t)regx_min(message->reads, verbs->can.reads_made);
    int error = ibv_modify_qp(ep->qp, &receive,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error == 0) {
        ep->theirs = *message;
        ep->cm.unrouted = 0;
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

regx_ep_t *regx_ep_find(regx_verbs_t *verbs, uint64_t peer)
{
    const regx_link_t *bucket = regx_verbs_bucket(verbs->table.by_peer, peer);

    for (regx_link_t *at = bucket->next; at != bucket; at = at->next) {
        regx_ep_t *ep = REGX_CONTAINER_OF(at, regx_ep_t, by_peer);

        if (ep->peer == peer) {
            return ep;
        }
    }
    return NULL;
}

regx_ep_t *regx_ep_find_qpn(regx_verbs_t *verbs, uint32_t qpn)
{
    const regx_link_t *bucket = regx_verbs_bucket(verbs->table.by_qpn, qpn);

    for (regx_link_t *at = bucket->next; at != bucket; at = at->next) {
        regx_ep_t *ep = REGX_CONTAINER_OF(at, regx_ep_t, by_qpn);

        if (ep->qpn == qpn) {
            return ep;
        }
    }
    return NULL;
}

/* Gives an endpoint its queue pair. 0, or the error. */
static int take_qp(regx_ep_t *ep)
{
    regx_verbs_t *verbs = ep->verbs;
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = verbs->pkey_index,
                               .port_num = verbs->port.number,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    uint32_t inline_max = verbs->can.inline_max;

    if (verbs->table.count >= REGX_VERBS_EPS_MAX) {
        return E2BIG;
    }
    regx_verbs_port_has_device(&verbs->port);
    ep->qp = make_qp(verbs, &inline_max);
    if (ep->qp == NULL || getrandom(&ep->psn, sizeof(ep->psn), 0) != sizeof(ep->psn)) {
        return errno;
    }
    ep->epoch = ++verbs->table.last_epoch;
    ep->qpn = ep->qp->qp_num;
    ep->psn &= 0xffffff;
    return ibv_modify_qp(ep->qp, &init,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

regx_ep_t *regx_ep_new(regx_verbs_t *verbs, uint64_t peer, const regx_verbs_address_t *address)
{
    regx_verbs_table_t *table = &verbs->table;
    const int64_t now = regx_now_ns();
    regx_ep_t *ep = now < table->starved_until ? NULL : calloc(1, sizeof(*ep));
    char why[128];

    if (ep == NULL) {
        return NULL;
    }
    regx_list_init(&ep->puts);
    regx_list_init(&ep->gets.line);
    ep->verbs = verbs;
    ep->peer = peer;
    ep->address = *address;
    const int error = verbs->port.failed ? EIO : take_qp(ep);
    if (regx_verbs_refusal(error) == REGX_NO_MEMORY) {
        if (now - table->starved_until > FORGET_NS) {
            table->refusals = 0; /* another shortage */
        }
        if (table->refusals++ == 0) {
            regx_transport_fall_back(&verbs->config, REGX_TRACE_CONNECTION,
                                     "verbs: no memory for a peer for a while");
        }
        table->starved_until = now + TRY_NS;
        if (table->refusals < REGX_VERBS_REFUSALS) { /* there may be memory later */
            if (ep->qp != NULL) {
                ibv_destroy_qp(ep->qp);
            }
            free(ep);
            return NULL;
        }
    }
    if (error == 0) {
        table->refusals = 0;
        regx_list_append(regx_verbs_bucket(table->by_qpn, ep->qpn), &ep->by_qpn);
    } else {
        /* What the device pins for a queue pair counts against the limit of locked memory, and
         * registered buffers may have used that up for now. */
        const uint64_t limit = error == ENOMEM ? regx_memlock_limit() : REGX_MEMLOCK_NONE;

        if (verbs->port.failed) {
            snprintf(why, sizeof(why), "the device has failed");
        } else if (error == E2BIG) {
            snprintf(why, sizeof(why), "more than %u peers", REGX_VERBS_EPS_MAX);
        } else if (limit == REGX_MEMLOCK_NONE) {
            snprintf(why, sizeof(why), "%s", strerror(error));
        } else {
            snprintf(why, sizeof(why),
                     "%s; the limit of locked memory (ulimit -l) is %" PRIu64 " KiB",
                     strerror(error), limit / 1024);
        }
        regx_ep_break(ep, "making a queue pair", why);
    }
    regx_list_append(regx_verbs_bucket(table->by_peer, peer), &ep->by_peer);
    regx_list_append(&table->eps, &ep->link);
    table->count++;
    return ep;
}

void regx_ep_break(regx_ep_t *ep, const char *what, const char *why)
{
    char port[192];

    if (ep->state != REGX_EP_BROKEN) {
        ep->state = REGX_EP_BROKEN;
        regx_verbs_port_describe(&ep->verbs->port, port, sizeof(port));
        snprintf(ep->what, sizeof(ep->what), "%s: %s%s", what, why, port);
    }
    regx_cm_stop(ep);
    regx_ep_set_ending(ep);
}

void regx_eps_break(regx_verbs_t *verbs, regx_ep_state_t last, const char *what, const char *why)
{
    for (regx_link_t *at = verbs->table.eps.next; at != &verbs->table.eps; at = at->next) {
        regx_ep_t *ep = REGX_CONTAINER_OF(at, regx_ep_t, link);

        if (ep->state <= last) {
            regx_ep_break(ep, what, why);
        }
    }
}

void regx_ep_free(regx_ep_t *ep)
{
    regx_list_remove(&ep->by_peer);
    regx_list_remove(&ep->link);
    regx_list_remove(&ep->ending);
    ep->verbs->table.count--;
    if (ep->conn != NULL) {
        ep->conn->ep = NULL;
    }
    free(ep);
}

/* ---- the send queue ---- */

/* The endpoint's next completion reports all that did not report. */
static void count_signaled(regx_ep_t *ep)
{
    assert(ep->verbs->requests.unsignaled >= ep->sq.unsignaled);
    ep->verbs->requests.unsignaled -= ep->sq.unsignaled;
    ep->sq.unsignaled = 0;
}

regx_status_t regx_sq_post(regx_ep_t *ep, struct ibv_send_wr *request,
                           const regx_verbs_work_t *work)
{
    regx_verbs_t *verbs = ep->verbs;
    struct ibv_send_wr *refused;

    assert(regx_sq_has_room(ep));
    request->wr_id = ep->sq.posted;
    request->next = NULL;
    if (work->kind == REGX_WORK_PLAIN && work->ends == NULL && work->slot == NULL &&
        ep->sq.unsignaled + 1 < verbs->can.depth / 2 &&
        verbs->requests.unsignaled < verbs->requests.max / 2 &&
        !regx_sq_only_reserve_is_left(verbs)) { /* it need not report its end */
        ep->sq.unsignaled++;
        verbs->requests.unsignaled++;
    } else {
        request->send_flags |= IBV_SEND_SIGNALED;
        count_signaled(ep);
    }
    ep->sq.works[ep->sq.posted++ % REGX_VERBS_DEPTH] = *work;
    verbs->requests.outstanding++;
    assert(verbs->requests.unsignaled <= verbs->requests.outstanding);
    const int error = regx_verbs_may_post(verbs) ? ibv_post_send(ep->qp, request, &refused) : EBADF;
    if (error != 0) {
        regx_ep_break(ep, work->what, strerror(error));
        return REGX_UNREACHABLE;
    }
    return REGX_OK;
}

void regx_sq_probe(regx_ep_t *ep)
{
    static const regx_verbs_work_t question = {.kind = REGX_WORK_PROBE, .what = REGX_VERBS_WRITING};
    struct ibv_send_wr request = {
        .opcode = IBV_WR_RDMA_WRITE,
        .wr.rdma = {.remote_addr = ep->theirs.pool, .rkey = ep->theirs.pool_key}};

    regx_sq_post(ep, &request, &question);
}

struct ibv_send_wr regx_sq_frame(regx_verbs_kind_t kind, uint8_t tag, struct ibv_sge *data)
{
    return (struct ibv_send_wr){.sg_list = data,
                                .num_sge = data->length > 0 ? 1 : 0,
                                .opcode = IBV_WR_SEND_WITH_IMM,
                                .imm_data = htobe32(regx_verbs_immediate(kind, tag))};
}

/* A READ is not behind a goodbye: its answer may have to come again. */
regx_status_t regx_sq_post_goodbye(regx_ep_t *ep)
{
    static const regx_verbs_work_t goodbye = {.kind = REGX_WORK_PROBE, .what = REGX_VERBS_SENDING};
    struct ibv_sge nothing = {0};
    const bool evicted = ep->evicted && !ep->leaves;
    struct ibv_send_wr request = regx_sq_frame(
        REGX_VERBS_GOODBYE, evicted ? REGX_VERBS_EVICTED : REGX_VERBS_DISCONNECTED, &nothing);

    if (regx_ep_has_line(ep) || ep->gets.posted > 0 || !regx_sq_has_room(ep)) {
        return REGX_AGAIN;
    }
    ep->sq.goodbye = ep->sq.posted + 1;
    return regx_sq_post(ep, &request, &goodbye);
}

static void end_work(regx_ep_t *ep, uint64_t end, regx_status_t status)
{
    assert(end - ep->sq.done <= ep->sq.posted - ep->sq.done);
    while (ep->sq.done != end) {
        const regx_verbs_work_t work = ep->sq.works[ep->sq.done++ % REGX_VERBS_DEPTH];

        assert(ep->verbs->requests.outstanding > 0);
        ep->verbs->requests.outstanding--;
        if (work.slot != NULL) {
            regx_verbs_slot_give(ep->verbs, work.slot, &ep->sq.slots);
        }
        if (work.kind == REGX_WORK_READ) {
            assert(ep->gets.posted > 0);
            ep->gets.posted--;
        }
        if (work.ends != NULL) {
            ep->verbs->events++;
            regx_pending_end(work.ends, status);
        }
    }
}

bool regx_sq_touches(const regx_ep_t *ep)
{
    bool touches = regx_ep_has_line(ep);

    for (uint64_t i = ep->sq.done; i != ep->sq.posted && !touches; i++) {
        touches = ep->sq.works[i % REGX_VERBS_DEPTH].ends != NULL;
    }
    return touches;
}

void regx_sq_done(regx_ep_t *ep, uint64_t number)
{
    if (number - ep->sq.done < ep->sq.posted - ep->sq.done) {
        end_work(ep, number + 1, REGX_OK);
    }
}

void regx_sq_fail(regx_ep_t *ep)
{
    regx_link_t line = {&line, &line};

    regx_list_move(&line, &ep->puts);
    regx_list_move(&line, &ep->gets.line);
    count_signaled(ep);
    end_work(ep, ep->sq.posted, REGX_FAILED);
    regx_pending_end_all(&line, REGX_FAILED);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Devices in memory: queues, and what goes by them.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_parts.h"

#define GRH_SIZE 40
#define QUEUE 16384 /* entries of any queue */

typedef struct request {
    struct ibv_send_wr wr;
    struct ibv_sge piece;
    struct ibv_ah_attr to; /* of a datagram */
    uint8_t carried[1024];
} request_t;

typedef struct receives {
    struct ibv_recv_wr *entries;
    struct ibv_sge *pieces;
    uint64_t posted, taken;
} receives_t;

typedef struct srq {
    struct ibv_srq super;
    receives_t receives;
    uint32_t limit; /* fewer are to be told of, once; 0: no */
} srq_t;

typedef struct cq {
    struct ibv_cq super;
    struct ibv_wc *entries;
    uint64_t pushed, polled, size;
} cq_t;

typedef struct qp {
    struct ibv_qp super;
    fake_port_t *port;
    receives_t receives; /* of a UD one */
    request_t *requests;
    uint32_t depth, dest, qkey;
    unsigned access; /* that peers have by it */
    uint64_t posted, done;
    uint64_t lost; /* the READ whose answer was lost */
    bool owes;     /* there is one: nothing behind it completes */
    struct qp *next;
} qp_t;

typedef struct ah {
    struct ibv_ah super;
    struct ibv_ah_attr attr;
} ah_t;

static qp_t *qps;
static uint32_t freed_number; /* of the queue pair that was destroyed last; 0: it is in use again */

/* Queues of receives. */
static void receives_init(receives_t *receives)
{
    receives->entries = calloc(QUEUE, sizeof(receives->entries[0]));
    receives->pieces = calloc(QUEUE, sizeof(receives->pieces[0]));
}

static void receives_fini(receives_t *receives)
{
    free(receives->entries);
    free(receives->pieces);
}

static void receives_add(receives_t *receives, struct ibv_recv_wr *wr)
{
    for (; wr != NULL; wr = wr->next) {
        const uint64_t at = receives->posted++ % QUEUE;

        receives->entries[at] = *wr;
        receives->pieces[at] = wr->sg_list[0];
    }
}

static void complete(struct ibv_cq *super, const struct ibv_wc *wc)
{
    cq_t *cq = (cq_t *)super;

    if (cq->pushed - cq->polled >= cq->size) {
        fprintf(stderr, "fake device: a completion queue overflows\n");
        abort();
    }
    cq->entries[cq->pushed++ % cq->size] = *wc;
}

static void end_request(qp_t *qp, const request_t *request, enum ibv_wc_status status)
{
    static const enum ibv_wc_opcode opcodes[] = {[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
                                                 [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
                                                 [IBV_WR_SEND] = IBV_WC_SEND,
                                                 [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
                                                 [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
                                                 [IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
                                                 [IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD};

    const bool reported = status != IBV_WC_SUCCESS ||
                          ((request->wr.send_flags & IBV_SEND_SIGNALED) != 0 && !qp->owes);

    if (reported) {
        const struct ibv_wc wc = {.wr_id = request->wr.wr_id,
                                  .status = status,
                                  .opcode = opcodes[request->wr.opcode],
                                  .qp_num = qp->super.qp_num};

        complete(qp->super.send_cq, &wc);
    }
    qp->done++;
}

static void enter_error(qp_t *qp)
{
    if (qp->super.state == IBV_QPS_ERR) {
        return;
    }
    qp->super.state = IBV_QPS_ERR;
    if (qp->super.qp_type == IBV_QPT_RC && !fake.mute) {
        const struct ibv_async_event event = {.event_type = IBV_EVENT_QP_LAST_WQE_REACHED,
                                              .element.qp = &qp->super};

        fake_tell(qp->super.context, &event);
    }
    while (qp->super.qp_type == IBV_QPT_UD && qp->receives.taken != qp->receives.posted) {
        const struct ibv_wc wc = {.wr_id = qp->receives.entries[qp->receives.taken++ % QUEUE].wr_id,
                                  .status = IBV_WC_WR_FLUSH_ERR,
                                  .opcode = IBV_WC_RECV,
                                  .qp_num = qp->super.qp_num};

        complete(qp->super.recv_cq, &wc);
    }
}

static qp_t *find(uint32_t number)
{
    qp_t *qp = qps;

    while (qp != NULL && qp->super.qp_num != number) {
        qp = qp->next;
    }
    return qp;
}

/* A receive was taken from a shared queue. */
static void watch_srq(srq_t *srq)
{
    const struct ibv_async_event event = {.event_type = IBV_EVENT_SRQ_LIMIT_REACHED,
                                          .element.srq = &srq->super};

    if (srq->receives.posted - srq->receives.taken < srq->limit) {
        srq->limit = 0;
        fake_tell(srq->super.context, &event);
    }
}

/* Gives what arrives to the next receive buffer. false: there is none. */
static bool receive(qp_t *to, receives_t *receives, const struct ibv_wc *wc, const uint8_t *header,
                    const void *data, uint32_t length)
{
    struct ibv_wc done = *wc;

    if (receives->taken == receives->posted) {
        return false;
    }
    const uint64_t at = receives->taken++ % QUEUE;
    if (to->super.srq != NULL) {
        watch_srq((srq_t *)to->super.srq);
    }
    uint8_t *room = (uint8_t *)(uintptr_t)receives->pieces[at].addr;
    if (header != NULL) {
        memcpy(room, header, GRH_SIZE);
        room += GRH_SIZE;
        done.byte_len += GRH_SIZE;
    }
    done.wr_id = receives->entries[at].wr_id;
    done.qp_num = to->super.qp_num;
    if (done.opcode == IBV_WC_RECV) {
        if (done.byte_len > receives->pieces[at].length) {
            done.status = IBV_WC_LOC_LEN_ERR;
        } else if (length > 0) {
            memcpy(room, data, length);
        }
    }
    complete(to->super.recv_cq, &done);
    return true;
}

static uint16_t checksum(const uint8_t header[20])
{
    uint32_t sum = 0;

    for (int i = 0; i < 20; i += 2) {
        sum += (uint32_t)header[i] << 8 | header[i + 1];
    }
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t) ~((sum & 0xffff) + (sum >> 16));
}

/* What a datagram queue pair puts before the data. */
static void fill_header(const qp_t *from, const request_t *request, uint8_t header[GRH_SIZE])
{
    memset(header, 0, GRH_SIZE);
    if (from->port->link_layer == IBV_LINK_LAYER_ETHERNET && from->port->gid[10] == 0xff) {
        uint8_t *ip = header + 20;

        ip[0] = 0x45;
        memcpy(ip + 12, from->port->gid + 12, 4);
        memcpy(ip + 16, request->to.grh.dgid.raw + 12, 4);
        const uint16_t sum = checksum(ip);
        ip[10] = (uint8_t)(sum >> 8);
        ip[11] = (uint8_t)sum;
    } else if (request->to.is_global) {
        header[0] = 0x60;
        memcpy(header + 8, from->port->gid, 16);
        memcpy(header + 24, request->to.grh.dgid.raw, 16);
    }
}

/* Whether a route leads to that port. */
static bool leads_to(const struct ibv_ah_attr *route, const fake_port_t *port)
{
    if ((port->port_flags & IBV_QPF_GRH_REQUIRED) != 0 && !route->is_global) {
        return false;
    }
    return port->link_layer == IBV_LINK_LAYER_ETHERNET
               ? route->is_global && memcmp(route->grh.dgid.raw, port->gid, 16) == 0
               : route->dlid == port->lid;
}

static void send_datagram(qp_t *qp, const request_t *request)
{
    qp_t *to = find(request->wr.wr.ud.remote_qpn);
    uint8_t header[GRH_SIZE];

    const uint32_t bit = 1u << fake.datagrams++ % 32;
    const int copies = fake.drop_datagrams || fake.link_down || (fake.lose & bit) != 0 ? 0
                       : (fake.twice & bit) != 0                                       ? 2
                                                                                       : 1;
    if (to != NULL && to->super.qp_type == IBV_QPT_UD && to->super.state == IBV_QPS_RTS &&
        to->qkey == request->wr.wr.ud.remote_qkey && leads_to(&request->to, to->port)) {
        const struct ibv_wc wc = {.opcode = IBV_WC_RECV,
                                  .byte_len = request->piece.length,
                                  .src_qp = qp->super.qp_num,
                                  .slid = qp->port->lid,
                                  .wc_flags = request->to.is_global ? IBV_WC_GRH : 0};

        fill_header(qp, request, header);
        for (int i = 0; i < copies; i++) {
            receive(to, &to->receives, &wc, header, (const void *)(uintptr_t)request->piece.addr,
                    request->piece.length);
        }
    }
    if (fake.link_down && fake.link_errors) {
        fake.datagrams_failed++;
        end_request(qp, request, IBV_WC_LOC_QP_OP_ERR);
        enter_error(qp);
        return;
    }
    end_request(qp, request, IBV_WC_SUCCESS);
}

static bool is_to_fail(void)
{
    const unsigned number = fake.fault.done + 1;

    return fake.fault.at[0] == number || fake.fault.at[1] == number;
}

static bool is_atomic(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static enum ibv_wc_status change(const qp_t *to, const request_t *request)
{
    const struct ibv_send_wr *wr = &request->wr;
    const uint64_t address = wr->wr.atomic.remote_addr;
    uint64_t *at = (uint64_t *)(uintptr_t)address;

    if ((to->access & IBV_ACCESS_REMOTE_ATOMIC) == 0 || address % sizeof(*at) != 0 ||
        request->piece.length != sizeof(*at)) {
        return IBV_WC_REM_INV_REQ_ERR;
    }
    if (!fake_is_registered(wr->wr.atomic.rkey, address, sizeof(*at), IBV_ACCESS_REMOTE_ATOMIC)) {
        return IBV_WC_REM_ACCESS_ERR;
    }
    memcpy((void *)(uintptr_t)request->piece.addr, at, sizeof(*at));
    if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        *at += wr->wr.atomic.compare_add;
    } else if (*at == wr->wr.atomic.compare_add) {
        *at = wr->wr.atomic.swap;
    }
    return IBV_WC_SUCCESS;
}

/* Whether what comes back is written to memory of the sender's. */
static bool fetches(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}

/* Does one request of a reliable queue pair. false: the receiver has no buffer now. */
static bool send_reliably(qp_t *qp, const request_t *request)
{
    qp_t *to = find(qp->dest);
    const struct ibv_send_wr *wr = &request->wr;
    void *local = (void *)(uintptr_t)request->piece.addr;
    void *remote = (void *)(uintptr_t)wr->wr.rdma.remote_addr;
    const uint32_t length = request->piece.length;
    const bool writes = wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    struct ibv_wc wc = {.opcode = IBV_WC_RECV, .byte_len = length};
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    const bool fails = is_to_fail(), is_lost = fake.fault.lost_read == fake.fault.done + 1;

    if (fails && !fake.fault.late) {
        status = fake.fault.status;
    } else if (fake.link_down && fake.link_errors) {
        status = IBV_WC_LOC_QP_OP_ERR;
    } else if (fake.link_down || to == NULL || to->super.state == IBV_QPS_ERR ||
               (to->super.state != IBV_QPS_INIT && to->dest != qp->super.qp_num)) {
        status = IBV_WC_RETRY_EXC_ERR;
    } else if (to->super.state == IBV_QPS_INIT) {
        return false;
    } else if (length > 0 && (wr->send_flags & IBV_SEND_INLINE) == 0 &&
               !fake_is_registered(request->piece.lkey, request->piece.addr, length,
                                   fetches(wr->opcode) ? IBV_ACCESS_LOCAL_WRITE : 0)) {
        status = IBV_WC_LOC_PROT_ERR;
    } else if (is_atomic(wr->opcode)) {
        status = change(to, request);
    } else if (length > 0 && (writes || wr->opcode == IBV_WR_RDMA_READ) &&
               !fake_is_registered(wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, length,
                                   writes ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ)) {
        status = IBV_WC_REM_ACCESS_ERR;
    } else if (wr->opcode == IBV_WR_RDMA_READ && is_lost) {
        qp->owes = true;
        qp->lost = wr->wr_id;
    } else if (wr->opcode == IBV_WR_RDMA_READ && !qp->owes) {
        memcpy(local, remote, length);
    } else if (writes && length > 0) {
        memcpy(remote, local, length);
    }
    if (wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        wc.wc_flags = IBV_WC_WITH_IMM;
        wc.imm_data = wr->imm_data;
        wc.opcode = writes ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
        if (status == IBV_WC_SUCCESS &&
            !receive(to, &((srq_t *)to->super.srq)->receives, &wc, NULL, local, length)) {
            return false;
        }
    }
    fake.fault.done++;
    if (fails) {
        status = fake.fault.status;
    }
    end_request(qp, request, status);
    if (status != IBV_WC_SUCCESS) {
        enter_error(qp);
    }
    return true;
}

/* The device has waited for the answer to a READ long enough. */
static void give_up_read(qp_t *qp)
{
    const struct ibv_wc wc = {.wr_id = qp->lost,
                              .status = IBV_WC_RETRY_EXC_ERR,
                              .opcode = IBV_WC_RDMA_READ,
                              .qp_num = qp->super.qp_num};

    qp->owes = false;
    complete(qp->super.send_cq, &wc);
    enter_error(qp);
}

static void run(qp_t *qp)
{
    while (qp->done != qp->posted) {
        const request_t *request = &qp->requests[qp->done % qp->depth];

        if (qp->super.state == IBV_QPS_ERR) {
            end_request(qp, request, IBV_WC_WR_FLUSH_ERR);
        } else if (qp->super.qp_type == IBV_QPT_UD) {
            send_datagram(qp, request);
        } else if (!send_reliably(qp, request)) {
            break;
        }
    }
    if (qp->owes) {
        give_up_read(qp);
    }
}

static int poll_cq(struct ibv_cq *super, int most, struct ibv_wc *wc)
{
    cq_t *cq = (cq_t *)super;
    int count = 0;

    pthread_mutex_lock(&fake_lock);
    for (qp_t *qp = qps; qp != NULL; qp = qp->next) {
        run(qp);
    }
    while (count < most && cq->polled != cq->pushed) {
        wc[count++] = cq->entries[cq->polled++ % cq->size];
    }
    pthread_mutex_unlock(&fake_lock);
    return count;
}

static int post(qp_t *qp, const struct ibv_send_wr *wr)
{
    const bool reliable = qp->super.qp_type == IBV_QPT_RC;

    if (qp->posted - qp->done == qp->depth ||
        (reliable && ++fake.fault.posted == fake.fault.refused)) {
        return ENOMEM;
    }
    request_t *request = &qp->requests[qp->posted % qp->depth];
    request->wr = *wr;
    request->piece = wr->num_sge > 0 ? wr->sg_list[0] : (struct ibv_sge){0};
    if (qp->super.qp_type == IBV_QPT_UD) {
        request->to = ((ah_t *)wr->wr.ud.ah)->attr;
    }
    if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
        if (request->piece.length > qp->port->inline_max) {
            return EINVAL;
        }
        if (request->piece.length > fake.inline_max) {
            fake.inline_max = request->piece.length;
        }
        memcpy(request->carried, (const void *)(uintptr_t)request->piece.addr,
               request->piece.length);
        request->piece.addr = (uintptr_t)request->carried;
    }
    qp->posted++;
    return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **refused)
{
    int error = 0;

    pthread_mutex_lock(&fake_lock);
    for (; wr != NULL && error == 0; wr = error == 0 ? wr->next : wr) {
        *refused = wr;
        error = post((qp_t *)qp, wr);
    }
    pthread_mutex_unlock(&fake_lock);
    return error;
}

static int post_recv(struct ibv_qp *super, struct ibv_recv_wr *wr, struct ibv_recv_wr **refused)
{
    *refused = wr;
    pthread_mutex_lock(&fake_lock);
    receives_add(&((qp_t *)super)->receives, wr);
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

static int post_srq_recv(struct ibv_srq *super, struct ibv_recv_wr *wr,
                         struct ibv_recv_wr **refused)
{
    *refused = wr;
    pthread_mutex_lock(&fake_lock);
    receives_add(&((srq_t *)super)->receives, wr);
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

void fake_queues_serve(struct ibv_context_ops *ops)
{
    ops->poll_cq = poll_cq;
    ops->post_send = post_send;
    ops->post_recv = post_recv;
    ops->post_srq_recv = post_srq_recv;
}

uint32_t fake_srq_length(const struct ibv_srq *srq)
{
    const receives_t *receives = &((const srq_t *)srq)->receives;

    return (uint32_t)(receives->posted - receives->taken);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *own,
                             struct ibv_comp_channel *channel, int vector)
{
    cq_t *cq = calloc(1, sizeof(*cq));

    (void)own;
    (void)channel;
    (void)vector;
    cq->super.context = context;
    cq->size = (uint64_t)entries;
    cq->entries = calloc(cq->size, sizeof(cq->entries[0]));
    return &cq->super;
}

int ibv_destroy_cq(struct ibv_cq *super)
{
    cq_t *cq = (cq_t *)super;

    free(cq->entries);
    free(cq);
    return 0;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    srq_t *srq = calloc(1, sizeof(*srq));

    (void)attr;
    srq->super = (struct ibv_srq){.context = pd->context, .pd = pd};
    receives_init(&srq->receives);
    return &srq->super;
}

int ibv_modify_srq(struct ibv_srq *super, struct ibv_srq_attr *attr, int mask)
{
    srq_t *srq = (srq_t *)super;

    if (mask != IBV_SRQ_LIMIT) {
        return EINVAL;
    }
    pthread_mutex_lock(&fake_lock);
    srq->limit = attr->srq_limit;
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

int ibv_destroy_srq(struct ibv_srq *super)
{
    srq_t *srq = (srq_t *)super;

    receives_fini(&srq->receives);
    free(srq);
    return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    fake_port_t *port = fake_context_of(pd->context)->port;

    if (port->inline_refused != 0 && attr->cap.max_inline_data > port->inline_refused) {
        errno = EINVAL;
        return NULL;
    }
    if (fake.queue_pair_error != 0) {
        errno = fake.queue_pair_error;
        return NULL;
    }
    qp_t *qp = calloc(1, sizeof(*qp));
    const uint32_t number = freed_number != 0 ? freed_number : fake_next_number();

    freed_number = 0;
    qp->super = (struct ibv_qp){.context = pd->context,
                                .pd = pd,
                                .send_cq = attr->send_cq,
                                .recv_cq = attr->recv_cq,
                                .srq = attr->srq,
                                .qp_num = number,
                                .qp_type = attr->qp_type};
    qp->port = port;
    qp->depth = attr->cap.max_send_wr;
    qp->requests = calloc(qp->depth, sizeof(qp->requests[0]));
    if (attr->srq == NULL) {
        receives_init(&qp->receives);
    }
    attr->cap.max_inline_data = port->inline_max;
    port->queue_pairs_made += attr->qp_type == IBV_QPT_RC;
    pthread_mutex_lock(&fake_lock);
    qp->next = qps;
    qps = qp;
    pthread_mutex_unlock(&fake_lock);
    return &qp->super;
}

int ibv_modify_qp(struct ibv_qp *super, struct ibv_qp_attr *attr, int mask)
{
    qp_t *qp = (qp_t *)super;

    if ((mask & IBV_QP_DEST_QPN) != 0) {
        qp->dest = attr->dest_qp_num;
    }
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
        qp->access = attr->qp_access_flags;
    }
    if ((mask & IBV_QP_QKEY) != 0) {
        qp->qkey = attr->qkey;
    }
    if ((mask & IBV_QP_AV) != 0) {
        fake.routed = attr->ah_attr;
    }
    pthread_mutex_lock(&fake_lock);
    if (attr->qp_state == IBV_QPS_ERR) {
        enter_error(qp);
    } else {
        qp->super.state = attr->qp_state;
    }
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

/* A device that drops receives forgets completions of the queue pair that nobody has polled. */
static void drop_receives(const qp_t *qp)
{
    cq_t *cq = (cq_t *)qp->super.recv_cq;
    uint64_t kept = cq->polled;

    for (uint64_t i = cq->polled; i != cq->pushed; i++) {
        const struct ibv_wc wc = cq->entries[i % cq->size];

        if (wc.qp_num != qp->super.qp_num) {
            cq->entries[kept++ % cq->size] = wc;
        }
    }
    cq->pushed = kept;
}

int ibv_destroy_qp(struct ibv_qp *super)
{
    qp_t **at = &qps, *qp = (qp_t *)super;

    pthread_mutex_lock(&fake_lock);
    while (*at != qp) {
        at = &(*at)->next;
    }
    *at = qp->next;
    freed_number = super->qp_num;
    if (qp->port->drops_receives) {
        drop_receives(qp);
    }
    fake_untell(super);
    pthread_mutex_unlock(&fake_lock);
    if (super->srq == NULL) {
        receives_fini(&qp->receives);
    }
    free(qp->requests);
    free(qp);
    return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    const fake_context_t *context = fake_context_of(pd->context);

    if (context->port->link_layer == IBV_LINK_LAYER_INFINIBAND &&
        (attr->dlid == 0 || attr->dlid >= 0xc000)) {
        errno = EINVAL; /* no unicast address */
        return NULL;
    }
    if (fake.route_error != 0) {
        fake.routes++;
        errno = fake.route_error;
        return NULL;
    }
    ah_t *ah = calloc(1, sizeof(*ah));
    ah->super = (struct ibv_ah){.context = pd->context, .pd = pd};
    ah->attr = fake.addressed = *attr;
    return &ah->super;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    free(ah);
    return 0;
}

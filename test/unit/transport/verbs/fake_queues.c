/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Devices in memory: queues, and what is posted to them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fake_queues.h"

static uint32_t freed_number; /* of the queue pair that was destroyed last; 0: it is in use again */

/* Queues of receives. */
static void receives_init(fake_receives_t *receives)
{
    receives->entries = calloc(FAKE_QUEUE, sizeof(receives->entries[0]));
    receives->segments = calloc(FAKE_QUEUE, sizeof(receives->segments[0]));
}

static void receives_fini(fake_receives_t *receives)
{
    free(receives->entries);
    free(receives->segments);
}

static void receives_add(fake_receives_t *receives, struct ibv_recv_wr *wr)
{
    for (; wr != NULL; wr = wr->next) {
        const uint64_t at = receives->posted++ % FAKE_QUEUE;

        receives->entries[at] = *wr;
        receives->segments[at] = wr->sg_list[0];
    }
}

static int poll_cq(struct ibv_cq *super, int most, struct ibv_wc *wc)
{
    fake_cq_t *cq = (fake_cq_t *)super;
    fake_port_t *port = fake_context_of(super->context)->port;
    int count = 0;

    if (port->faults.poll) {
        return -EIO;
    }
    pthread_mutex_lock(&fake_lock);
    port->faults.stalled -= port->faults.stalled > 0;
    fake_fabric_run();
    while (count < most && cq->polled != cq->pushed) {
        wc[count++] = cq->entries[cq->polled++ % cq->size];
    }
    pthread_mutex_unlock(&fake_lock);
    return count;
}

static int post(fake_qp_t *qp, const struct ibv_send_wr *wr)
{
    if (qp->posted - qp->done == qp->depth) {
        return ENOMEM;
    }
    fake_request_t *request = &qp->requests[qp->posted % qp->depth];
    request->wr = *wr;
    request->segment = wr->num_sge > 0 ? wr->sg_list[0] : (struct ibv_sge){0};
    if (qp->super.qp_type == IBV_QPT_UD) {
        request->to = (fake_ah_t *)wr->wr.ud.ah;
        if (qp->port->faults.datagram_post != 0) {
            return qp->port->faults.datagram_post;
        }
    }
    if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
        if (request->segment.length > qp->port->inline_max) {
            return EINVAL;
        }
        memcpy(request->carried, (const void *)(uintptr_t)request->segment.addr,
               request->segment.length);
        request->segment.addr = (uintptr_t)request->carried;
    }
    qp->posted++;
    return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **refused)
{
    int error = 0;

    if (((fake_qp_t *)qp)->port->vendor != 0 && !fake_ask(qp->context)) {
        return EBADF;
    }
    pthread_mutex_lock(&fake_lock);
    for (; wr != NULL && error == 0; wr = error == 0 ? wr->next : wr) {
        *refused = wr;
        error = post((fake_qp_t *)qp, wr);
    }
    pthread_mutex_unlock(&fake_lock);
    return error;
}

static int post_recv(struct ibv_qp *super, struct ibv_recv_wr *wr, struct ibv_recv_wr **refused)
{
    const int error = ((fake_qp_t *)super)->port->faults.datagram_receive_post;

    *refused = wr;
    pthread_mutex_lock(&fake_lock);
    receives_add(&((fake_qp_t *)super)->receives, error == 0 ? wr : NULL);
    pthread_mutex_unlock(&fake_lock);
    return error;
}

static int post_srq_recv(struct ibv_srq *super, struct ibv_recv_wr *wr,
                         struct ibv_recv_wr **refused)
{
    const int error = fake_context_of(super->context)->port->faults.receive_post;

    *refused = wr;
    pthread_mutex_lock(&fake_lock);
    receives_add(&((fake_srq_t *)super)->receives, error == 0 ? wr : NULL);
    pthread_mutex_unlock(&fake_lock);
    return error;
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
    const fake_receives_t *receives = &((const fake_srq_t *)srq)->receives;

    return (uint32_t)(receives->posted - receives->taken);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *own,
                             struct ibv_comp_channel *channel, int vector)
{
    fake_cq_t *cq = calloc(1, sizeof(*cq));

    cq->super.context = context;
    cq->size = (uint64_t)entries;
    cq->entries = calloc(cq->size, sizeof(cq->entries[0]));
    return &cq->super;
}

int ibv_destroy_cq(struct ibv_cq *super)
{
    fake_cq_t *cq = (fake_cq_t *)super;

    free(cq->entries);
    free(cq);
    return 0;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    errno = fake_context_of(pd->context)->port->srq_error;
    if (errno != 0) {
        return NULL;
    }
    fake_srq_t *srq = calloc(1, sizeof(*srq));

    srq->super = (struct ibv_srq){.context = pd->context, .pd = pd};
    receives_init(&srq->receives);
    return &srq->super;
}

int ibv_destroy_srq(struct ibv_srq *super)
{
    fake_srq_t *srq = (fake_srq_t *)super;

    receives_fini(&srq->receives);
    free(srq);
    return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    fake_port_t *port = fake_context_of(pd->context)->port;

    if (!fake_ask(pd->context)) {
        return NULL;
    }
    if (port->inline_refused != 0 && attr->cap.max_inline_data > port->inline_refused) {
        errno = EINVAL;
        return NULL;
    }
    if (port->faults.making != 0 && attr->qp_type == IBV_QPT_RC) {
        port->refused++;
        errno = port->faults.making;
        return NULL;
    }
    if (attr->qp_type == IBV_QPT_RC && port->reliable_max != 0 &&
        port->reliable == port->reliable_max) {
        port->refused++;
        errno = ENOMEM;
        return NULL;
    }
    port->reliable += attr->qp_type == IBV_QPT_RC;
    fake_qp_t *qp = calloc(1, sizeof(*qp));
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
    pthread_mutex_lock(&fake_lock);
    fake_fabric_join(qp);
    pthread_mutex_unlock(&fake_lock);
    return &qp->super;
}

int ibv_modify_qp(struct ibv_qp *super, struct ibv_qp_attr *attr, int mask)
{
    fake_qp_t *qp = (fake_qp_t *)super;

    if (!fake_ask(super->context)) {
        return EBADF;
    }
    if ((mask & IBV_QP_AV) != 0 && fake.connect_error != 0) {
        fake.routes++;
        return fake.connect_error;
    }
    if ((mask & IBV_QP_DEST_QPN) != 0) {
        qp->dest = attr->dest_qp_num;
    }
    if ((mask & IBV_QP_QKEY) != 0) {
        qp->qkey = attr->qkey;
        qp->port->datagram_pkey_index = attr->pkey_index;
    }
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
        fake.begins = *attr;
    }
    if ((mask & IBV_QP_AV) != 0) {
        fake.receives = *attr;
        qp->port->route = attr->ah_attr;
    }
    if ((mask & IBV_QP_RNR_RETRY) != 0) {
        fake.sends = *attr;
    }
    pthread_mutex_lock(&fake_lock);
    if (attr->qp_state == IBV_QPS_ERR) {
        fake_enter_error(qp);
    } else {
        qp->super.state = attr->qp_state;
    }
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

/* A device that drops receives forgets completions of the queue pair that were not polled. */
static void drop_receives(const fake_qp_t *qp)
{
    fake_cq_t *cq = (fake_cq_t *)qp->super.recv_cq;
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
    fake_qp_t *qp = (fake_qp_t *)super;

    fake_ask(super->context);
    pthread_mutex_lock(&fake_lock);
    fake_fabric_leave(qp);
    freed_number = super->qp_num;
    qp->port->reliable -= super->qp_type == IBV_QPT_RC;
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

    if (!fake_ask(pd->context)) {
        return NULL;
    }
    context->port->datagram_route = *attr;
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
    fake_ah_t *ah = calloc(1, sizeof(*ah));
    ah->super = (struct ibv_ah){.context = pd->context, .pd = pd};
    ah->attr = *attr;
    pthread_mutex_lock(&fake_lock);
    fake.routes_made++;
    fake.routes_left++;
    pthread_mutex_unlock(&fake_lock);
    return &ah->super;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    pthread_mutex_lock(&fake_lock);
    fake.routes_left--;
    pthread_mutex_unlock(&fake_lock);
    free(ah);
    return 0;
}

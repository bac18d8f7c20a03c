/* SPDX-License-Identifier: BSD-3-Clause */
#include "faulty.h"

#include <errno.h>
#include <unistd.h>

struct faults faults;

/* Around libibverbs' own. */
int __real_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
int __wrap_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
void __real_ibv_ack_async_event(struct ibv_async_event *event);
void __wrap_ibv_ack_async_event(struct ibv_async_event *event);
struct ibv_qp *__real_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *__wrap_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int __real_ibv_destroy_qp(struct ibv_qp *qp);
int __wrap_ibv_destroy_qp(struct ibv_qp *qp);

int __wrap_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    faults.told = faults.event_qp != NULL && context == verbs_of(&one)->port.context;
    if (!faults.told) {
        return __real_ibv_get_async_event(context, event);
    }
    *event = (struct ibv_async_event){.element.qp = faults.event_qp, .event_type = faults.event};
    faults.event_qp = NULL;
    return 0;
}

void __wrap_ibv_ack_async_event(struct ibv_async_event *event)
{
    if (!faults.told) {
        __real_ibv_ack_async_event(event);
    }
}

struct ibv_qp *__wrap_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    if (faults.making == 0 || pd != faults.makes) {
        return __real_ibv_create_qp(pd, attr);
    }
    faults.refused++;
    errno = faults.making;
    return NULL;
}

int __wrap_ibv_destroy_qp(struct ibv_qp *qp)
{
    faults.destroyed = qp->qp_num;
    return __real_ibv_destroy_qp(qp);
}

static enum ibv_wc_status status_of(const struct ibv_wc *wc)
{
    const bool received = (wc->wr_id & REGX_RECEIVED) != 0;

    if (wc->qp_num == verbs_of(&one)->cm.qp->qp_num) {
        return received ? faults.datagram_received : faults.datagram_sent;
    }
    return received ? faults.received : IBV_WC_SUCCESS;
}

/* Those that are held first. */
static int poll_all(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
    int polled = 0;

    while (polled < most && faults.held_first < faults.held_end) {
        wc[polled++] = faults.held[faults.held_first++];
    }
    return polled + faults.ops.poll_cq(cq, most - polled, wc + polled);
}

/* Counts what mlx5 would have dropped. */
static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
    const int polled = faults.poll ? -EIO : poll_all(cq, most, wc);

    for (int i = 0; i < polled; i++) {
        wc[i].status = wc[i].status == IBV_WC_SUCCESS ? status_of(&wc[i]) : wc[i].status;
        faults.lost += wc[i].qp_num == faults.destroyed && (wc[i].wr_id & REGX_RECEIVED) != 0;
    }
    return polled;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *requests, struct ibv_send_wr **refused)
{
    *refused = requests;
    return qp == verbs_of(&one)->cm.qp && faults.datagram_post != 0
               ? faults.datagram_post
               : faults.ops.post_send(qp, requests, refused);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *requests, struct ibv_recv_wr **refused)
{
    *refused = requests;
    return faults.datagram_receive_post != 0 ? faults.datagram_receive_post
                                             : faults.ops.post_recv(qp, requests, refused);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *requests,
                         struct ibv_recv_wr **refused)
{
    *refused = requests;
    return faults.receive_post != 0 ? faults.receive_post
                                    : faults.ops.post_srq_recv(srq, requests, refused);
}

void open_faulty(void)
{
    sides_open(false);
    verbs_of(&two)->can.ack_timeout = 14;

    struct ibv_context_ops *ops = &verbs_of(&one)->port.context->ops;
    faults = (struct faults){.ops = *ops};
    ops->poll_cq = poll_cq;
    ops->post_send = post_send;
    ops->post_recv = post_recv;
    ops->post_srq_recv = post_srq_recv;
}

void open_connected(void)
{
    open_faulty();
    side_send(&one, 1, 1, 100);
    side_send(&two, 1, 1, 100);
    side_await(&one.delivered, 1);
    side_await(&two.delivered, 1);
}

void await_broken(const char *says)
{
    alarm(UNIT_PATIENCE);
    while (one.broken == 0) {
        sides_progress();
    }
    alarm(0);
    assert_int_equal(one.broken, 1);
    assert_non_null(strstr(one.what, says));
}

void close_faulty(void)
{
    const struct ibv_context_ops own = faults.ops;

    faults = (struct faults){.ops = own};
    sides_close();
}

regx_status_t try_to_send(const side_t *side)
{
    uint64_t stream = 1;

    return regx_transport_ops.send(side->conn, 1, NULL, 0, side_pack, &stream, 10);
}

void ask(const side_t *side)
{
    assert_int_equal(try_to_send(side), REGX_AGAIN);
}

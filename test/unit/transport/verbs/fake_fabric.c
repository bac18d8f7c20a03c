/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Devices in memory: what goes by the queues.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_queues.h"

enum { GRH_SIZE = 40, RETRIES = 1000 };

static fake_qp_t *qps;

static void complete(struct ibv_cq *super, const struct ibv_wc *wc)
{
    fake_cq_t *cq = (fake_cq_t *)super;

    if (cq->pushed - cq->polled >= cq->size) {
        fprintf(stderr, "fake device: a completion queue overflows\n");
        abort();
    }
    struct ibv_wc *told = &cq->entries[cq->pushed++ % cq->size];
    *told = *wc;
    if (wc->status != IBV_WC_SUCCESS) { /* of one that failed the rest is undefined */
        memset(told, 0xa5, sizeof(*told));
        told->wr_id = wc->wr_id, told->status = wc->status;
        told->qp_num = wc->qp_num, told->vendor_err = 0;
    }
}

static void end_request(fake_qp_t *qp, const fake_request_t *request, enum ibv_wc_status status)
{
    if (status == IBV_WC_SUCCESS && qp->super.qp_type == IBV_QPT_UD) {
        status = qp->port->faults.datagram_sent;
    }
    if (status != IBV_WC_SUCCESS || (request->wr.send_flags & IBV_SEND_SIGNALED) != 0) {
        const bool read = request->wr.opcode == IBV_WR_RDMA_READ;
        const struct ibv_wc wc = {request->wr.wr_id, status, read ? IBV_WC_RDMA_READ : IBV_WC_SEND,
                                  .qp_num = qp->super.qp_num};

        complete(qp->super.send_cq, &wc);
    }
    qp->done++;
}

void fake_enter_error(fake_qp_t *qp)
{
    if (qp->super.state == IBV_QPS_ERR) {
        return;
    }
    qp->super.state = IBV_QPS_ERR;
    if (qp->super.qp_type == IBV_QPT_RC) {
        const struct ibv_async_event event = {.event_type = IBV_EVENT_QP_LAST_WQE_REACHED,
                                              .element.qp = &qp->super};

        fake_tell(qp->super.context, &event);
    }
    while (qp->super.qp_type == IBV_QPT_UD && qp->receives.taken != qp->receives.posted) {
        const uint64_t id = qp->receives.entries[qp->receives.taken++ % FAKE_QUEUE].wr_id;
        const struct ibv_wc wc = {id, IBV_WC_WR_FLUSH_ERR, .qp_num = qp->super.qp_num};

        complete(qp->super.recv_cq, &wc);
    }
}

static fake_qp_t *find(uint32_t number)
{
    fake_qp_t *qp = qps;

    while (qp != NULL && qp->super.qp_num != number) {
        qp = qp->next;
    }
    return qp;
}

/* Gives what arrives to the next receive buffer. false: there is none. */
static bool receive(fake_qp_t *to, fake_receives_t *receives, const struct ibv_wc *wc,
                    const uint8_t *header, const void *data, uint32_t length)
{
    struct ibv_wc done = *wc;

    if (receives->taken == receives->posted) {
        return false;
    }
    const uint64_t at = receives->taken++ % FAKE_QUEUE;
    uint8_t *room = (uint8_t *)(uintptr_t)receives->segments[at].addr;
    if (header != NULL) {
        memcpy(room, header, GRH_SIZE);
        room += GRH_SIZE;
        done.byte_len += GRH_SIZE;
    }
    done.wr_id = receives->entries[at].wr_id;
    done.qp_num = to->super.qp_num;
    done.status = to->super.qp_type == IBV_QPT_UD ? to->port->faults.datagram_received
                                                  : to->port->faults.received;
    if (done.opcode == IBV_WC_RECV) {
        if (done.byte_len > receives->segments[at].length) {
            done.status = IBV_WC_LOC_LEN_ERR;
        } else if (length > 0) {
            memcpy(room, data, length);
        }
    }
    complete(to->super.recv_cq, &done);
    return true;
}

/* What a datagram queue pair puts before the data. */
static void fill_header(const fake_qp_t *from, const fake_request_t *request,
                        uint8_t header[GRH_SIZE])
{
    memset(header, 0, GRH_SIZE);
    if (from->port->link_layer == IBV_LINK_LAYER_ETHERNET && from->port->gid[10] == 0xff) {
        uint8_t *ip = header + 20;

        memset(header, fake.undefined, 20);
        ip[0] = 0x45;
        memcpy(ip + 12, from->port->gid + 12, 4);
        memcpy(ip + 16, request->to->attr.grh.dgid.raw + 12, 4);
    } else if (request->to->attr.is_global) {
        header[0] = 0x60;
        memcpy(header + 8, from->port->gid, 16);
        memcpy(header + 24, request->to->attr.grh.dgid.raw, 16);
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

static void send_datagram(fake_qp_t *qp, const fake_request_t *request)
{
    fake_qp_t *to = find(request->wr.wr.ud.remote_qpn);
    uint8_t header[GRH_SIZE];

    const uint32_t bit = 1u << fake.datagrams++ % 32;
    const int copies = fake.drop_datagrams || (fake.lose & bit) != 0 ? 0
                       : (fake.twice & bit) != 0                     ? 2
                                                                     : 1;
    if (to != NULL && to->super.qp_type == IBV_QPT_UD && to->super.state == IBV_QPS_RTS &&
        to->qkey == request->wr.wr.ud.remote_qkey && leads_to(&request->to->attr, to->port)) {
        const struct ibv_wc wc = {.opcode = IBV_WC_RECV,
                                  .byte_len = request->segment.length,
                                  .src_qp = qp->super.qp_num,
                                  .slid = qp->port->lid,
                                  .wc_flags = request->to->attr.is_global ? IBV_WC_GRH : 0};

        fill_header(qp, request, header);
        for (int i = 0; i < copies; i++) {
            receive(to, &to->receives, &wc, header, (const void *)(uintptr_t)request->segment.addr,
                    request->segment.length);
        }
    }
    end_request(qp, request, IBV_WC_SUCCESS);
}

/* Does one request of a reliable queue pair. false: the receiver has no buffer now. */
static bool send_reliably(fake_qp_t *qp, const fake_request_t *request)
{
    fake_qp_t *to = find(qp->dest);
    const struct ibv_send_wr *wr = &request->wr;
    void *local = (void *)(uintptr_t)request->segment.addr;
    void *remote = (void *)(uintptr_t)wr->wr.rdma.remote_addr;
    const uint32_t length = request->segment.length;
    const bool writes = wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    struct ibv_wc wc = {.opcode = IBV_WC_RECV, .byte_len = length};
    enum ibv_wc_status status = IBV_WC_SUCCESS;

    if (to == NULL || to->super.state == IBV_QPS_ERR ||
        (to->super.state != IBV_QPS_INIT && to->dest != qp->super.qp_num)) {
        status = IBV_WC_RETRY_EXC_ERR;
    } else if (to->super.state == IBV_QPS_INIT && qp->retries++ < RETRIES) {
        return false;
    } else if (to->super.state == IBV_QPS_INIT) {
        status = IBV_WC_RETRY_EXC_ERR;
    } else if (length > 0 && (wr->send_flags & IBV_SEND_INLINE) == 0 &&
               !fake_is_registered(request->segment.lkey, request->segment.addr, length,
                                   wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0)) {
        status = IBV_WC_LOC_PROT_ERR;
    } else if (length > 0 && (writes || wr->opcode == IBV_WR_RDMA_READ) &&
               !fake_is_registered(wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, length,
                                   writes ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ)) {
        status = IBV_WC_REM_ACCESS_ERR;
    } else if (wr->opcode == IBV_WR_RDMA_READ) {
        memcpy(local, remote, length);
    } else if (writes && length > 0) {
        memcpy(remote, local, length);
    }
    if (wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        wc.wc_flags = IBV_WC_WITH_IMM;
        wc.imm_data = wr->imm_data;
        wc.opcode = writes ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
        if (status == IBV_WC_SUCCESS &&
            !receive(to,
                     to->super.srq != NULL ? &((fake_srq_t *)to->super.srq)->receives
                                           : &to->receives,
                     &wc, NULL, local, length)) {
            return false;
        }
    }
    qp->retries = 0;
    end_request(qp, request,
                status != IBV_WC_SUCCESS && qp->port->faults.flushes ? IBV_WC_WR_FLUSH_ERR
                                                                     : status);
    if (status != IBV_WC_SUCCESS) {
        fake_enter_error(qp);
    }
    return true;
}

static void run(fake_qp_t *qp)
{
    while (qp->done != qp->posted) {
        const fake_request_t *request = &qp->requests[qp->done % qp->depth];

        if (qp->super.state == IBV_QPS_ERR) {
            end_request(qp, request, IBV_WC_WR_FLUSH_ERR);
        } else if (qp->port->down) {
            end_request(qp, request, IBV_WC_LOC_QP_OP_ERR);
            fake_enter_error(qp);
        } else if (qp->super.qp_type == IBV_QPT_UD) {
            send_datagram(qp, request);
        } else if (qp->port->faults.stalled > 0 || !send_reliably(qp, request)) {
            break;
        }
    }
}

void fake_fabric_run(void)
{
    for (fake_qp_t *qp = qps; qp != NULL; qp = qp->next) {
        run(qp);
    }
}

void fake_fabric_join(fake_qp_t *qp)
{
    qp->next = qps;
    qps = qp;
}

void fake_fabric_leave(fake_qp_t *qp)
{
    fake_qp_t **at = &qps;

    while (*at != qp) {
        at = &(*at)->next;
    }
    *at = qp->next;
}

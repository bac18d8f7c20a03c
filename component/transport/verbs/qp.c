/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/qp.h"

#include <stdio.h>
#include <string.h>

#define RNR_TIMER 12 /* 0.64 ms between two tries at a receiver without a buffer */
#define HOP_LIMIT 64
#define DEPTH_MIN 8u
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
        attr.grh.traffic_class = verbs->settings.traffic_class;
    }
    return attr;
}

struct ibv_ah *regx_qp_route(const regx_verbs_t *verbs, const regx_verbs_address_t *address,
                             int *error)
{
    struct ibv_ah_attr attr = describe_route(verbs, address);

    errno = 0;
    struct ibv_ah *route = ibv_create_ah(verbs->pd, &attr);
    *error = route == NULL ? regx_last_error() : 0;
    return route;
}

struct ibv_qp *regx_qp_make(const regx_verbs_t *verbs, uint32_t depth, uint32_t inline_max,
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

static uint32_t next_inline(uint32_t bytes)
{
    return bytes / 2 < INLINE_MIN ? 0 : bytes / 2;
}

/* What a request can carry itself differs between devices, also from what they report; so does how
 * many requests fit a queue. Only trying shows. It is tried once, at the start, when a lack of
 * memory cannot be taken for a limit of the device. */
regx_status_t regx_qp_probe(regx_verbs_t *verbs, char *error, size_t error_size)
{
    struct ibv_qp_init_attr attr;
    struct ibv_qp *qp = NULL;
    uint32_t depth = verbs->depth, inline_max = REGX_VERBS_INLINE;
    int cause = 0;

    while (qp == NULL && depth > 0) {
        qp = regx_qp_make(verbs, depth, inline_max, &attr);
        cause = qp == NULL ? regx_last_error() : 0;
        if (qp == NULL && inline_max > 0) {
            inline_max = next_inline(inline_max);
        } else if (qp == NULL) {
            depth = depth > DEPTH_MIN ? depth / 2 : 0;
            inline_max = REGX_VERBS_INLINE;
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
    verbs->depth = depth;
    verbs->inline_max = (uint32_t)regx_min(attr.cap.max_inline_data, REGX_VERBS_INLINE);
    ibv_destroy_qp(qp);
    return REGX_OK;
}

int regx_qp_to_init(const regx_verbs_t *verbs, struct ibv_qp *qp)
{
    const int atomics = verbs->fetches ? IBV_ACCESS_REMOTE_ATOMIC : 0;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .pkey_index = verbs->pkey_index,
        .port_num = verbs->port.number,
        .qp_access_flags = (unsigned)(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | atomics)};

    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int regx_qp_to_ready_to_receive(const regx_verbs_t *verbs, struct ibv_qp *qp,
                                const regx_cm_message_t *message)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu =
                                   (enum ibv_mtu)regx_min(verbs->address.mtu, message->address.mtu),
                               .dest_qp_num = message->qpn,
                               .rq_psn = message->psn,
                               .max_dest_rd_atomic = verbs->reads_answered,
                               .min_rnr_timer = RNR_TIMER,
                               .ah_attr = describe_route(verbs, &message->address)};

    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int regx_qp_to_ready_to_send(const regx_verbs_t *verbs, struct ibv_qp *qp, uint32_t psn,
                             uint8_t reads)
{
    const regx_verbs_settings_t *settings = &verbs->settings;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .sq_psn = psn,
                               .timeout = settings->timeout,
                               .retry_cnt = settings->retry_count,
                               .rnr_retry = settings->rnr_retry,
                               .max_rd_atomic = reads};

    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

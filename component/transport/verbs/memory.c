/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Registration of the application's memory. On demand nothing is pinned: the device asks the kernel
 * for pages as it needs them, and the kernel notifies it when they are replaced.
 */
#include "transport/verbs/memory.h"

#include <stdio.h>

#include "transport/verbs/verbs.h"

#define PREFETCH_MAX (1u << 30) /* bytes of one request */
#define SOFT_ROCE 0xffffffu     /* vendor of rdma_rxe */

static struct ibv_mr *reg_on_demand(regx_verbs_t *verbs, void *base, size_t length, int flags)
{
    /* At either end: what is only to be written here is to be read from elsewhere. */
    if (((flags & IBV_ACCESS_REMOTE_READ) != 0 || flags == IBV_ACCESS_LOCAL_WRITE) &&
        ((verbs->can.odp & IBV_ODP_SUPPORT_READ) == 0 || verbs->can.reads_made == 0 ||
         verbs->can.reads_answered == 0)) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    return (ibv_reg_mr)(verbs->pd, base, length, flags | IBV_ACCESS_ON_DEMAND);
}

regx_status_t regx_verbs_reg(regx_transport_t *transport, void *base, size_t length,
                             unsigned access, regx_mr_t *mr)
{
    regx_verbs_t *verbs = regx_verbs_of(transport);
    const bool on_demand = (access & REGX_ACCESS_ON_DEMAND) != 0;
    const int flags = regx_verbs_access(access);
    /* In parentheses: the function, whose macro of the same name converts signs. */
    struct ibv_mr *handle = on_demand ? reg_on_demand(verbs, base, length, flags)
                                      : (ibv_reg_mr)(verbs->pd, base, length, flags);

    if (handle == NULL) {
        return on_demand && errno == EOPNOTSUPP ? REGX_INVALID : regx_verbs_refusal(errno);
    }
    const regx_verbs_key_t key = {(uintptr_t)base, length, handle->rkey};
    *mr = (regx_mr_t){.base = base,
                      .length = length,
                      .access = access,
                      .key = regx_verbs_key_pack(&key),
                      .handle = handle};
    return REGX_OK;
}

void regx_verbs_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    (void)transport;
    ibv_dereg_mr(mr->handle);
}

/* Frames lie in the transport's own memory, which is pinned, so receiving need not be possible on
 * demand; what needs READ is refused by reg. Soft-RoCE forgets where in a page a packet begins
 * (seen in Linux 7.2). What begins where a page does, in packets of a page each, is right. */
regx_status_t regx_verbs_on_demand(regx_transport_t *transport, char *error, size_t error_size)
{
    regx_verbs_t *verbs = regx_verbs_of(transport);
    struct ibv_device_attr_ex attr = {0};

    if (ibv_query_device_ex(verbs->port.context, NULL, &attr) != 0 ||
        (attr.odp_caps.general_caps & IBV_ODP_SUPPORT) == 0) {
        snprintf(error, error_size, "%s, or its driver in this kernel, has no on-demand paging",
                 verbs->port.name);
        return REGX_DENIED;
    }
    verbs->can.odp = attr.odp_caps.per_transport_caps.rc_odp_caps;
    if ((verbs->can.odp & IBV_ODP_SUPPORT_WRITE) == 0) {
        snprintf(error, error_size,
                 "%s has on-demand paging, but not for RDMA WRITE over reliable connections",
                 verbs->port.name);
        return REGX_DENIED;
    }
    transport->on_demand_grain = verbs->port.device.vendor_id == SOFT_ROCE ? regx_page_size() : 1;
    if ((128u << verbs->address.mtu) < transport->on_demand_grain) {
        snprintf(error, error_size, "%s is Soft-RoCE, which errs on demand in packets of %u bytes",
                 verbs->port.name, 128u << verbs->address.mtu);
        return REGX_DENIED;
    }
    return REGX_OK;
}

regx_status_t regx_verbs_prefetch(regx_transport_t *transport, const regx_mr_t *mr,
                                  const void *base, size_t length)
{
    const struct ibv_mr *handle = mr->handle;
    const enum ib_uverbs_advise_mr_advice advice = (mr->access & REGX_ACCESS_ANY_WRITE) != 0
                                                       ? IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
                                                       : IBV_ADVISE_MR_ADVICE_PREFETCH;
    struct ibv_sge segment = {.addr = (uintptr_t)base, .lkey = handle->lkey};

    for (size_t left = length; left > 0; left -= segment.length) {
        segment.length = left < PREFETCH_MAX ? (uint32_t)left : PREFETCH_MAX;
        if (ibv_advise_mr(regx_verbs_of(transport)->pd, advice, 0, &segment, 1) != 0) {
            return REGX_DENIED;
        }
        segment.addr += segment.length;
    }
    return REGX_OK;
}

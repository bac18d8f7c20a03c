/* SPDX-License-Identifier: BSD-3-Clause */
#include "library/device.h"

#include <errno.h>

#include "transport/verbs/memory.h"

static regx_status_t device_reg(regx_transport_t *transport, void *base, size_t length,
                                unsigned access, regx_mr_t *mr)
{
    const regx_device_t *device = (const regx_device_t *)transport;
    /* In parentheses: the function, whose macro of the same name converts signs. */
    struct ibv_mr *handle = (ibv_reg_mr)(device->pd, base, length, regx_verbs_access(access));

    if (handle == NULL) {
        return regx_verbs_refusal(errno);
    }
    *mr = (regx_mr_t){.base = base, .length = length, .access = access, .handle = handle};
    return REGX_OK;
}

static void device_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    (void)transport;
    ibv_dereg_mr(mr->handle);
}

static const regx_transport_ops_t ops = {
    .abi = REGX_TRANSPORT_ABI, .name = "libibverbs", .reg = device_reg, .dereg = device_dereg};

int regx_device_init(regx_device_t *device, struct ibv_pd *pd)
{
    struct ibv_device_attr attr;
    const int error = ibv_query_device(pd->context, &attr);

    if (error != 0) {
        return error;
    }
    *device = (regx_device_t){.transport = {.ops = &ops,
                                            .wires = "",
                                            .registers = true,
                                            .mr_count = attr.max_mr > 0 ? (uint64_t)attr.max_mr : 0,
                                            .mr_bytes = attr.max_mr_size},
                              .pd = pd};
    return 0;
}

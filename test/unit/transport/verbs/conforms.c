/* SPDX-License-Identifier: BSD-3-Clause */
#include "conforms.h"

#include "../conformance.h"

#include "transport/verbs/ep.h"

extern const regx_transport_ops_t regx_transport_ops;

static bool is_ending(const regx_transport_t *transport)
{
    return !regx_list_empty(&((const regx_verbs_t *)transport)->ending);
}

/* The device drives the queue pair to error. */
static void cut(regx_transport_t *transport, uint64_t peer)
{
    const regx_ep_t *ep = regx_ep_find(regx_verbs_of(transport), peer);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    assert_non_null(ep);
    assert_int_equal(ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE), 0);
}

int conforms(const char *name, void (*reset)(void))
{
    const conformance_t verbs = {.name = name,
                                 .ops = &regx_transport_ops,
                                 .reset = reset,
                                 .is_ending = is_ending,
                                 .cut = cut};

    return conformance_run(&verbs);
}

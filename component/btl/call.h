/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A put, a get or an atomic operation requested by Open MPI, with its completion callback.
 */
#ifndef REGX_BTL_CALL_H
#define REGX_BTL_CALL_H

#include "btl/types.h"
#include "compat/compat.h"

typedef struct regx_call {
    mca_btl_base_module_t *btl;
    regx_endpoint_t *endpoint; /* NULL: some of this process's own memory (osc/rdma) */
    void *local_address;
    size_t size; /* bytes; 0: an atomic operation */
    mca_btl_base_registration_handle_t *local_handle;
    mca_btl_base_rdma_completion_fn_t callback;
    void *context, *data;
} regx_call_t;

/* Calls Open MPI's completion callback. To be called exactly once. */
static inline void regx_call_complete(const regx_call_t *call, int status)
{
    call->callback(call->btl, call->endpoint, call->local_address, call->local_handle,
                   call->context, call->data, status);
}

#endif

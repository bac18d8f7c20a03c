/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How ob1's put protocol becomes a rendezvous: the registration handle is the CTS.
 *
 * ob1 registers at the receiver for REMOTE_WRITE and ships the handle by value in its PUT header;
 * at the sender it registers with no flags and puts; after the put's callback it sends FIN, and
 * the receiver deregisters and takes the data as arrived. Rules that ob1 does not state, found by
 * trying: no handle for a grant may be NULL (the job would hang); a put answers OPAL_SUCCESS and
 * reports everything through its callback, exactly once; of a put that failed ob1 tells nobody (the
 * job would hang): what cannot be mended here ends the job.
 */
#include "btl/rdma.h"

#include <stdlib.h>

#include "btl/lost.h"

/* The first bytes are what ob1 ships. */
struct mca_btl_base_registration_handle_t {
    uint8_t cts[REGX_CTS_SIZE];
};

/* For senders: local memory is registered chunk by chunk, when it is put. */
static mca_btl_base_registration_handle_t local_token;

static regx_module_t *module_of(mca_btl_base_module_t *btl)
{
    return (regx_module_t *)btl;
}

mca_btl_base_registration_handle_t *regx_register_mem(mca_btl_base_module_t *btl,
                                                      struct mca_btl_base_endpoint_t *endpoint,
                                                      void *base, size_t size, uint32_t flags)
{
    if (flags == 0) {
        return &local_token;
    }
    if (flags != MCA_BTL_REG_FLAG_REMOTE_WRITE || endpoint == NULL ||
        endpoint == MCA_BTL_ENDPOINT_ANY) {
        return NULL; /* not a rendezvous; ob1 and osc then do without */
    }
    regx_rndv_recv_t *recv = regx_rndv_recv_open(module_of(btl)->rndv, &endpoint->peer, base, size);
    if (recv == NULL) {
        regx_module_lost(module_of(btl), endpoint, size, "from", "out of memory");
    }
    return (mca_btl_base_registration_handle_t *)recv;
}

int regx_deregister_mem(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *handle)
{
    if (handle != &local_token) {
        regx_rndv_recv_close(module_of(btl)->rndv, (regx_rndv_recv_t *)handle);
    }
    return OPAL_SUCCESS;
}

typedef struct regx_put_call { /* what ob1 wants to hear */
    mca_btl_base_module_t *btl;
    struct mca_btl_base_endpoint_t *endpoint;
    void *local_address;
    size_t size;
    mca_btl_base_registration_handle_t *local_handle;
    mca_btl_base_rdma_completion_fn_t callback;
    void *context, *data;
} regx_put_call_t;

static const char *reason(regx_status_t status)
{
    switch (status) {
    case REGX_NO_MEMORY:
        return "out of memory";
    case REGX_INVALID:
        return "its grant is malformed";
    default:
        return "the transport cannot carry them";
    }
}

static void put_done(void *context, regx_status_t status)
{
    const regx_put_call_t call = *(regx_put_call_t *)context;

    free(context);
    if (!regx_is_heard(module_of(call.btl), call.endpoint)) {
        return;
    }
    if (status != REGX_OK && status != REGX_UNREACHABLE) { /* of the latter the transport tells */
        regx_module_lost(module_of(call.btl), call.endpoint, call.size, "to", reason(status));
    }
    /* Not OUT_OF_RESOURCE: ob1 would both queue and free its fragment. */
    call.callback(call.btl, call.endpoint, call.local_address, call.local_handle, call.context,
                  call.data, status == REGX_OK ? OPAL_SUCCESS : OPAL_ERROR);
}

int regx_put(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
             void *local_address, uint64_t remote_address,
             mca_btl_base_registration_handle_t *local_handle,
             mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
             mca_btl_base_rdma_completion_fn_t callback, void *context, void *data)
{
    regx_put_call_t *call = malloc(sizeof(*call));

    (void)remote_address, (void)flags, (void)order;
    if (call == NULL) {
        regx_module_lost(module_of(btl), endpoint, size, "to", reason(REGX_NO_MEMORY));
        callback(btl, endpoint, local_address, local_handle, context, data, OPAL_ERROR);
        return OPAL_SUCCESS;
    }
    *call = (regx_put_call_t){btl,          endpoint, local_address, size,
                              local_handle, callback, context,       data};
    regx_rndv_send_open(module_of(btl)->rndv, &endpoint->peer, local_address, size,
                        remote_handle->cts, put_done, call);
    return OPAL_SUCCESS;
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How ob1's put and get protocols become a rendezvous: the registration handle is the CTS, or the
 * exposure (rendezvous/exposed.c).
 *
 * Put. ob1 registers at the receiver for REMOTE_WRITE and ships the handle by value in its PUT
 * header; at the sender it registers with no flags and puts; after the put's callback it sends FIN,
 * and the receiver deregisters and takes the data as arrived.
 *
 * Get. Before its first header ob1 registers at the sender for REMOTE_READ. If there is a handle
 * the header is RGET and has it by value. The receiver's ob1 then registers for LOCAL_WRITE and
 * REMOTE_WRITE, which opens the receive side, and gets; after the get's callback it deregisters and
 * sends FIN. If the callback gets NOT_AVAILABLE, ob1 ships the receiver's handle in a PUT header,
 * and all goes on as by put. The sender then has both handles; the exposure ends with the send.
 *
 * Rules that ob1 does not state, found by trying or by reading: no handle for a grant may be NULL
 * (the job would hang); a put and a get answer OPAL_SUCCESS and report everything through their
 * callback, exactly once (what a get returns, ob1 takes for a lack of resources and tries again
 * later); of a put that failed ob1 tells no rank (the job would hang): what cannot be mended here
 * ends the job.
 */
#include "btl/rdma.h"

#include <stdlib.h>

/* ---- records of large messages in flight ---- */

#define RECORDS_KEPT 256u /* of a module; more go back to malloc */

/* The exposure at the sender, or the call that Open MPI's callback completes, at either end.
 * Records are reused, the newest first, since it is still in the CPU cache. malloc caches only
 * seven blocks of a size per thread, and a program with a window of messages needs more. */
typedef union regx_rdma_record {
    regx_rndv_exposure_t exposure;
    regx_call_t call;
    union regx_rdma_record *next; /* unused */
} regx_rdma_record_t;

/* Not initialised; NULL: no memory. */
static regx_rdma_record_t *record_take(regx_module_t *module)
{
    regx_lock(&module->lock);
    regx_rdma_record_t *record = module->unused_records;
    if (record != NULL) {
        module->unused_records = record->next;
        module->unused_record_count--;
    }
    regx_unlock(&module->lock);
    return record != NULL ? record : malloc(sizeof(*record));
}

static void record_return(regx_module_t *module, regx_rdma_record_t *record)
{
    regx_lock(&module->lock);
    const bool keep = module->unused_record_count < RECORDS_KEPT;
    if (keep) {
        record->next = module->unused_records;
        module->unused_records = record;
        module->unused_record_count++;
    }
    regx_unlock(&module->lock);
    if (!keep) {
        free(record);
    }
}

void regx_rdma_records_free(regx_module_t *module)
{
    while (module->unused_records != NULL) {
        free(record_take(module));
    }
}

/* ---- ob1's calls ---- */

/* For senders: local memory is registered chunk by chunk, when it is put. */
static mca_btl_base_registration_handle_t local_token;

static regx_module_t *module_of(mca_btl_base_module_t *btl)
{
    return (regx_module_t *)btl;
}

/* NULL: ob1 goes by put. */
static mca_btl_base_registration_handle_t *
expose(regx_module_t *module, const regx_endpoint_t *endpoint, const void *base, size_t size)
{
    regx_rdma_record_t *record;

    regx_eager_note(&module->eager, size, REGX_EAGER_RENDEZVOUS, endpoint->peer.conn->single_copy,
                    module->rounds);
    record = record_take(module);
    if (record == NULL) {
        return NULL;
    }
    if (!regx_rndv_expose(module->rndv, &endpoint->peer, base, size, &record->exposure)) {
        record_return(module, record);
        return NULL;
    }
    regx_trace(module->trace, REGX_TRACE_PATH, "%zu bytes to rank %u over %s may be read whole",
               size, (unsigned)endpoint->peer.id, endpoint->peer.conn->wire);
    return (mca_btl_base_registration_handle_t *)record;
}

static mca_btl_base_registration_handle_t *
open_receive(regx_module_t *module, regx_endpoint_t *endpoint, void *base, size_t size)
{
    regx_rndv_recv_t *recv = regx_rndv_recv_open(module->rndv, &endpoint->peer, base, size);

    if (recv == NULL) {
        regx_module_lost(module, endpoint, size, "from", "out of memory");
    }
    return (mca_btl_base_registration_handle_t *)recv;
}

mca_btl_base_registration_handle_t *regx_register_mem(mca_btl_base_module_t *btl,
                                                      struct mca_btl_base_endpoint_t *endpoint,
                                                      void *base, size_t size, uint32_t flags)
{
    if (flags == 0) {
        return &local_token;
    }
    if (endpoint == MCA_BTL_ENDPOINT_ANY) {
        return regx_window_register(module_of(btl), base, size);
    }
    if (endpoint == NULL) {
        return NULL;
    }
    switch (flags) {
    case MCA_BTL_REG_FLAG_REMOTE_READ:
        return expose(module_of(btl), endpoint, base, size);
    case MCA_BTL_REG_FLAG_REMOTE_WRITE:                                /* for put */
    case MCA_BTL_REG_FLAG_REMOTE_WRITE | MCA_BTL_REG_FLAG_LOCAL_WRITE: /* for get */
        return open_receive(module_of(btl), endpoint, base, size);
    default:
        return NULL;
    }
}

int regx_deregister_mem(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *handle)
{
    if (handle == &local_token) {
        return OPAL_SUCCESS;
    }
    if (regx_onesided_name_is(handle->bytes)) {
        regx_window_deregister(module_of(btl), handle);
    } else if (regx_exposure_is(handle->bytes)) {
        regx_rdma_record_t *record = (regx_rdma_record_t *)handle;

        regx_rndv_unexpose(module_of(btl)->rndv, &record->exposure);
        record_return(module_of(btl), record);
    } else {
        regx_rndv_recv_close(module_of(btl)->rndv, (regx_rndv_recv_t *)handle);
    }
    return OPAL_SUCCESS;
}

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

/* Keeps the call until it ends. NULL: no memory. */
static regx_rdma_record_t *keep(const regx_call_t *call)
{
    regx_rdma_record_t *record = record_take(module_of(call->btl));

    if (record != NULL) {
        record->call = *call;
    }
    return record;
}

/* What keep has kept. */
static regx_call_t take_back(regx_rdma_record_t *record)
{
    const regx_call_t call = record->call;

    record_return(module_of(call.btl), record);
    return call;
}

static void put_done(void *context, regx_status_t status)
{
    const regx_call_t call = take_back(context);

    if (!regx_endpoint_expects_callbacks(module_of(call.btl), call.endpoint)) {
        return;
    }
    if (status != REGX_OK && status != REGX_UNREACHABLE) { /* the transport reports the latter */
        regx_module_lost(module_of(call.btl), call.endpoint, call.size, "to", reason(status));
    }
    /* Not OUT_OF_RESOURCE: ob1 would both queue and free its fragment. */
    regx_call_complete(&call, status == REGX_OK ? OPAL_SUCCESS : OPAL_ERROR);
}

int regx_put(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
             void *local_address, uint64_t remote_address,
             mca_btl_base_registration_handle_t *local_handle,
             mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
             mca_btl_base_rdma_completion_fn_t callback, void *context, void *data)
{
    const regx_call_t call = {btl,          endpoint, local_address, size,
                              local_handle, callback, context,       data};

    (void)flags, (void)order;
    if (regx_is_of_window(remote_handle)) {
        return regx_window_put(&call, remote_address, remote_handle);
    }
    regx_rdma_record_t *kept = keep(&call);
    if (kept == NULL) {
        regx_module_lost(module_of(btl), endpoint, size, "to", reason(REGX_NO_MEMORY));
        regx_call_complete(&call, OPAL_ERROR);
        return OPAL_SUCCESS;
    }
    regx_rndv_send_open(module_of(btl)->rndv, &endpoint->peer, local_address, size,
                        remote_handle->bytes, put_done, kept);
    return OPAL_SUCCESS;
}

static void get_done(void *context, regx_status_t status)
{
    const regx_call_t call = take_back(context);

    if (regx_endpoint_expects_callbacks(module_of(call.btl), call.endpoint)) {
        regx_call_complete(&call, status == REGX_OK ? OPAL_SUCCESS : OPAL_ERR_NOT_AVAILABLE);
    }
}

int regx_get(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
             void *local_address, uint64_t remote_address,
             mca_btl_base_registration_handle_t *local_handle,
             mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
             mca_btl_base_rdma_completion_fn_t callback, void *context, void *data)
{
    const regx_call_t call = {btl,          endpoint, local_address, size,
                              local_handle, callback, context,       data};

    (void)flags, (void)order;
    if (regx_is_of_window(remote_handle)) {
        return regx_window_get(&call, remote_address, remote_handle);
    }
    regx_rdma_record_t *kept = keep(&call);
    if (kept == NULL) {
        /* If this get fails, ob1 asks for a put by a message, for which there is no
         * memory either: 5.0 then tries the get again, from within this call, without end. */
        regx_module_lost(module_of(btl), endpoint, size, "from", reason(REGX_NO_MEMORY));
        regx_call_complete(&call, OPAL_ERROR);
        return OPAL_SUCCESS;
    }
    regx_rndv_recv_get(module_of(btl)->rndv, (regx_rndv_recv_t *)local_handle, remote_handle->bytes,
                       get_done, kept);
    return OPAL_SUCCESS;
}

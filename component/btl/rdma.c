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
 * REMOTE_WRITE, which opens the receive side, and gets; in the get's callback it sends FIN, and it
 * deregisters when the request is complete. If the callback gets NOT_AVAILABLE, ob1 ships the
 * receiver's handle in a PUT header, and all goes on as by put. The sender then has both handles;
 * the exposure ends with the send. If it gets another error, ob1 has the message sent in fragments, and
 * copies them itself: where the receive buffer cannot be written, or is shorter than the message.
 *
 * Rules that ob1 does not state, found by trying or by reading:
 *   - A handle for a grant is never NULL: the job would hang.
 *   - put and get always return OPAL_SUCCESS, and report every error by their callback, once. ob1
 *     takes whatever else get returns for a lack of resources, and tries again.
 *   - Of a put that failed ob1 tells no rank: the job would hang. So what cannot be mended here ends
 *     it.
 */
#include "btl/module.h"

#include "rendezvous/buffer.h"

/* ---- records of large messages in flight ---- */

/* The exposure at the sender, or the call that Open MPI's callback completes, at either end. It
 * is stored in a fragment because fragments are recycled: glibc's malloc caches only seven blocks of
 * each size per thread, and a program with a window of messages needs more. */
typedef struct record {
    union { /* first: an exposure is Open MPI's handle */
        regx_rndv_exposure_t exposure;
        regx_call_t call;
    };
    regx_fragment_t *fragment;
} record_t;

/* NULL: no memory. */
static record_t *record_take(regx_module_t *module, regx_endpoint_t *endpoint)
{
    regx_fragment_t *fragment = regx_fragment_take(module, endpoint, sizeof(record_t), 0);

    if (fragment == NULL) {
        return NULL;
    }
    record_t *record = fragment->segment.seg_addr.pval;
    record->fragment = fragment;
    return record;
}

/* ---- ob1's calls ---- */

/* For senders: local memory is registered chunk by chunk, when it is put. */
static mca_btl_base_registration_handle_t local_token = {.kind = REGX_HANDLE_LOCAL};

mca_btl_base_registration_handle_t *regx_btl_register_mem(mca_btl_base_module_t *btl,
                                                          struct mca_btl_base_endpoint_t *endpoint,
                                                          void *base, size_t size, uint32_t flags)
{
    regx_module_t *module = regx_module_of(btl);
    const bool to_get = flags == (MCA_BTL_REG_FLAG_REMOTE_WRITE | MCA_BTL_REG_FLAG_LOCAL_WRITE);

    if (flags == 0) {
        return &local_token;
    }
    if (endpoint == MCA_BTL_ENDPOINT_ANY) {
        return regx_window_register(module, base, size);
    }
    if (endpoint == NULL) {
        return NULL;
    }
    if (flags == MCA_BTL_REG_FLAG_REMOTE_READ) { /* NULL: ob1 goes by put */
        regx_endpoint_note(module, endpoint, size, REGX_EAGER_RENDEZVOUS);
        record_t *record = record_take(module, endpoint);
        if (record != NULL &&
            !regx_rndv_expose(module->rndv, &endpoint->peer, base, size, &record->exposure)) {
            regx_fragment_return(module, record->fragment);
            return NULL;
        }
        return (mca_btl_base_registration_handle_t *)record;
    }
    if (to_get || flags == MCA_BTL_REG_FLAG_REMOTE_WRITE) { /* the latter for put */
        regx_rndv_recv_t *recv =
            regx_rndv_recv_open(module->rndv, &endpoint->peer, base, size, to_get);
        if (recv == NULL) {
            regx_module_lost(module, endpoint, size, "from", "out of memory");
        }
        return (mca_btl_base_registration_handle_t *)recv;
    }
    return NULL;
}

int regx_btl_deregister_mem(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *handle)
{
    regx_module_t *module = regx_module_of(btl);
    record_t *record = (record_t *)handle; /* of an exposure */

    switch (handle->kind) {
    case REGX_HANDLE_LOCAL:
        break;
    case REGX_ONESIDED_NAME:
        regx_window_deregister(module, handle);
        break;
    case REGX_EXPOSURE:
        regx_rndv_unexpose(module->rndv, &record->exposure);
        regx_fragment_return(module, record->fragment);
        break;
    default:
        regx_rndv_recv_close(module->rndv, (regx_rndv_recv_t *)handle);
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

/* What was kept of the call until it ended. */
static regx_call_t take_back(record_t *record)
{
    const regx_call_t call = record->call;

    regx_fragment_return(regx_module_of(call.btl), record->fragment);
    return call;
}

/* Inside progress, or inside put or get. */
static void complete(const regx_call_t *call, int status)
{
    const uintptr_t outer = regx_callback_begin();

    regx_call_complete(call, status);
    regx_callback_end(outer);
}

static void send_ended(void *context, regx_status_t status)
{
    const regx_call_t call = take_back(context);

    if (!regx_endpoint_expects_callbacks(regx_module_of(call.btl), call.endpoint)) {
        return;
    }
    if (status == REGX_DENIED) { /* a part of the buffer could not be read */
        char lacks[REGX_BUFFER_LACKS], why[64 + sizeof(lacks)];

        snprintf(why, sizeof(why), "a part of the send buffer at %p is %s", call.local_address,
                 regx_buffer_lacks(call.local_address, call.size, false, lacks));
        regx_module_lost(regx_module_of(call.btl), call.endpoint, call.size, "to", why);
    } else if (status != REGX_OK && status != REGX_UNREACHABLE) { /* that the transport reports */
        regx_module_lost(regx_module_of(call.btl), call.endpoint, call.size, "to", reason(status));
    }
    if (!regx_endpoint_expects_callbacks(regx_module_of(call.btl), call.endpoint)) {
        return; /* it was lost */
    }
    /* Not OUT_OF_RESOURCE: ob1 would both queue and free its fragment. */
    complete(&call, status == REGX_OK ? OPAL_SUCCESS : OPAL_ERROR);
}

static void receive_ended(void *context, regx_status_t status)
{
    const regx_call_t call = take_back(context);
    const int failed = status == REGX_FAILED ? OPAL_ERROR : OPAL_ERR_NOT_AVAILABLE;

    if (regx_endpoint_expects_callbacks(regx_module_of(call.btl), call.endpoint)) {
        complete(&call, status == REGX_OK ? OPAL_SUCCESS : failed);
    }
}

/* Keeps the call until it ends. If there is no memory the job ends: if a get fails, ob1 asks for a
 * put by a message, for which there is no memory either, and 5.0 then tries the get again, from
 * within this call, without end. */
static record_t *keep(const regx_call_t *call, const char *direction)
{
    record_t *record = record_take(regx_module_of(call->btl), call->endpoint);

    if (record == NULL) {
        regx_module_lost(regx_module_of(call->btl), call->endpoint, call->size, direction,
                         reason(REGX_NO_MEMORY));
        regx_call_complete(call, OPAL_ERROR);
        return NULL;
    }
    record->call = *call;
    return record;
}

/* A put or a get, as btl.h has them. */
static int begin(const regx_call_t *call, regx_onesided_type_t type, uint64_t remote_address,
                 const mca_btl_base_registration_handle_t *remote_handle)
{
    const bool puts = type == REGX_ONESIDED_PUT;
    regx_rndv_t *rndv = regx_module_of(call->btl)->rndv;

    /* NULL: osc/rdma's, of this process's memory. */
    if (remote_handle == NULL || remote_handle->kind == REGX_ONESIDED_NAME) {
        return regx_window_move(call, type, remote_address, remote_handle);
    }
    record_t *kept = keep(call, puts ? "to" : "from");
    if (kept != NULL && puts) {
        regx_rndv_send_open(rndv, &call->endpoint->peer, call->local_address, call->size,
                            remote_handle->bytes, send_ended, kept);
    } else if (kept != NULL) {
        regx_rndv_recv_get(rndv, (regx_rndv_recv_t *)call->local_handle, remote_handle->bytes,
                           receive_ended, kept);
    }
    return OPAL_SUCCESS;
}

int regx_btl_put(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                 void *local_address, uint64_t remote_address,
                 mca_btl_base_registration_handle_t *local_handle,
                 mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags,
                 int order, mca_btl_base_rdma_completion_fn_t callback, void *context, void *data)
{
    (void)flags, (void)order;
    return begin(&(const regx_call_t){btl, endpoint, local_address, size, local_handle, callback,
                                      context, data},
                 REGX_ONESIDED_PUT, remote_address, remote_handle);
}

int regx_btl_get(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                 void *local_address, uint64_t remote_address,
                 mca_btl_base_registration_handle_t *local_handle,
                 mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags,
                 int order, mca_btl_base_rdma_completion_fn_t callback, void *context, void *data)
{
    (void)flags, (void)order;
    return begin(&(const regx_call_t){btl, endpoint, local_address, size, local_handle, callback,
                                      context, data},
                 REGX_ONESIDED_GET, remote_address, remote_handle);
}

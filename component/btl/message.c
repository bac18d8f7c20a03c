/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/module.h"

#include <assert.h>

#include "base/copy.h"
#include "opal/datatype/opal_convertor.h"

static mca_btl_base_descriptor_t *describe(regx_fragment_t *fragment, uint8_t order, uint32_t flags)
{
    fragment->base.des_flags = flags;
    fragment->base.order = order;
    fragment->base.des_cbfunc = NULL;
    return &fragment->base;
}

/* Where in its cache line a header is to begin. `length` bytes of the convertor's follow it; they are to lie
 * in their line as they do in the user's buffer. */
static size_t skew_of(const opal_convertor_t *convertor, size_t header, size_t length)
{
    void *data = NULL;

    if (length <= REGX_COPY_PIECE) {
        return 0;
    }
    if (opal_convertor_need_buffers(convertor) == 0) {
        opal_convertor_get_current_pointer(convertor, &data);
    }
    return regx_copy_skew(data, header);
}

static mca_btl_base_descriptor_t *alloc(regx_module_t *module, regx_endpoint_t *endpoint,
                                        uint8_t order, size_t size, size_t skew, uint32_t flags)
{
    regx_fragment_t *fragment = regx_fragment_take(module, endpoint, size, skew);

    if (fragment == NULL) {
        return NULL;
    }
    if (fragment->segment.seg_len < size) { /* more than an eager message: it may be refused */
        regx_fragment_return(module, fragment);
        return NULL;
    }
    return describe(fragment, order, flags);
}

mca_btl_base_descriptor_t *regx_btl_alloc(mca_btl_base_module_t *btl, regx_endpoint_t *endpoint,
                                          uint8_t order, size_t size, uint32_t flags)
{
    return alloc(regx_module_of(btl), endpoint, order, size, 0, flags);
}

int regx_btl_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *descriptor)
{
    regx_fragment_return(regx_module_of(btl), (regx_fragment_t *)descriptor);
    return OPAL_SUCCESS;
}

/* A regx_pack_t: the next bytes that the convertor gives. */
static void pack_converted(void *context, void *to, size_t length)
{
    opal_convertor_t *convertor = context;
    struct iovec iov = {.iov_base = to, .iov_len = length};
    uint32_t count = 1;
    size_t packed = length;

    opal_convertor_pack(convertor, &iov, &count, &packed);
}

mca_btl_base_descriptor_t *regx_btl_prepare_src(mca_btl_base_module_t *btl,
                                                regx_endpoint_t *endpoint,
                                                struct opal_convertor_t *convertor, uint8_t order,
                                                size_t reserve, size_t *size, uint32_t flags)
{
    regx_module_t *module = regx_module_of(btl);
    /* ob1 sets PRIORITY for the first fragment of a message only. */
    const bool is_later = (flags & MCA_BTL_DES_FLAGS_PRIORITY) == 0;
    const bool contiguous_first = !is_later && opal_convertor_need_buffers(convertor) == 0;
    size_t length = regx_min(*size, btl->btl_max_send_size - reserve);
    size_t message;

    opal_convertor_get_packed_size(convertor, &message);
    /* NULL makes ob1 keep the request and ask again from its own progress. This is not done in a job
     * with threads, where its effect was not measured. */
    if (is_later && !module->threads &&
        regx_fragment_must_wait(module, endpoint, reserve + length, message)) {
        return NULL;
    }
    if (contiguous_first && length < message) {
        /* It goes with an RTS. Open MPI has one limit for these bytes and for data that must be packed,
         * which travels in fragments anyway. */
        length = module->params->rts_contiguous ? length : 0;
    } else if (regx_eager_is_lowered(&module->eager, reserve + message)) {
        /* Only non-contiguous messages and those of MPI_Bsend come here. */
        regx_endpoint_note(module, endpoint, message, REGX_EAGER_SEND);
        length = is_later ? length : message; /* the rest would go in fragments, after an answer */
    } else if (contiguous_first) {
        regx_endpoint_note(module, endpoint, message, REGX_EAGER_SEND); /* MPI_Ssend's */
    }
    if (is_later) { /* it goes in fragments, without a CTS */
        regx_rndv_unexpect(module->rndv, &endpoint->peer);
    }
    regx_fragment_t *fragment =
        regx_fragment_take(module, endpoint, reserve + length, skew_of(convertor, reserve, length));
    if (fragment == NULL) {
        return NULL;
    }
    if (!is_later && fragment->segment.seg_len < reserve + length) { /* the whole message */
        regx_fragment_return(module, fragment);
        return NULL;
    }
    length = fragment->segment.seg_len - reserve;
    struct iovec iov = {.iov_base = (char *)fragment->segment.seg_addr.pval + reserve,
                        .iov_len = length};
    uint32_t count = 1;
    if (length > 0 && opal_convertor_pack(convertor, &iov, &count, &length) < 0) {
        regx_fragment_return(module, fragment);
        return NULL;
    }
    fragment->segment.seg_len = reserve + length;
    *size = length;
    return describe(fragment, order, flags);
}

/* The peer has read so many bytes of the pool, or never will. */
static void zcopy_was_read(regx_endpoint_t *endpoint, size_t length)
{
    assert(endpoint->zcopy_bytes >= length);
    atomic_fetch_sub(&endpoint->zcopy_bytes, length);
}

static void zcopy_done(regx_zcopy_t *zcopy, regx_status_t status);

/* Hands the fragment to the transport, and counts it if it was taken. REGX_PENDING: zcopy_done will be
 * called, perhaps on another thread before this returns. */
static regx_status_t try_to_send(regx_module_t *module, regx_fragment_t *fragment)
{
    regx_endpoint_t *endpoint = fragment->endpoint;
    regx_conn_t *conn = endpoint->peer.conn;
    const regx_transport_ops_t *ops = conn->transport->ops;
    const size_t length = fragment->segment.seg_len;
    const regx_path_t path = length <= module->eager.configured ? REGX_PATH_eager : REGX_PATH_frag;
    void *data = fragment->segment.seg_addr.pval;
    regx_status_t status;

    if (fragment->slot == REGX_SLOT_NONE) {
        status = ops->send(conn, fragment->tag, NULL, 0, NULL, data, length);
    } else {
        fragment->zcopy = (regx_zcopy_t){.data = data,
                                         .length = length,
                                         .tag = fragment->tag,
                                         .done = zcopy_done,
                                         .context = module};
        atomic_fetch_add(&endpoint->zcopy_bytes, length);
        status = ops->send_zcopy(conn, &fragment->zcopy);
        if (status != REGX_PENDING) {
            zcopy_was_read(endpoint, length);
        }
    }
    if (status == REGX_OK || status == REGX_PENDING) {
        regx_count_message(module->flow, path, REGX_WHY_eager, length);
    }
    return status;
}

/* The fragment was sent, or never will be. Calls Open MPI's callback if it asked for one. */
static void end_fragment(regx_module_t *module, regx_fragment_t *fragment, int status)
{
    const bool expects_callbacks = regx_endpoint_expects_callbacks(module, fragment->endpoint);
    const bool own = (fragment->base.des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0;

    if (expects_callbacks && (fragment->base.des_flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK) != 0 &&
        fragment->base.des_cbfunc != NULL) {
        fragment->base.des_cbfunc(&module->super, fragment->endpoint, &fragment->base, status);
    }
    if (own || !expects_callbacks) {
        regx_fragment_return(module, fragment);
    }
}

/* The same from inside progress, where Open MPI's callback must not call progress again. */
static void end_waiting(regx_module_t *module, regx_fragment_t *fragment, int status)
{
    const uintptr_t outer = regx_callback_begin();

    end_fragment(module, fragment, status);
    regx_callback_end(outer);
}

static void zcopy_done(regx_zcopy_t *zcopy, regx_status_t status)
{
    regx_fragment_t *fragment = REGX_CONTAINER_OF(zcopy, regx_fragment_t, zcopy);
    regx_module_t *module = zcopy->context;

    zcopy_was_read(fragment->endpoint, zcopy->length);
    end_waiting(module, fragment, status == REGX_OK ? OPAL_SUCCESS : OPAL_ERROR);
}

static void enqueue(regx_module_t *module, regx_fragment_t *fragment)
{
    regx_endpoint_t *endpoint = fragment->endpoint;

    fragment->base.des_flags |= MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
    fragment->next = NULL;
    regx_lock(&module->lock);
    if (endpoint->queue == NULL) {
        endpoint->queue = fragment;
        regx_list_append(&module->blocked, &endpoint->blocked);
    } else {
        endpoint->queue_end->next = fragment;
    }
    endpoint->queue_end = fragment;
    regx_unlock(&module->lock);
    atomic_fetch_add(&module->due.queued, 1);
}

int regx_btl_send(mca_btl_base_module_t *btl, regx_endpoint_t *endpoint,
                  mca_btl_base_descriptor_t *descriptor, mca_btl_base_tag_t tag)
{
    regx_module_t *module = regx_module_of(btl);
    regx_fragment_t *fragment = (regx_fragment_t *)descriptor;
    regx_status_t status = REGX_AGAIN;

    fragment->endpoint = endpoint;
    fragment->tag = tag;
    const uint32_t flags = descriptor->des_flags;
    descriptor->des_flags |= MCA_BTL_DES_SEND_ALWAYS_CALLBACK; /* unless it leaves at once */
    if (!regx_endpoint_is_blocked(endpoint)) {
        status = try_to_send(module, fragment);
    }
    switch (status) {
    case REGX_OK:
        descriptor->des_flags = flags;
        end_fragment(module, fragment, OPAL_SUCCESS);
        return 1; /* gone: Open MPI needs no callback that it did not ask for */
    case REGX_PENDING:
        return OPAL_SUCCESS;
    default: /* no room, or no way to this peer, which the transport is about to report */
        enqueue(module, fragment);
        return OPAL_SUCCESS;
    }
}

/* For what regx_btl_sendi could not send: Open MPI fills it and calls regx_btl_send, which queues. */
static __attribute__((noinline)) mca_btl_base_descriptor_t *
alloc_unsent(regx_module_t *module, regx_endpoint_t *endpoint, const opal_convertor_t *convertor,
             size_t header_size, size_t payload_size, uint8_t order, uint32_t flags)
{
    return alloc(module, endpoint, order, header_size + payload_size,
                 skew_of(convertor, header_size, payload_size), flags);
}

int regx_btl_sendi(mca_btl_base_module_t *btl, regx_endpoint_t *endpoint,
                   struct opal_convertor_t *convertor, void *header, size_t header_size,
                   size_t payload_size, uint8_t order, uint32_t flags, mca_btl_base_tag_t tag,
                   mca_btl_base_descriptor_t **descriptor)
{
    regx_module_t *module = regx_module_of(btl);
    regx_conn_t *conn = endpoint->peer.conn;
    regx_status_t status = REGX_AGAIN;
    regx_pack_t pack = NULL;
    void *payload = NULL;

    if (payload_size > 0 && opal_convertor_need_buffers(convertor) == 0) {
        opal_convertor_get_current_pointer(convertor, &payload);
    } else if (payload_size > 0) {
        pack = pack_converted;
        payload = convertor;
    }
    if (!regx_endpoint_is_blocked(endpoint)) {
        status =
            conn->transport->ops->send(conn, tag, header, header_size, pack, payload, payload_size);
    }
    if (payload_size > REGX_EAGER_MIN && opal_convertor_need_buffers(convertor) == 0) {
        regx_endpoint_note(module, endpoint, payload_size, REGX_EAGER_SEND);
    }
    if (status != REGX_OK) { /* there was no room */
        if (descriptor != NULL) {
            *descriptor =
                alloc_unsent(module, endpoint, convertor, header_size, payload_size, order, flags);
        }
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    regx_count_message(module->flow, REGX_PATH_eager, REGX_WHY_eager, header_size + payload_size);
    return OPAL_SUCCESS;
}

/* Takes the oldest fragment that waits; from progress only. */
static void take_front(regx_module_t *module, regx_endpoint_t *endpoint)
{
    regx_lock(&module->lock);
    assert(endpoint->queue != NULL && regx_list_has(&endpoint->blocked));
    endpoint->queue = endpoint->queue->next;
    if (endpoint->queue == NULL) {
        regx_list_remove(&endpoint->blocked);
    }
    regx_unlock(&module->lock);
    atomic_fetch_sub(&module->due.queued, 1);
}

static regx_endpoint_t *blocked_of(regx_link_t *link)
{
    return REGX_CONTAINER_OF(link, regx_endpoint_t, blocked);
}

int regx_btl_send_queued(regx_module_t *module)
{
    regx_endpoint_t *endpoint = NULL, *last = NULL;
    regx_fragment_t *fragment;
    int sent = 0;

    regx_lock(&module->lock);
    if (!regx_list_empty(&module->blocked)) {
        last = blocked_of(module->blocked.previous);
    }
    regx_unlock(&module->lock);
    while (endpoint != last) {
        /* The first for which something waits; the next time it is the last. */
        regx_lock(&module->lock);
        endpoint = blocked_of(module->blocked.next);
        regx_list_remove(&endpoint->blocked);
        regx_list_append(&module->blocked, &endpoint->blocked);
        regx_unlock(&module->lock);
        /* Sends what waits there, in order, until there is no room again; take_front takes the endpoint
         * out of the list if nothing is left. */
        while ((fragment = endpoint->queue) != NULL) {
            /* The end of a zero-copy send comes through progress, that is, after this: the fragment
             * stays valid. */
            const regx_status_t status = try_to_send(module, fragment);

            /* One that cannot reach its peer waits until the transport has reported why: Open MPI names
             * no reason for one that fails, and ends the job. */
            if (status == REGX_AGAIN ||
                (status == REGX_UNREACHABLE && regx_endpoint_expects_callbacks(module, endpoint) &&
                 !endpoint->lost)) {
                break;
            }
            take_front(module, endpoint);
            sent++;
            if (status != REGX_PENDING) {
                end_waiting(module, fragment, status == REGX_OK ? OPAL_SUCCESS : OPAL_ERR_UNREACH);
            }
        }
    }
    return sent;
}

void regx_fail_queued(regx_module_t *module, regx_endpoint_t *endpoint)
{
    regx_fragment_t *fragment;

    while ((fragment = endpoint->queue) != NULL) {
        take_front(module, endpoint);
        end_fragment(module, fragment, OPAL_ERR_UNREACH);
    }
}

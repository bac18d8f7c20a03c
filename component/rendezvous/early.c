/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a put needs before it is made: its record, and its memory registered. By the strategy `pipeline`,
 * over a device, the first chunk of a message is registered before its CTS comes.
 *
 * Nothing tells this layer of a message that Open MPI completes without a put. So what was registered
 * early may outlive the message, and must not serve another one, for which the same addresses may have
 * got other pages. The later message is announced first (regx_rndv_expect), and an early registration of
 * the same memory then ends.
 */
#include "rendezvous/send.h"

static regx_write_t *new_locked(regx_rndv_t *rndv)
{
    regx_write_t *write = regx_spares_take(&rndv->spares.writes);

    if (write == NULL && (write = malloc(sizeof(*write))) == NULL) {
        return NULL;
    }
    write->registered = false;
    return write;
}

static regx_status_t acquire(regx_rndv_t *rndv, regx_write_t *write)
{
    const regx_status_t status =
        regx_region_acquire(rndv->registry, (void *)(uintptr_t)write->put.local, write->put.length,
                            rndv->send_access, &write->region);

    write->registered = status == REGX_OK;
    return status;
}

void regx_rndv_unexpect(regx_rndv_t *rndv, const regx_peer_t *peer)
{
    regx_write_t *write = rndv->early.write;

    if (write == NULL || (peer != NULL && peer != rndv->early.peer)) {
        return;
    }
    rndv->early.write = NULL;
    if (write->registered) {
        regx_buffer_release(rndv, &write->region, false);
    }
    free(write);
}

/* Only for a peer whose last CTS was of the path pipeline, and for one message at a time: where more are
 * under way, the registrations of one are hidden behind the writes of others. */
void regx_rndv_expect(regx_rndv_t *rndv, const regx_peer_t *peer, const void *base, size_t length)
{
    const regx_registry_t *registry = rndv->registry;
    const size_t first = regx_min(length, rndv->config.chunk_size);
    const uintptr_t start = (uintptr_t)base;
    regx_write_t *write = rndv->early.write;

    if (rndv->config.strategy->path != REGX_PATH_pipeline || rndv->config.threads ||
        !registry->transport->registers || registry->on_demand) {
        return;
    }
    if (write != NULL && (uintptr_t)write->put.local < start + length &&
        start < (uintptr_t)write->put.local + write->put.length) {
        regx_rndv_unexpect(rndv, NULL);
    }
    if (rndv->early.write != NULL || !peer->chunked || first > registry->once_max / 4 ||
        regx_region_seems_kept(rndv->registry, base, first, rndv->send_access)) {
        return;
    }
    regx_lock(&rndv->lock);
    write = new_locked(rndv);
    regx_unlock(&rndv->lock);
    if (write == NULL) {
        return;
    }
    write->put.local = base;
    write->put.length = first;
    rndv->early.peer = peer;
    rndv->early.length = length;
    rndv->early.write = write;
    atomic_store_explicit(&rndv->work.retry_sends, true, memory_order_relaxed);
}

void regx_early_register(regx_rndv_t *rndv)
{
    regx_write_t *write = rndv->early.write;

    if (write != NULL && !write->registered && acquire(rndv, write) != REGX_OK) {
        /* The reason is counted when the CTS comes and the chunk is registered again. */
        regx_rndv_unexpect(rndv, NULL);
    }
}

regx_write_t *regx_write_take_locked(regx_rndv_send_t *send)
{
    regx_rndv_t *rndv = send->rndv;
    regx_write_t *write = rndv->early.write;
    const regx_grant_t *grant = regx_send_first_grant(send);

    if (write == NULL || rndv->early.peer != send->peer ||
        rndv->early.length != send->buffer.length || write->put.local != send->buffer.base ||
        !grant->chunk || grant->offset != 0) {
        return new_locked(rndv);
    }
    rndv->early.write = NULL;
    return write;
}

regx_status_t regx_write_register(regx_rndv_t *rndv, regx_write_t *write)
{
    const regx_put_t *put = &write->put;

    if (write->registered) { /* early, and perhaps less than was granted */
        const regx_mr_t *mr = write->region.mr;

        if (regx_within((uint64_t)((const char *)put->local - (const char *)mr->base), put->length,
                        mr->length)) {
            return REGX_OK;
        }
        regx_buffer_release(rndv, &write->region, false);
    }
    const regx_status_t status = acquire(rndv, write);
    if (status == REGX_OK) {
        return REGX_OK;
    }
    regx_buffer_refused(rndv, REGX_SENDER, status, &write->region, put->local, put->length);
    if (status == REGX_NO_MEMORY && !write->region.over_share &&
        put->length > rndv->config.chunk_size) {
        atomic_store(&rndv->whole_refused, true);
    }
    /* Not REGX_DENIED: that means the peer's memory, for good. Here one local chunk failed. */
    return status == REGX_DENIED ? REGX_FAILED : REGX_NO_MEMORY;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "onesided/device.h"

#include "base/util.h"
#include "onesided/state.h"

/* ---- windows ---- */

/* Over some devices an on-demand region is reached at the beginning of pages only. */
static bool is_reached_anywhere(const regx_registry_t *registry)
{
    return !registry->on_demand || registry->transport->on_demand_grain <= 1;
}

/* Whether osc/rdma may take the registration for other memory later. It registers whole pages for
 * what is attached to a dynamic window, and as long as something is attached there it attaches what
 * fits into these pages without telling the BTL: the program may have detached and replaced some of
 * them by then (ompi_osc_rdma_attach of Open MPI 4.1.4 and 5.0.7). */
static bool may_be_taken_again(const regx_window_t *window)
{
    return (((uintptr_t)window->base | window->length) & (regx_page_size() - 1)) == 0;
}

/* What peers may do, and this process, so that messages of all of the window's memory are served by
 * its registration: one that allows less would make way for theirs (reserve_locked of
 * registration/miss.c). An on-demand region is not for atomic operations, which few devices do
 * there. */
static unsigned access_of(const regx_registry_t *registry)
{
    return REGX_ACCESS_LOCAL | REGX_ACCESS_LOCAL_WRITE | REGX_ACCESS_REMOTE_WRITE |
           REGX_ACCESS_REMOTE_READ |
           (registry->transport->atomics && !registry->on_demand ? REGX_ACCESS_REMOTE_ATOMIC : 0);
}

static bool acquire_window(regx_registry_t *registry, regx_window_t *window)
{
    const unsigned access = access_of(registry),
                   fewer = access & ~(unsigned)REGX_ACCESS_REMOTE_ATOMIC;

    return regx_lasting_acquire(registry, window->base, window->length, access, &window->use) ==
               REGX_OK ||
           (fewer != access && regx_lasting_acquire(registry, window->base, window->length, fewer,
                                                    &window->use) == REGX_OK);
}

void regx_onesided_register(regx_onesided_t *onesided, regx_window_t *window)
{
    regx_registry_t *registry = onesided->config.registry;
    regx_counters_t *counters = onesided->config.counters;

    if (registry == NULL || registry->transport->silent_copied == 0 || window->length == 0) {
        return;
    }
    if (may_be_taken_again(window) && !registry->on_demand) {
        regx_tally(counters->fallbacks, "window: whole pages, perhaps attached: the target copies");
        return;
    }
    window->registered = is_reached_anywhere(registry) && acquire_window(registry, window);
    if (!window->registered) {
        regx_tally(counters->fallbacks, "window: cannot be registered, the target copies");
        return;
    }
    regx_count(counters, &counters->onesided_registered, window->length);
}

void regx_onesided_unregister(regx_onesided_t *onesided, regx_window_t *window)
{
    if (window->registered) {
        regx_lasting_release(onesided->config.registry, &window->use);
        window->registered = false;
    }
}

/* ---- operations ---- */

/* Counts it as open. false: there are too many. */
static bool open_request(regx_onesided_t *onesided, regx_onesided_peer_t *peer,
                         regx_onesided_request_t *request)
{
    request->onesided = onesided;
    request->peer = peer;
    request->registered = false;
    regx_list_init(&request->link);
    regx_lock(&onesided->lock);
    const bool opened = !regx_onesided_is_full_locked(onesided, request);
    if (opened) {
        onesided->pending++;
        regx_list_append(&peer->moving, &request->link);
    }
    regx_unlock(&onesided->lock);
    return opened;
}

/* As if it had not been opened. */
static void take_back(regx_onesided_request_t *request)
{
    regx_onesided_t *onesided = request->onesided;

    regx_lock(&onesided->lock);
    onesided->pending--;
    regx_list_remove(&request->link);
    regx_unlock(&onesided->lock);
}

static void release(regx_onesided_request_t *request)
{
    if (request->registered) {
        regx_region_release(request->onesided->config.registry, &request->region);
        request->registered = false;
    }
}

/* Of memory of this process that the device is to read or write. false: it cannot be registered. */
static bool acquire(regx_onesided_request_t *request)
{
    const unsigned access =
        request->type == REGX_ONESIDED_PUT ? REGX_ACCESS_LOCAL : REGX_ACCESS_LOCAL_WRITE;

    request->registered = regx_region_acquire(request->onesided->config.registry, request->local,
                                              request->length, access, &request->region) == REGX_OK;
    return request->registered;
}

/* The device has made it, or the connection is lost. */
static void moved(regx_onesided_request_t *request, regx_status_t status)
{
    regx_onesided_t *onesided = request->onesided;

    release(request);
    regx_lock(&onesided->lock);
    const bool forgotten = request->peer == NULL;
    request->status = status == REGX_OK ? REGX_OK : REGX_UNREACHABLE;
    regx_list_remove(&request->link);
    if (forgotten) {
        onesided->pending--;
    } else {
        regx_onesided_end_locked(onesided, request);
    }
    regx_unlock(&onesided->lock);
    if (forgotten) {
        request->done(request, REGX_UNREACHABLE);
    }
}

static void put_done(regx_put_t *put, regx_status_t status)
{
    moved(REGX_CONTAINER_OF(put, regx_onesided_request_t, transfer.put), status);
}

static void get_done(regx_get_t *get, regx_status_t status)
{
    moved(REGX_CONTAINER_OF(get, regx_onesided_request_t, transfer.get), status);
}

static void fetch_done(regx_fetch_t *fetch, regx_status_t status)
{
    regx_onesided_request_t *request =
        REGX_CONTAINER_OF(fetch, regx_onesided_request_t, transfer.fetch);

    request->result = fetch->result;
    moved(request, status);
}

static bool is_move(const regx_onesided_request_t *request)
{
    return request->type == REGX_ONESIDED_PUT || request->type == REGX_ONESIDED_GET;
}

/* Whether a device does it at all. */
static bool may_be_done(const regx_onesided_peer_t *peer, const regx_window_name_t *name,
                        const regx_onesided_request_t *request)
{
    const regx_transport_t *transport = peer->conn->transport;

    if (is_move(request)) {
        return name->has_key && transport->silent_copied > 0 && request->length > 0;
    }
    return name->has_atomics && transport->ops->fetch != NULL &&
           request->size == sizeof(uint64_t) &&
           (request->type == REGX_ONESIDED_SWAP || request->op == REGX_ATOMIC_ADD);
}

/* Whether memory of this process takes part that has to be registered. */
static bool needs_region(const regx_onesided_peer_t *peer, const regx_onesided_request_t *request)
{
    return is_move(request) && request->length > peer->conn->transport->silent_copied;
}

/* Asked before memory is registered, which would be for nothing, again and again. */
static bool is_accepted(const regx_onesided_peer_t *peer, const regx_onesided_request_t *request)
{
    return peer->conn->transport->ops->accepts(peer->conn, request->type == REGX_ONESIDED_PUT) !=
           REGX_AGAIN;
}

static regx_status_t hand_over(const regx_onesided_peer_t *peer, const regx_window_name_t *name,
                               regx_onesided_request_t *request)
{
    const regx_transport_ops_t *ops = peer->conn->transport->ops;
    const uint64_t offset = name->offset + (request->address - name->base);
    const regx_mr_t *region = request->registered ? request->region.mr : NULL;

    if (!is_move(request)) {
        request->transfer.fetch = (regx_fetch_t){.swaps = request->type == REGX_ONESIDED_SWAP,
                                                 .offset = offset,
                                                 .key = name->key,
                                                 .operand = request->operand,
                                                 .compare = request->compare,
                                                 .done = fetch_done};
        return ops->fetch(peer->conn, &request->transfer.fetch);
    }
    if (request->type == REGX_ONESIDED_GET) {
        request->transfer.get = (regx_get_t){.local = request->local,
                                             .length = request->length,
                                             .region = region,
                                             .offset = offset,
                                             .key = name->key,
                                             .done = get_done};
        return ops->get(peer->conn, &request->transfer.get);
    }
    request->transfer.put = (regx_put_t){.local = request->local,
                                         .length = request->length,
                                         .region = region,
                                         .target = REGX_TARGET_REGION,
                                         .offset = offset,
                                         .key = name->key,
                                         .silent = true,
                                         .done = put_done};
    return ops->put(peer->conn, &request->transfer.put);
}

regx_status_t regx_onesided_move(regx_onesided_t *onesided, regx_onesided_peer_t *peer,
                                 const regx_window_name_t *name, regx_onesided_request_t *request)
{
    const regx_onesided_type_t type = request->type;

    if (!may_be_done(peer, name, request)) {
        return REGX_DENIED;
    }
    if ((needs_region(peer, request) && !is_accepted(peer, request)) ||
        !open_request(onesided, peer, request)) {
        return REGX_AGAIN;
    }
    if (needs_region(peer, request) && !acquire(request) && type == REGX_ONESIDED_GET) {
        regx_tally(onesided->config.counters->fallbacks,
                   "window: a buffer cannot be registered, the target copies");
        take_back(request);
        return REGX_DENIED;
    }
    const regx_status_t status = hand_over(peer, name, request);
    if (status == REGX_PENDING) { /* it may be gone by now */
        regx_onesided_count(onesided, type);
        regx_count(onesided->config.counters, &onesided->config.counters->onesided_device, 1);
        return REGX_PENDING;
    }
    release(request);
    take_back(request);
    return status == REGX_AGAIN ? REGX_AGAIN : REGX_DENIED;
}

void regx_onesided_leave_moving_locked(regx_onesided_peer_t *peer)
{
    while (!regx_list_empty(&peer->moving)) {
        regx_onesided_request_t *request =
            REGX_CONTAINER_OF(peer->moving.next, regx_onesided_request_t, link);

        regx_list_remove(&request->link);
        request->peer = NULL;
    }
}

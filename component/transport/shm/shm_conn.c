/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Connections over shared memory: from the peer's address to the end.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "transport/shm/shm_internal.h"

/* Whether the kernel copies between the two processes. Why it refuses is tallied when a put or get
 * meets it, not here. */
static bool may_copy(const regx_shm_conn_t *conn)
{
    regx_vm_peer_t peer = conn->vm;
    char reason[REGX_REASON_LENGTH];

    return regx_vm_check(&peer, reason, sizeof(reason)) == REGX_OK;
}

bool regx_shm_reaches(const regx_transport_t *transport, const void *address, size_t length)
{
    const regx_shm_t *shm = REGX_CONTAINER_OF(transport, const regx_shm_t, super);
    regx_shm_address_t a;

    if (length != sizeof(a)) {
        return false;
    }
    memcpy(&a, address, sizeof(a));
    return regx_shm_node_same(&shm->node, &a.node);
}

regx_status_t regx_shm_connect(regx_transport_t *transport, uint64_t peer, const void *address,
                               size_t length, regx_conn_t **out)
{
    regx_shm_t *shm = regx_shm_of(transport);
    regx_shm_conn_t *conn;
    regx_shm_address_t a;

    if (length != sizeof(a)) {
        return REGX_INVALID;
    }
    memcpy(&a, address, sizeof(a));
    if (a.main.length < regx_shm_stage_offset() + REGX_STAGE_BYTES ||
        a.pool_offset < regx_shm_stage_offset() + REGX_STAGE_BYTES ||
        a.pool_offset > a.main.length || a.pool_size > a.main.length - a.pool_offset ||
        a.pid <= 0 || a.pid > INT32_MAX) {
        return REGX_INVALID;
    }
    conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return REGX_NO_MEMORY;
    }
    conn->super.transport = transport;
    conn->super.peer = peer;
    conn->super.wire = "shm";
    conn->super.shares_pool = true;
    conn->address = a;
    conn->vm = (regx_vm_peer_t){
        .pid = (int32_t)a.pid, .cookie_address = a.cookie_address, .cookie = a.cookie};
    conn->super.single_copy = may_copy(conn);
    regx_lock_init(&conn->lock, shm->config.threads);
    regx_lock(&shm->lock);
    shm->boxes.neighbours++;
    regx_unlock(&shm->lock);
    *out = &conn->super;
    return REGX_OK;
}

/* ---- the first frame ---- */

#define ANOTHER "shm: another name space, or a descriptor was closed"

/* Progress reports it as broken. */
static regx_status_t refuse(regx_shm_conn_t *conn, const char *reason)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);

    regx_transport_fall_back(&shm->config, REGX_TRACE_CONNECTION, reason);
    conn->state = REGX_SHM_REFUSED;
    conn->refusal = reason;
    regx_lock(&shm->lock);
    conn->next = shm->refused;
    shm->refused = conn;
    regx_unlock(&shm->lock);
    regx_shm_count_copies(shm, 1);
    return REGX_UNREACHABLE;
}

int regx_shm_report_refused(regx_shm_t *shm)
{
    const regx_transport_events_t *events = &shm->config.events;
    int count = 0;

    for (;; count++) {
        regx_lock(&shm->lock);
        regx_shm_conn_t *conn = shm->refused;
        shm->refused = conn != NULL ? conn->next : NULL;
        regx_unlock(&shm->lock);
        if (conn == NULL) {
            return count;
        }
        regx_shm_count_copies(shm, -1);
        events->broken(events->context, conn->super.peer, conn->refusal);
    }
}

/* Takes a connection that ends off the list, if it was not reported yet. */
static void forget_refused(regx_shm_t *shm, const regx_shm_conn_t *conn)
{
    regx_lock(&shm->lock);
    for (regx_shm_conn_t **at = &shm->refused; *at != NULL; at = &(*at)->next) {
        if (*at == conn) {
            *at = conn->next;
            regx_shm_count_copies(shm, -1);
            break;
        }
    }
    regx_unlock(&shm->lock);
}

static void unmap_peer(regx_shm_conn_t *conn)
{
    regx_segment_unmap(&conn->main);
    conn->queue = NULL;
}

static regx_status_t map_peer(regx_shm_t *shm, regx_shm_conn_t *conn)
{
    regx_lock(&shm->lock);
    const regx_status_t status = regx_segment_map(&conn->address.main, &conn->main);
    regx_unlock(&shm->lock);
    if (status != REGX_OK) {
        return refuse(conn, status == REGX_DENIED ? ANOTHER
                                                  : "shm: a neighbour's memory cannot be mapped");
    }
    conn->queue = &regx_shm_main_at(&conn->main)->queue;
    conn->pool = conn->main.base + conn->address.pool_offset;
    if (!regx_vm_same(&conn->queue->cookie, &conn->address.cookie)) {
        unmap_peer(conn);
        return refuse(conn, ANOTHER);
    }
    regx_stages_attach_locked(conn);
    return REGX_OK;
}

static regx_status_t take_mailbox(regx_shm_t *shm, regx_shm_conn_t *conn)
{
    regx_lock(&shm->lock);
    const regx_status_t status =
        regx_boxes_take(&shm->boxes, &shm->domain, &shm->queue->cookie, &conn->box);
    regx_unlock(&shm->lock);
    if (status != REGX_OK) {
        unmap_peer(conn);
        return refuse(conn, "shm: no memory for a mailbox");
    }
    regx_mailbox_out_init(&conn->out, conn->box.memory, regx_box_ring(&conn->box));
    return REGX_OK;
}

regx_status_t regx_shm_attach_locked(regx_shm_conn_t *conn)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);
    regx_status_t status = conn->state == REGX_SHM_REFUSED ? REGX_UNREACHABLE : REGX_OK;

    if (status == REGX_OK && conn->queue == NULL) {
        status = map_peer(shm, conn);
    }
    if (status == REGX_OK && conn->box.memory == NULL) {
        status = take_mailbox(shm, conn);
    }
    if (status != REGX_OK) {
        return status;
    }
    const regx_connect_request_t request = {.sender = shm->config.self,
                                            .cookie = shm->queue->cookie,
                                            .cookie_address = (uintptr_t)&shm->queue->cookie,
                                            .pid = (int32_t)getpid(),
                                            .mailboxes = *regx_box_segment(&conn->box),
                                            .mailbox_offset = regx_box_offset(&conn->box),
                                            .mailbox_ring = regx_box_ring(&conn->box),
                                            .pool = shm->main.name,
                                            .pool_offset = shm->pool_offset,
                                            .pool_size = shm->super.pool_size};

    status = regx_connect_queue_request(conn->queue, &request);
    if (status == REGX_OK) {
        conn->state = REGX_SHM_ATTACHED;
    }
    return status;
}

/* ---- the end ---- */

bool regx_shm_reachable(regx_conn_t *super)
{
    const regx_shm_conn_t *conn = regx_shm_conn_of(super);

    return conn->queue != NULL &&
           atomic_load_explicit(&conn->queue->closed, memory_order_acquire) == 0 &&
           !regx_vm_gone(&conn->vm);
}

static void free_conn(regx_shm_conn_t *conn)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);

    if (conn->box.memory != NULL) {
        atomic_store(&conn->box.memory->left, 1); /* its reader has left it, or never knew of it */
        regx_lock(&shm->lock);
        regx_boxes_give(&conn->box);
        regx_unlock(&shm->lock);
    }
    regx_owned_drop(&conn->owned);
    if (conn->queue != NULL) {
        regx_segment_unmap(&conn->main);
    }
    regx_lock_fini(&conn->lock);
    free(conn);
}

/* Ends those disconnecting connections whose peer has read everything, or reads nothing any more.
 */
static void reap(regx_shm_t *shm)
{
    for (regx_shm_conn_t **at = &shm->disconnecting; *at != NULL;) {
        regx_shm_conn_t *conn = *at;

        if (!conn->last_posted) {
            conn->last_posted =
                regx_mailbox_post_own(&conn->out, REGX_FRAME_LAST, NULL, 0) == REGX_OK;
        }
        if (atomic_load_explicit(&conn->out.memory->left, memory_order_acquire) == 0 &&
            regx_shm_reachable(&conn->super)) {
            at = &conn->next;
            continue;
        }
        *at = conn->next;
        free_conn(conn);
    }
}

/* A send that has completed must arrive, though this process ends MPI first. A spawned child does:
 * its finalize does not wait for its parent's. */
void regx_shm_finish_disconnecting(regx_shm_t *shm)
{
    const struct timespec pause = {.tv_nsec = 50000};

    for (reap(shm); shm->disconnecting != NULL; reap(shm)) {
        nanosleep(&pause, NULL);
    }
}

/* Takes this connection's zero-copy sends off the list. Called with the transport's lock held. */
static regx_zcopy_t *take_zcopies_locked(regx_shm_t *shm, const regx_shm_conn_t *conn)
{
    regx_zcopy_t *taken = NULL;

    for (regx_zcopy_t **at = &shm->zcopies; *at != NULL;) {
        regx_zcopy_t *zcopy = *at;

        if (zcopy->scratch[REGX_SCRATCH_CONN] == conn) {
            *at = zcopy->scratch[REGX_SCRATCH_NEXT];
            zcopy->scratch[REGX_SCRATCH_NEXT] = taken;
            taken = zcopy;
            atomic_fetch_sub(&shm->zcopy_count, 1);
        } else {
            at = (regx_zcopy_t **)&zcopy->scratch[REGX_SCRATCH_NEXT];
        }
    }
    return taken;
}

void regx_shm_disconnect(regx_conn_t *super)
{
    regx_shm_conn_t *conn = regx_shm_conn_of(super);
    regx_shm_t *shm = regx_shm_of(super->transport);

    regx_lock(&shm->lock);
    shm->boxes.neighbours--;
    regx_zcopy_t *zcopies = take_zcopies_locked(shm, conn);
    regx_unlock(&shm->lock);

    while (zcopies != NULL) {
        regx_zcopy_t *zcopy = zcopies;

        zcopies = zcopy->scratch[REGX_SCRATCH_NEXT];
        zcopy->done(zcopy, REGX_FAILED);
    }
    regx_stage_drop(conn);
    regx_shm_drop_copies(conn);
    if (conn->state == REGX_SHM_ATTACHED) {
        conn->next = shm->disconnecting;
        shm->disconnecting = conn;
        reap(shm);
    } else {
        forget_refused(shm, conn);
        free_conn(conn);
    }
}

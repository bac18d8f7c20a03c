/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/shm_internal.h"
#include "transport/rkey_table.h"

#include <string.h>

static void refuse(regx_shm_conn_t *conn, const char *reason)
{
    regx_tally(conn->node->config.counters->fallbacks, reason);
    conn->state = REGX_SHM_REFUSED;
}

/* Maps the peer, gets a mailbox for it and tells it. The connection's lock is held. */
static regx_status_t attach(regx_shm_conn_t *conn)
{
    regx_shm_t *node = conn->node;
    regx_connect_request_t hello = {.sender = node->config.self,
                          .cookie = node->queue->cookie,
                          .pool = node->main_name,
                          .pool_offset = node->pool_offset,
                          .pool_size = node->pool_size};

    if (conn->state == REGX_SHM_REFUSED) {
        return REGX_UNREACHABLE;
    }
    if (conn->queue == NULL) {
        regx_lock(&node->lock);
        const regx_status_t status = regx_segment_map(&conn->address.main, &conn->main);
        regx_unlock(&node->lock);
        if (status != REGX_OK) {
            refuse(conn, "shm: a neighbour's memory cannot be mapped");
            return REGX_UNREACHABLE;
        }
        if (!regx_vm_same(&((regx_connect_queue_t *)conn->main.base)->cookie, &conn->address.cookie)) {
            regx_segment_unmap(&conn->main);
            refuse(conn, "shm: another process name space");
            return REGX_UNREACHABLE;
        }
        conn->queue = (regx_connect_queue_t *)conn->main.base;
        conn->pool = conn->main.base + conn->address.pool_offset;
    }
    if (conn->out.memory == NULL) {
        regx_mailbox_memory_t *memory = regx_shm_box_take(node, &conn->boxes, &conn->box);

        if (memory == NULL) {
            regx_segment_unmap(&conn->main);
            conn->queue = NULL;
            refuse(conn, "shm: no memory for a mailbox");
            return REGX_UNREACHABLE;
        }
        regx_mailbox_out_init(&conn->out, memory, conn->boxes->ring);
    }
    hello.mailboxes = conn->boxes->name;
    hello.mailbox_offset = regx_shm_box_offset(conn->boxes, conn->box);
    hello.mailbox_ring = conn->boxes->ring;
    if (regx_connect_queue_request(conn->queue, &hello) != REGX_OK) {
        return REGX_AGAIN;
    }
    conn->state = REGX_SHM_ATTACHED;
    return REGX_OK;
}

/* Locks the connection, attached; on any answer but REGX_OK it is not locked. */
static regx_status_t lock_attached(regx_shm_conn_t *conn)
{
    regx_lock(&conn->lock);
    if (conn->state == REGX_SHM_ATTACHED) {
        return REGX_OK;
    }
    const regx_status_t status = attach(conn);
    if (status != REGX_OK) {
        regx_unlock(&conn->lock);
    }
    return status;
}

static void count_sent(regx_shm_t *node, size_t bytes)
{
    regx_count(node->config.counters, &node->config.counters->bytes_shm, bytes);
}

regx_status_t regx_shm_send(regx_shm_conn_t *conn, uint8_t tag, const void *header,
                             size_t header_length, regx_pack_t pack, void *pack_context,
                             size_t payload_length)
{
    regx_status_t status = lock_attached(conn);

    if (status != REGX_OK) {
        return status;
    }
    status = regx_mailbox_post(&conn->out, tag, header, header_length, pack, pack_context,
                               payload_length);
    regx_unlock(&conn->lock);
    if (status == REGX_OK) {
        count_sent(conn->node, header_length + payload_length);
    }
    return status;
}

/* Posts a lent frame under a free token. The connection's lock is held. */
static regx_status_t post_lent(regx_shm_conn_t *conn, regx_lend_t *lend, uint64_t offset)
{
    const uint32_t busy = atomic_load(&conn->lent);

    if (busy == UINT32_MAX) {
        return REGX_AGAIN;
    }
    const uint32_t token = (uint32_t)__builtin_ctz(~busy);
    const uint32_t lap = conn->laps[token] + 1;
    const regx_status_t status =
        regx_mailbox_post_lent(&conn->out, lend->tag, offset, (uint32_t)lend->length, token, lap);
    if (status == REGX_OK) {
        conn->laps[token] = lap;
        atomic_fetch_or(&conn->lent, UINT32_C(1) << token);
        lend->scratch[REGX_SCRATCH_CONN] = conn;
        lend->scratch[REGX_SCRATCH_LAP] = regx_shm_ticket(token, lap);
    }
    return status;
}

regx_status_t regx_shm_lend(regx_shm_conn_t *conn, regx_lend_t *lend)
{
    regx_shm_t *node = conn->node;
    const char *pool = regx_segment_base(&node->main) + node->pool_offset;
    regx_status_t status = lock_attached(conn);

    if (status != REGX_OK) {
        return status;
    }
    status = post_lent(conn, lend, (uint64_t)((const char *)lend->data - pool));
    regx_unlock(&conn->lock);
    if (status != REGX_OK) {
        return status;
    }
    count_sent(node, lend->length);
    regx_lock(&node->lock);
    lend->scratch[REGX_SCRATCH_NEXT] = node->lends;
    node->lends = lend;
    atomic_fetch_add(&node->lend_count, 1);
    regx_unlock(&node->lock);
    return REGX_PENDING;
}

static regx_status_t put_pool(regx_shm_conn_t *conn, regx_put_t *put)
{
    if (put->offset > conn->address.pool_size ||
        put->length > conn->address.pool_size - put->offset) {
        return REGX_INVALID;
    }
    if (!regx_mailbox_ready(&conn->out)) {
        return REGX_AGAIN;
    }
    /* The copy is outside the lock; if another thread takes the last line meanwhile, the same
     * bytes are written once more. While it runs, the line of the notice comes over. */
    regx_mailbox_fetch_line(&conn->out);
    regx_unlock(&conn->lock);
    memcpy(conn->pool + put->offset, put->local, put->length);
    regx_lock(&conn->lock);
    return regx_mailbox_post(&conn->out, put->tag, put->notice, put->notice_length, NULL, NULL, 0);
}

bool regx_shm_may_copy(regx_shm_conn_t *conn)
{
    regx_vm_peer_t peer = conn->vm;
    char reason[REGX_REASON_LENGTH];

    return regx_vm_check(&peer, reason, sizeof(reason)) == REGX_OK;
}

/* Has the kernel copy `length` bytes at `offset` of the region that the key names. The connection
 * is locked. */
static regx_status_t queue_copy(regx_shm_conn_t *conn, void **copy, regx_vm_way_t way,
                                const regx_key_t *key, uint64_t offset, size_t length)
{
    regx_shm_t *node = conn->node;
    char reason[REGX_REASON_LENGTH];

    if (offset > regx_key_length(key) || length > regx_key_length(key) - offset) {
        return REGX_INVALID;
    }
    if (regx_vm_check(&conn->vm, reason, sizeof(reason)) != REGX_OK) {
        regx_tally(node->config.counters->fallbacks, reason);
        return REGX_DENIED;
    }
    copy[REGX_SCRATCH_CONN] = conn;
    copy[REGX_SCRATCH_DONE] = NULL;
    copy[REGX_SCRATCH_WAY] = way == REGX_VM_READ ? copy : NULL;
    regx_lock(&node->lock);
    regx_shm_append_copy(&node->copies, copy);
    atomic_fetch_add(&node->copy_count, 1);
    regx_unlock(&node->lock);
    return REGX_PENDING;
}

regx_status_t regx_shm_put(regx_shm_conn_t *conn, regx_put_t *put)
{
    regx_status_t status = lock_attached(conn);

    if (status != REGX_OK) {
        return status;
    }
    status = put->target == REGX_TARGET_POOL ? put_pool(conn, put)
                                             : queue_copy(conn, put->scratch, REGX_VM_WRITE,
                                                          &put->key, put->offset, put->length);
    regx_unlock(&conn->lock);
    if (status == REGX_OK) {
        count_sent(conn->node, put->length);
    }
    return status;
}

regx_status_t regx_shm_get(regx_shm_conn_t *conn, regx_get_t *get)
{
    regx_status_t status = lock_attached(conn);

    if (status == REGX_OK) {
        status = queue_copy(conn, get->scratch, REGX_VM_READ, &get->key, get->offset, get->length);
        regx_unlock(&conn->lock);
    }
    return status;
}

void regx_shm_warm(const regx_shm_conn_t *conn)
{
    if (conn->state == REGX_SHM_ATTACHED) {
        regx_mailbox_fetch_span(&conn->out);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The sending side of shared memory: frames, zero-copy sends, puts and gets.
 */

#include "transport/shm/shm_internal.h"

/* Locks the connection, and attaches it unless it is attached. On any answer but REGX_OK it is not
 * locked. */
static inline regx_status_t lock_attached(regx_shm_conn_t *conn)
{
    regx_status_t status = REGX_OK;

    regx_lock(&conn->lock);
    if (conn->state != REGX_SHM_ATTACHED) {
        status = regx_shm_attach_locked(conn);
        if (status != REGX_OK) {
            regx_unlock(&conn->lock);
        }
    }
    return status;
}

static void count_sent(const regx_shm_t *shm, size_t bytes)
{
    regx_count(shm->config.counters, &shm->config.counters->bytes_shm, bytes);
}

static inline uint32_t received_so_far(const regx_shm_conn_t *conn)
{
    return atomic_load_explicit(&regx_shm_of(conn->super.transport)->received,
                                memory_order_relaxed);
}

/* The general case of regx_shm_send: takes the lock, attaches the connection if that is still to be
 * done, and posts a frame of any length. */
static __attribute__((noinline)) regx_status_t send_any(regx_shm_conn_t *conn, uint8_t tag,
                                                        const void *header, size_t header_length,
                                                        regx_pack_t pack, void *payload,
                                                        size_t payload_length)
{
    regx_status_t status = lock_attached(conn);

    if (status != REGX_OK) {
        return status;
    }
    const uint32_t received = received_so_far(conn);
    regx_mailbox_note(&conn->out, received);
    status =
        regx_mailbox_post(&conn->out, tag, header, header_length, pack, payload, payload_length);
    if (status == REGX_OK) {
        regx_mailbox_noted(&conn->out, received);
    }
    regx_unlock(&conn->lock);
    if (status == REGX_OK) {
        count_sent(regx_shm_of(conn->super.transport), header_length + payload_length);
    }
    return status;
}

/* Nearly all frames are short, and most programs have one thread: for those it calls nothing, as the short
 * way is inlined. (That is closed as long as the connection is not attached.) */
regx_status_t regx_shm_send(regx_conn_t *super, uint8_t tag, const void *header,
                            size_t header_length, regx_pack_t pack, void *payload,
                            size_t payload_length)
{
    regx_shm_conn_t *conn = regx_shm_conn_of(super);
    const size_t length = header_length + payload_length;

    if (!conn->lock.real && pack == NULL && regx_mailbox_is_short(&conn->out, length)) {
        regx_mailbox_post_short(&conn->out, received_so_far(conn), tag, header, header_length,
                                payload, payload_length);
        regx_count_alone(&regx_shm_of(super->transport)->config.counters->bytes_shm, length);
        return REGX_OK;
    }
    return send_any(conn, tag, header, header_length, pack, payload, payload_length);
}

regx_status_t regx_shm_send_zcopy(regx_conn_t *super, regx_zcopy_t *zcopy)
{
    regx_shm_conn_t *conn = regx_shm_conn_of(super);
    regx_shm_t *shm = regx_shm_of(super->transport);
    const char *pool = super->transport->pool_memory;
    regx_status_t status = lock_attached(conn);

    if (status != REGX_OK) {
        return status;
    }
    const uint32_t busy = atomic_load(&conn->zcopies);
    if (busy == UINT32_MAX) { /* no token is free */
        regx_unlock(&conn->lock);
        return REGX_AGAIN;
    }
    const uint32_t token = (uint32_t)__builtin_ctz(~busy);
    const regx_mailbox_lent_t lent = {.offset = (uint64_t)((const char *)zcopy->data - pool),
                                      .length = (uint32_t)zcopy->length,
                                      .token = token,
                                      .use = conn->uses[token] + 1};
    status = regx_mailbox_post_line(&conn->out, REGX_FRAME_ZCOPY, zcopy->tag, &lent, sizeof(lent));
    if (status == REGX_OK) {
        conn->uses[token] = lent.use;
        atomic_fetch_or(&conn->zcopies, UINT32_C(1) << token);
        zcopy->pending = (regx_pending_t){
            .kind = REGX_PENDING_ZCOPY, .conn = super, .token = token, .use = lent.use};
        regx_lock(&shm->lock);
        regx_list_append(&shm->zcopies, &zcopy->pending.link);
        atomic_fetch_add(&shm->zcopy_count, 1);
        regx_unlock(&shm->lock);
    }
    regx_unlock(&conn->lock);
    if (status != REGX_OK) {
        return status;
    }
    count_sent(shm, zcopy->length);
    return REGX_PENDING;
}

/* The first put to a part of the peer's pool maps its pages by one call: a page fault for each takes
 * several times as long. Best effort. */
static void bring_pool_in_locked(regx_shm_conn_t *conn, uint64_t offset, size_t length)
{
    const uint64_t size = conn->peer.address.pool_size, part = conn->pool_part;
    const uint64_t end = offset + length;

    for (uint64_t at = length > 0 ? offset - offset % part : end; at < end; at += part) {
        uint64_t *const word = &conn->pool_parts[at / part / 64];
        const uint64_t bit = UINT64_C(1) << at / part % 64;

        if ((*word & bit) == 0) {
            *word |= bit;
            madvise(conn->peer.pool + at, regx_min(part, size - at), MADV_POPULATE_WRITE);
        }
    }
}

/* The copy is made without the lock. If another thread takes the last line of the mailbox
 * meanwhile, the answer is REGX_AGAIN and the same bytes are written once more. */
static regx_status_t put_to_pool(regx_shm_conn_t *conn, regx_put_t *put)
{
    regx_status_t status = lock_attached(conn);

    if (status != REGX_OK) {
        return status;
    }
    if (!regx_within(put->offset, put->length, conn->peer.address.pool_size)) {
        status = REGX_INVALID;
    } else if (!regx_mailbox_has_room(&conn->out, 1)) {
        status = REGX_AGAIN;
    } else {
        /* The notice's line comes over during the copy. x86 stores in order: without this, all that
         * is stored after the notice waits until the line has come from the poller's core. */
        __builtin_prefetch(regx_mailbox_next_line(&conn->out), 1);
        bring_pool_in_locked(conn, put->offset, put->length);
        conn->putting++;
    }
    regx_unlock(&conn->lock);
    if (status != REGX_OK) {
        return status;
    }
    regx_copy(conn->peer.pool + put->offset, put->local, put->length);
    regx_lock(&conn->lock);
    conn->putting--;
    status =
        regx_mailbox_post(&conn->out, put->tag, put->notice, put->notice_length, NULL, NULL, 0);
    regx_unlock(&conn->lock);
    if (status == REGX_OK) {
        count_sent(regx_shm_of(conn->super.transport), put->length);
    }
    return status;
}

/* As lock_attached, if the range lies in the region that the key names, and the kernel lets this process
 * copy from and to the peer; else REGX_INVALID or REGX_DENIED, and it is not locked. What the kernel has
 * answered is kept in the connection (peer.vm), under its lock. */
static regx_status_t lock_for_copy(regx_shm_conn_t *conn, const regx_key_t *key, uint64_t offset,
                                   size_t length)
{
    regx_status_t status = lock_attached(conn);

    if (status != REGX_OK) {
        return status;
    }
    if (!regx_within(offset, length, regx_shm_key_unpack(key).length)) {
        status = REGX_INVALID;
    } else if (!regx_shm_may_copy(regx_shm_of(conn->super.transport), &conn->peer)) {
        status = REGX_DENIED;
    }
    if (status != REGX_OK) {
        regx_unlock(&conn->lock);
    }
    return status;
}

regx_status_t regx_shm_put(regx_conn_t *super, regx_put_t *put)
{
    regx_shm_conn_t *conn = regx_shm_conn_of(super);

    if (put->target == REGX_TARGET_POOL) {
        return put_to_pool(conn, put);
    }
    const regx_status_t status = lock_for_copy(conn, &put->key, put->offset, put->length);
    if (status != REGX_OK) {
        return status;
    }
    put->pending = (regx_pending_t){.kind = REGX_PENDING_PUT, .conn = super};
    regx_shm_queue_copy(conn, &put->pending);
    regx_unlock(&conn->lock);
    return REGX_PENDING;
}

regx_status_t regx_shm_get(regx_conn_t *super, regx_get_t *get)
{
    regx_shm_conn_t *conn = regx_shm_conn_of(super);
    const regx_status_t status = lock_for_copy(conn, &get->key, get->offset, get->length);

    if (status != REGX_OK) {
        return status;
    }
    get->pending = (regx_pending_t){.kind = REGX_PENDING_GET, .conn = super};
    /* If the claim fails the sender copies a step now, and the message is taken from the staging buffer. */
    if (get->staged || !regx_cico_claim_for_kernel(get)) {
        const regx_status_t asked = regx_cico_ask_locked(conn, get);
        regx_unlock(&conn->lock);
        return asked;
    }
    regx_cico_note(regx_shm_of(super->transport), get);
    get->pending.shared = get->assisted ? regx_shared_copy_ask_locked(conn, get) : NULL;
    regx_shm_queue_copy(conn, &get->pending);
    regx_unlock(&conn->lock);
    return REGX_PENDING;
}

regx_status_t regx_shm_copy(regx_conn_t *super, regx_copy_direction_t direction, void *local,
                            uint64_t remote, size_t length)
{
    regx_shm_conn_t *conn = regx_shm_conn_of(super);
    regx_shm_t *shm = regx_shm_of(super->transport);
    const regx_shm_piece_t whole = {.neighbour = &conn->peer,
                                    .direction = direction,
                                    .local = local,
                                    .remote = remote,
                                    .length = length};

    regx_lock(&conn->lock);
    const bool allowed = regx_shm_may_copy(shm, &conn->peer);
    regx_unlock(&conn->lock);
    return allowed ? regx_shm_piece_copy(shm, whole) : REGX_DENIED;
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What callers send, write and read.
 *
 * Frames. Small ones are carried by their request, others are copied to a slot or sent from the
 * caller's pool memory.
 *
 * A put is one or more RDMA WRITEs. The last has immediate data if that notifies the peer enough;
 * else a SEND of the notice follows on the same queue pair. The device delivers either only after
 * what was written before can be seen. The WRITEs read the sender's memory where it is registered
 * (the put's region, or the pool), else slots that it is copied to. A put takes its place in the
 * line when it is accepted. Until its last request has been posted, sends to the same peer answer
 * REGX_AGAIN; another put queues up.
 *
 * Gets are RDMA READs of a peer's registered memory into ours. They have a line of their own, which
 * frames and puts overtake: the peer is not notified, so there is no order to keep.
 */
#include <endian.h>

#include "transport/verbs/ep.h"

#define TURN_SEGMENTS 4 /* of puts, per endpoint */

/* REGX_OK: the connection's endpoint can be used, and the lock is held until leave. */
static regx_status_t enter(regx_verbs_conn_t *conn)
{
    regx_lock_t *lock = &regx_verbs_of(conn->super.transport)->lock;

    if (!regx_trylock(lock)) {
        return REGX_AGAIN;
    }
    const regx_status_t status = regx_cm_ready(conn);
    if (status != REGX_OK) {
        regx_unlock(lock);
    }
    return status;
}

static void leave(const regx_verbs_conn_t *conn)
{
    regx_unlock(&regx_verbs_of(conn->super.transport)->lock);
}

/* ---- frames ---- */

/* Posts a frame: its request carries it if it is short, else it is copied to a slot. The send queue
 * has room. REGX_AGAIN: no slot. */
static regx_status_t post_frame(regx_ep_t *ep, uint8_t tag, const void *header,
                                size_t header_length, regx_pack_t pack, void *pack_context,
                                size_t payload_length, regx_pending_t *ends)
{
    uint8_t small[REGX_VERBS_INLINE];
    struct ibv_sge data = {.addr = (uintptr_t)small,
                           .length = (uint32_t)(header_length + payload_length)};
    struct ibv_send_wr request = regx_sq_frame(REGX_VERBS_FRAME, tag, &data);
    regx_verbs_work_t work = {.ends = ends, .what = REGX_VERBS_SENDING};

    if (data.length > ep->verbs->can.inline_max) {
        work.slot = regx_verbs_slot_take(ep->verbs, &ep->sq.slots);
        if (work.slot == NULL) {
            return REGX_AGAIN;
        }
        data.addr = (uintptr_t)work.slot->memory;
        data.lkey = work.slot->lkey;
    } else if (data.length > 0) {
        request.send_flags = IBV_SEND_INLINE;
    }
    regx_copy_frame((void *)(uintptr_t)data.addr, header, header_length, pack, pack_context,
                    payload_length);
    return regx_sq_post(ep, &request, &work);
}

/* As enter, where a frame can go now: not before the puts in line. */
static regx_status_t enter_to_send(regx_verbs_conn_t *conn)
{
    const regx_status_t status = enter(conn);

    if (status == REGX_OK && (!regx_list_empty(&conn->ep->puts) || !regx_sq_has_room(conn->ep))) {
        leave(conn);
        return REGX_AGAIN;
    }
    return status;
}

regx_status_t regx_verbs_send(regx_conn_t *super, uint8_t tag, const void *header,
                              size_t header_length, regx_pack_t pack, void *pack_context,
                              size_t payload_length)
{
    regx_verbs_conn_t *conn = (regx_verbs_conn_t *)super;
    const size_t length = header_length + payload_length;

    if (length > REGX_VERBS_FRAME_MAX) {
        return REGX_INVALID;
    }
    regx_status_t status = enter_to_send(conn);
    if (status != REGX_OK) {
        return status;
    }
    status =
        post_frame(conn->ep, tag, header, header_length, pack, pack_context, payload_length, NULL);
    if (status == REGX_OK) {
        regx_verbs_count_sent(conn->ep->verbs, length);
    }
    leave(conn);
    return status;
}

regx_status_t regx_verbs_send_zcopy(regx_conn_t *super, regx_zcopy_t *zcopy)
{
    regx_verbs_conn_t *conn = (regx_verbs_conn_t *)super;
    regx_verbs_t *verbs = regx_verbs_of(super->transport);
    struct ibv_sge data = {.addr = (uintptr_t)zcopy->data,
                           .length = (uint32_t)zcopy->length,
                           .lkey = verbs->buffers.pool.mr->lkey};
    struct ibv_send_wr request = regx_sq_frame(REGX_VERBS_FRAME, zcopy->tag, &data);
    const regx_verbs_work_t work = {.ends = &zcopy->pending, .what = REGX_VERBS_SENDING};

    if (zcopy->length > REGX_VERBS_FRAME_MAX) {
        return REGX_INVALID;
    }
    const regx_status_t status = enter_to_send(conn);
    if (status != REGX_OK) {
        return status;
    }
    zcopy->pending.kind = REGX_PENDING_ZCOPY;
    regx_verbs_count_sent(verbs, zcopy->length);
    /* Refused: it is completed with the rest of the endpoint's work. */
    regx_sq_post(conn->ep, &request, &work);
    leave(conn);
    return REGX_PENDING;
}

void regx_verbs_wait_if_left(regx_ep_t *ep)
{
    if (ep->state != REGX_EP_BROKEN && regx_ep_has_line(ep)) {
        regx_list_set(&ep->verbs->turns, &ep->turn, true);
    }
}

/* ---- puts ---- */

/* The memory of the peer's that a put writes to. */
static regx_verbs_key_t target_of(const regx_ep_t *ep, const regx_put_t *put)
{
    if (put->target == REGX_TARGET_REGION) {
        return regx_verbs_key_unpack(&put->key);
    }
    return (regx_verbs_key_t){
        .base = ep->theirs.pool, .length = ep->theirs.pool_size, .rkey = ep->theirs.pool_key};
}

/* Whether nothing of a put is left to be posted, since the immediate went with the data. */
static bool is_posted(const regx_put_t *put)
{
    return put->immediate != 0 && put->pending.moved == put->length;
}

/* Posts the next segment of a put's data. false: no slot, or no room for the request. */
static bool post_data(regx_ep_t *ep, regx_put_t *put)
{
    const size_t posted = put->pending.moved;
    const size_t left = put->length - posted;
    const regx_verbs_key_t target = target_of(ep, put);
    const uintptr_t pool = (uintptr_t)ep->verbs->super.pool_memory;
    struct ibv_sge data = {.addr = (uintptr_t)put->local + posted};
    bool copied = false; /* it is neither in a region nor in the pool */
    regx_verbs_work_t work = {.what = REGX_VERBS_WRITING};
    struct ibv_send_wr request = {
        .sg_list = &data,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .wr.rdma = {.remote_addr = target.base + put->offset + posted, .rkey = target.rkey}};

    if (put->region != NULL) {
        data.lkey = ((const struct ibv_mr *)put->region->handle)->lkey;
    } else {
        data.lkey = ep->verbs->buffers.pool.mr->lkey;
        copied =
            !regx_within((uintptr_t)put->local - pool, put->length, ep->verbs->super.pool_size);
    }
    data.length =
        (uint32_t)regx_min(left, copied ? REGX_VERBS_COPIED_MAX : ep->verbs->can.segment_max);
    if (!regx_sq_has_room(ep)) {
        return false;
    }
    if (copied) {
        work.slot = regx_verbs_slot_take(ep->verbs, &ep->sq.slots);
        if (work.slot == NULL) {
            return false;
        }
        regx_copy(work.slot->memory, (const uint8_t *)put->local + posted, data.length);
        data.addr = (uintptr_t)work.slot->memory;
        data.lkey = work.slot->lkey;
    }
    put->pending.moved += data.length;
    if (is_posted(put)) {
        request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        request.imm_data = htobe32(regx_verbs_immediate(REGX_VERBS_WRITTEN, put->immediate));
        work.ends = &put->pending;
    }
    regx_verbs_count_sent(ep->verbs, data.length);
    regx_sq_post(ep, &request, &work);
    return true;
}

/* Posts the notice of a put, behind its data. false: no slot, or no room for the request. */
static bool post_notice(regx_ep_t *ep, regx_put_t *put)
{
    return regx_sq_has_room(ep) && post_frame(ep, put->tag, put->notice, put->notice_length, NULL,
                                              NULL, 0, &put->pending) != REGX_AGAIN;
}

/* Moves the line on. What is in the line is ours: a put leaves it before it can be done. A request
 * that is refused ends with the endpoint's other work. */
void regx_verbs_put_take_turn(regx_ep_t *ep)
{
    int segments = 0;

    while (!regx_list_empty(&ep->puts) && regx_sq_is_open(ep) && segments < TURN_SEGMENTS) {
        regx_link_t *first = ep->puts.next;
        regx_put_t *put = regx_put_of(regx_pending_of(first));
        const bool with_notice = put->pending.moved == put->length;

        if (!(with_notice ? post_notice(ep, put) : post_data(ep, put))) {
            break;
        }
        if (with_notice || is_posted(put)) {
            regx_list_remove(first);
        }
        segments += !with_notice;
    }
}

regx_status_t regx_verbs_put(regx_conn_t *super, regx_put_t *put)
{
    regx_verbs_conn_t *conn = (regx_verbs_conn_t *)super;

    if (put->notice_length > REGX_NOTICE_MAX) {
        return REGX_INVALID;
    }
    regx_status_t status = enter(conn);
    if (status != REGX_OK) {
        return status;
    }
    regx_ep_t *ep = conn->ep;
    if (!regx_within(put->offset, put->length, target_of(ep, put).length)) {
        status = REGX_INVALID;
    } else {
        const bool first = regx_list_empty(&ep->puts);

        put->pending = (regx_pending_t){.kind = REGX_PENDING_PUT};
        regx_list_append(&ep->puts, &put->pending.link);
        if (first) {
            regx_verbs_put_take_turn(ep);
        }
        regx_verbs_wait_if_left(ep);
        status = REGX_PENDING;
    }
    leave(conn);
    return status;
}

/* ---- gets ---- */

void regx_verbs_get_take_turn(regx_ep_t *ep)
{
    while (!regx_list_empty(&ep->gets.line) && ep->gets.posted < ep->gets.max &&
           regx_sq_is_open(ep) && regx_sq_has_room(ep)) {
        regx_link_t *first = ep->gets.line.next;
        regx_get_t *get = regx_get_of(regx_pending_of(first));
        const regx_verbs_key_t key = regx_verbs_key_unpack(&get->key);
        const size_t posted = get->pending.moved;
        const size_t left = get->length - posted;
        const bool last = left <= ep->verbs->can.segment_max;
        struct ibv_sge segment = {.addr = (uintptr_t)get->local + posted,
                                  .length = (uint32_t)(last ? left : ep->verbs->can.segment_max),
                                  .lkey = ((const struct ibv_mr *)get->region->handle)->lkey};
        struct ibv_send_wr request = {
            .sg_list = &segment,
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_READ,
            .wr.rdma = {.remote_addr = key.base + get->offset + posted, .rkey = key.rkey}};
        const regx_verbs_work_t work = {
            .kind = REGX_WORK_READ, .ends = last ? &get->pending : NULL, .what = "RDMA READ"};

        get->pending.moved += segment.length;
        ep->gets.posted++;
        regx_verbs_count_sent(ep->verbs, segment.length);
        /* Refused: it ends with the rest of the endpoint's work. */
        regx_sq_post(ep, &request, &work);
        if (last) {
            regx_list_remove(first);
        }
    }
}

regx_status_t regx_verbs_get(regx_conn_t *super, regx_get_t *get)
{
    regx_verbs_conn_t *conn = (regx_verbs_conn_t *)super;
    const regx_verbs_key_t key = regx_verbs_key_unpack(&get->key);
    const regx_mr_t *region = get->region;

    /* It has to lie in what the peer published, and in our region. */
    if (region == NULL || get->length == 0 || !regx_within(get->offset, get->length, key.length) ||
        !regx_within((uintptr_t)get->local - (uintptr_t)region->base, get->length,
                     region->length)) {
        return REGX_INVALID;
    }
    regx_status_t status = enter(conn);
    if (status != REGX_OK) {
        return status;
    }
    if (conn->ep->gets.max == 0) { /* one of the two devices does none */
        status = REGX_DENIED;
    } else {
        get->pending = (regx_pending_t){.kind = REGX_PENDING_GET};
        regx_list_append(&conn->ep->gets.line, &get->pending.link);
        regx_verbs_get_take_turn(conn->ep);
        regx_verbs_wait_if_left(conn->ep);
        status = REGX_PENDING;
    }
    leave(conn);
    return status;
}

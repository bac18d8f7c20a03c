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
#include <string.h>

#include "base/copy.h"
#include "transport/frame.h"
#include "transport/verbs/ep.h"

#define HEADER_MAX 256  /* of a frame; see transport.h */
#define TURN_SEGMENTS 4 /* of copied data per endpoint and turn */

_Static_assert(REGX_VERBS_COPIED_MAX + REGX_NOTICE_MAX <= REGX_VERBS_FRAME_MAX,
               "a slot holds what is copied, and then the notice");

/* REGX_OK: the connection's endpoint can be used, and the lock is held until leave. */
static regx_status_t enter(regx_verbs_conn_t *conn)
{
    regx_try_lock_t *lock = &regx_verbs_of(conn->super.transport)->try_lock;

    if (!regx_try_lock_enter(lock)) {
        return REGX_AGAIN;
    }
    const regx_status_t status = regx_cm_ready(conn);
    if (status != REGX_OK) {
        regx_try_lock_leave(lock);
    }
    return status;
}

static void leave(const regx_verbs_conn_t *conn)
{
    regx_try_lock_leave(&regx_verbs_of(conn->super.transport)->try_lock);
}

/* ---- frames ---- */

/* Posts a frame from registered memory, in as many segments as it takes. `work` is that of the last
 * one. The send queue has room. */
static regx_status_t post_frame(regx_ep_t *ep, uint8_t tag, const void *data, size_t length,
                                uint32_t lkey, const regx_verbs_work_t *work)
{
    struct ibv_send_wr requests[REGX_VERBS_SEGMENTS];
    struct ibv_sge segments[REGX_VERBS_SEGMENTS];
    regx_verbs_work_t works[REGX_VERBS_SEGMENTS];
    unsigned count = 0;
    size_t sent = 0;

    do {
        const size_t left = length - sent;
        const bool last = left <= REGX_VERBS_RECEIVE_SIZE;

        segments[count] =
            (struct ibv_sge){.addr = (uintptr_t)data + sent,
                             .length = (uint32_t)(last ? left : REGX_VERBS_RECEIVE_SIZE),
                             .lkey = lkey};
        requests[count] =
            regx_sq_segment(last ? REGX_SEGMENT_LAST : REGX_SEGMENT_MORE, tag, &segments[count]);
        works[count] =
            last ? *work : (regx_verbs_work_t){.kind = REGX_WORK_PLAIN, .what = regx_verbs_sending};
        sent += segments[count++].length;
    } while (sent < length);
    regx_verbs_count_sent(ep->verbs, length);
    return regx_sq_post(ep, requests, works, count);
}

static unsigned segments_of_frame(size_t length)
{
    return length == 0
               ? 1
               : (unsigned)((length + REGX_VERBS_RECEIVE_SIZE - 1) / REGX_VERBS_RECEIVE_SIZE);
}

/* The same where a frame of so many bytes can go now: not before the puts in line. */
static regx_status_t enter_to_send(regx_verbs_conn_t *conn, size_t length)
{
    const regx_status_t status = enter(conn);

    if (status == REGX_OK &&
        (conn->ep->puts.first != NULL || !regx_sq_has_room(conn->ep, segments_of_frame(length)))) {
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
    regx_verbs_t *verbs = regx_verbs_of(super->transport);
    const size_t length = header_length + payload_length;
    uint8_t small[REGX_VERBS_INLINE];

    if (length > REGX_VERBS_FRAME_MAX || header_length > HEADER_MAX) {
        return REGX_INVALID;
    }
    regx_status_t status = enter_to_send(conn, length);
    if (status != REGX_OK) {
        return status;
    }
    regx_ep_t *ep = conn->ep;
    if (length <= ep->inline_max) {
        regx_frame_fill(small, header, header_length, pack, pack_context, payload_length);
        status = regx_sq_post_inline(ep, REGX_SEGMENT_LAST, tag, small, length);
    } else {
        const regx_verbs_work_t work = {
            .kind = REGX_WORK_SLOT, .slot = regx_sq_take_slot(ep), .what = regx_verbs_sending};

        status = REGX_AGAIN;
        if (work.slot != REGX_SLOT_NONE) {
            uint8_t *room = regx_verbs_slot_memory(verbs, work.slot);

            regx_frame_fill(room, header, header_length, pack, pack_context, payload_length);
            status =
                post_frame(ep, tag, room, length, regx_verbs_slot_key(verbs, work.slot), &work);
        }
    }
    leave(conn);
    return status;
}

regx_status_t regx_verbs_send_zcopy(regx_conn_t *super, regx_zcopy_t *zcopy)
{
    regx_verbs_conn_t *conn = (regx_verbs_conn_t *)super;
    regx_verbs_t *verbs = regx_verbs_of(super->transport);
    const regx_verbs_work_t work = {
        .kind = REGX_WORK_ZCOPY, .object = zcopy, .what = regx_verbs_sending};

    if (zcopy->length > REGX_VERBS_ZCOPY_MAX) {
        return REGX_INVALID;
    }
    const regx_status_t status = enter_to_send(conn, zcopy->length);
    if (status != REGX_OK) {
        return status;
    }
    /* Refused: it is completed with the rest of the endpoint's work. */
    post_frame(conn->ep, zcopy->tag, zcopy->data, zcopy->length, verbs->buffers.pool.mr->lkey,
               &work);
    leave(conn);
    return REGX_PENDING;
}

/* What could not be posted waits for its turn. */
static void wait_if_left(regx_ep_t *ep)
{
    if (ep->puts.first != NULL || ep->gets.line.first != NULL) {
        regx_list_set(&ep->verbs->turns, &ep->turn, true);
    }
}

/* ---- puts ---- */

/* Where in the peer's memory a put begins, and by which key. false: outside of what it has. */
static bool destination(const regx_ep_t *ep, const regx_put_t *put, uint64_t *address,
                        uint32_t *rkey)
{
    regx_verbs_key_t key = {
        .base = ep->theirs.pool, .length = ep->theirs.pool_size, .rkey = ep->theirs.pool_key};

    if (put->target == REGX_TARGET_REGION) {
        key = regx_verbs_key_unpack(&put->key);
    }
    *address = key.base + put->offset;
    *rkey = key.rkey;
    return put->offset <= key.length && put->length <= key.length - put->offset;
}

/* The key of local memory that is registered. false: it is not. */
static bool local_key(const regx_verbs_t *verbs, const regx_put_t *put, uint32_t *lkey)
{
    const uint8_t *pool = verbs->super.pool_memory, *local = put->local;

    if (put->region != NULL) {
        *lkey = ((const struct ibv_mr *)put->region->handle)->lkey;
        return true;
    }
    *lkey = verbs->buffers.pool.mr->lkey;
    return local >= pool && local < pool + verbs->super.pool_size &&
           put->length <= (size_t)(pool + verbs->super.pool_size - local);
}

/* What the next segment of a put needs. */
typedef struct segment {
    uint64_t address; /* where the put begins in the peer's memory */
    uint32_t rkey;
    struct ibv_sge data;
    bool last;     /* the notice or immediate goes with it */
    uint32_t slot; /* that it, or its notice, is copied to; REGX_SLOT_NONE: none */
} segment_t;

/* Whether the notice must be sent from a slot. */
static bool notice_needs_slot(const regx_ep_t *ep, const regx_put_t *put)
{
    return (put->immediate == 0 || put->length == 0) && put->notice_length > ep->inline_max;
}

/* REGX_OK; REGX_AGAIN: no slot, or no room for the requests; REGX_INVALID: the put leads outside of
 * the peer's memory. */
static regx_status_t prepare(regx_ep_t *ep, regx_put_t *put, segment_t *segment)
{
    const size_t sent = regx_verbs_put_place(put)->posted, left = put->length - sent;
    const uint8_t *from = (const uint8_t *)put->local + sent;
    const bool staged = !local_key(ep->verbs, put, &segment->data.lkey);
    const uint64_t max = staged ? REGX_VERBS_COPIED_MAX : ep->verbs->can.segment_max;

    segment->last = left <= max;
    segment->slot = REGX_SLOT_NONE;
    segment->data.addr = (uintptr_t)from;
    segment->data.length = (uint32_t)(segment->last ? left : max);
    if (!destination(ep, put, &segment->address, &segment->rkey)) {
        return REGX_INVALID;
    }
    segment->address += sent;
    if (!regx_sq_has_room(ep, segment->last ? 2 : 1)) {
        return REGX_AGAIN;
    }
    if ((staged && left > 0) || (segment->last && notice_needs_slot(ep, put))) {
        segment->slot = regx_sq_take_slot(ep);
        if (segment->slot == REGX_SLOT_NONE) {
            return REGX_AGAIN;
        }
    }
    if (staged && left > 0) {
        uint8_t *room = regx_verbs_slot_memory(ep->verbs, segment->slot);

        regx_copy(room, from, segment->data.length);
        segment->data.addr = (uintptr_t)room;
        segment->data.lkey = regx_verbs_slot_key(ep->verbs, segment->slot);
    }
    return REGX_OK;
}

/* The request that delivers the notice. `data` is what it points to. */
static struct ibv_send_wr notice_of(const regx_ep_t *ep, const regx_put_t *put,
                                    const segment_t *segment, struct ibv_sge *data)
{
    *data = (struct ibv_sge){.addr = (uintptr_t)put->notice, .length = put->notice_length};
    if (notice_needs_slot(ep, put)) {
        uint8_t *room = regx_verbs_slot_memory(ep->verbs, segment->slot) + REGX_VERBS_COPIED_MAX;

        memcpy(room, put->notice, put->notice_length);
        data->addr = (uintptr_t)room;
        data->lkey = regx_verbs_slot_key(ep->verbs, segment->slot);
    }
    struct ibv_send_wr request = regx_sq_segment(REGX_SEGMENT_LAST, put->tag, data);
    if (!notice_needs_slot(ep, put) && put->notice_length > 0) {
        request.send_flags = IBV_SEND_INLINE;
    }
    return request;
}

/* Posts the next segment of a put, the last with the notice if it has one. REGX_OK, REGX_AGAIN: no
 * room, REGX_UNREACHABLE; REGX_INVALID: it leads outside of the peer's memory. `posted` tells
 * whether the notice was. */
static regx_status_t post_segment(regx_ep_t *ep, regx_put_t *put, bool *posted)
{
    struct ibv_send_wr requests[2];
    regx_verbs_work_t works[2];
    unsigned count = 0;
    struct ibv_sge notice;
    segment_t segment;
    const regx_status_t status = prepare(ep, put, &segment);

    *posted = segment.last;
    if (status != REGX_OK) {
        return status;
    }
    if (segment.data.length > 0) {
        requests[count] =
            (struct ibv_send_wr){.sg_list = &segment.data,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE,
                                 .wr.rdma = {.remote_addr = segment.address, .rkey = segment.rkey}};
        works[count++] = (regx_verbs_work_t){
            .kind = segment.slot == REGX_SLOT_NONE ? REGX_WORK_PLAIN : REGX_WORK_SLOT,
            .slot = segment.slot,
            .what = regx_verbs_writing};
        regx_verbs_put_place(put)->posted += segment.data.length;
        regx_verbs_count_sent(ep->verbs, segment.data.length);
    }
    if (segment.last && put->immediate != 0 && count == 1) {
        requests[0].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        requests[0].imm_data =
            htobe32(regx_verbs_segment_pack(REGX_SEGMENT_WRITTEN, put->immediate));
        works[0].kind = REGX_WORK_PUT;
        works[0].object = put;
    } else if (segment.last) {
        if (count == 1) { /* the slot goes with the last request that uses it */
            works[0].kind = REGX_WORK_PLAIN;
        }
        requests[count] = notice_of(ep, put, &segment, &notice);
        works[count++] = (regx_verbs_work_t){
            .kind = REGX_WORK_PUT, .slot = segment.slot, .object = put, .what = regx_verbs_sending};
    }
    return regx_sq_post(ep, requests, works, count);
}

/* Moves the line on. What is in the line is ours: a put leaves it before it can be done. */
void regx_verbs_put_take_turn(regx_ep_t *ep)
{
    for (int segments = 0;
         ep->puts.first != NULL && regx_sq_is_open(ep) && segments < TURN_SEGMENTS; segments++) {
        regx_put_t *put = regx_verbs_put_of(ep->puts.first);
        bool posted;
        const regx_status_t status = post_segment(ep, put, &posted);

        if (status == REGX_INVALID) {
            regx_verbs_line_take(&ep->puts);
            put->done(put, REGX_FAILED);
        } else if (status == REGX_AGAIN) {
            break;
        } else if (posted) { /* or refused, and ends with the endpoint's other work */
            regx_verbs_line_take(&ep->puts);
        }
    }
}

regx_status_t regx_verbs_put(regx_conn_t *super, regx_put_t *put)
{
    regx_verbs_conn_t *conn = (regx_verbs_conn_t *)super;
    uint64_t address;
    uint32_t rkey;

    if (put->notice_length > REGX_NOTICE_MAX) {
        return REGX_INVALID;
    }
    regx_status_t status = enter(conn);
    if (status != REGX_OK) {
        return status;
    }
    regx_ep_t *ep = conn->ep;
    if (!destination(ep, put, &address, &rkey)) {
        status = REGX_INVALID;
    } else {
        regx_verbs_line_append(&ep->puts, regx_verbs_put_place(put));
        if (ep->puts.first == regx_verbs_put_place(put)) {
            regx_verbs_put_take_turn(ep);
        }
        wait_if_left(ep);
        status = REGX_PENDING;
    }
    leave(conn);
    return status;
}

/* ---- gets ---- */

/* Whether there is room for it on our side. */
static bool has_place(const regx_get_t *get)
{
    if (get->region == NULL) {
        return false;
    }
    const uint8_t *local = get->local, *base = get->region->base;

    return local >= base && get->length <= get->region->length - (size_t)(local - base);
}

static bool is_allowed(const regx_get_t *get, const regx_verbs_key_t *key)
{
    return get->length > 0 && get->offset <= key->length &&
           get->length <= key->length - get->offset && has_place(get);
}

/* Posts the next segment of a get. There is room. Returns whether it was the last. */
static bool post_read(regx_ep_t *ep, regx_get_t *get)
{
    const regx_verbs_key_t key = regx_verbs_key_unpack(&get->key);
    const size_t posted = regx_verbs_get_place(get)->posted;
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
        .kind = REGX_WORK_GET, .object = last ? get : NULL, .what = "RDMA READ"};

    regx_verbs_get_place(get)->posted += segment.length;
    ep->gets.posted++;
    regx_verbs_count_sent(ep->verbs, segment.length);
    /* Refused: it ends with the rest of the endpoint's work. */
    regx_sq_post(ep, &request, &work, 1);
    return last;
}

void regx_verbs_get_take_turn(regx_ep_t *ep)
{
    while (ep->gets.line.first != NULL && ep->gets.posted < ep->gets.max && regx_sq_is_open(ep) &&
           regx_sq_has_room(ep, 1)) {
        if (post_read(ep, regx_verbs_get_of(ep->gets.line.first))) {
            regx_verbs_line_take(&ep->gets.line);
        }
    }
}

regx_status_t regx_verbs_get(regx_conn_t *super, regx_get_t *get)
{
    regx_verbs_conn_t *conn = (regx_verbs_conn_t *)super;
    const regx_verbs_key_t key = regx_verbs_key_unpack(&get->key);

    if (!is_allowed(get, &key)) {
        return REGX_INVALID;
    }
    regx_status_t status = enter(conn);
    if (status != REGX_OK) {
        return status;
    }
    if (conn->ep->gets.max == 0) { /* one of the two devices does none */
        status = REGX_DENIED;
    } else {
        regx_verbs_line_append(&conn->ep->gets.line, regx_verbs_get_place(get));
        regx_verbs_get_take_turn(conn->ep);
        wait_if_left(conn->ep);
        status = REGX_PENDING;
    }
    leave(conn);
    return status;
}

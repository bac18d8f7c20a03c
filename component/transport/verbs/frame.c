/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Frames. Small ones are carried by their request, others are copied to a slot or sent from the
 * caller's pool memory.
 */
#include "transport/frame.h"
#include "transport/verbs/cm.h"

#define HEADER_MAX 256 /* of a frame; see transport.h */

static const char sending[] = "SEND";

/* Posts a frame from registered memory, in as many segments as it takes. `work` is that of the last
 * one. The send queue has room. */
static regx_status_t post_frame(regx_ep_t *ep, uint8_t tag, const void *data, size_t length,
                                uint32_t lkey, const regx_work_t *work)
{
    struct ibv_send_wr requests[REGX_VERBS_SEGMENTS];
    struct ibv_sge segments[REGX_VERBS_SEGMENTS];
    regx_work_t works[REGX_VERBS_SEGMENTS];
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
            regx_tx_segment(last ? REGX_SEGMENT_LAST : REGX_SEGMENT_MORE, tag, &segments[count]);
        works[count] = last ? *work : (regx_work_t){.kind = REGX_WORK_PLAIN, .what = sending};
        sent += segments[count++].length;
    } while (sent < length);
    regx_count_sent(ep->verbs, length);
    return regx_tx_post(ep, requests, works, count);
}

static unsigned segments_of_frame(size_t length)
{
    return length == 0
               ? 1
               : (unsigned)((length + REGX_VERBS_RECEIVE_SIZE - 1) / REGX_VERBS_RECEIVE_SIZE);
}

regx_status_t regx_verbs_send(regx_conn_t *super, uint8_t tag, const void *header,
                              size_t header_length, regx_pack_t pack, void *pack_context,
                              size_t payload_length)
{
    regx_verbs_conn_t *conn = (regx_verbs_conn_t *)super;
    regx_verbs_t *verbs = regx_verbs_of(super->transport);
    const size_t length = header_length + payload_length;
    uint8_t small[REGX_VERBS_INLINE];
    regx_status_t status;

    if (length > REGX_VERBS_FRAME_MAX || header_length > HEADER_MAX) {
        return REGX_INVALID;
    }
    if (!regx_try_lock_enter(&verbs->try_lock)) {
        return REGX_AGAIN;
    }
    status = regx_cm_ready(conn);
    regx_ep_t *ep = conn->ep;
    if (status == REGX_OK &&
        (ep->puts.first != NULL || !regx_tx_has_room(ep, segments_of_frame(length)))) {
        status = REGX_AGAIN; /* behind the puts in line */
    }
    if (status == REGX_OK && length <= ep->inline_max) {
        regx_frame_fill(small, header, header_length, pack, pack_context, payload_length);
        status = regx_tx_post_inline(ep, REGX_SEGMENT_LAST, tag, small, length);
    } else if (status == REGX_OK) {
        const regx_work_t work = {
            .kind = REGX_WORK_SLOT, .slot = regx_tx_take_slot(ep), .what = sending};

        status = REGX_AGAIN;
        if (work.slot != REGX_SLOT_NONE) {
            uint8_t *room = regx_slot_memory(verbs, work.slot);

            regx_frame_fill(room, header, header_length, pack, pack_context, payload_length);
            status = post_frame(ep, tag, room, length, regx_slot_key(verbs, work.slot), &work);
        }
    }
    regx_try_lock_leave(&verbs->try_lock);
    return status;
}

regx_status_t regx_verbs_send_zcopy(regx_conn_t *super, regx_zcopy_t *zcopy)
{
    regx_verbs_conn_t *conn = (regx_verbs_conn_t *)super;
    regx_verbs_t *verbs = regx_verbs_of(super->transport);
    const regx_work_t work = {.kind = REGX_WORK_ZCOPY, .object = zcopy, .what = sending};
    regx_status_t status;

    if (zcopy->length > REGX_VERBS_ZCOPY_MAX) {
        return REGX_INVALID;
    }
    if (!regx_try_lock_enter(&verbs->try_lock)) {
        return REGX_AGAIN;
    }
    status = regx_cm_ready(conn);
    regx_ep_t *ep = conn->ep;
    if (status == REGX_OK &&
        (ep->puts.first != NULL || !regx_tx_has_room(ep, segments_of_frame(zcopy->length)))) {
        status = REGX_AGAIN;
    }
    if (status == REGX_OK) {
        /* Refused: it is completed with the rest of the endpoint's work. */
        post_frame(ep, zcopy->tag, zcopy->data, zcopy->length, verbs->buffers.pool_mr->lkey, &work);
        status = REGX_PENDING;
    }
    regx_try_lock_leave(&verbs->try_lock);
    return status;
}

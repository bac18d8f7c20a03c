/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Gets: RDMA READs of a peer's registered memory into ours. They have a line of their own, which
 * frames and puts overtake: the peer is not notified, so there is no order to keep.
 */
#include "transport/verbs/cm.h"

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
static bool post_segment(regx_ep_t *ep, regx_get_t *get)
{
    const regx_verbs_key_t key = regx_verbs_key_unpack(&get->key);
    const size_t posted = regx_get_in_line(get)->posted;
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
    const regx_work_t work = {
        .kind = REGX_WORK_GET, .object = last ? get : NULL, .what = "RDMA READ"};

    regx_get_in_line(get)->posted += segment.length;
    ep->gets.posted++;
    regx_count_sent(ep->verbs, segment.length);
    /* Refused: it ends with the rest of the endpoint's work. */
    regx_tx_post(ep, &request, &work, 1);
    return last;
}

void regx_get_take_turn(regx_ep_t *ep)
{
    while (ep->gets.first != NULL && ep->gets.posted < ep->gets.max && regx_tx_is_open(ep) &&
           regx_tx_has_room(ep, 1)) {
        regx_get_t *get = ep->gets.first;

        if (post_segment(ep, get)) {
            ep->gets.first = regx_get_in_line(get)->next;
        }
    }
}

regx_status_t regx_verbs_get(regx_conn_t *super, regx_get_t *get)
{
    regx_verbs_conn_t *conn = (regx_verbs_conn_t *)super;
    regx_verbs_t *verbs = regx_verbs_of(super->transport);
    const regx_verbs_key_t key = regx_verbs_key_unpack(&get->key);

    if (!is_allowed(get, &key)) {
        return REGX_INVALID;
    }
    if (!regx_try_lock_enter(&verbs->try_lock)) {
        return REGX_AGAIN;
    }
    regx_status_t status = regx_cm_ready_to_read(conn);
    if (status == REGX_OK) {
        regx_ep_t *ep = conn->ep;

        *regx_get_in_line(get) = (regx_in_line_t){.next = NULL};
        if (ep->gets.first == NULL) {
            ep->gets.first = get;
        } else {
            regx_get_in_line(ep->gets.last)->next = get;
        }
        ep->gets.last = get;
        regx_get_take_turn(ep);
        if (ep->gets.first != NULL) {
            regx_arbiter_add(&verbs->arbiter, &ep->entry);
        }
        status = REGX_PENDING;
    }
    regx_try_lock_leave(&verbs->try_lock);
    return status;
}

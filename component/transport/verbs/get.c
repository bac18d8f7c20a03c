/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Gets: RDMA READs of a peer's registered memory into ours. They have a line of their own, which
 * frames and puts overtake: nothing is told to the peer, so there is no order to keep.
 */
#include "transport/verbs/internal.h"
#include "transport/verbs/key.h"

enum { SCRATCH_NEXT, SCRATCH_POSTED }; /* of a get: behind it in the line; bytes posted */

static bool is_allowed(const regx_get_t *get, const regx_verbs_key_t *key)
{
    const uint8_t *local = get->local, *base = get->region->base;

    return get->length > 0 && get->offset <= key->length &&
           get->length <= key->length - get->offset && local >= base &&
           get->length <= get->region->length - (size_t)(local - base);
}

/* Posts the next piece of a get. There is room. Returns whether it was the last. */
static bool post_piece(regx_pair_t *pair, regx_get_t *get)
{
    const regx_verbs_key_t key = regx_verbs_key_unpack(&get->key);
    const size_t posted = (size_t)(uintptr_t)get->scratch[SCRATCH_POSTED];
    const size_t left = get->length - posted;
    const bool last = left <= pair->verbs->piece_most;
    struct ibv_sge piece = {.addr = (uintptr_t)get->local + posted,
                            .length = (uint32_t)(last ? left : pair->verbs->piece_most),
                            .lkey = ((const struct ibv_mr *)get->region->handle)->lkey};
    struct ibv_send_wr request = {
        .sg_list = &piece,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_READ,
        .wr.rdma = {.remote_addr = key.base + get->offset + posted, .rkey = key.rkey}};
    const regx_work_t work = {
        .kind = REGX_WORK_GET, .object = last ? get : NULL, .what = "RDMA READ"};

    get->scratch[SCRATCH_POSTED] = (void *)(uintptr_t)(posted + piece.length);
    pair->reads++;
    regx_count_sent(pair->verbs, piece.length);
    regx_post(pair, &request, &work, 1); /* refused: it ends with the rest of the pair's work */
    return last;
}

void regx_get_take_turn(regx_pair_t *pair)
{
    while (pair->first_get != NULL && pair->reads < pair->reads_most &&
           pair->state == REGX_PAIR_READY && regx_post_has_room(pair, 1)) {
        regx_get_t *get = pair->first_get;

        if (post_piece(pair, get)) {
            pair->first_get = get->scratch[SCRATCH_NEXT];
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
    if (!regx_enter(&verbs->entrance)) {
        return REGX_AGAIN;
    }
    regx_status_t status = regx_post_ready(conn);
    regx_pair_t *pair = conn->pair;
    if (status == REGX_OK && pair->reads_most == 0) {
        status = REGX_DENIED;
    } else if (status == REGX_OK) {
        get->scratch[SCRATCH_NEXT] = get->scratch[SCRATCH_POSTED] = NULL;
        if (pair->first_get == NULL) {
            pair->first_get = get;
        } else {
            pair->last_get->scratch[SCRATCH_NEXT] = get;
        }
        pair->last_get = get;
        regx_get_take_turn(pair);
        if (pair->first_get != NULL) {
            regx_turn_await(&verbs->turns, &pair->turn);
        }
        status = REGX_PENDING;
    }
    regx_leave(&verbs->entrance);
    return status;
}

void regx_get_finish(regx_pair_t *pair, regx_get_t *get, regx_status_t status)
{
    pair->reads--;
    if (get != NULL) {
        pair->verbs->events++;
        get->done(get, status);
    }
}

void regx_get_fail(regx_pair_t *pair)
{
    regx_get_t *get = pair->first_get;

    pair->first_get = NULL;
    while (get != NULL) {
        regx_get_t *next = get->scratch[SCRATCH_NEXT];

        get->done(get, REGX_FAILED);
        get = next;
    }
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Fetches: atomic operations of the peer's device, whose answer comes to a slot. None is kept in a
 * line: they go at once, or are refused for now. More of them than the peer answers at once hold up
 * what is posted behind.
 */
#include "transport/verbs/cm.h"

static bool is_allowed(const regx_fetch_t *fetch, const regx_verbs_key_t *key)
{
    return fetch->offset <= key->length && sizeof(uint64_t) <= key->length - fetch->offset &&
           (key->base + fetch->offset) % sizeof(uint64_t) == 0;
}

/* Refused: it ends with the rest of the endpoint's work. */
static void post(regx_ep_t *ep, regx_fetch_t *fetch, const regx_verbs_key_t *key, uint32_t slot)
{
    struct ibv_sge answer = {.addr = (uintptr_t)regx_slot_memory(ep->verbs, slot),
                             .length = sizeof(uint64_t),
                             .lkey = regx_slot_key(ep->verbs, slot)};
    struct ibv_send_wr request = {
        .sg_list = &answer,
        .num_sge = 1,
        .opcode = fetch->swaps ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD,
        .wr.atomic = {.remote_addr = key->base + fetch->offset,
                      .compare_add = fetch->swaps ? fetch->compare : fetch->operand,
                      .swap = fetch->operand,
                      .rkey = key->rkey}};
    const regx_work_t work = {
        .kind = REGX_WORK_FETCH, .slot = slot, .object = fetch, .what = "atomic operation"};

    regx_count_sent(ep->verbs, answer.length);
    regx_tx_post(ep, &request, &work, 1);
}

regx_status_t regx_verbs_fetch(regx_conn_t *super, regx_fetch_t *fetch)
{
    regx_verbs_conn_t *conn = (regx_verbs_conn_t *)super;
    regx_verbs_t *verbs = regx_verbs_of(super->transport);
    const regx_verbs_key_t key = regx_verbs_key_unpack(&fetch->key);

    if (!verbs->can.fetches) {
        return REGX_DENIED;
    }
    if (!is_allowed(fetch, &key)) {
        return REGX_INVALID;
    }
    if (!regx_try_lock_enter(&verbs->try_lock)) {
        return REGX_AGAIN;
    }
    regx_status_t status = regx_cm_ready_to_read(conn);
    if (status == REGX_OK) {
        regx_ep_t *ep = conn->ep;
        const uint32_t slot = regx_tx_has_room(ep, 1) ? regx_tx_take_slot(ep) : REGX_SLOT_NONE;

        status = slot == REGX_SLOT_NONE ? REGX_AGAIN : REGX_PENDING;
        if (slot != REGX_SLOT_NONE) {
            post(ep, fetch, &key, slot);
        }
    }
    regx_try_lock_leave(&verbs->try_lock);
    return status;
}

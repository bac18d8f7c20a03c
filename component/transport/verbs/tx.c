/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/tx.h"

#include <endian.h>
#include <string.h>

#include "transport/verbs/buffers.h"

static const char sending[] = "SEND", writing[] = "RDMA WRITE";

bool regx_tx_has_room(const regx_ep_t *ep, uint64_t requests)
{
    const regx_verbs_t *verbs = ep->verbs;

    return ep->posted - ep->done + requests <= ep->depth &&
           verbs->outstanding + requests <= verbs->outstanding_max;
}

/* Whether a request need not report its end: nobody waits for it. */
static bool may_be_unsignaled(const regx_ep_t *ep, const regx_work_t *work)
{
    const regx_verbs_t *verbs = ep->verbs;
    const bool unawaited =
        work->kind == REGX_WORK_PLAIN ||
        (work->kind == REGX_WORK_SLOT && verbs->unsignaled_slots < REGX_VERBS_SLOTS / 4);

    /* The other half of the depth must hold the longest frame. */
    return unawaited && ep->depth / 2 >= REGX_VERBS_PIECES && ep->unsignaled + 1 < ep->depth / 2 &&
           verbs->unsignaled < verbs->outstanding_max / 2;
}

/* The endpoint's next completion reports all that did not report. */
static void count_signaled(regx_ep_t *ep)
{
    ep->verbs->unsignaled -= ep->unsignaled;
    ep->verbs->unsignaled_slots -= ep->unsignaled_slots;
    ep->unsignaled = ep->unsignaled_slots = 0;
}

regx_status_t regx_tx_post(regx_ep_t *ep, struct ibv_send_wr *requests, const regx_work_t *works,
                           unsigned count)
{
    regx_verbs_t *verbs = ep->verbs;
    struct ibv_send_wr *refused;

    for (unsigned i = 0; i < count; i++) {
        requests[i].wr_id = ep->posted;
        requests[i].next = i + 1 < count ? &requests[i + 1] : NULL;
        if (may_be_unsignaled(ep, &works[i])) {
            const bool slot = works[i].kind == REGX_WORK_SLOT;

            ep->unsignaled++;
            verbs->unsignaled++;
            ep->unsignaled_slots += slot;
            verbs->unsignaled_slots += slot;
        } else {
            requests[i].send_flags |= IBV_SEND_SIGNALED;
            count_signaled(ep);
        }
        ep->works[ep->posted++ % ep->depth] = works[i];
    }
    verbs->outstanding += count;
    ep->used = ++verbs->uses;
    const int error = ibv_post_send(ep->qp, requests, &refused);
    if (error != 0) {
        regx_ep_break_wanted(ep, works[0].what, strerror(error));
        return REGX_UNREACHABLE;
    }
    return REGX_OK;
}

void regx_tx_post_empty(regx_ep_t *ep, const regx_work_t *work)
{
    struct ibv_send_wr request = {
        .opcode = IBV_WR_RDMA_WRITE,
        .wr.rdma = {.remote_addr = ep->peer_pool, .rkey = ep->peer_pool_key}};

    const uint64_t used = ep->used;
    regx_tx_post(ep, &request, work, 1);
    ep->used = used; /* a question is no use of the connection */
}

/* Where there is none, the end of a request that was not reported may have freed one already. */
uint32_t regx_tx_take_slot(regx_ep_t *ep)
{
    static const regx_work_t question = {.kind = REGX_WORK_PROBE, .what = writing};
    const uint32_t slot = regx_slot_take(ep->verbs, ep->slots);

    if (slot != REGX_SLOT_NONE) {
        ep->slots++;
    } else if (ep->unsignaled_slots > 0 && regx_tx_has_room(ep, 1)) {
        regx_tx_post_empty(ep, &question);
    }
    return slot;
}

struct ibv_send_wr regx_tx_piece(regx_piece_t kind, uint8_t tag, struct ibv_sge *data)
{
    return (struct ibv_send_wr){.sg_list = data,
                                .num_sge = data->length > 0 ? 1 : 0,
                                .opcode = IBV_WR_SEND_WITH_IMM,
                                .imm_data = htobe32(regx_piece_pack(kind, tag))};
}

regx_status_t regx_tx_post_inline(regx_ep_t *ep, regx_piece_t kind, uint8_t tag, const void *data,
                                  size_t length)
{
    struct ibv_sge piece = {.addr = (uintptr_t)data, .length = (uint32_t)length};
    struct ibv_send_wr request = regx_tx_piece(kind, tag, &piece);
    const regx_work_t work = {
        .kind = kind == REGX_PIECE_GOODBYE ? REGX_WORK_PROBE : REGX_WORK_PLAIN, .what = sending};

    request.send_flags = length > 0 ? IBV_SEND_INLINE : 0;
    regx_count_sent(ep->verbs, length);
    return regx_tx_post(ep, &request, &work, 1);
}

bool regx_tx_drain(regx_ep_t *ep)
{
    static const regx_work_t question = {.kind = REGX_WORK_PROBE, .what = writing};

    if (ep->unsignaled > 0 && regx_tx_has_room(ep, 1)) {
        regx_tx_post_empty(ep, &question);
    }
    return ep->posted == ep->done;
}

regx_status_t regx_tx_post_goodbye(regx_ep_t *ep)
{
    const bool comes_back = ep->retires && !ep->verbs->closing;

    if (ep->first != NULL || ep->first_get != NULL || !regx_tx_has_room(ep, 1) ||
        (ep->retires && !regx_tx_drain(ep))) {
        return REGX_AGAIN;
    }
    return regx_tx_post_inline(ep, REGX_PIECE_GOODBYE,
                               comes_back ? REGX_GOODBYE_RETIRE : REGX_GOODBYE_LEAVE, NULL, 0);
}

void regx_tx_post_trial(regx_ep_t *ep, enum ibv_wr_opcode operation, struct ibv_sge *piece,
                        uint64_t address, uint32_t rkey)
{
    const regx_work_t work = {.kind = REGX_WORK_PROBE,
                              .what = operation == IBV_WR_RDMA_READ ? "RDMA READ" : writing};
    struct ibv_send_wr request = {.sg_list = piece,
                                  .num_sge = 1,
                                  .opcode = operation,
                                  .wr.rdma = {.remote_addr = address, .rkey = rkey}};

    regx_tx_post(ep, &request, &work, 1);
}

static void give_slot(regx_ep_t *ep, uint32_t slot)
{
    regx_slot_give(ep->verbs, slot, --ep->slots);
}

/* Bytes that were read to a slot. */
static void finish_get(regx_ep_t *ep, const regx_work_t *work, regx_status_t status)
{
    const regx_get_t *get = work->object;

    ep->reads--;
    if (work->slot == REGX_SLOT_NONE) {
        return;
    }
    if (status == REGX_OK) {
        memcpy(get->local, regx_slot_memory(ep->verbs, work->slot), get->length);
    }
    give_slot(ep, work->slot);
}

/* Of one that failed nobody knows whether the peer's memory was changed. It must not be posted again
 * on another queue pair: it might be done twice. */
static void finish_fetch(regx_ep_t *ep, const regx_work_t *work, regx_status_t status)
{
    regx_fetch_t *fetch = work->object;

    if (status == REGX_OK) {
        memcpy(&fetch->result, regx_slot_memory(ep->verbs, work->slot), sizeof(fetch->result));
    }
    give_slot(ep, work->slot);
    ep->verbs->events++;
    fetch->done(fetch, status);
}

static void finish(regx_ep_t *ep, const regx_work_t *work, regx_status_t status)
{
    regx_put_t *put = work->object;
    regx_zcopy_t *zcopy = work->object;
    regx_get_t *get = work->object;

    switch (work->kind) {
    case REGX_WORK_PLAIN:
    case REGX_WORK_PROBE:
        break;
    case REGX_WORK_SLOT:
        give_slot(ep, work->slot);
        break;
    case REGX_WORK_PUT:
        if (work->slot != REGX_SLOT_NONE) {
            give_slot(ep, work->slot);
        }
        ep->verbs->events++;
        put->done(put, status);
        break;
    case REGX_WORK_ZCOPY:
        ep->verbs->events++;
        zcopy->done(zcopy, status);
        break;
    case REGX_WORK_FETCH:
        finish_fetch(ep, work, status);
        break;
    case REGX_WORK_GET:
        finish_get(ep, work, status);
        if (get != NULL) {
            ep->verbs->events++;
            get->done(get, status);
        }
        break;
    }
}

static void end_work(regx_ep_t *ep, uint64_t end, regx_status_t status)
{
    while (ep->done != end) {
        const regx_work_t work = ep->works[ep->done++ % ep->depth];

        if (status == REGX_OK) {
            ep->verbs->outstanding--;
        } else {
            ep->verbs->stale++;
        }
        finish(ep, &work, status);
    }
}

bool regx_tx_touches(const regx_ep_t *ep)
{
    bool touches = ep->first != NULL || ep->first_get != NULL;

    for (uint64_t i = ep->done; i != ep->posted && !touches; i++) {
        touches = ep->works[i % ep->depth].object != NULL;
    }
    return touches;
}

void regx_tx_done(regx_ep_t *ep, uint64_t number)
{
    if (number - ep->done < ep->posted - ep->done) {
        end_work(ep, number + 1, REGX_OK);
    }
}

static void fail_puts(regx_put_t *put)
{
    while (put != NULL) {
        regx_put_t *next = put->scratch[REGX_TX_NEXT];

        put->done(put, REGX_FAILED);
        put = next;
    }
}

static void fail_gets(regx_get_t *get)
{
    while (get != NULL) {
        regx_get_t *next = get->scratch[REGX_TX_NEXT];

        get->done(get, REGX_FAILED);
        get = next;
    }
}

void regx_tx_fail(regx_ep_t *ep)
{
    regx_put_t *put = ep->first;
    regx_get_t *get = ep->first_get;

    ep->first = NULL;
    ep->first_get = NULL;
    count_signaled(ep);
    end_work(ep, ep->posted, REGX_FAILED);
    fail_puts(put);
    fail_gets(get);
}

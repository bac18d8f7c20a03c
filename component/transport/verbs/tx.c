/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/tx.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "base/copy.h"
#include "transport/verbs/buffers.h"

static const char sending[] = "SEND", writing[] = "RDMA WRITE";

/* Whether a request need not report its end: nobody waits for it. */
static bool may_be_unsignaled(const regx_ep_t *ep, const regx_work_t *work)
{
    const regx_verbs_t *verbs = ep->verbs;
    const bool unawaited =
        work->kind == REGX_WORK_PLAIN ||
        (work->kind == REGX_WORK_SLOT && verbs->unsignaled_slots < REGX_VERBS_SLOTS / 4);

    /* The other half of the depth must hold the longest frame. */
    return unawaited && ep->depth / 2 >= REGX_VERBS_SEGMENTS &&
           ep->unsignaled + 1 < ep->depth / 2 && verbs->unsignaled < verbs->outstanding_max / 2;
}

/* The endpoint's next completion reports all that did not report. */
static void count_signaled(regx_ep_t *ep)
{
    assert(ep->verbs->unsignaled >= ep->unsignaled);
    assert(ep->verbs->unsignaled_slots >= ep->unsignaled_slots);
    ep->verbs->unsignaled -= ep->unsignaled;
    ep->verbs->unsignaled_slots -= ep->unsignaled_slots;
    ep->unsignaled = ep->unsignaled_slots = 0;
}

/* Whether the request takes a receive of the peer. */
static bool is_numbered(unsigned opcode)
{
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void note(regx_posted_t *posted, const struct ibv_send_wr *request)
{
    if (request->num_sge > 0) {
        posted->local = request->sg_list->addr;
        posted->lkey = request->sg_list->lkey;
    }
    posted->length = request->num_sge > 0 ? request->sg_list->length : 0;
    posted->immediate = request->imm_data;
    posted->opcode = (uint16_t)request->opcode;
    posted->flags = (uint16_t)(request->send_flags & IBV_SEND_INLINE);
    if (request->opcode != IBV_WR_SEND_WITH_IMM) {
        posted->remote = request->wr.rdma.remote_addr;
        posted->rkey = request->wr.rdma.rkey;
    }
}

/* The device refuses a request, which is noted. REGX_OK: it is posted again by another queue
 * pair. */
static __attribute__((noinline)) regx_status_t fail(regx_ep_t *ep, const char *what, int error)
{
    regx_ep_fail(ep, what, strerror(error));
    if (ep->state != REGX_EP_BROKEN) {
        return REGX_OK;
    }
    regx_ep_want_report(ep);
    return REGX_UNREACHABLE;
}

regx_status_t regx_tx_post(regx_ep_t *ep, struct ibv_send_wr *requests, const regx_work_t *works,
                           unsigned count)
{
    regx_verbs_t *verbs = ep->verbs;
    struct ibv_send_wr *refused;

    assert(regx_tx_has_room(ep, count));
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
        const uint64_t at = ep->posted++ % ep->depth;

        ep->works[at] = works[i];
        if (ep->requests != NULL) {
            ep->numbered += is_numbered(requests[i].opcode);
            note(&ep->requests[at], &requests[i]);
        }
    }
    verbs->outstanding += count;
    assert(verbs->unsignaled <= verbs->outstanding);
    ep->used = ++verbs->uses;
    const int error = ibv_post_send(ep->qp, requests, &refused);
    if (error != 0) {
        return fail(ep, works[0].what, error);
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

struct ibv_send_wr regx_tx_segment(regx_segment_t kind, uint8_t tag, struct ibv_sge *data)
{
    return (struct ibv_send_wr){.sg_list = data,
                                .num_sge = data->length > 0 ? 1 : 0,
                                .opcode = IBV_WR_SEND_WITH_IMM,
                                .imm_data = htobe32(regx_segment_pack(kind, tag))};
}

regx_status_t regx_tx_post_inline(regx_ep_t *ep, regx_segment_t kind, uint8_t tag, const void *data,
                                  size_t length)
{
    struct ibv_sge segment = {.addr = (uintptr_t)data, .length = (uint32_t)length};
    struct ibv_send_wr request; /* what a SEND needs: filling in all of it takes longer */
    const regx_work_t work = {
        .kind = kind == REGX_SEGMENT_GOODBYE ? REGX_WORK_PROBE : REGX_WORK_PLAIN, .what = sending};

    request.sg_list = &segment;
    request.num_sge = length > 0 ? 1 : 0;
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm_data = htobe32(regx_segment_pack(kind, tag));
    request.send_flags = length > 0 ? IBV_SEND_INLINE : 0;
    regx_count_sent(ep->verbs, length);
    return regx_tx_post(ep, &request, &work, 1);
}

/* Whether all that was posted has completed. If nothing will report that, asks. The endpoint is
 * ready. */
static bool is_drained(regx_ep_t *ep)
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
        (ep->retires && !is_drained(ep))) {
        return REGX_AGAIN;
    }
    return regx_tx_post_inline(ep, REGX_SEGMENT_GOODBYE,
                               comes_back ? REGX_GOODBYE_RETIRE : REGX_GOODBYE_LEAVE, NULL, 0);
}

void regx_tx_post_trial(regx_ep_t *ep, enum ibv_wr_opcode operation, struct ibv_sge *segment,
                        uint64_t address, uint32_t rkey)
{
    const regx_work_t work = {.kind = REGX_WORK_PROBE,
                              .what = operation == IBV_WR_RDMA_READ ? "RDMA READ" : writing};
    struct ibv_send_wr request = {.sg_list = segment,
                                  .num_sge = 1,
                                  .opcode = operation,
                                  .wr.rdma = {.remote_addr = address, .rkey = rkey}};

    regx_tx_post(ep, &request, &work, 1);
}

static void give_slot(regx_ep_t *ep, uint32_t slot)
{
    assert(ep->slots > 0);
    regx_slot_give(ep->verbs, slot, --ep->slots);
}

/* Bytes that were read to a slot. */
static void finish_get(regx_ep_t *ep, const regx_work_t *work, regx_status_t status)
{
    const regx_get_t *get = work->object;

    assert(ep->reads > 0);
    ep->reads--;
    if (work->slot == REGX_SLOT_NONE) {
        return;
    }
    if (status == REGX_OK) {
        regx_copy(get->local, regx_slot_memory(ep->verbs, work->slot), get->length);
    }
    give_slot(ep, work->slot);
}

/* Of one that failed nobody knows whether the peer's memory was changed. */
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
    assert(end - ep->done <= ep->posted - ep->done);
    while (ep->done != end) {
        const regx_work_t work = ep->works[ep->done++ % ep->depth];

        assert(ep->verbs->outstanding > ep->verbs->stale);
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

/* How many numbered requests were posted before those that are under way. */
static uint64_t first_number(const regx_ep_t *ep)
{
    uint64_t number = ep->numbered;

    for (uint64_t i = ep->done; i != ep->posted; i++) {
        number -= is_numbered(ep->requests[i % ep->depth].opcode);
    }
    return number;
}

/* Ends requests up to `end`. Not so READs: the peer does not know whether what it answered has
 * come. They stand before `end` then. */
static void settle(regx_ep_t *ep, uint64_t end)
{
    regx_work_t reads[REGX_VERBS_READS];
    regx_posted_t requests[REGX_VERBS_READS];
    uint64_t left = ep->done;
    unsigned count = 0;

    for (uint64_t i = ep->done; i != end; i++) {
        if (ep->works[i % ep->depth].kind == REGX_WORK_GET) {
            reads[count] = ep->works[i % ep->depth];
            requests[count++] = ep->requests[i % ep->depth];
        } else {
            ep->works[left++ % ep->depth] = ep->works[i % ep->depth];
        }
    }
    for (unsigned i = 0; i < count; i++) {
        ep->works[(left + i) % ep->depth] = reads[i];
        ep->requests[(left + i) % ep->depth] = requests[i];
    }
    end_work(ep, left, REGX_OK);
}

bool regx_tx_settle(regx_ep_t *ep, uint64_t handled)
{
    uint64_t number = first_number(ep), end = ep->done;

    if (handled < number || handled > ep->numbered || ep->reads > ep->reads_max) {
        return false;
    }
    count_signaled(ep); /* of the queue pair that failed nothing more is reported */
    for (uint64_t i = ep->done; number != handled; i++) {
        number += is_numbered(ep->requests[i % ep->depth].opcode);
        end = i + 1;
    }
    settle(ep, end);
    return true;
}

/* A put that ends with a WRITE is silent: its receiver may write there as soon as it sees the
 * bytes, which must not come again. */
bool regx_tx_may_repeat(const regx_ep_t *ep)
{
    bool may = true;

    for (uint64_t i = ep->done; i != ep->posted && may; i++) {
        const regx_work_t *work = &ep->works[i % ep->depth];
        const bool writes = ep->requests[i % ep->depth].opcode == IBV_WR_RDMA_WRITE;

        may = work->kind != REGX_WORK_FETCH && !(work->kind == REGX_WORK_PUT && writes);
    }
    return may;
}

void regx_tx_repeat(regx_ep_t *ep)
{
    const regx_verbs_t *verbs = ep->verbs;
    struct ibv_send_wr *refused;
    uint64_t bytes = 0;
    int error = 0;

    for (uint64_t i = ep->done; i != ep->posted && error == 0; i++) {
        const regx_posted_t *posted = &ep->requests[i % ep->depth];
        struct ibv_sge segment = {
            .addr = posted->local, .length = posted->length, .lkey = posted->lkey};
        struct ibv_send_wr request = {
            .wr_id = i,
            .sg_list = &segment,
            .num_sge = posted->length > 0 ? 1 : 0,
            .opcode = (enum ibv_wr_opcode)posted->opcode,
            .send_flags = posted->flags | IBV_SEND_SIGNALED,
            .imm_data = posted->immediate,
            .wr.rdma = {.remote_addr = posted->remote, .rkey = posted->rkey}};

        bytes += posted->length;
        error = ibv_post_send(ep->qp, &request, &refused);
    }
    regx_count_transport(verbs->config.counters, REGX_COUNTER_bytes_resent, bytes);
    if (error != 0) {
        fail(ep, sending, error);
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

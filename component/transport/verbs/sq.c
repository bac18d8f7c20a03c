/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The send queue of an endpoint: work requests and their completion.
 */
#include <assert.h>
#include <endian.h>
#include <string.h>

#include "transport/verbs/ep.h"

const char regx_verbs_sending[] = "SEND", regx_verbs_writing[] = "RDMA WRITE";

/* Whether a request need not report its end: nothing waits for it. */
static bool may_be_unsignaled(const regx_ep_t *ep, const regx_verbs_work_t *work)
{
    const regx_verbs_t *verbs = ep->verbs;
    const bool unawaited =
        work->kind == REGX_WORK_PLAIN ||
        (work->kind == REGX_WORK_SLOT && verbs->requests.unsignaled_slots < REGX_VERBS_SLOTS / 4);

    /* The other half of the depth must hold the longest frame. */
    return unawaited && ep->sq.depth / 2 >= REGX_VERBS_SEGMENTS &&
           ep->sq.unsignaled + 1 < ep->sq.depth / 2 &&
           verbs->requests.unsignaled < verbs->requests.max / 2;
}

/* The endpoint's next completion reports all that did not report. */
static void count_signaled(regx_ep_t *ep)
{
    assert(ep->verbs->requests.unsignaled >= ep->sq.unsignaled);
    assert(ep->verbs->requests.unsignaled_slots >= ep->sq.unsignaled_slots);
    ep->verbs->requests.unsignaled -= ep->sq.unsignaled;
    ep->verbs->requests.unsignaled_slots -= ep->sq.unsignaled_slots;
    ep->sq.unsignaled = ep->sq.unsignaled_slots = 0;
}

regx_status_t regx_sq_post(regx_ep_t *ep, struct ibv_send_wr *requests,
                           const regx_verbs_work_t *works, unsigned count)
{
    regx_verbs_t *verbs = ep->verbs;
    struct ibv_send_wr *refused;

    assert(regx_sq_has_room(ep, count));
    for (unsigned i = 0; i < count; i++) {
        requests[i].wr_id = ep->sq.posted;
        requests[i].next = i + 1 < count ? &requests[i + 1] : NULL;
        if (may_be_unsignaled(ep, &works[i])) {
            const bool slot = works[i].kind == REGX_WORK_SLOT;

            ep->sq.unsignaled++;
            verbs->requests.unsignaled++;
            ep->sq.unsignaled_slots += slot;
            verbs->requests.unsignaled_slots += slot;
        } else {
            requests[i].send_flags |= IBV_SEND_SIGNALED;
            count_signaled(ep);
        }
        ep->sq.works[ep->sq.posted++ % ep->sq.depth] = works[i];
    }
    verbs->requests.outstanding += count;
    assert(verbs->requests.unsignaled <= verbs->requests.outstanding);
    const int error = ibv_post_send(ep->qp, requests, &refused);
    if (error != 0) {
        regx_ep_break(ep, works[0].what, strerror(error));
        return REGX_UNREACHABLE;
    }
    return REGX_OK;
}

void regx_sq_probe(regx_ep_t *ep)
{
    static const regx_verbs_work_t question = {.kind = REGX_WORK_PROBE, .what = regx_verbs_writing};
    struct ibv_send_wr request = {
        .opcode = IBV_WR_RDMA_WRITE,
        .wr.rdma = {.remote_addr = ep->theirs.pool, .rkey = ep->theirs.pool_key}};

    regx_sq_post(ep, &request, &question, 1);
}

/* Where there is none, the end of a request that was not reported may have freed one already. */
uint32_t regx_sq_take_slot(regx_ep_t *ep)
{
    const uint32_t slot = regx_verbs_slot_take(ep->verbs, ep->sq.slots);

    if (slot != REGX_SLOT_NONE) {
        ep->sq.slots++;
    } else if (ep->sq.unsignaled_slots > 0 && regx_sq_has_room(ep, 1)) {
        regx_sq_probe(ep);
    }
    return slot;
}

struct ibv_send_wr regx_sq_segment(regx_verbs_segment_t kind, uint8_t tag, struct ibv_sge *data)
{
    return (struct ibv_send_wr){.sg_list = data,
                                .num_sge = data->length > 0 ? 1 : 0,
                                .opcode = IBV_WR_SEND_WITH_IMM,
                                .imm_data = htobe32(regx_verbs_segment_pack(kind, tag))};
}

regx_status_t regx_sq_post_inline(regx_ep_t *ep, regx_verbs_segment_t kind, uint8_t tag,
                                  const void *data, size_t length)
{
    struct ibv_sge segment = {.addr = (uintptr_t)data, .length = (uint32_t)length};
    struct ibv_send_wr request; /* what a SEND needs: filling in all of it takes longer */
    const regx_verbs_work_t work = {.kind = kind == REGX_SEGMENT_GOODBYE ? REGX_WORK_PROBE
                                                                         : REGX_WORK_PLAIN,
                                    .what = regx_verbs_sending};

    request.sg_list = &segment;
    request.num_sge = length > 0 ? 1 : 0;
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm_data = htobe32(regx_verbs_segment_pack(kind, tag));
    request.send_flags = length > 0 ? IBV_SEND_INLINE : 0;
    regx_verbs_count_sent(ep->verbs, length);
    return regx_sq_post(ep, &request, &work, 1);
}

/* A READ is not behind a goodbye: its answer may have to come again. */
regx_status_t regx_sq_post_goodbye(regx_ep_t *ep)
{
    if (ep->puts.first != NULL || ep->gets.line.first != NULL || ep->gets.posted > 0 ||
        !regx_sq_has_room(ep, 1)) {
        return REGX_AGAIN;
    }
    return regx_sq_post_inline(ep, REGX_SEGMENT_GOODBYE, 0, NULL, 0);
}

static void give_slot(regx_ep_t *ep, uint32_t slot)
{
    assert(ep->sq.slots > 0);
    regx_verbs_slot_give(ep->verbs, slot, --ep->sq.slots);
}

static void finish(regx_ep_t *ep, const regx_verbs_work_t *work, regx_status_t status)
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
    case REGX_WORK_GET:
        assert(ep->gets.posted > 0);
        ep->gets.posted--;
        if (get != NULL) {
            ep->verbs->events++;
            get->done(get, status);
        }
        break;
    }
}

static void end_work(regx_ep_t *ep, uint64_t end, regx_status_t status)
{
    assert(end - ep->sq.done <= ep->sq.posted - ep->sq.done);
    while (ep->sq.done != end) {
        const regx_verbs_work_t work = ep->sq.works[ep->sq.done++ % ep->sq.depth];

        assert(ep->verbs->requests.outstanding > 0);
        ep->verbs->requests.outstanding--;
        finish(ep, &work, status);
    }
}

bool regx_sq_touches(const regx_ep_t *ep)
{
    bool touches = ep->puts.first != NULL || ep->gets.line.first != NULL;

    for (uint64_t i = ep->sq.done; i != ep->sq.posted && !touches; i++) {
        touches = ep->sq.works[i % ep->sq.depth].object != NULL;
    }
    return touches;
}

void regx_sq_done(regx_ep_t *ep, uint64_t number)
{
    if (number - ep->sq.done < ep->sq.posted - ep->sq.done) {
        end_work(ep, number + 1, REGX_OK);
    }
}

void regx_sq_fail(regx_ep_t *ep)
{
    regx_verbs_line_t puts = ep->puts, gets = ep->gets.line;

    ep->puts = ep->gets.line = (regx_verbs_line_t){NULL, NULL};
    count_signaled(ep);
    end_work(ep, ep->sq.posted, REGX_FAILED);
    while (puts.first != NULL) {
        regx_put_t *put = regx_verbs_put_of(regx_verbs_line_take(&puts));

        put->done(put, REGX_FAILED);
    }
    while (gets.first != NULL) {
        regx_get_t *get = regx_verbs_get_of(regx_verbs_line_take(&gets));

        get->done(get, REGX_FAILED);
    }
}

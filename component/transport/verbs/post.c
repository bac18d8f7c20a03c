/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Work requests.
 *
 * A put is one or more RDMA WRITEs, the last with immediate data if that tells the peer enough,
 * else with a SEND of the notice behind it, on the same queue pair: the device delivers either only
 * after what was written before can be seen. The WRITEs read the sender's memory where it is
 * registered (the put's region, or the pool), else slots that it is copied through. A put takes its
 * place in the line when it is accepted; until its last request has been posted, send and lend to
 * the same peer answer REGX_AGAIN (a put may queue up).
 *
 * Requests tell of their end only where somebody waits for it, and one in half of what fits; what
 * tells nothing never is more than half of all, and never holds more than a quarter of the slots,
 * so that the rest always comes back. A pair that gets no slot asks what became of its own.
 */
#include <endian.h>
#include <string.h>

#include "transport/frame.h"
#include "transport/verbs/internal.h"
#include "transport/verbs/key.h"

#define TURN_PIECES 4 /* of copied data per pair and turn */
#define TURN_PAIRS 16

enum { SCRATCH_NEXT, SCRATCH_SENT }; /* of a put: behind it in the line; bytes posted */

#define HEADER_MOST 256 /* of a frame; see transport.h */

static const char sending[] = "SEND", writing[] = "RDMA WRITE";

bool regx_post_has_room(const regx_pair_t *pair, uint64_t requests)
{
    const regx_verbs_t *verbs = pair->verbs;

    return pair->posted - pair->done + requests <= pair->depth &&
           verbs->outstanding + requests <= verbs->outstanding_most;
}

/* Whether a request may keep silent: nobody waits for it. */
static bool may_be_quiet(const regx_pair_t *pair, const regx_work_t *work)
{
    const regx_verbs_t *verbs = pair->verbs;
    const bool unawaited =
        work->kind == REGX_WORK_PLAIN ||
        (work->kind == REGX_WORK_SLOT && verbs->quiet_slots < REGX_VERBS_SLOTS / 4);

    /* The other half of the depth must hold the longest frame. */
    return unawaited && pair->depth / 2 >= REGX_VERBS_PIECES && pair->quiet + 1 < pair->depth / 2 &&
           verbs->quiet < verbs->outstanding_most / 2;
}

/* The pair's next completion tells of all that told nothing. */
static void break_silence(regx_pair_t *pair)
{
    pair->verbs->quiet -= pair->quiet;
    pair->verbs->quiet_slots -= pair->quiet_slots;
    pair->quiet = pair->quiet_slots = 0;
}

regx_status_t regx_post(regx_pair_t *pair, struct ibv_send_wr *requests, const regx_work_t *works,
                        unsigned count)
{
    regx_verbs_t *verbs = pair->verbs;
    struct ibv_send_wr *refused;

    for (unsigned i = 0; i < count; i++) {
        requests[i].wr_id = pair->posted;
        requests[i].next = i + 1 < count ? &requests[i + 1] : NULL;
        if (may_be_quiet(pair, &works[i])) {
            const bool slot = works[i].kind == REGX_WORK_SLOT;

            pair->quiet++;
            verbs->quiet++;
            pair->quiet_slots += slot;
            verbs->quiet_slots += slot;
        } else {
            requests[i].send_flags |= IBV_SEND_SIGNALED;
            break_silence(pair);
        }
        pair->works[pair->posted++ % REGX_PAIR_DEPTH] = works[i];
    }
    verbs->outstanding += count;
    const int error = ibv_post_send(pair->qp, requests, &refused);
    if (error != 0) {
        pair->missed = true;
        regx_pair_break(pair, works[0].what, strerror(error));
        return REGX_UNREACHABLE;
    }
    return REGX_OK;
}

void regx_post_empty(regx_pair_t *pair, const regx_work_t *work)
{
    struct ibv_send_wr request = {
        .opcode = IBV_WR_RDMA_WRITE,
        .wr.rdma = {.remote_addr = pair->peer_pool, .rkey = pair->peer_pool_key}};

    regx_post(pair, &request, work, 1);
}

/* Where there is none, the end of a request that tells nothing may have freed one already. */
static uint32_t take_slot(regx_pair_t *pair)
{
    static const regx_work_t question = {.kind = REGX_WORK_TOLD, .what = writing};
    const uint32_t slot = regx_slot_take(pair);

    if (slot == REGX_SLOT_NOT && pair->quiet_slots > 0 && regx_post_has_room(pair, 1)) {
        regx_post_empty(pair, &question);
    }
    return slot;
}

static struct ibv_send_wr piece_of_frame(regx_piece_t kind, uint8_t tag, struct ibv_sge *data)
{
    return (struct ibv_send_wr){.sg_list = data,
                                .num_sge = data->length > 0 ? 1 : 0,
                                .opcode = IBV_WR_SEND_WITH_IMM,
                                .imm_data = htobe32(regx_piece_pack(kind, tag))};
}

/* Posts a frame from registered memory, in as many pieces as it takes; `work` is that of the last.
 * There is room. */
static regx_status_t post_frame(regx_pair_t *pair, uint8_t tag, const void *data, size_t length,
                                uint32_t lkey, const regx_work_t *work)
{
    struct ibv_send_wr requests[REGX_VERBS_PIECES];
    struct ibv_sge pieces[REGX_VERBS_PIECES];
    regx_work_t works[REGX_VERBS_PIECES];
    unsigned count = 0;
    size_t sent = 0;

    do {
        const size_t left = length - sent;
        const bool last = left <= REGX_VERBS_RECEIVE_SIZE;

        pieces[count] =
            (struct ibv_sge){.addr = (uintptr_t)data + sent,
                             .length = (uint32_t)(last ? left : REGX_VERBS_RECEIVE_SIZE),
                             .lkey = lkey};
        requests[count] =
            piece_of_frame(last ? REGX_PIECE_LAST : REGX_PIECE_MORE, tag, &pieces[count]);
        works[count] = last ? *work : (regx_work_t){.kind = REGX_WORK_PLAIN, .what = sending};
        sent += pieces[count++].length;
    } while (sent < length);
    regx_count_sent(pair->verbs, length);
    return regx_post(pair, requests, works, count);
}

static unsigned pieces_of_frame(size_t length)
{
    return length == 0
               ? 1
               : (unsigned)((length + REGX_VERBS_RECEIVE_SIZE - 1) / REGX_VERBS_RECEIVE_SIZE);
}

/* Posts a small frame that the request carries itself. There is room. */
static regx_status_t post_inline(regx_pair_t *pair, regx_piece_t kind, uint8_t tag,
                                 const void *data, size_t length)
{
    struct ibv_sge piece = {.addr = (uintptr_t)data, .length = (uint32_t)length};
    struct ibv_send_wr request = piece_of_frame(kind, tag, &piece);
    const regx_work_t work = {
        .kind = kind == REGX_PIECE_GOODBYE ? REGX_WORK_GOODBYE : REGX_WORK_PLAIN, .what = sending};

    request.send_flags = IBV_SEND_INLINE;
    regx_count_sent(pair->verbs, length);
    return regx_post(pair, &request, &work, 1);
}

regx_status_t regx_post_ready(regx_verbs_conn_t *conn)
{
    regx_verbs_t *verbs = regx_verbs_of(conn->super.transport);
    regx_pair_t *pair = conn->pair;

    if (pair == NULL) {
        pair = regx_pair_find(verbs, conn->super.peer); /* it may have asked */
        if (pair != NULL && pair->leaving &&
            (pair->parted || (pair->parting && pair->posted != pair->done) ||
             (pair->state == REGX_PAIR_BROKEN && pair->qp != NULL))) {
            return REGX_AGAIN; /* both have left, or it broke, and it ends in a moment; or the
                                * goodbye is under way, and the peer must hear it before it hears
                                * that we are back */
        }
        if (pair != NULL && pair->conn != NULL) {
            return REGX_AGAIN; /* another connection's, which is about to be disconnected */
        }
        if (pair == NULL) {
            pair = regx_pair_new(verbs, conn->super.peer, &conn->address);
        }
        if (pair == NULL) {
            return REGX_AGAIN;
        }
        if (pair->parting && pair->state == REGX_PAIR_READY) {
            regx_pair_return(pair);
        }
        pair->conn = conn;
        pair->leaving = pair->parting = false;
        conn->pair = pair;
    }
    if (pair->state == REGX_PAIR_READY) {
        return REGX_OK;
    }
    if (pair->state == REGX_PAIR_BROKEN) {
        pair->missed = true;
        verbs->broke = true;
        /* First it is told why: what Open MPI does with a message that fails says nothing. */
        return pair->told ? REGX_UNREACHABLE : REGX_AGAIN;
    }
    regx_hello_ask(pair);
    return REGX_AGAIN;
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

    if (length > REGX_VERBS_FRAME_MAX || header_length > HEADER_MOST) {
        return REGX_INVALID;
    }
    if (!regx_enter(&verbs->entrance)) {
        return REGX_AGAIN;
    }
    status = regx_post_ready(conn);
    regx_pair_t *pair = conn->pair;
    if (status == REGX_OK &&
        (pair->first != NULL || !regx_post_has_room(pair, pieces_of_frame(length)))) {
        status = REGX_AGAIN; /* behind the puts in line */
    }
    if (status == REGX_OK && length <= verbs->inline_most) {
        regx_frame_fill(small, header, header_length, pack, pack_context, payload_length);
        status = post_inline(pair, REGX_PIECE_LAST, tag, small, length);
    } else if (status == REGX_OK) {
        const regx_work_t work = {.kind = REGX_WORK_SLOT, .slot = take_slot(pair), .what = sending};

        status = REGX_AGAIN;
        if (work.slot != REGX_SLOT_NOT) {
            uint8_t *room = regx_buffer_slot(verbs, work.slot);

            regx_frame_fill(room, header, header_length, pack, pack_context, payload_length);
            status = post_frame(pair, tag, room, length, verbs->buffers.mr->lkey, &work);
        }
    }
    regx_leave(&verbs->entrance);
    return status;
}

regx_status_t regx_verbs_lend(regx_conn_t *super, regx_lend_t *lend)
{
    regx_verbs_conn_t *conn = (regx_verbs_conn_t *)super;
    regx_verbs_t *verbs = regx_verbs_of(super->transport);
    const regx_work_t work = {.kind = REGX_WORK_LEND, .object = lend, .what = sending};
    regx_status_t status;

    if (lend->length > REGX_VERBS_LEND_MAX) {
        return REGX_INVALID;
    }
    if (!regx_enter(&verbs->entrance)) {
        return REGX_AGAIN;
    }
    status = regx_post_ready(conn);
    regx_pair_t *pair = conn->pair;
    if (status == REGX_OK &&
        (pair->first != NULL || !regx_post_has_room(pair, pieces_of_frame(lend->length)))) {
        status = REGX_AGAIN;
    }
    if (status == REGX_OK) {
        /* Refused: it is completed with the rest of the pair's work. */
        post_frame(pair, lend->tag, lend->data, lend->length, verbs->pool_mr->lkey, &work);
        status = REGX_PENDING;
    }
    regx_leave(&verbs->entrance);
    return status;
}

regx_status_t regx_post_goodbye(regx_pair_t *pair)
{
    if (pair->first != NULL || !regx_post_has_room(pair, 1)) {
        return REGX_AGAIN;
    }
    return post_inline(pair, REGX_PIECE_GOODBYE, 0, NULL, 0);
}

static size_t sent_of(const regx_put_t *put)
{
    return (size_t)(uintptr_t)put->scratch[SCRATCH_SENT];
}

/* Where in the peer's memory a put begins, and by which key. false: outside of what it has. */
static bool destination(const regx_pair_t *pair, const regx_put_t *put, uint64_t *address,
                        uint32_t *rkey)
{
    regx_verbs_key_t key = {pair->peer_pool, pair->peer_pool_size, pair->peer_pool_key};

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
    *lkey = verbs->pool_mr->lkey;
    return local >= pool && local < pool + verbs->super.pool_size &&
           put->length <= (size_t)(pool + verbs->super.pool_size - local);
}

/* Posts the notice of a put, behind `before` requests that are filled already. */
static regx_status_t post_with_notice(regx_pair_t *pair, regx_put_t *put,
                                      struct ibv_send_wr requests[2], regx_work_t works[2],
                                      unsigned before)
{
    struct ibv_sge notice = {.addr = (uintptr_t)put->notice, .length = put->notice_length};

    requests[before] = piece_of_frame(REGX_PIECE_LAST, put->tag, &notice);
    requests[before].send_flags = IBV_SEND_INLINE;
    works[before] =
        (regx_work_t){.kind = REGX_WORK_PUT, .slot = REGX_SLOT_NOT, .object = put, .what = sending};
    return regx_post(pair, requests, works, before + 1);
}

/* Posts the next piece of a put, the last with the notice. REGX_OK, REGX_AGAIN: no room,
 * REGX_UNREACHABLE; REGX_INVALID: it leads outside of the peer's memory. `posted` tells whether
 * the notice was. */
static regx_status_t post_piece(regx_pair_t *pair, regx_put_t *put, bool *posted)
{
    regx_verbs_t *verbs = pair->verbs;
    const size_t sent = sent_of(put), left = put->length - sent;
    const uint8_t *from = (const uint8_t *)put->local + sent;
    struct ibv_send_wr requests[2] = {0};
    regx_work_t works[2];
    uint64_t address;
    uint32_t rkey, lkey;
    const bool staged = !local_key(verbs, put, &lkey);
    const uint64_t most = staged ? REGX_VERBS_FRAME_MAX & ~4095u : verbs->piece_most;
    const bool last = left <= most;

    *posted = last;
    if (!destination(pair, put, &address, &rkey)) {
        return REGX_INVALID;
    }
    if (!regx_post_has_room(pair, last ? 2 : 1)) {
        return REGX_AGAIN;
    }
    if (left == 0) {
        return post_with_notice(pair, put, requests, works, 0);
    }
    works[0] = (regx_work_t){.kind = REGX_WORK_PLAIN, .slot = REGX_SLOT_NOT, .what = writing};
    struct ibv_sge piece = {.length = (uint32_t)(last ? left : most), .lkey = lkey};
    if (staged) {
        works[0].kind = REGX_WORK_SLOT;
        works[0].slot = take_slot(pair);
        if (works[0].slot == REGX_SLOT_NOT) {
            return REGX_AGAIN;
        }
        memcpy(regx_buffer_slot(verbs, works[0].slot), from, piece.length);
        from = regx_buffer_slot(verbs, works[0].slot);
        piece.lkey = verbs->buffers.mr->lkey;
    }
    piece.addr = (uintptr_t)from;
    requests[0] = (struct ibv_send_wr){.sg_list = &piece,
                                       .num_sge = 1,
                                       .opcode = IBV_WR_RDMA_WRITE,
                                       .wr.rdma = {.remote_addr = address + sent, .rkey = rkey}};
    put->scratch[SCRATCH_SENT] = (void *)(uintptr_t)(sent + piece.length);
    regx_count_sent(verbs, piece.length);
    if (last && put->immediate != 0) {
        requests[0].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        requests[0].imm_data = htobe32(regx_piece_pack(REGX_PIECE_WRITTEN, put->immediate));
        works[0].kind = REGX_WORK_PUT;
        works[0].object = put;
        return regx_post(pair, requests, works, 1);
    }
    return last ? post_with_notice(pair, put, requests, works, 1)
                : regx_post(pair, requests, works, 1);
}

void regx_post_trial(regx_pair_t *pair, enum ibv_wr_opcode operation, struct ibv_sge *piece,
                     uint64_t address, uint32_t rkey)
{
    const regx_work_t work = {.kind = REGX_WORK_TOLD,
                              .what = operation == IBV_WR_RDMA_READ ? "RDMA READ" : writing};
    struct ibv_send_wr request = {.sg_list = piece,
                                  .num_sge = 1,
                                  .opcode = operation,
                                  .wr.rdma = {.remote_addr = address, .rkey = rkey}};

    regx_post(pair, &request, &work, 1);
}

/* Moves the line on. What is in the line is ours: a put leaves it before it can be done. */
static void take_turn(regx_pair_t *pair)
{
    for (int pieces = 0; pair->first != NULL && pieces < TURN_PIECES; pieces++) {
        regx_put_t *put = pair->first;
        bool posted;
        const regx_status_t status = post_piece(pair, put, &posted);

        if (status == REGX_INVALID) {
            pair->first = put->scratch[SCRATCH_NEXT];
            put->done(put, REGX_FAILED);
        } else if (status == REGX_AGAIN) {
            break;
        } else if (posted) { /* or refused with the pair's other work, which then completes it */
            pair->first = put->scratch[SCRATCH_NEXT];
        }
        if (pair->state == REGX_PAIR_BROKEN) {
            break;
        }
    }
}

static regx_pair_t *pair_of(regx_turn_t *turn)
{
    return (regx_pair_t *)((char *)turn - offsetof(regx_pair_t, turn));
}

void regx_post_turns(regx_verbs_t *verbs)
{
    for (int turns = 0; turns < TURN_PAIRS && verbs->turns.first != NULL; turns++) {
        const bool last = verbs->turns.first == verbs->turns.last;
        regx_pair_t *pair = pair_of(regx_turn_take(&verbs->turns));

        if (pair->state == REGX_PAIR_READY) {
            take_turn(pair);
            regx_get_take_turn(pair);
        }
        if ((pair->first != NULL || pair->first_get != NULL) && pair->state != REGX_PAIR_BROKEN) {
            regx_turn_await(&verbs->turns, &pair->turn);
        }
        if (last) {
            break; /* everybody had a turn */
        }
    }
}

regx_status_t regx_verbs_put(regx_conn_t *super, regx_put_t *put)
{
    regx_verbs_conn_t *conn = (regx_verbs_conn_t *)super;
    regx_verbs_t *verbs = regx_verbs_of(super->transport);
    uint64_t address;
    uint32_t rkey;

    if (put->notice_length > REGX_NOTICE_MAX) {
        return REGX_INVALID;
    }
    if (!regx_enter(&verbs->entrance)) {
        return REGX_AGAIN;
    }
    regx_status_t status = regx_post_ready(conn);
    regx_pair_t *pair = conn->pair;
    if (status == REGX_OK && !destination(pair, put, &address, &rkey)) {
        status = REGX_INVALID;
    } else if (status != REGX_UNREACHABLE && pair != NULL &&
               pair->state != REGX_PAIR_RETURNING) { /* that one may be given up, line and all */
        put->scratch[SCRATCH_NEXT] = NULL;
        put->scratch[SCRATCH_SENT] = NULL;
        if (pair->first == NULL) {
            pair->first = put;
        } else {
            pair->last->scratch[SCRATCH_NEXT] = put;
        }
        pair->last = put;
        if (status == REGX_OK && pair->first == put) {
            take_turn(pair);
        }
        if (pair->first != NULL) {
            regx_turn_await(&verbs->turns, &pair->turn);
        }
        status = REGX_PENDING;
    }
    regx_leave(&verbs->entrance);
    return status;
}

static void finish(regx_pair_t *pair, const regx_work_t *work, regx_status_t status)
{
    regx_put_t *put = work->object;
    regx_lend_t *lend = work->object;

    switch (work->kind) {
    case REGX_WORK_PLAIN:
    case REGX_WORK_GOODBYE:
    case REGX_WORK_TOLD:
        break;
    case REGX_WORK_SLOT:
        regx_slot_give(pair, work->slot);
        break;
    case REGX_WORK_PUT:
        if (work->slot != REGX_SLOT_NOT) {
            regx_slot_give(pair, work->slot);
        }
        pair->verbs->events++;
        put->done(put, status);
        break;
    case REGX_WORK_LEND:
        pair->verbs->events++;
        lend->done(lend, status);
        break;
    case REGX_WORK_GET:
        regx_get_finish(pair, work->object, status);
        break;
    }
}

static void end_work(regx_pair_t *pair, uint64_t end, regx_status_t status)
{
    while (pair->done != end) {
        const regx_work_t work = pair->works[pair->done++ % REGX_PAIR_DEPTH];

        if (status == REGX_OK) {
            pair->verbs->outstanding--;
        } else {
            pair->verbs->stale++;
        }
        finish(pair, &work, status);
    }
}

bool regx_post_touches(const regx_pair_t *pair)
{
    bool touches = pair->first != NULL || pair->first_get != NULL;

    for (uint64_t i = pair->done; i != pair->posted && !touches; i++) {
        touches = pair->works[i % REGX_PAIR_DEPTH].object != NULL;
    }
    return touches;
}

void regx_post_done(regx_pair_t *pair, uint64_t number)
{
    if (number - pair->done < pair->posted - pair->done) {
        end_work(pair, number + 1, REGX_OK);
    }
}

void regx_post_fail(regx_pair_t *pair)
{
    regx_put_t *put = pair->first;

    pair->first = NULL;
    break_silence(pair);
    end_work(pair, pair->posted, REGX_FAILED);
    while (put != NULL) {
        regx_put_t *next = put->scratch[SCRATCH_NEXT];

        put->done(put, REGX_FAILED);
        put = next;
    }
    regx_get_fail(pair);
}

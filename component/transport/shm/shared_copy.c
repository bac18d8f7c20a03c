/* SPDX-License-Identifier: BSD-3-Clause */

#include "transport/shm/shm_internal.h"

/* Looks at a piece that the peer has not ended, before the kernel is asked whether the peer
 * lives. */
#define LOOKS 1024u

/* ---- the claim cell ---- */

static uint64_t pack(uint32_t high, uint32_t low)
{
    return (uint64_t)high << 32 | low;
}

static uint32_t units_of(uint64_t word)
{
    return (uint32_t)word & REGX_CLAIM_UNITS;
}

void regx_claim_open(regx_claim_cell_t *cell, uint32_t number)
{
    atomic_store_explicit(&cell->word, pack(number, 0), memory_order_release);
}

regx_status_t regx_claim_take(regx_claim_cell_t *cell, uint32_t number, uint64_t length,
                              regx_claim_side_t side, regx_claim_piece_t *piece)
{
    const uint32_t units = regx_claim_units(length);
    uint64_t seen = regx_claim_look(cell);

    if (seen >> 32 == number && (seen & side) != 0) { /* this side has left that piece */
        regx_claim_end(cell, side, false);
        seen = regx_claim_look(cell);
    }
    for (;;) {
        const uint32_t at = units_of(seen);

        if (seen >> 32 != number || at > units) {
            return REGX_INVALID;
        }
        if (at == units) {
            return REGX_AGAIN;
        }
        const uint32_t more =
            regx_claim_units(regx_claim_piece((uint64_t)(units - at) * REGX_CLAIM_PAGE));

        if (atomic_compare_exchange_weak_explicit(&cell->word, &seen, (seen + more) | side,
                                                  memory_order_acq_rel, memory_order_acquire)) {
            const uint64_t first = number % 2 != 0 ? units - at - more : at; /* odd: from the end */

            piece->begin = first * REGX_CLAIM_PAGE;
            piece->end = regx_min((first + more) * REGX_CLAIM_PAGE, length);
            return REGX_OK;
        }
    }
}

void regx_claim_end(regx_claim_cell_t *cell, regx_claim_side_t side, bool copied)
{
    if (!copied) {
        atomic_fetch_or_explicit(&cell->word, REGX_CLAIM_FAILED, memory_order_relaxed);
    }
    atomic_fetch_and_explicit(&cell->word, ~(uint64_t)side, memory_order_release);
}

void regx_shared_copies_init(regx_shared_copies_t *copies)
{
    for (uint32_t i = REGX_SHARED_COPIES; i > 0; i--) {
        regx_shared_copy_t *copy = &copies->gets[i - 1];

        copy->cell = i - 1;
        copy->next_free = copies->free;
        copies->free = copy;
    }
}

/* ---- the receiver ---- */

static regx_shm_t *shm_of(const regx_shared_copy_t *copy)
{
    return regx_shm_of(copy->conn->super.transport);
}

static regx_claim_cell_t *cell_of(const regx_shared_copy_t *copy)
{
    return &regx_shm_main(shm_of(copy))->cells[copy->cell];
}

/* The get is a plain one from now on. */
static void give_cell(regx_shm_t *shm, regx_shared_copy_t *copy)
{
    copy->get->pending.shared = NULL;
    atomic_signal_fence(memory_order_seq_cst); /* in this order, wherever the program leaves MPI */
    regx_lock(&shm->lock);
    copy->next_free = shm->shared_copies.free;
    shm->shared_copies.free = copy;
    regx_unlock(&shm->lock);
}

static bool peer_is_busy(const regx_shm_conn_t *conn)
{
    return atomic_load_explicit(&conn->peer.main->busy, memory_order_relaxed) != 0;
}

regx_shared_copy_t *regx_shared_copy_ask_locked(regx_shm_conn_t *conn, regx_get_t *get)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);
    const uintptr_t local = (uintptr_t)get->local;
    bool from_end = false;

    /* Whether the peer is worth asking, and can write to this process. A get of one's own process would
     * be copied by the same one. */
    if (get->length < REGX_SHARED_COPY_MIN || get->length > REGX_CLAIM_MAX ||
        conn->super.peer == shm->config.self || shm->super.forked || peer_is_busy(conn)) {
        return NULL;
    }
    regx_lock(&shm->lock);
    regx_shared_copy_t *copy = shm->shared_copies.free;
    if (copy != NULL) {
        shm->shared_copies.free = copy->next_free;
        from_end = regx_shm_from_end_locked(conn, get->length);
    }
    regx_unlock(&shm->lock);
    if (copy == NULL) {
        return NULL;
    }
    /* The next number of the cell's use is odd if the copy goes from the end on. The half that is
     * divided begins with a page of the destination. */
    const uint32_t next = copy->number + 1;
    *copy = (regx_shared_copy_t){.get = get,
                                 .conn = conn,
                                 .half = regx_align_up(local + get->length / 2, REGX_CLAIM_PAGE) -
                                         local,
                                 .cell = copy->cell,
                                 .number = next + (next % 2 != from_end),
                                 .from_end = from_end};
    const regx_shared_copy_frame_t frame = {.cell = copy->cell,
                                            .number = copy->number,
                                            .local = local + copy->half,
                                            .remote = regx_shm_key_unpack(&get->key).address +
                                                      get->offset + copy->half,
                                            .length = get->length - copy->half};

    regx_claim_open(cell_of(copy), copy->number);
    if (regx_mailbox_post_line(&conn->out, REGX_FRAME_SHARED_COPY, 0, &frame, sizeof(frame)) !=
        REGX_OK) {
        give_cell(shm, copy);
        return NULL;
    }
    return copy;
}

static uint64_t rest_of(const regx_shared_copy_t *copy)
{
    return copy->get->length - copy->half;
}

bool regx_shared_copy_withdraw(regx_shared_copy_t *copy)
{
    uint64_t untouched = pack(copy->number, 0);

    /* Takes the whole range, if nothing of it is claimed. */
    if (copy->read > 0 || !peer_is_busy(copy->conn) ||
        !atomic_compare_exchange_strong_explicit(
            &cell_of(copy)->word, &untouched,
            pack(copy->number, regx_claim_units(rest_of(copy)) | REGX_CLAIM_BY_RECEIVER),
            memory_order_acq_rel, memory_order_relaxed)) {
        return false;
    }
    copy->conn->assisted = false;
    copy->get->pending.from_end = copy->from_end;
    give_cell(shm_of(copy), copy);
    return true;
}

bool regx_shared_copy_read(regx_shared_copy_t *copy, size_t *copied)
{
    regx_shm_t *shm = shm_of(copy);
    regx_claim_cell_t *cell = cell_of(copy);
    const uint64_t left = copy->half - copy->read;
    regx_claim_piece_t piece;

    *copied = 0;
    if (copy->status != REGX_OK) {
        return false;
    }
    if (left > 0) {
        const uint64_t length = regx_claim_piece(left);

        piece.begin = copy->from_end ? left - length : copy->read;
        piece.end = piece.begin + length;
    } else { /* what is not claimed of the second half */
        const regx_status_t status =
            regx_claim_take(cell, copy->number, rest_of(copy), REGX_CLAIM_BY_RECEIVER, &piece);

        if (status == REGX_INVALID) {
            regx_count_malformed(shm->config.counters);
            copy->status = REGX_FAILED;
        }
        if (status != REGX_OK) {
            return false;
        }
        piece.begin += copy->half;
        piece.end += copy->half;
    }
    const uint64_t length = piece.end - piece.begin;
    copy->status = regx_shm_copy_part(shm, &copy->get->pending, piece.begin, length);
    if (copy->status != REGX_OK) {
        return false;
    }
    if (left > 0) {
        copy->read += length;
    } else {
        copy->mine += regx_claim_units(length);
        regx_claim_end(cell, REGX_CLAIM_BY_RECEIVER, true);
    }
    regx_count(shm->config.counters, &shm->config.counters->chunks_receiver, 1);
    *copied = length;
    return copy->read < copy->half ||
           units_of(regx_claim_look(cell)) != regx_claim_units(rest_of(copy));
}

bool regx_shared_copy_pass_over(regx_shared_copy_t *copy)
{
    if (copy->passed_over || copy->read < copy->half || !copy->conn->assisted) {
        return false;
    }
    copy->passed_over = true;
    return true;
}

regx_status_t regx_shared_copy_end(regx_shared_copy_t *copy)
{
    regx_shm_t *shm = shm_of(copy);
    regx_claim_cell_t *cell = cell_of(copy);
    regx_claim_piece_t rest;

    /* Leaves nothing to claim, if the get has failed before its end. */
    while (regx_claim_take(cell, copy->number, rest_of(copy), REGX_CLAIM_BY_RECEIVER, &rest) ==
           REGX_OK) {
    }
    const uint64_t seen = regx_claim_look(cell);
    if (seen >> 32 != copy->number || units_of(seen) != regx_claim_units(rest_of(copy))) {
        regx_count_malformed(shm->config.counters);
        copy->status = REGX_FAILED;
    } else if ((seen & REGX_CLAIM_BY_PEER) != 0) { /* its piece is under way, if it lives */
        if (++copy->looks % LOOKS != 0 || !regx_vm_gone(&copy->conn->peer.vm)) {
            return REGX_AGAIN;
        }
        copy->status = REGX_FAILED;
    } else if (copy->status == REGX_OK && (seen & REGX_CLAIM_FAILED) != 0) {
        /* Whether it was the memory, or the peer is refused to copy, this process finds out itself. */
        copy->status = regx_shm_copy_part(shm, &copy->get->pending, copy->half, rest_of(copy));
    }
    copy->conn->assisted = copy->mine < regx_claim_units(rest_of(copy));
    const regx_status_t status = copy->status;

    copy->get->pending.moved = status == REGX_OK ? copy->get->length : 0;
    give_cell(shm, copy);
    return status;
}

void regx_shared_copy_revoke(regx_shared_copy_t *copy)
{
    const struct timespec pause = {.tv_nsec = 20000};

    copy->status = REGX_FAILED;
    while (regx_shared_copy_end(copy) == REGX_AGAIN) {
        nanosleep(&pause, NULL);
    }
}

/* ---- the peer ---- */

static regx_claim_cell_t *cell_at(const regx_shared_copy_request_t *request)
{
    return &request->from->peer.main->cells[request->frame.cell];
}

static regx_shared_copy_request_t *request_at(regx_shared_copies_t *copies, unsigned i)
{
    return &copies->requests[i % REGX_SHARED_COPY_REQUESTS];
}

/* The cell's word without its number; all is claimed if the cell is in another use. */
static uint32_t state_of(const regx_shared_copy_request_t *request)
{
    const uint64_t seen = request->from != NULL ? regx_claim_look(cell_at(request)) : 0;

    return request->from != NULL && seen >> 32 == request->frame.number ? (uint32_t)seen
                                                                        : REGX_CLAIM_UNITS;
}

static void drop_first(regx_shm_t *shm)
{
    shm->shared_copies.dropped++;
    regx_shm_count_copies(shm, -1);
}

/* The oldest of which something is left, or that this process holds a piece of: one that it has left.
 * NULL: there is none. Forgets those before. */
static regx_shared_copy_request_t *choose(regx_shm_t *shm)
{
    regx_shared_copies_t *copies = &shm->shared_copies;

    for (; regx_shared_copies_asked(copies) > 0; drop_first(shm)) {
        regx_shared_copy_request_t *request = request_at(copies, copies->dropped);
        const uint32_t state = state_of(request);

        if ((state & REGX_CLAIM_BY_PEER) != 0 ||
            units_of(state) < regx_claim_units(request->frame.length)) {
            return request;
        }
    }
    return NULL;
}

regx_status_t regx_shared_copy_take(regx_shm_t *shm, regx_shm_inbound_t *inbound, const void *data,
                                    size_t length)
{
    regx_shared_copies_t *copies = &shm->shared_copies;
    regx_shared_copy_request_t request = {.from = inbound};

    if (length != sizeof(request.frame)) {
        return REGX_INVALID;
    }
    memcpy(&request.frame, data, sizeof(request.frame));
    if (request.frame.cell >= REGX_SHARED_COPIES || request.frame.length == 0 ||
        request.frame.length > REGX_CLAIM_MAX ||
        request.frame.local > UINT64_MAX - request.frame.length ||
        request.frame.remote > UINT64_MAX - request.frame.length) {
        return REGX_INVALID;
    }
    if (regx_shared_copies_asked(copies) == REGX_SHARED_COPY_REQUESTS) {
        choose(shm); /* forgets what is of no use any more */
    }
    if (regx_shared_copies_asked(copies) < REGX_SHARED_COPY_REQUESTS &&
        regx_shm_may_copy(shm, &inbound->peer)) {
        regx_shm_count_copies(shm, 1);
        *request_at(copies, copies->taken) = request;
        atomic_signal_fence(memory_order_release);
        copies->taken++;
    }
    return REGX_OK;
}

bool regx_shared_copy_write(regx_shm_t *shm)
{
    regx_shared_copy_request_t *request = choose(shm);
    regx_claim_piece_t claim;

    if (request == NULL ||
        regx_claim_take(cell_at(request), request->frame.number, request->frame.length,
                        REGX_CLAIM_BY_PEER, &claim) != REGX_OK) {
        return false;
    }
    regx_shm_inbound_t *inbound = request->from;
    const regx_shm_piece_t piece = {.neighbour = &inbound->peer,
                                    .direction = REGX_COPY_TO_PEER,
                                    .local =
                                        (char *)(uintptr_t)(request->frame.remote + claim.begin),
                                    .remote = request->frame.local + claim.begin,
                                    .length = claim.end - claim.begin};
    const regx_status_t status = regx_shm_piece_copy(shm, piece);
    regx_claim_end(cell_at(request), REGX_CLAIM_BY_PEER, status == REGX_OK);
    if (status == REGX_OK) {
        regx_count(shm->config.counters, &shm->config.counters->chunks_sender, 1);
    } else if (status == REGX_DENIED) {
        regx_shared_copy_forget(shm, inbound);
    } else {
        drop_first(shm);
    }
    return true;
}

void regx_shared_copy_forget(regx_shm_t *shm, const regx_shm_inbound_t *inbound)
{
    regx_shared_copies_t *copies = &shm->shared_copies;

    for (unsigned i = copies->dropped; i != copies->taken; i++) {
        regx_shared_copy_request_t *request = request_at(copies, i);

        if (request->from == inbound) {
            if ((state_of(request) & REGX_CLAIM_BY_PEER) != 0) {
                regx_claim_end(cell_at(request), REGX_CLAIM_BY_PEER, false);
            }
            request->from = NULL;
        }
    }
}

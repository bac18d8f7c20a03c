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

void regx_claim_open(regx_claim_cell_t *cell, uint32_t number)
{
    atomic_store_explicit(&cell->failed, false, memory_order_relaxed);
    atomic_store_explicit(&cell->ended, 0, memory_order_relaxed);
    atomic_store_explicit(&cell->claimed, pack(number, 0), memory_order_release);
}

regx_status_t regx_claim_take(regx_claim_cell_t *cell, uint32_t number, uint64_t length,
                              regx_claim_piece_t *piece)
{
    const uint32_t units = regx_claim_units(length);
    uint64_t seen = atomic_load_explicit(&cell->claimed, memory_order_acquire);

    for (;;) {
        const uint32_t at = (uint32_t)seen;

        if (seen >> 32 != number || at > units) {
            return REGX_INVALID;
        }
        if (at == units) {
            return REGX_AGAIN;
        }
        const uint32_t end =
            at + regx_claim_units(regx_claim_piece((uint64_t)(units - at) * REGX_CLAIM_PAGE));

        if (atomic_compare_exchange_weak_explicit(&cell->claimed, &seen, pack(number, end),
                                                  memory_order_acq_rel, memory_order_acquire)) {
            const uint64_t first = number % 2 != 0 ? units - end : at; /* odd: from the end on */

            piece->begin = first * REGX_CLAIM_PAGE;
            piece->end = regx_min((first + end - at) * REGX_CLAIM_PAGE, length);
            return REGX_OK;
        }
    }
}

uint32_t regx_claim_close(regx_claim_cell_t *cell, uint32_t number, uint64_t length)
{
    return (uint32_t)atomic_exchange_explicit(
        &cell->claimed, pack(number, regx_claim_units(length)), memory_order_acq_rel);
}

void regx_claim_end(regx_claim_cell_t *cell, const regx_claim_piece_t *piece, bool copied)
{
    if (!copied) {
        atomic_store_explicit(&cell->failed, true, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&cell->ended, regx_claim_units(piece->end - piece->begin),
                              memory_order_release);
}

/* How many units are claimed. UINT32_MAX: the cell is in another use. */
static uint32_t units_claimed(const regx_claim_cell_t *cell, uint32_t number)
{
    const uint64_t claimed = atomic_load_explicit(&cell->claimed, memory_order_acquire);

    return claimed >> 32 == number ? (uint32_t)claimed : UINT32_MAX;
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

static void give_cell(regx_shm_t *shm, regx_shared_copy_t *copy)
{
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
            &cell_of(copy)->claimed, &untouched,
            pack(copy->number, regx_claim_units(rest_of(copy))), memory_order_acq_rel,
            memory_order_relaxed)) {
        return false;
    }
    copy->conn->assisted = false;
    give_cell(shm_of(copy), copy);
    return true;
}

bool regx_shared_copy_read(regx_shared_copy_t *copy, size_t *copied)
{
    regx_shm_t *shm = shm_of(copy);
    const uint64_t left = copy->half - copy->read;
    regx_claim_piece_t piece;

    *copied = 0;
    if (left > 0) {
        const uint64_t length = regx_claim_piece(left);

        piece.begin = copy->from_end ? left - length : copy->read;
        piece.end = piece.begin + length;
        copy->read += length;
    } else { /* what is not claimed of the second half */
        const regx_status_t status =
            regx_claim_take(cell_of(copy), copy->number, rest_of(copy), &piece);

        if (status == REGX_INVALID) {
            regx_count_malformed(shm->config.counters);
            copy->status = REGX_FAILED;
        }
        if (status != REGX_OK) {
            return false;
        }
        copy->mine += regx_claim_units(piece.end - piece.begin);
        piece.begin += copy->half;
        piece.end += copy->half;
    }
    copy->status =
        regx_shm_copy_part(shm, &copy->get->pending, piece.begin, piece.end - piece.begin);
    if (copy->status != REGX_OK) {
        return false;
    }
    regx_count(shm->config.counters, &shm->config.counters->chunks_receiver, 1);
    *copied = piece.end - piece.begin;
    return copy->read < copy->half ||
           units_claimed(cell_of(copy), copy->number) != regx_claim_units(rest_of(copy));
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

    if (!copy->closed) {
        const uint32_t claimed = regx_claim_close(cell, copy->number, rest_of(copy));

        copy->closed = true;
        if (claimed < copy->mine || claimed > regx_claim_units(rest_of(copy))) {
            regx_count_malformed(shm->config.counters);
            copy->status = REGX_FAILED;
        } else {
            copy->theirs = claimed - copy->mine;
        }
    }
    const uint32_t ended = atomic_load_explicit(&cell->ended, memory_order_acquire);
    if (ended > copy->theirs) {
        regx_count_malformed(shm->config.counters);
        copy->status = REGX_FAILED;
    } else if (ended < copy->theirs) { /* a piece of the peer's is under way, if it lives */
        if (++copy->looks % LOOKS != 0 || !regx_vm_gone(&copy->conn->peer.vm)) {
            return REGX_AGAIN;
        }
        copy->status = REGX_FAILED;
    }
    /* Whether it was the memory, or the peer is refused to copy, this process finds out itself. */
    if (copy->status == REGX_OK && atomic_load_explicit(&cell->failed, memory_order_relaxed)) {
        copy->status = regx_shm_copy_part(shm, &copy->get->pending, copy->half, rest_of(copy));
    }
    copy->conn->assisted = copy->theirs > 0;
    const regx_status_t status = copy->status;

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

static void remove_request(regx_shm_t *shm, unsigned i)
{
    regx_shared_copies_t *copies = &shm->shared_copies;

    copies->request_count--;
    memmove(&copies->requests[i], &copies->requests[i + 1],
            (copies->request_count - i) * sizeof(copies->requests[0]));
    regx_shm_count_copies(shm, -1);
}

/* The oldest of which something is left, or NULL. Forgets those before. */
static regx_shared_copy_request_t *choose(regx_shm_t *shm)
{
    regx_shared_copies_t *copies = &shm->shared_copies;

    while (copies->request_count > 0) {
        regx_shared_copy_request_t *request = &copies->requests[0];

        if (units_claimed(cell_at(request), request->frame.number) <
            regx_claim_units(request->frame.length)) {
            return request;
        }
        remove_request(shm, 0);
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
    if (copies->request_count == REGX_SHARED_COPY_REQUESTS) {
        choose(shm); /* forgets what is of no use any more */
    }
    if (copies->request_count < REGX_SHARED_COPY_REQUESTS &&
        regx_shm_may_copy(shm, &inbound->peer)) {
        copies->requests[copies->request_count++] = request;
        regx_shm_count_copies(shm, 1);
    }
    return REGX_OK;
}

bool regx_shared_copy_write(regx_shm_t *shm)
{
    regx_shared_copy_request_t *request = choose(shm);
    regx_claim_piece_t claim;

    if (request == NULL || regx_claim_take(cell_at(request), request->frame.number,
                                           request->frame.length, &claim) != REGX_OK) {
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
    regx_claim_end(cell_at(request), &claim, status == REGX_OK);
    if (status == REGX_OK) {
        regx_count(shm->config.counters, &shm->config.counters->chunks_sender, 1);
    } else if (status == REGX_DENIED) {
        regx_shared_copy_forget(shm, inbound);
    } else {
        remove_request(shm, 0);
    }
    return true;
}

void regx_shared_copy_forget(regx_shm_t *shm, const regx_shm_inbound_t *inbound)
{
    for (unsigned i = 0; i < shm->shared_copies.request_count;) {
        if (shm->shared_copies.requests[i].from == inbound) {
            remove_request(shm, i);
        } else {
            i++;
        }
    }
}

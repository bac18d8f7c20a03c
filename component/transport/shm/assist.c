/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/assist.h"

#include <string.h>
#include <time.h>

#include "base/util.h"
#include "transport/shm/key.h"
#include "transport/shm/piece.h"
#include "transport/shm/shm_internal.h"

/* Looks at a piece that the peer has not ended, before the kernel is asked whether the peer
 * lives. */
#define LOOKS 1024u

static void malformed(const regx_shm_t *shm)
{
    regx_count(shm->config.counters, &shm->config.counters->malformed, 1);
}

void regx_assists_init(regx_assists_t *assists, regx_claim_cell_t *cells)
{
    assists->cells = cells;
    for (uint32_t i = REGX_ASSIST_CELLS; i > 0; i--) {
        regx_assisted_t *assisted = &assists->gets[i - 1];

        assisted->cell = i - 1;
        assisted->next_free = assists->free;
        assists->free = assisted;
    }
}

/* ---- the receiver ---- */

static regx_shm_t *shm_of(const regx_assisted_t *assisted)
{
    return regx_shm_of(assisted->conn->super.transport);
}

static regx_claim_cell_t *cell_of(const regx_assisted_t *assisted)
{
    return &shm_of(assisted)->assists.cells[assisted->cell];
}

/* Takes a free cell and chooses in which order the get is copied. */
static regx_assisted_t *take_cell(regx_shm_conn_t *conn, size_t length, bool *from_end)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);

    regx_lock(&shm->lock);
    regx_assisted_t *assisted = shm->assists.free;
    if (assisted != NULL) {
        shm->assists.free = assisted->next_free;
        *from_end = regx_shm_order_locked(conn, length);
    }
    regx_unlock(&shm->lock);
    return assisted;
}

static void give_cell(regx_shm_t *shm, regx_assisted_t *assisted)
{
    regx_lock(&shm->lock);
    assisted->next_free = shm->assists.free;
    shm->assists.free = assisted;
    regx_unlock(&shm->lock);
}

static uint64_t remote_of(const regx_get_t *get)
{
    return regx_shm_key_unpack(&get->key).address + get->offset;
}

/* Bytes before the half that is divided, which begins with a page of the destination. */
static uint64_t first_half(const regx_get_t *get)
{
    const uintptr_t local = (uintptr_t)get->local;

    return regx_align_up(local + get->length / 2, REGX_CLAIM_PAGE) - local;
}

static bool peer_is_busy(const regx_shm_conn_t *conn)
{
    return atomic_load_explicit(&regx_shm_main_at(&conn->main)->busy, memory_order_relaxed) != 0;
}

/* Whether the peer is worth asking. A get of one's own process would be copied by the same one. */
static bool may_ask(const regx_shm_conn_t *conn, const regx_get_t *get)
{
    return get->length >= REGX_ASSIST_MIN && get->length <= REGX_CLAIM_MAX &&
           conn->super.peer != regx_shm_of(conn->super.transport)->config.self &&
           !peer_is_busy(conn);
}

/* The next number of a cell's use, which stands for the order in which it is divided. */
static uint32_t next_number(uint32_t last, bool from_end)
{
    return last + 1 + ((last + 1) % 2 != from_end);
}

regx_assisted_t *regx_assist_ask_locked(regx_shm_conn_t *conn, regx_get_t *get)
{
    bool from_end;
    regx_assisted_t *assisted = may_ask(conn, get) ? take_cell(conn, get->length, &from_end) : NULL;

    if (assisted == NULL) {
        return NULL;
    }
    *assisted = (regx_assisted_t){.get = get,
                                  .conn = conn,
                                  .half = first_half(get),
                                  .cell = assisted->cell,
                                  .number = next_number(assisted->number, from_end),
                                  .from_end = from_end};
    const regx_assist_frame_t frame = {.cell = assisted->cell,
                                       .number = assisted->number,
                                       .local = (uintptr_t)get->local + assisted->half,
                                       .remote = remote_of(get) + assisted->half,
                                       .length = get->length - assisted->half};

    regx_claim_open(cell_of(assisted), assisted->number);
    if (regx_mailbox_post_own(&conn->out, REGX_FRAME_ASSIST, &frame, sizeof(frame)) != REGX_OK) {
        give_cell(shm_of(assisted), assisted);
        return NULL;
    }
    return assisted;
}

static uint64_t rest_of(const regx_assisted_t *assisted)
{
    return assisted->get->length - assisted->half;
}

/* Reads [begin, end) of the get. */
static regx_status_t read_range(const regx_assisted_t *assisted, uint64_t begin, uint64_t end)
{
    const regx_shm_piece_t piece = {.vm = &assisted->conn->vm,
                                    .main = regx_shm_main_at(&assisted->conn->main),
                                    .owned = &assisted->conn->owned,
                                    .direction = REGX_VM_READ,
                                    .local = (char *)assisted->get->local + begin,
                                    .remote = remote_of(assisted->get) + begin,
                                    .length = end - begin};

    return regx_piece_copy(shm_of(assisted), piece);
}

/* Nothing more is claimed. */
static void close_claims(regx_assisted_t *assisted)
{
    const uint32_t claimed =
        regx_claim_close(cell_of(assisted), assisted->number, rest_of(assisted));

    assisted->closed = true;
    if (claimed < assisted->mine || claimed > regx_claim_units(rest_of(assisted))) {
        malformed(shm_of(assisted));
        assisted->status = REGX_FAILED;
        return;
    }
    assisted->theirs = claimed - assisted->mine;
}

/* Takes the next piece, of the first half or of what is not claimed of the second. REGX_AGAIN:
 * there is none. */
static regx_status_t next_piece(regx_assisted_t *assisted, regx_claim_piece_t *piece)
{
    const uint64_t left = assisted->half - assisted->read;

    if (left > 0) {
        const uint64_t length = regx_claim_piece(left);

        piece->begin = assisted->from_end ? left - length : assisted->read;
        piece->end = piece->begin + length;
        assisted->read += length;
        return REGX_OK;
    }
    const regx_status_t status =
        regx_claim_take(cell_of(assisted), assisted->number, rest_of(assisted), piece);
    if (status == REGX_OK) {
        assisted->mine += regx_claim_units(piece->end - piece->begin);
        piece->begin += assisted->half;
        piece->end += assisted->half;
    }
    return status;
}

bool regx_assist_withdraw(regx_assisted_t *assisted)
{
    if (assisted->read > 0 || !peer_is_busy(assisted->conn) ||
        !regx_claim_withdraw(cell_of(assisted), assisted->number, rest_of(assisted))) {
        return false;
    }
    assisted->conn->assisted = false;
    give_cell(shm_of(assisted), assisted);
    return true;
}

/* Whether something is left to be claimed. */
static bool has_rest(const regx_assisted_t *assisted)
{
    return regx_claim_look(cell_of(assisted), assisted->number) !=
           regx_claim_units(rest_of(assisted));
}

bool regx_assist_read(regx_assisted_t *assisted, size_t *copied)
{
    regx_shm_t *shm = shm_of(assisted);
    regx_claim_piece_t piece;
    const regx_status_t status = next_piece(assisted, &piece);

    *copied = 0;
    if (status == REGX_INVALID) {
        malformed(shm);
        assisted->status = REGX_FAILED;
    }
    if (status != REGX_OK) {
        return false;
    }
    assisted->status = read_range(assisted, piece.begin, piece.end);
    if (assisted->status != REGX_OK) {
        close_claims(assisted);
        return false;
    }
    regx_count(shm->config.counters, &shm->config.counters->chunks_receiver, 1);
    *copied = piece.end - piece.begin;
    return assisted->read < assisted->half || has_rest(assisted);
}

bool regx_assist_pass_over(regx_assisted_t *assisted)
{
    if (assisted->passed_over || assisted->read < assisted->half || !assisted->conn->assisted) {
        return false;
    }
    assisted->passed_over = true;
    return true;
}

/* Reads what the peer claimed and could not write. */
static void read_failed(regx_assisted_t *assisted)
{
    regx_claim_piece_t piece;
    const regx_status_t status = regx_claim_failed(cell_of(assisted), rest_of(assisted), &piece);

    if (assisted->status != REGX_OK || status == REGX_AGAIN) {
        return;
    }
    if (status != REGX_OK) {
        malformed(shm_of(assisted));
        assisted->status = REGX_FAILED;
        return;
    }
    assisted->status =
        read_range(assisted, assisted->half + piece.begin, assisted->half + piece.end);
}

/* Whether no piece of the peer's is under way. */
static bool peer_has_ended(regx_assisted_t *assisted)
{
    const uint32_t ended = atomic_load_explicit(&cell_of(assisted)->ended, memory_order_acquire);

    if (ended > assisted->theirs) {
        malformed(shm_of(assisted));
        assisted->status = REGX_FAILED;
    }
    if (ended < assisted->theirs && ++assisted->looks % LOOKS == 0 &&
        regx_vm_gone(&assisted->conn->vm)) {
        assisted->status = REGX_FAILED;
        return true;
    }
    return ended >= assisted->theirs;
}

regx_status_t regx_assist_end(regx_assisted_t *assisted)
{
    if (!assisted->closed) {
        close_claims(assisted);
    }
    if (!peer_has_ended(assisted)) {
        return REGX_AGAIN;
    }
    read_failed(assisted);
    assisted->conn->assisted = assisted->theirs > 0;
    const regx_status_t status = assisted->status;

    give_cell(shm_of(assisted), assisted);
    return status;
}

void regx_assist_revoke(regx_assisted_t *assisted)
{
    const struct timespec pause = {.tv_nsec = 20000};

    if (!assisted->closed) {
        close_claims(assisted);
    }
    assisted->status = REGX_FAILED;
    while (regx_assist_end(assisted) == REGX_AGAIN) {
        nanosleep(&pause, NULL);
    }
}

/* ---- the peer ---- */

static regx_claim_cell_t *cell_at(const regx_assist_request_t *request)
{
    return &regx_shm_main_at(&request->from->main)->cells[request->frame.cell];
}

static void remove_request(regx_shm_t *shm, unsigned i)
{
    regx_assist_requests_t *requests = &shm->requests;

    requests->count--;
    memmove(&requests->waiting[i], &requests->waiting[i + 1],
            (requests->count - i) * sizeof(requests->waiting[0]));
    regx_shm_count_copies(shm, -1);
}

/* The oldest of which something is left, or NULL. Forgets those before. */
static regx_assist_request_t *choose(regx_shm_t *shm)
{
    regx_assist_requests_t *requests = &shm->requests;

    while (requests->count > 0) {
        regx_assist_request_t *request = &requests->waiting[0];

        if (regx_claim_look(cell_at(request), request->frame.number) <
            regx_claim_units(request->frame.length)) {
            return request;
        }
        remove_request(shm, 0);
    }
    return NULL;
}

/* Whether this process may write to the neighbour: the kernel is asked once. */
static bool may_write(regx_shm_t *shm, regx_shm_inbound_t *inbound)
{
    char reason[REGX_REASON_LENGTH];

    if (inbound->vm.state == REGX_VM_UNKNOWN &&
        regx_vm_check(&inbound->vm, reason, sizeof(reason)) != REGX_OK) {
        regx_transport_fall_back(&shm->config, REGX_TRACE_CONNECTION, reason);
    }
    return inbound->vm.state == REGX_VM_ALLOWED;
}

regx_status_t regx_assist_take(regx_shm_t *shm, regx_shm_inbound_t *inbound, const void *data,
                               size_t length)
{
    regx_assist_requests_t *requests = &shm->requests;
    regx_assist_request_t request = {.from = inbound};

    if (length != sizeof(request.frame)) {
        return REGX_INVALID;
    }
    memcpy(&request.frame, data, sizeof(request.frame));
    if (request.frame.cell >= REGX_ASSIST_CELLS || request.frame.length == 0 ||
        request.frame.length > REGX_CLAIM_MAX ||
        request.frame.local > UINT64_MAX - request.frame.length ||
        request.frame.remote > UINT64_MAX - request.frame.length) {
        return REGX_INVALID;
    }
    if (requests->count == REGX_ASSIST_REQUESTS) {
        choose(shm); /* forgets what is of no use any more */
    }
    if (requests->count < REGX_ASSIST_REQUESTS && may_write(shm, inbound)) {
        requests->waiting[requests->count++] = request;
        regx_shm_count_copies(shm, 1);
    }
    return REGX_OK;
}

bool regx_assist_write(regx_shm_t *shm)
{
    regx_assist_request_t *request = choose(shm);
    regx_claim_piece_t claim;

    if (request == NULL || regx_claim_take(cell_at(request), request->frame.number,
                                           request->frame.length, &claim) != REGX_OK) {
        return false;
    }
    regx_shm_inbound_t *inbound = request->from;
    const regx_shm_piece_t piece = {.vm = &inbound->vm,
                                    .main = regx_shm_main_at(&inbound->main),
                                    .direction = REGX_VM_WRITE,
                                    .local =
                                        (char *)(uintptr_t)(request->frame.remote + claim.begin),
                                    .remote = request->frame.local + claim.begin,
                                    .length = claim.end - claim.begin};
    const regx_status_t status = regx_piece_copy(shm, piece);
    regx_claim_end(cell_at(request), &claim, status == REGX_OK);
    if (status == REGX_OK) {
        regx_count(shm->config.counters, &shm->config.counters->chunks_sender, 1);
        return true;
    }
    if (status == REGX_DENIED) {
        inbound->vm.state = REGX_VM_DENIED;
        regx_transport_fall_back(&shm->config, REGX_TRACE_PATH,
                                 "process_vm: assisting a peer's get refused");
        regx_assist_forget(shm, inbound);
    } else {
        remove_request(shm, 0);
    }
    return true;
}

void regx_assist_forget(regx_shm_t *shm, const regx_shm_inbound_t *inbound)
{
    for (unsigned i = 0; i < shm->requests.count;) {
        if (shm->requests.waiting[i].from == inbound) {
            remove_request(shm, i);
        } else {
            i++;
        }
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/assist.h"

#include <string.h>
#include <time.h>

#include "transport/rkey_table.h"
#include "transport/shm/piece.h"
#include "transport/shm/shm_internal.h"

/* Looks at a piece that the peer has not ended, before the kernel is asked whether the peer lives. */
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

static regx_assisted_t *take_cell(regx_shm_t *shm)
{
    regx_lock(&shm->lock);
    regx_assisted_t *assisted = shm->assists.free;
    if (assisted != NULL) {
        shm->assists.free = assisted->next_free;
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
    return regx_key_address(&get->key) + get->offset;
}

regx_assisted_t *regx_assist_ask_locked(regx_shm_conn_t *conn, regx_get_t *get)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);
    const regx_claim_range_t range = {(uintptr_t)get->local, get->length};
    const uint32_t units = regx_claim_units(&range);
    regx_assisted_t *assisted = units > 0 ? take_cell(shm) : NULL;

    if (assisted == NULL) {
        return NULL;
    }
    *assisted = (regx_assisted_t){.get = get,
                                  .conn = conn,
                                  .range = range,
                                  .cell = assisted->cell,
                                  .number = assisted->number + 1,
                                  .units = units};
    const regx_assist_frame_t frame = {.cell = assisted->cell,
                                       .number = assisted->number,
                                       .local = (uintptr_t)get->local,
                                       .remote = remote_of(get),
                                       .length = get->length};

    regx_claim_open(cell_of(assisted), assisted->number);
    if (regx_mailbox_post(&conn->out, REGX_SHM_TAG_OWN, &frame, sizeof(frame), NULL, NULL, 0) !=
        REGX_OK) {
        give_cell(shm, assisted);
        return NULL;
    }
    return assisted;
}

bool regx_assist_is_theirs(const regx_assisted_t *assisted)
{
    const uint32_t claimed = regx_claim_look(cell_of(assisted), assisted->number);

    return assisted->mine == 0 && claimed > 0 && claimed < assisted->units;
}

/* The bytes of a piece, to be read. */
static regx_shm_piece_t read_of(const regx_assisted_t *assisted, const regx_claim_piece_t *claim)
{
    const uint64_t begin = regx_claim_offset(&assisted->range, claim->begin);

    return (regx_shm_piece_t){.vm = &assisted->conn->vm,
                              .main = regx_shm_main_at(&assisted->conn->main),
                              .direction = REGX_VM_READ,
                              .local = (char *)assisted->get->local + begin,
                              .remote = remote_of(assisted->get) + begin,
                              .length = regx_claim_offset(&assisted->range, claim->end) - begin};
}

/* Nothing more is claimed. */
static void close_claims(regx_assisted_t *assisted)
{
    const uint32_t claimed = regx_claim_close(cell_of(assisted), assisted->number, assisted->units);

    assisted->closed = true;
    if (claimed < assisted->mine || claimed > assisted->units) {
        malformed(shm_of(assisted));
        assisted->status = REGX_FAILED;
        return;
    }
    assisted->theirs = claimed - assisted->mine;
}

bool regx_assist_read(regx_assisted_t *assisted, bool others_wait, size_t *copied)
{
    regx_shm_t *shm = shm_of(assisted);
    regx_claim_piece_t claim;
    const regx_status_t status =
        regx_claim_take(cell_of(assisted), assisted->number, assisted->units, others_wait, &claim);

    *copied = 0;
    if (status == REGX_INVALID) {
        malformed(shm);
        assisted->status = REGX_FAILED;
    }
    if (status != REGX_OK) {
        return false;
    }
    const regx_shm_piece_t piece = read_of(assisted, &claim);

    assisted->mine += claim.end - claim.begin;
    assisted->status = regx_shm_copy_all(shm, piece);
    if (assisted->status != REGX_OK) {
        close_claims(assisted);
        return false;
    }
    regx_count(shm->config.counters, &shm->config.counters->chunks_receiver, 1);
    *copied = piece.length;
    return claim.end < assisted->units;
}

/* Reads what the peer claimed and could not write. */
static void read_failed(regx_assisted_t *assisted)
{
    const uint64_t failed = atomic_load_explicit(&cell_of(assisted)->failed, memory_order_relaxed);
    const regx_claim_piece_t claim = {(uint32_t)(failed >> 32), (uint32_t)failed};

    if (failed == 0 || assisted->status != REGX_OK) {
        return;
    }
    if (claim.begin >= claim.end || claim.end > assisted->units ||
        claim.end - claim.begin > REGX_CLAIM_MOST + REGX_CLAIM_LEAST) {
        malformed(shm_of(assisted));
        assisted->status = REGX_FAILED;
        return;
    }
    assisted->status = regx_shm_copy_all(shm_of(assisted), read_of(assisted, &claim));
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
    atomic_fetch_sub(&shm->copy_count, 1);
}

/* The oldest that nobody has begun; else the oldest of which something is left. So in a stream the
 * two processes are at different messages. Forgets those of which nothing is left. */
static regx_assist_request_t *choose(regx_shm_t *shm)
{
    regx_assist_requests_t *requests = &shm->requests;
    regx_assist_request_t *shared = NULL;

    for (unsigned i = 0; i < requests->count;) {
        regx_assist_request_t *request = &requests->waiting[i];
        const uint32_t claimed = regx_claim_look(cell_at(request), request->frame.number);

        if (claimed >= request->units) {
            remove_request(shm, i);
            continue;
        }
        if (request->begun || claimed == 0) {
            return request;
        }
        shared = shared == NULL ? request : shared;
        i++;
    }
    return shared;
}

/* Whether this process may write to the neighbour: the kernel is asked once. */
static bool may_write(regx_shm_t *shm, regx_shm_inbound_t *inbound)
{
    char reason[REGX_REASON_LENGTH];

    if (inbound->vm.state == REGX_VM_UNKNOWN &&
        regx_vm_check(&inbound->vm, reason, sizeof(reason)) != REGX_OK) {
        regx_tally(shm->config.counters->fallbacks, reason);
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
    const regx_claim_range_t range = {request.frame.local, request.frame.length};

    request.units = regx_claim_units(&range);
    if (request.units == 0 || request.frame.cell >= REGX_ASSIST_CELLS ||
        request.frame.remote > UINT64_MAX - request.frame.length) {
        return REGX_INVALID;
    }
    if (requests->count == REGX_ASSIST_REQUESTS) {
        choose(shm); /* forgets what is of no use any more */
    }
    if (requests->count < REGX_ASSIST_REQUESTS && may_write(shm, inbound)) {
        requests->waiting[requests->count++] = request;
        atomic_fetch_add(&shm->copy_count, 1);
    }
    return REGX_OK;
}

bool regx_assist_write(regx_shm_t *shm)
{
    regx_assist_request_t *request = choose(shm);
    regx_claim_piece_t claim;

    if (request == NULL || regx_claim_take(cell_at(request), request->frame.number, request->units,
                                           shm->requests.count > 1, &claim) != REGX_OK) {
        return false;
    }
    regx_shm_inbound_t *inbound = request->from;
    const regx_claim_range_t range = {request->frame.local, request->frame.length};
    const uint64_t begin = regx_claim_offset(&range, claim.begin);
    const regx_shm_piece_t piece = {.vm = &inbound->vm,
                                    .main = regx_shm_main_at(&inbound->main),
                                    .direction = REGX_VM_WRITE,
                                    .local = (char *)(uintptr_t)(request->frame.remote + begin),
                                    .remote = request->frame.local + begin,
                                    .length = regx_claim_offset(&range, claim.end) - begin};

    request->begun = true;
    const regx_status_t status = regx_shm_copy_all(shm, piece);
    regx_claim_end(cell_at(request), &claim, status == REGX_OK);
    if (status == REGX_OK) {
        regx_count(shm->config.counters, &shm->config.counters->chunks_sender, 1);
        return true;
    }
    if (status == REGX_DENIED) {
        inbound->vm.state = REGX_VM_DENIED;
        regx_tally(shm->config.counters->fallbacks, "process_vm: assisting a peer's get refused");
        regx_assist_forget(shm, inbound);
    } else {
        remove_request(shm, (unsigned)(request - shm->requests.waiting));
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

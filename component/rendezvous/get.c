/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Get: the sender registers and advertises chunks of its buffer, the receiver reads them (path
 * read; path together by gets that are assisted).
 *
 * Chunks are advertised one after the other, none longer than the CTS allows, and at most as many at once.
 * The receiver registers each, gets it, and acknowledges it, after which the sender may use its
 * memory again. A chunk that cannot be registered or got is acknowledged as unread. The sender then
 * advertises nothing more, and all that was not got goes by slots.
 *
 * The MPI closes a receive only after its sender has ended, that is, when no get is under way. A
 * peer that breaks this rule keeps the record, and the registrations, until its gets have ended.
 */
#include "rendezvous/send.h"

_Static_assert(REGX_CHUNK_DEPTH_MAX <= REGX_CTS_RKEYS, "the CTS can say chunk_depth");

/* Asks the sender to advertise. */
static void get_grant_first_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    recv->cts.count = (uint8_t)rndv->config.chunk_depth;
    recv->cts.rkey_max = rndv->config.chunk_size;
}

/* The sender is notified, unless it is gone. */
static void get_ended_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_chunk_t *chunk,
                             regx_status_t status)
{
    regx_control_t ats = {.type = REGX_CONTROL_ATS,
                          .to = recv->sender,
                          .offset = chunk->offset,
                          .length = chunk->length};

    assert(recv->holds > 0 && recv->chunks_out > 0);
    recv->holds--;
    recv->chunks_out--;
    if (status == REGX_OK) {
        chunk->state = REGX_CHUNK_FREE;
        recv->landed += chunk->length;
        assert(recv->landed <= recv->buffer.length);
        regx_count(rndv->counters, &rndv->counters->gets, 1);
    } else {
        chunk->state = REGX_CHUNK_BY_SLOTS;
        ats.bits = REGX_CONTROL_UNREAD;
    }
    if (status == REGX_FAILED) {
        ats.bits |= REGX_CONTROL_FAILED;
        recv->buffer.suspect = true;
    }
    if (recv->phase == REGX_RECV_STARTED) {
        regx_control_post(recv->peer->conn, &recv->outbox, &ats);
    }
}

/* The transport has ended a get that it had answered by REGX_PENDING. */
static void get_completed(regx_get_t *get, regx_status_t status)
{
    regx_chunk_t *chunk = get->context;
    regx_rndv_recv_t *recv = chunk->recv;
    regx_rndv_t *rndv = recv->rndv;
    regx_step_t step = {.stage = REGX_STAGE_GOT, .status = status, .recv = recv, .chunk = chunk};

    regx_lock(&rndv->lock);
    assert(!recv->busy);
    recv->busy = true;
    if (recv->phase != REGX_RECV_CLOSED) { /* else its buffer is the application's again */
        step.control = &chunk->rkey;
    }
    regx_unlock(&rndv->lock);
    regx_recv_run(rndv, &step);
}

regx_status_t regx_stage_get(regx_rndv_t *rndv, regx_step_t *step)
{
    regx_rndv_recv_t *recv = step->recv;
    regx_conn_t *conn = recv->peer->conn;
    regx_chunk_t *chunk = step->chunk;

    if (chunk->get.done == NULL) { /* else it is prepared, and found no room before */
        const regx_status_t status = regx_recv_register(rndv, recv, chunk, REGX_ACCESS_LOCAL_WRITE);

        if (status != REGX_OK) {
            recv->peer->no_gets |= status == REGX_INVALID;
            regx_lock(&rndv->lock);
            get_ended_locked(rndv, recv, chunk, REGX_NO_MEMORY);
            return REGX_OK;
        }
        chunk->rkey = *step->control;
        chunk->get = (regx_get_t){.local = recv->buffer.base + chunk->offset,
                                  .length = chunk->length,
                                  .region = chunk->region.mr,
                                  .offset = chunk->rkey.start,
                                  .key = chunk->rkey.key,
                                  .assisted = recv->path == REGX_PATH_together,
                                  .done = get_completed,
                                  .context = chunk};
    }
    const regx_status_t status = conn->transport->ops->get(conn, &chunk->get);
    if (status == REGX_PENDING) {
        regx_lock(&rndv->lock);
        return REGX_OK; /* it is get_completed's now */
    }
    if (status == REGX_AGAIN) {
        regx_lock(&rndv->lock);
        recv->holds--;
        recv->due++;
        chunk->state = REGX_CHUNK_GET_DUE;
        return REGX_AGAIN;
    }
    if (status == REGX_INVALID) {
        regx_count_malformed(rndv->counters); /* it leads outside of what its key names */
    }
    assert(status != REGX_OK); /* a get never ends at once with its bytes (transport.h) */
    step->status = status;
    return regx_stage_got(rndv, step);
}

regx_status_t regx_stage_got(regx_rndv_t *rndv, regx_step_t *step)
{
    regx_rndv_recv_t *recv = step->recv;
    regx_chunk_t *chunk = step->chunk;
    const regx_status_t status = step->status;

    if (status == REGX_OK && step->control != NULL) {
        regx_recv_verify(rndv, recv, step->control, recv->path);
    }
    if (status == REGX_DENIED) {
        regx_fall_back(rndv, "receiver: reading from this peer refused");
        atomic_store(&recv->peer->no_gets, true);
    }
    regx_buffer_release(rndv, &chunk->region, status == REGX_FAILED);
    regx_lock(&rndv->lock);
    get_ended_locked(rndv, recv, chunk, status);
    return REGX_OK;
}

static void begin_get_locked(regx_rndv_recv_t *recv, regx_chunk_t *chunk, regx_step_t *step)
{
    chunk->state = REGX_CHUNK_GETTING;
    recv->holds++;
    step->chunk = chunk;
    step->stage = REGX_STAGE_GET;
}

static bool get_recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                    const regx_control_t *control, regx_step_t *step)
{
    const uint64_t left = recv->buffer.length - recv->granted;
    regx_chunk_t *chunk;

    switch (control->type) {
    case REGX_CONTROL_RKEY:
        chunk = regx_recv_chunk_find(rndv, recv, REGX_CHUNK_FREE);
        /* An honest sender advertises no more than so many. Chunks whose ATS still waits in the outbox
         * count, since the sender does not know of it yet. */
        if (chunk == NULL || recv->chunks_out + recv->outbox.count >= rndv->config.chunk_depth ||
            recv->slots.only || control->offset != recv->granted || control->length == 0 ||
            control->length > rndv->config.chunk_size || control->length > left) {
            return false;
        }
        chunk->recv = recv;
        chunk->offset = control->offset;
        chunk->length = control->length;
        chunk->get.done = NULL; /* it is not prepared */
        recv->granted += chunk->length;
        recv->chunks_out++;
        begin_get_locked(recv, chunk, step);
        return true;
    case REGX_CONTROL_NACK: /* the sender advertises nothing more: the rest goes by slots */
        if (recv->slots.only || control->length == 0 || control->offset != recv->granted ||
            control->length != left) {
            return false;
        }
        recv->slots.only = true;
        recv->buffer.suspect |= (control->bits & REGX_CONTROL_FAILED) != 0;
        if ((control->bits & REGX_CONTROL_PERMANENT) != 0) {
            atomic_store(&recv->peer->no_gets, true);
        }
        return true;
    default:
        return regx_bounce_recv_control_locked(rndv, recv, control, step);
    }
}

static void get_recv_next_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_step_t *step)
{
    while (recv->due > 0 && step->next_chunk < rndv->config.chunk_depth) {
        regx_chunk_t *chunk = &recv->chunks[step->next_chunk++];

        if (chunk->state == REGX_CHUNK_GET_DUE) {
            recv->due--;
            begin_get_locked(recv, chunk, step);
            return;
        }
    }
    regx_bounce_recv_next_locked(rndv, recv, step);
}

static void get_give_up_chunks(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    for (; recv->due > 0; recv->due--) { /* seldom */
        regx_chunk_t *chunk = regx_recv_chunk_find(rndv, recv, REGX_CHUNK_GET_DUE);

        regx_region_release(rndv->registry, &chunk->region);
        chunk->state = REGX_CHUNK_FREE;
    }
}

/* ---- the send side ---- */

/* A chunk that is, or is about to be, advertised. */
struct regx_rkey {
    struct regx_rkey *next;
    uint64_t offset;
    uint64_t length;
    uint64_t checksum; /* valid if the send is to verify */
    regx_region_t region;
    uint8_t ats; /* the bits of its ATS */
};

static bool get_send_take_cts(regx_rndv_send_t *send, const regx_cts_t *cts)
{
    const regx_rndv_config_t *config = &send->rndv->config;

    if (send->peer->conn->transport->ops->get == NULL) {
        return false;
    }
    send->get.advertising = true;
    send->get.max = regx_min(cts->rkey_max, config->chunk_size);
    send->get.depth = (unsigned)regx_min(cts->count, config->chunk_depth);
    send->get.next = send->bytes.granted;
    send->bytes.granted = send->buffer.length;
    return true;
}

/* What is not yet advertised goes by slots. `bits`: of NACK. */
static void stop_advertising_locked(regx_rndv_send_t *send, uint8_t bits)
{
    const uint64_t rest = send->buffer.length - send->get.next;

    if (send->get.advertising && rest > 0) {
        regx_send_nack_locked(send, send->get.next, rest,
                              bits | (send->buffer.suspect ? REGX_CONTROL_FAILED : 0));
    }
    send->get.advertising = false;
    send->why = REGX_WHY_sender;
}

regx_status_t regx_stage_advertise(regx_rndv_t *rndv, regx_step_t *step)
{
    regx_rkey_t *rkey = step->rkey;
    regx_rndv_send_t *send = step->send;
    const char *base = send->buffer.base + rkey->offset;

    if (send->verify) {
        rkey->checksum = regx_buffer_checksum(base, rkey->length);
    }
    const regx_status_t status =
        regx_region_acquire(rndv->registry, (void *)(uintptr_t)base, rkey->length,
                            REGX_ACCESS_REMOTE_READ, &rkey->region);
    if (status != REGX_OK) {
        regx_buffer_refused(rndv, REGX_SENDER, status, &rkey->region, base, rkey->length);
    }
    regx_lock(&rndv->lock);
    if (status == REGX_OK && send->get.advertising && send->status == REGX_OK) {
        rkey->next = send->get.rkeys;
        send->get.rkeys = rkey;
        send->get.count++;
        send->in_flight++;
        const regx_mr_t *mr = rkey->region.mr;
        regx_control_t message = regx_send_message(send, REGX_CONTROL_RKEY);

        message.offset = rkey->offset;
        message.length = rkey->length;
        message.start = (uint64_t)(base - (const char *)mr->base);
        message.key = mr->key;
        message.bits = send->verify ? REGX_CONTROL_CHECKSUM : 0;
        message.checksum = rkey->checksum;
        /* Another core may read the bytes. Also what the program stored past the caches (movnt) must be
         * visible before the message. A fence by itself, which the thread sanitizer takes. */
        regx_fence_stores();
        send->get.next += rkey->length;
        regx_send_post_locked(send, &message);
        return REGX_OK;
    }
    if (status != REGX_OK) {
        send->buffer.suspect |= status == REGX_DENIED;
        stop_advertising_locked(send, status == REGX_INVALID ? REGX_CONTROL_PERMANENT : 0);
    } else { /* it has failed, or the receiver left another one unread, meanwhile */
        regx_unlock(&rndv->lock);
        regx_region_release(rndv->registry, &rkey->region);
        regx_lock(&rndv->lock);
    }
    regx_spares_give(&rndv->spares.rkeys, rkey);
    return REGX_OK;
}

regx_status_t regx_stage_was_read(regx_rndv_t *rndv, regx_step_t *step)
{
    regx_rkey_t *rkey = step->rkey;
    regx_rndv_send_t *send = step->send;
    const bool failed = (rkey->ats & REGX_CONTROL_FAILED) != 0;

    regx_buffer_release(rndv, &rkey->region, failed);
    regx_lock(&rndv->lock);
    assert(send->get.count > 0 && send->in_flight > 0);
    send->get.count--;
    send->in_flight--;
    if ((rkey->ats & REGX_CONTROL_UNREAD) != 0) {
        send->bytes.granted -= rkey->length;
        send->buffer.suspect |= failed;
        stop_advertising_locked(send, 0);
    } else {
        send->bytes.sent += rkey->length;
    }
    regx_spares_give(&rndv->spares.rkeys, rkey);
    return REGX_OK;
}

static regx_status_t get_send_next_locked(regx_rndv_send_t *send, regx_step_t *step)
{
    const uint64_t length = regx_min(send->buffer.length - send->get.next, send->get.max);
    if (!send->get.advertising || length == 0 || send->get.count == send->get.depth) {
        return REGX_OK;
    }
    regx_rkey_t *rkey = regx_spares_take(&send->rndv->spares.rkeys);
    if (rkey == NULL && (rkey = malloc(sizeof(*rkey))) == NULL) {
        return REGX_AGAIN;
    }
    rkey->offset = send->get.next;
    rkey->length = length;
    rkey->ats = 0;
    step->stage = REGX_STAGE_ADVERTISE;
    step->rkey = rkey;
    return REGX_OK;
}

static bool get_send_control_locked(regx_rndv_send_t *send, const regx_control_t *control,
                                    regx_step_t *step)
{
    regx_rkey_t **at = &send->get.rkeys;

    if (control->type != REGX_CONTROL_ATS) {
        return regx_bounce_send_control_locked(send, control, step);
    }
    while (*at != NULL && ((*at)->offset != control->offset || (*at)->length != control->length)) {
        at = &(*at)->next;
    }
    regx_rkey_t *rkey = *at;
    if (rkey == NULL) {
        return false;
    }
    *at = rkey->next;
    rkey->ats = control->bits;
    step->stage = REGX_STAGE_WAS_READ;
    step->rkey = rkey;
    return true;
}

/* A peer that is gone has left unread what was advertised; any other says so by ATS. */
static bool get_send_drop_locked(regx_rndv_send_t *send, regx_step_t *step)
{
    regx_rkey_t *rkey = send->get.rkeys;

    send->get.advertising = false;
    if (rkey == NULL || send->status != REGX_UNREACHABLE) {
        return false;
    }
    send->get.rkeys = rkey->next;
    rkey->ats = REGX_CONTROL_UNREAD;
    step->stage = REGX_STAGE_WAS_READ;
    step->rkey = rkey;
    return true;
}

/* ---- the strategies ---- */

static const regx_protocol_t protocol = {.grants = REGX_GRANTS_RKEYS,
                                         .grant_first_locked = get_grant_first_locked,
                                         .recv_control_locked = get_recv_control_locked,
                                         .recv_next_locked = get_recv_next_locked,
                                         .give_up_chunks = get_give_up_chunks,
                                         .send_take_cts = get_send_take_cts,
                                         .send_control_locked = get_send_control_locked,
                                         .send_next_locked = get_send_next_locked,
                                         .send_drop_locked = get_send_drop_locked};

const regx_strategy_t regx_strategy_read = {
    .path = REGX_PATH_read, .protocol = &protocol, .exposes = true};

/* What is not staged is read (exposed.c). */
const regx_strategy_t regx_strategy_staged = {.path = REGX_PATH_staged,
                                              .protocol = &protocol,
                                              .exposes = true,
                                              .stages_from = 1,
                                              .copies = true};

const regx_strategy_t regx_strategy_together = {.path = REGX_PATH_together,
                                                .protocol = &protocol,
                                                .exposes = true,
                                                .sender_writes = true,
                                                .copies = true};

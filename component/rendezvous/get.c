/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Get: the sender registers and advertises chunks of its buffer, the receiver reads them (path
 * read; path together by gets that are assisted).
 *
 * Chunks are advertised one after the other, none longer than the CTS allows and no more at once.
 * The receiver registers each, gets it, and acknowledges it, after which the sender may use its
 * memory again. A chunk that cannot be registered or got is acknowledged as unread. The sender then
 * advertises nothing more, and all that was not got goes by slots.
 *
 * The MPI closes a receive only after its sender has ended, that is, when no get is under way. A
 * peer that breaks this rule keeps the record, and the registrations, until its gets have ended.
 */
#include "rendezvous/proto.h"

#include <assert.h>
#include <stdlib.h>

#include "base/util.h"

_Static_assert(REGX_CHUNK_DEPTH_MAX <= REGX_CTS_RKEYS, "the CTS can say chunk_depth");

/* A get that is due or under way. */
typedef struct regx_get_op {
    regx_get_t get;
    regx_rndv_t *rndv;
    regx_rndv_recv_t *recv;
    regx_chunk_t *chunk;
    regx_control_t rkey; /* the message that advertised it */
} regx_get_op_t;

static void get_done(regx_get_t *get, regx_status_t status);

/* Asks the sender to advertise. */
static void first_grant_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    recv->cts.count = (uint8_t)rndv->config.chunk_depth;
    recv->cts.rkey_max = rndv->config.chunk_size;
}

/* Registers a chunk that was advertised, and fills its get. */
static void prepare_get(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    regx_rndv_recv_t *recv = work->recv;
    regx_chunk_t *chunk = work->chunk;
    regx_get_op_t *op = malloc(sizeof(*op));

    work->status = op == NULL ? REGX_NO_MEMORY
                              : regx_recv_register(rndv, recv, chunk, REGX_ACCESS_LOCAL_WRITE);
    if (work->status != REGX_OK) {
        if (work->status == REGX_INVALID) {
            atomic_store(&recv->peer->no_gets, true);
        }
        free(op);
        return;
    }
    *op = (regx_get_op_t){.get = {.local = recv->base + chunk->offset,
                                  .length = chunk->length,
                                  .region = chunk->region.mr,
                                  .offset = work->control->start,
                                  .key = work->control->key,
                                  .assisted = recv->path == REGX_PATH_together,
                                  .done = get_done,
                                  .context = op},
                          .rndv = rndv,
                          .recv = recv,
                          .chunk = chunk,
                          .rkey = *work->control};
    chunk->get = op;
}

static void prepared_locked(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    regx_rndv_recv_t *recv = work->recv;
    const bool prepared = work->status == REGX_OK;

    (void)rndv;
    recv->due++;
    recv->chunks_out -= !prepared;
    work->chunk->state = prepared ? REGX_CHUNK_GET_DUE : REGX_CHUNK_NOT_GOT;
}

static bool take_rkey_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                             const regx_control_t *control, regx_recv_work_t *work)
{
    regx_chunk_t *chunk = regx_recv_free_chunk(rndv, recv);

    if (chunk == NULL || recv->slots.only || control->offset != recv->granted ||
        control->length == 0 || control->length > rndv->config.chunk_size ||
        control->length > recv->length - recv->granted) {
        return false;
    }
    *chunk = (regx_chunk_t){.offset = control->offset, .length = control->length};
    recv->granted += chunk->length;
    recv->chunks_out++;
    work->chunk = chunk;
    work->act = prepare_get;
    work->acted_locked = prepared_locked;
    return true;
}

/* The sender advertises nothing more: the rest goes by slots. */
static bool take_nack_locked(regx_rndv_recv_t *recv, const regx_control_t *control)
{
    if (recv->slots.only || control->length == 0 || control->offset != recv->granted ||
        control->length != recv->length - recv->granted) {
        return false;
    }
    recv->slots.only = true;
    recv->buffer_suspect |= (control->bits & REGX_CONTROL_FAILED) != 0;
    if ((control->bits & REGX_CONTROL_PERMANENT) != 0) {
        atomic_store(&recv->peer->no_gets, true);
    }
    return true;
}

static bool recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                const regx_control_t *control, regx_recv_work_t *work)
{
    switch (control->type) {
    case REGX_CONTROL_RKEY:
        return take_rkey_locked(rndv, recv, control, work);
    case REGX_CONTROL_NACK:
        return take_nack_locked(recv, control);
    default:
        return regx_bounce_recv_control_locked(rndv, recv, control, work);
    }
}

/* Gives up what an ended get had of local memory. If it failed the buffer may have been unmapped,
 * which is looked for while it still counts as in use. */
static void release_get(regx_rndv_t *rndv, regx_chunk_t *chunk, regx_status_t status)
{
    if (status == REGX_FAILED) {
        regx_registry_progress(rndv->registry);
    } else if (status == REGX_DENIED) {
        regx_fall_back(rndv, "receiver: reading from this peer refused");
        atomic_store(&chunk->get->recv->peer->no_gets, true);
    }
    regx_region_release(rndv->registry, &chunk->region);
    free(chunk->get);
}

/* A get has ended: the sender is to be notified. */
static void get_ended_locked(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    regx_rndv_recv_t *recv = work->recv;
    regx_chunk_t *chunk = work->chunk;
    const bool got = work->status == REGX_OK;

    assert(recv->holds > 0 && recv->chunks_out > 0);
    recv->holds--;
    recv->chunks_out--;
    if (got) {
        recv->landed += chunk->length;
        assert(recv->landed <= recv->length);
        regx_count(rndv->counters, &rndv->counters->gets, 1);
    }
    chunk->failed = work->status == REGX_FAILED;
    recv->buffer_suspect |= chunk->failed;
    chunk->get = NULL;
    chunk->state = got ? REGX_CHUNK_GOT : REGX_CHUNK_NOT_GOT;
    recv->due++;
}

static void send_ats_locked(regx_rndv_recv_t *recv, regx_chunk_t *chunk)
{
    const bool unread = chunk->state == REGX_CHUNK_NOT_GOT;
    const uint8_t bits = !unread         ? 0
                         : chunk->failed ? REGX_CONTROL_UNREAD | REGX_CONTROL_FAILED
                                         : REGX_CONTROL_UNREAD;
    const regx_control_t message = {.type = REGX_CONTROL_ATS,
                                    .to = recv->sender,
                                    .offset = chunk->offset,
                                    .length = chunk->length,
                                    .bits = bits};

    if (regx_control_send(recv->peer, &message) == REGX_OK) {
        recv->due--;
        chunk->state = unread ? REGX_CHUNK_BY_SLOTS : REGX_CHUNK_FREE;
    }
}

/* Asks the transport for a chunk. */
static void start_get(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    regx_conn_t *conn = work->recv->peer->conn;

    work->status = conn->transport->ops->get(conn, &work->chunk->get->get);
    if (work->status != REGX_PENDING && work->status != REGX_AGAIN) {
        release_get(rndv, work->chunk, work->status);
    }
}

static void started_locked(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    regx_rndv_recv_t *recv = work->recv;
    regx_chunk_t *chunk = work->chunk;

    if (work->status == REGX_PENDING) {
        return; /* it is get_done's now */
    }
    if (work->status == REGX_AGAIN) {
        recv->holds--;
        recv->due++;
        chunk->state = REGX_CHUNK_GET_DUE;
        return;
    }
    if (work->status == REGX_INVALID) {
        regx_malformed(rndv); /* the RKEY leads outside of what its key names */
    }
    get_ended_locked(rndv, work);
    if (!recv->outbox.full && recv->phase == REGX_RECV_STARTED) {
        send_ats_locked(recv, chunk);
    }
}

static bool advance_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_recv_work_t *work)
{
    while (recv->due > 0 && work->next_chunk < rndv->config.chunk_depth) {
        regx_chunk_t *chunk = &recv->chunks[work->next_chunk++];

        if (chunk->state == REGX_CHUNK_GET_DUE) {
            chunk->state = REGX_CHUNK_GETTING;
            recv->due--;
            recv->holds++;
            work->chunk = chunk;
            work->act = start_get;
            work->acted_locked = started_locked;
            return true;
        }
        if (!recv->outbox.full &&
            (chunk->state == REGX_CHUNK_GOT || chunk->state == REGX_CHUNK_NOT_GOT)) {
            send_ats_locked(recv, chunk);
        }
    }
    return regx_bounce_advance_locked(rndv, recv, work);
}

static void end_get(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    /* A closed receive's buffer is the application's again. */
    if (work->status == REGX_OK && work->open) {
        work->mismatch = !regx_recv_verify(rndv, work->recv, work->control);
    }
    release_get(rndv, work->chunk, work->status);
}

static void get_done(regx_get_t *get, regx_status_t status)
{
    const regx_get_op_t *op = get->context;
    const regx_control_t rkey = op->rkey; /* the op is freed in the course of this */
    regx_rndv_t *rndv = op->rndv;
    regx_recv_work_t work = {.recv = op->recv,
                             .act = end_get,
                             .acted_locked = get_ended_locked,
                             .control = &rkey,
                             .chunk = op->chunk,
                             .status = status};

    regx_lock(&rndv->lock);
    assert(!op->recv->taken);
    op->recv->taken = true;
    work.open = op->recv->phase != REGX_RECV_CLOSED;
    regx_unlock(&rndv->lock);
    regx_recv_run(rndv, &work);
}

static void revoke_chunks(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    if (recv->due == 0) { /* as nearly always */
        return;
    }
    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        regx_chunk_t *chunk = &recv->chunks[i];

        if (chunk->state == REGX_CHUNK_GET_DUE) {
            regx_region_release(rndv->registry, &chunk->region);
            free(chunk->get);
            chunk->state = REGX_CHUNK_FREE;
        }
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
    const regx_rndv_send_t *send;
    bool withdrawn; /* it was registered too late: no RKEY is sent, and it is to be given up */
    bool unread;    /* ATS: the receiver did not read it */
    bool failed;    /* ATS: the receiver tried to read it, and failed */
};

static bool send_open(const regx_rndv_t *rndv, regx_rndv_send_t *send, const regx_cts_t *cts)
{
    if (send->peer->conn->transport->ops->get == NULL) {
        return false;
    }
    send->get.state = REGX_ADVERTISING;
    send->get.max = regx_min(cts->rkey_max, rndv->config.chunk_size);
    send->get.depth = (unsigned)regx_min(cts->count, rndv->config.chunk_depth);
    send->get.next = send->bytes.granted;
    send->bytes.granted = send->length;
    return true;
}

/* What is not yet advertised goes by slots. */
static void stop_advertising_locked(regx_rndv_send_t *send)
{
    if (send->get.state == REGX_ADVERTISING) {
        const uint64_t rest = send->length - send->get.next;

        send->bytes.granted -= rest;
        send->get.state = rest > 0 ? REGX_ADVERTISING_NACK_DUE : REGX_ADVERTISING_OVER;
    }
    send->fallback = true;
}

static regx_status_t send_rkey(const regx_rndv_send_t *send, const regx_rkey_t *rkey)
{
    const regx_mr_t *mr = rkey->region.mr;
    regx_control_t message = regx_send_message(send, REGX_CONTROL_RKEY);

    message.offset = rkey->offset;
    message.length = rkey->length;
    message.start = (uint64_t)(send->base + rkey->offset - (const char *)mr->base);
    message.key = mr->key;
    message.bits = send->verify ? REGX_CONTROL_CHECKSUM : 0;
    message.checksum = rkey->checksum;
    /* Another core may read the bytes. Also what the program stored past the caches (movnt) must be
     * visible before the message. A fence by itself, which the thread sanitizer takes. */
    regx_fence_stores();
    return regx_control_send(send->peer, &message);
}

static regx_status_t flush_locked(regx_rndv_send_t *send)
{
    regx_status_t status = REGX_OK;

    if (send->get.unsent != NULL) {
        status = send_rkey(send, send->get.unsent);
        if (status != REGX_OK) {
            return status;
        }
        send->get.unsent = NULL;
    }
    if (send->get.state == REGX_ADVERTISING_NACK_DUE) {
        regx_control_t nack = regx_send_message(send, REGX_CONTROL_NACK);

        nack.offset = send->get.next;
        nack.length = send->length - send->get.next;
        nack.bits = (send->buffer_suspect ? REGX_CONTROL_FAILED : 0) |
                    (send->get.never ? REGX_CONTROL_PERMANENT : 0);
        status = regx_control_send(send->peer, &nack);
        if (status == REGX_OK) {
            send->get.state = REGX_ADVERTISING_OVER;
        }
    }
    return status;
}

static regx_status_t act_register(regx_rndv_t *rndv, void *object)
{
    regx_rkey_t *rkey = object;
    const char *base = rkey->send->base + rkey->offset;

    if (rkey->send->verify) {
        rkey->checksum = regx_buffer_checksum(base, rkey->length);
    }
    const regx_status_t status =
        regx_region_acquire(rndv->registry, (void *)(uintptr_t)base, rkey->length,
                            REGX_ACCESS_REMOTE_READ, &rkey->region);
    if (status != REGX_OK) {
        regx_buffer_refused(rndv, REGX_SENDER, status, &rkey->region, base, rkey->length);
    }
    return status;
}

static regx_status_t registered_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, void *object,
                                       regx_status_t status)
{
    (void)rndv;
    regx_rkey_t *rkey = object;

    if (status != REGX_OK) {
        free(rkey);
        send->buffer_suspect |= status == REGX_DENIED;
        send->get.never = status == REGX_INVALID;
        stop_advertising_locked(send);
        return REGX_OK;
    }
    rkey->next = send->get.rkeys;
    send->get.rkeys = rkey;
    send->get.count++;
    send->in_flight++;
    rkey->withdrawn = send->get.state != REGX_ADVERTISING; /* the receiver left another meanwhile */
    if (!rkey->withdrawn) {
        assert(send->get.unsent == NULL);
        send->get.unsent = rkey;
        send->get.next += rkey->length;
    }
    return REGX_OK;
}

/* Gives a registration up. If reading it failed the buffer may have been unmapped, which is looked
 * for while it still counts as in use. */
static regx_status_t act_release(regx_rndv_t *rndv, void *object)
{
    regx_rkey_t *rkey = object;

    if (rkey->failed) {
        regx_registry_progress(rndv->registry);
    }
    regx_region_release(rndv->registry, &rkey->region);
    return REGX_OK;
}

static regx_status_t dropped_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, void *object,
                                    regx_status_t status)
{
    (void)rndv;
    assert(send->get.count > 0 && send->in_flight > 0);
    send->get.count--;
    send->in_flight--;
    free(object);
    return status;
}

static regx_status_t acknowledged_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, void *object,
                                         regx_status_t status)
{
    const regx_rkey_t *rkey = object;

    if (rkey->unread) {
        send->bytes.granted -= rkey->length;
        send->buffer_suspect |= rkey->failed;
        stop_advertising_locked(send);
    } else {
        send->bytes.sent += rkey->length;
    }
    return dropped_locked(rndv, send, object, status);
}

/* Gives up the first chunk that no peer can read: it was withdrawn or not yet told, or the peer is
 * gone. false: there is none. */
static bool drop_unreadable_locked(regx_rndv_send_t *send, regx_send_work_t *work)
{
    const bool gone = send->status == REGX_UNREACHABLE;
    const bool failed = send->status != REGX_OK;

    for (regx_rkey_t **at = &send->get.rkeys; *at != NULL; at = &(*at)->next) {
        regx_rkey_t *rkey = *at;

        if (gone || rkey->withdrawn || (failed && rkey == send->get.unsent)) {
            *at = rkey->next;
            send->get.unsent = rkey == send->get.unsent ? NULL : send->get.unsent;
            *work = (regx_send_work_t){act_release, dropped_locked, rkey};
            return true;
        }
    }
    return false;
}

static regx_status_t next_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_work_t *work)
{
    const regx_status_t status = regx_write_next_locked(rndv, send, work);

    if (status != REGX_PENDING) {
        return status;
    }
    if (drop_unreadable_locked(send, work)) {
        return REGX_OK;
    }
    const uint64_t length = regx_min(send->length - send->get.next, send->get.max);
    if (send->get.state != REGX_ADVERTISING || length == 0 || send->get.count == send->get.depth) {
        return REGX_PENDING;
    }
    regx_rkey_t *rkey = malloc(sizeof(*rkey));
    if (rkey == NULL) {
        return REGX_AGAIN;
    }
    rkey->offset = send->get.next;
    rkey->length = length;
    rkey->send = send;
    rkey->unread = rkey->failed = false;
    work->act = act_register;
    work->acted_locked = registered_locked;
    work->object = rkey;
    return REGX_OK;
}

static bool send_control_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                const regx_control_t *control, regx_send_work_t *work)
{
    regx_rkey_t **at = &send->get.rkeys;

    if (control->type != REGX_CONTROL_ATS) {
        return regx_bounce_send_control_locked(rndv, send, control, work);
    }
    while (*at != NULL && ((*at)->offset != control->offset || (*at)->length != control->length)) {
        at = &(*at)->next;
    }
    regx_rkey_t *rkey = *at;
    if (rkey == NULL || rkey == send->get.unsent || rkey->withdrawn) {
        return false;
    }
    *at = rkey->next;
    rkey->unread = (control->bits & REGX_CONTROL_UNREAD) != 0;
    rkey->failed = (control->bits & REGX_CONTROL_FAILED) != 0;
    *work = (regx_send_work_t){act_release, acknowledged_locked, rkey};
    return true;
}

static bool drop_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_work_t *work)
{
    send->get.state = REGX_ADVERTISING_OVER;
    return regx_write_drop_locked(rndv, send, work) || drop_unreadable_locked(send, work);
}

/* ---- the strategies ---- */

static const regx_protocol_t protocol = {.grants = REGX_GRANTS_RKEYS,
                                         .first_grant_locked = first_grant_locked,
                                         .recv_control_locked = recv_control_locked,
                                         .advance_locked = advance_locked,
                                         .revoke_chunks = revoke_chunks,
                                         .send_open = send_open,
                                         .send_control_locked = send_control_locked,
                                         .flush_locked = flush_locked,
                                         .next_locked = next_locked,
                                         .drop_locked = drop_locked};

const regx_strategy_t regx_strategy_read = {
    .name = "read", .path = REGX_PATH_read, .protocol = &protocol, .exposes = true};

const regx_strategy_t regx_strategy_together = {.name = "together",
                                                .path = REGX_PATH_together,
                                                .protocol = &protocol,
                                                .exposes = true,
                                                .copies = true};

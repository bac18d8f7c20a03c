/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Get: the sender registers and advertises chunks of its buffer, the receiver reads them (path
 * read; path together by gets that are assisted). Here is the receiver's side; the sender's is
 * advertise.c.
 *
 * Chunks are advertised one after the other, none longer than the CTS allows and no more at once.
 * The receiver registers each, gets it, and acknowledges it, after which the sender may use its
 * memory again. A chunk that cannot be registered or got is acknowledged as unread. The sender then
 * advertises nothing more, and all that was not got goes by slots.
 *
 * The MPI closes a receive only after its sender has ended, that is, when no get is under way. A
 * peer that breaks this rule keeps the record, and the registrations, until its gets have ended.
 */
#include "rendezvous/get.h"

#include <assert.h>
#include <stdlib.h>

#include "rendezvous/bounce.h"
#include "rendezvous/recv_run.h"
#include "rendezvous/strategy.h"

_Static_assert(REGX_CHUNK_DEPTH_MAX <= REGX_CTS_RKEYS, "the CTS can say chunk_depth");

const char *regx_get_obstacle(const regx_peer_t *peer)
{
    return peer->no_gets ? "read: impossible with this peer before" : NULL;
}

/* A get that is due or under way. */
typedef struct regx_get_op {
    regx_get_t get;
    regx_rndv_t *rndv;
    regx_rndv_recv_t *recv;
    regx_chunk_t *chunk;
    regx_control_t rkey; /* the message that advertised it */
} regx_get_op_t;

static void get_done(regx_get_t *get, regx_status_t status);

bool regx_get_recv_open(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_cts_t *cts)
{
    (void)recv;
    cts->rkeys = rndv->config.chunk_depth;
    cts->rkey_max = rndv->config.chunk_size;
    return true;
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
                                  .assisted = recv->protocol->assisted,
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

    if (chunk == NULL || recv->slots_only || control->offset != recv->granted ||
        control->length == 0 || control->length > rndv->config.chunk_size ||
        control->length > recv->length - recv->granted) {
        return false;
    }
    *chunk = (regx_chunk_t){.offset = control->offset, .length = control->length};
    recv->granted += chunk->length;
    recv->chunks_out++;
    regx_count_high(&rndv->counters->chunks_high, recv->chunks_out);
    work->chunk = chunk;
    work->act = prepare_get;
    work->acted_locked = prepared_locked;
    return true;
}

/* The sender advertises nothing more: the rest goes by slots. */
static bool take_nack_locked(regx_rndv_recv_t *recv, const regx_control_t *control)
{
    if (recv->slots_only || control->length == 0 || control->offset != recv->granted ||
        control->length != recv->length - recv->granted) {
        return false;
    }
    recv->slots_only = true;
    recv->buffer_suspect |= control->failed;
    if (control->permanent) {
        atomic_store(&recv->peer->no_gets, true);
    }
    return true;
}

bool regx_get_recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
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
    const regx_control_t message = {.type = REGX_CONTROL_ATS,
                                    .to = recv->sender,
                                    .offset = chunk->offset,
                                    .length = chunk->length,
                                    .unread = unread,
                                    .failed = unread && chunk->failed};

    if (regx_channel_send(recv->peer, &message) == REGX_OK) {
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

bool regx_get_advance_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_recv_work_t *work)
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

    work.open = regx_recv_take(rndv, op->recv);
    regx_recv_run(rndv, &work);
}

void regx_get_revoke_chunks(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
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

static const regx_protocol_t protocol = {.obstacle = regx_get_obstacle, REGX_GET_OPERATIONS};

const regx_strategy_t regx_strategy_read = {
    .name = "read",
    .path = REGX_PATH_read,
    .protocol = &protocol,
    .exposes = true,
    .help = "the receiver reads the sender's buffer",
    .more = "On a node at once, where the kernel copies between the processes "
            "(process_vm_readv). Over verbs the sender registers chunks (btl_regx_chunk_size, "
            "btl_regx_chunk_depth), which takes a round trip more than writing, and three calls "
            "of the device per chunk instead of two."};

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Sources, and the puts that they make of what they are granted.
 */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/careful.h"
#include "rendezvous/checksum.h"
#include "rendezvous/immediate.h"
#include "rendezvous/refusal.h"
#include "rendezvous/source.h"

struct regx_put_op { /* a grant being used */
    regx_put_t put;
    regx_region_t region; /* of local memory: a chunk's; a slot's, if it was registered already */
    bool registered;
    bool careful; /* local memory may not be there any more, … */
    void *copy;   /* … so this is a slot's copy of it, or NULL */
    bool chunk;
    bool piece;    /* of a chunk */
    bool for_ever; /* refused, and all later ones will be, … */
    bool failed;   /* … or because writing it failed */
    regx_rndv_t *rndv;
    regx_source_t *source;
    uint64_t offset;
    struct regx_put_op *next; /* among the refusals to be sent */
};

static void put_done(regx_put_t *put, regx_status_t status);

static regx_source_t *of_link(regx_link_t *link)
{
    return (regx_source_t *)((char *)link - offsetof(regx_source_t, link));
}

static regx_source_t *source_new(regx_rndv_t *rndv)
{
    regx_source_t *source = NULL;

    regx_lock(&rndv->lock);
    if (!regx_list_empty(&rndv->unused_sources)) {
        source = of_link(rndv->unused_sources.next);
        regx_list_remove(&source->link);
    }
    regx_unlock(&rndv->lock);
    const bool known = source != NULL;
    if (!known) {
        source = malloc(sizeof(*source));
        if (source == NULL) {
            return NULL;
        }
    }
    regx_put_op_t *spare = known ? source->spare : NULL;

    memset(source, 0, offsetof(regx_source_t, queue));
    source->spare = spare;
    regx_list_init(&source->link);
    return source;
}

regx_control_t regx_source_message(const regx_source_t *source, regx_control_type_t type)
{
    return (regx_control_t){.type = type, .to = source->landing, .from = source->name};
}

/* All that a source sends fits a notice. */
static void fill_notice(regx_put_t *put, const regx_control_t *message)
{
    put->tag = REGX_TAG_CONTROL;
    put->notice_length = (uint8_t)regx_control_pack(message, put->notice);
}

/* Sends what has to go before anything else. */
static regx_status_t send_due_locked(regx_source_t *source)
{
    if (source->start_due) {
        const regx_control_t start = regx_source_message(source, REGX_CONTROL_START);
        const regx_status_t status = regx_control_send(source->peer, &start);

        if (status != REGX_OK) {
            return status;
        }
        source->start_due = false;
        source->introduced = true;
    }
    while (source->refusals != NULL) {
        regx_put_op_t *op = source->refusals;
        regx_control_t refusal = regx_source_message(source, REGX_CONTROL_REFUSED);

        refusal.offset = op->offset;
        refusal.length = op->put.length;
        refusal.for_ever = op->for_ever;
        refusal.failed = op->failed;
        const regx_status_t status = regx_control_send(source->peer, &refusal);
        if (status != REGX_OK) {
            return status;
        }
        source->refusals = op->next;
        free(op);
    }
    return regx_source_tell_exposed_locked(source);
}

static regx_put_op_t *op_new(regx_source_t *source)
{
    regx_put_op_t *op = source->spare;

    source->spare = NULL;
    return op != NULL ? op : malloc(sizeof(*op));
}

static void op_free(regx_source_t *source, regx_put_op_t *op)
{
    if (source->spare == NULL) {
        source->spare = op;
    } else {
        free(op);
    }
}

/* What became of a grant, or a piece of it. */
static void ended_locked(regx_rndv_t *rndv, regx_put_op_t *op, regx_status_t status)
{
    regx_source_t *source = op->source;

    source->in_flight--;
    if (status == REGX_OK) {
        source->sent += op->put.length;
        source->sent_slots += op->chunk ? 0 : op->put.length;
        regx_count(rndv->counters, &rndv->counters->puts, 1);
        regx_count(rndv->counters, &rndv->counters->chunks_sender,
                   op->chunk && source->path == REGX_PATH_together);
        op_free(source, op);
    } else if (op->chunk && status != REGX_UNREACHABLE) {
        op->for_ever = status == REGX_DENIED;
        op->failed = status == REGX_FAILED;
        source->careful |= op->failed;
        op->put.length += regx_source_take_rest(source, op->offset + op->put.length);
        op->next = source->refusals;
        source->refusals = op;
        source->fallback = true;
        source->granted -= op->put.length;
    } else {
        source->failed = true;
        source->gone |= status == REGX_UNREACHABLE;
        op_free(source, op);
    }
}

/* Gives up what a put had of local memory. Not locked. If the put failed the buffer may have been
 * unmapped, which is looked for while it still counts as in use. */
static void let_go(regx_rndv_t *rndv, regx_put_op_t *op, regx_status_t status)
{
    if (op->registered) {
        if (status == REGX_FAILED) {
            regx_registry_progress(rndv->registry);
        }
        regx_region_release(rndv->registry, &op->region);
    }
    free(op->copy);
}

/* Makes a slot's bytes safe to be read by the transport. false: no memory. */
static bool copy_carefully(regx_rndv_t *rndv, regx_put_op_t *op)
{
    op->copy = malloc(op->put.length);
    if (op->copy == NULL) {
        return false;
    }
    if (!regx_careful_read(op->copy, op->put.local, op->put.length)) {
        regx_tally(rndv->counters->fallbacks, "sender: buffer unmapped in mid-transfer");
    }
    op->put.local = op->copy;
    return true;
}

/* Has a slot written straight from where it is registered already, which spares the transport's
 * own copies. */
static void use_kept(regx_rndv_t *rndv, regx_put_op_t *op)
{
    op->registered = rndv->registry->transport->registers &&
                     regx_region_acquire_kept(rndv->registry, op->put.local, op->put.length,
                                              REGX_ACCESS_LOCAL, &op->region);
    if (op->registered) {
        op->put.region = op->region.mr;
    }
}

/* Fills a put for a grant; registers a chunk's local memory. Not locked. */
static regx_status_t prepare(regx_rndv_t *rndv, regx_put_op_t *op, const regx_grant_t *grant)
{
    regx_source_t *source = op->source;
    regx_control_t notice =
        regx_source_message(source, grant->chunk ? REGX_CONTROL_DONE : REGX_CONTROL_WRITTEN);

    notice.slot = grant->chunk ? 0 : (uint32_t)grant->place;
    notice.offset = grant->offset;
    notice.length = grant->length;
    op->rndv = rndv;
    op->offset = grant->offset;
    op->chunk = grant->chunk;
    op->piece = grant->piece;
    op->registered = false;
    op->copy = NULL;
    /* Field by field: clearing the rest would cost as much as all of this. */
    op->put.local = source->base + grant->offset;
    op->put.length = grant->length;
    op->put.region = NULL;
    op->put.target = grant->chunk ? REGX_TARGET_REGION : REGX_TARGET_POOL;
    op->put.offset = grant->place;
    op->put.key = grant->key;
    op->put.done = put_done;
    op->put.context = op;
    if (op->careful && !grant->chunk && !copy_carefully(rndv, op)) {
        return REGX_NO_MEMORY;
    }
    notice.has_checksum = source->verify;
    if (source->verify) {
        notice.checksum = regx_checksum(op->put.local, op->put.length);
    }
    fill_notice(&op->put, &notice);
    op->put.immediate =
        source->introduced && !grant->piece ? regx_immediate_pack(&notice, source->chunk_size) : 0;
    source->introduced = true;
    if (!grant->chunk) {
        use_kept(rndv, op);
        return REGX_OK;
    }
    const regx_status_t status =
        regx_region_acquire(rndv->registry, (void *)(uintptr_t)op->put.local, op->put.length,
                            REGX_ACCESS_LOCAL, &op->region);
    if (status != REGX_OK) {
        regx_refusal_tally(rndv, REGX_SENDER, status, op->put.local, op->put.length);
        if (status == REGX_NO_MEMORY && op->put.length > rndv->config.chunk_size) {
            atomic_store(&rndv->whole_refused, true);
        }
        /* This chunk alone: REGX_DENIED would be of the peer's memory, for ever. */
        return status == REGX_DENIED ? REGX_FAILED : REGX_NO_MEMORY;
    }
    op->registered = true;
    op->put.region = op->region.mr;
    return REGX_OK;
}

/* Puts, the lock let go meanwhile. REGX_AGAIN: the op is held. */
static regx_status_t put_locked(regx_rndv_t *rndv, regx_put_op_t *op, const regx_grant_t *grant)
{
    regx_conn_t *conn = op->source->peer->conn;
    regx_status_t status = REGX_OK;

    regx_unlock(&rndv->lock);
    if (grant != NULL) {
        status = prepare(rndv, op, grant);
    }
    if (status == REGX_OK) {
        status = conn->transport->ops->put(conn, &op->put);
    }
    if (status != REGX_AGAIN && status != REGX_PENDING) {
        let_go(rndv, op, status);
    }
    regx_lock(&rndv->lock);
    if (status == REGX_AGAIN) {
        op->source->held = op;
        return REGX_AGAIN;
    }
    if (status != REGX_PENDING) {
        ended_locked(rndv, op, status);
    }
    return REGX_OK;
}

/* One step: a held put, the next grant, or the next exposure. REGX_AGAIN: no room; REGX_PENDING:
 * nothing to do. */
static regx_status_t step_locked(regx_rndv_t *rndv, regx_source_t *source)
{
    regx_put_op_t *op = source->held;
    regx_grant_t grant;

    if (op != NULL) {
        source->held = NULL;
        return put_locked(rndv, op, NULL);
    }
    if (source->count == 0) {
        return regx_source_expose_locked(rndv, source);
    }
    if (source->queue[source->first].piece && source->in_flight >= rndv->config.chunk_depth) {
        return REGX_PENDING;
    }
    op = op_new(source);
    if (op == NULL) {
        return REGX_AGAIN;
    }
    grant = regx_source_next_piece(source);
    op->source = source;
    op->careful = source->careful;
    source->in_flight++;
    if (grant.chunk) {
        regx_count_high(&rndv->counters->chunks_high, source->in_flight);
    }
    return put_locked(rndv, op, &grant);
}

static void count_message(regx_rndv_t *rndv, const regx_source_t *source)
{
    regx_counters_t *counters = rndv->counters;
    const bool by_slots = source->sent_slots == source->length;

    regx_count(counters, &counters->messages[by_slots ? REGX_PATH_bounce : source->path], 1);
    regx_count(counters, &counters->bytes[REGX_PATH_bounce], source->sent_slots);
    if (source->path != REGX_PATH_bounce) {
        regx_count(counters, &counters->bytes[source->path], source->length - source->sent_slots);
    }
    if (source->fallback) {
        regx_count_message(counters, REGX_PATH_fallback, source->length);
    }
}

/* Gives up what a failed source still holds. Lets go of the lock meanwhile; the source is busy. */
static void drop_locked(regx_rndv_t *rndv, regx_source_t *source)
{
    regx_put_op_t *held = source->held;

    if (held != NULL) {
        source->held = NULL;
        regx_unlock(&rndv->lock);
        let_go(rndv, held, REGX_OK);
        regx_lock(&rndv->lock);
        source->in_flight--;
        free(held);
    }
    source->count = 0;
    while (source->refusals != NULL) {
        regx_put_op_t *op = source->refusals;

        source->refusals = op->next;
        free(op);
    }
    regx_source_hide_locked(rndv, source);
}

static void set_stalled_locked(regx_rndv_t *rndv, regx_source_t *source, bool stalled)
{
    regx_list_set(&rndv->stalled, &source->link, stalled);
    if (stalled) {
        atomic_store_explicit(&rndv->retry_sources, true, memory_order_relaxed);
    }
}

/* Tells the end. The lock is held on entry, not on return. */
static void finish(regx_rndv_t *rndv, regx_source_t *source)
{
    const regx_source_done_t done = source->done;
    const regx_status_t failure = source->gone ? REGX_UNREACHABLE : REGX_FAILED;
    const regx_status_t status = source->failed ? failure : REGX_OK;
    void *context = source->context;

    regx_handle_table_remove(&rndv->sources, source->name);
    regx_list_remove(&source->link);
    if (!source->failed) {
        count_message(rndv, source);
    }
    regx_list_append(&rndv->unused_sources, &source->link);
    regx_unlock(&rndv->lock);
    done(context, status);
}

/* Goes on as far as possible. The lock is held on entry, not on return. */
static void run(regx_rndv_t *rndv, regx_source_t *source)
{
    regx_status_t status = REGX_OK;

    if (source->busy) {
        regx_unlock(&rndv->lock);
        return;
    }
    source->busy = true;
    while (status == REGX_OK && !source->failed) {
        status = send_due_locked(source);
        if (status == REGX_OK) {
            status = step_locked(rndv, source);
        }
    }
    if (status == REGX_UNREACHABLE || source->failed) {
        source->failed = true;
        source->gone |= status == REGX_UNREACHABLE;
        drop_locked(rndv, source);
    }
    source->busy = false;
    set_stalled_locked(rndv, source, status == REGX_AGAIN && !source->failed);
    if (source->in_flight == 0 && (source->failed || source->sent == source->length)) {
        finish(rndv, source);
    } else {
        regx_unlock(&rndv->lock);
    }
}

static void put_done(regx_put_t *put, regx_status_t status)
{
    regx_put_op_t *op = put->context;
    regx_rndv_t *rndv = op->rndv;
    regx_source_t *source = op->source;

    let_go(rndv, op, status);
    regx_lock(&rndv->lock);
    /* The pieces behind it may be under way: it cannot be refused in its turn any more. */
    source->failed |= op->piece && status != REGX_OK;
    ended_locked(rndv, op, status);
    run(rndv, source);
}

void regx_source_open(regx_rndv_t *rndv, regx_peer_t *peer, const void *base, size_t length,
                      const uint8_t bytes[REGX_CTS_SIZE], regx_source_done_t done, void *context)
{
    regx_source_t *source;
    regx_cts_t cts;

    if (!regx_cts_unpack(bytes, &cts) || cts.length != length || length == 0) {
        regx_malformed(rndv);
        done(context, REGX_INVALID);
        return;
    }
    source = source_new(rndv);
    if (source == NULL) {
        done(context, REGX_NO_MEMORY);
        return;
    }
    source->peer = peer;
    source->base = base;
    source->length = length;
    source->done = done;
    source->context = context;
    source->landing = cts.landing;
    source->path = cts.path;
    source->fallback = cts.fallback;
    source->verify = cts.verify || rndv->config.verify;
    source->chunk_size = cts.chunk_length;
    source->piece_most = regx_source_piece_most(rndv, peer, base, &cts);
    regx_lock(&rndv->lock);
    const bool valid = regx_source_take_first_grants(rndv, source, &cts);
    if (valid && regx_handle_table_add(&rndv->sources, source, &source->name)) {
        run(rndv, source);
        return;
    }
    regx_list_append(&rndv->unused_sources, &source->link);
    regx_unlock(&rndv->lock);
    if (!valid) {
        regx_malformed(rndv);
    }
    done(context, valid ? REGX_NO_MEMORY : REGX_INVALID);
}

static bool take_news(regx_rndv_t *rndv, regx_source_t *source, const regx_control_t *control)
{
    switch (control->type) {
    case REGX_CONTROL_GOT:
        return regx_source_got_locked(rndv, source, control);
    case REGX_CONTROL_CHUNK:
        return regx_source_take_chunk(source, control->offset, control->length, control->start,
                                      &control->key);
    default:
        return regx_source_take_slots(source, control->offset, control->slots, control->slot_count);
    }
}

void regx_source_control(regx_rndv_t *rndv, uint64_t sender, const regx_control_t *control)
{
    regx_lock(&rndv->lock);
    regx_source_t *source = regx_handle_table_find(&rndv->sources, control->to);
    if (source == NULL || source->peer->id != sender || !take_news(rndv, source, control)) {
        regx_unlock(&rndv->lock);
        regx_malformed(rndv);
        return;
    }
    run(rndv, source);
}

int regx_sources_advance(regx_rndv_t *rndv)
{
    int advanced = 0;

    regx_lock(&rndv->lock);
    atomic_store_explicit(&rndv->retry_sources, false, memory_order_relaxed);
    regx_list_move(&rndv->round, &rndv->stalled);
    while (!regx_list_empty(&rndv->round)) {
        regx_source_t *source = of_link(rndv->round.next);

        regx_list_remove(&source->link);
        run(rndv, source);
        regx_lock(&rndv->lock);
        advanced++;
    }
    regx_unlock(&rndv->lock);
    return advanced;
}

void regx_sources_forget(regx_rndv_t *rndv, const regx_peer_t *peer)
{
    regx_lock(&rndv->lock);
    for (uint32_t i = 0; i < rndv->sources.count; i++) {
        regx_source_t *source = rndv->sources.entries[i].object;

        if (source != NULL && source->peer == peer) {
            source->failed = source->gone = true;
            run(rndv, source);
            regx_lock(&rndv->lock);
        }
    }
    regx_unlock(&rndv->lock);
}

void regx_sources_free(regx_rndv_t *rndv)
{
    while (!regx_list_empty(&rndv->unused_sources)) {
        regx_source_t *source = of_link(rndv->unused_sources.next);

        regx_list_remove(&source->link);
        free(source->spare);
        free(source);
    }
}

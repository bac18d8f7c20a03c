/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/recv.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"

_Static_assert(offsetof(struct regx_rndv_recv, cts) == 0, "the owner ships the first bytes");

static regx_rndv_recv_t *recv_new(regx_rndv_t *rndv)
{
    const unsigned chunks = rndv->config.chunk_depth;

    regx_lock(&rndv->lock);
    regx_rndv_recv_t *recv = regx_spares_take(&rndv->spares.recvs);
    regx_unlock(&rndv->lock);
    if (recv == NULL && (recv = malloc(sizeof(*recv) + chunks * sizeof(regx_chunk_t))) == NULL) {
        return NULL;
    }
    memset(recv, 0, sizeof(*recv));
    recv->rndv = rndv;
    recv->outbox = (regx_outbox_t){.room = 2, .messages = recv->messages};
    for (unsigned i = 0; i < chunks; i++) {
        recv->chunks[i].state = REGX_CHUNK_FREE;
    }
    regx_list_init(&recv->link);
    return recv;
}

static void set_path(const regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_path_t path,
                     regx_why_t why)
{
    recv->path = path;
    recv->protocol = rndv->paths[path]->protocol;
    recv->why = why;
}

/* Why that path is impossible with that peer; REGX_WHY_asked: it is possible. */
static regx_why_t obstacle(const regx_strategy_t *strategy, const regx_peer_t *peer)
{
    if (strategy->copies && !peer->conn->single_copy) {
        return REGX_WHY_no_copies;
    }
    switch (strategy->protocol->grants) {
    case REGX_GRANTS_CHUNK:
        return peer->no_puts ? REGX_WHY_no_puts : REGX_WHY_asked;
    case REGX_GRANTS_RKEYS:
        return peer->no_gets ? REGX_WHY_no_gets : REGX_WHY_asked;
    default:
        return REGX_WHY_asked;
    }
}

static void choose_path(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    const regx_strategy_t *strategy = rndv->config.strategy;
    const regx_path_t path =
        strategy->choose != NULL ? strategy->choose(rndv, recv) : strategy->path;
    const regx_why_t why = obstacle(rndv->paths[path], recv->peer);

    if (why != REGX_WHY_asked) {
        regx_fall_back(rndv, regx_why_texts[why]);
        set_path(rndv, recv, REGX_PATH_bounce, why);
    } else {
        set_path(rndv, recv, path, recv->why);
    }
}

static void leave_trial_locked(const regx_rndv_recv_t *recv)
{
    const bool whole = recv->landed == recv->buffer.length && !regx_why_is_fallback(recv->why);

    regx_auto_leave(&recv->trial, recv->buffer.length,
                    whole && recv->slots.used == (recv->path == REGX_PATH_bounce));
}

static uint8_t cts_bits(const regx_rndv_t *rndv, const regx_rndv_recv_t *recv)
{
    const bool revocable = regx_recv_ends_by_arrived(recv);

    return (rndv->config.verify ? REGX_CTS_VERIFY : 0) |
           (recv->buffer.suspect ? REGX_CTS_SUSPECT : 0) | (revocable ? REGX_CTS_REVOCABLE : 0) |
           (revocable && rndv->config.grant == REGX_GRANT_OPTIMISTIC ? REGX_CTS_OPTIMISTIC : 0);
}

/* The rest of the CTS. */
static void fill_cts_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    if (recv->protocol->first_grant_locked != NULL) {
        recv->protocol->first_grant_locked(rndv, recv);
    }
    recv->cts.version = REGX_CONTROL_VERSION;
    recv->cts.path = (uint8_t)recv->path;
    recv->cts.why = (uint8_t)recv->why;
    recv->cts.bits |= cts_bits(rndv, recv);
    recv->cts.length = recv->buffer.length;
}

/* Registrations made after a change was reported and before it took effect are of the old pages.
 * The proof (ARRIVED) has caught what went there, but later messages must not find them in the
 * cache. Not if it was sent again only because another receive had done this, whose buffer shares a
 * page with it: two neighbours would have each other sent again without end. */
static void end_watch(regx_rndv_recv_t *recv)
{
    regx_revocable_t *revoke = &recv->revoke;

    if (regx_recv_ends_by_arrived(recv)) {
        if (revoke->watch.changed || revoke->failures > 0 ||
            revoke->state == REGX_REVOKE_GIVEN_UP) {
            regx_watch_flush(&revoke->watch);
        }
        regx_watch_end(&revoke->watch);
        revoke->state = REGX_REVOKE_NEVER;
    }
}

/* No other thread knows it any more. */
static void give_up_memory(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    if (recv->protocol->give_up_chunks != NULL) {
        recv->protocol->give_up_chunks(rndv, recv);
    }
    end_watch(recv);
    regx_drain_let_go(rndv->registry->drain, recv->drain);
}

void regx_recv_open_again_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, bool failed)
{
    recv->cts = (regx_cts_t){.recv = recv->cts.recv};
    recv->buffer.suspect |= failed;
    recv->slots.only = true;
    set_path(rndv, recv, REGX_PATH_bounce, REGX_WHY_unread);
    assert(!regx_recv_ends_by_arrived(recv)); /* what is read is not watched */
    fill_cts_locked(rndv, recv);
}

regx_rndv_recv_t *regx_rndv_recv_open(regx_rndv_t *rndv, regx_peer_t *peer, void *base,
                                      size_t length)
{
    regx_rndv_recv_t *recv = recv_new(rndv);

    if (recv == NULL) {
        return NULL;
    }
    /* What the program stored past the caches (movnt) must not come after what a peer writes. */
    regx_fence_stores();
    recv->peer = peer;
    recv->buffer.base = base;
    recv->buffer.length = length;
    recv->why = REGX_WHY_asked;
    recv->drain = regx_drain_hold(rndv->registry->drain, base, length);
    choose_path(rndv, recv);
    if (recv->protocol->recv_open != NULL && !recv->protocol->recv_open(rndv, recv)) {
        set_path(rndv, recv, REGX_PATH_bounce, REGX_WHY_receiver);
        end_watch(recv);
    }
    recv->slots.only = recv->path == REGX_PATH_bounce;
    regx_trace(rndv->config.trace, REGX_TRACE_PATH, "%zu bytes from rank %u over %s by %s", length,
               (unsigned)peer->id, peer->conn->transport->ops->name, regx_path_names[recv->path]);
    regx_lock(&rndv->lock);
    if (!regx_handle_table_add(&rndv->recvs, recv, &recv->cts.recv)) {
        leave_trial_locked(recv);
        regx_unlock(&rndv->lock);
        give_up_memory(rndv, recv);
        free(recv);
        return NULL;
    }
    fill_cts_locked(rndv, recv);
    if (regx_recv_ends_by_arrived(recv)) { /* progress looks at it from now on */
        atomic_store_explicit(&rndv->work.watches, true, memory_order_relaxed);
        regx_revoke_set_due(rndv);
    }
    regx_unlock(&rndv->lock);
    return recv;
}

void regx_recv_release_slot_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, uint32_t slot)
{
    assert(recv->slots.out > 0 && recv->peer->slots > 0);
    recv->peer->granted -= rndv->slots[slot].length;
    recv->peer->slots--;
    recv->slots.out--;
    recv->slots.bytes -= rndv->slots[slot].length;
    recv->slots.waits_for_own &= recv->slots.out > 0;
    rndv->slots[slot].recv = NULL;
    regx_pool_put(rndv->pool, slot);
}

/* Takes back slots that were granted and not written. */
static void take_back_slots_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    for (uint32_t slot = 0; recv->slots.out > 0 && slot < rndv->pool->slots; slot++) {
        if (rndv->slots[slot].recv == recv) {
            regx_recv_release_slot_locked(rndv, recv, slot);
        }
    }
}

void regx_rndv_recv_close(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    const struct timespec pause = {.tv_nsec = 10000};

    regx_lock(&rndv->lock);
    assert(recv->phase != REGX_RECV_CLOSED);
    recv->phase = REGX_RECV_CLOSED;
    recv->holds++;
    /* A thread that works on the receive ends its piece of work: the copy of one slot, one
     * registration, or one call of the transport. It starts no other, since the receive is CLOSED.
     * So this wait is short, and a process with one thread never waits. It cannot be left out:
     * after close nothing may write to the buffer. It sleeps, since the other thread may have a
     * lower priority and the same core. */
    while (recv->taken) {
        assert(rndv->lock.real);
        regx_unlock(&rndv->lock);
        nanosleep(&pause, NULL);
        regx_lock(&rndv->lock);
    }
    /* Only now: until here the peer may be forgotten, which looks for its receives in the table. */
    regx_handle_table_remove(&rndv->recvs, recv->cts.recv);
    leave_trial_locked(recv);
    regx_list_remove(&recv->link);
    if (regx_recv_ends_by_arrived(recv)) { /* perhaps nothing is watched any more */
        regx_revoke_set_due(rndv);
    }
    take_back_slots_locked(rndv, recv);
    /* No message will tell those that wait of these slots. */
    if (!regx_list_empty(&rndv->recv_lists.pending)) {
        atomic_store_explicit(&rndv->work.retry_recvs, true, memory_order_relaxed);
    }
    regx_unlock(&rndv->lock);
    give_up_memory(rndv, recv);
    if (recv->landed == recv->buffer.length) {
        regx_checked_written(recv->buffer.base, recv->buffer.length);
    }
    regx_lock(&rndv->lock);
    recv->holds--;
    regx_recv_free_locked(rndv, recv);
    regx_unlock(&rndv->lock);
}

void regx_recv_free_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    if (recv->phase == REGX_RECV_CLOSED && recv->holds == 0) {
        assert(recv->slots.out == 0);
        regx_spares_give(&rndv->spares.recvs, recv);
    }
}

regx_chunk_t *regx_recv_free_chunk(const regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        if (recv->chunks[i].state == REGX_CHUNK_FREE) {
            return &recv->chunks[i];
        }
    }
    return NULL;
}

regx_status_t regx_recv_register(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_chunk_t *chunk,
                                 unsigned access)
{
    char *const base = recv->buffer.base + chunk->offset;
    const regx_status_t status =
        regx_region_acquire(rndv->registry, base, chunk->length, access, &chunk->region);

    chunk->written = 0;
    if (status != REGX_OK) {
        regx_buffer_refused(rndv, REGX_RECEIVER, status, &chunk->region, base, chunk->length);
        recv->buffer.suspect |= status == REGX_DENIED;
    } else {
        regx_recv_set_start(recv, chunk);
    }
    return status;
}

void regx_recv_verify(regx_rndv_t *rndv, regx_rndv_recv_t *recv, const regx_control_t *control,
                      regx_path_t path)
{
    if ((control->bits & REGX_CONTROL_CHECKSUM) == 0) {
        return;
    }
    if (regx_recv_ends_by_arrived(recv)) { /* it may be sent again */
        regx_fall_back(rndv, "grant: the sender's verify is not heeded");
        return;
    }
    regx_count(rndv->counters, &rndv->counters->verified, 1);
    if (regx_buffer_checksum(recv->buffer.base + control->offset, control->length) ==
        control->checksum) {
        return;
    }
    if (!recv->corrupt) {
        snprintf(rndv->lost, sizeof(rndv->lost),
                 "bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64
                 " at %p by %s arrived as something else than was sent (verify)",
                 control->offset, control->offset + control->length - 1, recv->buffer.length,
                 (const void *)recv->buffer.base, regx_path_names[path]);
        rndv->lost_may_be_longer = false;
    }
    recv->corrupt = true;
}

void regx_recv_note_lost(regx_rndv_t *rndv, regx_rndv_recv_t *recv, const regx_control_t *control,
                         const char *lacks)
{
    if (!recv->corrupt) {
        snprintf(rndv->lost, sizeof(rndv->lost),
                 "bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64
                 " did not all reach the receive buffer at %p: it is %s there%s",
                 control->offset, control->offset + control->length - 1, recv->buffer.length,
                 (const void *)recv->buffer.base, lacks != NULL ? lacks : "not accessible",
                 recv->may_be_longer ? ", or shorter than the message" : "");
        rndv->lost_may_be_longer = recv->may_be_longer;
    }
    recv->corrupt = true;
}

void regx_recv_report(regx_rndv_t *rndv, const regx_peer_t *peer)
{
    char what[sizeof(rndv->lost)];

    if (rndv->lost[0] != '\0') {
        memcpy(what, rndv->lost, sizeof(what));
        /* First: the owner may end the connection, and with it other gets. */
        rndv->lost[0] = '\0';
        rndv->config.lost(rndv->config.context, peer, what, rndv->lost_may_be_longer);
    }
}

bool regx_recv_slot_range_locked(const regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                 regx_slot_range_t *range)
{
    for (unsigned i = 0; i < rndv->config.chunk_depth && recv->path != REGX_PATH_bounce; i++) {
        regx_chunk_t *chunk = &recv->chunks[i];

        if (chunk->state == REGX_CHUNK_BY_SLOTS) {
            *range = (regx_slot_range_t){chunk, chunk->offset, chunk->length};
            return true;
        }
    }
    assert(recv->granted <= recv->buffer.length);
    *range = (regx_slot_range_t){NULL, recv->granted, recv->buffer.length - recv->granted};
    return recv->slots.only && range->length > 0;
}

void regx_recvs_forget(regx_rndv_t *rndv, const regx_peer_t *peer)
{
    regx_lock(&rndv->lock);
    for (uint32_t i = 0; i < rndv->recvs.count; i++) {
        regx_rndv_recv_t *recv = regx_handle_table_at(&rndv->recvs, i);

        if (recv != NULL && recv->peer == peer) {
            regx_list_remove(&recv->link);
            take_back_slots_locked(rndv, recv);
            recv->peer = &rndv->nobody;
            if (recv->phase != REGX_RECV_CLOSED) {
                if (recv->phase != REGX_RECV_READING &&
                    recv->holds == 0) { /* no get is under way */
                    regx_drain_let_go(rndv->registry->drain, recv->drain);
                    recv->drain = 0;
                }
                recv->phase = REGX_RECV_LOST;
            }
        }
    }
    regx_unlock(&rndv->lock);
}

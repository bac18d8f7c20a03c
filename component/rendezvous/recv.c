/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What all protocols have in common on the receive side: a receive is opened, has chunks and slots,
 * and is closed. What happens in between is serve.c's; what moves the bytes is the protocol's
 * (recv.h).
 */
#include "rendezvous/recv.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Static_assert(offsetof(struct regx_rndv_recv, cts) == 0, "the owner ships the first bytes");

/* ---- a receive is opened ---- */

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
    if (strategy->reads) {
        return peer->no_gets ? REGX_WHY_no_gets : REGX_WHY_asked;
    }
    return strategy->protocol->grants == REGX_GRANTS_CHUNK && peer->no_puts ? REGX_WHY_no_puts
                                                                            : REGX_WHY_asked;
}

bool regx_rndv_is_paged(regx_rndv_t *rndv, const void *base, size_t length)
{
    return regx_paging_is_on(&rndv->paging, (uintptr_t)base, (uintptr_t)base + length);
}

/* The same, asked once for each buffer, as long as that is remembered: programs use their buffers again. So it
 * is not found out where a userfaultfd comes to memory that was received into before. */
static bool may_be_paged(regx_rndv_t *rndv, const regx_rndv_recv_t *recv)
{
    const uintptr_t start = (uintptr_t)recv->buffer.base, end = start + recv->buffer.length;
    regx_unpaged_t *known = &rndv->unpaged[start / 64 % REGX_RNDV_KNOWN];

    regx_lock(&rndv->lock);
    const bool is_known = known->start == start && end <= known->end;
    regx_unlock(&rndv->lock);
    if (is_known) {
        return false;
    }
    if (regx_rndv_is_paged(rndv, recv->buffer.base, recv->buffer.length)) {
        return true;
    }
    regx_lock(&rndv->lock);
    *known = (regx_unpaged_t){start, end};
    regx_unlock(&rndv->lock);
    return false;
}

/* It goes that way instead, for that reason. Returns why that is impossible, or REGX_WHY_asked. */
static regx_why_t go_instead(const regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_path_t path,
                             regx_why_t why)
{
    regx_fall_back(rndv, regx_why_texts[why]);
    set_path(rndv, recv, path, why);
    return obstacle(rndv->paths[path], recv->peer);
}

static void choose_path(regx_rndv_t *rndv, regx_rndv_recv_t *recv, bool to_get)
{
    const regx_strategy_t *strategy = rndv->config.strategy;
    const regx_conn_t *conn = recv->peer->conn;
    const regx_path_t path =
        strategy->choose != NULL ? strategy->choose(rndv, recv) : strategy->path;
    regx_why_t why = obstacle(rndv->paths[path], recv->peer);

    set_path(rndv, recv, path, recv->why);
    if (why == REGX_WHY_asked && rndv->paths[path]->reads && !to_get) {
        why = go_instead(rndv, recv, REGX_PATH_pipeline, REGX_WHY_unexposed);
    }
    /* The sender is not to have the kernel write to memory that a userfaultfd of the program's watches. The
     * kernel looks up many pages (up to 1,024) before it fills them. If the program protects one in between
     * it is not told of the write; if it takes one away, the bytes are lost. A copy by this process behaves
     * like any store of the program. (By remap the sender writes to pages of regx's.) */
    if (why == REGX_WHY_asked && conn->single_copy && !conn->transport->forked &&
        rndv->paths[recv->path]->sender_writes && may_be_paged(rndv, recv)) {
        why = go_instead(rndv, recv, to_get ? REGX_PATH_read : REGX_PATH_bounce, REGX_WHY_paged);
    }
    if (why != REGX_WHY_asked) {
        go_instead(rndv, recv, REGX_PATH_bounce, why);
    }
}

static void leave_trial_locked(const regx_rndv_recv_t *recv)
{
    /* It went as chosen: by slots if and only if the path is bounce. */
    const bool whole = recv->landed == recv->buffer.length && recv->why != REGX_WHY_unstaged &&
                       !regx_why_is_fallback(recv->why);

    regx_tune_leave(&recv->trial, recv->buffer.length,
                    whole && recv->slots.used == (recv->path == REGX_PATH_bounce));
}

void regx_recv_complete_cts_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    regx_cts_t *cts = &recv->cts;

    if (cts->version != 0) { /* it is made */
        return;
    }
    if (rndv->paths[recv->path]->reads) { /* it was to be read, and was not */
        recv->slots.only = true;
        if (regx_why_is_fallback(recv->why)) { /* it was counted then */
            set_path(rndv, recv, REGX_PATH_bounce, recv->why);
        } else {
            go_instead(rndv, recv, REGX_PATH_bounce, REGX_WHY_unread);
        }
    }
    if (recv->protocol->grant_first_locked != NULL && recv->phase == REGX_RECV_OPENED) {
        recv->protocol->grant_first_locked(rndv, recv);
    }
    cts->version = REGX_CONTROL_VERSION;
    cts->path = (uint8_t)recv->path;
    cts->why = (uint8_t)recv->why;
    cts->length = recv->buffer.length;
    cts->bits |= rndv->config.verify ? REGX_CTS_VERIFY : 0;
    cts->bits |= recv->buffer.suspect ? REGX_CTS_SUSPECT : 0;
    cts->bits |= regx_recv_ends_by_arrived(recv) ? REGX_CTS_REVOCABLE : 0;
}

/* Registrations made after a change was reported and before it took effect are of the old pages.
 * The checksum of ARRIVED has caught what went there (design/grants.md), but later messages must not find
 * them in the cache. So they are flushed, but only if this receive's own memory changed, or a write into it
 * failed. For a flush ends the registrations of every buffer on these pages, and their receives take that for
 * a change: two receives whose buffers share a page would have each other sent again, without end. */
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

regx_rndv_recv_t *regx_rndv_recv_open(regx_rndv_t *rndv, regx_peer_t *peer, void *base,
                                      size_t length, bool to_get)
{
    /* Room in the outbox for a grant, and a REVOKE. */
    const unsigned chunks = rndv->config.chunk_depth, messages = 2;

    regx_lock(&rndv->lock);
    regx_rndv_recv_t *recv = regx_spares_take(&rndv->spares.recvs);
    regx_unlock(&rndv->lock);
    if (recv == NULL) {
        recv = malloc(sizeof(*recv) + chunks * sizeof(regx_chunk_t) +
                      messages * sizeof(regx_control_t));
    }
    if (recv == NULL) {
        return NULL;
    }
    memset(recv, 0, sizeof(*recv));
    recv->rndv = rndv;
    recv->outbox =
        (regx_outbox_t){.room = messages, .messages = (regx_control_t *)&recv->chunks[chunks]};
    for (unsigned i = 0; i < chunks; i++) {
        recv->chunks[i].state = REGX_CHUNK_FREE;
    }
    /* What the program stored past the caches (movnt) must not come after what a peer writes. */
    regx_fence_stores();
    recv->peer = peer;
    recv->buffer.base = base;
    recv->buffer.length = length;
    recv->why = REGX_WHY_asked;
    recv->drain = regx_drain_hold(rndv->registry->drain, base, length);
    choose_path(rndv, recv, to_get);
    if (recv->protocol->grant_first != NULL && !recv->protocol->grant_first(rndv, recv)) {
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
    if (!to_get) {
        regx_recv_complete_cts_locked(rndv, recv);
    }
    if (regx_recv_ends_by_arrived(recv)) { /* progress looks at it from now on */
        atomic_store_explicit(&rndv->work.watches, true, memory_order_relaxed);
        regx_revoke_set_due(rndv);
    }
    regx_unlock(&rndv->lock);
    return recv;
}

void regx_recv_open_again_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, bool failed)
{
    recv->cts = (regx_cts_t){.recv = recv->cts.recv};
    recv->buffer.suspect |= failed;
    recv->slots.only = true;
    set_path(rndv, recv, REGX_PATH_bounce, REGX_WHY_unread);
    assert(!regx_recv_ends_by_arrived(recv)); /* what is read is not watched */
}

/* ---- its chunks and slots ---- */

regx_chunk_t *regx_recv_chunk_find(const regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                   regx_chunk_state_t state)
{
    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        if (recv->chunks[i].state == state) {
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

bool regx_recv_slot_range_locked(const regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                 regx_slot_range_t *range)
{
    regx_chunk_t *chunk = recv->path != REGX_PATH_bounce
                              ? regx_recv_chunk_find(rndv, recv, REGX_CHUNK_BY_SLOTS)
                              : NULL;

    if (chunk != NULL) {
        *range = (regx_slot_range_t){chunk, chunk->offset, chunk->length};
        return true;
    }
    assert(recv->granted <= recv->buffer.length);
    *range = (regx_slot_range_t){NULL, recv->granted, recv->buffer.length - recv->granted};
    return recv->slots.only && range->length > 0;
}

void regx_recv_release_slot_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, uint32_t slot)
{
    assert(recv->slots.out > 0 && recv->peer->slots > 0);
    rndv->slots[slot].recv = NULL;
    atomic_signal_fence(
        memory_order_seq_cst); /* it is given up once, wherever the program leaves MPI */
    recv->peer->granted -= rndv->slots[slot].length;
    recv->peer->slots--;
    recv->slots.out--;
    recv->slots.bytes -= rndv->slots[slot].length;
    recv->slots.waits_for_own &= recv->slots.out > 0;
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

/* ---- whether the right bytes have arrived ---- */

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
    regx_lock(&rndv->lock);
    if (!recv->corrupt) {
        snprintf(rndv->lost.text, sizeof(rndv->lost.text),
                 "bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64
                 " at %p by %s arrived as something else than was sent (verify)",
                 control->offset, control->offset + control->length - 1, recv->buffer.length,
                 (const void *)recv->buffer.base, regx_path_names[path]);
        rndv->lost.may_be_longer = false;
        atomic_store(&rndv->lost.noted, true);
    }
    recv->corrupt = true;
    regx_unlock(&rndv->lock);
}

void regx_recv_note_lost_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                const regx_control_t *control, const char *lacks)
{
    if (!recv->corrupt) {
        snprintf(rndv->lost.text, sizeof(rndv->lost.text),
                 "bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64
                 " did not all reach the receive buffer at %p: there it is %s%s",
                 control->offset, control->offset + control->length - 1, recv->buffer.length,
                 (const void *)recv->buffer.base, lacks,
                 recv->may_be_longer ? ", or shorter than the message" : "");
        rndv->lost.may_be_longer = recv->may_be_longer;
        atomic_store(&rndv->lost.noted, true);
    }
    recv->corrupt = true;
}

void regx_recv_report(regx_rndv_t *rndv, const regx_peer_t *peer)
{
    char what[sizeof(rndv->lost.text)];

    if (!atomic_load_explicit(&rndv->lost.noted, memory_order_relaxed)) {
        return;
    }
    regx_lock(&rndv->lock);
    const bool noted = atomic_exchange(&rndv->lost.noted, false);
    const bool may_be_longer = rndv->lost.may_be_longer;
    memcpy(what, rndv->lost.text, sizeof(what));
    regx_unlock(&rndv->lock);
    if (noted) { /* the owner may end the connection, and with it other gets */
        rndv->config.lost(rndv->config.context, peer, what, may_be_longer);
    }
}

/* ---- it is closed, or its peer is lost ---- */

void regx_recv_free_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    if (recv->phase == REGX_RECV_CLOSED && recv->holds == 0) {
        assert(recv->slots.out == 0);
        regx_spares_give(&rndv->spares.recvs, recv);
    }
}

void regx_rndv_recv_close(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    const struct timespec pause = {.tv_nsec = 10000};

    regx_lock(&rndv->lock);
    assert(recv->phase != REGX_RECV_CLOSED);
    recv->phase = REGX_RECV_CLOSED;
    recv->holds++;
    /* A thread that works on the receive ends its stage: the copy of one slot, one registration, or
     * one call of the transport. It starts no other, since the receive is CLOSED. So this wait is
     * short, and a process with one thread never waits. It cannot be left out: after close nothing
     * may write to the buffer. It sleeps, since the other thread may have a lower priority and the
     * same core. */
    while (recv->busy) {
        assert(rndv->lock.real);
        regx_unlock(&rndv->lock);
        nanosleep(&pause, NULL);
        regx_lock(&rndv->lock);
    }
    /* Not before the wait: meanwhile regx_recvs_forget may run, which finds a lost peer's receives in
     * this table. */
    regx_handle_table_remove(&rndv->recvs, recv->cts.recv);
    leave_trial_locked(recv);
    regx_list_remove(&recv->link);
    if (regx_recv_ends_by_arrived(recv)) { /* perhaps nothing is watched any more */
        regx_revoke_set_due(rndv);
    }
    take_back_slots_locked(rndv, recv);
    /* Receives that wait for slots learn of these by no message: progress is to look. */
    if (!regx_list_empty(&rndv->recv_lists.pending)) {
        atomic_store_explicit(&rndv->work.retry_recvs, true, memory_order_relaxed);
    }
    regx_unlock(&rndv->lock);
    give_up_memory(rndv, recv);
    if (recv->landed == recv->buffer.length) {
        regx_copy_came(recv->buffer.base, recv->buffer.length);
    }
    regx_lock(&rndv->lock);
    recv->holds--;
    regx_recv_free_locked(rndv, recv);
    regx_unlock(&rndv->lock);
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

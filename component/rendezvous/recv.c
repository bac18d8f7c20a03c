/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/recv.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "rendezvous/checksum.h"
#include "rendezvous/proto.h"
#include "rendezvous/refusal.h"
#include "rendezvous/strategy.h"

_Static_assert(offsetof(struct regx_rndv_recv, cts) == 0, "the owner ships the first bytes");

static regx_rndv_recv_t *of_link(regx_link_t *link)
{
    return REGX_CONTAINER_OF(link, regx_rndv_recv_t, link);
}

static regx_rndv_recv_t *recv_new(regx_rndv_t *rndv)
{
    regx_rndv_recv_t *recv = NULL;
    const size_t size = sizeof(*recv) + rndv->config.chunk_depth * sizeof(regx_chunk_t);

    regx_lock(&rndv->lock);
    if (!regx_list_empty(&rndv->free_recvs)) {
        recv = of_link(rndv->free_recvs.next);
        regx_list_remove(&recv->link);
    }
    regx_unlock(&rndv->lock);
    if (recv == NULL) {
        recv = malloc(size);
        if (recv == NULL) {
            return NULL;
        }
    }
    memset(recv, 0, size);
    regx_list_init(&recv->link);
    regx_list_init(&recv->revoke.link);
    return recv;
}

static void set_path(const regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_path_t path,
                     bool fallback)
{
    recv->path = path;
    recv->protocol = rndv->protocols[path];
    recv->fallback |= fallback;
}

static void choose_path(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    const regx_strategy_t *strategy = rndv->config.strategy;
    const regx_path_t path =
        strategy->choose != NULL ? strategy->choose(rndv, recv) : strategy->path;
    const regx_protocol_t *protocol = rndv->protocols[path];
    const char *reason = protocol->obstacle != NULL ? protocol->obstacle(recv->peer) : NULL;

    if (reason != NULL) {
        regx_fall_back(rndv, reason);
    }
    set_path(rndv, recv, reason != NULL ? REGX_PATH_bounce : path, reason != NULL);
}

static void leave_trial_locked(const regx_rndv_recv_t *recv)
{
    const bool whole = recv->landed == recv->length && !recv->fallback;

    regx_autotune_leave(&recv->trial, recv->length,
                        whole && recv->by_slots == (recv->path == REGX_PATH_bounce));
}

/* The rest of the CTS, and its bytes. */
static void fill_cts_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_cts_t *cts)
{
    if (recv->protocol->first_grant_locked != NULL) {
        recv->protocol->first_grant_locked(rndv, recv, cts);
    }
    cts->length = recv->length;
    cts->path = recv->path;
    cts->grants = recv->protocol->grants;
    cts->fallback = recv->fallback;
    cts->suspect = recv->buffer_suspect;
    cts->verify = rndv->config.verify;
    cts->revocable = regx_recv_is_revocable(recv);
    cts->optimistic = cts->revocable && recv->revoke.optimistic;
    cts->recv = recv->handle;
    regx_cts_pack(cts, recv->cts);
}

/* What was granted anew may have been registered before the reported change was made. It
 * has served; nobody is to find it once the MPI has the buffer back. */
static void end_watch(regx_rndv_recv_t *recv)
{
    regx_revocable_t *revoke = &recv->revoke;

    if (regx_recv_is_revocable(recv)) {
        if (revoke->times > 0 || revoke->state == REGX_REVOKE_GIVEN_UP) {
            regx_watch_flush(&revoke->watch);
        }
        regx_watch_end(&revoke->watch);
        revoke->state = REGX_REVOKE_NEVER;
    }
}

void regx_recv_open_again_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, bool failed)
{
    regx_cts_t cts = {0};

    recv->phase = REGX_RECV_OPENED;
    recv->buffer_suspect |= failed;
    recv->slots_only = true;
    set_path(rndv, recv, REGX_PATH_bounce, true);
    regx_list_set(&rndv->revocable_recvs, &recv->revoke.link, false);
    end_watch(recv);
    fill_cts_locked(rndv, recv, &cts);
}

regx_rndv_recv_t *regx_rndv_recv_open(regx_rndv_t *rndv, regx_peer_t *peer, void *base,
                                      size_t length)
{
    regx_rndv_recv_t *recv = recv_new(rndv);
    regx_cts_t cts = {0};

    if (recv == NULL) {
        return NULL;
    }
    regx_channel_warm(peer); /* the CTS */
    recv->peer = peer;
    recv->base = base;
    recv->length = length;
    recv->drain = regx_registry_hold(rndv->registry, base, length);
    choose_path(rndv, recv);
    if (recv->protocol->recv_open != NULL && !recv->protocol->recv_open(rndv, recv, &cts)) {
        set_path(rndv, recv, REGX_PATH_bounce, true);
        end_watch(recv);
    }
    recv->slots_only = recv->path == REGX_PATH_bounce;
    if (regx_traces(rndv->config.trace, REGX_TRACE_PATH)) {
        regx_trace(rndv->config.trace, REGX_TRACE_PATH, "%zu bytes from rank %u over %s by %s",
                   length, (unsigned)peer->id, peer->conn->wire, regx_path_name(recv->path));
    }
    regx_lock(&rndv->lock);
    if (!regx_handle_table_add(&rndv->recvs, recv, &recv->handle)) {
        leave_trial_locked(recv);
        regx_unlock(&rndv->lock);
        if (recv->protocol->revoke_chunks != NULL) {
            recv->protocol->revoke_chunks(rndv, recv);
        }
        end_watch(recv);
        regx_registry_let_go(rndv->registry, recv->drain);
        free(recv);
        return NULL;
    }
    fill_cts_locked(rndv, recv, &cts);
    if (regx_recv_is_revocable(recv)) { /* progress looks at it from now on */
        regx_list_append(&rndv->revocable_recvs, &recv->revoke.link);
        atomic_store_explicit(&rndv->work.watches, true, memory_order_relaxed);
        atomic_store_explicit(&rndv->looks_due, true, memory_order_relaxed);
    }
    regx_unlock(&rndv->lock);
    return recv;
}

void regx_rndv_recv_close(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    regx_lock(&rndv->lock);
    assert(recv->phase != REGX_RECV_CLOSED);
    recv->phase = REGX_RECV_CLOSED;
    recv->holds++;
    /* A thread that works on the receive ends its piece of work: the copy of one slot, one
     * registration, or one call of the transport. It starts no other, since the receive is CLOSED.
     * So this wait is short, and a process with one thread never waits. It cannot be left out:
     * after close nothing may write to the buffer. */
    rndv->closers++;
    while (recv->taken) {
        assert(rndv->lock.real);
        pthread_cond_wait(&rndv->let_go, &rndv->lock.mutex);
    }
    rndv->closers--;
    /* Only now: until here the peer may be forgotten, which looks for its receives in the table. */
    regx_handle_table_remove(&rndv->recvs, recv->handle);
    leave_trial_locked(recv);
    regx_list_set(&rndv->pending_recvs, &recv->link, false);
    regx_list_set(&rndv->revocable_recvs, &recv->revoke.link, false);
    if (regx_recv_is_revocable(recv)) { /* perhaps nothing is watched any more */
        atomic_store_explicit(&rndv->looks_due, true, memory_order_relaxed);
    }
    recv->protocol->revoke_slots_locked(rndv, recv);
    if (!regx_list_empty(&rndv->pending_recvs)) { /* no message will tell them of these slots */
        atomic_store_explicit(&rndv->work.retry_recvs, true, memory_order_relaxed);
    }
    regx_unlock(&rndv->lock);
    if (recv->protocol->revoke_chunks != NULL) {
        recv->protocol->revoke_chunks(rndv, recv);
    }
    end_watch(recv);
    regx_registry_let_go(rndv->registry, recv->drain);
    regx_lock(&rndv->lock);
    recv->holds--;
    regx_recv_free_locked(rndv, recv);
    regx_unlock(&rndv->lock);
}

void regx_recv_free_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    if (recv->phase == REGX_RECV_CLOSED && recv->holds == 0) {
        assert(recv->slots_out == 0);
        regx_list_prepend(&rndv->free_recvs, &recv->link); /* it is still in the cache */
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
    char *const base = recv->base + chunk->offset;
    const regx_status_t status =
        regx_region_acquire(rndv->registry, base, chunk->length, access, &chunk->region);

    chunk->written = 0;
    if (status != REGX_OK) {
        regx_refusal_tally(rndv, REGX_RECEIVER, status, &chunk->region, base, chunk->length);
        recv->buffer_suspect |= status == REGX_DENIED;
    } else {
        regx_recv_set_start(recv, chunk);
    }
    return status;
}

bool regx_recv_verify(const regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                      const regx_control_t *control)
{
    if (!control->has_checksum) {
        return true;
    }
    if (regx_recv_is_revocable(recv)) { /* it may be sent again */
        regx_fall_back(rndv, "grant: the sender's verify is not heeded");
        return true;
    }
    regx_count(rndv->counters, &rndv->counters->verified, 1);
    if (regx_checksum(recv->base + control->offset, control->length) == control->checksum) {
        return true;
    }
    regx_count(rndv->counters, &rndv->counters->mismatches, 1);
    const bool first = !recv->corrupt;
    recv->corrupt = true;
    return !first;
}

void regx_recv_describe_mismatch(const regx_rndv_recv_t *recv, const regx_control_t *control,
                                 regx_path_t path, char *what, size_t size)
{
    snprintf(what, size,
             "bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64
             " at %p by %s arrived as something else than was sent (verify)",
             control->offset, control->offset + control->length - 1, recv->length,
             (const void *)recv->base, regx_path_name(path));
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
    assert(recv->granted <= recv->length);
    *range = (regx_slot_range_t){NULL, recv->granted, recv->length - recv->granted};
    return recv->slots_only && range->length > 0;
}

void regx_recvs_forget(regx_rndv_t *rndv, const regx_peer_t *peer)
{
    regx_lock(&rndv->lock);
    for (uint32_t i = 0; i < rndv->recvs.count; i++) {
        regx_rndv_recv_t *recv = regx_handle_table_at(&rndv->recvs, i);

        if (recv != NULL && recv->peer == peer) {
            regx_list_set(&rndv->pending_recvs, &recv->link, false);
            regx_list_set(&rndv->revocable_recvs, &recv->revoke.link, false);
            recv->protocol->revoke_slots_locked(rndv, recv);
            recv->peer = &rndv->nobody;
            if (recv->phase != REGX_RECV_CLOSED) {
                recv->phase = REGX_RECV_LOST;
            }
        }
    }
    regx_unlock(&rndv->lock);
}

void regx_recvs_free(regx_rndv_t *rndv)
{
    while (!regx_list_empty(&rndv->free_recvs)) {
        regx_rndv_recv_t *recv = of_link(rndv->free_recvs.next);

        regx_list_remove(&recv->link);
        free(recv);
    }
}

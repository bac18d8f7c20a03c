/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Bounce: the receiver grants slots of its pre-pinned pool, the sender writes them, the receiver
 * copies them out while the next slot fills.
 */
#include "rendezvous/send.h"

#include "base/copy.h"
#include "rendezvous/buffer.h"

/* A single message is cut finely, most so at both ends, and the copy in runs no further ahead than
 * its window, 1 MiB over a device and 256 KiB on a node: the copy out begins early, finds its bytes
 * in the cache, and ends soon after. In a stream one side copies another message while it would wait,
 * and fewer notices are better. */
#define FINEST_GRANT (16u * 1024u)
#define FINE_GRANT (32u * 1024u)
#define SINGLE_GRANT (64u * 1024u)
#define LONG_GRANT (128u * 1024u) /* of a message above 1 MiB: fewer notices, again */
#define SINGLE_WINDOW (1024u * 1024u)
/* On a node a peer holds fewer, so that its first messages map few pages: 64 messages of 64 KiB, all
 * granted at once, took 9 ms on an EPYC of Zen 5, and later ones 0.17. Nor too few: a message that
 * has to wait for a slot takes two control messages more. On near cores of Zen 3, messages of 32 KiB,
 * which went by bounce then, streamed 1.2 times as fast with 16 slots as with 8; with 32, half of the
 * pool, another 1.08 times, but then no other peer finds one free at once. A message that came alone
 * gets less, because it is served first whenever a slot is free, and others would wait for its end. */
#define NODE_WINDOW (1024u * 1024u)
#define NODE_SLOTS 16u
#define NODE_SINGLE_WINDOW (256u * 1024u)
#define NODE_SINGLE_SLOTS 4u
#define FINEST_MESSAGE (64u * 1024u)
#define LOOKS_MAX 64u /* at receives that wait, for a first grant */

/* ---- the receive side ---- */

/* Bytes the peer may hold granted. */
static size_t window_of(const regx_rndv_t *rndv, const regx_peer_t *peer)
{
    return peer->conn->shares_pool ? regx_min(rndv->window, NODE_WINDOW) : rndv->window;
}

/* Of those, bytes of a message that came alone. */
static size_t single_window_of(const regx_rndv_t *rndv, const regx_peer_t *peer)
{
    return regx_min(rndv->window, peer->conn->shares_pool ? NODE_SINGLE_WINDOW : SINGLE_WINDOW);
}

/* Whether a message that came alone holds too much to be granted `length` more. What others of the
 * peer hold does not matter: a stream of them would keep it waiting for as long as it lasts. */
static bool holds_its_share(const regx_rndv_t *rndv, const regx_rndv_recv_t *recv, uint32_t length)
{
    const regx_peer_t *peer = recv->peer;

    return recv->slots.lone && recv->slots.out > 0 &&
           (recv->slots.bytes + length > single_window_of(rndv, peer) ||
            (peer->conn->shares_pool && recv->slots.out >= NODE_SINGLE_SLOTS));
}

/* For how many bytes of the message the next slot is granted. */
static uint32_t grant_length(const regx_rndv_t *rndv, const regx_rndv_recv_t *recv, uint64_t offset,
                             uint64_t left)
{
    const uint64_t slot = rndv->pool->slot_size;
    const uint64_t fine = recv->buffer.length <= FINEST_MESSAGE ? FINEST_GRANT : FINE_GRANT;
    uint64_t granted = slot;

    if (recv->slots.lone) {
        const uint64_t max = recv->buffer.length > SINGLE_WINDOW ? LONG_GRANT : SINGLE_GRANT;
        const uint64_t near_end = regx_min(offset, left / 2);

        granted = near_end > fine ? near_end & ~(uint64_t)(FINEST_GRANT - 1) : fine;
        granted = regx_min(granted, max);
    }
    return (uint32_t)regx_min(left, regx_min(granted, slot));
}

/* Grants consecutive parts of the range, a slot for each, up to `max`; returns how many. `reserve`
 * slots of the pool stay free. If a receive that has started gets none for want of slots, progress
 * looks again when there are some. */
static uint8_t grant_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_slot_range_t range,
                            uint32_t reserve, unsigned max, regx_slot_grant_t *grants)
{
    regx_peer_t *peer = recv->peer;
    uint8_t count = 0;

    if (recv->granted == 0) {
        recv->slots.lone = peer->granted == 0;
    }
    while (count < max && range.length > 0 &&
           recv->slots.out + recv->chunks_out < REGX_GRANTS_MAX) {
        const uint32_t length = grant_length(rndv, recv, range.offset, range.length);

        /* A peer may always have one slot. One that holds some gets no more once it holds as many as are
         * unused, so that peers that stop leave some to others (dynamic thresholds: Choudhury and Hahne,
         * 1998). It gets more when it reports a filled slot. */
        if (peer->slots > 0 && (peer->granted + length > window_of(rndv, peer) ||
                                peer->slots >= regx_pool_unused(rndv->pool) ||
                                (peer->conn->shares_pool && peer->slots >= NODE_SLOTS) ||
                                holds_its_share(rndv, recv, length))) {
            break;
        }
        const uint32_t slot =
            regx_pool_unused(rndv->pool) > reserve ? regx_pool_get(rndv->pool) : REGX_SLOT_NONE;
        if (slot == REGX_SLOT_NONE) {
            if (count == 0 && recv->phase == REGX_RECV_STARTED) {
                atomic_store_explicit(&rndv->work.pool_exhausted, true, memory_order_relaxed);
            }
            break;
        }
        rndv->slots[slot] =
            (regx_slot_use_t){.recv = recv, .offset = range.offset, .length = length};
        grants[count++] = (regx_slot_grant_t){(uint32_t)(slot * rndv->pool->slot_size), length};
        peer->granted += length;
        peer->slots++;
        recv->slots.out++;
        recv->slots.bytes += length;
        if (range.chunk == NULL) {
            recv->granted += length;
            assert(recv->granted <= recv->buffer.length);
        } else {
            range.chunk->offset += length;
            range.chunk->length -= length;
            if (range.chunk->length == 0) {
                range.chunk->state = REGX_CHUNK_FREE;
            }
        }
        range.offset += length;
        range.length -= length;
    }
    return count;
}

/* Whether a receive that waits could use what would be granted to another one of that peer. Receives of
 * other peers wait for their own peer's slots to be filled, unless the pool was exhausted. */
static bool others_wait_locked(const regx_rndv_t *rndv, const regx_peer_t *peer)
{
    unsigned looks = 0;

    if (atomic_load_explicit(&rndv->work.pool_exhausted, memory_order_relaxed)) {
        return true;
    }
    for (regx_link_t *at = rndv->recv_lists.pending.next; at != &rndv->recv_lists.pending;
         at = at->next) {
        regx_rndv_recv_t *other = regx_recv_of_link(at);

        if (looks++ == LOOKS_MAX || (other->peer == peer && !other->slots.waits_for_own)) {
            return true;
        }
    }
    return false;
}

/* A peer that does not answer could hold for long what a CTS grants. So half of the pool is kept
 * for transfers that have started, and receives that already wait for slots go first. */
static void bounce_grant_first_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    regx_slot_range_t range;

    if (regx_recv_slot_range_locked(rndv, recv, &range) && !others_wait_locked(rndv, recv->peer)) {
        recv->cts.count =
            grant_locked(rndv, recv, range, rndv->pool->slots / 2, REGX_CTS_SLOTS, recv->cts.slots);
    }
}

/* Whether less than an eighth of the window is free. Then nothing is granted yet, which spares messages.
 * Where the number of slots is the limit, each freed slot is granted at once. */
static bool is_nearly_full(size_t window, size_t granted)
{
    return granted > window - window / 8;
}

void regx_bounce_recv_next_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_step_t *step)
{
    const regx_peer_t *peer = recv->peer;
    regx_slot_range_t range;

    (void)step;
    if (!is_nearly_full(window_of(rndv, peer), peer->granted) &&
        !(recv->slots.lone && is_nearly_full(single_window_of(rndv, peer), recv->slots.bytes))) {
        while (recv->outbox.count == 0 && regx_recv_slot_range_locked(rndv, recv, &range)) {
            regx_control_t message = {
                .type = REGX_CONTROL_CTS_SLOTS, .to = recv->sender, .offset = range.offset};

            message.slot_count =
                grant_locked(rndv, recv, range, 0, REGX_MESSAGE_SLOTS, message.slots);
            if (message.slot_count == 0) {
                break;
            }
            regx_control_post(peer->conn, &recv->outbox, &message);
        }
    }
    /* A message that came alone may wait for some of its own slots to be filled, whatever others do. */
    recv->slots.waits_for_own =
        recv->slots.lone &&
        (is_nearly_full(single_window_of(rndv, peer), recv->slots.bytes) ||
         (regx_recv_slot_range_locked(rndv, recv, &range) &&
          holds_its_share(rndv, recv, grant_length(rndv, recv, range.offset, range.length))));
}

/* Only within progress, so the peer stays what it is, though the lock is not held. */
regx_status_t regx_stage_copy_out(regx_rndv_t *rndv, regx_step_t *step)
{
    const regx_control_t *control = step->control;
    regx_rndv_recv_t *recv = step->recv;
    const regx_conn_t *conn = recv->peer->conn;
    char *const to = recv->buffer.base + control->offset;
    const char *const slot = rndv->pool->memory + control->slot;
    const char *lacks = NULL;
    char text[REGX_BUFFER_LACKS];
    bool there = true;

    if (recv->buffer.suspect || regx_recv_ends_by_arrived(recv)) {
        there = regx_buffer_write(to, slot, control->length);
        lacks = there ? NULL : regx_buffer_lacks(to, control->length, true, text);
    } else if (conn->shares_pool && regx_cpu_is_amd() &&
               !conn->transport->ops->node.has_next(conn->transport)) {
        /* With messages both ways at once it makes no difference (Zen 3, near). */
        regx_copy_taking(to, slot, control->length);
    } else {
        regx_copy(to, slot, control->length);
    }
    if (there) {
        regx_recv_verify(rndv, recv, control, REGX_PATH_bounce);
    }
    regx_lock(&rndv->lock);
    recv->slots.used = true;
    if (!there && !regx_revoke_lost_locked(rndv, recv, control->offset)) {
        regx_recv_note_lost_locked(rndv, recv, control, lacks);
    }
    regx_recv_release_slot_locked(rndv, recv, (uint32_t)(control->slot / rndv->pool->slot_size));
    atomic_signal_fence(
        memory_order_seq_cst); /* wherever the program leaves MPI, they count once */
    recv->landed += control->length;
    assert(recv->landed <= recv->buffer.length);
    return REGX_OK;
}

bool regx_bounce_recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                     const regx_control_t *control, regx_step_t *step)
{
    const regx_pool_t *pool = rndv->pool;
    const uint32_t slot = (uint32_t)(control->slot / pool->slot_size);

    if (control->type != REGX_CONTROL_ATP_SLOT || control->slot % pool->slot_size != 0 ||
        slot >= pool->slots || rndv->slots[slot].recv != recv ||
        rndv->slots[slot].offset != control->offset ||
        rndv->slots[slot].length != control->length) {
        return false;
    }
    step->stage = REGX_STAGE_COPY_OUT;
    return true;
}

/* ---- the send side ---- */

/* Consecutive slots are granted from `offset` on. false: they do not fit, and none is taken. */
static bool take_slots(regx_rndv_send_t *send, uint64_t offset, const regx_slot_grant_t *slots,
                       unsigned count)
{
    uint64_t length = 0;

    for (unsigned i = 0; i < count; i++) {
        if (slots[i].length == 0) {
            return false;
        }
        length += slots[i].length;
    }
    if (!regx_send_may_grant(send, offset, length, count)) {
        return false;
    }
    if (send->path != REGX_PATH_bounce && !regx_why_is_fallback(send->why)) {
        send->why = REGX_WHY_receiver; /* it could not register these bytes */
    }
    for (unsigned i = 0; i < count; i++) {
        const regx_grant_t grant = {
            .offset = offset, .length = slots[i].length, .target_offset = slots[i].slot};

        regx_send_grant(send, &grant);
        offset += grant.length;
    }
    return true;
}

bool regx_bounce_send_control_locked(regx_rndv_send_t *send, const regx_control_t *control,
                                     regx_step_t *step)
{
    (void)step;
    return control->type == REGX_CONTROL_CTS_SLOTS &&
           take_slots(send, control->offset, control->slots, control->slot_count);
}

static bool bounce_send_take_cts(regx_rndv_send_t *send, const regx_cts_t *cts)
{
    if (cts->count > 0 && !take_slots(send, 0, cts->slots, cts->count)) {
        return false;
    }
    if (send->bytes.granted == send->buffer.length) {
        send->intro = REGX_INTRO_DONE;
    } else {
        send->intro = send->queue.count == 0 ? REGX_INTRO_READY_DUE : REGX_INTRO_BY_NEXT;
    }
    return true;
}

const regx_protocol_t regx_protocol_bounce = {
    .grants = REGX_GRANTS_SLOTS,
    .grant_first_locked = bounce_grant_first_locked,
    .recv_control_locked = regx_bounce_recv_control_locked,
    .recv_next_locked = regx_bounce_recv_next_locked,
    .send_take_cts = bounce_send_take_cts,
    .send_control_locked = regx_bounce_send_control_locked};

const regx_strategy_t regx_strategy_bounce = {.path = REGX_PATH_bounce,
                                              .protocol = &regx_protocol_bounce};

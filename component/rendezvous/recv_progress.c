/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/recv.h"

#include <assert.h>

/* Whose turn it is after the receive that the news was of. */
typedef enum regx_next_turn {
    REGX_TURN_NEWS, /* it is not found out yet */
    REGX_TURN_PEER, /* other receives of the same peer, in their order, until one has to wait */
    REGX_TURN_ALL,  /* all that wait, oldest first */
    REGX_TURN_ROUND /* the same, and that round has begun */
} regx_next_turn_t;

/* One thread's way through the receives that can go on. */
typedef struct regx_recv_turns {
    regx_step_t *step;       /* step->recv: the receive whose turn it is; NULL: none */
    const regx_peer_t *peer; /* NULL: one of them has to wait */
    regx_next_turn_t next;
    bool all;     /* of the round: not only as long as there are slots */
    int advanced; /* had a turn and need not wait any more */
} regx_recv_turns_t;

static void take_locked(regx_recv_turns_t *turns, regx_rndv_recv_t *recv)
{
    assert(!recv->taken);
    recv->taken = true;
    *turns->step = (regx_step_t){.recv = recv};
}

static void let_go_locked(regx_rndv_t *rndv, regx_recv_turns_t *turns)
{
    regx_rndv_recv_t *recv = turns->step->recv;

    turns->step->recv = NULL;
    recv->taken = false;
    regx_recv_free_locked(rndv, recv);
}

/* The receive has done what it could: it waits, or need not. */
static void end_turn_locked(regx_rndv_t *rndv, regx_recv_turns_t *turns)
{
    regx_rndv_recv_t *recv = turns->step->recv;
    regx_slot_range_t range;

    if (recv->phase == REGX_RECV_STARTED) {
        const bool unsent = recv->outbox.count > 0 || recv->due > 0;

        if (unsent) {
            atomic_store_explicit(&rndv->work.retry_recvs, true, memory_order_relaxed);
        }
        regx_list_set(&rndv->recv_lists.pending, &recv->link,
                      unsent || regx_recv_slot_range_locked(rndv, recv, &range));
        if (recv->landed == recv->buffer.length &&
            regx_recv_ends_by_arrived(recv)) { /* it may end */
            regx_revoke_set_due(rndv);
        }
    }
    turns->advanced += !regx_list_has(&recv->link);
    if (turns->next == REGX_TURN_PEER && regx_list_has(&recv->link) && !recv->slots.waits_for_own) {
        turns->peer = NULL;
    }
    let_go_locked(rndv, turns);
}

/* All that wait are to have a turn: where none has anything to send, as long as there are slots. */
static void begin_round_locked(regx_rndv_t *rndv, regx_recv_turns_t *turns)
{
    turns->next = REGX_TURN_ROUND;
    turns->all = atomic_exchange(&rndv->work.retry_recvs, false);
    atomic_store_explicit(&rndv->work.pool_exhausted, false, memory_order_relaxed);
    assert(regx_list_empty(&rndv->recv_lists.round));
    regx_list_move(&rndv->recv_lists.round, &rndv->recv_lists.pending);
}

static regx_rndv_recv_t *next_in_round_locked(regx_rndv_t *rndv, const regx_recv_turns_t *turns)
{
    const bool go_on =
        turns->all || !atomic_load_explicit(&rndv->work.pool_exhausted, memory_order_relaxed);

    if (regx_list_empty(&rndv->recv_lists.round) || !go_on) {
        /* Those that had their turn come after those that still wait for it. */
        regx_list_move(&rndv->recv_lists.round, &rndv->recv_lists.pending);
        regx_list_move(&rndv->recv_lists.pending, &rndv->recv_lists.round);
        return NULL;
    }
    regx_rndv_recv_t *recv = regx_recv_of_link(rndv->recv_lists.round.next);
    regx_list_remove(&recv->link);
    return recv;
}

static regx_rndv_recv_t *next_of_peer_locked(regx_rndv_t *rndv, const regx_peer_t *peer)
{
    for (regx_link_t *at = rndv->recv_lists.pending.next; at != &rndv->recv_lists.pending;
         at = at->next) {
        regx_rndv_recv_t *recv = regx_recv_of_link(at);

        if (recv->peer == peer && !recv->slots.waits_for_own) {
            return recv;
        }
    }
    return NULL;
}

/* Takes the receive whose turn is next. false: there is none. */
static bool take_next_locked(regx_rndv_t *rndv, regx_recv_turns_t *turns)
{
    regx_rndv_recv_t *recv = NULL;

    if (turns->next == REGX_TURN_PEER) {
        recv = turns->peer != NULL ? next_of_peer_locked(rndv, turns->peer) : NULL;
    } else {
        if (turns->next == REGX_TURN_ALL) {
            begin_round_locked(rndv, turns);
        }
        recv = next_in_round_locked(rndv, turns);
    }
    if (recv != NULL) {
        take_locked(turns, recv);
    }
    return recv != NULL;
}

/* Grants, turn by turn, until a stage is to be done (true) or nothing is left to do. */
static bool go_on_locked(regx_rndv_t *rndv, regx_recv_turns_t *turns)
{
    regx_step_t *step = turns->step;

    while (step->recv != NULL || take_next_locked(rndv, turns)) {
        regx_rndv_recv_t *recv = step->recv;

        if (recv->phase == REGX_RECV_STARTED) {
            regx_control_flush(recv->peer, &recv->outbox);
            recv->protocol->advance_locked(rndv, recv, step);
            if (step->stage != REGX_STAGE_NONE) {
                return true;
            }
        }
        end_turn_locked(rndv, turns);
    }
    return false;
}

/* After news of a receive, which is taken: whose turn it is. While the pool was enough for all, the
 * receive itself comes first, its slot being warm in the cache, unless it is new among those that
 * wait: others of its peer were there before. When some had to do without, all that want slots get
 * them in turn. */
static void begin_turns_locked(regx_rndv_t *rndv, regx_recv_turns_t *turns)
{
    regx_rndv_recv_t *recv = turns->step->recv;
    const bool exhausted = atomic_load_explicit(&rndv->work.pool_exhausted, memory_order_relaxed);
    regx_slot_range_t range;

    turns->peer = recv->peer;
    turns->next = exhausted ? REGX_TURN_ALL : REGX_TURN_PEER;
    if ((exhausted || !regx_list_has(&recv->link)) && recv->phase == REGX_RECV_STARTED &&
        recv->due == 0 && regx_recv_slot_range_locked(rndv, recv, &range)) {
        regx_list_set(&rndv->recv_lists.pending, &recv->link, true);
        let_go_locked(rndv, turns);
    }
}

/* Does the stage that is set up, if any, and those that turn after turn makes. */
static void take_turns(regx_rndv_t *rndv, regx_recv_turns_t *turns)
{
    regx_step_t *step = turns->step;
    bool more;

    do {
        if (step->stage == REGX_STAGE_NONE) {
            regx_lock(&rndv->lock);
        } else {
            rndv->stages[step->stage](rndv, step);
            step->stage = REGX_STAGE_NONE;
        }
        if (turns->next == REGX_TURN_NEWS) {
            begin_turns_locked(rndv, turns);
        }
        more = go_on_locked(rndv, turns);
        regx_unlock(&rndv->lock);
    } while (more);
}

void regx_recv_run(regx_rndv_t *rndv, regx_step_t *step)
{
    regx_recv_turns_t turns = {.step = step, .next = REGX_TURN_NEWS};
    const regx_peer_t *peer = step->recv->peer;

    take_turns(rndv, &turns);
    regx_recv_report(rndv, peer);
}

/* Whether that sender may send that now. Its acknowledgements carry a checksum if they are to. */
static bool acceptable(const regx_rndv_t *rndv, const regx_rndv_recv_t *recv, uint64_t sender,
                       const regx_control_t *control)
{
    const bool atp =
        control->type == REGX_CONTROL_ATP_SLOT || control->type == REGX_CONTROL_ATP_CHUNK;
    const bool unchecked = rndv->config.verify && (control->bits & REGX_CONTROL_CHECKSUM) == 0 &&
                           (atp || control->type == REGX_CONTROL_RKEY);
    const bool known = recv->phase == REGX_RECV_OPENED ||
                       (control->bits & REGX_CONTROL_ANONYMOUS) != 0 ||
                       (recv->sender.id == control->from.id &&
                        recv->sender.generation == control->from.generation);
    const bool open = recv->phase != REGX_RECV_READING && recv->phase != REGX_RECV_LOST &&
                      recv->phase != REGX_RECV_CLOSED;

    return open && recv->peer->id == sender && known && !unchecked;
}

void regx_recv_control(regx_rndv_t *rndv, uint64_t sender, const regx_control_t *control)
{
    regx_step_t step = {.stage = REGX_STAGE_NONE, .control = control};

    regx_lock(&rndv->lock);
    regx_rndv_recv_t *recv = regx_handle_table_find(&rndv->recvs, control->to);
    if (recv == NULL || !acceptable(rndv, recv, sender, control) ||
        (control->type != REGX_CONTROL_READY &&
         !recv->protocol->recv_control_locked(rndv, recv, control, &step))) {
        regx_unlock(&rndv->lock);
        regx_count_malformed(rndv->counters);
        return;
    }
    if ((control->bits & REGX_CONTROL_ANONYMOUS) == 0) {
        recv->sender = control->from;
        if (recv->phase == REGX_RECV_OPENED) {
            recv->phase = REGX_RECV_STARTED;
        }
    }
    assert(!recv->taken);
    recv->taken = true;
    step.recv = recv;
    regx_unlock(&rndv->lock);
    regx_recv_run(rndv, &step);
}

static const regx_rndv_recv_t *find_slot(const regx_rndv_t *rndv, uint32_t what,
                                         regx_control_t *control)
{
    const uint64_t offset = (uint64_t)what * REGX_IMMEDIATE_SLOT_UNIT;
    const uint64_t index = offset / rndv->pool->slot_size;

    if (offset % rndv->pool->slot_size != 0 || index >= rndv->pool->slots) {
        return NULL;
    }
    const regx_slot_use_t *use = &rndv->slots[index];
    control->type = REGX_CONTROL_ATP_SLOT;
    control->slot = (uint32_t)offset;
    control->offset = use->offset;
    control->length = use->length;
    return use->recv;
}

static const regx_rndv_recv_t *find_chunk(const regx_rndv_t *rndv, uint32_t what,
                                          regx_control_t *control)
{
    const regx_rndv_recv_t *recv =
        regx_handle_table_at(&rndv->recvs, regx_immediate_low(what, REGX_IMMEDIATE_RECV_BITS));
    const uint64_t offset = (uint64_t)(what >> REGX_IMMEDIATE_RECV_BITS) * rndv->config.chunk_size;

    for (unsigned i = 0; recv != NULL && i < rndv->config.chunk_depth; i++) {
        const regx_chunk_t *chunk = &recv->chunks[i];

        if (chunk->state == REGX_CHUNK_GRANTED && chunk->offset == offset) {
            control->type = REGX_CONTROL_ATP_CHUNK;
            control->offset = chunk->offset;
            control->length = chunk->length;
            return recv;
        }
    }
    return NULL;
}

/* It stands for a message of a sender whose handle is not in it. */
void regx_rndv_immediate(regx_rndv_t *rndv, uint64_t sender, uint32_t immediate)
{
    const uint32_t what = regx_immediate_low(immediate, REGX_IMMEDIATE_WHAT_BITS);
    const uint32_t generation =
        regx_immediate_low(immediate >> REGX_IMMEDIATE_WHAT_BITS, REGX_IMMEDIATE_GENERATION_BITS);
    regx_control_t control = {.bits = REGX_CONTROL_ANONYMOUS};

    regx_lock(&rndv->lock);
    const regx_rndv_recv_t *recv = (immediate & REGX_IMMEDIATE_CHUNK) != 0
                                       ? find_chunk(rndv, what, &control)
                                       : find_slot(rndv, what, &control);
    const bool known =
        (immediate & REGX_IMMEDIATE_ATP) != 0 && recv != NULL &&
        regx_immediate_low(recv->cts.recv.generation, REGX_IMMEDIATE_GENERATION_BITS) == generation;
    control.to = known ? recv->cts.recv : control.to;
    regx_unlock(&rndv->lock);
    if (known) {
        regx_recv_control(rndv, sender, &control);
    } else {
        regx_count_malformed(rndv->counters);
    }
}

int regx_recvs_advance(regx_rndv_t *rndv)
{
    regx_step_t step = {.stage = REGX_STAGE_NONE};
    regx_recv_turns_t turns = {.step = &step, .next = REGX_TURN_ALL};

    take_turns(rndv, &turns);
    return turns.advanced;
}

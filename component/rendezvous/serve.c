/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A message of the sender comes, and who is served then.
 *
 * To serve a receive is to do its stages until it has none. One that waits then, for slots or for a
 * message to be sent, is in the list `pending`. A thread serves one receive after the other:
 *
 *   regx_recv_run: a message came, or a look ended. Its stage is done; its receive goes on,
 *   or waits in `pending`
 *     ├─ the pool was enough for all ─▶ SERVE_PEER ── one has to wait ──▶ SERVE_NONE
 *     └─ it was not ──────────────────▶ SERVE_ALL ──▶ SERVE_ROUND
 *   regx_recvs_advance: progress ─────▶ SERVE_ALL ──▶ SERVE_ROUND
 *
 * SERVE_PEER, because what a message brings in mostly helps receives of the same peer: its window has
 * room again. SERVE_ALL, because slots that came free may be any peer's. A round, because a receive
 * that is served may have to wait again: it is appended to `pending`, and would be found there anew.
 * So all that wait are moved to `round` first, and each is served once.
 *
 * The loop ends, because a receive runs out of stages, as its chunks and the places in its outbox do. In
 * SERVE_PEER one that is served leaves `pending`, or is the last, or is passed over from then on
 * (waits_for_own). Nothing is added to a round.
 */
#include "rendezvous/recv.h"

#include <assert.h>

/* ---- a message of the sender arrives ---- */

void regx_recv_control(regx_rndv_t *rndv, uint64_t sender, const regx_control_t *control)
{
    const bool anonymous = (control->bits & REGX_CONTROL_ANONYMOUS) != 0;
    /* With `verify` an ATP without a checksum is refused. */
    const bool lacks_checksum =
        rndv->config.verify && (control->bits & REGX_CONTROL_CHECKSUM) == 0 &&
        (control->type == REGX_CONTROL_ATP_SLOT || control->type == REGX_CONTROL_ATP_CHUNK);
    regx_step_t step = {.stage = REGX_STAGE_NONE, .control = control};

    regx_lock(&rndv->lock);
    regx_rndv_recv_t *recv = regx_handle_table_find(&rndv->recvs, control->to);
    if (recv == NULL || recv->peer->id != sender || recv->phase == REGX_RECV_READING ||
        recv->phase == REGX_RECV_LOST || recv->phase == REGX_RECV_CLOSED || lacks_checksum ||
        (recv->phase != REGX_RECV_OPENED && !anonymous &&
         (recv->sender.id != control->from.id ||
          recv->sender.generation != control->from.generation)) ||
        (control->type != REGX_CONTROL_READY &&
         !recv->protocol->recv_control_locked(rndv, recv, control, &step))) {
        regx_unlock(&rndv->lock);
        regx_count_malformed(rndv->counters);
        return;
    }
    if (!anonymous) {
        recv->sender = control->from;
        if (recv->phase == REGX_RECV_OPENED) {
            recv->phase = REGX_RECV_STARTED;
        }
    }
    assert(!recv->busy);
    recv->busy = true;
    step.recv = recv;
    regx_unlock(&rndv->lock);
    regx_recv_run(rndv, &step);
}

/* ---- who is served ---- */

/* Which receives are served behind the one that is being served. */
typedef enum regx_scope {
    SERVE_PEER,  /* others of the same peer, oldest first */
    SERVE_ALL,   /* all that wait: their round is to begin */
    SERVE_ROUND, /* those of the round that are left, oldest first */
    SERVE_NONE
} regx_scope_t;

typedef struct regx_serving {
    regx_step_t *step; /* step->recv: the receive that is served; NULL: none */
    regx_scope_t scope;
    const regx_peer_t *peer; /* SERVE_PEER */
    bool even_without_slots; /* SERVE_ROUND: the round goes on when the pool is empty */
    int served;              /* how many need not wait any more */
} regx_serving_t;

static void let_go_locked(regx_rndv_t *rndv, regx_serving_t *serving)
{
    regx_rndv_recv_t *recv = serving->step->recv;

    serving->step->recv = NULL;
    recv->busy = false;
    regx_recv_free_locked(rndv, recv);
}

static bool pool_is_exhausted(const regx_rndv_t *rndv)
{
    return atomic_load_explicit(&rndv->work.pool_exhausted, memory_order_relaxed);
}

/* Takes the receive that is served next. false: there is none. */
static bool take_next_locked(regx_rndv_t *rndv, regx_serving_t *serving)
{
    regx_link_t *pending = &rndv->recv_lists.pending, *round = &rndv->recv_lists.round;
    regx_rndv_recv_t *recv = NULL;

    if (serving->scope == SERVE_PEER) {
        for (regx_link_t *at = pending->next; at != pending && recv == NULL; at = at->next) {
            regx_rndv_recv_t *waiting = regx_recv_of_link(at);

            if (waiting->peer == serving->peer && !waiting->slots.waits_for_own) {
                recv = waiting;
            }
        }
    }
    if (serving->scope == SERVE_ALL) {
        /* If a message waits to be sent, all are served; else as long as there are slots. */
        serving->scope = SERVE_ROUND;
        serving->even_without_slots = atomic_exchange(&rndv->work.retry_recvs, false);
        atomic_store_explicit(&rndv->work.pool_exhausted, false, memory_order_relaxed);
        assert(regx_list_empty(round));
        regx_list_move(round, pending);
    }
    if (serving->scope == SERVE_ROUND) {
        if (regx_list_empty(round) || (!serving->even_without_slots && pool_is_exhausted(rndv))) {
            regx_list_move(round,
                           pending); /* those that were served go behind those that were not */
            regx_list_move(pending, round);
        } else {
            recv = regx_recv_of_link(round->next);
            regx_list_remove(&recv->link);
        }
    }
    if (recv == NULL) {
        return false;
    }
    assert(!recv->busy);
    recv->busy = true;
    *serving->step = (regx_step_t){.recv = recv};
    return true;
}

/* Does the next stage of the receive that is served, or of the next one that has any, until nothing is
 * left to do. */
static void serve_and_unlock(regx_rndv_t *rndv, regx_serving_t *serving)
{
    regx_step_t *step = serving->step;

    while (step->recv != NULL || take_next_locked(rndv, serving)) {
        regx_rndv_recv_t *recv = step->recv;
        regx_slot_range_t range;

        if (recv->phase == REGX_RECV_STARTED) {
            regx_control_flush(recv->peer->conn, &recv->outbox);
            recv->protocol->recv_next_locked(rndv, recv, step);
        }
        if (step->stage != REGX_STAGE_NONE) {
            regx_unlock(&rndv->lock);
            rndv->stages[step->stage](rndv, step); /* returns with the lock held */
            step->stage = REGX_STAGE_NONE;
            continue;
        }
        /* It has no stage left: it waits, or need not. */
        if (recv->phase == REGX_RECV_STARTED) {
            const bool unsent = recv->outbox.count > 0;

            if (unsent) {
                atomic_store_explicit(&rndv->work.retry_recvs, true, memory_order_relaxed);
            }
            regx_list_set(&rndv->recv_lists.pending, &recv->link,
                          unsent || regx_recv_slot_range_locked(rndv, recv, &range));
            if (recv->landed == recv->buffer.length && regx_recv_ends_by_arrived(recv)) {
                regx_revoke_set_due(rndv); /* it may end */
            }
        }
        serving->served += !regx_list_has(&recv->link);
        if (serving->scope == SERVE_PEER && regx_list_has(&recv->link) &&
            !recv->slots.waits_for_own) {
            serving->scope = SERVE_NONE;
        }
        let_go_locked(rndv, serving);
    }
    regx_unlock(&rndv->lock);
}

void regx_recv_run(regx_rndv_t *rndv, regx_step_t *step)
{
    regx_rndv_recv_t *recv = step->recv;
    regx_serving_t serving = {.step = step};
    const regx_peer_t *peer = recv->peer;
    regx_slot_range_t range;

    if (step->stage != REGX_STAGE_NONE) {
        rndv->stages[step->stage](rndv, step); /* returns with the lock held */
        step->stage = REGX_STAGE_NONE;
    } else {
        regx_lock(&rndv->lock);
    }
    /* While the pool is enough for all, the receive is served next, because its slot is still in the
     * processor's cache. But if it only now begins to wait for slots, and for nothing else, it goes behind
     * others of its peer, which waited before. When some had to do without slots, all that want some get
     * them, one after the other. */
    const bool exhausted = pool_is_exhausted(rndv);
    serving.peer = recv->peer;
    serving.scope = exhausted ? SERVE_ALL : SERVE_PEER;
    if ((exhausted || !regx_list_has(&recv->link)) && recv->phase == REGX_RECV_STARTED &&
        recv->outbox.count == 0 && regx_recv_slot_range_locked(rndv, recv, &range)) {
        regx_list_set(&rndv->recv_lists.pending, &recv->link, true);
        let_go_locked(rndv, &serving);
    }
    serve_and_unlock(rndv, &serving);
    regx_recv_report(rndv, peer);
}

int regx_recvs_advance(regx_rndv_t *rndv)
{
    regx_step_t step = {.stage = REGX_STAGE_NONE};
    regx_serving_t serving = {.step = &step, .scope = SERVE_ALL};

    regx_lock(&rndv->lock);
    serve_and_unlock(rndv, &serving);
    return serving.served;
}

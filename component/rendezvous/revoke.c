/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/revoke.h"

#include <assert.h>

#include "base/clock.h"
#include "base/util.h"
#include "rendezvous/optimistic.h"
#include "rendezvous/proof.h"
#include "rendezvous/recv_run.h"

#define PATIENCE_NS INT64_C(10000000000)
#define IMPATIENCE_NS INT64_C(100000000) /* with memory whose changes nobody reports */
#define PAUSE_NS INT64_C(10000000)       /* between two looks in vain, at most */
#define LOOKS_MIN 50u
#define TIMES_MAX 100u

/* Why it was given up, and what it waits for. */
static const char gone[] = "grant: the memory did not come back";
static const char unreported[] = "grant: changes of the new memory are not reported";
static const char unsure[] = "grant: the monitor does not know what changed";
static const char changing[] = "grant: the buffer kept changing";

/* What a look is for. */
typedef enum purpose {
    LOOK_CHANGE, /* whether the memory has changed */
    LOOK_END,    /* whether the transfer can end: all has landed */
    LOOK_MEMORY  /* whether memory is there again: REVOKED */
} purpose_t;

/* What lies where the sender is to write. */
typedef enum memory {
    MEMORY_GONE,
    MEMORY_UNREPORTED, /* it is there, but changes of it are not reported */
    MEMORY_THERE
} memory_t;

/* A look at the memory of one receive, which the thread that looks has taken. */
typedef struct look {
    regx_recv_work_t work;
    purpose_t purpose;
    /* What it found. */
    regx_watch_state_t state;
    uint64_t changed;   /* the lowest offset that changed */
    memory_t memory;    /* if LOOK_MEMORY */
    regx_proof_t proof; /* if LOOK_END */
    uint64_t checksum;  /* if that was made */
    /* What is to be reported of it afterwards. */
    bool revokes;
    uint64_t offset;
    const char *given_up; /* why; NULL: it was not */
} look_t;

static look_t *of_work(regx_recv_work_t *work)
{
    return REGX_CONTAINER_OF(work, look_t, work);
}

static regx_rndv_recv_t *of_link(regx_link_t *link)
{
    return REGX_CONTAINER_OF(link, regx_rndv_recv_t, revoke.link);
}

void regx_revoke_recv_open(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    recv->revoke.lowest = recv->length;
    recv->revoke.optimistic = rndv->config.optimistic;
    if (regx_watch_begin(&recv->revoke.watch, rndv->registry, recv->base, recv->length)) {
        recv->revoke.state = REGX_REVOKE_ON_CHANGE;
    } else {
        regx_fall_back(rndv, "grant: changes of this memory are not reported");
    }
}

/* Up to where all that was granted has landed. */
static uint64_t landed_until(const regx_rndv_t *rndv, const regx_rndv_recv_t *recv)
{
    uint64_t until = recv->granted;

    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        const regx_chunk_t *chunk = &recv->chunks[i];

        if (chunk->state == REGX_CHUNK_GRANTED) {
            until = regx_min(until, chunk->offset + chunk->written);
        } else if (chunk->state == REGX_CHUNK_BY_SLOTS) {
            until = regx_min(until, chunk->offset);
        }
    }
    for (uint32_t slot = 0; recv->slots_out > 0 && slot < rndv->pool->slots; slot++) {
        if (rndv->slots[slot].recv == recv) {
            until = regx_min(until, rndv->slots[slot].offset);
        }
    }
    return until;
}

static void post_due_locked(regx_rndv_recv_t *recv)
{
    regx_channel_flush(recv->peer, &recv->outbox);
    if (recv->phase == REGX_RECV_REVOKE_DUE && !recv->outbox.full) {
        const regx_control_t message = {
            .type = REGX_CONTROL_REVOKE, .to = recv->sender, .offset = recv->revoke.resume};

        regx_channel_post(recv->peer, &recv->outbox, &message);
        recv->phase = REGX_RECV_REVOKING;
    }
}

/* What was granted is taken back. */
static void revoke_locked(regx_rndv_t *rndv, look_t *look, uint64_t changed)
{
    regx_rndv_recv_t *recv = look->work.recv;
    regx_revocable_t *revoke = &recv->revoke;
    const uint64_t offset = regx_min(changed, landed_until(rndv, recv));

    look->revokes = true;
    look->offset = regx_min(offset, recv->length - 1);
    if (revoke->optimistic) {
        regx_go_back_locked(rndv, recv, changed);
        return;
    }
    recv->phase = REGX_RECV_REVOKE_DUE;
    recv->buffer_suspect = true;
    regx_list_set(&rndv->pending_recvs, &recv->link, false);
    revoke->resume = revoke->from = look->offset;
    revoke->lowest = regx_min(revoke->lowest, revoke->resume);
    revoke->noticed = regx_now_ns();
    revoke->wait.reason = NULL;
    revoke->times++;
    regx_count(rndv->counters, &rndv->counters->grants_revoked, 1);
    post_due_locked(recv);
}

/* Nothing is watched from now on. What was not proven to have arrived goes by slots, once more. */
static void give_up_locked(look_t *look, const char *reason)
{
    regx_revocable_t *revoke = &look->work.recv->revoke;

    revoke->state = REGX_REVOKE_GIVEN_UP;
    revoke->from = regx_min(revoke->from, revoke->lowest);
    look->given_up = reason;
}

/* It cannot go on, for that reason. Whether that has been so for too long; and for many looks, in
 * case the program seldom makes progress. Reasons that take turns are one wait, or it might never
 * end. */
static bool waits_too_long(regx_revocable_t *revoke, const char *reason)
{
    const int64_t now = regx_now_ns();

    if (revoke->wait.reason == NULL) {
        revoke->wait.whole.looks = 0;
        revoke->wait.whole.since = now;
    }
    if (revoke->wait.reason != unreported) {
        revoke->wait.unreported.looks = 0;
        revoke->wait.unreported.since = now;
    }
    revoke->wait.reason = reason;
    revoke->wait.whole.looks++;
    revoke->wait.unreported.looks += reason == unreported;
    const int64_t waited = now - revoke->wait.whole.since;
    revoke->wait.next = now + (waited / 8 < PAUSE_NS ? waited / 8 : PAUSE_NS);
    return (revoke->wait.whole.looks > LOOKS_MIN && waited > PATIENCE_NS) ||
           (revoke->wait.unreported.looks > LOOKS_MIN &&
            now - revoke->wait.unreported.since > IMPATIENCE_NS);
}

static bool pauses(const regx_revocable_t *revoke)
{
    return revoke->wait.reason != NULL && regx_now_ns() < revoke->wait.next;
}

/* All has landed. */
static void end_locked(regx_rndv_t *rndv, look_t *look)
{
    regx_rndv_recv_t *recv = look->work.recv;
    regx_revocable_t *revoke = &recv->revoke;
    const bool given_up = revoke->state == REGX_REVOKE_GIVEN_UP;
    const bool again = revoke->lowest < recv->length; /* something was revoked */
    const bool ready =
        look->state == REGX_WATCH_QUIET && (!again || look->proof == REGX_PROOF_MADE);
    const regx_control_t message = {.type = REGX_CONTROL_ARRIVED,
                                    .to = recv->sender,
                                    .offset = revoke->lowest,
                                    .has_checksum = again && !given_up,
                                    .checksum = look->checksum};

    if (given_up || ready) {
        recv->phase = REGX_RECV_ARRIVED;
        regx_channel_post(recv->peer, &recv->outbox, &message);
        return;
    }
    const char *reason = look->proof == REGX_PROOF_UNREADABLE ? gone : unsure;
    if (waits_too_long(revoke, reason)) {
        if (reason == unsure) { /* any byte may have changed */
            revoke->from = 0;
        }
        give_up_locked(look, reason);
        revoke_locked(rndv, look, revoke->from);
    }
}

/* Why nothing can be granted anew now; NULL: it can. */
static const char *obstacle(const look_t *look)
{
    if (look->state == REGX_WATCH_CHANGED) {
        return changing;
    }
    switch (look->memory) {
    case MEMORY_GONE:
        return gone;
    case MEMORY_UNREPORTED:
        return unreported;
    case MEMORY_THERE:
        break;
    }
    return NULL;
}

/* The sender has agreed: grants anew, if the memory is there. */
static void resume_locked(regx_rndv_t *rndv, look_t *look)
{
    regx_rndv_recv_t *recv = look->work.recv;
    regx_revocable_t *revoke = &recv->revoke;
    const bool goes_on = revoke->state == REGX_REVOKE_ON_CHANGE;
    const char *reason = goes_on ? obstacle(look) : NULL;

    if (goes_on && revoke->times > TIMES_MAX) {
        give_up_locked(look, changing);
    } else if (reason != NULL && waits_too_long(revoke, reason)) {
        give_up_locked(look, reason);
    } else if (reason != NULL && revoke->from >= revoke->resume) {
        return;
    }
    if (revoke->from < revoke->resume) { /* it has changed before that, too */
        revoke_locked(rndv, look, revoke->from);
        return;
    }
    revoke->wait.reason = NULL;
    recv->slots_only |= revoke->state == REGX_REVOKE_GIVEN_UP;
    if (revoke->optimistic) {
        regx_resume_locked(recv);
    }
    recv->phase = REGX_RECV_STARTED;
    regx_count(rndv->counters, &rndv->counters->regrant_stall_us,
               (uint64_t)(regx_now_ns() - revoke->noticed) / 1000);
}

/* Whether what is mapped can be granted again. */
static memory_t look_for_memory(regx_watch_t *watch, uintptr_t from)
{
    if (!regx_watch_is_mapped(watch, from)) {
        return MEMORY_GONE;
    }
    if (regx_watch_renew(watch)) {
        return MEMORY_THERE;
    }
    /* Or is it gone again? */
    return regx_watch_is_mapped(watch, from) ? MEMORY_UNREPORTED : MEMORY_GONE;
}

/* From the lowest offset on. What could not be read the last time is tried first. */
static regx_proof_t prove_received(regx_rndv_recv_t *recv, uint64_t *checksum)
{
    regx_revocable_t *revoke = &recv->revoke;
    const char *const base = recv->base + revoke->lowest;
    const uint64_t length = recv->length - revoke->lowest;
    uint64_t sum, none;

    if (revoke->wait.reason == gone &&
        regx_prove(base + revoke->gap, regx_min(REGX_PROOF_BLOCK, length - revoke->gap), &sum,
                   &none) == REGX_PROOF_UNREADABLE) {
        return REGX_PROOF_UNREADABLE;
    }
    return regx_prove(base, length, checksum, &revoke->gap);
}

/* Looks at the memory. */
static void look_at_memory(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    regx_rndv_recv_t *recv = work->recv;
    regx_revocable_t *revoke = &recv->revoke;
    look_t *look = of_work(work);
    const uintptr_t base = (uintptr_t)recv->base;
    uintptr_t first = 0;

    (void)rndv;
    if (revoke->state == REGX_REVOKE_GIVEN_UP) {
        return;
    }
    if (look->purpose == LOOK_MEMORY) { /* first: what is watched anew counts as changed */
        look->memory = look_for_memory(&revoke->watch, base + revoke->resume);
    }
    look->state = regx_watch_look(&revoke->watch, look->purpose == LOOK_END, &first);
    look->changed = first > base ? first - base : 0;
    if (look->purpose == LOOK_END && look->state == REGX_WATCH_QUIET &&
        revoke->lowest < recv->length) {
        look->proof = prove_received(recv, &look->checksum);
    }
}

/* Whether it is to be looked at even if no change is reported. */
static bool is_busy_locked(const regx_rndv_recv_t *recv)
{
    switch (recv->phase) {
    case REGX_RECV_OPENED: /* REVOKE is for a sender that is known */
        return regx_watch_has_news(&recv->revoke.watch);
    case REGX_RECV_STARTED:
        return recv->landed == recv->length;
    case REGX_RECV_REVOKE_DUE:
    case REGX_RECV_REVOKED:
        return true;
    case REGX_RECV_REVOKING:
        return recv->outbox.full || recv->revoke.optimistic;
    case REGX_RECV_ARRIVED:
        return recv->outbox.full;
    default:
        return false;
    }
}

static void set_due(regx_rndv_t *rndv)
{
    atomic_store_explicit(&rndv->looks_due, true, memory_order_relaxed);
}

static void looked_locked(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    regx_rndv_recv_t *recv = work->recv;
    regx_revocable_t *revoke = &recv->revoke;
    look_t *look = of_work(work);
    const bool changed = look->state == REGX_WATCH_CHANGED;

    if (changed && recv->phase != REGX_RECV_STARTED) {
        revoke->from = regx_min(revoke->from, look->changed);
    }
    switch (recv->phase) {
    case REGX_RECV_STARTED:
        if (changed) {
            revoke_locked(rndv, look, look->changed);
        } else if (look->purpose == LOOK_END) {
            end_locked(rndv, look);
        }
        break;
    case REGX_RECV_REVOKE_DUE:
    case REGX_RECV_REVOKING:
        post_due_locked(recv);
        if (revoke->optimistic && regx_is_drained_locked(recv)) {
            regx_went_back_locked(rndv, recv);
        }
        break;
    case REGX_RECV_REVOKED:
        resume_locked(rndv, look);
        break;
    default: /* lost, or closed, meanwhile */
        break;
    }
    if (is_busy_locked(recv)) {
        set_due(rndv);
    }
}

/* Whether a look may lead to anything. */
static bool wants_look_locked(regx_rndv_recv_t *recv)
{
    const regx_revocable_t *revoke = &recv->revoke;
    const bool news = revoke->state == REGX_REVOKE_ON_CHANGE && regx_watch_has_news(&revoke->watch);

    switch (recv->phase) {
    case REGX_RECV_STARTED:
        if (recv->landed < recv->length) {
            return news;
        }
        regx_channel_flush(recv->peer, &recv->outbox);
        return !recv->outbox.full && (news || !pauses(revoke));
    case REGX_RECV_REVOKE_DUE:
        return true;
    case REGX_RECV_REVOKING:
        return news || recv->outbox.full || (revoke->optimistic && regx_is_drained_locked(recv));
    case REGX_RECV_REVOKED:
        return news || !pauses(revoke);
    case REGX_RECV_ARRIVED: /* what changes now is for after the comparison */
        regx_channel_flush(recv->peer, &recv->outbox);
        return false;
    default:
        return false;
    }
}

static purpose_t purpose_of(const regx_rndv_recv_t *recv)
{
    if (recv->phase == REGX_RECV_STARTED && recv->landed == recv->length) {
        return LOOK_END;
    }
    return recv->phase == REGX_RECV_REVOKED ? LOOK_MEMORY : LOOK_CHANGE;
}

/* Takes the receive for a look. */
static void begin_look_locked(regx_rndv_recv_t *recv, look_t *look)
{
    *look = (look_t){.work = {.recv = recv, .act = look_at_memory, .acted_locked = looked_locked},
                     .purpose = purpose_of(recv),
                     .state = REGX_WATCH_QUIET};
    assert(!recv->taken);
    recv->taken = true;
}

static void run_look(regx_rndv_t *rndv, look_t *look)
{
    regx_recv_run(rndv, &look->work);
    if (look->revokes) {
        regx_trace(rndv->config.trace, REGX_TRACE_PATH,
                   "memory changed: sent again from byte %llu on",
                   (unsigned long long)look->offset);
    }
    if (look->given_up != NULL) {
        regx_fall_back(rndv, look->given_up);
    }
}

void regx_revokes_advance(regx_rndv_t *rndv)
{
    const uint64_t head = atomic_load(&rndv->registry->monitor->log->head);

    if (head == rndv->watched_until &&
        !atomic_load_explicit(&rndv->looks_due, memory_order_relaxed)) {
        return;
    }
    if (head != rndv->watched_until) { /* what is granted now counts as changed in use */
        regx_registry_progress(rndv->registry);
    }
    regx_lock(&rndv->lock);
    rndv->watched_until = head;
    atomic_store_explicit(&rndv->looks_due, false, memory_order_relaxed);
    regx_list_move(&rndv->revocable_round, &rndv->revocable_recvs);
    while (!regx_list_empty(&rndv->revocable_round)) {
        regx_rndv_recv_t *recv = of_link(rndv->revocable_round.next);

        regx_list_remove(&recv->revoke.link);
        regx_list_append(&rndv->revocable_recvs, &recv->revoke.link);
        if (wants_look_locked(recv)) {
            look_t look;

            begin_look_locked(recv, &look);
            regx_unlock(&rndv->lock);
            run_look(rndv, &look);
            regx_lock(&rndv->lock);
        } else if (is_busy_locked(recv)) {
            set_due(rndv);
        }
    }
    atomic_store_explicit(&rndv->work.watches, !regx_list_empty(&rndv->revocable_recvs),
                          memory_order_relaxed);
    regx_unlock(&rndv->lock);
}

/* The sender writes nothing any more. What was registered of memory that was reported as changed
 * is dead already; where it was not notified, but did, it is given up here. */
static void give_back(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    regx_rndv_recv_t *recv = work->recv;

    if (work->status == REGX_FAILED) {
        regx_watch_flush(&recv->revoke.watch);
    }
    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        if (recv->chunks[i].state == REGX_CHUNK_GRANTED) {
            regx_region_release(rndv->registry, &recv->chunks[i].region);
        }
    }
}

static void given_back_locked(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    regx_rndv_recv_t *recv = work->recv;
    regx_revocable_t *revoke = &recv->revoke;

    recv->protocol->revoke_slots_locked(rndv, recv);
    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        recv->chunks[i].state = REGX_CHUNK_FREE;
    }
    recv->chunks_out = 0;
    if (revoke->optimistic) {
        regx_count(rndv->counters, &rndv->counters->bytes_regranted,
                   recv->granted - revoke->resume);
    }
    recv->landed = recv->granted = revoke->resume;
    recv->slots_only = atomic_load(&recv->peer->no_puts);
    if (recv->phase == REGX_RECV_REVOKING || recv->phase == REGX_RECV_ARRIVED) {
        recv->phase = REGX_RECV_REVOKED;
        set_due(rndv);
    }
}

bool regx_revoke_recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                     const regx_control_t *control, regx_recv_work_t *work)
{
    regx_revocable_t *revoke = &recv->revoke;
    const bool answers = recv->phase == REGX_RECV_REVOKING && !revoke->optimistic &&
                         !recv->outbox.full && control->offset == revoke->resume;
    const bool differs = recv->phase == REGX_RECV_ARRIVED && !recv->outbox.full &&
                         revoke->state == REGX_REVOKE_ON_CHANGE && revoke->lowest < recv->length &&
                         control->offset == revoke->lowest;

    (void)rndv;
    if (control->type != REGX_CONTROL_REVOKED || !regx_recv_is_revocable(recv) ||
        !(answers || differs)) {
        return false;
    }
    if (differs) {
        revoke->resume = revoke->from = revoke->lowest;
        revoke->noticed = regx_now_ns();
        revoke->times++;
    }
    work->status = differs ? REGX_FAILED : REGX_OK;
    work->act = give_back;
    work->acted_locked = given_back_locked;
    return true;
}

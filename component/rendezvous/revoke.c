/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/revoke.h"

#include <assert.h>

#include "base/clock.h"
#include "base/util.h"
#include "rendezvous/proof.h"
#include "rendezvous/recv_run.h"

#define PATIENCE_NS INT64_C(10000000000)
#define IMPATIENCE_NS INT64_C(100000000) /* with memory whose changes nobody reports */
#define PAUSE_NS INT64_C(10000000)       /* between two looks in vain, at most */
#define LOOKS_MIN 50u
#define TIMES_MAX 100u
#define FAILURES_MAX 4u /* writes that fail: it may be the sender's buffer that is gone */

/* Why it was given up, and what it waits for. */
static const char gone[] = "grant: the memory did not come back";
static const char unreported[] = "grant: changes of the new memory are not reported";
static const char unsure[] = "grant: the monitor does not know what changed";
static const char changing[] = "grant: the buffer kept changing";

/* What a look is for. */
typedef enum purpose {
    LOOK_CHANGE, /* whether the memory has changed */
    LOOK_END,    /* whether the transfer can end: all has landed */
    LOOK_MEMORY  /* whether memory is there again: DRAINED */
} purpose_t;

/* What a receive needs of progress. */
typedef enum need {
    NEED_NOTHING, /* before the monitor has news */
    NEED_LATER,   /* to be asked again in the next round */
    NEED_LOOK
} need_t;

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
    bool resumes; /* from this offset on: */
    uint64_t resume;
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
    if (regx_watch_begin(&recv->revoke.watch, rndv->registry->monitor, recv->base, recv->length)) {
        recv->revoke.state = REGX_REVOKE_ON_CHANGE;
    } else {
        regx_fall_back(rndv, "grant: changes of this memory are not reported");
    }
}

static void set_due(regx_rndv_t *rndv)
{
    atomic_store_explicit(&rndv->looks_due, true, memory_order_relaxed);
}

/* Whether all that was granted is acknowledged, and there is room for RESUME. */
static bool is_drained(const regx_rndv_recv_t *recv)
{
    return recv->chunks_out == 0 && recv->slots_out == 0 && !recv->outbox.full;
}

static void post_due_locked(regx_rndv_recv_t *recv)
{
    regx_channel_flush(recv->peer, &recv->outbox);
    if (recv->phase == REGX_RECV_REVOKE_DUE && !recv->outbox.full) {
        const regx_control_t message = {.type = REGX_CONTROL_REVOKE, .to = recv->sender};

        regx_channel_post(recv->peer, &recv->outbox, &message);
        recv->phase = REGX_RECV_DRAINING;
    }
}

/* Nothing is granted before all that was is acknowledged; then all from that offset on. */
static void restart_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, uint64_t offset)
{
    regx_counters_t *counters = rndv->counters;
    regx_revocable_t *revoke = &recv->revoke;

    recv->phase = revoke->optimistic ? REGX_RECV_DRAINING : REGX_RECV_REVOKE_DUE;
    recv->buffer_suspect = true;
    regx_list_set(&rndv->pending_recvs, &recv->link, false);
    revoke->from = regx_min(offset, recv->length - 1);
    revoke->noticed = regx_now_ns();
    revoke->wait.reason = NULL;
    revoke->times++;
    regx_count(counters,
               revoke->optimistic ? &counters->grants_restarted : &counters->grants_revoked, 1);
    post_due_locked(recv);
    set_due(rndv);
}

bool regx_revoke_nacked_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                               const regx_control_t *nack)
{
    if (!regx_revoke_is_on(recv) || !nack->failed || recv->revoke.failures == FAILURES_MAX) {
        return false;
    }
    if (recv->phase == REGX_RECV_STARTED) {
        recv->revoke.failures++;
        restart_locked(rndv, recv, nack->offset);
    }
    return true;
}

static void drained_locked(const regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    regx_revocable_t *revoke = &recv->revoke;

    revoke->from = regx_min(revoke->from, recv->granted);
    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        regx_chunk_t *chunk = &recv->chunks[i];

        assert(chunk->state != REGX_CHUNK_GRANTED);
        if (chunk->state == REGX_CHUNK_BY_SLOTS) { /* it was not written */
            revoke->from = regx_min(revoke->from, chunk->offset);
            chunk->state = REGX_CHUNK_FREE;
        }
    }
    recv->phase = REGX_RECV_DRAINED;
}

/* Nothing is watched from now on. What was not proven to have arrived goes by slots, once more. */
static void give_up(look_t *look, const char *reason)
{
    regx_revocable_t *revoke = &look->work.recv->revoke;

    revoke->state = REGX_REVOKE_GIVEN_UP;
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
    const regx_revocable_t *revoke = &recv->revoke;
    const bool proves = revoke->state == REGX_REVOKE_ON_CHANGE && revoke->lowest < recv->length;
    const bool ready =
        revoke->state == REGX_REVOKE_GIVEN_UP ||
        (look->state == REGX_WATCH_QUIET && (!proves || look->proof == REGX_PROOF_MADE));

    if (ready) {
        const regx_control_t message = {.type = REGX_CONTROL_ARRIVED,
                                        .to = recv->sender,
                                        .offset = revoke->lowest,
                                        .has_checksum = proves,
                                        .checksum = look->checksum};

        recv->phase = REGX_RECV_ARRIVED;
        regx_channel_post(recv->peer, &recv->outbox, &message);
        return;
    }
    const char *reason = look->proof == REGX_PROOF_UNREADABLE ? gone : unsure;
    if (waits_too_long(&recv->revoke, reason)) {
        give_up(look, reason);
        restart_locked(rndv, recv, reason == unsure ? 0 : revoke->lowest);
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

/* A multiple of the chunk size: chunks are cut there. */
static uint64_t resume_of(const regx_rndv_t *rndv, const regx_revocable_t *revoke)
{
    return revoke->from - revoke->from % rndv->config.chunk_size;
}

/* Grants anew from there on, if the memory is there. */
static void resume_locked(regx_rndv_t *rndv, look_t *look)
{
    regx_rndv_recv_t *recv = look->work.recv;
    regx_revocable_t *revoke = &recv->revoke;

    if (revoke->state == REGX_REVOKE_ON_CHANGE) {
        const char *reason = obstacle(look);

        if (revoke->times > TIMES_MAX) {
            give_up(look, changing);
        } else if (reason != NULL && !waits_too_long(revoke, reason)) {
            return;
        } else if (reason != NULL) {
            give_up(look, reason);
        }
    }
    if (revoke->state == REGX_REVOKE_GIVEN_UP) {
        revoke->from = regx_min(revoke->from, revoke->lowest);
    }
    const regx_control_t message = {
        .type = REGX_CONTROL_RESUME, .to = recv->sender, .offset = resume_of(rndv, revoke)};
    look->resumes = true;
    look->resume = message.offset;
    regx_count(rndv->counters, &rndv->counters->bytes_regranted, recv->granted - message.offset);
    regx_count(rndv->counters, &rndv->counters->regrant_stall_us,
               (uint64_t)(regx_now_ns() - revoke->noticed) / 1000);
    revoke->lowest = regx_min(revoke->lowest, message.offset);
    revoke->wait.reason = NULL;
    recv->landed = recv->granted = message.offset;
    recv->slots_only = atomic_load(&recv->peer->no_puts) || revoke->state == REGX_REVOKE_GIVEN_UP;
    recv->phase = REGX_RECV_STARTED;
    regx_channel_post(recv->peer, &recv->outbox, &message);
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

    if (revoke->state == REGX_REVOKE_GIVEN_UP) {
        return;
    }
    if (look->purpose == LOOK_MEMORY) { /* first: what is watched anew counts as changed */
        look->memory = look_for_memory(&revoke->watch, base + resume_of(rndv, revoke));
    }
    look->state = regx_watch_look(&revoke->watch, look->purpose == LOOK_END, &first);
    look->changed = first > base ? first - base : 0;
    if (look->purpose == LOOK_END && look->state == REGX_WATCH_QUIET &&
        revoke->lowest < recv->length) {
        look->proof = prove_received(recv, &look->checksum);
    }
}

static need_t need_locked(regx_rndv_recv_t *recv)
{
    const regx_revocable_t *revoke = &recv->revoke;
    const bool news = regx_revoke_is_on(recv) && regx_watch_has_news(&revoke->watch);

    switch (recv->phase) {
    case REGX_RECV_OPENED: /* RESUME is for a sender that is known */
        return news ? NEED_LATER : NEED_NOTHING;
    case REGX_RECV_STARTED:
        if (recv->landed < recv->length) {
            return news ? NEED_LOOK : NEED_NOTHING;
        }
        regx_channel_flush(recv->peer, &recv->outbox);
        return !recv->outbox.full && (news || !pauses(revoke)) ? NEED_LOOK : NEED_LATER;
    case REGX_RECV_REVOKE_DUE:
        return NEED_LOOK;
    case REGX_RECV_DRAINING:
        return news || recv->outbox.full || is_drained(recv) ? NEED_LOOK : NEED_LATER;
    case REGX_RECV_DRAINED:
        return news || !pauses(revoke) ? NEED_LOOK : NEED_LATER;
    case REGX_RECV_ARRIVED: /* what changes now is for after the comparison */
        regx_channel_flush(recv->peer, &recv->outbox);
        return recv->outbox.full ? NEED_LATER : NEED_NOTHING;
    default:
        return NEED_NOTHING;
    }
}

static void looked_locked(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    regx_rndv_recv_t *recv = work->recv;
    look_t *look = of_work(work);
    const bool changed = look->state == REGX_WATCH_CHANGED;

    if (changed && recv->phase != REGX_RECV_STARTED) {
        recv->revoke.from = regx_min(recv->revoke.from, look->changed);
    }
    switch (recv->phase) {
    case REGX_RECV_STARTED:
        if (changed) {
            restart_locked(rndv, recv, look->changed);
        } else if (look->purpose == LOOK_END) {
            end_locked(rndv, look);
        }
        break;
    case REGX_RECV_REVOKE_DUE:
    case REGX_RECV_DRAINING:
        post_due_locked(recv);
        if (recv->phase == REGX_RECV_DRAINING && is_drained(recv)) {
            drained_locked(rndv, recv);
        }
        break;
    case REGX_RECV_DRAINED:
        resume_locked(rndv, look);
        break;
    default: /* lost, or closed, meanwhile */
        break;
    }
    if (need_locked(recv) != NEED_NOTHING) {
        set_due(rndv);
    }
}

static purpose_t purpose_of(const regx_rndv_recv_t *recv)
{
    if (recv->phase == REGX_RECV_STARTED && recv->landed == recv->length) {
        return LOOK_END;
    }
    return recv->phase == REGX_RECV_DRAINED ? LOOK_MEMORY : LOOK_CHANGE;
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
    if (look->resumes) {
        regx_trace(rndv->config.trace, REGX_TRACE_PATH,
                   "memory changed, or a write failed: sent again from byte %llu on",
                   (unsigned long long)look->resume);
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
        const need_t need = need_locked(recv);
        if (need == NEED_LOOK) {
            look_t look;

            begin_look_locked(recv, &look);
            regx_unlock(&rndv->lock);
            run_look(rndv, &look);
            regx_lock(&rndv->lock);
        } else if (need == NEED_LATER) {
            set_due(rndv);
        }
    }
    atomic_store_explicit(&rndv->work.watches, !regx_list_empty(&rndv->revocable_recvs),
                          memory_order_relaxed);
    regx_unlock(&rndv->lock);
}

/* What was registered between a change being reported and its being made is dead. */
static void flush_watch(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    (void)rndv;
    regx_watch_flush(&work->recv->revoke.watch);
}

static void flushed_locked(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    regx_rndv_recv_t *recv = work->recv;
    regx_revocable_t *revoke = &recv->revoke;

    if (recv->phase == REGX_RECV_ARRIVED) {
        revoke->from = revoke->lowest;
        revoke->noticed = regx_now_ns();
        revoke->times++;
        recv->phase = REGX_RECV_DRAINED;
        set_due(rndv);
    }
}

bool regx_revoke_recv_control_locked(const regx_rndv_recv_t *recv, const regx_control_t *control,
                                     regx_recv_work_t *work)
{
    if (control->type != REGX_CONTROL_DIFFERS || !regx_revoke_is_on(recv) ||
        recv->phase != REGX_RECV_ARRIVED || recv->outbox.full ||
        recv->revoke.lowest == recv->length) {
        return false;
    }
    work->act = flush_watch;
    work->acted_locked = flushed_locked;
    return true;
}

/* ---- the send side ---- */

/* Compares the receiver's checksum with that of the send buffer. REGX_FAILED: they differ. */
static regx_status_t compare(regx_rndv_t *rndv, void *object)
{
    const regx_rndv_send_t *send = object;
    uint64_t sum, gap;

    (void)rndv;
    switch (regx_prove(send->base + send->proven, send->length - send->proven, &sum, &gap)) {
    case REGX_PROOF_MADE:
        return sum == send->proof ? REGX_OK : REGX_FAILED;
    case REGX_PROOF_UNREADABLE: /* of what is gone nothing can be sent again */
        return REGX_OK;
    default:
        return REGX_FAILED;
    }
}

static regx_status_t compared_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, void *object,
                                     regx_status_t status)
{
    (void)rndv, (void)object;
    send->in_flight--;
    send->agreement = status == REGX_OK ? REGX_AGREEMENT_THERE : REGX_AGREEMENT_DIFFERS;
    return REGX_OK;
}

static const regx_work_ops_t compare_ops = {.act = compare, .acted_locked = compared_locked};

/* An honest receiver sends RESUME when each grant is acknowledged: then none is queued or held, and
 * no NACK is unsent. Else it is malformed. */
static bool take_resume_locked(regx_rndv_send_t *send, const regx_control_t *control)
{
    if (control->offset > send->granted || control->offset >= send->length || send->count > 0 ||
        send->held != NULL || send->nacks != NULL) {
        return false;
    }
    send->rewound += send->granted - control->offset;
    send->granted = control->offset;
    send->sent_slots = regx_min(send->sent_slots, control->offset);
    send->restarts++;
    send->agreement = REGX_AGREEMENT_DUE;
    return true;
}

static bool take_arrived_locked(regx_rndv_send_t *send, const regx_control_t *control,
                                regx_send_work_t *work)
{
    if (control->has_checksum && control->offset >= send->length) {
        return false;
    }
    if (send->status != REGX_OK) { /* it ends anyway */
        return true;
    }
    if (!control->has_checksum) {
        send->agreement = REGX_AGREEMENT_THERE;
        return true;
    }
    send->agreement = REGX_AGREEMENT_PROVING;
    send->proven = control->offset;
    send->proof = control->checksum;
    send->in_flight++; /* it does not end meanwhile */
    *work = (regx_send_work_t){&compare_ops, send};
    return true;
}

bool regx_revoke_send_control_locked(regx_rndv_send_t *send, const regx_control_t *control,
                                     regx_send_work_t *work)
{
    const bool due = send->agreement == REGX_AGREEMENT_DUE;

    switch (control->type) {
    case REGX_CONTROL_REVOKE:
        send->agreement = due ? REGX_AGREEMENT_REVOKED : send->agreement;
        return due;
    case REGX_CONTROL_RESUME:
        return (due || send->agreement == REGX_AGREEMENT_REVOKED) &&
               take_resume_locked(send, control);
    case REGX_CONTROL_ARRIVED:
        return due && take_arrived_locked(send, control, work);
    default:
        return false;
    }
}

regx_status_t regx_revoke_answer_locked(regx_rndv_send_t *send)
{
    const regx_control_t differs = regx_send_message(send, REGX_CONTROL_DIFFERS);
    const regx_status_t status = regx_channel_send(send->peer, &differs);

    if (status == REGX_OK) {
        send->agreement = REGX_AGREEMENT_DUE;
    }
    return status == REGX_OK ? REGX_PENDING : status;
}

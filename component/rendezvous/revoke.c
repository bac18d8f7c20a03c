/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Grants that do not outlive their pages (btl_regx_grant): when the pages that a sender was granted
 * change, or a write to them fails, what was granted is acknowledged first, and then granted anew
 * from the lowest byte on that may be lost. For the paths that write to the user's pages (put.c).
 * The sender is told to stop.
 *
 * component/design/grants.md draws the messages, and tells why that is right, what it does not cover,
 * where it is given up and what it costs. recv.h draws the phases of the receive, send.h what becomes
 * of the send.
 */
#include "rendezvous/send.h"

#define PATIENCE_NS INT64_C(10000000000)
#define IMPATIENCE_NS INT64_C(100000000) /* with memory whose changes are not reported */
#define PAUSE_NS INT64_C(10000000)       /* between two looks in vain, at most */
#define UNSURE_NS INT64_C(1000000)       /* then the bytes are proven */
#define LOOKS_MIN 50u
#define TIMES_MAX 100u
#define FAILURES_MAX 4u /* writes that fail: it may be the sender's buffer that is gone */

/* Why it was given up, and what it waits for. */
static const char gone[] = "grant: the memory did not come back";
static const char unreported[] = "grant: changes of the new memory are not reported";
static const char unsure[] = "a change is under way"; /* for which nothing is given up */
static const char changing[] = "grant: the buffer kept changing";

/* What a receive needs of progress. */
typedef enum need {
    NEED_NOTHING, /* before the monitor has news */
    NEED_LATER,   /* to be asked again in the next round */
    LOOK_CHANGE,  /* a look: whether the memory has changed */
    LOOK_END,     /* whether the transfer can end: all has landed */
    LOOK_MEMORY   /* whether memory is there again: all is acknowledged */
} need_t;

/* A look at the memory of one receive, by the thread that works on it. */
typedef struct regx_look {
    regx_rndv_recv_t *recv;
    need_t purpose;
    /* What it found. */
    regx_watch_state_t state;
    uint64_t changed;  /* the lowest offset that changed */
    const char *lacks; /* if LOOK_MEMORY: why nothing can be granted anew now; NULL: it can */
    bool unreadable;   /* if LOOK_END: no checksum could be made */
    uint64_t checksum; /* of what has to be proven, if that is necessary and the memory is quiet */
    /* What is to be reported of it afterwards, without the lock. */
    bool resumes; /* from this offset on: */
    uint64_t resume;
    const char *given_up; /* why; NULL: it was not */
} look_t;

void regx_revoke_recv_open(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    recv->revoke.lowest = recv->buffer.length;
    if (regx_watch_begin(&recv->revoke.watch, rndv->registry->monitor, recv->buffer.base,
                         recv->buffer.length)) {
        recv->revoke.state = REGX_REVOKE_ON_CHANGE;
    } else {
        regx_fall_back(rndv, "grant: changes of this memory are not reported");
    }
}

/* Grants nothing until every grant is acknowledged, then everything from `offset` on. */
static void restart_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, uint64_t offset)
{
    regx_revocable_t *revoke = &recv->revoke;
    regx_chunk_t *chunk;

    recv->phase = REGX_RECV_RESTARTING;
    recv->buffer.suspect = true;
    regx_list_remove(&recv->link);
    revoke->from = regx_min(offset, regx_min(recv->granted, recv->buffer.length - 1));
    while ((chunk = regx_recv_chunk_find(rndv, recv, REGX_CHUNK_BY_SLOTS)) != NULL) {
        revoke->from = regx_min(revoke->from, chunk->offset); /* not written: granted anew */
        chunk->state = REGX_CHUNK_FREE;
    }
    revoke->wait.reason = NULL;
    revoke->times++;
    regx_count(rndv->counters, &rndv->counters->regrants, 1);
    const regx_control_t message = {.type = REGX_CONTROL_REVOKE, .to = recv->sender};
    regx_control_post(recv->peer->conn, &recv->outbox, &message);
    regx_revoke_set_due(rndv);
}

bool regx_revoke_lost_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, uint64_t offset)
{
    if (recv->phase == REGX_RECV_RESTARTING) {
        recv->revoke.from = regx_min(recv->revoke.from, offset);
        return true;
    }
    if (!regx_revoke_is_on(recv) || recv->phase != REGX_RECV_STARTED ||
        recv->revoke.failures == FAILURES_MAX) {
        return false;
    }
    recv->revoke.failures++;
    restart_locked(rndv, recv, offset);
    return true;
}

/* Nothing is watched from now on. What was not proven to have arrived goes by slots, once more. */
static void give_up(look_t *look, const char *reason)
{
    look->recv->revoke.state = REGX_REVOKE_GIVEN_UP;
    look->given_up = reason;
}

/* Notes that it cannot go on now, and why. Returns whether that has been so for too long: for some seconds,
 * and for many looks, since a program may seldom make progress. A wait goes on if its reason changes: else
 * two reasons that take turns would never end. */
static bool waits_too_long(regx_revocable_t *revoke, const char *reason)
{
    const int64_t now = regx_now_ns();

    if (revoke->wait.reason == NULL) {
        revoke->wait.looks = 0;
        revoke->wait.since = now;
    }
    if (revoke->wait.reason != unreported) {
        revoke->wait.unreported_looks = 0;
        revoke->wait.unreported_since = now;
    }
    const int64_t waited = now - revoke->wait.since;
    revoke->wait.reason = reason;
    revoke->wait.looks++;
    revoke->wait.unreported_looks += reason == unreported;
    revoke->wait.next = now + (waited / 8 < PAUSE_NS ? waited / 8 : PAUSE_NS);
    return (revoke->wait.looks > LOOKS_MIN && waited > PATIENCE_NS) ||
           (revoke->wait.unreported_looks > LOOKS_MIN &&
            now - revoke->wait.unreported_since > IMPATIENCE_NS);
}

static bool pauses(const regx_revocable_t *revoke)
{
    return revoke->wait.reason != NULL && regx_now_ns() < revoke->wait.next;
}

/* Nothing of what is not proven can have changed. */
static bool look_suffices(const look_t *look)
{
    return look->state == REGX_WATCH_QUIET ||
           (look->state == REGX_WATCH_UNSURE && look->recv->revoke.lowest == 0);
}

/* All has landed. Where a change is under way, which may be of any memory of the process, it is not waited for
 * long: another may have begun before it ends. Then all bytes are proven, so that it no longer matters. */
static void end_locked(regx_rndv_t *rndv, look_t *look)
{
    regx_rndv_recv_t *recv = look->recv;
    regx_revocable_t *revoke = &recv->revoke;
    const bool proves =
        revoke->state == REGX_REVOKE_ON_CHANGE && revoke->lowest < recv->buffer.length;
    const bool ready =
        revoke->state == REGX_REVOKE_GIVEN_UP || (look_suffices(look) && !look->unreadable);

    if (ready) {
        const regx_control_t message = {.type = REGX_CONTROL_ARRIVED,
                                        .to = recv->sender,
                                        .offset = revoke->lowest,
                                        .bits = proves ? REGX_CONTROL_CHECKSUM : 0,
                                        .checksum = look->checksum};

        recv->phase = REGX_RECV_ARRIVED;
        regx_control_post(recv->peer->conn, &recv->outbox, &message);
        return;
    }
    const bool too_long = waits_too_long(revoke, look->unreadable ? gone : unsure);
    if (look->unreadable && too_long) {
        give_up(look, gone);
        restart_locked(rndv, recv, revoke->lowest);
    } else if (!look->unreadable && regx_now_ns() - revoke->wait.since > UNSURE_NS) {
        revoke->lowest = 0;
    }
}

/* A multiple of the chunk size: chunks are cut there. */
static uint64_t resume_of(const regx_rndv_t *rndv, const regx_revocable_t *revoke)
{
    return revoke->from - revoke->from % rndv->config.chunk_size;
}

/* Grants anew from there on, if the memory is there. */
static void resume_locked(regx_rndv_t *rndv, look_t *look)
{
    regx_rndv_recv_t *recv = look->recv;
    regx_revocable_t *revoke = &recv->revoke;

    if (revoke->state == REGX_REVOKE_ON_CHANGE) {
        const char *reason = look->state == REGX_WATCH_CHANGED ? changing : look->lacks;

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
    revoke->lowest = regx_min(revoke->lowest, message.offset);
    revoke->wait.reason = NULL;
    recv->landed = message.offset;
    recv->granted = message.offset;
    recv->slots.only = atomic_load(&recv->peer->no_puts) || revoke->state == REGX_REVOKE_GIVEN_UP;
    recv->phase = REGX_RECV_STARTED;
    regx_control_post(recv->peer->conn, &recv->outbox, &message);
}

static need_t need_locked(regx_rndv_recv_t *recv)
{
    const regx_revocable_t *revoke = &recv->revoke;
    const bool news = regx_revoke_is_on(recv) && regx_watch_has_news(&revoke->watch);

    switch (recv->phase) {
    case REGX_RECV_OPENED: /* RESUME is for a sender that is known */
        return news ? NEED_LATER : NEED_NOTHING;
    case REGX_RECV_STARTED:
        if (recv->landed < recv->buffer.length) {
            return news ? LOOK_CHANGE : NEED_NOTHING;
        }
        regx_control_flush(recv->peer->conn, &recv->outbox);
        return recv->outbox.count == 0 && (news || !pauses(revoke)) ? LOOK_END : NEED_LATER;
    case REGX_RECV_RESTARTING:
        regx_control_flush(recv->peer->conn, &recv->outbox);
        if (recv->chunks_out > 0 || recv->slots.out > 0) { /* not all is acknowledged */
            return NEED_LATER;
        }
        /* RESUME needs room in the outbox. */
        return recv->outbox.count == 0 && (news || !pauses(revoke)) ? LOOK_MEMORY : NEED_LATER;
    case REGX_RECV_ARRIVED: /* a change is looked at only if DIFFERS restarts the receive */
        regx_control_flush(recv->peer->conn, &recv->outbox);
        return recv->outbox.count > 0 ? NEED_LATER : NEED_NOTHING;
    default:
        return NEED_NOTHING;
    }
}

regx_status_t regx_stage_look(regx_rndv_t *rndv, regx_step_t *step)
{
    regx_rndv_recv_t *recv = step->recv;
    regx_revocable_t *revoke = &recv->revoke;
    look_t *look = step->look;

    if (revoke->state != REGX_REVOKE_GIVEN_UP) { /* else nothing is watched */
        regx_watch_t *watch = &revoke->watch;
        const uintptr_t base = (uintptr_t)recv->buffer.base;
        uintptr_t first = 0;

        /* Before the look, which takes newly watched memory for changed. */
        if (look->purpose == LOOK_MEMORY) {
            const uintptr_t from = base + resume_of(rndv, revoke);

            if (!regx_watch_is_mapped(watch, from)) {
                look->lacks = gone;
            } else if (!regx_watch_renew(watch)) {
                look->lacks = regx_watch_is_mapped(watch, from) ? unreported : gone; /* again */
            }
        }
        look->state = regx_watch_look(watch, look->purpose == LOOK_END, &first);
        look->changed = first > base ? first - base : 0;
        if (look->purpose == LOOK_END && look_suffices(look) &&
            revoke->lowest < recv->buffer.length) {
            look->unreadable =
                !regx_buffer_prove(recv->buffer.base + revoke->lowest,
                                   recv->buffer.length - revoke->lowest, &look->checksum);
        }
    }
    const bool changed = look->state == REGX_WATCH_CHANGED;
    regx_lock(&rndv->lock);
    switch (recv->phase) {
    case REGX_RECV_STARTED:
        if (changed) {
            restart_locked(rndv, recv, look->changed);
        } else if (look->purpose == LOOK_END) {
            end_locked(rndv, look);
        }
        break;
    case REGX_RECV_RESTARTING:
        if (changed) {
            revoke->from = regx_min(revoke->from, look->changed);
        }
        resume_locked(rndv, look);
        break;
    default: /* lost, or closed, meanwhile */
        break;
    }
    if (need_locked(recv) != NEED_NOTHING) {
        regx_revoke_set_due(rndv);
    }
    return REGX_OK;
}

void regx_revokes_advance(regx_rndv_t *rndv)
{
    const uint64_t head = atomic_load(&rndv->registry->monitor->log->head);

    if (head == rndv->watched.seen &&
        !atomic_load_explicit(&rndv->watched.looks_due, memory_order_relaxed)) {
        return;
    }
    /* So that regions that are granted at this moment are counted as changed while in use. */
    if (head != rndv->watched.seen) {
        regx_registry_progress(rndv->registry);
    }
    regx_lock(&rndv->lock);
    rndv->watched.seen = head;
    atomic_store_explicit(&rndv->watched.looks_due, false, memory_order_relaxed);
    bool watches = false;
    for (uint32_t i = 0; i < rndv->recvs.count; i++) {
        regx_rndv_recv_t *recv = regx_handle_table_at(&rndv->recvs, i);
        const bool watched = recv != NULL && regx_recv_ends_by_arrived(recv);
        const need_t need = watched ? need_locked(recv) : NEED_NOTHING;

        watches |= watched;
        if (need >= LOOK_CHANGE) {
            look_t look = {.recv = recv, .purpose = need, .state = REGX_WATCH_QUIET};
            regx_step_t step = {.stage = REGX_STAGE_LOOK, .recv = recv, .look = &look};

            assert(!recv->busy);
            recv->busy = true;
            regx_unlock(&rndv->lock);
            regx_recv_run(rndv, &step);
            if (look.resumes) {
                regx_trace(rndv->config.trace, REGX_TRACE_PATH,
                           "memory changed, or a write failed: sent again from byte %llu on",
                           (unsigned long long)look.resume);
            }
            if (look.given_up != NULL) {
                regx_fall_back(rndv, look.given_up);
            }
            regx_lock(&rndv->lock);
        } else if (need == NEED_LATER) {
            regx_revoke_set_due(rndv);
        }
    }
    atomic_store_explicit(&rndv->work.watches, watches, memory_order_relaxed);
    regx_unlock(&rndv->lock);
}

/* Registrations that were made after a change was reported and before it took effect are of pages that are
 * gone. They end, and the receive restarts. */
regx_status_t regx_stage_flush(regx_rndv_t *rndv, regx_step_t *step)
{
    regx_rndv_recv_t *recv = step->recv;

    regx_watch_flush(&recv->revoke.watch);
    regx_lock(&rndv->lock);
    if (recv->phase == REGX_RECV_ARRIVED) {
        restart_locked(rndv, recv, recv->revoke.lowest);
    }
    return REGX_OK;
}

bool regx_revoke_recv_control_locked(const regx_rndv_recv_t *recv, const regx_control_t *control,
                                     regx_step_t *step)
{
    if (control->type != REGX_CONTROL_DIFFERS || !regx_revoke_is_on(recv) ||
        recv->phase != REGX_RECV_ARRIVED || recv->outbox.count > 0 ||
        recv->revoke.lowest == recv->buffer.length) {
        return false;
    }
    step->stage = REGX_STAGE_FLUSH;
    return true;
}

/* ---- the send side ---- */

/* A part of the buffer may be gone: then nothing can be proven or sent again, and the send fails. */
regx_status_t regx_stage_compare(regx_rndv_t *rndv, regx_step_t *step)
{
    regx_rndv_send_t *send = step->send;
    uint64_t sum = 0;
    const bool readable = regx_buffer_prove(send->buffer.base + send->agreement.offset,
                                            send->buffer.length - send->agreement.offset, &sum);
    const bool same = readable && sum == send->agreement.checksum;

    regx_lock(&rndv->lock);
    send->in_flight--;
    send->agreement.state = same ? REGX_AGREEMENT_REACHED : REGX_AGREEMENT_DUE;
    if (!readable) {
        send->buffer.gone = true;
        regx_send_fail_locked(send, REGX_DENIED);
    } else if (!same) {
        const regx_control_t differs = regx_send_message(send, REGX_CONTROL_DIFFERS);

        regx_send_post_locked(send, &differs);
    }
    return REGX_OK;
}

bool regx_revoke_send_control_locked(regx_rndv_send_t *send, const regx_control_t *control,
                                     regx_step_t *step)
{
    if (send->agreement.state != REGX_AGREEMENT_DUE) {
        return false;
    }
    switch (control->type) {
    case REGX_CONTROL_REVOKE:
        /* No chunk that is queued is begun. Slots stay: they are not of the memory that changed. */
        for (unsigned left = send->queue.count; left > 0; left--) {
            const regx_grant_t grant = *regx_send_first_grant(send);

            regx_send_drop_grant(send);
            if (grant.chunk) {
                regx_send_nack_locked(send, grant.offset, grant.length, 0);
            } else {
                send->bytes.granted -= grant.length;
                regx_send_grant(send, &grant);
            }
        }
        return true;
    case REGX_CONTROL_RESUME:
        /* An honest receiver sends it when each grant is acknowledged: then none is queued or held, and
         * no NACK is unsent. */
        if (control->offset > send->bytes.granted || control->offset >= send->buffer.length ||
            send->queue.count > 0 || send->held != NULL || send->outbox.count > 0) {
            return false;
        }
        send->agreement.rewound += send->bytes.granted - control->offset;
        send->bytes.granted = control->offset;
        send->bytes.slots = regx_min(send->bytes.slots, control->offset);
        send->agreement.restarts++;
        return true;
    case REGX_CONTROL_ARRIVED:
        if ((control->bits & REGX_CONTROL_CHECKSUM) == 0) {
            if (send->status == REGX_OK) { /* else it ends anyway */
                send->agreement.state = REGX_AGREEMENT_REACHED;
            }
            return true;
        }
        if (control->offset >= send->buffer.length) {
            return false;
        }
        if (send->status == REGX_OK) {
            send->agreement.state = REGX_AGREEMENT_PROVING;
            send->agreement.offset = control->offset;
            send->agreement.checksum = control->checksum;
            send->in_flight++; /* it does not end meanwhile */
            step->stage = REGX_STAGE_COMPARE;
        }
        return true;
    default:
        return false;
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/revoke.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/util.h"
#include "rendezvous/checksum.h"
#include "rendezvous/recv_run.h"
#include "rendezvous/safe_copy.h"

#define PATIENCE_NS INT64_C(10000000000)
#define UNPROVEN_MAX 100u

/* ---- the proof ---- */

#define BLOCK (64u * 1024u)

typedef enum proof { PROOF_MADE, PROOF_UNREADABLE, PROOF_NO_MEMORY } proof_t;

/* The checksum of the blocks' checksums. The memory may be gone. */
static proof_t prove(const char *base, uint64_t length, uint64_t *sum)
{
    char *block = malloc(BLOCK);
    uint64_t sums[2] = {0, 0};
    bool readable = true;

    if (block == NULL) {
        return PROOF_NO_MEMORY;
    }
    for (uint64_t done = 0; done < length && readable; done += BLOCK) {
        const size_t size = regx_min(BLOCK, length - done);

        readable = regx_safe_read(block, base + done, size);
        sums[1] = regx_checksum(block, size);
        sums[0] = regx_checksum(sums, sizeof(sums));
    }
    free(block);
    *sum = sums[0];
    return readable ? PROOF_MADE : PROOF_UNREADABLE;
}

/* ---- the receive side ---- */

static regx_rndv_recv_t *of_link(regx_link_t *link)
{
    return REGX_CONTAINER_OF(link, regx_rndv_recv_t, revoke.link);
}

void regx_revoke_recv_open(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    recv->revoke.least = recv->length;
    recv->revocable =
        regx_watch_begin(&recv->revoke.watch, rndv->registry, recv->base, recv->length);
    if (!recv->revocable) {
        regx_fall_back(rndv, "grant=synchronous: changes of this memory are not told");
    }
}

/* Nothing before it is granted and not landed. */
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
    regx_revocable_t *revoke = &recv->revoke;

    regx_channel_flush(recv->peer, &recv->outbox);
    if (revoke->due && !recv->outbox.full) {
        const regx_control_t message = {
            .type = REGX_CONTROL_REVOKE, .to = recv->sender, .offset = revoke->told};

        regx_channel_post(recv->peer, &recv->outbox, &message);
        revoke->due = false;
    }
}

/* What was granted is taken back. */
static void revoke_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, uint64_t changed)
{
    regx_revocable_t *revoke = &recv->revoke;

    recv->phase = REGX_RECV_REVOKING;
    recv->buffer_suspect = true;
    regx_list_set(&rndv->pending_recvs, &recv->link, false);
    revoke->told = revoke->from = regx_min(changed, landed_until(rndv, recv));
    revoke->least = regx_min(revoke->least, revoke->told);
    revoke->due = true;
    revoke->noticed = regx_now_ns();
    revoke->waits = 0;
    regx_count(rndv->counters, &rndv->counters->grants_revoked, 1);
    regx_trace(rndv->config.trace, REGX_TRACE_PATH, "memory changed: revoked from byte %llu on",
               (unsigned long long)revoke->told);
    post_due_locked(recv);
}

static void give_up_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, const char *reason)
{
    recv->revoke.over = true;
    regx_fall_back(rndv, reason);
}

/* Whether it has waited for too long. */
static bool waits_too_long(regx_revocable_t *revoke)
{
    const int64_t now = regx_now_ns();

    if (revoke->waits == 0) {
        revoke->waits = now;
    }
    return now - revoke->waits > PATIENCE_NS;
}

/* All has landed. */
static void end_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    regx_revocable_t *revoke = &recv->revoke;
    regx_control_t message = {
        .type = REGX_CONTROL_ARRIVED, .to = recv->sender, .offset = revoke->least};

    if (!revoke->over && revoke->look.unreadable) {
        revoke_locked(rndv, recv, revoke->least);
        return;
    }
    const bool ready = revoke->look.state == REGX_WATCH_QUIET &&
                       (revoke->least == recv->length || revoke->look.proof);
    if (!revoke->over && !ready) {
        if (waits_too_long(revoke)) {
            give_up_locked(rndv, recv, "grant=synchronous: nobody can tell of changes any more");
        }
        return;
    }
    regx_channel_flush(recv->peer, &recv->outbox);
    if (recv->outbox.full) {
        return;
    }
    message.has_checksum = !revoke->over && revoke->least < recv->length;
    message.checksum = revoke->look.checksum;
    regx_channel_post(recv->peer, &recv->outbox, &message);
    recv->phase = REGX_RECV_ARRIVED;
}

/* The sender has agreed: grants anew, if the memory is there. */
static void resume_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    regx_revocable_t *revoke = &recv->revoke;

    if (!revoke->look.mapped) {
        if (!waits_too_long(revoke)) {
            return;
        }
        give_up_locked(rndv, recv, "grant=synchronous: the memory did not come back");
    }
    revoke->waits = 0;
    recv->phase = REGX_RECV_STARTED;
    regx_count(rndv->counters, &rndv->counters->regrant_stall_us,
               (uint64_t)(regx_now_ns() - revoke->noticed) / 1000);
}

/* Looks at the memory. */
static void look(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    regx_rndv_recv_t *recv = work->recv;
    regx_revocable_t *revoke = &recv->revoke;
    const uintptr_t base = (uintptr_t)recv->base;
    uintptr_t first = 0;

    (void)rndv;
    revoke->look.state = REGX_WATCH_QUIET;
    revoke->look.mapped = revoke->look.proof = revoke->look.unreadable = false;
    if (revoke->over) {
        revoke->look.mapped = true;
        return;
    }
    revoke->look.state = regx_watch_look(&revoke->watch, revoke->ends, &first);
    revoke->look.changed = first > base ? first - base : 0;
    if (revoke->waits_memory) {
        revoke->look.mapped = regx_watch_is_mapped(&revoke->watch, base + revoke->told) &&
                              regx_watch_renew(&revoke->watch);
    }
    if (revoke->ends && revoke->look.state == REGX_WATCH_QUIET && revoke->least < recv->length) {
        const proof_t proof =
            prove(recv->base + revoke->least, recv->length - revoke->least, &revoke->look.checksum);

        revoke->look.proof = proof == PROOF_MADE;
        revoke->look.unreadable = proof == PROOF_UNREADABLE;
    }
}

static void looked_locked(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    regx_rndv_recv_t *recv = work->recv;
    regx_revocable_t *revoke = &recv->revoke;
    const bool changed = revoke->look.state == REGX_WATCH_CHANGED;

    switch (recv->phase) {
    case REGX_RECV_STARTED:
        if (changed) {
            revoke_locked(rndv, recv, revoke->look.changed);
        } else if (revoke->ends) {
            end_locked(rndv, recv);
        }
        break;
    case REGX_RECV_REVOKING:
        if (changed) {
            revoke->from = regx_min(revoke->from, revoke->look.changed);
        }
        post_due_locked(recv);
        break;
    case REGX_RECV_REVOKED:
        if (changed && revoke->look.changed < revoke->told) {
            revoke_locked(rndv, recv, revoke->look.changed);
        } else if (!changed) {
            resume_locked(rndv, recv);
        }
        break;
    default: /* lost, or closed, meanwhile */
        break;
    }
}

/* Whether a look may lead to anything. */
static bool wants_look_locked(const regx_rndv_recv_t *recv)
{
    const regx_revocable_t *revoke = &recv->revoke;

    switch (recv->phase) {
    case REGX_RECV_STARTED:
        return recv->landed == recv->length ||
               (!revoke->over && regx_watch_has_news(&revoke->watch));
    case REGX_RECV_REVOKING:
        return revoke->due || recv->outbox.full || regx_watch_has_news(&revoke->watch);
    case REGX_RECV_REVOKED:
        return true;
    default:
        return false;
    }
}

void regx_revokes_advance(regx_rndv_t *rndv)
{
    regx_lock(&rndv->lock);
    regx_list_move(&rndv->revocable_round, &rndv->revocable_recvs);
    while (!regx_list_empty(&rndv->revocable_round)) {
        regx_rndv_recv_t *recv = of_link(rndv->revocable_round.next);
        regx_recv_work_t work = {.recv = recv, .act = look, .acted_locked = looked_locked};

        regx_list_remove(&recv->revoke.link);
        regx_list_append(&rndv->revocable_recvs, &recv->revoke.link);
        if (recv->phase == REGX_RECV_ARRIVED) { /* what changes now is for after the comparison */
            regx_channel_flush(recv->peer, &recv->outbox);
        }
        if (!wants_look_locked(recv)) {
            continue;
        }
        assert(!recv->taken);
        recv->taken = true;
        recv->revoke.ends = recv->phase == REGX_RECV_STARTED && recv->landed == recv->length;
        recv->revoke.waits_memory = recv->phase == REGX_RECV_REVOKED;
        regx_unlock(&rndv->lock);
        regx_recv_run(rndv, &work);
        regx_lock(&rndv->lock);
    }
    if (!regx_list_empty(&rndv->revocable_recvs)) {
        atomic_store_explicit(&rndv->work.retry_recvs, true, memory_order_relaxed);
    }
    regx_unlock(&rndv->lock);
}

/* The sender writes nothing any more. What was registered of memory that was told to have changed
 * is dead already; where it was not told, but did, it is given up here. */
static void give_back(regx_rndv_t *rndv, regx_recv_work_t *work)
{
    regx_rndv_recv_t *recv = work->recv;
    const regx_watch_t *watch = &recv->revoke.watch;

    if (work->status == REGX_FAILED) {
        regx_inval_log_write(watch->monitor->log, watch->start, watch->end);
        recv->revoke.unproven++;
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
    recv->landed = recv->granted = revoke->told;
    recv->slots_only = atomic_load(&recv->peer->no_puts);
    if (recv->phase != REGX_RECV_REVOKING && recv->phase != REGX_RECV_ARRIVED) {
        return;
    }
    recv->phase = REGX_RECV_REVOKED;
    if (revoke->unproven > UNPROVEN_MAX && !revoke->over) {
        give_up_locked(rndv, recv, "grant=synchronous: the buffer kept changing");
    }
    if (revoke->from < revoke->told) { /* it has changed before that, too */
        revoke_locked(rndv, recv, revoke->from);
    }
}

bool regx_revoke_recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                     const regx_control_t *control, regx_recv_work_t *work)
{
    regx_revocable_t *revoke = &recv->revoke;
    const bool answers = recv->phase == REGX_RECV_REVOKING && !revoke->due && !recv->outbox.full &&
                         control->offset == revoke->told;
    const bool differs = recv->phase == REGX_RECV_ARRIVED && !revoke->over &&
                         revoke->least < recv->length && control->offset == revoke->least;

    (void)rndv;
    if (control->type != REGX_CONTROL_REVOKED || !recv->revocable || !(answers || differs)) {
        return false;
    }
    if (differs) {
        revoke->told = revoke->from = revoke->least;
        revoke->noticed = regx_now_ns();
    }
    work->status = differs ? REGX_FAILED : REGX_OK;
    work->act = give_back;
    work->acted_locked = given_back_locked;
    return true;
}

/* ---- the send side ---- */

/* The receiver's buffer is not this one's copy: back to where they agree. */
static regx_status_t compare(regx_rndv_t *rndv, void *object)
{
    const regx_rndv_send_t *send = object;
    uint64_t sum;

    (void)rndv;
    switch (prove(send->base + send->resume, send->length - send->resume, &sum)) {
    case PROOF_MADE:
        return sum == send->proof ? REGX_OK : REGX_FAILED;
    case PROOF_UNREADABLE: /* of what is gone nothing can be sent again */
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
    send->agreement = status == REGX_OK ? REGX_AGREEMENT_THERE : REGX_AGREEMENT_REVOKED;
    return REGX_OK;
}

static const regx_work_ops_t compare_ops = {.act = compare, .acted_locked = compared_locked};

bool regx_revoke_send_control_locked(regx_rndv_send_t *send, const regx_control_t *control,
                                     regx_send_work_t *work)
{
    const bool revokes = control->type == REGX_CONTROL_REVOKE;

    if ((!revokes && control->type != REGX_CONTROL_ARRIVED) ||
        send->agreement != REGX_AGREEMENT_DUE ||
        ((revokes || control->has_checksum) && control->offset >= send->length)) {
        return false;
    }
    if (send->status != REGX_OK) { /* it ends anyway */
        return true;
    }
    send->resume = control->offset;
    if (revokes) {
        send->agreement = REGX_AGREEMENT_REVOKED;
    } else if (!control->has_checksum) {
        send->agreement = REGX_AGREEMENT_THERE;
    } else {
        send->agreement = REGX_AGREEMENT_PROVING;
        send->proof = control->checksum;
        send->in_flight++; /* it does not end meanwhile */
        *work = (regx_send_work_t){&compare_ops, send};
    }
    return true;
}

regx_status_t regx_revoke_answer_locked(regx_rndv_t *rndv, regx_rndv_send_t *send)
{
    regx_control_t revoked = regx_send_message(send, REGX_CONTROL_REVOKED);

    if (send->in_flight > 0) {
        return REGX_PENDING;
    }
    if (send->resume > send->sent) { /* nobody can have agreed on what was not sent */
        regx_malformed(rndv);
        regx_send_fail_locked(send, REGX_FAILED);
        return REGX_PENDING;
    }
    revoked.offset = send->resume;
    const regx_status_t status = regx_channel_send(send->peer, &revoked);
    if (status != REGX_OK) {
        return status;
    }
    send->agreement = REGX_AGREEMENT_DUE;
    send->sent = send->granted = send->resume;
    send->sent_slots = regx_min(send->sent_slots, send->resume);
    return REGX_PENDING;
}

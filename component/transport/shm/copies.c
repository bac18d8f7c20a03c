/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Queues the puts and gets that the kernel copies, and schedules their pieces (vm.c) among the
 * connections.
 *
 * Each connection has a queue. Those that have something queued take turns, one piece each, so that
 * a peer's short get does not wait for another peer's long ones. After each REGX_SHM_TURN bytes a
 * copy goes behind the others of its connection, if one of these is shorter than what is left of it. A call of
 * progress copies one piece, several that are short, or 2 MiB if the program looks seldom: frames are
 * taken in between.
 *
 * Of the copies of several pieces that go by one connection, every other begins with its last
 * piece. A program uses its buffers again. If they do not fit the core's cache, what was copied
 * last is still there, and is copied first. Seen on an Intel Xeon with 2 MiB of cache for each
 * core, the kernel reading 1, 2 and 4 MiB in both directions at once, from and to the same buffers
 * again (without MPI): 47, 30 and 24.3 GB/s, with all copies from the start on 40, 23.4 and 22.7.
 */
#include <assert.h>

#include "transport/shm/shm_internal.h"

/* Bytes after which a call of progress copies no other piece. Between two short ones Open MPI's
 * round costs more than looking for frames is worth: 32 KiB are copied in 2 us. */
#define ROUND (128u * 1024u)
/* Bytes instead, of a program that looks seldom. */
#define LONG_ROUND (2048u * 1024u)
/* How many pieces a call of progress copies at most. ROUND alone does not bound it: a get from a
 * neighbour that is dead, or one that the peer has copied, adds no bytes. */
#define ROUND_PIECES 32
/* How many queued copies are searched for one that is shorter; any number may be queued. */
#define LOOKS 64u

/* ---- queues ---- */

/* Bytes that are not yet copied, as far as this process knows. */
static size_t left_of(regx_pending_t *op)
{
    return regx_move_of(op).length - op->moved;
}

/* One copy more or less, of this process's own. Peers read whether there is any: that is written
 * only when it changes, so that in a stream its line stays in their caches. */
static void count_own_locked(regx_shm_t *shm, int change)
{
    assert(change > 0 || shm->own_copies > 0);
    shm->own_copies += (uint32_t)change;
    regx_shm_count_copies(shm, change);
    if (shm->own_copies == 0 || (change > 0 && shm->own_copies == 1)) {
        atomic_store_explicit(&regx_shm_main(shm)->busy, shm->own_copies, memory_order_relaxed);
    }
}

/* The order of the pieces of a shared copy is chosen already. */
void regx_shm_queue_copy(regx_shm_conn_t *conn, regx_pending_t *op)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);

    regx_lock(&shm->lock);
    op->from_end = op->shared == NULL && regx_shm_from_end_locked(conn, regx_move_of(op).length);
    count_own_locked(shm, 1); /* first: who leaves here may count too many, but not too few */
    atomic_signal_fence(memory_order_seq_cst);
    regx_list_append(&conn->copies, &op->link);
    regx_list_set(&shm->turns, &conn->turn, true);
    regx_unlock(&shm->lock);
}

/* ---- a connection's turn ---- */

/* What became of the copy in front. */
typedef enum outcome {
    COPY_STAYS,  /* it stays in front */
    COPY_YIELDS, /* the next of its connection comes before it */
    COPY_STUCK,  /* the same, and its notice found no room: this call copies nothing more */
    COPY_ENDING, /* only the peer still copies */
    COPY_ENDED
} outcome_t;

/* Copies the next piece of a put or get in which the peer has no part. A put's notice follows the last. */
static outcome_t serve_plain(regx_shm_t *shm, regx_pending_t *op, regx_status_t *status)
{
    const size_t left = left_of(op), length = regx_claim_piece(left);

    *status = REGX_OK;
    if (left > 0) {
        *status = regx_shm_copy_part(shm, op, op->from_end ? left - length : op->moved, length);
    }
    if (*status != REGX_OK) {
        return COPY_ENDED;
    }
    op->moved += length;
    if (length < left) {
        return COPY_STAYS;
    }
    if (op->kind == REGX_PENDING_PUT) {
        const regx_put_t *put = regx_put_of(op);
        regx_shm_conn_t *conn = regx_shm_conn_of(op->conn);

        regx_lock(&conn->lock);
        *status =
            regx_mailbox_post(&conn->out, put->tag, put->notice, put->notice_length, NULL, NULL, 0);
        regx_unlock(&conn->lock);
    }
    if (*status != REGX_AGAIN) {
        return COPY_ENDED;
    }
    if (left == 0) { /* that peer does not read its mailbox, and the others go on */
        return COPY_STUCK;
    }
    return COPY_STAYS;
}

/* others: some wait behind it, of its connection or another. */
static outcome_t serve_shared(regx_pending_t *op, bool others, regx_status_t *status,
                              size_t *copied)
{
    const bool more = regx_shared_copy_read(op->shared, copied);

    op->moved += *copied;
    if (more) {
        return others && regx_shared_copy_pass_over(op->shared) ? COPY_YIELDS : COPY_STAYS;
    }
    *status = regx_shared_copy_end(op->shared);
    return *status == REGX_AGAIN ? COPY_ENDING : COPY_ENDED;
}

/* Whether one of those that wait behind the copy is shorter than what is left of it. A copy of at
 * most REGX_SHM_TURN bytes ends before that, so the question does not arise. The transport's lock is
 * held. */
static bool is_shorter_behind(regx_pending_t *op)
{
    const regx_link_t *line = &regx_shm_conn_of(op->conn)->copies;
    regx_link_t *next = op->link.next;
    const size_t left = left_of(op);

    if (regx_move_of(op).length <= REGX_SHM_TURN) {
        return false;
    }
    for (unsigned i = 0; i < LOOKS && next != line; i++, next = next->next) {
        if (left_of(regx_pending_of(next)) < left) {
            return true;
        }
    }
    return false;
}

/* Copies a piece for the connection whose turn it is, and adds its bytes. Returns whether there was
 * one to copy. */
static bool copy_next_piece(regx_shm_t *shm, size_t *copied)
{
    regx_status_t status = REGX_AGAIN;

    regx_lock(&shm->lock);
    if (regx_list_empty(&shm->turns)) {
        regx_unlock(&shm->lock);
        return false;
    }
    /* Both stay in front: only progress takes from there. */
    regx_shm_conn_t *conn = REGX_CONTAINER_OF(shm->turns.next, regx_shm_conn_t, turn);
    if (regx_list_empty(&conn->copies)) { /* the program left MPI right behind the last */
        regx_list_remove(&conn->turn);
        regx_unlock(&shm->lock);
        return true;
    }
    regx_pending_t *op = regx_pending_of(conn->copies.next);
    const bool others = op->link.next != &conn->copies || conn->turn.next != &shm->turns;
    const bool shorter = is_shorter_behind(op);
    const size_t before = op->moved;
    regx_unlock(&shm->lock);

    size_t more_copied = 0;
    outcome_t outcome;
    if (op->shared == NULL || regx_shared_copy_withdraw(op->shared)) {
        outcome = serve_plain(shm, op, &status);
        more_copied = op->moved - before;
    } else {
        outcome = serve_shared(op, others, &status, &more_copied);
    }
    *copied += more_copied;
    if (outcome == COPY_STAYS && shorter && op->moved / REGX_SHM_TURN > before / REGX_SHM_TURN) {
        outcome = COPY_YIELDS; /* its turn is over */
    }
    regx_lock(&shm->lock);
    if (outcome != COPY_STAYS) {
        regx_list_remove(&op->link);
        if (outcome == COPY_ENDED) {
            count_own_locked(shm, -1);
        } else {
            regx_list_append(outcome == COPY_ENDING ? &shm->ending : &conn->copies, &op->link);
        }
    }
    regx_list_remove(&conn->turn);
    regx_list_set(&shm->turns, &conn->turn, !regx_list_empty(&conn->copies));
    const bool more = !regx_list_empty(&shm->turns);
    regx_unlock(&shm->lock);
    shm->served_at = more ? regx_now_ns() : 0;
    if (outcome == COPY_ENDED) {
        regx_pending_end(op, status);
    }
    return outcome != COPY_STUCK;
}

/* Ends a copy that was taken out of its list. */
static void end_own(regx_shm_t *shm, regx_pending_t *op, regx_status_t status)
{
    regx_lock(&shm->lock);
    count_own_locked(shm, -1);
    regx_unlock(&shm->lock);
    regx_pending_end(op, status);
}

int regx_shm_poll_copies(regx_shm_t *shm)
{
    int events = 0, served = 0;
    size_t copied = 0;

    /* Completes gets whose last pieces the peer has ended. */
    for (regx_link_t *link = shm->ending.next, *next; link != &shm->ending; link = next) {
        regx_pending_t *op = regx_pending_of(link);
        regx_status_t status = left_of(op) == 0 ? REGX_OK : REGX_FAILED;

        next = link->next;
        if (op->shared != NULL) {
            status = regx_shared_copy_end(op->shared);
        } /* else the program has left MPI right behind that */
        if (status != REGX_AGAIN) {
            regx_list_remove(link);
            end_own(shm, op, status);
            events++;
        }
    }
    const bool is_seldom = shm->served_at != 0 && regx_now_ns() - shm->served_at > REGX_SHM_SELDOM;
    const size_t round = is_seldom ? LONG_ROUND : ROUND;

    while (served < ROUND_PIECES && copied < round && copy_next_piece(shm, &copied)) {
        served++;
    }
    if (served == 0 && regx_shared_copies_asked(&shm->shared_copies) > 0 &&
        regx_shared_copy_write(shm)) {
        events++;
    }
    return events + served;
}

void regx_shm_drop_copies(regx_shm_conn_t *conn)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);
    regx_link_t taken = {&taken, &taken};

    regx_lock(&shm->lock);
    regx_list_move(&taken, &conn->copies);
    regx_list_remove(&conn->turn);
    regx_shm_take_ops_locked(&shm->ending, conn, &taken);
    regx_unlock(&shm->lock);
    while (!regx_list_empty(&taken)) {
        regx_pending_t *op = regx_pending_of(taken.next);

        regx_list_remove(&op->link);
        if (op->shared != NULL) {
            regx_shared_copy_revoke(op->shared);
        }
        end_own(shm, op, REGX_FAILED);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The puts and gets for which the kernel copies. Each connection has a queue. Those that have
 * something queued take turns, one piece each, so that a peer's short get does not wait for
 * another peer's long ones. A call of progress copies one piece: frames are taken in between.
 */
#include "transport/rkey_table.h"
#include "transport/shm/piece.h"
#include "transport/shm/shm_internal.h"

/* Bytes of a piece: some 30 µs. */
#define STEP REGX_CLAIM_PIECE
/* Bytes of one put or get before the next one's turn. */
#define TURN (2048u * 1024u)

/* ---- what a copy is ---- */

static bool is_get(void *const *copy)
{
    return copy[REGX_SCRATCH_KIND] != NULL;
}

static regx_put_t *put_of(void **copy)
{
    return REGX_CONTAINER_OF(copy, regx_put_t, scratch);
}

static regx_get_t *get_of(void **copy)
{
    return REGX_CONTAINER_OF(copy, regx_get_t, scratch);
}

/* NULL: it is none. */
static regx_assisted_t *assisted_of(void **copy)
{
    return copy[REGX_SCRATCH_KIND] != copy ? copy[REGX_SCRATCH_KIND] : NULL;
}

static size_t done_of(void *const *copy)
{
    return (uintptr_t)copy[REGX_SCRATCH_DONE];
}

static void end_copy(void **copy, regx_status_t status)
{
    if (is_get(copy)) {
        regx_get_t *get = get_of(copy);

        get->done(get, status);
    } else {
        regx_put_t *put = put_of(copy);

        put->done(put, status);
    }
}

/* ---- queues; all with the transport's lock held ---- */

/* One copy more or less, of this process's own. */
static void count_own(regx_shm_t *shm, int change)
{
    atomic_fetch_add(&shm->copy_count, (uint32_t)change);
    atomic_fetch_add_explicit(&regx_shm_main(shm)->queued, (uint32_t)change, memory_order_relaxed);
}

static void append(regx_shm_copies_t *copies, void **copy)
{
    copy[REGX_SCRATCH_NEXT] = NULL;
    if (copies->first == NULL) {
        copies->first = copy;
    } else {
        copies->last[REGX_SCRATCH_NEXT] = copy;
    }
    copies->last = copy;
}

/* Takes the first, which is there. */
static void **take(regx_shm_copies_t *copies)
{
    void **copy = copies->first;

    copies->first = copy[REGX_SCRATCH_NEXT];
    return copy;
}

static void queue_copy(regx_shm_conn_t *conn, void **copy, void *kind)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);

    copy[REGX_SCRATCH_CONN] = conn;
    copy[REGX_SCRATCH_DONE] = NULL;
    copy[REGX_SCRATCH_KIND] = kind;
    regx_lock(&shm->lock);
    append(&conn->copies, copy);
    regx_arbiter_add(&shm->turns, &conn->turn);
    count_own(shm, 1);
    regx_unlock(&shm->lock);
}

void regx_shm_queue_put(regx_shm_conn_t *conn, regx_put_t *put)
{
    queue_copy(conn, put->scratch, NULL);
}

void regx_shm_queue_get(regx_shm_conn_t *conn, regx_get_t *get, regx_assisted_t *assisted)
{
    queue_copy(conn, get->scratch, assisted != NULL ? (void *)assisted : get->scratch);
}

/* ---- a piece ---- */

/* What of a plain put or get is not yet copied, no more than a piece. */
static regx_shm_piece_t rest_of(void **copy)
{
    const regx_shm_conn_t *conn = copy[REGX_SCRATCH_CONN];
    const size_t done = done_of(copy);
    regx_shm_piece_t piece = {.vm = &conn->vm, .main = regx_shm_main_at(&conn->main)};

    if (is_get(copy)) {
        const regx_get_t *get = get_of(copy);

        piece.direction = REGX_VM_READ;
        piece.local = get->local;
        piece.remote = regx_key_address(&get->key) + get->offset;
        piece.length = get->length;
    } else {
        const regx_put_t *put = put_of(copy);

        piece.direction = REGX_VM_WRITE;
        piece.local = (char *)(uintptr_t)put->local;
        piece.remote = regx_key_address(&put->key) + put->offset;
        piece.length = put->length;
    }
    piece.local += done;
    piece.remote += done;
    piece.length -= done;
    return piece;
}

/* Copies the next piece of a plain put or get; REGX_AGAIN while it is not finished. */
static regx_status_t step_plain(regx_shm_t *shm, void **copy)
{
    regx_shm_conn_t *conn = copy[REGX_SCRATCH_CONN];
    regx_shm_piece_t piece = rest_of(copy);
    const size_t left = piece.length;
    regx_status_t status;

    if (left > 0) {
        size_t copied;

        piece.length = regx_min(left, STEP);
        status = regx_shm_copy_some(shm, &piece, &copied);
        if (status != REGX_OK) {
            return status;
        }
        copy[REGX_SCRATCH_DONE] = (void *)(uintptr_t)(done_of(copy) + copied);
        if (copied < left) {
            return REGX_AGAIN;
        }
    }
    if (is_get(copy)) {
        return REGX_OK;
    }
    const regx_put_t *put = put_of(copy);

    regx_lock(&conn->lock);
    status =
        regx_mailbox_post(&conn->out, put->tag, put->notice, put->notice_length, NULL, NULL, 0);
    regx_unlock(&conn->lock);
    return status;
}

/* ---- turns ---- */

/* What became of the copy in front. */
typedef enum turn {
    TURN_GOES_ON, /* it stays in front */
    TURN_OVER,    /* the next of its connection comes before it */
    TURN_STUCK,   /* likewise, and nothing could be done */
    TURN_ENDING,  /* only the peer still copies */
    TURN_ENDED
} turn_t;

static turn_t turn_of(void **copy, size_t before)
{
    return done_of(copy) / TURN > before / TURN ? TURN_OVER : TURN_GOES_ON;
}

static turn_t serve_plain(regx_shm_t *shm, void **copy, regx_status_t *status)
{
    const size_t before = done_of(copy);

    *status = step_plain(shm, copy);
    if (*status != REGX_AGAIN) {
        return TURN_ENDED;
    }
    /* Nothing copied: that peer does not read its mailbox, and the others go on. */
    return done_of(copy) == before ? TURN_STUCK : turn_of(copy, before);
}

static turn_t serve_assisted(void **copy, bool others_wait, regx_status_t *status)
{
    regx_assisted_t *assisted = assisted_of(copy);
    const size_t before = done_of(copy);
    size_t copied;
    const bool more = regx_assist_read(assisted, &copied);

    copy[REGX_SCRATCH_DONE] = (void *)(uintptr_t)(before + copied);
    if (more) {
        return others_wait && regx_assist_pass_over(assisted) ? TURN_OVER : turn_of(copy, before);
    }
    *status = regx_assist_end(assisted);
    return *status == REGX_AGAIN ? TURN_ENDING : TURN_ENDED;
}

/* Puts the copy in front of the connection where it belongs now. The transport's lock is held. */
static void settle(regx_shm_t *shm, regx_shm_conn_t *conn, turn_t turn)
{
    if (turn != TURN_GOES_ON) {
        void **copy = take(&conn->copies);

        if (turn == TURN_OVER || turn == TURN_STUCK) {
            append(&conn->copies, copy);
        } else if (turn == TURN_ENDING) {
            append(&shm->ending, copy);
        } else {
            count_own(shm, -1);
        }
    }
    regx_arbiter_take(&shm->turns);
    if (conn->copies.first != NULL) {
        regx_arbiter_add(&shm->turns, &conn->turn);
    }
}

/* Copies a piece for the connection whose turn it is. Returns whether there was one to copy. */
static bool serve(regx_shm_t *shm)
{
    regx_status_t status = REGX_AGAIN;

    regx_lock(&shm->lock);
    if (shm->turns.first == NULL) {
        regx_unlock(&shm->lock);
        return false;
    }
    /* Both stay in front: only progress takes from there. */
    regx_shm_conn_t *conn = REGX_CONTAINER_OF(shm->turns.first, regx_shm_conn_t, turn);
    void **copy = conn->copies.first;
    const bool others_wait = copy[REGX_SCRATCH_NEXT] != NULL || shm->turns.first->next != NULL;
    regx_unlock(&shm->lock);

    const turn_t turn = assisted_of(copy) == NULL ? serve_plain(shm, copy, &status)
                                                  : serve_assisted(copy, others_wait, &status);
    regx_lock(&shm->lock);
    settle(shm, conn, turn);
    regx_unlock(&shm->lock);
    if (turn == TURN_ENDED) {
        end_copy(copy, status);
    }
    return turn != TURN_STUCK;
}

/* Completes gets whose last pieces the peer has ended. Returns how many. */
static int poll_ending(regx_shm_t *shm)
{
    regx_shm_copies_t waiting = shm->ending;
    int events = 0;

    shm->ending.first = NULL;
    while (waiting.first != NULL) {
        void **copy = take(&waiting);
        const regx_status_t status = regx_assist_end(assisted_of(copy));

        if (status == REGX_AGAIN) {
            append(&shm->ending, copy);
            continue;
        }
        count_own(shm, -1);
        end_copy(copy, status);
        events++;
    }
    return events;
}

__attribute__((noinline)) int regx_shm_poll_copies(regx_shm_t *shm)
{
    const int events = shm->ending.first != NULL ? poll_ending(shm) : 0;

    shm->turn_is_peers = !shm->turn_is_peers && regx_assist_is_large(shm);
    if (shm->turn_is_peers && regx_assist_write(shm)) {
        return events + 1;
    }
    if (serve(shm)) {
        return events + 1;
    }
    return events + (shm->requests.count > 0 && regx_assist_write(shm));
}

/* ---- the end ---- */

/* Takes this connection's gets off those that are ending. */
static void take_ending(regx_shm_t *shm, const regx_shm_conn_t *conn, regx_shm_copies_t *taken)
{
    regx_shm_copies_t all = shm->ending;

    shm->ending.first = NULL;
    while (all.first != NULL) {
        void **copy = take(&all);

        append(copy[REGX_SCRATCH_CONN] == conn ? taken : &shm->ending, copy);
    }
}

void regx_shm_drop_copies(regx_shm_conn_t *conn)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);
    regx_shm_copies_t taken;

    regx_lock(&shm->lock);
    taken = conn->copies;
    conn->copies.first = NULL;
    regx_arbiter_remove(&shm->turns, &conn->turn);
    take_ending(shm, conn, &taken);
    regx_unlock(&shm->lock);
    while (taken.first != NULL) {
        void **copy = take(&taken);
        regx_assisted_t *assisted = assisted_of(copy);

        if (assisted != NULL) {
            regx_assist_revoke(assisted);
        }
        count_own(shm, -1);
        end_copy(copy, REGX_FAILED);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The puts and gets for which the kernel copies. Each connection has a queue. Those that have
 * something queued take turns, one piece each, so that a peer's short get does not wait for
 * another peer's long ones. A call of progress copies one piece, or several that are short: frames
 * are taken in between.
 *
 * Of the copies of several pieces that go by one connection, every other begins with its last
 * piece. A program uses its buffers again. If they do not fit the core's cache, what was copied
 * last is still there, and is copied first. Seen on an Intel Xeon with 2 MiB of cache for each
 * core, the kernel reading 1, 2 and 4 MiB in both directions at once, from and to the same buffers
 * again (without MPI): 47, 30 and 24.3 GB/s, with all copies from the start on 40, 23.4 and 22.7.
 */
#include <assert.h>

#include "transport/shm/key.h"
#include "transport/shm/piece.h"
#include "transport/shm/shm_internal.h"

/* In REGX_SCRATCH_DONE, above the bytes: the copy began with its last piece. */
#define FROM_END ((uintptr_t)1 << (8 * sizeof(uintptr_t) - 1))
/* Bytes of one put or get before the turn of the next one, if that is shorter than what is left. */
#define TURN (2048u * 1024u)
/* Bytes after which a call of progress copies no other piece. Between two short ones Open MPI's
 * round costs more than looking for frames is worth: 32 KiB are copied in 2 us. */
#define ROUND (128u * 1024u)
/* And pieces, of which some add no bytes: gets of a neighbour that is dead, what the peer has
 * copied. */
#define ROUND_PIECES 32
/* Copies that are looked at for a shorter one, of any number that may be queued. */
#define LOOKS 64u

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
    return (uintptr_t)copy[REGX_SCRATCH_DONE] & ~FROM_END;
}

static bool is_from_end(void *const *copy)
{
    return ((uintptr_t)copy[REGX_SCRATCH_DONE] & FROM_END) != 0;
}

static void set_order(void **copy, bool from_end)
{
    copy[REGX_SCRATCH_DONE] = (void *)(from_end ? FROM_END : 0);
}

static void add_done(void **copy, size_t bytes)
{
    copy[REGX_SCRATCH_DONE] = (void *)((uintptr_t)copy[REGX_SCRATCH_DONE] + bytes);
}

static size_t length_of(void **copy)
{
    return is_get(copy) ? get_of(copy)->length : put_of(copy)->length;
}

/* Bytes that are not yet copied, as far as this process knows. */
static size_t left_of(void **copy)
{
    return length_of(copy) - done_of(copy);
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

/* One copy more or less, of this process's own. Peers read whether there is any: that is written
 * only when it changes, so that in a stream its line stays in their caches. */
static void count_own_locked(regx_shm_t *shm, int change)
{
    assert(change > 0 || shm->own > 0);
    shm->own += (uint32_t)change;
    regx_shm_count_copies(shm, change);
    if (shm->own == (change > 0)) {
        atomic_store_explicit(&regx_shm_main(shm)->busy, shm->own, memory_order_relaxed);
    }
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

    assert(copy != NULL);
    copies->first = copy[REGX_SCRATCH_NEXT];
    return copy;
}

/* length: 0, if the order of its pieces is already chosen. */
static void queue_copy(regx_shm_conn_t *conn, void **copy, void *kind, size_t length)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);

    copy[REGX_SCRATCH_CONN] = conn;
    copy[REGX_SCRATCH_KIND] = kind;
    regx_lock(&shm->lock);
    set_order(copy, regx_shm_order_locked(conn, length));
    append(&conn->copies, copy);
    regx_arbiter_add(&shm->turns, &conn->turn);
    count_own_locked(shm, 1);
    regx_unlock(&shm->lock);
}

void regx_shm_queue_put(regx_shm_conn_t *conn, regx_put_t *put)
{
    queue_copy(conn, put->scratch, NULL, put->length);
}

void regx_shm_queue_get(regx_shm_conn_t *conn, regx_get_t *get, regx_assisted_t *assisted)
{
    if (assisted != NULL) {
        queue_copy(conn, get->scratch, assisted, 0);
    } else {
        queue_copy(conn, get->scratch, get->scratch, get->length);
    }
}

/* ---- a piece ---- */

/* The next piece of a plain put or get, of which so many bytes are left. */
static regx_shm_piece_t next_piece(void **copy, size_t left)
{
    regx_shm_conn_t *conn = copy[REGX_SCRATCH_CONN];
    const size_t length = regx_claim_piece(left);
    const size_t at = is_from_end(copy) ? left - length : done_of(copy);
    regx_shm_piece_t piece = {.vm = &conn->vm,
                              .main = regx_shm_main_at(&conn->main),
                              .owned = &conn->owned,
                              .length = length};

    if (is_get(copy)) {
        const regx_get_t *get = get_of(copy);

        piece.direction = REGX_VM_READ;
        piece.local = (char *)get->local + at;
        piece.remote = regx_shm_key_unpack(&get->key).address + get->offset + at;
    } else {
        const regx_put_t *put = put_of(copy);

        piece.direction = REGX_VM_WRITE;
        piece.local = (char *)(uintptr_t)put->local + at;
        piece.remote = regx_shm_key_unpack(&put->key).address + put->offset + at;
    }
    return piece;
}

/* Copies the next piece of a plain put or get; REGX_AGAIN while it is not finished. */
static regx_status_t step_plain(regx_shm_t *shm, void **copy)
{
    regx_shm_conn_t *conn = copy[REGX_SCRATCH_CONN];
    const size_t left = left_of(copy);
    regx_status_t status;

    if (left > 0) {
        const regx_shm_piece_t piece = next_piece(copy, left);

        status = regx_piece_copy(shm, piece);
        if (status != REGX_OK) {
            return status;
        }
        add_done(copy, piece.length);
        if (piece.length < left) {
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

/* What waits behind the copy in front. */
typedef struct others {
    bool wait;    /* of this connection or another */
    bool shorter; /* one of this connection is */
} others_t;

static turn_t turn_of(void **copy, size_t before, others_t others)
{
    return others.shorter && done_of(copy) / TURN > before / TURN ? TURN_OVER : TURN_GOES_ON;
}

static turn_t serve_plain(regx_shm_t *shm, void **copy, others_t others, regx_status_t *status)
{
    const size_t before = done_of(copy);

    *status = step_plain(shm, copy);
    if (*status != REGX_AGAIN) {
        return TURN_ENDED;
    }
    /* Nothing copied: that peer does not read its mailbox, and the others go on. */
    return done_of(copy) == before ? TURN_STUCK : turn_of(copy, before, others);
}

/* A get of which the peer is not asked any more becomes a plain one. */
static void withdraw(void **copy)
{
    regx_assisted_t *assisted = assisted_of(copy);
    const bool from_end = assisted->from_end;

    if (regx_assist_withdraw(assisted)) {
        copy[REGX_SCRATCH_KIND] = copy;
        set_order(copy, from_end);
    }
}

static turn_t serve_assisted(void **copy, others_t others, regx_status_t *status)
{
    regx_assisted_t *assisted = assisted_of(copy);
    const size_t before = done_of(copy);
    size_t copied;
    const bool more = regx_assist_read(assisted, &copied);

    add_done(copy, copied);
    if (more) {
        return others.wait && regx_assist_pass_over(assisted) ? TURN_OVER
                                                              : turn_of(copy, before, others);
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
            count_own_locked(shm, -1);
        }
    }
    regx_arbiter_take(&shm->turns);
    if (conn->copies.first != NULL) {
        regx_arbiter_add(&shm->turns, &conn->turn);
    }
}

/* Whether one of those that wait behind the copy is shorter than what is left of it. Of a copy that
 * ends within its turn nobody asks. The transport's lock is held. */
static bool is_shorter_behind(void **copy)
{
    void **next = length_of(copy) > TURN ? copy[REGX_SCRATCH_NEXT] : NULL;
    const size_t left = left_of(copy);

    for (unsigned i = 0; i < LOOKS && next != NULL; i++, next = next[REGX_SCRATCH_NEXT]) {
        if (left_of(next) < left) {
            return true;
        }
    }
    return false;
}

/* Copies a piece for the connection whose turn it is, and adds its bytes. Returns whether there was
 * one to copy. */
static bool serve(regx_shm_t *shm, size_t *copied)
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
    void **next = copy[REGX_SCRATCH_NEXT];
    const others_t others = {.wait = next != NULL || shm->turns.first->next != NULL,
                             .shorter = is_shorter_behind(copy)};
    const size_t before = done_of(copy);
    regx_unlock(&shm->lock);

    if (assisted_of(copy) != NULL) {
        withdraw(copy);
    }
    const turn_t turn = assisted_of(copy) == NULL ? serve_plain(shm, copy, others, &status)
                                                  : serve_assisted(copy, others, &status);
    *copied += done_of(copy) - before;
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
        regx_lock(&shm->lock);
        count_own_locked(shm, -1);
        regx_unlock(&shm->lock);
        end_copy(copy, status);
        events++;
    }
    return events;
}

__attribute__((noinline)) int regx_shm_poll_copies(regx_shm_t *shm)
{
    int events = shm->ending.first != NULL ? poll_ending(shm) : 0;
    int served = 0;
    size_t copied = 0;

    while (served < ROUND_PIECES && copied < ROUND && serve(shm, &copied)) {
        served++;
    }
    if (served == 0 && shm->requests.count > 0 && regx_assist_write(shm)) {
        events++;
    }
    return events + served;
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
        regx_lock(&shm->lock);
        count_own_locked(shm, -1);
        regx_unlock(&shm->lock);
        end_copy(copy, REGX_FAILED);
    }
}

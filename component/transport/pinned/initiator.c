/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The end that puts and gets. A connection's operations are begun in their order, piece by piece;
 * pieces end in that order, too, since the owner takes them so.
 */
#include "transport/pinned/pinned.h"

#include <stdlib.h>
#include <string.h>

typedef struct regx_pinned_piece piece_t;

#define LOOKS 1024u /* for an answer, before the time is looked at */
#define LOOK_NS INT64_C(1000000000)

/* ---- operations ---- */

/* What a put and a get both have. */
typedef struct move {
    size_t length;
    const char *local;
    const regx_mr_t *region;
    const regx_key_t *key;
    uint64_t offset;
} move_t;

static move_t move_of(regx_pending_t *op)
{
    if (op->kind == REGX_PENDING_GET) {
        const regx_get_t *get = regx_get_of(op);

        return (move_t){get->length, get->local, get->region, &get->key, get->offset};
    }
    const regx_put_t *put = regx_put_of(op);
    return (move_t){put->length, put->local, put->region, &put->key, put->offset};
}

/* A put without bytes has a piece, too: its notice. */
static bool has_more(regx_pending_t *op)
{
    return !op->failed && (op->begun == 0 || op->moved < move_of(op).length);
}

/* Several, for both ends to work at once, but none so short that asking takes longer. */
static uint32_t next_length(regx_pending_t *op)
{
    const size_t length = move_of(op).length;
    const size_t part = regx_align_up(length / REGX_PINNED_CELLS, REGX_PINNED_HEAD);
    const size_t most = regx_min(regx_max(part, REGX_PINNED_PIECE_MIN), REGX_PINNED_PIECE_MAX);

    return (uint32_t)regx_min(most, length - op->moved);
}

static regx_pinned_key_t key_of(const regx_key_t *packed)
{
    regx_pinned_key_t key;

    memcpy(&key, packed->bytes, sizeof(key));
    return key;
}

static regx_status_t queue(regx_pinned_conn_t *conn, regx_pending_t *op, regx_pending_kind_t kind,
                           const regx_key_t *key, uint64_t offset, size_t length)
{
    regx_pinned_t *pinned = regx_pinned_of(conn->super.transport);
    const regx_status_t refusal = atomic_load_explicit(&conn->refusal, memory_order_relaxed);

    if (!regx_within(offset, length, key_of(key).length)) {
        return REGX_INVALID;
    }
    if (refusal != REGX_OK) {
        return refusal;
    }
    *op = (regx_pending_t){.kind = kind, .conn = &conn->super};
    regx_lock(&pinned->lock);
    regx_list_append(&conn->line, &op->link);
    regx_list_set(&pinned->asking, &conn->turn, true);
    regx_unlock(&pinned->lock);
    atomic_fetch_add_explicit(&pinned->asked, 1, memory_order_relaxed);
    return REGX_PENDING;
}

regx_status_t regx_pinned_put(regx_conn_t *super, regx_put_t *put)
{
    regx_pinned_conn_t *conn = regx_pinned_conn_of(super);

    if (put->target == REGX_TARGET_POOL) {
        return conn->shm->transport->ops->put(conn->shm, put);
    }
    return queue(conn, &put->pending, REGX_PENDING_PUT, &put->key, put->offset, put->length);
}

regx_status_t regx_pinned_get(regx_conn_t *super, regx_get_t *get)
{
    if (get->region == NULL || get->staged) {
        return REGX_DENIED;
    }
    return queue(regx_pinned_conn_of(super), &get->pending, REGX_PENDING_GET, &get->key,
                 get->offset, get->length);
}

/* Of a connection that may have no other operation then, the turn is over. */
static void end(regx_pinned_t *pinned, regx_pending_t *op, regx_status_t status)
{
    regx_pinned_conn_t *conn = regx_pinned_conn_of(op->conn);

    regx_lock(&pinned->lock);
    regx_list_remove(&op->link);
    if (regx_list_empty(&conn->line)) {
        regx_list_remove(&conn->turn);
    }
    regx_unlock(&pinned->lock);
    atomic_fetch_sub_explicit(&pinned->asked, 1, memory_order_relaxed);
    regx_pending_end(op, status);
}

/* Ends all there are, for good. */
static void end_all(regx_pinned_conn_t *conn, regx_status_t status)
{
    regx_pinned_t *pinned = regx_pinned_of(conn->super.transport);

    atomic_store(&conn->refusal, status);
    conn->holds = false;
    conn->ended = conn->told; /* what the owner still does or answers means nothing any more */
    for (;;) {
        regx_lock(&pinned->lock);
        regx_pending_t *op = regx_list_empty(&conn->line) ? NULL : regx_pending_of(conn->line.next);
        regx_unlock(&pinned->lock);
        if (op == NULL) {
            return;
        }
        end(pinned, op, status);
    }
}

/* ---- pieces ---- */

static void end_piece(regx_pinned_t *pinned, const piece_t *piece)
{
    regx_pending_t *op = piece->op;

    op->under_way--;
    if (!op->failed) {
        regx_count(pinned->config.counters, &pinned->config.counters->bytes_pinned, piece->length);
    }
    if (op->under_way == 0 && !has_more(op)) {
        end(pinned, op, op->failed ? REGX_FAILED : REGX_OK);
    }
}

/* A put without a region of its own: by a plain write, which fails where memory is not there. */
static bool write_plain(const regx_pinned_conn_t *conn, const void *from, uint32_t length)
{
    const off_t at = (off_t)regx_pinned_cell(conn->told);

    return regx_file_is_ours(&conn->cells.file) &&
           pwrite(conn->cells.file.fd, from, length, at) == (ssize_t)length;
}

/* Between the operation's own region and the piece's cell. */
static regx_status_t copy(const regx_pinned_conn_t *conn, const piece_t *piece, uint32_t number)
{
    const move_t move = move_of(piece->op);
    const bool put = piece->op->kind == REGX_PENDING_PUT;
    const regx_pinned_key_t key = key_of(&move.region->key);
    const uint64_t at = (uint64_t)(move.local - (const char *)move.region->base) + piece->at;

    return regx_pinned_copy(regx_pinned_of(conn->super.transport), put, &key, at, piece->length,
                            put ? 0 : REGX_ACCESS_ANY_WRITE, &conn->cells, number);
}

/* The next piece, if there is one and a cell for it. Its number is `told`. */
static bool begin(regx_pinned_t *pinned, regx_pinned_conn_t *conn)
{
    regx_pending_t *op = NULL;

    regx_lock(&pinned->lock);
    for (regx_link_t *link = conn->line.next; link != &conn->line && op == NULL;
         link = link->next) {
        op = has_more(regx_pending_of(link)) ? regx_pending_of(link) : NULL;
    }
    regx_unlock(&pinned->lock);
    if (op == NULL || conn->told - conn->ended == REGX_PINNED_CELLS) {
        return false;
    }
    if (conn->cells.head == NULL && !regx_pinned_cells_make(&conn->cells)) {
        regx_transport_fall_back(&pinned->config, REGX_TRACE_CONNECTION,
                                 "pinned: no file for what is put and got");
        end_all(conn, REGX_DENIED);
        return true;
    }
    piece_t *piece = &conn->pieces[conn->told % REGX_PINNED_CELLS];
    const uint32_t length = next_length(op);
    regx_status_t status = REGX_OK;

    *piece = (piece_t){.op = op,
                       .number = op->begun == 0 ? conn->ops : conn->ops - 1,
                       .length = length,
                       .at = op->moved};
    if (op->kind == REGX_PENDING_PUT && length > 0) {
        const move_t move = move_of(op);

        status = move.region != NULL                                 ? copy(conn, piece, conn->told)
                 : write_plain(conn, move.local + piece->at, length) ? REGX_OK
                                                                     : REGX_FAILED;
    }
    if (status == REGX_AGAIN) {
        return false;
    }
    conn->ops += op->begun++ == 0;
    op->moved += length;
    op->under_way++;
    conn->holds = status == REGX_OK;
    if (!conn->holds) {
        op->failed = true;
        end_piece(pinned, piece);
    }
    return true;
}

/* Asks the owner for the piece that is held. */
static bool tell(regx_pinned_conn_t *conn)
{
    const piece_t *piece = &conn->pieces[conn->told % REGX_PINNED_CELLS];
    const move_t move = move_of(piece->op);
    const bool gets = piece->op->kind == REGX_PENDING_GET;
    const regx_pinned_key_t key = key_of(move.key);
    regx_pinned_ask_t ask = {.kind = gets ? REGX_PINNED_GET : REGX_PINNED_PUT,
                             .last = piece->at + piece->length == move.length,
                             .number = conn->told,
                             .op = piece->number,
                             .length = piece->length,
                             .slot = key.slot,
                             .generation = key.generation,
                             .offset = move.offset + piece->at,
                             .file = conn->cells.name,
                             .thread = conn->cells.thread,
                             .process = getpid()};

    if (ask.last && !gets) {
        const regx_put_t *put = regx_put_of(piece->op);

        ask.tag = put->tag;
        ask.notice_length = put->notice_length;
        memcpy(ask.notice, put->notice, put->notice_length);
    }
    const regx_status_t status =
        conn->shm->transport->ops->send(conn->shm, REGX_TAG_OWN, &ask, sizeof(ask), NULL, NULL, 0);
    if (status == REGX_AGAIN) {
        return false;
    }
    if (status != REGX_OK) {
        end_all(conn, REGX_UNREACHABLE);
        return true;
    }
    conn->holds = false;
    conn->told++;
    return true;
}

/* No answer has come, or there is no room to ask: whether there is anybody to answer. */
static bool look(regx_pinned_t *pinned, regx_pinned_conn_t *conn)
{
    if (++conn->looks % LOOKS != 0) {
        return false;
    }
    const int64_t now = regx_now_ns();
    if (now - conn->looked < LOOK_NS) {
        return false;
    }
    const bool first = conn->looked == 0;
    conn->looked = now;
    if (first || conn->shm->transport->ops->reachable(conn->shm)) {
        return false;
    }
    const regx_transport_events_t *events = &pinned->config.events;
    events->broken(events->context, conn->super.peer, "the process has ended");
    end_all(conn, REGX_UNREACHABLE);
    return true;
}

/* The answer to the oldest piece, if it is there. */
static bool take_answer(regx_pinned_t *pinned, regx_pinned_conn_t *conn)
{
    if (conn->told == conn->ended) {
        return false;
    }
    const uint32_t number = conn->ended;
    const piece_t *piece = &conn->pieces[number % REGX_PINNED_CELLS];
    const uint64_t answer = atomic_load_explicit(
        &conn->cells.head->answers[number % REGX_PINNED_CELLS], memory_order_acquire);

    if (answer >> 32 != (uint32_t)(number + 1)) {
        return look(pinned, conn);
    }
    conn->looked = 0;
    if ((uint32_t)answer != REGX_PINNED_DONE) {
        piece->op->failed = true;
    } else if (piece->op->kind == REGX_PENDING_GET && !piece->op->failed && piece->length > 0) {
        const regx_status_t status = copy(conn, piece, number);

        if (status == REGX_AGAIN) {
            return false;
        }
        if (status != REGX_OK) {
            piece->op->failed = true;
        }
    }
    conn->ended++;
    end_piece(pinned, piece);
    return true;
}

static bool step(regx_pinned_t *pinned, regx_pinned_conn_t *conn)
{
    if (atomic_load_explicit(&conn->refusal, memory_order_relaxed) != REGX_OK) {
        end_all(conn, conn->refusal);
        return true;
    }
    return take_answer(pinned, conn) ||
           (conn->holds ? tell(conn) || look(pinned, conn) : begin(pinned, conn));
}

/* The connection whose turn it is goes to the end of the line. */
static regx_pinned_conn_t *next_turn(regx_pinned_t *pinned)
{
    regx_pinned_conn_t *conn = NULL;

    regx_lock(&pinned->lock);
    if (!regx_list_empty(&pinned->asking)) {
        conn = REGX_CONTAINER_OF(pinned->asking.next, regx_pinned_conn_t, turn);
        regx_list_remove(&conn->turn);
        regx_list_append(&pinned->asking, &conn->turn);
    }
    regx_unlock(&pinned->lock);
    return conn;
}

int regx_pinned_ask(regx_pinned_t *pinned)
{
    const regx_pinned_conn_t *idle = NULL; /* the first since anything was done */
    regx_pinned_conn_t *conn = next_turn(pinned);
    int events = 0;

    pinned->copied = 0;
    while (conn != NULL && conn != idle && pinned->copied < REGX_PINNED_ROUND) {
        if (step(pinned, conn)) {
            idle = NULL;
            events++;
        } else if (idle == NULL) {
            idle = conn;
        }
        conn = next_turn(pinned);
    }
    return events;
}

/* ---- connections ---- */

regx_status_t regx_pinned_connect(regx_transport_t *transport, uint64_t peer, const void *address,
                                  size_t length, regx_conn_t **super)
{
    regx_pinned_t *pinned = regx_pinned_of(transport);
    regx_pinned_conn_t *conn = calloc(1, sizeof(*conn));

    if (conn == NULL) {
        return REGX_NO_MEMORY;
    }
    const regx_status_t status =
        pinned->shm->ops->connect(pinned->shm, peer, address, length, &conn->shm);
    if (status != REGX_OK) {
        free(conn);
        return status;
    }
    conn->super = (regx_conn_t){.transport = transport, .peer = peer, .shares_pool = true};
    regx_list_init(&conn->line);
    regx_list_init(&conn->link);
    regx_list_init(&conn->turn);
    regx_lock(&pinned->lock);
    regx_list_append(&pinned->conns, &conn->link);
    regx_unlock(&pinned->lock);
    *super = &conn->super;
    return REGX_OK;
}

static regx_status_t say(const regx_pinned_conn_t *conn, regx_pinned_kind_t kind,
                         const regx_shm_file_t *file)
{
    const regx_pinned_ask_t ask = {.kind = (uint8_t)kind, .file = *file};

    return conn->shm->transport->ops->send(conn->shm, REGX_TAG_OWN, &ask, sizeof(ask), NULL, NULL,
                                           0);
}

void regx_pinned_disconnect(regx_conn_t *super)
{
    regx_pinned_conn_t *conn = regx_pinned_conn_of(super);
    regx_pinned_t *pinned = regx_pinned_of(super->transport);

    end_all(conn, REGX_FAILED);
    if (conn->told > 0) { /* a peer without room for it keeps the file until it closes */
        say(conn, REGX_PINNED_LEFT, &conn->cells.name);
    }
    regx_pinned_cells_close(&conn->cells);
    regx_lock(&pinned->lock);
    regx_list_remove(&conn->link);
    regx_unlock(&pinned->lock);
    conn->shm->transport->ops->disconnect(conn->shm);
    free(conn);
}

/* The connection to that process. NULL: there is none. Connections are made by other threads, and
 * ended while progress is kept out. */
static regx_pinned_conn_t *find(regx_pinned_t *pinned, uint64_t peer)
{
    regx_pinned_conn_t *found = NULL;

    regx_lock(&pinned->lock);
    for (regx_link_t *link = pinned->conns.next; link != &pinned->conns && found == NULL;
         link = link->next) {
        regx_pinned_conn_t *conn = REGX_CONTAINER_OF(link, regx_pinned_conn_t, link);

        found = conn->super.peer == peer ? conn : NULL;
    }
    regx_unlock(&pinned->lock);
    return found;
}

regx_status_t regx_pinned_deny(regx_pinned_t *pinned, uint64_t peer, const regx_shm_file_t *file)
{
    const regx_pinned_conn_t *conn = find(pinned, peer);

    return conn != NULL ? say(conn, REGX_PINNED_DENIED, file) : REGX_AGAIN;
}

void regx_pinned_denied(regx_pinned_t *pinned, uint64_t peer, const regx_shm_file_t *file)
{
    regx_pinned_conn_t *conn = find(pinned, peer);

    if (conn != NULL && conn->cells.head != NULL && conn->cells.name.inode == file->inode &&
        conn->cells.name.device == file->device) {
        regx_transport_fall_back(&pinned->config, REGX_TRACE_CONNECTION,
                                 "pinned: a peer cannot open this process's file");
        atomic_store(&conn->refusal, REGX_DENIED);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Puts and gets. The initiator begins a connection's operations in their order, piece by piece, and
 * pieces end in that order, too, since the owner takes them so.
 */
#include "transport/pinned/pinned.h"

#include <stdlib.h>
#include <string.h>

#if REGX_HAVE_PINNED

typedef struct regx_pinned_piece piece_t;

#define FILE_SIZE (REGX_PINNED_CELLS * REGX_PINNED_PIECE_MAX)
#define LOOKS 1024u /* for an answer, before the time is looked at */
#define LOOK_NS INT64_C(1000000000)

/* ---- the initiator's operations ---- */

static regx_pinned_key_t key_of(const regx_key_t *packed)
{
    regx_pinned_key_t key;

    memcpy(&key, packed->bytes, sizeof(key));
    return key;
}

/* A put without bytes has a piece, too: its notice. */
static bool has_more(regx_pending_t *op)
{
    return !op->failed && (op->begun == 0 || op->moved < regx_move_of(op).length);
}

static regx_pinned_t *device_of(const regx_pinned_conn_t *conn)
{
    return regx_pinned_of(conn->shm->super.transport);
}

static regx_status_t queue(regx_conn_t *super, regx_pending_t *op, regx_pending_kind_t kind)
{
    regx_pinned_conn_t *conn = regx_pinned_conn_of(super);
    regx_pinned_t *pinned = device_of(conn);

    *op = (regx_pending_t){.kind = kind, .conn = super};
    const regx_move_t move = regx_move_of(op);
    if (!regx_within(move.offset, move.length, key_of(move.key).length)) {
        return REGX_INVALID;
    }
    if (conn->refusal != REGX_OK) {
        return conn->refusal; /* for good */
    }
    regx_lock(&pinned->shm->lock);
    regx_list_append(&conn->line, &op->link);
    regx_list_set(&pinned->asking, &conn->turn, true);
    regx_unlock(&pinned->shm->lock);
    atomic_fetch_add_explicit(&pinned->asked, 1, memory_order_relaxed);
    return REGX_PENDING;
}

regx_status_t regx_pinned_put(regx_conn_t *conn, regx_put_t *put)
{
    return put->target == REGX_TARGET_POOL ? regx_shm_put(conn, put)
                                           : queue(conn, &put->pending, REGX_PENDING_PUT);
}

regx_status_t regx_pinned_get(regx_conn_t *conn, regx_get_t *get)
{
    return get->region == NULL || get->staged ? REGX_DENIED
                                              : queue(conn, &get->pending, REGX_PENDING_GET);
}

/* Of a connection that has no other operation then, the turn is over. */
static void end(regx_pinned_conn_t *conn, regx_pending_t *op, regx_status_t status)
{
    regx_pinned_t *pinned = device_of(conn);

    regx_lock(&pinned->shm->lock);
    regx_list_remove(&op->link);
    if (regx_list_empty(&conn->line)) {
        regx_list_remove(&conn->turn);
    }
    regx_unlock(&pinned->shm->lock);
    atomic_fetch_sub_explicit(&pinned->asked, 1, memory_order_relaxed);
    regx_pending_end(op, status);
}

/* Unless more of it is to be asked for, or answered. */
static void end_if_over(regx_pinned_conn_t *conn, regx_pending_t *op)
{
    regx_status_t status = REGX_OK;

    if (op->under_way != 0 || has_more(op)) {
        return;
    }
    if (op->failed) {
        status = conn->refusal;
        status = status != REGX_OK ? status : REGX_FAILED;
    }
    end(conn, op, status);
}

/* The oldest operation, or the oldest of which a piece is to be begun. */
static regx_pending_t *oldest(regx_pinned_conn_t *conn, bool begins)
{
    regx_shm_t *shm = device_of(conn)->shm;

    regx_lock(&shm->lock);
    regx_link_t *link = conn->line.next;
    while (begins && link != &conn->line && !has_more(regx_pending_of(link))) {
        link = link->next;
    }
    regx_pending_t *op = link != &conn->line ? regx_pending_of(link) : NULL;
    regx_unlock(&shm->lock);
    return op;
}

/* Ends all there are, for good. What the owner still does or answers means nothing any more. */
static void end_all(regx_pinned_conn_t *conn, regx_status_t status)
{
    regx_pending_t *op;

    atomic_store(&conn->refusal, status);
    conn->ended = conn->told;
    while ((op = oldest(conn, false)) != NULL) {
        end(conn, op, status);
    }
}

/* ---- the initiator's pieces ---- */

/* Between the operation's own memory and the piece's cell. What is put without a region goes by a plain
 * write, which fails where memory is not there. */
static regx_status_t copy(const regx_pinned_conn_t *conn, const piece_t *piece, uint32_t number)
{
    const regx_move_t move = regx_move_of(piece->op);
    const bool put = piece->op->kind == REGX_PENDING_PUT;

    if (move.region == NULL) {
        const off_t cell = (off_t)(number % REGX_PINNED_CELLS) * REGX_PINNED_PIECE_MAX;

        return regx_file_is_ours(&conn->cells) &&
                       pwrite(conn->cells.fd, move.local + piece->at, piece->length, cell) ==
                           (ssize_t)piece->length
                   ? REGX_OK
                   : REGX_FAILED;
    }
    const regx_pinned_key_t key = key_of(&move.region->key);
    const uint64_t at = (uint64_t)(move.local - (char *)move.region->base) + piece->at;
    return regx_pinned_copy(device_of(conn), put, &key, at, piece->length,
                            put ? 0 : REGX_ACCESS_ANY_WRITE, &conn->cells, number);
}

/* As transport.h's send. The piece's number is `told`. */
static regx_status_t tell(regx_pinned_conn_t *conn, const piece_t *piece)
{
    const regx_move_t move = regx_move_of(piece->op);
    regx_pinned_ask_t ask = {.get = piece->op->kind == REGX_PENDING_GET,
                             .first = piece->at == 0,
                             .last = piece->at + piece->length == move.length,
                             .number = conn->told,
                             .length = piece->length,
                             .thread = (int32_t)regx_raw(SYS_gettid, 0, 0, 0, 0, 0),
                             .offset = move.offset + piece->at,
                             .key = key_of(move.key),
                             .file = conn->name};

    if (ask.last && !ask.get) {
        const regx_put_t *put = regx_put_of(piece->op);

        ask.tag = put->tag;
        ask.notice_length = put->notice_length;
        memcpy(ask.notice, put->notice, put->notice_length);
    }
    return regx_shm_send(&conn->shm->super, REGX_TAG_OWN, &ask, sizeof(ask), NULL, NULL, 0);
}

/* Asks the owner for the next piece, if there is one and a cell for it. */
static bool ask_next(regx_pinned_conn_t *conn)
{
    regx_shm_conn_t *shm = conn->shm;
    regx_pending_t *op = oldest(conn, true);
    regx_status_t status = REGX_OK;

    if (op == NULL || conn->told - conn->ended == REGX_PINNED_CELLS) {
        return false;
    }
    /* A hint: if there is no room to ask, a piece would be copied in vain. */
    regx_lock(&shm->lock);
    const bool room =
        shm->state != REGX_SHM_ATTACHED ||
        regx_mailbox_has_room(&shm->out, regx_mailbox_lines_of(sizeof(regx_pinned_ask_t)));
    regx_unlock(&shm->lock);
    if (!room) {
        return false;
    }
    if (conn->cells.fd < 0) {
        void *base;
        const int fd = regx_shm_file_make(FILE_SIZE, true, &conn->name, &base);

        if (fd < 0) {
            regx_transport_fall_back(&device_of(conn)->shm->config, REGX_TRACE_CONNECTION,
                                     "pinned: no file for what is put and got");
            end_all(conn, REGX_DENIED);
            return true;
        }
        munmap(base, FILE_SIZE);
        /* Of one that does not block io_uring reads at once, rather than by a thread of the kernel. */
        (void)fcntl(fd, F_SETFL, O_NONBLOCK);
        conn->cells = regx_file_of(fd);
    }
    /* Several, for both ends to work at once, but none so short that asking takes longer. */
    const size_t length = regx_move_of(op).length;
    const size_t part = regx_align_up(length / REGX_PINNED_CELLS, 4096);
    const size_t most = regx_min(regx_max(part, REGX_PINNED_PIECE_MIN), REGX_PINNED_PIECE_MAX);
    const piece_t piece = {op, (uint32_t)regx_min(most, length - op->moved), op->moved};
    if (op->kind == REGX_PENDING_PUT && piece.length > 0) {
        status = copy(conn, &piece, conn->told);
    }
    if (status == REGX_OK) {
        status = tell(conn, &piece);
    }
    switch (status) {
    case REGX_OK:
        conn->pieces[conn->told++ % REGX_PINNED_CELLS] = piece;
        op->begun = 1;
        op->moved += piece.length;
        op->under_way++;
        return true;
    case REGX_AGAIN:
        return false;
    case REGX_UNREACHABLE:
        end_all(conn, REGX_UNREACHABLE);
        return true;
    default:
        op->failed = true;
        end_if_over(conn, op);
        return true;
    }
}

/* The answer to the oldest piece, if it is there. */
static bool take_answer(regx_pinned_conn_t *conn)
{
    const regx_transport_config_t *config = &device_of(conn)->shm->config;
    const uint32_t number = conn->ended, cell = number % REGX_PINNED_CELLS;
    const piece_t piece = conn->pieces[cell];

    if (conn->told == number) {
        return false;
    }
    const uint64_t answer =
        atomic_load_explicit(&conn->shm->out.memory->answers[cell], memory_order_acquire);
    if (answer >> 32 != (uint32_t)(number + 1)) {
        return false;
    }
    if ((uint32_t)answer == REGX_PINNED_DENIED && conn->refusal == REGX_OK) {
        regx_transport_fall_back(config, REGX_TRACE_CONNECTION,
                                 "pinned: a peer cannot open this process's file");
        atomic_store(&conn->refusal, REGX_DENIED);
    }
    if ((uint32_t)answer != REGX_PINNED_DONE ||
        (piece.op->kind == REGX_PENDING_GET && !piece.op->failed && piece.length > 0 &&
         copy(conn, &piece, number) != REGX_OK)) {
        piece.op->failed = true;
    }
    if (!piece.op->failed) {
        regx_count(config->counters, &config->counters->bytes_pinned, piece.length);
    }
    conn->ended++;
    piece.op->under_way--;
    end_if_over(conn, piece.op);
    return true;
}

/* What is refused ends once all that was asked for is answered: until then the owner may write. */
static bool step(regx_pinned_conn_t *conn)
{
    const regx_transport_events_t *events = &device_of(conn)->events;

    if (take_answer(conn)) {
        return true;
    }
    if (conn->refusal != REGX_OK && conn->told == conn->ended) {
        end_all(conn, conn->refusal);
        return false;
    }
    if (conn->refusal == REGX_OK && ask_next(conn)) {
        return true;
    }
    /* No answer has come, or there is no room to ask: whether there is anybody to answer. */
    if (++conn->looks % LOOKS != 0 || regx_now_ns() - conn->looked < LOOK_NS) {
        return false;
    }
    conn->looked = regx_now_ns();
    if (regx_shm_reachable(&conn->shm->super)) {
        return false;
    }
    events->broken(events->context, conn->shm->super.peer, true, "the process has ended");
    end_all(conn, REGX_UNREACHABLE);
    return true;
}

/* That of the connection whose turn it is. Then it goes to the end of the line. */
int regx_pinned_ask(regx_pinned_t *pinned)
{
    regx_pinned_conn_t *conn = NULL;
    unsigned events = 0;

    regx_lock(&pinned->shm->lock);
    if (!regx_list_empty(&pinned->asking)) {
        conn = REGX_CONTAINER_OF(pinned->asking.next, regx_pinned_conn_t, turn);
        regx_list_shift(&pinned->asking, &conn->turn);
    }
    regx_unlock(&pinned->shm->lock);
    while (conn != NULL && events < REGX_PINNED_CELLS && step(conn)) {
        events++;
    }
    return (int)events;
}

/* ---- connections ---- */

regx_status_t regx_pinned_connect(regx_transport_t *transport, uint64_t peer, const void *address,
                                  size_t length, regx_conn_t **super)
{
    regx_pinned_conn_t *conn = calloc(1, sizeof(*conn));

    if (conn == NULL) {
        return REGX_NO_MEMORY;
    }
    const regx_status_t status = regx_shm_connect(transport, peer, address, length, super);
    if (status != REGX_OK) {
        free(conn);
        return status;
    }
    (*super)->single_copy = false;
    conn->shm = regx_shm_conn_of(*super);
    conn->shm->pinned = conn;
    conn->cells.fd = -1;
    regx_list_init(&conn->line);
    return REGX_OK;
}

void regx_pinned_disconnect(regx_conn_t *super)
{
    regx_pinned_conn_t *conn = regx_pinned_conn_of(super);

    end_all(conn, REGX_FAILED);
    regx_file_close(&conn->cells);
    free(conn);
    regx_shm_disconnect(super);
}

/* ---- the owner ---- */

/* The file by which a neighbour asks. false: it cannot be opened, or is none. */
static bool open_cells(regx_shm_inbound_t *from, const regx_pinned_ask_t *ask)
{
    const int32_t owners[] = {from->peer.vm.pid, ask->thread};

    for (unsigned i = 0; i < 2 && from->cells.fd < 0 && regx_shm_file_fits(FILE_SIZE); i++) {
        void *base;

        if (regx_shm_file_map_other(owners[i], &ask->file, FILE_SIZE, true, &base, &from->cells) ==
            REGX_OK) {
            munmap(base, FILE_SIZE);
        }
    }
    return from->cells.fd >= 0;
}

/* Nothing that it says is trusted: what no initiator sends is counted as malformed and dropped, and
 * each piece is checked by what is registered now. After the answer the initiator may use its cell,
 * or get from it. */
void regx_pinned_take(regx_pinned_t *pinned, uint64_t sender, const void *data, size_t length)
{
    const regx_transport_events_t *events = &pinned->events;
    regx_counters_t *counters = pinned->shm->config.counters;
    regx_shm_inbound_t *from = pinned->shm->delivering;
    unsigned how = REGX_PINNED_REFUSED;
    regx_pinned_ask_t ask = {0};

    memcpy(&ask, data, regx_min(length, sizeof(ask)));
    if (length != sizeof(ask) || ask.length > REGX_PINNED_PIECE_MAX ||
        ask.notice_length > REGX_NOTICE_MAX) {
        regx_count_malformed(counters);
        return;
    }
    from->failed = from->failed && ask.first == 0;
    if (!from->failed && !open_cells(from, &ask)) {
        how = REGX_PINNED_DENIED;
    } else if (!from->failed) {
        const regx_status_t status =
            regx_pinned_copy(pinned, ask.get != 0, &ask.key, ask.offset, ask.length,
                             ask.get != 0 ? REGX_ACCESS_REMOTE_READ : REGX_ACCESS_REMOTE_WRITE,
                             &from->cells, ask.number);

        how = status == REGX_OK ? REGX_PINNED_DONE : REGX_PINNED_REFUSED;
        regx_count(counters, &counters->pinned_refused, status == REGX_DENIED);
    }
    from->failed = how != REGX_PINNED_DONE;
    atomic_store_explicit(&from->memory->answers[ask.number % REGX_PINNED_CELLS],
                          (uint64_t)(ask.number + 1) << 32 | how, memory_order_release);
    if (!from->failed && ask.get == 0 && ask.last != 0) {
        pinned->delivering = true;
        events->deliver(events->context, sender, ask.tag, ask.notice, ask.notice_length);
        pinned->delivering = false;
    }
}

#endif

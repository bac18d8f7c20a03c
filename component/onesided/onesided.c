/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The layer's life and its messages; who asks, and who is asked; peers, windows, and who gets what arrives.
 */
#include "onesided/onesided.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

regx_onesided_t *regx_onesided_create(const regx_onesided_config_t *config)
{
    regx_onesided_t *onesided = calloc(1, sizeof(*onesided));

    if (onesided == NULL) {
        return NULL;
    }
    onesided->config = *config;
    regx_lock_init(&onesided->lock, config->threads);
    regx_handle_table_init(&onesided->windows);
    regx_handle_table_init(&onesided->requests);
    regx_list_init(&onesided->blocked);
    regx_list_init(&onesided->ended);
    return onesided;
}

void regx_onesided_destroy(regx_onesided_t *onesided)
{
    if (onesided == NULL) {
        return;
    }
    assert(onesided->pending == 0 && regx_list_empty(&onesided->blocked));
    regx_handle_table_fini(&onesided->requests);
    regx_handle_table_fini(&onesided->windows);
    regx_lock_fini(&onesided->lock);
    free(onesided);
}

/* ---- messages ---- */

#define NAME_VERSION 4

/* false: malformed. Checks the form only: of handles and ranges the addressee knows. */
static bool unpack(const void *bytes, size_t length, regx_onesided_message_t *message)
{
    if (length < REGX_ONESIDED_HEADER) {
        return false;
    }
    memcpy(message, bytes, REGX_ONESIDED_HEADER);
    message->data = (const uint8_t *)bytes + REGX_ONESIDED_HEADER;
    message->data_length = length - REGX_ONESIDED_HEADER;
    if (message->type == REGX_ONESIDED_ATOMIC && message->size == 4) {
        message->value = (uint32_t)message->value;
        message->compare = (uint32_t)message->compare;
    }
    return message->version == REGX_ONESIDED_VERSION && message->type >= REGX_ONESIDED_PUT &&
           message->type < REGX_ONESIDED_TYPES &&
           (message->data_length == 0 || message->type == REGX_ONESIDED_PUT ||
            message->type == REGX_ONESIDED_ANSWER) &&
           (message->type != REGX_ONESIDED_ATOMIC ||
            ((message->size == 4 || message->size == 8) && message->address % message->size == 0 &&
             message->detail < REGX_ONESIDED_OPS));
}

/* The memory that a peer asks for. NULL: it is not all inside a window that is offered now. */
static char *memory_of(const regx_onesided_t *onesided, regx_handle_t handle, uint64_t address,
                       uint64_t length)
{
    const regx_onesided_window_t *window = regx_handle_table_find(&onesided->windows, handle);

    if (window == NULL ||
        !regx_onesided_holds((uintptr_t)window->base, window->length, address, length)) {
        return NULL;
    }
    return window->base + (address - (uintptr_t)window->base);
}

/* Bytes of data that a frame to this peer takes. */
static size_t piece_max(const regx_onesided_peer_t *peer)
{
    return peer->conn->transport->max_frame - REGX_ONESIDED_HEADER;
}

/* Sends one frame: the message's header, and `length` bytes of `data`. Answers as the transport's
 * send. */
static regx_status_t send_frame(const regx_onesided_peer_t *peer,
                                const regx_onesided_message_t *message, const void *data,
                                size_t length)
{
    return peer->conn->transport->ops->send(peer->conn, REGX_TAG_ONESIDED, message,
                                            REGX_ONESIDED_HEADER, NULL, (void *)(uintptr_t)data,
                                            length);
}

/* ---- who asks; with the lock held ----
 * A request is sent in one frame, but for a long put, which takes several. Until then it is in `waiting`, from
 * then on in `running`, until it is answered. */

/* Sends the next frame of the request. */
static regx_status_t send_request(const regx_onesided_peer_t *peer,
                                  regx_onesided_request_t *request)
{
    regx_onesided_message_t message = {.version = REGX_ONESIDED_VERSION,
                                       .type = request->type,
                                       .request = request->handle,
                                       .window = request->window,
                                       .address = request->address + request->moved};
    size_t piece = 0;

    switch (request->type) {
    case REGX_ONESIDED_PUT:
        piece = regx_min(request->length - request->moved, piece_max(peer));
        message.detail = request->moved + piece == request->length;
        break;
    case REGX_ONESIDED_GET:
        message.value = request->length;
        break;
    default:
        message.detail = (uint8_t)request->op;
        message.size = (uint8_t)request->size;
        message.value = request->operand;
        message.compare = request->compare;
    }
    const regx_status_t status = send_frame(
        peer, &message, piece > 0 ? (const char *)request->local + request->moved : NULL, piece);
    if (status == REGX_OK && request->type == REGX_ONESIDED_PUT) {
        request->moved += piece;
    }
    return status;
}

static bool is_sent(const regx_onesided_request_t *request)
{
    return request->type != REGX_ONESIDED_PUT || request->moved == request->length;
}

/* The first that may be sent now. NULL: none waits, or the peer has to answer first. */
static regx_onesided_request_t *next_to_send(const regx_onesided_peer_t *peer)
{
    if (regx_list_empty(&peer->waiting)) {
        return NULL;
    }
    regx_onesided_request_t *request =
        REGX_CONTAINER_OF(peer->waiting.next, regx_onesided_request_t, link);
    return request->seen || peer->asked < REGX_ONESIDED_ASKED ? request : NULL;
}

static void end_locked(regx_onesided_t *onesided, regx_onesided_request_t *request,
                       regx_status_t status)
{
    regx_list_shift(&onesided->ended, &request->link);
    atomic_fetch_add_explicit(onesided->config.ended, 1u, memory_order_relaxed);
    regx_handle_table_remove(&onesided->requests, request->handle);
    request->peer->asked -= request->seen;
    request->status = status;
}

/* The request may have ended by it. */
static void take_answer(regx_onesided_t *onesided, const regx_onesided_peer_t *peer,
                        const regx_onesided_message_t *message)
{
    regx_onesided_request_t *request =
        regx_handle_table_find(&onesided->requests, message->request);

    if (request == NULL || request->peer != peer || !request->seen || !is_sent(request)) {
        regx_count_malformed(onesided->config.counters);
    } else if (message->detail != 0) {
        end_locked(onesided, request, REGX_INVALID);
    } else if (request->type != REGX_ONESIDED_GET) {
        request->result = message->value;
        end_locked(onesided, request, REGX_OK);
    } else if (message->value != request->moved ||
               message->data_length > request->length - request->moved ||
               (message->data_length == 0 && request->length > 0)) { /* not the next bytes */
        regx_count_malformed(onesided->config.counters);
    } else {
        if (message->data_length > 0) {
            memcpy((char *)request->local + request->moved, message->data, message->data_length);
            request->moved += message->data_length;
        }
        if (request->moved == request->length) {
            end_locked(onesided, request, REGX_OK);
        }
    }
}

/* ---- who is asked; with the lock held ----
 * A request is done when it arrives. Its answer is kept in a ring until all of it is sent, as a rule at once;
 * there is room for as many as a peer may have open. */

typedef struct answer {
    bool refused;
    regx_handle_t request;
    uint64_t value; /* what was there before */
    /* Of a get: */
    regx_handle_t window;
    uint64_t address;
    uint64_t length; /* else 0 */
    uint64_t moved;
} answer_t;

struct regx_onesided_answers {
    unsigned first, count;
    answer_t ring[REGX_ONESIDED_ASKED];
};

/* Sends the next frame. REGX_OK: it has gone; *last: and with it the answer is complete. A get
 * whose window was withdrawn meanwhile is refused. */
static regx_status_t send_answer(const regx_onesided_t *onesided, const regx_onesided_peer_t *peer,
                                 answer_t *answer, bool *last)
{
    regx_onesided_message_t message = {
        .version = REGX_ONESIDED_VERSION, .type = REGX_ONESIDED_ANSWER, .request = answer->request};
    const char *data = NULL;
    size_t piece = 0;

    if (answer->length == 0) {
        message.value = answer->value;
    } else if (!answer->refused) {
        message.value = answer->moved;
        piece = regx_min(answer->length - answer->moved, piece_max(peer));
        data = memory_of(onesided, answer->window, answer->address + answer->moved, piece);
        if (data == NULL) {
            answer->refused = true;
            piece = 0;
        }
    }
    message.detail = answer->refused;
    const regx_status_t status = send_frame(peer, &message, data, piece);
    if (status == REGX_OK) {
        answer->moved += piece;
    }
    *last = status == REGX_OK && (answer->refused || answer->moved == answer->length);
    return status;
}

/* Does the operation on a number. */
static uint64_t changed(const regx_onesided_message_t *message, uint64_t before)
{
    switch ((regx_onesided_op_t)message->detail) {
    case REGX_ONESIDED_ADD:
        return before + message->value;
    case REGX_ONESIDED_AND:
        return before & message->value;
    case REGX_ONESIDED_OR:
        return before | message->value;
    case REGX_ONESIDED_XOR:
        return before ^ message->value;
    case REGX_ONESIDED_SWAP:
        return message->value;
    default:
        return before == message->compare ? message->value : before;
    }
}

/* Excludes the program's own atomic instructions. Returns what was there before. */
static uint64_t change(char *at, const regx_onesided_message_t *message)
{
    if (message->size == sizeof(uint64_t)) {
        uint64_t *number = (uint64_t *)(void *)at, before = *(volatile uint64_t *)number;

        while (!__atomic_compare_exchange_n(number, &before, changed(message, before), false,
                                            __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        }
        return before;
    }
    uint32_t *number = (uint32_t *)(void *)at, before = *(volatile uint32_t *)number;

    while (!__atomic_compare_exchange_n(number, &before, (uint32_t)changed(message, before), false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return before;
}

/* Does what the peer asks, and keeps the answer, to be sent. false: there is no memory to keep any. */
static bool serve(const regx_onesided_t *onesided, regx_onesided_peer_t *peer,
                  const regx_onesided_message_t *message)
{
    uint64_t extent = message->size; /* bytes that the request touches */
    answer_t answer = {.request = message->request};

    if (message->type == REGX_ONESIDED_PUT) {
        extent = message->data_length;
    } else if (message->type == REGX_ONESIDED_GET) {
        extent = message->value;
    }
    char *at = memory_of(onesided, message->window, message->address, extent);
    if (peer->answers == NULL) {
        peer->answers = calloc(1, sizeof(*peer->answers));
    }
    struct regx_onesided_answers *answers = peer->answers;
    if (answers == NULL) {
        return false;
    }
    if (at == NULL) {
        answer.refused = true;
        regx_count_malformed(onesided->config.counters);
    }
    if (message->type == REGX_ONESIDED_GET) {
        answer.window = message->window;
        answer.address = message->address;
        answer.length = message->value;
    } else if (at != NULL && message->type == REGX_ONESIDED_ATOMIC) {
        answer.value = change(at, message);
    } else if (at != NULL && message->data_length > 0) {
        memcpy(at, message->data, message->data_length);
    }
    if (message->type == REGX_ONESIDED_PUT && message->detail == 0) {
        return true; /* the last piece is answered */
    }
    if (answers->count == REGX_ONESIDED_ASKED) { /* more than it may ask */
        regx_count_malformed(onesided->config.counters);
    } else {
        answers->ring[(answers->first + answers->count++) % REGX_ONESIDED_ASKED] = answer;
    }
    return true;
}

/* ---- peers ---- */

static regx_onesided_peer_t **bucket(regx_onesided_t *onesided, uint64_t id)
{
    return &onesided->buckets[id & (REGX_ONESIDED_BUCKETS - 1)];
}

void regx_onesided_add(regx_onesided_t *onesided, regx_onesided_peer_t *peer, regx_conn_t *conn)
{
    *peer = (regx_onesided_peer_t){.conn = conn};
    regx_list_init(&peer->waiting);
    regx_list_init(&peer->running);
    regx_lock(&onesided->lock);
    peer->next = *bucket(onesided, conn->peer);
    *bucket(onesided, conn->peer) = peer;
    regx_unlock(&onesided->lock);
}

/* Whether progress has something to do for the peer. */
static void set_blocked_locked(regx_onesided_t *onesided, regx_onesided_peer_t *peer, bool blocked)
{
    if (blocked != regx_list_has(&peer->blocked)) {
        regx_list_set(&onesided->blocked, &peer->blocked, blocked);
        atomic_fetch_add(onesided->config.waiting, blocked ? 1u : -1u);
    }
}

/* Sends answers, then requests, as far as there is room, REGX_ONESIDED_BURST frames of each at most. true: something
 * went. */
static bool advance_locked(regx_onesided_t *onesided, regx_onesided_peer_t *peer)
{
    struct regx_onesided_answers *answers = peer->answers; /* NULL: it never asked */
    regx_onesided_request_t *request;
    unsigned answered = 0, asked = 0;
    bool last;

    while (answered < REGX_ONESIDED_BURST && answers != NULL && answers->count > 0 &&
           send_answer(onesided, peer, &answers->ring[answers->first], &last) == REGX_OK) {
        answered++;
        if (last) {
            answers->first = (answers->first + 1) % REGX_ONESIDED_ASKED;
            answers->count--;
        }
    }
    while (asked < REGX_ONESIDED_BURST && (request = next_to_send(peer)) != NULL &&
           send_request(peer, request) == REGX_OK) {
        asked++;
        peer->asked += !request->seen;
        request->seen = true;
        if (is_sent(request)) {
            regx_list_shift(&peer->running, &request->link);
        }
    }
    set_blocked_locked(onesided, peer,
                       (answers != NULL && answers->count > 0) || next_to_send(peer) != NULL);
    return answered + asked > 0;
}

/* ---- requests that have ended ---- */

void regx_onesided_complete(regx_onesided_t *onesided, const regx_onesided_peer_t *peer)
{
    regx_onesided_request_t *found;

    do { /* the first that has ended, or the first of the peer's */
        found = NULL;
        regx_lock(&onesided->lock);
        for (regx_link_t *link = onesided->ended.next; link != &onesided->ended && found == NULL;
             link = link->next) {
            regx_onesided_request_t *request =
                REGX_CONTAINER_OF(link, regx_onesided_request_t, link);

            found = peer == NULL || request->peer == peer ? request : NULL;
        }
        if (found != NULL) {
            regx_list_remove(&found->link);
            onesided->pending--;
            atomic_fetch_sub_explicit(onesided->config.ended, 1u, memory_order_relaxed);
        }
        regx_unlock(&onesided->lock);
        if (found != NULL) {
            found->done(found, found->status);
        }
    } while (found != NULL);
}

void regx_onesided_forget(regx_onesided_t *onesided, regx_onesided_peer_t *peer)
{
    regx_onesided_peer_t **at = bucket(onesided, peer->conn->peer);

    regx_lock(&onesided->lock);
    while (*at != peer) {
        at = &(*at)->next;
    }
    *at = peer->next;
    regx_list_move(&peer->running, &peer->waiting);
    while (!regx_list_empty(&peer->running)) { /* all its open requests end */
        end_locked(onesided, REGX_CONTAINER_OF(peer->running.next, regx_onesided_request_t, link),
                   REGX_UNREACHABLE);
    }
    free(peer->answers);
    peer->answers = NULL;
    set_blocked_locked(onesided, peer, false);
    regx_unlock(&onesided->lock);
    regx_onesided_complete(onesided, peer);
}

/* ---- windows ---- */

bool regx_onesided_offer(regx_onesided_t *onesided, regx_onesided_window_t *window, void *base,
                         size_t length, bool by_target, uint8_t name[REGX_ONESIDED_NAME_SIZE])
{
    *window = (regx_onesided_window_t){.base = base, .length = length};
    regx_lock(&onesided->lock);
    const bool offered = regx_handle_table_add(&onesided->windows, window, &window->handle);
    regx_unlock(&onesided->lock);
    const regx_onesided_name_t named = {.version = NAME_VERSION,
                                        .kind = REGX_ONESIDED_NAME,
                                        .handle = window->handle,
                                        .by_target = by_target,
                                        .base = (uintptr_t)base,
                                        .length = length};
    memcpy(name, &named, sizeof(named));
    return offered;
}

void regx_onesided_withdraw(regx_onesided_t *onesided, const regx_onesided_window_t *window)
{
    regx_lock(&onesided->lock);
    regx_handle_table_remove(&onesided->windows, window->handle);
    regx_unlock(&onesided->lock);
}

/* ---- operations ---- */

/* The kernel may refuse some memory, such as a device's, which the target's processor reaches. */
bool regx_onesided_copy(regx_onesided_t *onesided, const regx_onesided_peer_t *peer,
                        regx_onesided_type_t type, void *local, uint64_t address, size_t length)
{
    const regx_transport_ops_t *ops = peer->conn->transport->ops;
    const regx_copy_direction_t direction =
        type == REGX_ONESIDED_PUT ? REGX_COPY_TO_PEER : REGX_COPY_FROM_PEER;

    if (ops->node.copy == NULL ||
        ops->node.copy(peer->conn, direction, local, address, length) != REGX_OK) {
        return false;
    }
    regx_count(onesided->config.counters, &onesided->config.counters->onesided, 1);
    return true;
}

regx_status_t regx_onesided_ask(regx_onesided_t *onesided, regx_onesided_peer_t *peer,
                                regx_onesided_request_t *request)
{
    regx_status_t status = REGX_PENDING;

    request->peer = peer;
    request->moved = 0;
    request->seen = false;
    regx_lock(&onesided->lock);
    if (onesided->pending >= REGX_ONESIDED_PENDING && request->type != REGX_ONESIDED_ATOMIC) {
        status = REGX_AGAIN;
    } else if (!regx_handle_table_add(&onesided->requests, request, &request->handle)) {
        status = REGX_NO_MEMORY;
    } else {
        onesided->pending++;
        regx_list_append(&peer->waiting, &request->link);
        advance_locked(onesided, peer);
    }
    regx_unlock(&onesided->lock);
    if (status == REGX_PENDING) {
        regx_count(onesided->config.counters, &onesided->config.counters->onesided, 1);
        regx_count(onesided->config.counters, &onesided->config.counters->onesided_messages, 1);
    }
    return status;
}

void regx_onesided_deliver(regx_onesided_t *onesided, uint64_t sender, const void *data,
                           size_t length)
{
    regx_onesided_message_t message;
    bool answerable = true;

    regx_lock(&onesided->lock);
    regx_onesided_peer_t *peer = *bucket(onesided, sender);
    while (peer != NULL && peer->conn->peer != sender) {
        peer = peer->next;
    }
    if (peer == NULL || !unpack(data, length, &message)) {
        regx_count_malformed(onesided->config.counters);
    } else if (message.type == REGX_ONESIDED_ANSWER) {
        take_answer(onesided, peer, &message);
        advance_locked(onesided, peer);
    } else {
        answerable = serve(onesided, peer, &message);
        advance_locked(onesided, peer);
    }
    regx_unlock(&onesided->lock);
    if (!answerable) {
        onesided->config.unanswered(onesided->config.context, sender);
    }
}

int regx_onesided_progress(regx_onesided_t *onesided)
{
    regx_link_t round = {&round, &round};
    int moved = 0;

    regx_lock(&onesided->lock);
    regx_list_move(&round, &onesided->blocked);
    while (!regx_list_empty(&round)) {
        regx_onesided_peer_t *peer = REGX_CONTAINER_OF(round.next, regx_onesided_peer_t, blocked);

        regx_list_shift(&onesided->blocked, &peer->blocked);
        moved += advance_locked(onesided, peer);
    }
    regx_unlock(&onesided->lock);
    return moved;
}

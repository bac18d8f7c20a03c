/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The layer's life, its messages and peers, and who gets what arrives.
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

#define NAME_VERSION 3
#define NAME_KIND 254

bool regx_onesided_name_is(const uint8_t bytes[REGX_ONESIDED_NAME_SIZE])
{
    return bytes[0] == NAME_VERSION && bytes[1] == NAME_KIND;
}

static bool is_operation(const regx_onesided_message_t *message)
{
    return (message->size == 4 || message->size == 8) && message->address % message->size == 0 &&
           message->detail < REGX_ONESIDED_OPS;
}

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
           (message->type != REGX_ONESIDED_ATOMIC || is_operation(message));
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
    regx_list_init(&peer->blocked);
    regx_lock(&onesided->lock);
    peer->next = *bucket(onesided, conn->peer);
    *bucket(onesided, conn->peer) = peer;
    regx_unlock(&onesided->lock);
}

static regx_onesided_peer_t *find_locked(regx_onesided_t *onesided, uint64_t id)
{
    regx_onesided_peer_t *peer = *bucket(onesided, id);

    while (peer != NULL && peer->conn->peer != id) {
        peer = peer->next;
    }
    return peer;
}

/* Whether progress has something to do for the peer. */
static void set_blocked_locked(regx_onesided_t *onesided, regx_onesided_peer_t *peer, bool blocked)
{
    if (blocked != regx_list_has(&peer->blocked)) {
        regx_list_set(&onesided->blocked, &peer->blocked, blocked);
        atomic_fetch_add(onesided->config.waiting, blocked ? 1u : -1u);
    }
}

static bool advance_locked(regx_onesided_t *onesided, regx_onesided_peer_t *peer)
{
    const bool answered = regx_onesided_answers_advance(onesided, peer);
    const bool asked = regx_onesided_requests_advance(peer);

    set_blocked_locked(onesided, peer,
                       regx_onesided_answers_stalled(peer) || regx_onesided_requests_stalled(peer));
    return answered || asked;
}

/* ---- requests that have ended ---- */

/* Takes the first that has ended, or the first of the peer's. NULL: none. */
static regx_onesided_request_t *take_ended(regx_onesided_t *onesided,
                                           const regx_onesided_peer_t *peer)
{
    regx_onesided_request_t *found = NULL;

    regx_lock(&onesided->lock);
    for (regx_link_t *link = onesided->ended.next; link != &onesided->ended && found == NULL;
         link = link->next) {
        regx_onesided_request_t *request = REGX_CONTAINER_OF(link, regx_onesided_request_t, link);

        found = peer == NULL || request->peer == peer ? request : NULL;
    }
    if (found != NULL) {
        regx_list_remove(&found->link);
        onesided->pending--;
        atomic_fetch_sub_explicit(onesided->config.ended, 1u, memory_order_relaxed);
    }
    regx_unlock(&onesided->lock);
    return found;
}

void regx_onesided_complete(regx_onesided_t *onesided, const regx_onesided_peer_t *peer)
{
    regx_onesided_request_t *request;

    while ((request = take_ended(onesided, peer)) != NULL) {
        request->done(request, request->status);
    }
}

void regx_onesided_forget(regx_onesided_t *onesided, regx_onesided_peer_t *peer)
{
    regx_onesided_peer_t **at = bucket(onesided, peer->conn->peer);

    regx_lock(&onesided->lock);
    while (*at != peer) {
        at = &(*at)->next;
    }
    *at = peer->next;
    regx_onesided_requests_end(onesided, peer);
    free(peer->answers);
    peer->answers = NULL;
    set_blocked_locked(onesided, peer, false);
    regx_unlock(&onesided->lock);
    regx_onesided_complete(onesided, peer);
}

/* ---- windows ---- */

bool regx_onesided_offer(regx_onesided_t *onesided, regx_onesided_window_t *window, void *base,
                         size_t length, uint8_t name[REGX_ONESIDED_NAME_SIZE])
{
    *window = (regx_onesided_window_t){.base = base, .length = length};
    regx_lock(&onesided->lock);
    const bool offered = regx_handle_table_add(&onesided->windows, window, &window->handle);
    regx_unlock(&onesided->lock);
    const regx_onesided_name_t named = {.version = NAME_VERSION,
                                        .kind = NAME_KIND,
                                        .handle = window->handle,
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
    regx_list_init(&request->link);
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
    regx_onesided_peer_t *peer = find_locked(onesided, sender);
    if (peer == NULL || !unpack(data, length, &message)) {
        regx_count_malformed(onesided->config.counters);
    } else if (message.type == REGX_ONESIDED_ANSWER) {
        regx_onesided_answered(onesided, peer, &message);
        advance_locked(onesided, peer);
    } else {
        answerable = regx_onesided_serve(onesided, peer, &message);
        advance_locked(onesided, peer);
    }
    regx_unlock(&onesided->lock);
    if (!answerable) {
        onesided->config.unanswered(onesided->config.context, sender);
    }
}

int regx_onesided_progress(regx_onesided_t *onesided)
{
    regx_link_t round;
    int moved = 0;

    regx_list_init(&round);
    regx_lock(&onesided->lock);
    regx_list_move(&round, &onesided->blocked);
    while (!regx_list_empty(&round)) {
        regx_onesided_peer_t *peer = REGX_CONTAINER_OF(round.next, regx_onesided_peer_t, blocked);

        regx_list_remove(&peer->blocked);
        regx_list_append(&onesided->blocked, &peer->blocked);
        moved += advance_locked(onesided, peer);
    }
    regx_unlock(&onesided->lock);
    return moved;
}

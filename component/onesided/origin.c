/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Who asks. A request is sent in one frame, but for a long put, which takes several. Until then it
 * is in `waiting`, from then on in `running`, until it is answered.
 */
#include "onesided/onesided.h"

#include <string.h>

/* Sends the next frame of the request. */
static regx_status_t send_next(const regx_onesided_peer_t *peer, regx_onesided_request_t *request)
{
    regx_onesided_message_t message = {.version = REGX_ONESIDED_VERSION,
                                       .type = request->type,
                                       .request = request->handle,
                                       .window = request->window,
                                       .address = request->address + request->moved};
    size_t piece = 0;

    switch (request->type) {
    case REGX_ONESIDED_PUT:
        piece = regx_min(request->length - request->moved, regx_onesided_piece(peer));
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
    const regx_status_t status = regx_onesided_send(
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

bool regx_onesided_requests_stalled(const regx_onesided_peer_t *peer)
{
    return next_to_send(peer) != NULL;
}

bool regx_onesided_requests_advance(regx_onesided_peer_t *peer)
{
    regx_onesided_request_t *request;
    unsigned sent = 0;

    while (sent < REGX_ONESIDED_BURST && (request = next_to_send(peer)) != NULL &&
           send_next(peer, request) == REGX_OK) {
        sent++;
        peer->asked += !request->seen;
        request->seen = true;
        if (is_sent(request)) {
            regx_list_remove(&request->link);
            regx_list_append(&peer->running, &request->link);
        }
    }
    return sent > 0;
}

static void end_locked(regx_onesided_t *onesided, regx_onesided_request_t *request,
                       regx_status_t status)
{
    regx_list_remove(&request->link);
    regx_list_append(&onesided->ended, &request->link);
    atomic_fetch_add_explicit(onesided->config.ended, 1u, memory_order_relaxed);
    regx_handle_table_remove(&onesided->requests, request->handle);
    request->peer->asked -= request->seen;
    request->status = status;
}

/* Bytes of a get. true: they are the next ones. */
static bool take_data(regx_onesided_request_t *request, const regx_onesided_message_t *message)
{
    if (message->value != request->moved ||
        message->data_length > request->length - request->moved ||
        (message->data_length == 0 && request->length > 0)) {
        return false;
    }
    if (message->data_length > 0) {
        memcpy((char *)request->local + request->moved, message->data, message->data_length);
        request->moved += message->data_length;
    }
    return true;
}

void regx_onesided_answered(regx_onesided_t *onesided, const regx_onesided_peer_t *peer,
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
    } else if (!take_data(request, message)) {
        regx_count_malformed(onesided->config.counters);
    } else if (request->moved == request->length) {
        end_locked(onesided, request, REGX_OK);
    }
}

void regx_onesided_requests_end(regx_onesided_t *onesided, regx_onesided_peer_t *peer)
{
    regx_list_move(&peer->running, &peer->waiting);
    while (!regx_list_empty(&peer->running)) {
        end_locked(onesided, REGX_CONTAINER_OF(peer->running.next, regx_onesided_request_t, link),
                   REGX_UNREACHABLE);
    }
}

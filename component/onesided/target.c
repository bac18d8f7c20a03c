/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Who is asked. A request is done when it arrives. Its answer is kept in a ring until all of it is
 * sent, as a rule at once; there is room for as many as a peer may have open.
 */
#include "onesided/onesided.h"

#include <stdlib.h>
#include <string.h>

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
static regx_status_t send_next(const regx_onesided_t *onesided, const regx_onesided_peer_t *peer,
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
        piece = regx_min(answer->length - answer->moved, regx_onesided_piece(peer));
        data =
            regx_onesided_memory(onesided, answer->window, answer->address + answer->moved, piece);
        if (data == NULL) {
            answer->refused = true;
            piece = 0;
        }
    }
    message.detail = answer->refused;
    const regx_status_t status = regx_onesided_send(peer, &message, data, piece);
    if (status == REGX_OK) {
        answer->moved += piece;
    }
    *last = status == REGX_OK && (answer->refused || answer->moved == answer->length);
    return status;
}

bool regx_onesided_answers_stalled(const regx_onesided_peer_t *peer)
{
    return peer->answers != NULL && peer->answers->count > 0;
}

bool regx_onesided_answers_advance(const regx_onesided_t *onesided,
                                   const regx_onesided_peer_t *peer)
{
    struct regx_onesided_answers *answers = peer->answers;
    unsigned frames = 0;
    bool last;

    while (frames < REGX_ONESIDED_BURST && regx_onesided_answers_stalled(peer) &&
           send_next(onesided, peer, &answers->ring[answers->first], &last) == REGX_OK) {
        frames++;
        if (last) {
            answers->first = (answers->first + 1) % REGX_ONESIDED_ASKED;
            answers->count--;
        }
    }
    return frames > 0;
}

static void keep(const regx_onesided_t *onesided, struct regx_onesided_answers *answers,
                 const answer_t *answer)
{
    if (answers->count == REGX_ONESIDED_ASKED) { /* more than it may ask */
        regx_count_malformed(onesided->config.counters);
        return;
    }
    answers->ring[(answers->first + answers->count) % REGX_ONESIDED_ASKED] = *answer;
    answers->count++;
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

/* How many bytes the request touches. */
static uint64_t extent(const regx_onesided_message_t *message)
{
    switch (message->type) {
    case REGX_ONESIDED_PUT:
        return message->data_length;
    case REGX_ONESIDED_GET:
        return message->value;
    default:
        return message->size;
    }
}

bool regx_onesided_serve(const regx_onesided_t *onesided, regx_onesided_peer_t *peer,
                         const regx_onesided_message_t *message)
{
    char *at = regx_onesided_memory(onesided, message->window, message->address, extent(message));
    answer_t answer = {.request = message->request};

    if (peer->answers == NULL) {
        peer->answers = calloc(1, sizeof(*peer->answers));
        if (peer->answers == NULL) {
            return false;
        }
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
    if (message->type != REGX_ONESIDED_PUT || message->detail != 0) {
        keep(onesided, peer->answers, &answer);
    }
    return true;
}

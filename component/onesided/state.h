/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the room share. All functions are called with its lock held.
 */
#ifndef REGX_ONESIDED_STATE_H
#define REGX_ONESIDED_STATE_H

#include "base/lock.h"
#include "onesided/onesided.h"

#define REGX_ONESIDED_BUCKETS 64u /* a power of two */

struct regx_onesided {
    regx_onesided_config_t config;
    regx_lock_t lock; /* of all that follows, and of the peers */
    regx_handle_table_t windows;
    regx_handle_table_t requests;
    unsigned pending; /* requests, until done is called */
    regx_link_t blocked;
    regx_link_t ended;                                    /* requests whose done is to be called */
    regx_onesided_peer_t *buckets[REGX_ONESIDED_BUCKETS]; /* by the last bits of the id */
};

static inline void regx_onesided_malformed(const regx_onesided_t *onesided)
{
    regx_count(onesided->config.counters, &onesided->config.counters->malformed, 1);
}

/* The memory that a peer asks for. NULL: it is not all inside a window that is offered now. */
static inline char *regx_onesided_memory(const regx_onesided_t *onesided, regx_handle_t handle,
                                         uint64_t address, uint64_t length)
{
    const regx_onesided_window_t *window = regx_handle_table_find(&onesided->windows, handle);

    if (window == NULL ||
        !regx_onesided_holds((uintptr_t)window->base, window->length, address, length)) {
        return NULL;
    }
    return window->base + (address - (uintptr_t)window->base);
}

/* Bytes of data that a frame to this peer takes. */
static inline size_t regx_onesided_piece(const regx_onesided_peer_t *peer)
{
    return peer->conn->transport->max_frame - REGX_ONESIDED_HEADER;
}

/* Sends one frame: the message's header, and `length` bytes of `data`. Answers as the transport's
 * send. */
static inline regx_status_t regx_onesided_send(const regx_onesided_peer_t *peer,
                                               const regx_onesided_message_t *message,
                                               const void *data, size_t length)
{
    uint8_t header[REGX_ONESIDED_HEADER];

    regx_onesided_pack(message, header);
    return peer->conn->transport->ops->send(peer->conn, REGX_TAG_ONESIDED, header, sizeof(header),
                                            NULL, (void *)(uintptr_t)data, length);
}

/* origin.c. Sends requests to the peer as far as there is room, REGX_ONESIDED_BURST frames at most.
 * true: something went. */
bool regx_onesided_requests_advance(regx_onesided_peer_t *peer);
/* Whether there is one that waits for room, or for its turn. */
bool regx_onesided_requests_stalled(const regx_onesided_peer_t *peer);
/* A REPLY or DATA. The request that has ended by it, and is in no list; NULL: none has. */
regx_onesided_request_t *regx_onesided_answered(regx_onesided_t *onesided,
                                                regx_onesided_peer_t *peer,
                                                const regx_onesided_message_t *message);
/* Moves all open requests of the peer to the list, as ended by REGX_UNREACHABLE. */
void regx_onesided_requests_take(regx_onesided_t *onesided, regx_onesided_peer_t *peer,
                                 regx_link_t *list);

/* target.c. Does what the peer asks, and answers as far as there is room; the rest of the answer is
 * kept. false: there is no memory to keep any. */
bool regx_onesided_serve(regx_onesided_t *onesided, regx_onesided_peer_t *peer,
                         const regx_onesided_message_t *message);
/* Sends answers, as requests are sent. */
bool regx_onesided_answers_advance(regx_onesided_t *onesided, regx_onesided_peer_t *peer);
bool regx_onesided_answers_stalled(const regx_onesided_peer_t *peer);

#endif

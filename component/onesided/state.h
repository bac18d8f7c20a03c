/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the room share.
 */
#ifndef REGX_ONESIDED_STATE_H
#define REGX_ONESIDED_STATE_H

#include "base/lock.h"
#include "onesided/onesided.h"

#define REGX_ONESIDED_BUCKETS 64u /* a power of two */

struct regx_onesided {
    regx_onesided_config_t config;
    regx_lock_t lock; /* of all that follows, and of the peers */
    regx_windows_t windows;
    regx_handle_table_t requests;
    unsigned pending; /* requests, until done is called */
    regx_link_t blocked;
    regx_link_t ended;                                    /* requests whose done is to be called */
    regx_onesided_peer_t *buckets[REGX_ONESIDED_BUCKETS]; /* by the last bits of the id */
};

/* Whether it is a put or a get, and no more of these are accepted. */
static inline bool regx_onesided_is_full_locked(const regx_onesided_t *onesided,
                                                const regx_onesided_request_t *request)
{
    return onesided->pending >= REGX_ONESIDED_PENDING &&
           (request->type == REGX_ONESIDED_PUT || request->type == REGX_ONESIDED_GET);
}

/* A request that is in no list has ended. */
static inline void regx_onesided_end_locked(regx_onesided_t *onesided,
                                            regx_onesided_request_t *request)
{
    regx_list_append(&onesided->ended, &request->link);
    atomic_fetch_add_explicit(onesided->config.ended, 1u, memory_order_relaxed);
}

static inline void regx_onesided_count(const regx_onesided_t *onesided, regx_onesided_type_t type)
{
    regx_counters_t *counters = onesided->config.counters;

    if (type == REGX_ONESIDED_PUT) {
        regx_count(counters, &counters->onesided_puts, 1);
    } else if (type == REGX_ONESIDED_GET) {
        regx_count(counters, &counters->onesided_gets, 1);
    } else {
        regx_count(counters, &counters->onesided_atomics, 1);
    }
}

static inline void regx_onesided_malformed(regx_onesided_t *onesided)
{
    regx_count(onesided->config.counters, &onesided->config.counters->malformed, 1);
}

/* Sends one frame: the message's header, and `length` bytes of `data`. Answers as the transport's
 * send. */
static inline regx_status_t regx_onesided_send(const regx_onesided_peer_t *peer,
                                               const regx_onesided_message_t *message,
                                               const void *data, size_t length)
{
    uint8_t header[REGX_ONESIDED_HEADER_MAX];
    const size_t header_length = regx_onesided_pack(message, header);

    return peer->conn->transport->ops->send(peer->conn, REGX_TAG_ONESIDED, header, header_length,
                                            NULL, (void *)(uintptr_t)data, length);
}

/* Bytes of data that a frame to this peer takes. */
static inline size_t regx_onesided_piece(const regx_onesided_peer_t *peer)
{
    return peer->conn->transport->max_frame - REGX_ONESIDED_HEADER_MAX;
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Sending control messages to a peer. Any thread; the engine's lock may be held, since no send
 * waits.
 */
#ifndef REGX_RENDEZVOUS_CHANNEL_H
#define REGX_RENDEZVOUS_CHANNEL_H

#include "rendezvous/rendezvous.h"

/* One message that found no room. It goes before any other of its owner. */
typedef struct regx_outbox {
    bool full;
    regx_control_t message;
} regx_outbox_t;

/* Answers as the transport's send: REGX_OK, REGX_AGAIN, REGX_UNREACHABLE. */
regx_status_t regx_channel_send(const regx_peer_t *peer, const regx_control_t *control);

/* Sends the message, or keeps it in the outbox, which must be empty. */
void regx_channel_post(const regx_peer_t *peer, regx_outbox_t *outbox,
                       const regx_control_t *control);
/* Sends what the outbox holds, if anything; it stays there where there is still no room. */
void regx_channel_flush(const regx_peer_t *peer, regx_outbox_t *outbox);

/* Hint to the transport: a message to this peer follows in a moment. */
static inline void regx_channel_warm(const regx_peer_t *peer)
{
    const regx_transport_ops_t *ops = peer->conn->transport->ops;

    if (ops->warm != NULL) {
        ops->warm(peer->conn);
    }
}

#endif

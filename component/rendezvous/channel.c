/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/channel.h"

#include <assert.h>

regx_status_t regx_channel_send(const regx_peer_t *peer, const regx_control_t *control)
{
    uint8_t bytes[REGX_CONTROL_MAX];
    const size_t length = regx_control_pack(control, bytes);

    return peer->conn->transport->ops->send(peer->conn, REGX_TAG_CONTROL, bytes, length, NULL, NULL,
                                            0);
}

void regx_channel_post(const regx_peer_t *peer, regx_outbox_t *outbox,
                       const regx_control_t *control)
{
    assert(!outbox->full);
    if (regx_channel_send(peer, control) != REGX_OK) {
        outbox->full = true;
        outbox->message = *control;
    }
}

void regx_channel_flush(const regx_peer_t *peer, regx_outbox_t *outbox)
{
    if (outbox->full) {
        outbox->full = regx_channel_send(peer, &outbox->message) != REGX_OK;
    }
}

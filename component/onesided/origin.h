/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The requests of this process. All is called with the room's lock held.
 */
#ifndef REGX_ONESIDED_ORIGIN_H
#define REGX_ONESIDED_ORIGIN_H

#include "onesided/state.h"

/* Sends requests to the peer as far as there is room, REGX_ONESIDED_BURST frames at most. true:
 * something went. */
bool regx_requests_advance_locked(regx_onesided_peer_t *peer);

/* Whether there is one that waits for room, or for its turn. */
bool regx_requests_stalled_locked(const regx_onesided_peer_t *peer);

/* A REPLY or DATA. The request that has ended by it, and is in no list; NULL: none has. */
regx_onesided_request_t *regx_requests_answered_locked(regx_onesided_t *onesided,
                                                       regx_onesided_peer_t *peer,
                                                       const regx_onesided_message_t *message);

/* Moves all open requests of the peer to the list, as ended by REGX_UNREACHABLE. */
void regx_requests_take_locked(regx_onesided_t *onesided, regx_onesided_peer_t *peer,
                               regx_link_t *list);

#endif

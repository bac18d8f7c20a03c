/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The requests of this process. All is called with the room's lock held.
 */
#ifndef REGX_ONESIDED_ORIGIN_H
#define REGX_ONESIDED_ORIGIN_H

#include "onesided/state.h"

/* Sends requests to the peer as far as there is room. true: something went. */
bool regx_requests_advance_locked(regx_onesided_peer_t *peer);

/* Whether there is one that waits for room. */
bool regx_requests_stalled_locked(const regx_onesided_peer_t *peer);

/* A REPLY or DATA. The request that has ended by it, with its status; NULL: none has. */
regx_onesided_request_t *regx_requests_answered_locked(regx_onesided_t *onesided,
                                                       regx_onesided_peer_t *peer,
                                                       const regx_onesided_message_t *message,
                                                       regx_status_t *status);

/* Moves all requests of the peer to the list; they are open no more. */
void regx_requests_take_locked(regx_onesided_t *onesided, regx_onesided_peer_t *peer,
                               regx_link_t *list);

#endif

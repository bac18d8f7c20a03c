/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The requests of peers, and the answers to them. All is called with the room's lock held.
 */
#ifndef REGX_ONESIDED_TARGET_H
#define REGX_ONESIDED_TARGET_H

#include "onesided/state.h"

/* Does what the peer asks, and answers as far as there is room; the rest of the answer is kept.
 * false: there is no memory to keep any. */
bool regx_target_serve_locked(regx_onesided_t *onesided, regx_onesided_peer_t *peer,
                              const regx_onesided_message_t *message);

/* Sends answers to the peer as far as there is room, REGX_ONESIDED_BURST frames at most. true:
 * something went. */
bool regx_answers_advance_locked(regx_onesided_t *onesided, regx_onesided_peer_t *peer);

/* Whether there is one that waits for room, or for its turn. */
bool regx_answers_stalled_locked(const regx_onesided_peer_t *peer);

#endif

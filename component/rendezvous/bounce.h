/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the other protocols need of bounce: bytes that a chunk could not carry go by slots, whatever
 * the path. Types of functions as in proto.h.
 */
#ifndef REGX_RENDEZVOUS_BOUNCE_H
#define REGX_RENDEZVOUS_BOUNCE_H

#include "rendezvous/proto.h"

/* Takes ATP_SLOT. */
bool regx_bounce_recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                     const regx_control_t *control, regx_recv_work_t *work);
/* Grants slots until everything is granted, a message found no room, the peer's window is full (a
 * notice opens it), or the pool is empty. Makes no work: answers false. */
bool regx_bounce_advance_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_recv_work_t *work);
void regx_bounce_revoke_slots_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv);

/* Takes CTS_SLOTS. */
bool regx_bounce_send_control_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                     const regx_control_t *control, regx_send_work_t *work);

#endif

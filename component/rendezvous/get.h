/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What `together` needs of the protocol of the path read: all of it. Types of functions as in
 * proto.h.
 */
#ifndef REGX_RENDEZVOUS_GET_H
#define REGX_RENDEZVOUS_GET_H

#include "rendezvous/bounce.h"
#include "rendezvous/proto.h"

const char *regx_get_obstacle(const regx_peer_t *peer);
/* Asks the sender, in the CTS, to advertise what is not granted. Always true. */
bool regx_get_recv_open(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_cts_t *cts);
/* Takes RKEY, ATP_SLOT, and NACK of what was to be advertised. */
bool regx_get_recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                  const regx_control_t *control, regx_recv_work_t *work);
bool regx_get_advance_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_recv_work_t *work);
void regx_get_revoke_chunks(regx_rndv_t *rndv, regx_rndv_recv_t *recv);

/* advertise.c: the sender. All that the CTS has not granted is to be advertised. false: nothing can
 * be got from here. */
bool regx_get_send_open(const regx_rndv_t *rndv, regx_rndv_send_t *send, const regx_cts_t *cts);
/* Takes ATS and CTS_SLOTS. */
bool regx_get_send_control_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                  const regx_control_t *control, regx_send_work_t *work);
regx_status_t regx_get_flush_locked(regx_rndv_send_t *send);
regx_status_t regx_get_next_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                   regx_send_work_t *work);
bool regx_get_drop_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_work_t *work);

/* Rows of the protocols' tables that both have. */
#define REGX_GET_OPERATIONS                                                                        \
    .grants = REGX_GRANTS_RKEYS, .recv_open = regx_get_recv_open,                                  \
    .recv_control_locked = regx_get_recv_control_locked,                                           \
    .advance_locked = regx_get_advance_locked,                                                     \
    .revoke_slots_locked = regx_bounce_revoke_slots_locked,                                        \
    .revoke_chunks = regx_get_revoke_chunks, .send_open = regx_get_send_open,                      \
    .send_control_locked = regx_get_send_control_locked, .flush_locked = regx_get_flush_locked,    \
    .next_locked = regx_get_next_locked, .drop_locked = regx_get_drop_locked

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The protocol of the paths pipeline and direct, and what `together` needs of it. Types of
 * functions as in proto.h.
 */
#ifndef REGX_RENDEZVOUS_PUT_H
#define REGX_RENDEZVOUS_PUT_H

#include "rendezvous/proto.h"

extern const regx_protocol_t regx_protocol_put;

const char *regx_put_obstacle(const regx_peer_t *peer);
/* Registers that chunk, from the transfer's start on, and grants it in the CTS. false: it could not
 * be registered. Nobody else knows the receive yet. */
bool regx_put_grant_first(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_chunk_t *chunk,
                          uint64_t length, regx_cts_t *cts);
/* Takes ATP_CHUNK, and NACK of a chunk that was granted. */
bool regx_put_recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                  const regx_control_t *control, regx_recv_work_t *work);
void regx_put_revoke_chunks(regx_rndv_t *rndv, regx_rndv_recv_t *recv);

/* Takes what the CTS grants as a chunk. false: it does not fit. */
bool regx_put_take_first(regx_rndv_send_t *send, const regx_cts_t *cts);
/* Takes CTS_CHUNK. */
bool regx_put_send_control_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                  const regx_control_t *control, regx_send_work_t *work);
regx_status_t regx_put_flush_locked(regx_rndv_send_t *send);
bool regx_put_drop_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_work_t *work);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What `remap` needs of the protocol of the paths pipeline and direct: how chunks are granted and
 * acknowledged, and all of the send side, to which it is the same. Types of functions as in
 * proto.h.
 */
#ifndef REGX_RENDEZVOUS_PUT_H
#define REGX_RENDEZVOUS_PUT_H

#include "rendezvous/proto.h"

const char *regx_put_obstacle(const regx_peer_t *peer);

/* Grants the first chunk, whose length, start and region are set. */
void regx_put_fill_cts(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_chunk_t *chunk,
                       regx_cts_t *cts);
/* Takes the next chunk, of that length, for the caller to give it a start and a region (work->act).
 * false: there is none to be granted now. */
bool regx_put_take_chunk_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_recv_work_t *work,
                                uint64_t (*length)(const regx_rndv_t *, const regx_rndv_recv_t *));
/* The granted chunk of which that acknowledgement, positive or not, is the next; NULL: it is none,
 * or of no chunk. */
regx_chunk_t *regx_put_find_granted(const regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                    const regx_control_t *control);
/* As acted_locked: the chunk has been written, or is to go by slots. */
void regx_put_acknowledged_locked(regx_rndv_t *rndv, regx_recv_work_t *work);

bool regx_put_send_open(const regx_rndv_t *rndv, regx_rndv_send_t *send, const regx_cts_t *cts);
/* Takes CTS_CHUNK and CTS_SLOTS. */
bool regx_put_send_control_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                  const regx_control_t *control, regx_send_work_t *work);
regx_status_t regx_put_next_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                   regx_send_work_t *work);
regx_status_t regx_put_flush_locked(regx_rndv_send_t *send);
bool regx_put_drop_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_work_t *work);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport's own registered memory: the pool that peers write to, the receive buffers, room
 * for datagrams, and slots that frames are sent from.
 */
#ifndef REGX_VERBS_BUFFERS_H
#define REGX_VERBS_BUFFERS_H

#include "transport/verbs/verbs.h"

#define REGX_SLOT_NONE UINT32_MAX
#define REGX_GRH_SIZE 40 /* bytes that UD puts before what it received */

/* Registers buffers and slots. REGX_OK; REGX_NO_MEMORY: `error` says which limit. */
regx_status_t regx_buffers_open(regx_verbs_t *verbs, char *error, size_t error_size);
void regx_buffers_close(regx_verbs_t *verbs);
/* The pool's memory, registered: as much as is wanted and can be had. Likewise. */
regx_status_t regx_verbs_pool_open(regx_verbs_t *verbs, char *error, size_t error_size);
void regx_verbs_pool_close(regx_verbs_t *verbs);

/* Posts every receive buffer. false: the device refuses. */
bool regx_buffers_fill(regx_verbs_t *verbs);
/* For the event that the shared receive queue runs low, which comes once: it is counted, and armed
 * again with the next buffers that are posted. */
void regx_buffers_low(regx_verbs_t *verbs);
const uint8_t *regx_buffer_received(const regx_verbs_t *verbs, uint32_t index);
/* The frame in that buffer was delivered. */
void regx_buffer_return(regx_verbs_t *verbs, uint32_t index);
/* Posts what was returned, if that is worth a call. 0; or the error, if the device refuses and has
 * no buffer left: peers would then try again without end. What is refused otherwise is posted with
 * the next ones. */
int regx_buffers_repost(regx_verbs_t *verbs);

/* A slot for an endpoint that holds `held` of them, or REGX_SLOT_NONE. An endpoint that holds none
 * is given one as long as memory can be registered. */
uint32_t regx_slot_take(regx_verbs_t *verbs, uint32_t held);
/* Gives it back; the endpoint then holds `left`. */
void regx_slot_give(regx_verbs_t *verbs, uint32_t slot, uint32_t left);
uint8_t *regx_slot_memory(const regx_verbs_t *verbs, uint32_t slot);
uint32_t regx_slot_key(const regx_verbs_t *verbs, uint32_t slot);

/* Where a datagram arrived, with REGX_GRH_SIZE bytes before it, and posting that room again: 0, or
 * the error. */
const uint8_t *regx_buffer_datagram(const regx_verbs_t *verbs, uint32_t index);
int regx_buffer_datagram_post(regx_verbs_t *verbs, uint32_t index);
/* Room to send a datagram from. */
uint8_t *regx_buffer_datagram_send(const regx_verbs_t *verbs, uint32_t index);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Grants that do not outlive their pages (btl_regx_grant): when the pages that a sender was granted
 * change, or a write to them fails, what was granted is acknowledged first, and then granted anew
 * from the lowest byte on that may be lost. For the paths that write to the user's pages (put.c).
 * Both proposals of the debate of 2008 to 2009 are this; with Lameter's (synchronous) the sender is
 * told to stop, with Bell's (optimistic) it goes on with what it was granted.
 *
 *   receiver                                                 sender
 *   a change of the buffer is seen, or a NACK
 *   reports that a chunk could not be written
 *        ── REVOKE ──────── synchronous only ──────────────▶ begins no chunk that is queued: NACK
 *        ◀─────────────────────────────────── ATP, NACK ──── for each grant
 *   all is acknowledged, and the memory is there again
 *        ── RESUME offset ─────────────────────────────────▶ counts from there again
 *        ── CTS_CHUNK, CTS_SLOTS from the offset on ───────▶ writes them
 *   all has landed, and no change is under way
 *        ── ARRIVED, with a checksum if something changed ─▶ the send ends
 *        ◀─────────────────────────────────────── DIFFERS ── or its buffer has another checksum
 *
 * The phases of the receive (recv.h):
 *
 *   STARTED ─change, failed write─▶ [REVOKE_DUE ─REVOKE─▶] DRAINING ─all acknowledged─▶ DRAINED
 *    ▲ │                            if synchronous                                      ▲   │
 *    │ └───all has landed──▶ ARRIVED ──DIFFERS──────────────────────────────────────────┘   │
 *    └─────────────────────────── RESUME: the memory is there ──────────────────────────────┘
 *
 * Of the send (send.h): DUE ──REVOKE──▶ REVOKED ──RESUME──▶ DUE ──ARRIVED──▶ THERE, or by way of
 * PROVING to THERE or to DIFFERS, and from there to DUE.
 *
 * Why that is right, what it does not cover, where it is given up and what it costs:
 * component/design/grants.md.
 */
#ifndef REGX_RENDEZVOUS_REVOKE_H
#define REGX_RENDEZVOUS_REVOKE_H

#include "rendezvous/proto.h"

/* ---- the receive side ---- */

/* Whether what this receive grants is granted anew when its memory changes: that was asked for,
 * changes are reported, and it is not given up. */
static inline bool regx_revoke_is_on(const regx_rndv_recv_t *recv)
{
    return recv->revoke.state == REGX_REVOKE_ON_CHANGE;
}

/* From now on the memory of that receive is watched. Nobody else knows it yet. Nothing is granted
 * before. Where nobody reports changes grants are final, which is counted. */
void regx_revoke_recv_open(regx_rndv_t *rndv, regx_rndv_recv_t *recv);
/* A chunk was not written. true: it is granted again; false: it goes by slots. */
bool regx_revoke_nacked_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                               const regx_control_t *nack);
/* Takes DIFFERS, as recv_control_locked. */
bool regx_revoke_recv_control_locked(const regx_rndv_recv_t *recv, const regx_control_t *control,
                                     regx_recv_work_t *work);
/* Looks at all whose memory is watched. From progress only. */
void regx_revokes_advance(regx_rndv_t *rndv);

/* ---- the send side ---- */

/* Takes REVOKE, RESUME and ARRIVED, as send_control_locked. */
bool regx_revoke_send_control_locked(regx_rndv_send_t *send, const regx_control_t *control,
                                     regx_send_work_t *work);
/* Sends DIFFERS, which is due. As next_locked. */
regx_status_t regx_revoke_answer_locked(regx_rndv_send_t *send);

#endif

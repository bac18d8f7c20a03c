/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Grants that are not taken back (btl_regx_grant=optimistic): the sender goes on writing, and what
 * went to pages that are no longer the buffer's is granted once more. Bell's proposal in the debate
 * of 2008 to 2009. Watching, memory that is gone for a while, the proof at the end and giving up
 * are those of revoke.h; only the way back differs:
 *
 *   receiver                                                 sender
 *   a change of the buffer is seen, or a NACK
 *   reports that a chunk could not be written
 *        ◀─────────────────────────────────── ATP, NACK ──── goes on with what it was granted
 *   grants nothing more until all that was granted is
 *   acknowledged, and until the memory is there again
 *        ── RESUME offset ─────────────────────────────────▶ counts from there again
 *        ── CTS_CHUNK, CTS_SLOTS from the offset on ───────▶ writes them
 *   all has landed, and no change is under way
 *        ── ARRIVED ───────────────────────────────────────▶ the send ends
 *
 * Why nothing can be written to memory that is granted anew by somebody who was granted the old:
 * RESUME is sent when every grant has its acknowledgement, which comes behind its bytes. So the
 * sender need not stop, nor answer, and no message of it can be of what was granted before. At the
 * sender the completions of such writes may still be due: it counts what was written, and what has
 * to be, without end.
 *
 * The offset is a multiple of the chunk size: that of the chunk with the lowest byte that changed
 * or has not landed. Nothing is granted before news of changes was looked at. So what is sent again
 * is, each time, at most btl_regx_chunk_depth times btl_regx_chunk_size (with direct: the message),
 * if the change is reported while it is made and is of what is under way. Where it is of what had
 * landed, all from there on is sent again.
 *
 * A write that fails begins that, too. After REGX_FAILURES_MAX of a transfer, what fails goes by
 * slots, as with grants that are final: it may be the sender's buffer that is gone.
 *
 * What it costs without any change: ARRIVED, and that the sender keeps its buffer until then, since
 * nobody else has the bytes. Where the CTS grants the whole there is no READY. The cost of watching
 * is in revoke.h.
 */
#ifndef REGX_RENDEZVOUS_OPTIMISTIC_H
#define REGX_RENDEZVOUS_OPTIMISTIC_H

#include "rendezvous/proto.h"

/* How many failed writes of a transfer lead to a restart. Later ones go by slots. */
#define REGX_FAILURES_MAX 4u

/* ---- the receive side ---- */

/* Whether this receive restarts (RESUME) when its memory changes, and has not given that up. */
static inline bool regx_goes_back(const regx_rndv_recv_t *recv)
{
    return recv->revoke.optimistic && recv->revoke.state == REGX_REVOKE_ON_CHANGE;
}

/* The buffer has changed, from that offset on at the lowest: nothing more is granted until all that
 * was is acknowledged (REVOKING). */
void regx_go_back_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, uint64_t offset);
/* A chunk was not written. true: it is granted again; false: it goes by slots. */
bool regx_go_back_failed_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                const regx_control_t *nack);
/* REVOKING: whether all that was granted is acknowledged. Then it is to go back. */
bool regx_is_drained_locked(const regx_rndv_recv_t *recv);
/* All that was granted is acknowledged: what lies behind where it resumes counts no more
 * (REVOKED). */
void regx_went_back_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv);
/* The memory is there: notifies the sender. Grants follow. */
void regx_resume_locked(regx_rndv_recv_t *recv);

/* ---- the send side ---- */

/* Takes RESUME, as send_control_locked. */
bool regx_resume_send_control_locked(regx_rndv_send_t *send, const regx_control_t *control);

#endif

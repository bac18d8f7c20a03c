/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Grants that are revoked (btl_regx_grant=synchronous): when the pages that a sender was granted
 * change, both sides go back to where they agree, and on from there. Lameter's proposal in the
 * debate of 2008 to 2009. For the paths that write to the user's pages (put.c).
 *
 *   receiver                                                 sender
 *   a change of the buffer is seen
 *        ── REVOKE offset ─────────────────────────────────▶ writes nothing more, drops what was
 *        ◀──────────────────────────────── ATP, NACK ─────── granted, waits for what is in flight
 *        ◀──────────────────────────────── REVOKED offset ── nothing is under way any more
 *   waits until the memory is there again
 *        ── CTS_CHUNK, CTS_SLOTS from the offset on ───────▶ writes them
 *   all has landed, and no change is under way
 *        ── ARRIVED ───────────────────────────────────────▶ the send ends
 *
 * The offset is the lowest byte that changed or has not landed: all before it has landed and is as
 * it was sent. All behind it is sent again. So what must hold is simple: before the offset nothing
 * was reported as changed, and behind it nothing counts that was written before REVOKED, which is
 * behind all that was in flight (send's promise, transport.h). The send keeps its buffer until
 * ARRIVED.
 *
 * A change that is reported before it is made (watch.h) may come when its pages have been granted
 * anew, and nothing more is reported. Therefore, where something was revoked, ARRIVED carries a
 * checksum of what lies from the lowest offset on, as the receiver's processor reads it. If the
 * sender's buffer has another one, it answers REVOKED, what is registered of that buffer is given
 * up, and so on as above. So at the end the bytes are in the pages that are mapped. What was
 * registered meanwhile may be of the old pages all the same, if these bytes were in the new ones by
 * chance: so it is given up before the MPI has the buffer back.
 *
 * What it does not cover: a message of which nothing could be registered goes by bounce and is not
 * watched; nor is the sender's buffer, nor what a receiver reads (read, together).
 *
 * When the transfer is over. A change that is made after the receiver looked for the last time,
 * before ARRIVED, is as if the program had written to the buffer after it had received. One that
 * was reported before the receive was posted, and is made later, is not seen.
 *
 * Bounded. It is given up, which is counted by reason, if memory is not there, or cannot be read,
 * or the monitor is not certain, for ten seconds in all (and many looks, should the program seldom
 * make progress); if nobody reports changes of the memory that came, as of shared memory by the
 * notifier, for a tenth of a second; and after a hundred revocations of one transfer. Then all that
 * was not proven goes once more, by slots, which the processor copies to whatever is mapped; and
 * nothing is watched any more.
 *
 * What it costs without any change, for each transfer: READY and ARRIVED; and by the notifier four
 * system calls of the receiver's, to be notified and to be certain at the end, five instead of one
 * (1 MiB whose registration is kept, strace); none by hooks. While one is open, progress looks at
 * the head of the monitor's log; at the transfers only if it moved, or one is to end.
 */
#ifndef REGX_RENDEZVOUS_REVOKE_H
#define REGX_RENDEZVOUS_REVOKE_H

#include "rendezvous/proto.h"

/* ---- the receive side ---- */

/* The grants of that receive are revoked when its memory changes. Nobody else knows it yet. Nothing
 * is granted before. Where nobody reports changes they are final, which is counted. */
void regx_revoke_recv_open(regx_rndv_t *rndv, regx_rndv_recv_t *recv);
/* Takes REVOKED, as recv_control_locked. */
bool regx_revoke_recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                     const regx_control_t *control, regx_recv_work_t *work);
/* Looks at all that may be revoked, or may end. From progress only. */
void regx_revokes_advance(regx_rndv_t *rndv);

/* ---- the send side (agreement.c) ---- */

/* Takes REVOKE and ARRIVED, as send_control_locked. */
bool regx_revoke_send_control_locked(regx_rndv_send_t *send, const regx_control_t *control,
                                     regx_send_work_t *work);
/* The grants are revoked, and what could be dropped is: notifies the receiver, once nothing is in
 * flight. As next_locked. */
regx_status_t regx_revoke_answer_locked(regx_rndv_t *rndv, regx_rndv_send_t *send);

#endif

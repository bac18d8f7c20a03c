/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Restart after a completion error: the plan. Nothing of it is built yet; today an endpoint whose
 * request fails breaks, and callers are told.
 *
 * Aim. A request that ends in error costs the queue pair, not the connection. Both ends take
 * another queue pair, agree on what had arrived, and what had not is posted again: each frame is
 * delivered once and in order, each put and get completes once. No data is copied for it in
 * advance.
 *
 * Which errors.
 *   RETRY_EXC, and what is only flushed behind it: the link or the peer's port. All of it resumes.
 *   REM_ACCESS, REM_OP, LOC_PROT: the memory of one put or get is gone, or faulted. It would fail
 *     again. So that one ends with REGX_FAILED, which the rendezvous answers by NACK and slots; all
 *     others resume.
 *   Device or completion queue failed: BROKEN, as today.
 *
 * Sequence numbers. A request is numbered if it takes a receive at the peer: each piece of a frame,
 * each WRITE with immediate data, the goodbye. The sender counts them as they are posted, the
 * receiver as they are handled (`heard`), both from 0 when the connection is made and on across
 * queue pairs. No number travels with a request: a reliable queue pair delivers in order, so the
 * counts are enough, and nothing is added to a message that does not fail.
 *
 * Why exactly once. `heard` is told to the peer only when it is final: the old queue pair is in
 * error, takes no more, and the completion queue was seen empty after that (cleanup.h). The limit
 * of 0.1 s that stands there for devices that do not report is no proof. On those the queue pair
 * is destroyed first and the completion queue read after; on those that drop completions at
 * destroy (mlx5) the event comes. So a request below the peer's `heard` was handled, whatever its
 * completion said: it ends with REGX_OK. One at or above it was not, and never will be by the old
 * queue pair: it is posted again, and numbered again from `heard` on, without those of a put that
 * ended with REGX_FAILED.
 *
 * What is not numbered belongs to the next request that is. WRITEs of a put are repeated unless
 * the put's last request was heard. The target is still granted then, because the receiver gives a
 * chunk up only after it was told; and no late WRITE of the old queue pair can land, as the
 * receiver's end of that one is dead before it names its count. READs whose end was not seen are
 * repeated; the exposure lasts until the reader says that it is done. Empty WRITEs (keepalive) are
 * dropped.
 *
 * Where a transfer resumes. Control messages are frames, so both sides agree on grants and ATPs by
 * what stands above, and the rendezvous learns nothing of a restart. Sent twice are at most the
 * pieces of puts that were posted and not heard: PUT_WINDOW, or chunk_depth x chunk_size.
 *
 * What is kept to be posted again: slots, and what belongs to callers (puts, zcopies, gets), is
 * kept until completion as today. Inline data is lost once posted. So it is made in the entry of
 * the ring of work instead of on the stack: the same instructions, and sq_depth x 288 bytes more
 * per endpoint, taken only if restart is on. A frame of which pieces had arrived stays gathered.
 *
 * States of an endpoint, in place of READY -> BROKEN:
 *   READY      -> RESTING     an error, or the peer's REQUEST names our queue pair as one to resume
 *   RESTING    -> RESUMING    at rest; a new queue pair in the same place (regx_ep_restart; it does
 *                             not count against verbs_connections), REQUEST
 *   RESUMING   -> CONNECTED   the peer's REQUEST or ACCEPT that resumes: its count is applied, what
 *                             is left is put in line in its old order
 *   CONNECTED  -> READY       as for any connection; then the line is posted, before anything new
 *   any of these -> BROKEN    the peer has forgotten the connection, or verbs_restart_limit is over
 * Callers get REGX_AGAIN meanwhile; puts and gets line up. Of an endpoint that both ends were
 * closing the same holds: a goodbye is numbered, too.
 *
 * Messages (another version of wire.h). REQUEST and ACCEPT get two fields:
 *   u64 resumes   epoch of the sender's queue pair that this one continues; 0: a new connection
 *   u64 heard     of the receiver's numbered requests
 * and there is a kind LOST: the sender knows of no connection that the receiver could resume.
 * Either end may begin, or both at once, as when connecting: each has one queue pair per epoch,
 * and a message that repeats what is known changes nothing. A count above what was ever posted, or
 * below what an earlier message gave, is malformed and breaks the endpoint.
 *
 * One end may see no error (the other's request failed, or only its own link was down). It hears of
 * it by the REQUEST, a datagram that is repeated; if that cannot arrive either, by its own next
 * request or keepalive.
 *
 * Parameters: verbs_restart (0, 1), verbs_restart_limit (seconds without an answer). Counters:
 * restarts, bytes_resent.
 *
 * What the devices in memory (test/unit/transport/verbs/fake_device.h) have to inject, at every k:
 *   - the k-th request fails with a given status, before it had any effect at the peer
 *   - likewise after it had: the peer's receive completes, and only the acknowledgement is lost
 *   - the k-th completion of a receive is still in the queue when the queue pair is driven to
 *     error, or destroyed; with drops_receives and without
 *   - no event that a queue pair takes no more
 *   - REQUEST and ACCEPT lost, doubled, and late by one restart
 *   - a second failure while the first is resumed
 *   - a link that is down for so many polls, and one that stays down
 *   - a request of a queue pair that has ended, done late: it must find nobody
 * Expected for each: frames once and in order, puts and gets completed once, contents right,
 * restarts = 1, bytes_resent within the bound; for a peer that stays away one clear end.
 */
#ifndef REGX_VERBS_RESTART_H
#define REGX_VERBS_RESTART_H

#endif

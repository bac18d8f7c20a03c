/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How many peers a port is connected to at once: verbs_connections.
 *
 * A queue pair per peer is memory of the device and of the process. With a bound, an endpoint that
 * is wanted beyond it waits while another one is closed: the least recently used of those that have
 * nothing in line. (What a peer only writes and reads of windows here is not noticed as a use: if
 * it is closed for that, the peer connects again.) Both ends close it:
 *
 *   A accepts nothing more by it. When all that A posted has completed: RETIRE
 *   B hears that behind all that A sent. B accepts nothing more, posts what is in line, and when
 *     all of it has completed, sends goodbye
 *   Either end destroys its queue pair when it has sent its last frame (RETIRE or goodbye), that
 *     has completed, and the other's has come. Both may send RETIRE; each is the other's goodbye.
 *
 * Nothing is lost and nothing comes twice. What was accepted has completed before the last frame
 * is posted, so when a queue pair is destroyed, only that frame can lack its acknowledgement.
 * Nothing is out of order: an end makes another queue pair for the same peer only when the old one
 * is destroyed, and the peer accepts it only when it has destroyed its own, with all read that came
 * by it. Registered memory keeps its keys.
 *
 * Requests that cannot be accepted for lack of room are kept, REGX_CM_WAITING of them at most, and
 * accepted in their order when there is some. Others are asked again by whoever asked
 * (cm_queue.h). Whoever still wants a connection asks again and again. So a request that was not
 * repeated for long is not accepted late: its sender computes, and will ask again, or it has gone,
 * and would never give the place back. One that goes just after it was accepted keeps its place,
 * and so does a peer that was disconnected here and goes on itself.
 *
 * Peers that have left (cm.h) and were not left yet are closed by the same steps. They hear RETIRE
 * as the goodbye that they wait for.
 *
 * A process that closes answers RETIRE first: the peer stays, and what was accepted for it must
 * arrive. Where the peer has closed meanwhile, the device's retries end that.
 *
 * Of a connection that breaks while it is closed callers are notified, unless both ends had sent
 * their last frame, or the peer had left before. A notified caller gets no other connection to that
 * peer.
 *
 * Nobody waits for ever. A peer that computes answers when it calls MPI again, and two processes
 * may wait for each other's room. So the last place is not taken to ask while somebody is being
 * asked, but left for who asks us; and when somebody has waited for a second
 * (regx_verbs.patience_ns), one endpoint goes beyond the bound, which is counted as a fallback.
 * The next one waits anew. A peer that does not answer RETIRE gets a keepalive
 * (keepalive.h).
 */
#ifndef REGX_VERBS_BOUND_H
#define REGX_VERBS_BOUND_H

#include "transport/verbs/ep.h"

#define REGX_BOUND_PATIENCE_NS INT64_C(1000000000)
/* Of a request: some twice the time between two of them. */
#define REGX_BOUND_KEEP_NS INT64_C(3000000000)

/* Whether there is room for one more. */
bool regx_bound_has_room(const regx_verbs_t *verbs);
/* Whether an endpoint may be made now, which the caller then does. `asks`: to ask a peer; else to
 * answer one. *close is an open endpoint that is to be closed for room, or NULL: none is needed, or
 * one is being closed, or none can be. */
bool regx_bound_admits(regx_verbs_t *verbs, bool asks, regx_ep_t **close);
/* The endpoint is to be closed, by ours or the peer's wish. Ours is counted. */
void regx_bound_retire(regx_ep_t *ep, bool ours);
/* The caller has left the endpoint, which now ends like any other that was left. */
void regx_bound_forget(regx_ep_t *ep);

#endif

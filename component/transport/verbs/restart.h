/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Restart: a queue pair that failed costs the queue pair, not the connection (verbs_restart_limit).
 *
 * A request that was retried in vain, because a link or a port was down, ends the queue pair. Both
 * ends then take another one, agree on what has arrived, and what has not is posted again, from
 * where it lies: no data was copied for that but what requests carried themselves.
 *
 *   READY       the queue pair fails, or the peer asks for a connection by a newer one
 *   RESTING     driven to error. When nothing more comes by it, it is destroyed, and what has
 *               completed is handled
 *   CONNECTING  another queue pair, which asks the peer (cm.h)
 *   CONNECTED   the peer has sent how much it has received: all up to there has ended
 *   READY       what is left is posted again, in its order, before anything new
 *
 * Meanwhile sends answer REGX_AGAIN, puts and gets stay in line.
 *
 * Numbers. What takes a receive of the peer is numbered: segments of frames, WRITEs with immediate
 * data, goodbyes. The sender counts what it posts, the receiver what it handles. A reliable queue
 * pair delivers in order, so no number travels with a request, and where nothing fails nothing is
 * added to a message.
 *
 * Once and in order. An end sends its count only when it is final: when its queue pair is destroyed
 * and the completion queue was read after that. So what is below the peer's count was handled, and
 * ends with REGX_OK, whatever its completion's status; so do WRITEs before it, since they were done
 * first. What is not was not, and never will be by the old queue pair. A count that cannot be is
 * an error. WRITEs of a put whose end was not heard are repeated. They find what they found before:
 * the receiver gives its memory up only after its notice. None of the old queue pair comes later,
 * as the receiver's end of that is gone before it asks or answers. READs are repeated unless they
 * have completed: what is exposed stays so until the reader acknowledges it.
 *
 * Identity. A connection is known by the epochs of the first queue pair of either end. Messages
 * name them, and the sender's present epoch, so that late ones can be recognised and dropped.
 *
 * What may not be done twice is not repeated: an endpoint breaks on which a one-sided operation is
 * under way that changes the peer's memory, be it atomic or a silent put. The peer's program may
 * see its effect and write there before this end has learnt of it.
 *
 * The end. An endpoint that is not ready again within the limit breaks: a peer that is gone, that
 * has given the connection up, or computes all that time. The limit begins anew where something has
 * completed since the last failure, or the endpoint was ready for as long as the limit in between.
 * Of the latter there are only so many, so that a request that fails each time ends, too. Endpoints
 * that one of the two closes break at once, as without a restart; so do those that fail as the peer
 * refuses an access, or a registration is not valid.
 */
#ifndef REGX_VERBS_RESTART_H
#define REGX_VERBS_RESTART_H

#include "transport/verbs/ep.h"

/* Moves endpoints on whose queue pair is being replaced. `empty`: the completion queue was, after
 * the last look at the device. */
void regx_restart_progress(regx_verbs_t *verbs, bool empty);

#endif

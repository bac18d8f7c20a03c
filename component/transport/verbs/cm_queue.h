/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The datagrams that connect endpoints (cm.h), over one UD queue pair, and the queue of endpoints
 * that wait to send one. First come, first served: who is asked in vain goes to the end, and a
 * question that could not be sent does not count. What arrives late or never is asked again, after
 * 20 ms and then ever longer up to 1.3 s, at random within a quarter of that, so that the questions
 * of many processes do not come at once.
 */
#ifndef REGX_VERBS_CM_QUEUE_H
#define REGX_VERBS_CM_QUEUE_H

#include "transport/verbs/ep.h"

/* Makes the UD queue pair. REGX_OK; REGX_UNREACHABLE: `error` holds one line. */
regx_status_t regx_cm_queue_open(regx_verbs_t *verbs, char *error, size_t error_size);
/* Endpoints have ended. */
void regx_cm_queue_close(regx_verbs_t *verbs);

/* Asks the peer, again and again, until regx_cm_stop. An open endpoint asks for a connection, one
 * that has sent goodbye asks the peer to do so, too. */
void regx_cm_ask(regx_ep_t *ep);
/* Answers that our queue pair is connected to the peer's. */
void regx_cm_answer(regx_ep_t *ep);
/* Neither asks nor answers any more. */
void regx_cm_stop(regx_ep_t *ep);
/* Whether the peer has not answered for some ten minutes, or half a minute where connections are
 * bounded. For the end of the job, when peers no longer compute. */
bool regx_cm_is_late(const regx_ep_t *ep);

/* Sends what is due, as far as there is room. */
void regx_cm_queue_progress(regx_verbs_t *verbs);
/* The oldest datagram has gone, or failed. */
void regx_cm_sent(regx_verbs_t *verbs);
/* The queue pair has failed, as Soft-RoCE's does when it is to send while the link is down. With a
 * limit for restarts it is used again, unless somebody has asked and nothing has gone for so long;
 * else nobody can be connected any more. */
void regx_cm_queue_failed(regx_verbs_t *verbs, const char *why);
/* Progress, while it rests (regx_verbs.cm). `empty`: the completion queue was; what has come of
 * this queue pair may stand in it still if the program was away for long. */
void regx_cm_queue_revive(regx_verbs_t *verbs, bool empty);
/* An endpoint ends: destroys its route once no datagram is under way by it, which would break the
 * UD queue pair. */
void regx_cm_drop_route(regx_verbs_t *verbs, struct ibv_ah *route);

#endif

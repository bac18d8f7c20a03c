/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Running receives: doing the work that messages and completions make, and going on with those that
 * wait. Called by the thread that is in the transport's progress, or while progress is kept out (a
 * get's done from disconnect).
 */
#ifndef REGX_RENDEZVOUS_RECV_RUN_H
#define REGX_RENDEZVOUS_RECV_RUN_H

#include "rendezvous/proto.h"

/* A control message of a sender arrived. */
void regx_recv_control(regx_rndv_t *rndv, uint64_t sender, const regx_control_t *control);

/* Takes a receive for this thread; it must be held (recv.h). false: it is CLOSED. */
bool regx_recv_take(regx_rndv_t *rndv, regx_rndv_recv_t *recv);
/* Does the work on work->recv, which this thread has taken, and lets go of it. Goes on with the
 * receive and with those that wait behind it. Tells the owner last if what `work` is of arrived
 * corrupt. */
void regx_recv_run(regx_rndv_t *rndv, regx_recv_work_t *work);

/* Goes on with all receives that wait; returns how many need not wait any more. */
int regx_recvs_advance(regx_rndv_t *rndv);

#endif

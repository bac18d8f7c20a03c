/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Connection management.
 *
 * Whoever wants to send requests a connection of the peer's UD queue pair, which its address names,
 * and asks again until an answer comes: datagrams get lost, and a peer that computes answers only
 * when it calls MPI again, which may be in an hour.
 *
 *   A: request: my queue pair is a                     B connects its b to a
 *   B: accept: mine is b, and it is connected to a     A connects its a to b, and is ready
 *
 * B is ready once it hears a frame of A's, or, if it asks too, A's answer. Both may ask at once;
 * neither order nor repetition changes the outcome, as there is one queue pair per peer.
 *
 * Every queue pair has an epoch, greater than that of those before it in its process. A message
 * names the sender's epoch, and the receiver's that the sender is connected to. So what comes late,
 * of a queue pair that is no more, can be recognised and dropped.
 *
 * Disconnecting. Who leaves sends goodbye by the queue pair, behind what was accepted, and keeps
 * it, since the peer may still send. The peer sends goodbye when it leaves, too. Who has sent
 * goodbye and heard one destroys the queue pair. Who has sent goodbye and wants to send again asks
 * the peer to send goodbye (renew), and then requests a connection by a new queue pair.
 *
 * Room. A connection that is closed because there may be no more is closed by both ends (bound.h).
 *
 * Identity. The source of a datagram, which the device fills in, must be the address that the
 * message gives; where the peer's published address is known here, it must be that.
 */
#ifndef REGX_VERBS_CM_H
#define REGX_VERBS_CM_H

#include "transport/verbs/ep.h"

/* Where a datagram came from. */
typedef struct regx_cm_source {
    uint32_t qpn;
    uint16_t lid;       /* 0: not known */
    const uint8_t *gid; /* NULL: not known */
} regx_cm_source_t;

/* The connection's endpoint, made and asked for if need be. REGX_OK: conn->ep can be used;
 * REGX_AGAIN; REGX_UNREACHABLE: it broke, and callers were notified. */
regx_status_t regx_cm_make_ready(regx_verbs_conn_t *conn);
static inline regx_status_t regx_cm_ready(regx_verbs_conn_t *conn)
{
    const regx_ep_t *ep = conn->ep;

    return ep != NULL && ep->state == REGX_EP_READY && ep->local == REGX_EP_OPEN
               ? REGX_OK
               : regx_cm_make_ready(conn);
}
/* Likewise, for READs and atomic operations. REGX_DENIED: one of the two devices does none. */
static inline regx_status_t regx_cm_ready_to_read(regx_verbs_conn_t *conn)
{
    const regx_status_t status = regx_cm_ready(conn);

    return status == REGX_OK && conn->ep->reads_max == 0 ? REGX_DENIED : status;
}
/* A datagram arrived. */
void regx_cm_receive(regx_verbs_t *verbs, const uint8_t *bytes, size_t length,
                     const regx_cm_source_t *source);
/* The peer is known to be connected to ours. */
void regx_cm_connected(regx_ep_t *ep);
/* The peer sent goodbye. `stays`: for room, and wants us to do so, too (bound.h). */
void regx_cm_left(regx_ep_t *ep, bool stays);
/* We leave: goodbye is sent in progress. */
void regx_cm_leave(regx_ep_t *ep);
/* Progress: sends goodbyes, and deletes endpoints that both have left. When all is closed, also
 * those whose goodbye was acknowledged. */
void regx_cm_progress(regx_verbs_t *verbs);

/* Connections that callers have made, by peer. Any thread. */
void regx_cm_add(regx_verbs_t *verbs, regx_verbs_conn_t *conn);
void regx_cm_remove(regx_verbs_t *verbs, regx_verbs_conn_t *conn);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Connection management: how an endpoint begins and ends. Messages are datagrams over one UD queue
 * pair per port, which the peer's address names. They get lost, and a peer that computes answers
 * only when it calls MPI again, which may be in an hour.
 *
 *      A sends something first                      B
 *      ASKING     --- REQUEST: my queue pair is a -->  connects its b to a
 *                 <-- ACCEPT: b, connected to a ---    ACCEPTED
 *      READY      --- READY: a, connected to b ---->   READY
 *
 *             | caller   | REQUEST      | ACCEPT       | READY, | goodbye | goodbyes | it fails
 *             | sends    |              |              | frame  |         | done     |
 *   ----------+----------+--------------+--------------+--------+---------+----------+---------
 *   (none)    | ASKING   | ACCEPTED     | ASKING (4)   | -      | -       | -        | -
 *   ASKING    | (1)      | ACCEPTED     | READY (3)    | -      | -       | -        | BROKEN
 *   ACCEPTED  | (1)      | (2)          | READY (3)    | READY  | -       | -        | BROKEN
 *   READY     | posted   | -            | (3)          | -      | LEAVING | -        | BROKEN
 *   LEAVING   | AGAIN    | -            | (3)          | -      | LEAVING | LEFT     | BROKEN
 *   LEFT      | AGAIN    | -            | (3)          | -      | LEFT    | (none)   | BROKEN
 *   BROKEN    | (5)      | -            | -            | -      | -       | -        | -
 *
 *   (1) It asks: its message, REQUEST or ACCEPT, goes again and again until the state changes:
 *       after 20 ms, then ever longer up to 1.3 s, at random within a quarter of that, so that the
 *       questions of many processes do not come at once. After some ten minutes callers are told
 *       that the peer is silent. Sends answer REGX_AGAIN.
 *   (2) ACCEPT again, as the first was lost. A message of a newer queue pair of the peer's: what
 *       ours is connected to is no more, and nothing was sent by it. A new endpoint, which is
 *       ASKING, takes its place and hears the message.
 *   (3) Answers READY, each time: the peer is ACCEPTED until it hears so.
 *   (4) The peer is connected to a queue pair of ours that is no more: it took a late REQUEST for
 *       a new one. A new endpoint answers REQUEST: see (2). So does one that is ASKING.
 *   (5) REGX_UNREACHABLE, once the event `broken` was delivered.
 *
 * Crossing requests: both are ASKING, both become ACCEPTED by the other's REQUEST, and READY by the
 * other's ACCEPT. As there is one queue pair per peer, neither order nor repetition changes the
 * outcome.
 *
 * Epochs. Every queue pair has one, greater than that of those before it in its process. A message
 * names the sender's, and the receiver's that the sender is connected to. So what comes late, of a
 * queue pair that is no more, is recognised: in the table, a message counts as ACCEPT or READY for
 * an endpoint that is not ASKING only if both epochs are right.
 *
 * The end. An endpoint that its caller disconnects, or that hears goodbye, is LEAVING: what was
 * accepted is posted, and then goodbye. It is LEFT until all of that has completed and the peer's
 * goodbye has come. A caller that has not disconnected gets a new endpoint with its next send.
 * Before it is READY an endpoint that its caller disconnects stays, without asking, and leaves when
 * it becomes READY. When the transport closes, peers are not waited for: what was accepted
 * completes, and goodbye, unless the peer has left.
 *
 * A BROKEN endpoint is reported, first of all: a caller that hears of a failed put alone may try
 * the same memory in another way. Not so one that leaves, or whose peer has left: it ends in
 * silence. When the queue pair has come to rest it is destroyed, and what was under way ends with
 * REGX_FAILED. The endpoint stays until its caller disconnects, so that the caller does not ask a
 * lost peer again.
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

    return ep != NULL && ep->state == REGX_EP_READY ? REGX_OK : regx_cm_make_ready(conn);
}
/* The same, for READs. REGX_DENIED: one of the two devices does none. */
static inline regx_status_t regx_cm_ready_to_read(regx_verbs_conn_t *conn)
{
    const regx_status_t status = regx_cm_ready(conn);

    return status == REGX_OK && conn->ep->gets.max == 0 ? REGX_DENIED : status;
}
/* Whether the peer may still answer, as far as is known: it has not been asked in vain for some ten
 * minutes, or some seconds after its goodbye. */
bool regx_cm_may_answer(const regx_verbs_conn_t *conn);

/* A datagram arrived. */
void regx_cm_receive(regx_verbs_t *verbs, const uint8_t *bytes, size_t length,
                     const regx_cm_source_t *source);
/* A frame arrived: the peer's queue pair is connected to ours. */
void regx_cm_heard(regx_ep_t *ep);
/* The peer sent goodbye. */
void regx_cm_left(regx_ep_t *ep);
/* We leave. */
void regx_cm_leave(regx_ep_t *ep);
/* Whether the queue pair of a BROKEN endpoint may be destroyed. Where completions of receives are
 * still in the completion queue then, some devices (mlx5) drop them, and the buffers that they took
 * of the shared receive queue would never come back. So the queue pair is first driven to error,
 * which ends what it has taken. The device reports when it takes no more; some do not (Soft-RoCE in
 * older kernels), hence a limit in time of 0.1 s. Once the completion queue was seen empty after
 * that, nothing is left. `empty`: it was, after the last look at the device. */
bool regx_cm_rests(regx_ep_t *ep, bool empty);
/* Destroys the queue pair and frees the endpoint. The device reads and writes nothing for it any
 * more. What was under way or in line is completed with REGX_FAILED first. */
void regx_cm_delete(regx_ep_t *ep);
/* Moves endpoints on that end. `empty` as above. */
void regx_cm_end(regx_verbs_t *verbs, bool empty);

/* Connections that callers have made, by peer. Any thread. */
void regx_cm_add(regx_verbs_t *verbs, regx_verbs_conn_t *conn);
void regx_cm_remove(regx_verbs_t *verbs, regx_verbs_conn_t *conn);

/* Datagrams, and the queue of endpoints that wait to send one: datagram.c. First come, first
 * served: an endpoint that asked in vain goes to the end, and a question that could not be sent
 * does not count. */
/* Makes the UD queue pair. REGX_OK; REGX_UNREACHABLE: `error` holds one line. */
regx_status_t regx_cm_open(regx_verbs_t *verbs, char *error, size_t error_size);
/* Endpoints have ended. */
void regx_cm_close(regx_verbs_t *verbs);
/* Sends the message of the endpoint's state: once, or again and again until regx_cm_stop. */
void regx_cm_answer(regx_ep_t *ep);
void regx_cm_ask(regx_ep_t *ep);
void regx_cm_stop(regx_ep_t *ep);
/* Sends what is due, as far as there is room. */
void regx_cm_ask_due(regx_verbs_t *verbs);
/* The oldest datagram has gone, or failed. */
void regx_cm_sent(regx_verbs_t *verbs);
/* The queue pair of datagrams has failed: nobody can be connected any more. */
void regx_cm_failed(regx_verbs_t *verbs, const char *why);

#endif

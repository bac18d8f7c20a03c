/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A protocol: one way of moving the bytes of a transfer, both sides of it. One file is one
 * protocol; recv.c, recv_run.c and send.c call it through this table and know none by name.
 *
 * Each side asks its protocol for pieces of work, does them without the engine's lock (engine.h),
 * and has the outcome entered into the books.
 */
#ifndef REGX_RENDEZVOUS_PROTO_H
#define REGX_RENDEZVOUS_PROTO_H

#include "rendezvous/recv.h"
#include "rendezvous/send.h"

/* A piece of work on a receive. On the stack of the thread that has taken the receive; it is used
 * again for each next piece. */
typedef struct regx_recv_work regx_recv_work_t;
struct regx_recv_work {
    regx_rndv_recv_t *recv;
    void (*act)(regx_rndv_t *rndv, regx_recv_work_t *work); /* NULL: there is nothing to do */
    void (*acted_locked)(regx_rndv_t *rndv, regx_recv_work_t *work);
    const regx_control_t *control; /* the message that it is of, or NULL */
    regx_chunk_t *chunk;
    regx_status_t status; /* from act to acted_locked */
    unsigned next_chunk;  /* advance_locked's: chunks before this one had their turn */
    int64_t copied_ns;    /* act copied for so long, for auto's trial */
    bool open;            /* of a get: the receive was still open when it completed */
    bool mismatch;        /* act found that what `control` is of arrived corrupt */
};

struct regx_protocol {
    regx_grants_t grants; /* the first ones, in the CTS */
    bool assisted;        /* its gets ask the sender to copy a part */

    /* The receive side. */

    /* Why this path is impossible with that peer, for `fallbacks`; NULL: it is possible. May be
     * NULL. */
    const char *(*obstacle)(const regx_peer_t *peer);
    /* Opens: registers, and fills in the CTS, as far as that needs no lock. Nobody else knows the
     * receive yet. false: it cannot go this way; bounce instead. May be NULL. */
    bool (*recv_open)(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_cts_t *cts);
    /* Fills in the rest of the CTS. May be NULL. */
    void (*first_grant_locked)(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_cts_t *cts);
    /* Takes a message of the sender, other than READY, and sets up the work that it makes. false:
     * the message does not fit what was granted, and has had no effect, on the work neither. */
    bool (*recv_control_locked)(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                const regx_control_t *control, regx_recv_work_t *work);
    /* Grants what can be granted now. true: a piece of work is to be done first, and set up. */
    bool (*advance_locked)(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_recv_work_t *work);
    /* Takes back slots that were granted and not written. */
    void (*revoke_slots_locked)(regx_rndv_t *rndv, regx_rndv_recv_t *recv);
    /* Gives up registrations of a receive that nobody else knows any more. May be NULL. */
    void (*revoke_chunks)(regx_rndv_t *rndv, regx_rndv_recv_t *recv);

    /* The send side. */

    /* Takes what the CTS grants. Nobody else knows the send yet. false: it is malformed. */
    bool (*send_open)(const regx_rndv_t *rndv, regx_rndv_send_t *send, const regx_cts_t *cts);
    /* Takes a message of the receiver, and sets up the work that it makes, if any. false as above.
     */
    bool (*send_control_locked)(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                const regx_control_t *control, regx_send_work_t *work);
    /* Sends control messages that go before all else: REGX_OK, REGX_AGAIN, REGX_UNREACHABLE. May be
     * NULL. */
    regx_status_t (*flush_locked)(regx_rndv_send_t *send);
    /* Chooses the next piece of work. REGX_PENDING: there is none now; REGX_AGAIN: there is, but no
     * memory for it. */
    regx_status_t (*next_locked)(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_work_t *work);
    /* The send has failed: chooses the next thing to give up, as work. false: nothing is left. */
    bool (*drop_locked)(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_work_t *work);
};

/* Whether the receiver reads what the sender lets it. */
static inline bool regx_protocol_reads(const regx_protocol_t *protocol)
{
    return protocol->grants == REGX_GRANTS_RKEYS;
}

#endif

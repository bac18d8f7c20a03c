/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writing what was granted: the send side's queue of grants, and the put of each. Slots and chunks
 * differ in how local memory is prepared and in what a failure means; their protocols say so by a
 * kind.
 *
 * A grant waits in the queue in the order in which it came. A put that finds no room is held, and
 * goes before the queue.
 *
 * A transport may want few writes to a peer at once (put_window in transport.h). Then sends wait,
 * and the end of a write lets progress try them again, in the order in which they began to wait.
 * While others wait for its peer, a send that is under way writes nothing more before it has waited
 * behind them. So a long message does not hold up the others until its end.
 */
#ifndef REGX_RENDEZVOUS_WRITE_H
#define REGX_RENDEZVOUS_WRITE_H

#include "rendezvous/proto.h"

typedef struct regx_grant_kind regx_grant_kind_t;

/* One put of one grant, or of a piece of it. */
struct regx_write {
    regx_put_t put;
    regx_rndv_t *rndv;
    regx_rndv_send_t *send;
    regx_grant_t grant;
    regx_region_t region; /* of local memory, if `registered` */
    bool registered;
    bool suspect;            /* local memory may be unmapped: a slot's bytes go by way of `copy` */
    bool permanent;          /* NACK: so is what follows, for this peer */
    bool failed;             /* NACK: perhaps because the buffer is unmapped */
    void *copy;              /* owned; NULL: none */
    regx_status_t status;    /* how the put ended */
    unsigned restarts;       /* the send's when it began */
    struct regx_write *next; /* among the NACKs to be sent */
};

struct regx_grant_kind {
    bool chunk; /* a chunk of the peer's buffer, which may go in pieces; else a slot of its pool */
    /* Makes local memory ready to be put from; may change put.local and set put.region. Called by
     * the thread that has taken the send, without the lock. */
    regx_status_t (*prepare)(regx_rndv_t *rndv, regx_write_t *write);
    /* The bytes were not written. true: the record is kept by the kind. */
    bool (*unsent_locked)(regx_rndv_t *rndv, regx_write_t *write, regx_status_t status);
};

/* Whether grants of `length` bytes from `offset` on fit this transfer: they lie inside it, are not
 * more than there is still to be granted, and `count` more find room in the queue. */
bool regx_write_may_grant(const regx_rndv_send_t *send, uint64_t offset, uint64_t length,
                          unsigned count);
/* Appends a grant that fits. */
void regx_write_grant(regx_rndv_send_t *send, const regx_grant_t *grant);
/* Takes from the queue what is left of a chunk of which the piece up to that offset was the last to
 * be taken; returns how many bytes. */
uint64_t regx_write_take_rest(regx_rndv_send_t *send, uint64_t offset);

/* As next_locked of the protocol: the held put, or the next grant. */
regx_status_t regx_write_next_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                     regx_send_work_t *work);
/* As drop_locked of the protocol: empties the queue and gives up the held put. */
bool regx_write_drop_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_work_t *work);

/* Registers the put's local memory; answers as regx_region_acquire. It is released with the put. */
regx_status_t regx_write_register(regx_rndv_t *rndv, regx_write_t *write);

#endif

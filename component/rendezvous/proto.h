/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A protocol: one way of moving the bytes of a transfer, both sides of it. One file is one
 * protocol; recv.c, recv_progress.c and send.c call it through this table and know none by name.
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
struct regx_recv_work {
    regx_rndv_recv_t *recv;
    void (*act)(regx_rndv_t *rndv, regx_recv_work_t *work); /* NULL: there is nothing to do */
    void (*acted_locked)(regx_rndv_t *rndv, regx_recv_work_t *work);
    const regx_control_t *control; /* the message that it is of, or NULL */
    regx_chunk_t *chunk;
    regx_status_t status; /* from act to acted_locked */
    unsigned next_chunk;  /* advance_locked's: chunks before this one had their turn */
    bool open;            /* of a get: the receive was still open when it completed */
    bool mismatch;        /* act found that what `control` is of arrived corrupt */
};

struct regx_protocol {
    regx_grants_t grants; /* the first ones, in the CTS */

    /* The receive side. */

    /* Opens: registers, and fills in the CTS, as far as that needs no lock. No other thread knows
     * the receive yet. false: it cannot go this way; bounce instead. May be NULL. */
    bool (*recv_open)(regx_rndv_t *rndv, regx_rndv_recv_t *recv);
    /* Fills in the rest of the CTS. May be NULL. */
    void (*first_grant_locked)(regx_rndv_t *rndv, regx_rndv_recv_t *recv);
    /* Takes a message of the sender, other than READY, and sets up the work that it makes. false:
     * the message does not fit what was granted, and has had no effect, on the work neither. */
    bool (*recv_control_locked)(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                const regx_control_t *control, regx_recv_work_t *work);
    /* Grants what can be granted now. true: a piece of work is to be done first, and set up. */
    bool (*advance_locked)(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_recv_work_t *work);
    /* Gives up registrations of a receive that no other thread knows any more. May be NULL. */
    void (*revoke_chunks)(regx_rndv_t *rndv, regx_rndv_recv_t *recv);

    /* The send side. */

    /* Takes what the CTS grants. No other thread knows the send yet. false: it is malformed. */
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

/* `auto` chooses; each other has the path of its name. */
extern const regx_strategy_t regx_strategy_auto;
#define REGX_STRATEGY_DECLARED(name, help) extern const regx_strategy_t regx_strategy_##name;
REGX_RENDEZVOUS_PATHS(REGX_STRATEGY_DECLARED)
#undef REGX_STRATEGY_DECLARED

/* The strategy that always takes that path; NULL: none does. */
const regx_strategy_t *regx_strategy_of_path(regx_path_t path);

/* ---- what protocols use of each other; types of functions as above ---- */

/* bounce.c: what a chunk could not carry goes by slots, whatever the path. */

/* Takes ATP_SLOT. */
bool regx_bounce_recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                     const regx_control_t *control, regx_recv_work_t *work);
/* Grants slots until everything is granted, a message found no room, the peer's window is full (a
 * notice opens it), or the pool is empty. Makes no work: answers false. */
bool regx_bounce_advance_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_recv_work_t *work);

/* Takes CTS_SLOTS. */
bool regx_bounce_send_control_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                     const regx_control_t *control, regx_send_work_t *work);

/* put.c: how chunks are granted and acknowledged, and all of its send side, which remap shares. */

/* Grants the first chunk, whose length, start and region are set. */
void regx_put_fill_cts(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_chunk_t *chunk);
/* Takes the next chunk, of that length, for the caller to give it a start and a region (work->act).
 * false: there is none to be granted now. */
bool regx_put_take_chunk_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_recv_work_t *work,
                                uint64_t length);
/* The granted chunk of which that acknowledgement, positive or not, is the next; NULL: it is none,
 * or of no chunk. */
regx_chunk_t *regx_put_find_granted(const regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                    const regx_control_t *control);
/* As acted_locked: the chunk has been written, or is to go by slots. */
void regx_put_acknowledged_locked(regx_rndv_t *rndv, regx_recv_work_t *work);

bool regx_put_send_open(const regx_rndv_t *rndv, regx_rndv_send_t *send, const regx_cts_t *cts);
/* Takes CTS_CHUNK and CTS_SLOTS. */
bool regx_put_send_control_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                  const regx_control_t *control, regx_send_work_t *work);
regx_status_t regx_put_next_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                   regx_send_work_t *work);
regx_status_t regx_put_flush_locked(regx_rndv_send_t *send);
bool regx_put_drop_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_work_t *work);

/* revoke.c: what was granted is acknowledged, and granted anew. First the receive side. */

/* Whether what this receive grants is granted anew when its memory changes: that was asked for,
 * changes are reported, and it is not given up. */
static inline bool regx_revoke_is_on(const regx_rndv_recv_t *recv)
{
    return recv->revoke.state == REGX_REVOKE_ON_CHANGE;
}

/* From now on the memory of that receive is watched. No other thread knows it yet. Nothing is
 * granted before. Where changes are not reported, grants are final, which is counted. */
void regx_revoke_recv_open(regx_rndv_t *rndv, regx_rndv_recv_t *recv);
/* A chunk was not written. true: it is granted again; false: it goes by slots. */
bool regx_revoke_nacked_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                               const regx_control_t *nack);
/* Takes DIFFERS, as recv_control_locked. */
bool regx_revoke_recv_control_locked(const regx_rndv_recv_t *recv, const regx_control_t *control,
                                     regx_recv_work_t *work);
/* Looks at all whose memory is watched. From progress only. */
void regx_revokes_advance(regx_rndv_t *rndv);

/* And the send side. */

/* Takes REVOKE, RESUME and ARRIVED, as send_control_locked. */
bool regx_revoke_send_control_locked(regx_rndv_send_t *send, const regx_control_t *control,
                                     regx_send_work_t *work);
/* Sends DIFFERS, which is due. As next_locked. */
regx_status_t regx_revoke_answer_locked(regx_rndv_send_t *send);

/* auto.c: which path moves messages of that size fastest. */

void regx_auto_init(regx_autotune_t tunes[REGX_AUTO_SIZES], regx_auto_wire_t wire);
/* A message of that length is opened. It is to be left. */
regx_trial_t regx_auto_enter(regx_autotune_t tunes[REGX_AUTO_SIZES], uint64_t length);
/* It is closed. went: all of it arrived, by the path that it was to go. Does nothing for a message
 * that has no part. */
void regx_auto_leave(const regx_trial_t *trial, uint64_t length, bool went);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The receive side of one rendezvous: one record per outstanding receive. It needs no slot to
 * exist. Its phases:
 *
 *   OPENED     ──READY, or another message of the sender──▶ STARTED
 *   OPENED     ──it is to be read──▶ READING ──it cannot be read──▶ OPENED, on a node with another CTS
 *   STARTED    ──a change, a failed write──▶ RESTARTING
 *   RESTARTING ──all is acknowledged, and the memory is there: RESUME──▶ STARTED
 *   STARTED    ──all has landed, and could have been restarted──▶ ARRIVED
 *   ARRIVED    ──DIFFERS──▶ RESTARTING
 *   any        ──the peer is gone──▶ LOST
 *   any        ──the MPI closes it, as a rule once all is there──▶ CLOSED
 *
 * By stages (engine.h):
 *
 *   ATP of a slot         ─▶ COPY_OUT
 *   a chunk to be granted ─▶ GRANT ──CTS_CHUNK, the peer writes, ATP or NACK──▶ ACKNOWLEDGE
 *   memory has changed, all has landed, or all is acknowledged ─▶ LOOK
 *   DIFFERS               ─▶ FLUSH
 *
 * Bytes that a chunk could not carry go by slots: the peer did not acknowledge it, or it could not
 * be registered.
 */
#ifndef REGX_RENDEZVOUS_RECV_H
#define REGX_RENDEZVOUS_RECV_H

#include "rendezvous/buffer.h"
#include "rendezvous/engine.h"

/* How many grants of one transfer may be under way, of both kinds together. Also the length of the
 * send side's queue. */
#define REGX_GRANTS_MAX 64u

/* A chunk of the user's buffer that is registered on its own.
 *
 *   FREE ─▶ GRANTED ─ATP─▶ FREE
 *             └─────NACK─▶ BY_SLOTS ─▶ FREE */
typedef enum regx_chunk_state {
    REGX_CHUNK_FREE,
    REGX_CHUNK_GRANTED, /* registered; the peer may write it */
    REGX_CHUNK_BY_SLOTS /* not registered; [offset, offset + length) is to be granted as slots */
} regx_chunk_state_t;

typedef struct regx_chunk {
    regx_chunk_state_t state;
    uint64_t offset;
    uint64_t length;
    uint64_t written;             /* GRANTED: bytes from the offset on that were acknowledged */
    uint64_t start;               /* where in the region it begins */
    regx_region_t region;         /* valid while registered */
    struct regx_landing *landing; /* GRANTED by remap: where it is written; owned */
} regx_chunk_t;

typedef enum regx_recv_phase {
    /* The CTS is on its way, perhaps with an empty first grant. */
    REGX_RECV_OPENED,
    /* It is read whole from what its sender exposed (exposed.c): there is no CTS on its way, and no
     * message of the sender is for it. */
    REGX_RECV_READING,
    /* The sender has shown itself: grants follow as bytes land, until all of `length` is granted. */
    REGX_RECV_STARTED,
    /* Nothing is granted until all that was granted is acknowledged, and the memory is there again
     * (revoke.c). */
    REGX_RECV_RESTARTING,
    /* All has landed, and the sender was notified (revoke.c). */
    REGX_RECV_ARRIVED,
    /* Nothing lands any more, and nothing is granted. */
    REGX_RECV_LOST,
    /* The record stays while a get is under way, and while the closing thread gives up what it
     * holds. */
    REGX_RECV_CLOSED
} regx_recv_phase_t;

/* When what is granted is revoked. */
typedef enum regx_revoke_state {
    REGX_REVOKE_NEVER,
    REGX_REVOKE_ON_CHANGE, /* of its memory */
    REGX_REVOKE_GIVEN_UP   /* no longer: it took too long, or was too often */
} regx_revoke_state_t;

/* Of a receive whose grants may be revoked (revoke.c). */
typedef struct regx_revocable {
    regx_revoke_state_t state;
    regx_watch_t watch; /* of the buffer; for the thread that works on the receive */
    uint64_t from;      /* RESTARTING: the lowest offset that changed, or did not land */
    uint64_t lowest;    /* lowest offset ever resumed from: from there on a checksum has to agree */
    unsigned times;     /* how often it was restarted, or a checksum did not agree */
    unsigned failures;  /* writes that failed */
    struct {            /* until memory is there, or changes are certain to be reported */
        const char *reason;        /* NULL: it does not wait */
        unsigned looks;            /* how many were in vain */
        int64_t since;             /* when it began to wait, in ns */
        unsigned unreported_looks; /* in a row: changes of the memory there are not reported */
        int64_t unreported_since;
        int64_t next; /* when another look is worth while, in ns */
    } wait;
} regx_revocable_t;

struct regx_rndv_recv {
    regx_cts_t cts; /* first: it is what the owner ships; cts.recv is its own handle */
    regx_rndv_t *rndv;
    regx_link_t link;     /* in one of the engine's lists of receives, or in none */
    regx_handle_t sender; /* the send side; known once STARTED */
    regx_peer_t *peer;
    struct {
        char *base;
        uint64_t length;
        bool suspect; /* a chunk failed: perhaps it is unmapped; copy fault-safely */
    } buffer;
    const regx_protocol_t *protocol;
    regx_path_t path;
    regx_recv_phase_t phase;
    bool busy;      /* a thread works on it; see engine.h */
    regx_why_t why; /* it goes by that path */
    bool corrupt;   /* a checksum differed, or bytes were lost, and that was noted */
    struct {
        unsigned out;       /* granted and not acknowledged */
        size_t bytes;       /* in those */
        bool only;          /* what is not yet granted goes by slots */
        bool used;          /* some bytes came by slots */
        bool lone;          /* the peer had nothing else to send when the first slot was granted */
        bool waits_for_own; /* it has to wait until some of its own slots are filled: slots of
                               others do not help. As found when it was last served */
    } slots;
    uint64_t granted;     /* nothing from this offset on has been granted */
    uint64_t landed;      /* bytes */
    unsigned chunks_out;  /* chunks granted and not acknowledged */
    unsigned holds;       /* its get, and the closing thread: they keep a closed record */
    regx_outbox_t outbox; /* a grant, and REVOKE behind it */

    /* What only some need: */
    regx_trial_t trial;      /* by the strategy auto: its part in the choice */
    uint32_t drain;          /* with btl_regx_inuse drain: the mark of its memory (monitor.h) */
    regx_revocable_t revoke; /* with btl_regx_grant */
    bool may_be_longer;      /* than the user's buffer: ob1 has a message read as a whole */
    struct {                 /* READING (exposed.c) */
        regx_get_t get;
        regx_region_t region; /* over an RDMA device: what get.region is of */
        bool has_checksum;    /* the sender has made one */
        uint64_t checksum;
        regx_rndv_got_t done;
        void *context;
    } whole;

    regx_chunk_t chunks[]; /* config.chunk_depth of them, and behind them the outbox's messages */
};

static inline regx_rndv_recv_t *regx_recv_of_link(regx_link_t *link)
{
    return REGX_CONTAINER_OF(link, regx_rndv_recv_t, link);
}

/* Whether the send ends with ARRIVED: its grants may be revoked, or could be until that was given
 * up. */
static inline bool regx_recv_ends_by_arrived(const regx_rndv_recv_t *recv)
{
    return recv->revoke.state != REGX_REVOKE_NEVER;
}

/* The first chunk in that state; NULL: none is. */
regx_chunk_t *regx_recv_chunk_find(const regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                   regx_chunk_state_t state);

/* Registers a chunk, of which offset and length are set, for that access. A refusal is tallied. The
 * calling thread works on the receive, or no other thread knows it yet. */
regx_status_t regx_recv_register(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_chunk_t *chunk,
                                 unsigned access);

/* Enters where in its region, which is of the user's memory, the chunk begins. */
static inline void regx_recv_set_start(const regx_rndv_recv_t *recv, regx_chunk_t *chunk)
{
    chunk->start =
        (uint64_t)(recv->buffer.base + chunk->offset - (const char *)chunk->region.mr->base);
}

/* Compares what arrived with the message's checksum, if it has one. The first time in this transfer
 * that it differs, what of it is corrupt, and by which path, is noted for the owner. The calling
 * thread works on the receive, or that is READING. */
void regx_recv_verify(regx_rndv_t *rndv, regx_rndv_recv_t *recv, const regx_control_t *control,
                      regx_path_t path);
/* Notes for the owner that of the message's bytes some could not be brought to the user's buffer,
 * and what that lacks (buffer.h). */
void regx_recv_note_lost_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                const regx_control_t *control, const char *lacks);
/* Tells the owner what was noted, if anything, once the message has been dealt with. */
void regx_recv_report(regx_rndv_t *rndv, const regx_peer_t *peer);

/* Enters in the CTS all that grant_first has not, once, before it is shipped. */
void regx_recv_complete_cts_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv);
/* Begins another CTS, for a receive that is OPENED and of which the first was not shipped: by slots,
 * because it could not be read. failed: perhaps the memory at either end is gone. */
void regx_recv_open_again_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, bool failed);

/* A range that is still to be granted as slots. */
typedef struct regx_slot_range {
    regx_chunk_t *chunk; /* that is BY_SLOTS; NULL: the tail of the transfer */
    uint64_t offset, length;
} regx_slot_range_t;

/* The first such range. false: there is none. */
bool regx_recv_slot_range_locked(const regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                 regx_slot_range_t *range);

/* A slot that it was granted has been written, or is taken back. */
void regx_recv_release_slot_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, uint32_t slot);

/* Gives back the record of a closed receive, unless it is held. */
void regx_recv_free_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv);

/* The peer is gone: its receives are LOST. Progress is kept out. */
void regx_recvs_forget(regx_rndv_t *rndv, const regx_peer_t *peer);

/* ---- serve.c: doing the stages that messages and completions make, and going on with the receives
 * that wait. Called by the thread that is in the transport's progress, or while progress
 * is kept out (a get's done from disconnect). ---- */

/* A control message of a sender arrived. */
void regx_recv_control(regx_rndv_t *rndv, uint64_t sender, const regx_control_t *control);

/* Does the stage of step->recv, on which this thread works, and lets go of it. Goes on with the
 * receive and with those that wait behind it. Tells the owner last if what the step is of arrived
 * corrupt. */
void regx_recv_run(regx_rndv_t *rndv, regx_step_t *step);

/* Goes on with all receives that wait; returns how many need not wait any more. */
int regx_recvs_advance(regx_rndv_t *rndv);

/* ---- protocols, ways of moving the bytes of a transfer. One file is one protocol. recv.c,
 * serve.c and send.c call it through this table and know none by name. What is granted the send side
 * writes itself, slots and chunks. ---- */

struct regx_protocol {
    regx_grants_t grants; /* the first ones, in the CTS */

    /* Registers what the CTS is to grant, and enters it there. No other thread knows the receive
     * yet. false: it cannot go this way; bounce instead. NULL: nothing is registered for a CTS. */
    bool (*grant_first)(regx_rndv_t *rndv, regx_rndv_recv_t *recv);
    /* Enters in the CTS what is granted without registering anything. May be NULL. */
    void (*grant_first_locked)(regx_rndv_t *rndv, regx_rndv_recv_t *recv);
    /* Takes a message of the sender, other than READY, and sets up its stage. false: the message
     * does not fit what was granted, and has had no effect, on the step neither. */
    bool (*recv_control_locked)(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                const regx_control_t *control, regx_step_t *step);
    /* Grants what can be granted now, or sets up a stage that is to be done first. */
    void (*recv_next_locked)(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_step_t *step);
    /* Gives up registrations of a receive that no other thread knows any more. May be NULL. */
    void (*give_up_chunks)(regx_rndv_t *rndv, regx_rndv_recv_t *recv);

    /* Takes what the CTS of a send grants. No other thread knows the send yet. false: malformed. */
    bool (*send_take_cts)(regx_rndv_send_t *send, const regx_cts_t *cts);
    /* Takes a message of the receiver, and sets up its stage, if it makes any. false: the message
     * does not fit, and has had no effect. */
    bool (*send_control_locked)(regx_rndv_send_t *send, const regx_control_t *control,
                                regx_step_t *step);
};

/* bounce.c: what a chunk could not carry goes by slots, whatever the path. */

extern const regx_protocol_t regx_protocol_bounce;

/* Takes ATP_SLOT. */
bool regx_bounce_recv_control_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                                     const regx_control_t *control, regx_step_t *step);
/* Grants slots until everything is granted, a message found no room, the peer holds as much as it
 * may (until it reports a filled slot), or the pool is empty. Sets up no stage. */
void regx_bounce_recv_next_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_step_t *step);
/* Takes CTS_SLOTS. */
bool regx_bounce_send_control_locked(regx_rndv_send_t *send, const regx_control_t *control,
                                     regx_step_t *step);

/* revoke.c: what was granted is acknowledged, and granted anew. */

/* Whether what this receive grants is granted anew when its memory changes: that was asked for,
 * changes are reported, and it is not given up. */
static inline bool regx_revoke_is_on(const regx_rndv_recv_t *recv)
{
    return recv->revoke.state == REGX_REVOKE_ON_CHANGE;
}

/* Progress looks at all whose memory is watched, soon. */
static inline void regx_revoke_set_due(regx_rndv_t *rndv)
{
    atomic_store_explicit(&rndv->watched.looks_due, true, memory_order_relaxed);
}

/* From now on the memory of that receive is watched. No other thread knows it yet. Nothing is
 * granted before. Where changes are not reported, grants are final, which is counted. */
void regx_revoke_recv_open(regx_rndv_t *rndv, regx_rndv_recv_t *recv);
/* What was granted from that offset on did not get to the buffer: the write of a chunk failed, or it
 * was not written while the transfer is RESTARTING; or a slot's bytes could not be copied. true: it is
 * granted again. */
bool regx_revoke_lost_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, uint64_t offset);
/* Takes DIFFERS, as recv_control_locked. */
bool regx_revoke_recv_control_locked(const regx_rndv_recv_t *recv, const regx_control_t *control,
                                     regx_step_t *step);
/* Takes REVOKE, RESUME and ARRIVED, as send_control_locked. */
bool regx_revoke_send_control_locked(regx_rndv_send_t *send, const regx_control_t *control,
                                     regx_step_t *step);
/* Looks at all whose memory is watched. From progress only. */
void regx_revokes_advance(regx_rndv_t *rndv);

#endif

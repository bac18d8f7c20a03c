/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The send side of one rendezvous. It does what it is granted:
 *
 *   opened ─▶ READY, unless the CTS grants all ─▶ works through its grants, in their order ─▶
 *   all is sent, or it has failed, and nothing is in flight ─▶ done callback ─▶ freed
 *
 * By stages (engine.h):
 *
 *   a slot, or a chunk    ─▶ WRITE ──the put ends, with ATP behind it──▶ WRITTEN; or NACK, of a chunk
 *   it finds no room      ─▶ held, then WRITE again
 *   the send has failed   ─▶ WRITTEN, of the put that is held; no NACK
 *   ARRIVED with checksum ─▶ COMPARE ─▶ it ends, or DIFFERS
 *   nothing is left       ─▶ END
 *
 * One thread at a time works on a send (`busy`). It finds the grants that arrive meanwhile.
 */
#ifndef REGX_RENDEZVOUS_SEND_H
#define REGX_RENDEZVOUS_SEND_H

#include <assert.h>

#include "rendezvous/recv.h"

typedef struct regx_write regx_write_t;

/* A range that may be written, or a part of it. */
typedef struct regx_grant {
    uint64_t offset;
    uint64_t length;
    bool chunk;             /* of the peer's buffer; else a slot of its pool */
    bool part;              /* of a chunk that is split: its other parts follow */
    uint64_t target_offset; /* where to write it, in the peer's pool, or its region */
    regx_key_t key;         /* of the region */
} regx_grant_t;

/* How the receiver gets the send's handle, which it needs to grant more. */
typedef enum regx_intro {
    REGX_INTRO_BY_NEXT,   /* with the next message */
    REGX_INTRO_READY_DUE, /* by READY, before anything else */
    REGX_INTRO_DONE       /* it knows, or need not */
} regx_intro_t;

/* Whether the receiver has to agree before the send ends (revoke.c):
 *
 *   DUE     ──REVOKE: chunks that are not begun are NACKed──▶ DUE
 *   DUE     ──RESUME──▶ DUE
 *   DUE     ──ARRIVED──▶ REACHED
 *   DUE     ──ARRIVED, with a checksum──▶ PROVING ──it is the same──▶ REACHED
 *   PROVING ──it is another: DIFFERS──▶ DUE */
typedef enum regx_agreement {
    REGX_AGREEMENT_NOT_NEEDED,
    REGX_AGREEMENT_DUE,     /* by ARRIVED */
    REGX_AGREEMENT_PROVING, /* ARRIVED came, with a checksum that is being compared */
    REGX_AGREEMENT_REACHED
} regx_agreement_t;

/* Where its peer's transport wants few writes at once (put_inflight_max; send.c says who goes first):
 *
 *   NOT_WAITING ──others were first, or enough is under way──▶ WAITS ──progress tries it──▶ ITS_TURN
 *
 * The next time that a stage is chosen, ITS_TURN has passed: the send writes, or WAITS again. */
typedef enum regx_limit {
    REGX_LIMIT_NOT_WAITING,
    REGX_LIMIT_WAITS, /* for writes to the peer to end; it counts in peer->waiting */
    REGX_LIMIT_ITS_TURN
} regx_limit_t;

#define REGX_SEND_MESSAGES (REGX_GRANTS_MAX + 2) /* READY, one for each grant, and DIFFERS */

struct regx_rndv_send {
    regx_link_t link; /* in one of the engine's lists of sends, or in none */
    regx_rndv_t *rndv;
    regx_handle_t handle;
    regx_handle_t recv; /* the receive side */
    regx_peer_t *peer;
    struct {
        const char *base;
        uint64_t length;
        bool suspect; /* a chunk failed: perhaps it is unmapped; copy fault-safely */
        bool gone;    /* and a part of it is: the send has failed */
    } buffer;
    struct { /* who opened it */
        regx_rndv_send_done_t done;
        void *context;
    } owner;
    const regx_protocol_t *protocol;
    regx_path_t path;
    regx_intro_t intro;
    regx_status_t status; /* REGX_OK; else nothing more is sent, and it ends when nothing is in
                           * flight: REGX_UNREACHABLE if the peer is gone, or REGX_FAILED */
    struct {
        regx_agreement_t state;
        unsigned restarts; /* times that RESUME came: identifies writes granted before */
        uint64_t rewound;  /* bytes sent that RESUME discarded: length + rewound are sent in all */
        uint64_t offset;   /* PROVING: from which on the checksum is */
        uint64_t checksum; /* PROVING */
    } agreement;
    bool busy;      /* a thread works on it; see engine.h */
    regx_why_t why; /* it goes as it does; a fallback, if only some bytes do */
    bool verify;    /* ATP carries a checksum */
    regx_limit_t limit;
    struct {
        uint64_t granted; /* without those given back */
        uint64_t sent;    /* ATP was accepted */
        uint64_t slots;   /* those of them that went through slots */
    } bytes;
    uint32_t drain;      /* its memory, held (registration/monitor/monitor.h) */
    unsigned in_flight;  /* writes, with the held one */
    uint64_t chunk_size; /* of the first, which the CTS granted; the last may be shorter; or 0 */
    regx_write_t *held;  /* found no room: goes before the queue */
    regx_outbox_t outbox;
    struct {
        unsigned first, count;
        regx_grant_t grants[REGX_GRANTS_MAX]; /* from here on nothing is cleared */
    } queue;
    regx_control_t messages[REGX_SEND_MESSAGES]; /* of the outbox */
};

/* A message from this send to its receiver, with nothing but the header filled in. */
static inline regx_control_t regx_send_message(const regx_rndv_send_t *send,
                                               regx_control_type_t type)
{
    return (regx_control_t){.type = type, .to = send->recv, .from = send->handle};
}

/* Nothing more is sent. REGX_UNREACHABLE: the peer is gone, which no later failure changes. */
static inline void regx_send_fail_locked(regx_rndv_send_t *send, regx_status_t status)
{
    if (send->status != REGX_UNREACHABLE) {
        send->status = status == REGX_UNREACHABLE ? REGX_UNREACHABLE : REGX_FAILED;
    }
}

/* Sends the message, or keeps it; not if the send has failed, when perhaps there is no connection any
 * more. No honest peer makes more of them than there is room for. */
static inline void regx_send_post_locked(regx_rndv_send_t *send, const regx_control_t *message)
{
    if (send->outbox.count == send->outbox.room) {
        regx_send_fail_locked(send, REGX_FAILED);
    }
    if (send->status == REGX_OK) {
        regx_control_post(send->peer->conn, &send->outbox, message);
    }
}

/* A control message of a receiver arrived. */
void regx_send_control(regx_rndv_t *rndv, uint64_t sender, const regx_control_t *control);

/* Goes on with all sends that found no room. */
void regx_sends_advance(regx_rndv_t *rndv);
/* The peer is gone: its sends fail. Progress is kept out. */
void regx_sends_forget(regx_rndv_t *rndv, const regx_peer_t *peer);

/* ---- grants that are not yet written, in the order in which they came ---- */

/* Whether grants of `length` bytes from `offset` on fit this transfer: they lie inside it, are not
 * more than there is still to be granted, and `count` more find room in the queue. */
static inline bool regx_send_may_grant(const regx_rndv_send_t *send, uint64_t offset,
                                       uint64_t length, unsigned count)
{
    return length > 0 && regx_within(offset, length, send->buffer.length) &&
           length <= send->buffer.length - send->bytes.granted &&
           send->queue.count + count <= REGX_GRANTS_MAX;
}

/* Tells the receiver that these bytes, of a chunk and not in the queue, are not written. `bits`: of NACK. */
void regx_send_nack_locked(regx_rndv_send_t *send, uint64_t offset, uint64_t length, uint8_t bits);

/* Appends a grant that fits. */
static inline void regx_send_grant(regx_rndv_send_t *send, const regx_grant_t *grant)
{
    send->queue.grants[(send->queue.first + send->queue.count++) % REGX_GRANTS_MAX] = *grant;
    send->bytes.granted += grant->length;
    assert(send->queue.count <= REGX_GRANTS_MAX && send->bytes.granted <= send->buffer.length);
}

/* The first; of no meaning where the queue is empty. */
static inline regx_grant_t *regx_send_first_grant(regx_rndv_send_t *send)
{
    return &send->queue.grants[send->queue.first];
}

static inline void regx_send_drop_grant(regx_rndv_send_t *send)
{
    send->queue.first = (send->queue.first + 1) % REGX_GRANTS_MAX;
    send->queue.count--;
}

/* One put of one grant, or of a part of it. */
struct regx_write {
    regx_put_t put; /* `done` is NULL until it is prepared */
    regx_rndv_send_t *send;
    regx_grant_t grant;
    regx_region_t region; /* of local memory, if `registered` */
    bool registered;
    bool suspect;      /* local memory may be unmapped: a slot's bytes go by way of `copy` */
    void *copy;        /* owned; NULL: none */
    unsigned restarts; /* the send's when it began */
};

/* ---- early.c ---- */

/* An RTS goes to that peer, and its CTS is awaited. Meanwhile progress registers what the CTS will
 * probably grant: the first chunk. */
void regx_rndv_expect(regx_rndv_t *rndv, const regx_peer_t *peer, const void *base, size_t length);
/* Registers it, unless that was done. */
void regx_early_register(regx_rndv_t *rndv);
/* For the send's next grant: what was registered early for it, or else a new record. NULL: no memory. */
regx_write_t *regx_write_take_locked(regx_rndv_send_t *send);
/* Registers what the put of a chunk is of, unless that was done early. REGX_FAILED: it is not there;
 * REGX_NO_MEMORY: it cannot be registered otherwise. */
regx_status_t regx_write_register(regx_rndv_t *rndv, regx_write_t *write);

#endif

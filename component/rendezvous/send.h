/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The send side of one rendezvous. It does what it is granted:
 *
 *   opened ─▶ READY, unless the CTS grants all ─▶ works through its grants, in their order ─▶
 *   all is sent, or it has failed, and nothing is in flight ─▶ done callback ─▶ freed
 *
 *   a slot    is written at once, and ATP follows (bounce.c)
 *   a chunk   is registered here and written; ATP follows, or NACK if it cannot be (put.c)
 *   to be got: chunks are registered and advertised by RKEY, and given up at ATS (get.c)
 *
 * One thread at a time works on a send (`taken`). Grants that arrive meanwhile are found by it.
 */
#ifndef REGX_RENDEZVOUS_SEND_H
#define REGX_RENDEZVOUS_SEND_H

#include "rendezvous/engine.h"
#include "rendezvous/recv.h"

typedef struct regx_write regx_write_t;
typedef struct regx_rkey regx_rkey_t; /* get.c: a chunk that is advertised */

/* A piece of work on a send (engine.h). `object` is the work's own. */
typedef struct regx_send_work {
    /* Answers for acted_locked. After REGX_PENDING the object belongs to the thread that completes
     * it. NULL: there is nothing to do. */
    regx_status_t (*act)(regx_rndv_t *rndv, void *object);
    /* REGX_OK: the send may go on. REGX_AGAIN: it found no room. */
    regx_status_t (*acted_locked)(regx_rndv_t *rndv, regx_rndv_send_t *send, void *object,
                                  regx_status_t status);
    void *object;
} regx_send_work_t;

/* A range that may be written, or a part of it. */
typedef struct regx_grant {
    uint64_t offset;
    uint64_t length;
    const struct regx_grant_kind *kind; /* a slot or a chunk */
    bool piece;                         /* of a chunk */
    uint64_t place;                     /* where to write it: in the peer's pool, or its region */
    regx_key_t key;                     /* of the region */
} regx_grant_t;

/* How the receiver gets the send's handle, which it needs to grant more. */
typedef enum regx_intro {
    REGX_INTRO_BY_NEXT,   /* with the next message */
    REGX_INTRO_READY_DUE, /* READY is to be sent before anything else */
    REGX_INTRO_DONE       /* it knows, or need not */
} regx_intro_t;

/* What becomes of the bytes that are to be advertised and are not yet (read, together). */
typedef enum regx_advertising {
    REGX_ADVERTISING_OVER,
    REGX_ADVERTISING,
    REGX_ADVERTISING_NACK_DUE /* over; the receiver is to be notified, so that they go by slots */
} regx_advertising_t;

/* Whether the receiver has to agree before the send ends (drawn in revoke.c). */
typedef enum regx_agreement {
    REGX_AGREEMENT_NOT_NEEDED,
    REGX_AGREEMENT_DUE,     /* by ARRIVED */
    REGX_AGREEMENT_REVOKED, /* REVOKE came: until RESUME no chunk is begun, but NACKed */
    REGX_AGREEMENT_PROVING, /* ARRIVED came, with a checksum that is being compared */
    REGX_AGREEMENT_DIFFERS, /* it is another one here: DIFFERS is to be sent */
    REGX_AGREEMENT_THERE
} regx_agreement_t;

struct regx_rndv_send {
    regx_link_t link; /* in one of the engine's lists of sends, or in none */
    regx_handle_t handle;
    regx_handle_t recv; /* the receive side */
    regx_peer_t *peer;
    const char *base;
    uint64_t length;
    regx_rndv_send_done_t done;
    void *context;
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
    bool taken;
    bool fallback;       /* some bytes do not go by the path that was asked for */
    bool verify;         /* ATP and RKEY carry a checksum */
    bool buffer_suspect; /* a chunk failed: perhaps the buffer is unmapped; copy fault-safely */
    struct {
        bool waits;  /* for writes to the peer to end: see write.c */
        bool waited; /* it has waited, and progress has come to it: it is its turn */
    } window;
    struct {
        uint64_t granted; /* or to be advertised, without those given back */
        uint64_t sent;    /* ATP was accepted, or they were acknowledged by ATS */
        uint64_t slots;   /* those of them that went through slots */
    } bytes;
    uint32_t drain;     /* its memory, held (registration/monitor/monitor.h) */
    unsigned in_flight; /* writes, with the held one, and chunks that are advertised */
    struct {
        uint64_t size;      /* of the first that was granted; the last may be shorter */
        uint64_t piece_max; /* how much of a granted one is written at once */
    } chunk;
    struct {
        regx_write_t *held;  /* found no room: goes before the queue */
        regx_write_t *nacks; /* to be sent */
        regx_write_t *spare; /* a record to be used again, also by the next transfer */
    } writes;
    struct { /* read, together */
        regx_advertising_t state;
        bool never;          /* nothing of this process can be read by the peer */
        uint64_t max;        /* bytes of a chunk */
        unsigned depth;      /* chunks at once */
        unsigned count;      /* now */
        uint64_t next;       /* what lies before this offset was advertised */
        regx_rkey_t *rkeys;  /* those that are not yet acknowledged */
        regx_rkey_t *unsent; /* the one of them whose RKEY is to be sent */
    } get;
    struct {
        unsigned first, count;
        regx_grant_t grants[REGX_GRANTS_MAX]; /* last: it is not cleared */
    } queue;
};

/* A message from this send to its receiver, with nothing but the header filled in. */
regx_control_t regx_send_message(const regx_rndv_send_t *send, regx_control_type_t type);

/* Nothing more is sent. REGX_UNREACHABLE: the peer is gone, which no later failure changes. */
void regx_send_fail_locked(regx_rndv_send_t *send, regx_status_t status);

/* Does a piece of work that a message or a completion made, and goes on with the send unless
 * another thread does. May end it: then the done callback is called last. */
void regx_send_run(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_work_t work);

/* A control message of a receiver arrived. */
void regx_send_control(regx_rndv_t *rndv, uint64_t sender, const regx_control_t *control);

/* Goes on with all sends that found no room; returns how many had a turn. */
int regx_sends_advance(regx_rndv_t *rndv);
/* The peer is gone: its sends fail. Progress is kept out. */
void regx_sends_forget(regx_rndv_t *rndv, const regx_peer_t *peer);
/* Frees the records on the free list. */
void regx_sends_free(regx_rndv_t *rndv);

/* ---- write.c: the queue of grants, and the put of each ---- */

typedef struct regx_grant_kind regx_grant_kind_t;

/* One put of one grant, or of a piece of it. */
struct regx_write {
    regx_put_t put;
    regx_rndv_t *rndv;
    regx_rndv_send_t *send;
    regx_grant_t grant;
    regx_region_t region; /* of local memory, if `registered` */
    bool registered;
    bool prepared;           /* the put is filled in */
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

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * onesided/ puts to and gets from memory that another process has offered, and does atomic
 * operations on it: what windows of MPI are made of.
 *
 * A put or a get between two processes of a node is one copy by the kernel, done before the call
 * returns. All else is done by the target, which the origin asks by a message: it goes on while the
 * target is inside an MPI call. Its processor does atomic operations, in order with its own atomic
 * instructions on the same bytes.
 *
 * A put is done when its bytes can be seen at the target. Operations are not in order among each
 * other: a caller that needs an order waits for done.
 *
 * Nothing that a peer sends is trusted: a request is done only inside a window that is offered, an
 * answer counts only for a request that is open and from the peer that was asked. What does not fit
 * is counted as malformed. A peer has at most REGX_ONESIDED_ASKED requests open; what a process
 * asks beyond that waits here. Memory per peer that has asked for something: 3.6 KB.
 *
 * Messages of a process that is not among the peers are dropped. No operation waits for them: both
 * ends know each other before Open MPI makes a window over them, and a peer is forgotten only after
 * the window was freed.
 *
 * Any thread may call. deliver is called from the transport's progress only, progress from the
 * BTL's, complete outside of both. The layer's lock is as the rendezvous engine's: a connection's
 * may be taken under it. Done callbacks are called without it, from complete and forget.
 */
#ifndef REGX_ONESIDED_ONESIDED_H
#define REGX_ONESIDED_ONESIDED_H

#include "base/handle_table.h"
#include "base/list.h"
#include "base/thread.h"
#include "transport/transport.h"

/* ---- what is sent ---- */

/* All ranks run the same build: structures go as they are.
 *
 * The name of a window is shipped to its peers by Open MPI. A message is a frame with the tag
 * REGX_TAG_ONESIDED: its header, and of PUT and of the ANSWER to a GET the bytes, to the end of
 * the frame. What its type does not need is zero. The last piece of a put and an atomic operation
 * are answered once, a get as often as its bytes take.
 */

#define REGX_ONESIDED_NAME 254u /* no rendezvous' handle has that there */
#define REGX_ONESIDED_NAME_SIZE 32
#define REGX_TAG_ONESIDED 0x29 /* of the tags that Open MPI keeps for BTLs, one that none uses */
#define REGX_ONESIDED_HEADER 48
#define REGX_ONESIDED_VERSION 4

typedef enum regx_onesided_type {
    REGX_ONESIDED_PUT = 1,
    REGX_ONESIDED_GET,
    REGX_ONESIDED_ATOMIC,
    REGX_ONESIDED_ANSWER,
    REGX_ONESIDED_TYPES
} regx_onesided_type_t;

/* Only operations are here that come out alike for signed and unsigned numbers. */
typedef enum regx_onesided_op {
    REGX_ONESIDED_ADD,
    REGX_ONESIDED_AND,
    REGX_ONESIDED_OR,
    REGX_ONESIDED_XOR,
    REGX_ONESIDED_SWAP,
    REGX_ONESIDED_COMPARE_SWAP, /* writes the operand if what is there is `compare` */
    REGX_ONESIDED_OPS
} regx_onesided_op_t;

/* It is as trustworthy as the peer that gave it. */
typedef struct regx_onesided_name {
    uint8_t version, kind; /* kind: REGX_ONESIDED_NAME */
    uint16_t zero;
    regx_handle_t handle;
    uint32_t by_target; /* 1: the kernel is not to put, since the program pages the memory */
    uint64_t base;      /* address of the first byte */
    uint64_t length;
} regx_onesided_name_t;

typedef struct regx_onesided_message {
    uint8_t version;       /* REGX_ONESIDED_VERSION */
    uint8_t type;          /* regx_onesided_type_t */
    uint8_t detail;        /* PUT: 1, the last piece; ATOMIC: the operation; ANSWER: 1, refused */
    uint8_t size;          /* ATOMIC: bytes of the number, 4 or 8 */
    regx_handle_t request; /* the origin's */
    regx_handle_t window;  /* the target's */
    uint32_t zero;
    uint64_t address; /* in the target */
    /* GET: length; ATOMIC: operand, of 4 bytes the lower half; ANSWER to a GET: offset in what was
     * asked for, else what was there before. */
    uint64_t value;
    uint64_t compare; /* ATOMIC: what to compare with in the same way */
    /* Not in the header. */
    const void *data; /* of one that arrived: what follows the header in the frame */
    size_t data_length;
} regx_onesided_message_t;

_Static_assert(sizeof(regx_onesided_name_t) == REGX_ONESIDED_NAME_SIZE, "no padding");
_Static_assert(offsetof(regx_onesided_message_t, data) == REGX_ONESIDED_HEADER, "no padding");

/* Whether the bytes lie inside a range of `all` bytes at `base`. */
static inline bool regx_onesided_holds(uint64_t base, uint64_t all, uint64_t address,
                                       uint64_t length)
{
    return address >= base && regx_within(address - base, length, all);
}

/* ---- the layer ---- */

#define REGX_ONESIDED_ASKED 64u     /* requests that a peer may have open */
#define REGX_ONESIDED_PENDING 4096u /* requests beyond which puts and gets are refused */
#define REGX_ONESIDED_BURST 16u     /* frames to a peer at a time: the lock is held for as long */

typedef struct regx_onesided regx_onesided_t;

typedef struct regx_onesided_config {
    bool threads;
    regx_counters_t *counters;
    /* Raised by one for each peer for which progress has something to do; the caller of progress
     * looks at it. */
    _Atomic unsigned *waiting;
    /* How many requests have ended whose done complete has to call. */
    _Atomic unsigned *ended;
    /* There is no memory to answer this peer with, which will wait for ever. */
    void (*unanswered)(void *context, uint64_t peer);
    void *context;
} regx_onesided_config_t;

/* Memory that is offered. The caller's, from offer to withdraw. */
typedef struct regx_onesided_window {
    char *base;
    size_t length;
    regx_handle_t handle;
} regx_onesided_window_t;

struct regx_onesided_answers; /* onesided.c */

/* A process at the other end. Part of the BTL's endpoint. The fields are the layer's. */
typedef struct regx_onesided_peer {
    regx_conn_t *conn;
    struct regx_onesided_peer *next;       /* in its bucket */
    regx_link_t waiting;                   /* requests that are not sent, or not all of them */
    regx_link_t running;                   /* requests that are sent and not answered */
    unsigned asked;                        /* requests that the peer has seen something of */
    regx_link_t blocked;                   /* among those for which progress has something to do */
    struct regx_onesided_answers *answers; /* to the peer's requests; NULL: it never asked */
} regx_onesided_peer_t;

/* What is asked of a peer. The caller fills the first part and keeps all of it until done. */
typedef struct regx_onesided_request {
    regx_onesided_type_t type; /* PUT, GET or ATOMIC */
    regx_handle_t window;      /* of the peer's */
    uint64_t address;          /* in the peer, inside the window */
    void *local;               /* PUT, GET */
    size_t length;             /* PUT, GET: bytes */
    regx_onesided_op_t op;     /* ATOMIC, as what follows */
    size_t size;               /* bytes of the number, 4 or 8 */
    uint64_t operand;
    uint64_t compare; /* COMPARE_SWAP */
    uint64_t result;  /* set before done: what was there before */
    /* Called once, after ask answered REGX_PENDING. It may call progress. REGX_OK; REGX_INVALID:
     * the peer answers that there is no such window; REGX_UNREACHABLE: the peer was forgotten
     * before it answered. */
    void (*done)(struct regx_onesided_request *request, regx_status_t status);
    /* The layer's: */
    regx_onesided_peer_t *peer;
    regx_handle_t handle;
    regx_link_t link;
    size_t moved;         /* bytes sent or received */
    bool seen;            /* the peer has seen something of it */
    regx_status_t status; /* once it has ended */
} regx_onesided_request_t;

/* NULL: no memory. */
regx_onesided_t *regx_onesided_create(const regx_onesided_config_t *config);
/* All peers are forgotten. NULL: nothing. */
void regx_onesided_destroy(regx_onesided_t *onesided);

/* Fills the peer, and serves it from now on. The connection lives until it is forgotten. */
void regx_onesided_add(regx_onesided_t *onesided, regx_onesided_peer_t *peer, regx_conn_t *conn);
/* Ends what is open with the peer; then it may be freed. No other thread is inside a done of the
 * peer's: Open MPI gives a process up after it has freed the windows. */
void regx_onesided_forget(regx_onesided_t *onesided, regx_onesided_peer_t *peer);

/* Offers memory to all peers, and says by what name; length may be 0. by_target: this process is to make
 * the puts itself. false: no memory. */
bool regx_onesided_offer(regx_onesided_t *onesided, regx_onesided_window_t *window, void *base,
                         size_t length, bool by_target, uint8_t name[REGX_ONESIDED_NAME_SIZE]);
/* When it returns, no message of a peer touches the memory any more. What peers have the kernel
 * copy is theirs to end before. */
void regx_onesided_withdraw(regx_onesided_t *onesided, const regx_onesided_window_t *window);

/* A put or a get that the kernel makes at once. false: the peer has to be asked. */
bool regx_onesided_copy(regx_onesided_t *onesided, const regx_onesided_peer_t *peer,
                        regx_onesided_type_t type, void *local, uint64_t address, size_t length);

/* Asks the peer. REGX_PENDING: done will be called, perhaps before this returns on another thread;
 * REGX_AGAIN: a put or get, and REGX_ONESIDED_PENDING requests are open, or ended and not yet done;
 * REGX_NO_MEMORY. */
regx_status_t regx_onesided_ask(regx_onesided_t *onesided, regx_onesided_peer_t *peer,
                                regx_onesided_request_t *request);

/* A frame with REGX_TAG_ONESIDED. */
void regx_onesided_deliver(regx_onesided_t *onesided, uint64_t sender, const void *data,
                           size_t length);

/* Sends what waits for room, but REGX_ONESIDED_BURST frames a peer at most. Returns for how many
 * peers something went. */
int regx_onesided_progress(regx_onesided_t *onesided);

/* Calls done of the peer's requests that have ended, or of all (NULL). A done may wait for an
 * operation by calling progress, so this is called where progress can be entered, and may be called
 * again from inside. */
void regx_onesided_complete(regx_onesided_t *onesided, const regx_onesided_peer_t *peer);

#define REGX_ONESIDED_BUCKETS 64u /* a power of two */

struct regx_onesided {
    regx_onesided_config_t config;
    regx_lock_t lock; /* of all that follows, and of the peers */
    regx_handle_table_t windows;
    regx_handle_table_t requests;
    unsigned pending; /* requests, until done is called */
    regx_link_t blocked;
    regx_link_t ended;                                    /* requests whose done is to be called */
    regx_onesided_peer_t *buckets[REGX_ONESIDED_BUCKETS]; /* by the last bits of the id */
};

#endif

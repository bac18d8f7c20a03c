/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The state of one rendezvous engine, which the files of rendezvous/ share.
 *
 * Locking. The engine's lock guards everything in regx_rndv_t that is not atomic, and every field
 * of receives and sends that another thread may look at. A function named ..._locked is called with
 * the lock held, returns with it held and never lets go of it in between. All others are called
 * without it, but a few that end in ..._and_unlock. A function named regx_stage_... is called
 * without it and returns with it held. Names: regx_rndv_... is called by the owner (btl/);
 * regx_recv_..., regx_send_... and regx_stage_... by files of this layer.
 *
 * What takes long is done without the lock: copying, registering, putting, getting. So each such
 * stage has three parts: it is chosen under the lock, done without it, and its result is recorded
 * under the lock again. Meanwhile the receive or send is `busy`: one thread works on it. What other
 * threads queue for a busy send, that thread finds when it chooses the next stage. Only progress works
 * on receives, so the only thread that can find one busy is one that closes it; it waits.
 *
 * Who uses whom, top to bottom; a file calls downwards only:
 *
 *   dispatch.c                     the tables of strategies and stages; creates, dispatches
 *   exposed.c                      a whole message, read without a CTS
 *   put.c                          registered chunks, written by the sender
 *   bounce.c                       slots, which also carry what a chunk could not
 *   revoke.c                       what was granted is acknowledged, and granted anew
 *   send.c; serve.c, recv.c        what all protocols have in common: the send side, which writes what
 *                                  it is granted, slots and chunks; the receive side
 *   early.c                        the record of a put, and its memory registered: of a first chunk
 *                                  before the CTS comes
 *   auto.c                         chooses a path
 *   tuner.c                        finds out which is the fastest
 *   control.c                      control messages, queued where there is no room
 *   landing.c                      pages that are moved to the user (remap)
 *   buffer.c                       the user's memory, which may be gone
 */
#ifndef REGX_RENDEZVOUS_ENGINE_H
#define REGX_RENDEZVOUS_ENGINE_H

#include <stdlib.h>

#include "base/list.h"
#include "registration/monitor/uffd.h"
#include "rendezvous/landing.h"

typedef struct regx_protocol regx_protocol_t; /* recv.h */
typedef struct regx_rndv_send regx_rndv_send_t;

/* ---- stages: what a thread that works on a transfer does next ---- */

/* Each is a function of the same name, regx_stage_... (dispatch.c has the table). send.h and recv.h
 * draw what leads from one to the other. */
typedef enum regx_stage {
    REGX_STAGE_NONE, /* nothing, until a message, a completion or progress goes on */

    /* The send side. send.c: */
    REGX_STAGE_WRITE, /* prepares the put of a grant, and hands it to the transport with its ATP */
    REGX_STAGE_WRITTEN, /* a put has ended, or is not made again: gives up local memory, and counts,
                           or sends NACK if the send goes on */
    REGX_STAGE_END,     /* calls `done`; the record is free already, and the lock is not taken */
    /* revoke.c: */
    REGX_STAGE_COMPARE, /* ARRIVED has come with a checksum: compares, and sends DIFFERS if it is
                           another */

    /* The receive side. put.c: */
    REGX_STAGE_GRANT,       /* registers a chunk, and grants it; or it goes by slots */
    REGX_STAGE_ACKNOWLEDGE, /* ATP or NACK of a chunk has come, and its registration is given up. ATP:
                               counts its bytes. NACK: they go by slots, or are granted anew */
    /* bounce.c: */
    REGX_STAGE_COPY_OUT, /* ATP of a slot has come: copies it to the user, and gives it up */
    /* revoke.c: */
    REGX_STAGE_LOOK,  /* looks at memory that is watched: restarts, resumes or ends the transfer */
    REGX_STAGE_FLUSH, /* DIFFERS has come: what was registered meanwhile is given up; restarts */
    REGX_STAGE_COUNT
} regx_stage_t;

/* A stage that is to be done, and of what. On the stack of the thread that does it, which uses it
 * again for each stage that follows. */
typedef struct regx_step {
    regx_stage_t stage;
    regx_status_t status; /* WRITTEN, END: how the put or the send ended */
    /* The send side's. */
    regx_rndv_send_t *send;
    struct regx_write *write;   /* WRITE, WRITTEN */
    regx_rndv_send_done_t done; /* END */
    void *context;              /* END */
    bool news; /* a message or a completion caused this step: another thread may be working on the
                  send, and this one does not */
    /* The receive side's. */
    regx_rndv_recv_t *recv;        /* NULL: this thread works on none */
    struct regx_chunk *chunk;      /* GRANT, ACKNOWLEDGE */
    struct regx_look *look;        /* LOOK */
    const regx_control_t *control; /* the message that the stage is of, or NULL */
} regx_step_t;

/* Does a stage. The answer is about a send that this thread works on. REGX_OK: it may go on;
 * REGX_AGAIN: something found no room. The answer of a receive's stage is ignored, and so is that of
 * a send's if `news` is set. */
typedef regx_status_t regx_stage_do_t(regx_rndv_t *rndv, regx_step_t *step);

regx_stage_do_t regx_stage_write, regx_stage_written, regx_stage_compare, regx_stage_grant,
    regx_stage_acknowledge, regx_stage_copy_out, regx_stage_look, regx_stage_flush;

/* Whom a slot of the pool is granted to. */
typedef struct regx_slot_use {
    regx_rndv_recv_t *recv; /* NULL: it is free */
    uint64_t offset;        /* in the transfer */
    uint32_t length;
} regx_slot_use_t;

/* Whether the program receives into the same buffers again (auto.c). */
typedef struct regx_reuse {
    unsigned credit; /* new buffers that are registered */
    unsigned passed; /* new buffers without credit, since one was registered */
} regx_reuse_t;

/* ---- records of one kind that are used again. Under the engine's lock. ---- */

typedef struct regx_spares {
    struct regx_spare {
        struct regx_spare *next;
    } * first; /* in the memory of the records */
    unsigned count;
} regx_spares_t;

/* More are freed. Windows of 64 messages with 16 peers find all that they need. */
#define REGX_SPARES_MAX 1024u

/* NULL: there is none. */
static inline void *regx_spares_take(regx_spares_t *spares)
{
    struct regx_spare *spare = spares->first;

    if (spare != NULL) {
        spares->first = spare->next;
        spares->count--;
    }
    return spare;
}

static inline void regx_spares_give(regx_spares_t *spares, void *record)
{
    struct regx_spare *spare = record;

    if (spares->count == REGX_SPARES_MAX) {
        free(record);
        return;
    }
    spare->next = spares->first;
    spares->first = spare;
    spares->count++;
}

#define REGX_RNDV_KNOWN 64u /* receive buffers that are remembered */

/* One that no userfaultfd of the program's watches. */
typedef struct regx_unpaged {
    uintptr_t start, end;
} regx_unpaged_t;

struct regx_rndv {
    regx_rndv_work_t work; /* first: regx_rndv_is_idle looks at it */
    regx_rndv_config_t config;
    regx_pool_t *pool;
    regx_registry_t *registry;
    regx_counters_t *counters;
    unsigned send_access;                /* what chunks of send buffers are registered for */
    const regx_strategy_t *const *paths; /* by path: its strategy; NULL: it has none */
    regx_stage_do_t *const *stages;      /* by stage */
    regx_paging_t paging;                /* where the kernel copies to a node's other processes */
    regx_lock_t lock;
    regx_handle_table_t recvs, sends;
    regx_peer_t nobody;     /* the peer of receives whose peer has gone */
    regx_slot_use_t *slots; /* one per slot of the pool */
    size_t window;          /* pool bytes that one peer may hold granted */
    struct {
        regx_autotune_t sizes[REGX_AUTO_WIRES][REGX_AUTO_SIZES];
        regx_reuse_t reuse;
    } tuner;                /* of `auto` */
    struct {                /* what arrived corrupt or not at all, for the owner (recv.h) */
        _Atomic bool noted; /* there is something */
        bool may_be_longer; /* as the owner's callback says */
        char text[384];
    } lost;
    regx_landings_t landings; /* of the path remap; has a lock of its own */
    struct {
        regx_link_t pending; /* they wait for slots or could not send, oldest first */
        regx_link_t round;   /* of these: those that progress has not yet looked at */
    } recv_lists;
    struct {
        regx_link_t stalled; /* they found no room */
        regx_link_t round;   /* those of them that progress has not yet looked at */
    } send_lists;
    struct {
        regx_spares_t recvs, sends, writes;
    } spares;
    struct { /* the first chunk of a message whose CTS is awaited (early.c). It needs no lock, since
                it is used only in processes with one thread */
        struct regx_write *write; /* NULL: none */
        const regx_peer_t *peer;
        size_t length; /* of the message */
    } early;
    struct {
        uint64_t seen;          /* the head of the monitor's log at the last look */
        _Atomic bool looks_due; /* look in the next round, even if the log has not moved */
    } watched;                  /* memory of receives (revoke.c) */
    _Atomic bool whole_refused; /* a known buffer could not be registered whole at this end; no
                                    other is tried any more */
    _Atomic uintptr_t ends[REGX_RNDV_KNOWN]; /* where memory was found (exposed.c) */
    regx_unpaged_t unpaged[REGX_RNDV_KNOWN]; /* under the lock (recv.c) */
    _Atomic unsigned exposed;                /* messages that peers may read now */
    _Atomic unsigned refusals;               /* of registrations, so far; see buffer.c */
};

/* Something could not go the way that was asked for, and goes another way. */
static inline void regx_fall_back(const regx_rndv_t *rndv, const char *reason)
{
    regx_tally(rndv->counters->fallbacks, reason);
    regx_trace(rndv->config.trace, REGX_TRACE_PATH, "fallback: %s", reason);
}

/* `auto` chooses; each other has the path of its name. */
extern const regx_strategy_t regx_strategy_auto;
#define REGX_STRATEGY_DECLARED(name, help) extern const regx_strategy_t regx_strategy_##name;
REGX_RENDEZVOUS_PATHS(REGX_STRATEGY_DECLARED)
#undef REGX_STRATEGY_DECLARED

/* auto.c: which path moves messages of that size fastest (tuner.h). */

/* A message of that length is opened. It is to be left (regx_tune_leave). */
regx_trial_t regx_auto_enter(regx_autotune_t tunes[REGX_AUTO_SIZES], uint64_t length);

#endif

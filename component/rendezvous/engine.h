/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The state of one rendezvous engine, which the files of rendezvous/ share.
 *
 * Locking. The engine's lock guards everything in regx_rndv_t that is not atomic, and every field
 * of receives and sends that another thread may look at. A function named ..._locked is called with
 * the lock held, returns with it held and never lets go of it in between. All others are called
 * without it.
 *
 * What takes long is done without the lock: copying, registering, putting, getting. So each such
 * step is a piece of work (proto.h) in three parts: chosen under the lock, done without it, and
 * entered into the books under it again. Meanwhile the receive or send is `taken` by the thread
 * that works on it. No other thread works on it then; what arrives for it is found by the one that
 * does.
 *
 * Who uses whom, top to bottom; a file calls downwards only:
 *
 *   engine.c                       creates, dispatches
 *   params.c, auto_choice.c        what users may set
 *   strategy.c                     the table of strategies, and the protocol of each path
 *   auto.c                         chooses a path
 *   exposed.c                      a whole message, read without a CTS
 *   remap.c                        chunks that are written elsewhere and moved to the user
 *   together.c                     as get.c, and the sender copies a part
 *   put.c; get.c, advertise.c      registered chunks: written by the sender; read by the receiver
 *   bounce.c                       slots, which also carry what a chunk could not
 *   revoke.c                       what was granted is acknowledged, and granted anew
 *   write.c                        one put of one granted range, slot or chunk
 *   send.c; recv_run.c, recv.c     what all protocols have in common, per side
 *   channel.c                      control messages to a peer, queued where there is no room
 *   proof.c                        checksums of memory that may be gone
 *   immediate.c, control.c, autotune.c, refusal.c, reuse.c, checksum.c, safe_copy.c, landing.c
 */
#ifndef REGX_RENDEZVOUS_ENGINE_H
#define REGX_RENDEZVOUS_ENGINE_H

#include "base/handle_table.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/trace.h"
#include "rendezvous/autotune.h"
#include "rendezvous/landing.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/reuse.h"

typedef struct regx_protocol regx_protocol_t; /* proto.h */
typedef struct regx_rndv_send regx_rndv_send_t;

/* Whom a slot of the pool is granted to. */
typedef struct regx_slot_use {
    regx_rndv_recv_t *recv; /* NULL: nobody */
    uint64_t offset;        /* in the transfer */
    uint32_t length;
} regx_slot_use_t;

/* Why `auto` chose a path. */
typedef enum regx_decision {
    REGX_DECISION_REFUSED,
    REGX_DECISION_PINNED,
    REGX_DECISION_NEW,
    REGX_DECISION_PRIOR,
    REGX_DECISION_TRIAL,
    REGX_DECISION_WINNER,
    REGX_DECISIONS
} regx_decision_t;

/* Between what `auto` chooses: both processes map the pool, or they do not. */
typedef enum regx_auto_wire { REGX_AUTO_NODE, REGX_AUTO_APART, REGX_AUTO_WIRES } regx_auto_wire_t;

struct regx_rndv {
    regx_rndv_work_t work; /* first: regx_rndv_is_idle looks at it */
    regx_rndv_config_t config;
    regx_pool_t *pool;
    regx_registry_t *registry;
    regx_counters_t *counters;
    unsigned send_access; /* what chunks of send buffers are registered for */
    const regx_protocol_t *protocols[REGX_PATH_COUNT]; /* NULL where a path has none */
    regx_lock_t lock;
    pthread_cond_t let_go; /* a receive that somebody waits to close is not taken any more */
    unsigned closers;      /* how many wait for that */
    regx_handle_table_t recvs, sends;
    regx_peer_t nobody;     /* the peer of receives whose peer has gone */
    regx_slot_use_t *slots; /* one per slot of the pool */
    size_t page;            /* bytes of a page of memory */
    size_t window;          /* pool bytes that one peer may hold granted */
    regx_autotune_t autotune[REGX_AUTO_WIRES][REGX_AUTOTUNE_SIZES]; /* of `auto` */
    regx_reuse_t reuse;                                             /* likewise */
    regx_tally_t *_Atomic auto_tally[REGX_DECISIONS][REGX_PATH_COUNT];
    regx_landings_t landings;    /* of the path remap; has a lock of its own */
    regx_link_t pending_recvs;   /* receives that wait for slots or could not send, oldest first */
    regx_link_t revocable_recvs; /* receives whose memory is watched (revoke.h) */
    regx_link_t revocable_round; /* those of them that progress has not yet looked at */
    uint64_t watched_until;      /* the head of the monitor's log when they were last looked at */
    _Atomic bool looks_due;      /* they are to be looked at without news from there, too */
    regx_link_t recv_round;      /* of pending_recvs: those that progress has not yet looked at */
    regx_link_t stalled_sends;   /* sends that found no room */
    regx_link_t send_round;      /* those of them that progress has not yet looked at */
    regx_link_t free_recvs;      /* records to be used again */
    regx_link_t free_sends;
    _Atomic bool whole_refused; /* a known buffer could not be registered whole at this end; no
                                    other is tried any more */
    _Atomic unsigned exposed;   /* registered buffers, now */
    _Atomic unsigned refusals;  /* of registrations, so far; see refusal.h */
};

/* A peer's message does not fit what it was granted. */
static inline void regx_malformed(regx_rndv_t *rndv)
{
    regx_count(rndv->counters, &rndv->counters->malformed, 1);
}

/* Something could not go the way that was asked for, and goes another way. */
static inline void regx_fall_back(const regx_rndv_t *rndv, const char *reason)
{
    regx_tally(rndv->counters->fallbacks, reason);
    regx_trace(rndv->config.trace, REGX_TRACE_PATH, "fallback: %s", reason);
}

#endif

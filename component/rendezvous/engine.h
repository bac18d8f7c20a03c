/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of rendezvous/ share. Functions named …_locked are called with the engine's lock
 * held; `busy` says that one thread is working on an object outside the lock, so that no other
 * starts to and that closing waits (for one slot's copy or one registration, no more).
 */
#ifndef REGX_RENDEZVOUS_ENGINE_H
#define REGX_RENDEZVOUS_ENGINE_H

#include "base/handle_table.h"
#include "base/list.h"
#include "base/lock.h"
#include "rendezvous/contest.h"
#include "rendezvous/rendezvous.h"

typedef struct regx_slot_use { /* to whom a slot is granted */
    regx_landing_t *landing;   /* NULL: to nobody */
    uint64_t offset;
    uint32_t length;
} regx_slot_use_t;

/* Why `auto` chose as it did; a trial's and a winner's by the way (contest.h). */
enum {
    REGX_DECISION_APART,
    REGX_DECISION_REFUSED,
    REGX_DECISION_UNKNOWN,
    REGX_DECISION_TRIAL,
    REGX_DECISION_WINNER = REGX_DECISION_TRIAL + REGX_WAYS,
    REGX_DECISIONS = REGX_DECISION_WINNER + REGX_WAYS
};

struct regx_rndv {
    regx_rndv_config_t config;
    regx_pool_t *pool;
    regx_registry_t *registry;
    regx_counters_t *counters;
    regx_lock_t lock;
    regx_handle_table_t landings, sources;
    regx_peer_t nobody;                          /* the peer of landings whose peer has gone */
    regx_slot_use_t *slots;                      /* one per slot of the pool */
    size_t window;                               /* pool bytes that one peer may hold granted */
    regx_contest_t contests[REGX_CONTEST_SIZES]; /* of `auto` */
    regx_tally_t *_Atomic auto_tally[REGX_DECISIONS];
    regx_link_t hungry;  /* landings that wait for slots or could not send, oldest first */
    regx_link_t round;   /* those of them not yet looked at in this round of advancing */
    regx_link_t stalled; /* sources that could not send */
    regx_link_t unused;  /* landings to be opened again */
    regx_link_t unused_sources;
    /* Whether progress should look at the lists: set by what no notice will wake. */
    _Atomic bool retry_landings, retry_sources;
    _Atomic bool whole_refused; /* a known buffer could not be registered whole: none is any more,
                                   at either end */
    _Atomic unsigned refusals;  /* of registrations, so far; see refusal.h */
    _Atomic bool dry;           /* some landing found the pool empty: look when it is not */
};

/* Waits until no thread works on the object outside the lock; the lock is held on both sides. */
static inline void regx_wait_idle_locked(regx_rndv_t *rndv, const bool *busy)
{
    while (*busy) {
        regx_unlock(&rndv->lock);
        regx_lock(&rndv->lock);
    }
}

/* Says that a frame will follow in a moment. */
static inline void regx_peer_warm(const regx_peer_t *peer)
{
    const regx_transport_ops_t *ops = peer->conn->transport->ops;

    if (ops->warm != NULL) {
        ops->warm(peer->conn);
    }
}

static inline void regx_malformed(regx_rndv_t *rndv)
{
    regx_count(rndv->counters, &rndv->counters->malformed, 1);
}

/* Whether a buffer that is longer than a chunk has been used before: registered as a whole, or at
 * its beginning, so that it is worth to register the whole. The latter not where memory did not
 * suffice for one: each time, what is kept would be given up for it. Not locked. */
bool regx_rndv_knows(const regx_rndv_t *rndv, const void *base, uint64_t length, unsigned access);

/* Sends a control message; the engine's lock may be held. Answers as the transport's send. */
regx_status_t regx_control_send(regx_peer_t *peer, const regx_control_t *control);

/* The addressees of control messages. */
void regx_landing_control(regx_rndv_t *rndv, uint64_t sender, const regx_control_t *control);
void regx_source_control(regx_rndv_t *rndv, uint64_t sender, const regx_control_t *control);

/* Goes on with all landings or sources that wait. */
int regx_landings_advance(regx_rndv_t *rndv);
int regx_sources_advance(regx_rndv_t *rndv);
/* Frees the records kept for use. */
void regx_landings_free(regx_rndv_t *rndv);
void regx_sources_free(regx_rndv_t *rndv);
void regx_sources_forget(regx_rndv_t *rndv, const regx_peer_t *peer);
void regx_landings_forget(regx_rndv_t *rndv, const regx_peer_t *peer);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The source: the sending end of one rendezvous.
 *
 *   opened ──START, unless the CTS grants all──▶ runs through its grants, in their order:
 *     a slot: written at once, WRITTEN follows; nothing is registered for it, but what is already
 *     is written from there
 *     a chunk: local memory registered, put; DONE follows, or REFUSED if it cannot be. One that
 *     is longer than chunks are here, of memory that is new to this process, goes in pieces of
 *     that size, as many at once as chunks may be; each is DONE, or the rest REFUSED
 *   sent == length and nothing in flight ──▶ done callback ──▶ freed
 *
 * On the path read there are no chunks but its own, on the path together they follow the one that
 * it was granted: in their order and as many at once as the CTS says, registered, EXPOSED, and
 * given up once the landing tells that it GOT them. What cannot be registered, or was not got, ends
 * that: the rest is REFUSED, and goes by slots.
 *
 * One thread at a time runs a source (`busy`); grants that arrive meanwhile are found by it.
 */
#ifndef REGX_RENDEZVOUS_SOURCE_H
#define REGX_RENDEZVOUS_SOURCE_H

#include "rendezvous/landing.h"

typedef struct regx_source regx_source_t;
typedef struct regx_put_op regx_put_op_t;     /* a grant being used; source.c */
typedef struct regx_exposure regx_exposure_t; /* source_exposures.c */

typedef struct regx_grant {
    uint64_t offset;
    uint64_t length;
    bool chunk;     /* else a slot */
    bool piece;     /* of a chunk */
    uint64_t place; /* where it is to be written: in the peer's pool, or its region */
    regx_key_t key; /* of the region */
} regx_grant_t;

struct regx_source {
    regx_link_t link; /* in the engine's list of stalled sources, or the free list */
    regx_handle_t name;
    regx_handle_t landing;
    regx_peer_t *peer;
    const char *base;
    uint64_t length;
    regx_source_done_t done;
    void *context;
    regx_path_t path;
    bool fallback;
    bool verify;  /* notices carry a checksum */
    bool careful; /* a chunk was not registered, or not written: is the buffer still there? */
    bool busy;
    bool start_due;          /* START is to be sent */
    bool introduced;         /* the landing knows the source, or need not; or a notice is to be
                              * put, or refused, before anything else, which tells it */
    bool failed;             /* nothing more is sent; ends when nothing is in flight */
    uint64_t sent;           /* bytes whose notice was accepted */
    uint64_t sent_slots;     /* those of them that went through slots */
    uint64_t granted;        /* bytes granted, or to be exposed, and not refused */
    unsigned in_flight;      /* puts, the held one too, and exposures */
    uint64_t chunk_size;     /* of the first that was granted; the last may be shorter */
    uint64_t piece_most;     /* of a granted chunk, at once */
    unsigned first, count;   /* of the queue */
    regx_put_op_t *held;     /* found no room: goes before the queue */
    regx_put_op_t *refusals; /* to be sent */
    regx_put_op_t *spare;    /* to be used again, also by the next transfer */
    /* read, together: */
    uint64_t expose_most;       /* bytes at once; 0: nothing more is exposed */
    unsigned expose_depth;      /* chunks at once */
    bool never_exposes;         /* nothing can be registered for it */
    unsigned exposed_count;     /* now */
    uint64_t exposed;           /* what is before this offset was exposed */
    regx_exposure_t *exposures; /* those that are not yet got */
    regx_exposure_t *untold;    /* the one of them that the landing does not know of */
    bool rest_due;              /* REFUSED is to be sent, for what was not exposed */
    bool gone;                  /* nothing comes from the peer any more */
    regx_grant_t queue[REGX_GRANTS_MAX];
};

regx_control_t regx_source_message(const regx_source_t *source, regx_control_type_t type);

/* source_grants.c. Queues what the CTS grants; consecutive slots, all or none; a chunk. false: it
 * does not fit the transfer. */
bool regx_source_take_first_grants(const regx_rndv_t *rndv, regx_source_t *source,
                                   const regx_cts_t *cts);
bool regx_source_take_slots(regx_source_t *source, uint64_t offset, const regx_slot_grant_t *slots,
                            unsigned count);
bool regx_source_take_chunk(regx_source_t *source, uint64_t offset, uint64_t length, uint64_t start,
                            const regx_key_t *key);
/* Takes the next grant from the queue, or as much of it as may be written at once. */
regx_grant_t regx_source_next_piece(regx_source_t *source);
/* Takes from the queue what is left of a chunk of which the piece up to that offset was the last to
 * be taken; returns how much. */
uint64_t regx_source_take_rest(regx_source_t *source, uint64_t offset);
/* How much of a chunk is to be written at once. Not locked. */
uint64_t regx_source_piece_most(const regx_rndv_t *rndv, const regx_peer_t *peer, const void *base,
                                const regx_cts_t *cts);

/* source_exposures.c. Sends what is due. REGX_OK, REGX_AGAIN, REGX_UNREACHABLE. */
regx_status_t regx_source_tell_exposed_locked(regx_source_t *source);
/* Exposes the next chunk; registers it outside the lock. REGX_PENDING: nothing to do now. */
regx_status_t regx_source_expose_locked(regx_rndv_t *rndv, regx_source_t *source);
/* The landing has got, or left, what was exposed. false: there is no such exposure. Lets go of the
 * lock meanwhile. */
bool regx_source_got_locked(regx_rndv_t *rndv, regx_source_t *source,
                            const regx_control_t *control);
/* Gives up exposures of a failed source: those that nobody can read any more. Lets go of the lock
 * meanwhile; the source is busy. */
void regx_source_hide_locked(regx_rndv_t *rndv, regx_source_t *source);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The landing: the receiving end of one rendezvous. One record per outstanding receive; it needs
 * no slot to exist.
 *
 *   opened ──CTS──▶ (first grant may be empty) ──START or first WRITTEN/DONE──▶ started
 *   started: grants follow as bytes land, until all of `length` is granted
 *   landed == length ──FIN──▶ closed
 *
 * Bytes that a chunk could not carry (the peer refused it, or it could not be registered) are
 * granted again as slots.
 */
#ifndef REGX_RENDEZVOUS_LANDING_H
#define REGX_RENDEZVOUS_LANDING_H

#include "rendezvous/engine.h"

/* Grants of one transfer, of both kinds, that are not yet written, at most; also the source's
 * queue. */
#define REGX_GRANTS_MAX 64u

typedef struct regx_chunk {
    enum {
        REGX_CHUNK_FREE,
        REGX_CHUNK_GRANTED, /* and registered */
        REGX_CHUNK_REDO     /* not registered; [offset, offset + length) is to go by slots */
    } state;
    uint64_t offset;
    uint64_t length;
    regx_region_t region;
} regx_chunk_t;

struct regx_landing {
    uint8_t cts[REGX_CTS_SIZE];
    regx_link_t link; /* in the engine's list of hungry landings, or the free list */
    regx_name_t name;
    regx_peer_t *peer;
    char *base;
    uint64_t length;
    regx_path_t path;
    bool fallback;   /* it is not the one that was asked for */
    bool started;    /* `source` is known */
    bool stalled;    /* the pool was empty; counted */
    bool slots_only; /* what is not yet granted goes by slots */
    bool has_unsent; /* a grant that found no room to be sent: before any other */
    bool careful;    /* a chunk was not registered, or not written: is the buffer still there? */
    bool spoiled;    /* something arrived as something else than was sent */
    bool busy;       /* see engine.h */
    regx_name_t source;
    bool alone;          /* the peer had nothing else to send when the first slot was granted */
    uint64_t granted;    /* nothing from this offset on has been granted */
    uint64_t landed;     /* bytes */
    unsigned slots_out;  /* slots granted and not written */
    unsigned chunks_out; /* likewise */
    regx_control_t unsent;
    regx_chunk_t chunks[]; /* config.chunk_depth of them */
};

/* Sends a grant, now or when there is room. */
void regx_landing_send_locked(regx_landing_t *landing, const regx_control_t *grant);

/* Compares what arrived with the notice's checksum, if it has one; a landing that is spoiled by it
 * is told once the notice has been dealt with. Not locked, but busy. */
void regx_landing_verify(const regx_rndv_t *rndv, regx_landing_t *landing,
                         const regx_control_t *control);

/* landing_slots.c: the first grant, and all later ones. Later ones go on until everything is
 * granted, a grant is unsent (then the engine's `retry_landings` is set), or the peer's window is
 * full (it opens by a notice) or the pool empty (then `dry` is set). */
void regx_landing_first_slots_locked(regx_rndv_t *rndv, regx_landing_t *landing, regx_cts_t *cts);
void regx_landing_grant_slots_locked(regx_rndv_t *rndv, regx_landing_t *landing);
/* Whether slots are still to be granted. */
bool regx_landing_wants_slots_locked(const regx_rndv_t *rndv, const regx_landing_t *landing);
/* A slot was written: copies it out, outside the lock, and frees it. false: it was not this
 * landing's. */
bool regx_landing_written_locked(regx_rndv_t *rndv, regx_landing_t *landing,
                                 const regx_control_t *control);
/* Takes back what was granted and not written. */
void regx_landing_revoke_slots_locked(regx_rndv_t *rndv, regx_landing_t *landing);

/* landing_chunks.c, likewise; registers and deregisters outside the lock. The first chunk may
 * turn out not to be registrable: then the path becomes bounce. */
void regx_landing_first_chunk(regx_rndv_t *rndv, regx_landing_t *landing, regx_cts_t *cts);
void regx_landing_grant_chunks_locked(regx_rndv_t *rndv, regx_landing_t *landing);
/* A chunk was written or refused. false: there was no such grant. */
bool regx_landing_chunk_ended_locked(regx_rndv_t *rndv, regx_landing_t *landing,
                                     const regx_control_t *control);
/* Not locked: nobody else knows the landing any more, or yet. */
void regx_landing_revoke_chunks(regx_rndv_t *rndv, regx_landing_t *landing);

#endif

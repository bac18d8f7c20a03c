/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The landing: the receiving end of one rendezvous. One record per outstanding receive; it needs
 * no slot to exist.
 *
 *   opened ──CTS──▶ (first grant may be empty) ──START or first notice──▶ started
 *   started: grants follow as bytes land, until all of `length` is granted
 *   landed == length ──FIN──▶ closed
 *
 * Bytes that a chunk could not carry (the peer refused it, or it could not be registered) are
 * granted again as slots.
 *
 * On the path read it is the source that offers chunks, and the landing gets them; on the path
 * together the first half is granted as one chunk, and the second is got:
 *
 *   EXPOSED ──▶ registered ──▶ DUE ──get──▶ GETTING ──▶ GOT ──told──▶ free
 *                   └──── or not ────────────┴───────▶ LEFT ──told──▶ REDO, by slots
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
        REGX_CHUNK_REDO,    /* not registered; [offset, offset + length) is to go by slots */
        /* read, together: */
        REGX_CHUNK_DUE,     /* registered, and no get accepted so far */
        REGX_CHUNK_GETTING, /* likewise, and a get under way */
        REGX_CHUNK_GOT,     /* not registered any more, which the source is to be told */
        REGX_CHUNK_LEFT     /* likewise, but it was not read … */
    } state;
    bool failed; /* … because that failed */
    uint64_t offset;
    uint64_t length;
    uint64_t written; /* GRANTED: so many bytes, from the offset on */
    regx_region_t region;
    struct regx_get_op *get; /* DUE, GETTING */
} regx_chunk_t;

struct regx_landing {
    uint8_t cts[REGX_CTS_SIZE];
    regx_link_t link; /* in the engine's list of hungry landings, or the free list */
    regx_handle_t name;
    regx_peer_t *peer;
    char *base;
    uint64_t length;
    regx_path_t path;
    regx_entry_t entry; /* its part in choosing the path, by `auto` */
    bool fallback;      /* it is not the one that was asked for */
    bool pieces;        /* the chunk may be written in pieces */
    bool started;       /* `source` is known */
    bool stalled;       /* the pool was empty; counted */
    bool slots_only;    /* what is not yet granted goes by slots */
    bool by_slots;      /* something came by slots */
    bool has_unsent;    /* a grant that found no room to be sent: before any other */
    bool careful;       /* a chunk was not registered, or not written: is the buffer still there? */
    bool spoiled;       /* something arrived as something else than was sent */
    bool busy;          /* see engine.h */
    regx_handle_t source;
    bool alone;          /* the peer had nothing else to send when the first slot was granted */
    uint64_t granted;    /* nothing from this offset on has been granted */
    uint64_t landed;     /* bytes */
    unsigned slots_out;  /* slots granted and not written */
    unsigned chunks_out; /* likewise; or exposed, and not yet got or left */
    unsigned due;        /* chunks for which a get or a message is to be accepted */
    unsigned getting;    /* chunks with a get under way */
    bool closed;         /* and only there for them */
    regx_control_t unsent;
    regx_chunk_t chunks[]; /* config.chunk_depth of them, and behind these the half (together) */
};

/* With the half. */
static inline unsigned regx_landing_chunks(const regx_rndv_t *rndv)
{
    return rndv->config.chunk_depth + 1;
}

/* Sends a grant, now or when there is room. */
void regx_landing_send_locked(regx_landing_t *landing, const regx_control_t *grant);

/* After news from a source, or of a get for it: grants what that made room for, and tells of the
 * transfer if it is spoiled now and was not before (`told`). `control` describes the news. The lock
 * is held on entry, not on return. */
void regx_landing_go_on(regx_rndv_t *rndv, regx_landing_t *landing, bool told,
                        const regx_control_t *control);
/* Nobody needs the record any more. */
void regx_landing_free_locked(regx_rndv_t *rndv, regx_landing_t *landing);

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

/* landing_chunks.c. A place for a chunk, or NULL; registering it for that access (not locked). */
regx_chunk_t *regx_landing_free_chunk(const regx_rndv_t *rndv, regx_landing_t *landing);
bool regx_landing_register(regx_rndv_t *rndv, regx_landing_t *landing, regx_chunk_t *chunk,
                           unsigned access);

/* landing_chunks.c, likewise; registers and deregisters outside the lock. The first chunk may
 * turn out not to be registrable: then the path becomes bounce. */
void regx_landing_first_chunk(regx_rndv_t *rndv, regx_landing_t *landing, regx_cts_t *cts);
void regx_landing_grant_chunks_locked(regx_rndv_t *rndv, regx_landing_t *landing);
/* The next bytes of a chunk were written, or all that are left of it refused. false: there was no
 * such grant. */
bool regx_landing_chunk_told_locked(regx_rndv_t *rndv, regx_landing_t *landing,
                                    const regx_control_t *control);
/* Not locked: nobody else knows the landing any more, or yet. */
void regx_landing_revoke_chunks(regx_rndv_t *rndv, regx_landing_t *landing);

/* landing_gets.c. EXPOSED, or REFUSED of what was to be exposed. false: it does not fit the
 * transfer. */
bool regx_landing_exposed_locked(regx_rndv_t *rndv, regx_landing_t *landing,
                                 const regx_control_t *control);
bool regx_landing_unexposed_locked(regx_landing_t *landing, const regx_control_t *control);
/* Gets and tells what is due, as far as there is room; what is left sets `retry_landings`. The
 * landing is busy. */
void regx_landing_get_locked(regx_rndv_t *rndv, regx_landing_t *landing);
/* Gives up the gets that are due. As regx_landing_revoke_chunks. */
void regx_landing_revoke_gets(regx_rndv_t *rndv, regx_landing_t *landing);

#endif

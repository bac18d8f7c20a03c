/* SPDX-License-Identifier: BSD-3-Clause
 *
 * rendezvous/ carries large contiguous messages: a landing at the receiver, a source at the
 * sender, and between them grants (what may be written) and notices (what was written).
 *
 *   receiver                                   sender
 *   regx_landing_open ── CTS, by the MPI ────▶ regx_source_open
 *        │  ◀───────────── START, WRITTEN, DONE ──── │  writes what it was granted
 *        └──────────────── SLOTS, CHUNK ───────────▶ │
 *                                               done callback; the MPI's FIN follows in order
 *   regx_landing_close: all bytes are in the user's buffer
 *
 * On the paths read and together it is the source that says what may be read (EXPOSED), and the
 * landing that says it was (GOT).
 *
 * How the bytes go is the strategy's choice, made by the landing (strategy.h). A source does what
 * it is granted, so two processes may be configured differently.
 *
 * Guarantees: opening a landing never fails for want of slots and never waits (they are granted
 * as they come free, in order of the landings; two slots are enough for any number of them). A
 * done callback is called exactly once, and with success only when everything it stands for will
 * be delivered before any frame sent later. What peers send is checked against what they were
 * granted; what does not fit is counted as malformed and has no effect.
 *
 * A buffer that is unmapped while a transfer uses it is the application's error. Chunks that can
 * then not be registered or written go by slots, and are copied as far as there is memory: the
 * transfer ends. Slots that nothing has warned of are copied by the processor, which faults; so
 * does verify.
 *
 * verify: the sender's checksum of a slot or chunk is of its buffer as the processor reads it when
 * the bytes are handed to the transport; it travels with the notice, and the receiver compares it
 * with its own buffer as the processor reads that. So it finds stale registrations at either end,
 * a wire that spoils, and bytes at the wrong place. It also finds, and cannot tell from these, an
 * application that changes a buffer while MPI has it: the send buffer before its send is complete,
 * the receive buffer before its receive is. So too on truncation, where the MPI library has the
 * whole message written, past the end of the user's buffer (as with every BTL that writes): what
 * lies there may change meanwhile, and must at least be readable. Eager messages and fragments are
 * not covered.
 *
 * Memory is registered, and uses of registrations are given back, with no lock of this room held.
 * A registration that is refused costs nothing but speed: those bytes go by slots, and the reason
 * is tallied in `fallbacks`.
 *
 * Any thread may open and close; control, immediate and progress are called from the transport's
 * progress only. Done callbacks are called holding no lock, from open, control or progress.
 */
#ifndef REGX_RENDEZVOUS_RENDEZVOUS_H
#define REGX_RENDEZVOUS_RENDEZVOUS_H

#include "base/counters.h"
#include "base/param.h"
#include "pool/pool.h"
#include "registration/registration.h"
#include "rendezvous/control.h"
#include "transport/transport.h"

#define REGX_CHUNK_MAX (2u * 1024u * 1024u) /* the cap of the registration pipeline */
#define REGX_CHUNK_DEPTH_MAX 64

typedef struct regx_rndv regx_rndv_t;
typedef struct regx_landing regx_landing_t;
typedef struct regx_strategy regx_strategy_t;

/* The strategies that are built, by the names of the parameter; NULL: no such. */
const regx_strategy_t *regx_strategy_find(const char *name);
const char *regx_strategy_name(const regx_strategy_t *strategy);
bool regx_strategy_copies(const regx_strategy_t *strategy); /* the transport must, within a node */
/* The words of btl_regx_rendezvous. false: there are no more. */
bool regx_strategy_word(unsigned index, regx_param_word_t *word);

/* A process at the other end. Part of the BTL's endpoint; the engine's fields start as zero. */
typedef struct regx_peer {
    uint64_t id;
    regx_conn_t *conn;
    size_t granted;           /* the engine's: pool bytes granted to it and not yet written */
    uint32_t slots;           /* the engine's: the slots that those are in */
    atomic_bool never_writes; /* the engine's: it refused a chunk; grant it slots only */
    atomic_bool never_read;   /* the engine's: it cannot be read, or we cannot; likewise */
} regx_peer_t;

typedef struct regx_rndv_config {
    const regx_strategy_t *strategy; /* for what this process receives */
    size_t chunk_size;    /* what is granted or exposed at once; a multiple of the page, at most
                             REGX_CHUNK_MAX (direct: the whole; together: half of it is granted) */
    unsigned chunk_depth; /* chunks of one transfer in flight, to REGX_CHUNK_DEPTH_MAX */
    bool threads;
    bool verify; /* compare checksums of what is sent and received; also done where the peer asks */
    /* What arrived is not what was sent: `what` says which bytes and by which path. The owner ends
     * the connection or the job: the MPI library cannot be told in any other way that the data is
     * wrong. Called once for a transfer, from control or where a get ends, holding no lock. Never
     * NULL where there are peers. */
    void (*mismatch)(void *context, const regx_peer_t *peer, const char *what);
    void *context; /* for mismatch */
} regx_rndv_config_t;

/* REGX_OK; or why nothing of the transfer lands any more: REGX_UNREACHABLE, which the transport
 * tells, too; REGX_NO_MEMORY; REGX_INVALID: a malformed CTS; REGX_FAILED. */
typedef void (*regx_source_done_t)(void *context, regx_status_t status);

/* NULL: no memory, or a pool of 4 GiB or more. All pointers are kept. */
regx_rndv_t *regx_rndv_create(const regx_rndv_config_t *config, regx_pool_t *pool,
                              regx_registry_t *registry, regx_counters_t *counters);
/* Everything must be closed and done. */
void regx_rndv_destroy(regx_rndv_t *rndv);

/* Opens a landing on a buffer that stays the caller's. NULL: no memory for the record. */
regx_landing_t *regx_landing_open(regx_rndv_t *rndv, regx_peer_t *peer, void *base, size_t length);
/* What the peer needs; valid until the landing is closed. */
const uint8_t *regx_landing_cts(const regx_landing_t *landing);
/* When it returns, nothing is written to the buffer any more (but by a get whose source has ended
 * the transfer before it was told of it: landing_gets.c). Grants that the peer cannot know or
 * has given up are taken back. */
void regx_landing_close(regx_rndv_t *rndv, regx_landing_t *landing);

/* Sends `length` bytes to the landing that `cts` describes. The end is told by `done` alone, also
 * that of a malformed CTS. */
void regx_source_open(regx_rndv_t *rndv, regx_peer_t *peer, const void *base, size_t length,
                      const uint8_t cts[REGX_CTS_SIZE], regx_source_done_t done, void *context);

/* A control message arrived from the process `sender`. */
void regx_rndv_control(regx_rndv_t *rndv, uint64_t sender, const void *message, size_t length);

/* Immediate data arrived from the process `sender`. */
void regx_rndv_immediate(regx_rndv_t *rndv, uint64_t sender, uint32_t immediate);

/* Goes on with what had to wait; returns how many things went on. */
int regx_rndv_progress(regx_rndv_t *rndv);

/* Nothing comes from or goes to this peer any more: its sources fail, its landings stay until the
 * MPI closes them. Called with progress kept out. */
void regx_rndv_forget(regx_rndv_t *rndv, const regx_peer_t *peer);

#endif

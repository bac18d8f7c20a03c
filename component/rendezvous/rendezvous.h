/* SPDX-License-Identifier: BSD-3-Clause
 *
 * rendezvous/ carries large contiguous messages. A transfer has a receive side and a send side.
 * Between them go grants (what may be written) and acknowledgements (what was written).
 *
 *   sender                                                receiver
 *   regx_rndv_send_open ◀──────────── CTS, by the MPI ─── regx_rndv_recv_open
 *     writes what it was  ─── READY, ATP, NACK ────────────────▶  │
 *     granted             ◀──────────── CTS_SLOTS, CTS_CHUNK ───  │
 *   done callback; the MPI's FIN follows in order                 │
 *                                                         regx_rndv_recv_close: all bytes are in
 *                                                         the user's buffer
 *
 * By read, together, staged and auto the sender exposes its whole buffer with the RTS. Then the receiver
 * may read it (regx_rndv_recv_get), and there is no CTS and no send side. control.h has the messages.
 *
 * How the bytes go is the strategy's choice, made by the receiver (recv.c). A sender does what it
 * is granted, so two processes may be configured differently. One file is one way of moving bytes:
 * bounce.c, put.c (also with landing.c: remap) and exposed.c (read; with the sender's help: together, staged).
 * auto.c chooses among them. engine.h has the order of the files and the rules of locking.
 *
 * Guarantees. Opening a receive never fails for want of slots and never waits: slots are granted as
 * they come free, in order of the receives, and two slots are enough for any number of them. A done
 * callback is called exactly once, and with success only when everything it stands for will be
 * delivered before any frame sent later. What peers send is checked against what they were granted;
 * what does not fit is counted as malformed and has no effect.
 *
 * A buffer that is unmapped while a transfer uses it is the application's error (but see revoke.c,
 * by which the receiver's may be replaced). Chunks that can then not be registered or written go by
 * slots. Their bytes are copied carefully (buffer.c): as the program's own load or store would, if
 * the program brings the pages in. Bytes that nobody can bring there are lost, and no transfer that
 * lost any ends as a success: the send ends with REGX_DENIED, or the receiver's owner is told. Slots
 * are copied by the processor, which faults on unmapped memory, until a failed chunk has warned of
 * it. verify reads the buffer by the processor, too.
 *
 * verify: the sender's checksum of a slot or chunk is of its buffer as the processor reads it when
 * the bytes are handed to the transport. It travels with the acknowledgement, and the receiver
 * compares it with its own buffer as the processor reads that. So it finds stale registrations at
 * either end, a wire that corrupts, and bytes at the wrong place. It also finds, and cannot tell
 * from these, an application that changes a buffer while MPI has it: the send buffer before its
 * send is complete, the receive buffer before its receive is. The same holds on truncation of a
 * message that is read as a whole: ob1 has all of it read, past the end of the user's buffer. What lies
 * there may change meanwhile, and must at least be readable. (A CTS that answers an RTS grants no more
 * than the receive takes; ob1 has the rest sent in fragments, and drops it. A CTS that answers an RGET
 * grants the whole message.) Eager messages and fragments are not covered.
 *
 * Memory is registered, and uses of registrations are given back, with no lock of this layer held.
 * A registration that is refused costs nothing but speed: those bytes go by slots, and the reason
 * is tallied in `fallbacks`.
 *
 * Any thread may open and close. control, immediate and progress are called from the transport's
 * progress only. Done callbacks are called without the engine's lock: from open, control, progress or
 * forget, and where the transport's progress or disconnect ends what is pending.
 */
#ifndef REGX_RENDEZVOUS_RENDEZVOUS_H
#define REGX_RENDEZVOUS_RENDEZVOUS_H

#include "pool/pool.h"
#include "registration/registry.h"
#include "rendezvous/control.h"
#include "rendezvous/tuner.h"

#define REGX_CHUNK_MAX (2u * 1024u * 1024u) /* the cap of the registration pipeline */
#define REGX_CHUNK_DEPTH_MAX 64
/* Registered buffers that peers may read until the MPI's FIN, at once. */
#define REGX_EXPOSED_MAX 128

typedef struct regx_rndv regx_rndv_t;
typedef struct regx_rndv_recv regx_rndv_recv_t;
typedef struct regx_strategy regx_strategy_t;

struct regx_strategy {
    regx_path_t path; /* always this one, unless it chooses */
    /* Of that path (recv.h); NULL: it chooses among other strategies'. */
    const struct regx_protocol *protocol;
    /* The path for a receive whose peer and length are known, and in recv->why the reason; prepares
     * nothing. May be NULL. */
    regx_path_t (*choose)(regx_rndv_t *rndv, regx_rndv_recv_t *recv);
    bool grants_known_whole; /* see put.c */
    bool reads;   /* the receiver reads the whole message (exposed.c); what it cannot read so goes
                     by slots */
    bool exposes; /* as the sender it lets the whole message be read; over a device, as the receiver
                     it reads such (exposed.c) */
    /* As the sender it offers to stage messages of so many bytes and more. 0: none. */
    size_t stages_from;
    bool sender_writes; /* on a node the sender has the kernel write the receiver's buffer */
    bool copies;        /* by the kernel, so it needs a transport that has that on a node */
    bool revocable;     /* btl_regx_grant=revocable can be had with it: see revoke.c */
};

/* The words of btl_regx_rendezvous. */
extern const regx_param_word_t regx_strategy_words[];

/* The strategy of that name; NULL: there is none. */
static inline const regx_strategy_t *regx_strategy_find(const char *name)
{
    return regx_param_row(regx_strategy_words, name);
}

/* ---- what users may set ---- */

/* Whether what is granted is revoked, and granted anew, when its memory changes (revoke.c). */
typedef enum { REGX_GRANT_FINAL, REGX_GRANT_REVOCABLE } regx_granting_t;

typedef struct regx_rndv_settings {
    const char *rendezvous;
    size_t chunk_size;
    unsigned chunk_depth;
    regx_granting_t grant;
    bool verify;
} regx_rndv_settings_t;

extern const regx_param_t regx_rndv_params[];

/* A process at the other end. Part of the BTL's endpoint. */
typedef struct regx_peer {
    uint64_t id;
    regx_conn_t *conn;
    /* The engine's; they start as zero. */
    size_t granted;      /* pool bytes granted to it and not yet acknowledged */
    uint32_t slots;      /* how many slots those are in */
    size_t writing;      /* bytes of its memory that chunks under way write */
    uint32_t writes;     /* how many chunks, or parts of them, those are */
    uint32_t waiting;    /* how many sends wait for some of those to end */
    atomic_bool no_puts; /* it denied a chunk; grant it slots only */
    atomic_bool no_gets; /* nothing is read from it: it sends by slots */
    atomic_bool chunked; /* its last CTS was of the path pipeline */
} regx_peer_t;

/* What auto has measured of messages of that length by that path, in kB/s. 0: nothing. Takes the
 * engine's lock. */
uint64_t regx_auto_speed(regx_rndv_t *rndv, regx_path_t path, uint64_t length);

typedef struct regx_rndv_config {
    const regx_strategy_t *strategy; /* for what this process receives */
    size_t chunk_size;               /* bytes granted at once; a multiple of the page, at most
                             REGX_CHUNK_MAX (direct: the whole) */
    unsigned chunk_depth;            /* chunks of one transfer in flight, to REGX_CHUNK_DEPTH_MAX */
    bool threads;
    bool may_expose; /* the owner asks for exposures, so what is sent may be registered for it */
    regx_granting_t grant;
    bool verify; /* compare checksums of what is sent and received; also done where the peer asks */
    /* What arrived is not what was sent, or could not be brought to the user's buffer: `what` says
     * which bytes, where and by which path. The owner ends the connection or the job, since there
     * is no other way to notify the MPI library that the data is wrong. But if it may be that the
     * message is only longer than the buffer, which the MPI library knows and this layer does not
     * (a receive that was to be read), the owner just tells the user. Called once for a transfer,
     * from control or when a get completes, holding no lock. Never NULL where there are peers. */
    void (*lost)(void *context, const regx_peer_t *peer, const char *what, bool may_be_longer);
    /* The pages of that range of the user's memory are about to change, or have changed, by this
     * process's own doing (remap): what is registered of it is not true any more. Any thread,
     * holding no lock. NULL: no registrations are kept. */
    void (*changes)(void *context, uintptr_t start, uintptr_t end);
    void *context;             /* for both */
    regx_flow_t *flow;         /* counts its messages; kept */
    const regx_trace_t *trace; /* kept; NULL: off */
} regx_rndv_config_t;

/* The end of a send. REGX_OK; or why nothing of the transfer lands any more: REGX_UNREACHABLE,
 * which the transport reports too; REGX_NO_MEMORY; REGX_INVALID: a malformed CTS; REGX_DENIED: a
 * part of the user's buffer is not there; REGX_FAILED. */
typedef void (*regx_rndv_send_done_t)(void *context, regx_status_t status);

/* NULL: no memory. The pool is smaller than 4 GiB. All pointers are kept. */
regx_rndv_t *regx_rndv_create(const regx_rndv_config_t *config, regx_pool_t *pool,
                              regx_registry_t *registry, regx_counters_t *counters);
/* Everything must be closed and done. */
void regx_rndv_destroy(regx_rndv_t *rndv);

/* Opens the receive side of a transfer of `length` bytes into a buffer that stays the caller's. It
 * begins with the CTS, REGX_CTS_SIZE bytes, which the sender needs. to_get: regx_rndv_recv_get comes
 * next, and there is no CTS before it has ended: it would hold slots that nobody fills. NULL: no
 * memory. */
regx_rndv_recv_t *regx_rndv_recv_open(regx_rndv_t *rndv, regx_peer_t *peer, void *base,
                                      size_t length, bool to_get);
/* When it returns, nothing is written to the buffer any more. Grants that the sender cannot know or has
 * given up are taken back. */
void regx_rndv_recv_close(regx_rndv_t *rndv, regx_rndv_recv_t *recv);

/* Whether a userfaultfd of the program's watches a part of the memory, where the kernel may write for a
 * neighbour (registration/monitor/uffd.h). */
bool regx_rndv_is_paged(regx_rndv_t *rndv, const void *base, size_t length);

/* Sends `length` bytes to the receive side that `cts` describes. The buffer stays in use until
 * `done`, the only completion, also for a malformed CTS. */
void regx_rndv_send_open(regx_rndv_t *rndv, regx_peer_t *peer, const void *base, size_t length,
                         const uint8_t cts[REGX_CTS_SIZE], regx_rndv_send_done_t done,
                         void *context);

/* ---- by the sender's exposure: the receiver reads, and there is no CTS (exposed.c) ---- */

/* What a sender lets its receiver read. */
typedef struct regx_rndv_exposure {
    uint8_t bytes[REGX_CTS_SIZE]; /* first: the handle that goes with the RTS */
    bool registered;
    regx_region_t region; /* valid if registered */
    bool staged;
    regx_key_t key; /* valid if staged */
    uint32_t drain; /* its memory, held (registration/monitor/monitor.h) */
} regx_rndv_exposure_t;

/* The owner calls this before the RTS of each message that a CTS may answer.
 *
 * Fills in what the receiver can read all `length` bytes by. They stay in use until unexpose, after
 * the MPI's FIN. false: the message is to go by CTS. */
bool regx_rndv_expose(regx_rndv_t *rndv, const regx_peer_t *peer, const void *base, size_t length,
                      regx_rndv_exposure_t *exposure);
void regx_rndv_unexpose(regx_rndv_t *rndv, regx_rndv_exposure_t *exposure);

/* A message to that peer for which regx_rndv_expose was called is sent some other way than by CTS:
 * what may have been registered for it is given up. NULL: of any peer. */
void regx_rndv_unexpect(regx_rndv_t *rndv, const regx_peer_t *peer);

/* REGX_OK: all bytes are in the user's buffer, and the receive is to be closed. REGX_FAILED: a part of
 * that buffer cannot be written, so the MPI is to copy the message itself; the CTS is worth nothing.
 * Any other status: regx does not read the message, and the caller sends its CTS to the peer. */
typedef void (*regx_rndv_got_t)(void *context, regx_status_t status);

/* Reads the message from what its sender exposed, if this process's strategy has the receiver read.
 * Called once for a receive that was opened for it. `done` is called once, perhaps within the call; the
 * receive is not closed before, and its CTS is made before. */
void regx_rndv_recv_get(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                        const uint8_t exposure[REGX_CTS_SIZE], regx_rndv_got_t done, void *context);

/* A control message arrived from the process `sender`. */
void regx_rndv_control(regx_rndv_t *rndv, uint64_t sender, const void *message, size_t length);

/* Immediate data arrived from the process `sender`. */
void regx_rndv_immediate(regx_rndv_t *rndv, uint64_t sender, uint32_t immediate);

/* What progress has to look at, and no message will wake. The engine's. */
typedef union regx_rndv_work {
    struct {
        _Atomic bool retry_recvs, retry_sends;
        _Atomic bool pool_exhausted; /* a receive found no free slot: look when there is one */
        _Atomic bool watches;        /* memory is watched (revoke.c) */
    };
    _Atomic uint32_t any; /* all of them at once */
} regx_rndv_work_t;

_Static_assert(sizeof(regx_rndv_work_t) == sizeof(uint32_t), "any is all of them");

/* Whether progress has nothing to do, as nearly always: a few instructions. */
static inline bool regx_rndv_is_idle(const regx_rndv_t *rndv)
{
    const regx_rndv_work_t *work = (const regx_rndv_work_t *)rndv; /* its first field */

    return atomic_load_explicit(&work->any, memory_order_relaxed) == 0;
}

/* Goes on with what had to wait; returns how many things went on. */
int regx_rndv_progress(regx_rndv_t *rndv);

/* Nothing comes from or goes to this peer any more: its sends fail, its receives stay until the MPI
 * closes them. Called with progress kept out. */
void regx_rndv_forget(regx_rndv_t *rndv, const regx_peer_t *peer);

#endif

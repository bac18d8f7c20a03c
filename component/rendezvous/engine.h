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
 * stage has three parts: it is chosen under the lock, done without it, and entered into the books
 * under it again. Meanwhile the receive or send is `taken` by the thread that works on it. No other
 * thread works on it then; what arrives for it is found by the one that does.
 *
 * Who uses whom, top to bottom; a file calls downwards only:
 *
 *   engine.c                       the table of strategies; creates, dispatches
 *   send.c                         the send side, which writes what it is granted, slots and chunks
 *   exposed.c                      a whole message, read without a CTS
 *   put.c; get.c                   registered chunks: written by the sender; read by the receiver
 *   bounce.c                       slots, which also carry what a chunk could not
 *   revoke.c                       what was granted is acknowledged, and granted anew
 *   recv.c                         what all protocols have in common on the receive side
 *   auto.c                         chooses a path
 *   control.c                      control messages, queued where there is no room
 *   landing.c                      pages that are moved to the user (remap)
 *   buffer.c                       the user's memory, which may be gone
 */
#ifndef REGX_RENDEZVOUS_ENGINE_H
#define REGX_RENDEZVOUS_ENGINE_H

#include <stdlib.h>

#include "base/list.h"
#include "registration/monitor/uffd.h"
#include "rendezvous/rendezvous.h"

typedef struct regx_protocol regx_protocol_t; /* recv.h */
typedef struct regx_rndv_send regx_rndv_send_t;

/* ---- stages: what a thread that works on a transfer does next ---- */

/* Each is a function of the same name, regx_stage_..., which is called without the lock and returns
 * with it held. */
typedef enum regx_stage {
    REGX_STAGE_NONE, /* nothing, until a message, a completion or progress goes on */

    /* The send side. send.c: */
    REGX_STAGE_WRITE, /* prepares the put of a grant, and hands it to the transport with its ATP */
    REGX_STAGE_WRITTEN, /* a put has ended: gives up local memory, and counts, or sends NACK */
    REGX_STAGE_DROP,    /* a put is not made, or not once more: the same, by NACK */
    REGX_STAGE_END,     /* calls `done`; the record is free already, and the lock is not taken */
    /* get.c: */
    REGX_STAGE_ADVERTISE, /* registers a chunk, and sends RKEY */
    REGX_STAGE_READ,      /* ATS has come: gives up the chunk, and counts */
    REGX_STAGE_WITHDRAW,  /* no peer can read a chunk: gives it up */
    /* revoke.c: */
    REGX_STAGE_COMPARE, /* ARRIVED has come with a checksum: compares, and sends DIFFERS if it is
                           another */

    /* The receive side. put.c: */
    REGX_STAGE_GRANT,       /* registers a chunk, and grants it; or it goes by slots */
    REGX_STAGE_ACKNOWLEDGE, /* ATP or NACK of a chunk has come: gives it up, and counts, or it goes by
                               slots or is granted anew */
    /* bounce.c: */
    REGX_STAGE_COPY_OUT, /* ATP of a slot has come: copies it to the user, and gives it up */
    /* get.c: */
    REGX_STAGE_GET, /* RKEY has come: registers the chunk, and asks the transport for it */
    REGX_STAGE_GOT, /* that has ended: gives up local memory; ATS is due */
    /* revoke.c: */
    REGX_STAGE_LOOK,  /* looks at memory that is watched: restarts, resumes or ends the transfer */
    REGX_STAGE_FLUSH, /* DIFFERS has come: what was registered meanwhile is given up; restarts */
    REGX_STAGE_COUNT
} regx_stage_t;

/* A stage that is to be done, and of what. On the stack of the thread that does it, which uses it
 * again for each stage that follows. */
typedef struct regx_step {
    regx_stage_t stage;
    regx_status_t status; /* WRITTEN, GOT, END: how the put, the get or the send ended */
    union {
        regx_rndv_send_t *send;
        regx_rndv_recv_t *recv; /* NULL: none is taken */
    };
    union {
        struct regx_write *write;   /* WRITE, WRITTEN, DROP */
        struct regx_rkey *rkey;     /* ADVERTISE, READ, WITHDRAW */
        struct regx_chunk *chunk;   /* GRANT, ACKNOWLEDGE, GET, GOT */
        struct regx_look *look;     /* LOOK */
        regx_rndv_send_done_t done; /* END */
    };
    union {
        const regx_control_t *control; /* a receive's: the message that it is of, or NULL */
        void *context;                 /* END */
    };
    bool news; /* a send's: of a message or a completion; perhaps another thread has taken it */
    unsigned next_chunk; /* get.c: chunks before this one had their turn */
} regx_step_t;

/* REGX_OK: the transfer may go on. REGX_AGAIN: something found no room. */
typedef regx_status_t (*regx_stage_do_t)(regx_rndv_t *rndv, regx_step_t *step);

/* Whom a slot of the pool is granted to. */
typedef struct regx_slot_use {
    regx_rndv_recv_t *recv; /* NULL: it is free */
    uint64_t offset;        /* in the transfer */
    uint32_t length;
} regx_slot_use_t;

/* Between what `auto` chooses: both processes map the pool, or they do not. */
typedef enum regx_auto_wire { REGX_AUTO_NODE, REGX_AUTO_APART, REGX_AUTO_WIRES } regx_auto_wire_t;

#define REGX_AUTO_CANDIDATES 3u /* at most */

#define REGX_AUTO_SAMPLES 6u /* of a turn, at most */

/* A candidate's turn in a trial. */
typedef struct regx_turn {
    uint8_t candidate;
    bool idle;   /* all go by the winner, and nothing is measured */
    bool failed; /* a message of the turn went another way */
    bool bursts; /* some of its messages did not come alone */
    uint8_t samples;
    uint32_t number;                 /* of the turn, never the same */
    uint32_t entered;                /* messages since none was open, or it began */
    uint32_t before;                 /* so many have yet to close before it is measured, */
    uint32_t closed;                 /* and so many have since then, */
    uint64_t bytes;                  /* with so many bytes, */
    uint64_t own;                    /* and as many by the candidate */
    uint64_t sampled;                /* bytes until the last sample, */
    int64_t began;                   /* when the measuring began; 0: not yet */
    int64_t last;                    /* when the last sample was taken; else `began` */
    float sample[REGX_AUTO_SAMPLES]; /* picoseconds a byte, the least first */
} regx_turn_t;

/* What a trial has found out of a candidate. */
typedef struct regx_tried {
    float cost;     /* picoseconds a byte, the least of the turns (auto.c); 0: none */
    uint8_t turns;  /* that count (auto.c) */
    uint8_t failed; /* turns of which messages went another way */
    bool warming; /* its last turn was still faster than those before, or bounce's first (auto.c) */
} regx_tried_t;

/* Which candidate moves the messages of one size fastest: a path, known here by its number. Its
 * trials are described in auto.c. Under the engine's lock. */
typedef struct regx_autotune {
    uint8_t candidates; /* 0 to candidates - 1 */
    uint8_t larger;     /* sizes that follow this one in the array */
    uint8_t winner;     /* of the last trial, or of the first one so far; before it the prior */
    bool known;         /* it was measured */
    bool trying;        /* there is a trial */
    uint8_t kind;       /* of its turns: bits, 1 messages alone, 2 bursts; 0: not known yet */
    uint8_t turns;      /* that have begun */
    uint8_t repeats;    /* turns in a row whose messages were of another kind */
    uint32_t messages;  /* of the trial */
    uint32_t rest;      /* messages until the next one */
    uint32_t failures;  /* of late, by the winner while there is no trial */
    uint32_t open;      /* messages, now */
    uint32_t open_max;  /* of them at once, since none was open, or in this turn */
    regx_turn_t turn;
    regx_tried_t tried[REGX_AUTO_CANDIDATES];
    float found[REGX_AUTO_CANDIDATES]; /* the last costs, for btl_regx_explain; 0: none */
} regx_autotune_t;

/* A message's part in it. Zero: none. */
typedef struct regx_trial {
    regx_autotune_t *of; /* its size */
    uint8_t candidate;
    regx_why_t why;  /* that one */
    uint32_t number; /* of the turn */
} regx_trial_t;

/* Whether the program receives into the same buffers again (auto.c). */
typedef struct regx_reuse {
    unsigned credit; /* new buffers that are registered */
    unsigned passed; /* new buffers without credit, since one was registered */
} regx_reuse_t;

/* ---- landing pages of the path remap (landing.c) ---- */

#define REGX_LANDINGS_MAX 64u /* of one engine */

typedef struct regx_landing {
    regx_mr_t mr; /* for who has got it */
    char *memory; /* what is written into */
    char *spare;  /* as long, without pages */
    size_t used;  /* bytes from the start of `memory` that may have pages; whole pages */
    struct regx_landing *next; /* that is free */
} regx_landing_t;

typedef struct regx_landings {
    const regx_rndv_config_t *config; /* a landing is as large as a chunk */
    regx_counters_t *counters;
    unsigned count; /* of landings */
    size_t page;
    /* Of all that follows. But what was opened stays and is read without it, and a landing that was
     * got is its owner's until it is put back. */
    regx_lock_t lock;
    enum { REGX_LANDINGS_CLOSED, REGX_LANDINGS_OPEN, REGX_LANDINGS_REFUSED } state;
    const char *refusal; /* REFUSED: why */
    regx_file_t uffd;
    regx_maps_t maps;
    char *areas; /* of all landings */
    regx_landing_t all[REGX_LANDINGS_MAX];
    regx_landing_t *free;
} regx_landings_t;

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

struct regx_rndv {
    regx_rndv_work_t work; /* first: regx_rndv_is_idle looks at it */
    regx_rndv_config_t config;
    regx_pool_t *pool;
    regx_registry_t *registry;
    regx_counters_t *counters;
    unsigned send_access;                /* what chunks of send buffers are registered for */
    const regx_strategy_t *const *paths; /* by path: whose each is; NULL: none is */
    const regx_stage_do_t *stages;       /* by stage */
    regx_lock_t lock;
    regx_handle_table_t recvs, sends;
    regx_peer_t nobody;     /* the peer of receives whose peer has gone */
    regx_slot_use_t *slots; /* one per slot of the pool */
    size_t window;          /* pool bytes that one peer may hold granted */
    struct {
        regx_autotune_t sizes[REGX_AUTO_WIRES][REGX_AUTO_SIZES];
        regx_reuse_t reuse;
    } tuner; /* of `auto` */
    char
        lost[256]; /* what arrived corrupt or not at all, for the owner (recv.h); of the thread that
                       makes progress, without the lock */
    bool lost_may_be_longer;  /* of `lost`: as its callback says */
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
        regx_spares_t recvs, sends, writes, rkeys;
    } spares;
    struct {
        uint64_t seen;          /* the head of the monitor's log at the last look */
        _Atomic bool looks_due; /* look in the next round, even if the log has not moved */
    } watched;                  /* memory of receives (revoke.c) */
    _Atomic bool whole_refused; /* a known buffer could not be registered whole at this end; no
                                    other is tried any more */
    _Atomic unsigned exposed;   /* registered buffers, now */
    _Atomic unsigned refusals;  /* of registrations, so far; see buffer.c */
};

/* Something could not go the way that was asked for, and goes another way. */
static inline void regx_fall_back(const regx_rndv_t *rndv, const char *reason)
{
    regx_tally(rndv->counters->fallbacks, reason);
    regx_trace(rndv->config.trace, REGX_TRACE_PATH, "fallback: %s", reason);
}

/* ---- control messages to a peer (control.c). Any thread; the engine's lock may be held, since no
 * send waits. ---- */

/* Messages that found no room. They go before any other of their owner. */
typedef struct regx_outbox {
    unsigned count, room;
    regx_control_t *messages; /* the owner's; in their order */
} regx_outbox_t;

/* Answers as the transport's send: REGX_OK, REGX_AGAIN, REGX_UNREACHABLE. */
regx_status_t regx_control_send(const regx_peer_t *peer, const regx_control_t *control);

/* Sends the message, or keeps it in the outbox, which has room. */
void regx_control_post(const regx_peer_t *peer, regx_outbox_t *outbox,
                       const regx_control_t *control);
/* Sends what the outbox holds, and answers as the last: REGX_OK if it is empty now. */
regx_status_t regx_control_flush(const regx_peer_t *peer, regx_outbox_t *outbox);

/* ---- the user's buffer, of which a part may have been unmapped while a transfer used it
 * (buffer.c). That is the application's error, and must not end in a crash. ---- */

/* Copies by the kernel, through a pipe, which says where there is no memory. Slow; used only after
 * a chunk has failed, and for receives that may be revoked. What the kernel refuses and the program
 * brings in at its own load or store (base/fault.h) is copied by memcpy, so the program's handler of
 * SIGSEGV may run in here. What nobody brings in is left out, and the answer is false; what was not
 * read is zero. Any thread, no lock held.
 *
 * A process without descriptors for a pipe has the kernel copy by process_vm_readv on itself. */
bool regx_buffer_read(void *to, const void *buffer, size_t length);
bool regx_buffer_write(void *buffer, const void *from, size_t length);

/* The checksum by which both ends of a transfer compare what was sent with what arrived
 * (btl_regx_verify). Against stale, torn and misplaced bytes, not against a forger. The memory is
 * there. */
uint64_t regx_buffer_checksum(const void *data, size_t length);

/* A proof that two processes have the same bytes (revoke.c): the checksum of the blocks' checksums.
 * false: memory is gone, and there is none. */
bool regx_buffer_prove(const char *base, uint64_t length, uint64_t *sum);

typedef enum regx_end { REGX_SENDER, REGX_RECEIVER } regx_end_t;

/* Tallies in `fallbacks`, by end and reason, that memory was not registered. `status` is what
 * regx_region_acquire answered for `length` bytes at `base`, and not REGX_OK, `refused` the region
 * that it was given. No lock is held.
 *
 * For want of room in the process's own share of what may be pinned: that is noted when it happens.
 * Else the reason is found out afterwards, by the limit of locked memory, and by what is mapped
 * there now. That takes reading /proc, as long as a message may take. So only the first refusals
 * are looked into; of later ones only the device's answer is tallied. */
void regx_buffer_refused(regx_rndv_t *rndv, regx_end_t end, regx_status_t status,
                         const regx_region_t *refused, const void *base, size_t length);

/* Gives up a use of a registration. failed: perhaps its memory was unmapped, which is looked for
 * while it still counts as in use. */
void regx_buffer_release(regx_rndv_t *rndv, regx_region_t *region, bool failed);

/* ---- landing.c ---- */

/* Opens nothing. */
void regx_landings_init(regx_landings_t *landings, const regx_rndv_config_t *config,
                        regx_counters_t *counters);
/* All landings are free. */
void regx_landings_fini(regx_landings_t *landings);

/* Why pages cannot be moved to that buffer, for `fallbacks`; NULL: they can, as far as is known.
 * Costs as much as asking the kernel for its mapping. */
const char *regx_landings_refusal(regx_landings_t *landings, const void *base, size_t length);

/* How many bytes that go to `to` a landing takes. */
static inline size_t regx_landing_room(const regx_landings_t *landings, const void *to)
{
    return landings->config->chunk_size - (uintptr_t)to % landings->page;
}

/* Where in a landing the bytes are to be written that go to `to`. */
static inline char *regx_landing_at(const regx_landings_t *landings, const regx_landing_t *landing,
                                    const void *to)
{
    return landing->memory + (uintptr_t)to % landings->page;
}

/* A landing into which `length` bytes are to be written that go to `to`. NULL: none is free. */
regx_landing_t *regx_landing_get(regx_landings_t *landings, const void *to, size_t length);
/* No peer writes into it any more. */
void regx_landing_put(regx_landings_t *landings, regx_landing_t *landing);

/* Brings the bytes that were written to the user. They are there when it returns, in any case: what
 * could not be moved was copied. NULL, or why something that might have been moved was not, for
 * `fallbacks`. Counts pages and bytes. */
const char *regx_landing_deliver(regx_landings_t *landings, regx_landing_t *landing, void *to,
                                 size_t length);

/* `auto` chooses; each other has the path of its name. */
extern const regx_strategy_t regx_strategy_auto;
#define REGX_STRATEGY_DECLARED(name, help) extern const regx_strategy_t regx_strategy_##name;
REGX_RENDEZVOUS_PATHS(REGX_STRATEGY_DECLARED)
#undef REGX_STRATEGY_DECLARED

/* auto.c: which path moves messages of that size fastest. */

void regx_auto_init(regx_autotune_t tunes[REGX_AUTO_SIZES], regx_auto_wire_t wire);
/* A message of that length is opened. It is to be left. */
regx_trial_t regx_auto_enter(regx_autotune_t tunes[REGX_AUTO_SIZES], uint64_t length);
/* It is closed. went: all of it arrived, by the path that it was to go. Does nothing for a message
 * that has no part. */
void regx_auto_leave(const regx_trial_t *trial, uint64_t length, bool went);

#endif

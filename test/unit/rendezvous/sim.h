/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The deterministic simulator of rendezvous/: two processes with the real engine, pool and registry
 * in one, over a wire (sim_wire.c), an MPI library (sim_mpi.c) and a clock that the test plays. All
 * that can happen next is a list of events, of which a seeded scheduler takes one (sim_run.c). So a
 * run is the same each time, and a fault can be put at each of its occasions: the third put fails,
 * the connection is lost at step 57.
 *
 * After each run: every byte is what was sent, or the fault is one by which a request may fail;
 * every request ended, in a bounded number of steps; no slot, registration or frame is left; the
 * counters add up; and no byte was read or written that was not registered, nor after its buffer
 * was given back.
 */
#pragma once

#include "../unit.h"

#include "rendezvous/rendezvous.h"

enum {
    SIM_MESSAGES = 256,
    SIM_FRAME = 128, /* bytes of the longest frame */
    SIM_FRAMES = 8192,
    SIM_OPEN = 256, /* puts, and gets, that are under way */
    SIM_WINDOWS = 512,
    SIM_CHANGES = 2,
    SIM_MAPPINGS = 8,
    SIM_PAGE = 4096
};

/* ---- scenarios and faults (test_sim*.c, sim_faults.c) ---- */

typedef struct sim_scenario {
    const char *name;
    const char *strategy;
    const char *other; /* that of process 1, if it is another */
    size_t
        lengths[8]; /* of the messages, up to the first 0; sent in turn until there are `count` */
    unsigned count; /* of messages; 0: one of each length */
    size_t chunk, slot; /* bytes */
    unsigned depth, slots;
    size_t other_chunk; /* of process 1, if it is another */
    size_t skew;        /* where in its page a buffer begins */
    size_t put_inflight_max;
    size_t longest;   /* that can be registered at once; 0: any length */
    regx_path_t path; /* by which each message goes if nothing fails; 0: several */
    unsigned least;   /* … or so many of them at least */
    bool node;        /* the two map each other's pool, and the kernel copies */
    bool exposes;     /* the MPI library asks for exposures */
    bool stages;
    bool immediates;
    bool both_ways;
    bool one_by_one; /* a message begins when the one before it has ended */
    bool unexpected; /* each is received when its RTS is there already */
    bool verify;
    regx_granting_t grant;
    bool cached;   /* registrations are kept; else made for each use */
    bool reuses;   /* each message has the buffers of the one before it */
    bool fresh;    /* … but the send buffers: long writes go in parts, of which none can fail */
    bool final;    /* changes are not reported, so grants are final all the same */
    bool changes;  /* receive buffers are replaced when they are given back */
    bool deep;     /* the first message is long, and the others are a stream of its sender's */
    bool restless; /* at each look a change is under way, of memory that is nobody's buffer */
    bool adjoins;  /* a receive buffer begins in the page in which the one before it ends */
    bool poor;     /* there is no memory for as much as a slot holds */
    bool revokes; /* in some runs chunks wait to be written when REVOKE comes, and are given back */
    const char *always; /* a fault that is there in each run, … */
    unsigned always_at; /* … at that occasion */
    unsigned stride;    /* of faults that are tried, one in so many; 0: all */
} sim_scenario_t;

/* Where the world may answer otherwise. Each is counted in a run, and a fault strikes at one. */
typedef enum sim_occasion {
    SIM_AT_SEND,    /* the transport is given a frame, */
    SIM_AT_PUT,     /* a put, */
    SIM_AT_CHUNK,   /* a put to registered memory, */
    SIM_AT_GET,     /* a get, */
    SIM_AT_REG,     /* memory to register */
    SIM_AT_WRITTEN, /* a put ends, */
    SIM_AT_CHUNK_WRITTEN,
    SIM_AT_GOT,     /* a get ends */
    SIM_AT_CONTROL, /* a control message or immediate arrives, */
    SIM_AT_CTS,     /* a CTS, */
    SIM_AT_EXPOSURE,
    SIM_AT_BYTES, /* bytes are on the wire */
    SIM_AT_STEP,  /* anything happens */
    SIM_OCCASIONS
} sim_occasion_t;

/* What goes wrong there, if it is not an answer. */
typedef enum sim_trouble {
    SIM_ANSWER,    /* the transport answers `status` */
    SIM_CORRUPT,   /* a byte changes on its way */
    SIM_LATE,      /* it happens when nothing else can any more */
    SIM_LOST,      /* the connection is lost */
    SIM_CHANGED,   /* a part of a receive buffer is replaced, */
    SIM_SECRET,    /* … which is never reported, */
    SIM_UNWATCHED, /* … by memory whose changes are not reported, */
    SIM_GONE,      /* … or unmapped, and mapped again later, */
    SIM_CHANGING,  /* … or reported as replaced again and again */
    SIM_HOGGED,    /* others take all slots for a while */
    SIM_TWICE,     /* the message comes twice, */
    SIM_STRANGE,   /* first from another process, */
    SIM_CUT,       /* first without its last byte, or with one more, */
    SIM_MALFORMED, /* first with one byte changed */
    SIM_MADE_UP,   /* first another that was never sent */
    SIM_FORGED     /* with one byte changed only */
} sim_trouble_t;

typedef struct sim_fault {
    const char *name;
    sim_occasion_t at;
    sim_trouble_t trouble;
    regx_status_t status;
    unsigned times; /* occasions in a row */
    bool may_fail;  /* a request may end with an error */
} sim_fault_t;

extern unsigned sim_given_back;        /* chunks, after REVOKE, of all runs of a scenario */
extern const sim_fault_t sim_faults[]; /* up to one without a name */

/* Whether the fault can strike in that scenario. */
bool sim_fault_applies(const sim_fault_t *fault, const sim_scenario_t *scenario);

/* ---- processes and the wire between them (sim_wire.c) ---- */

typedef struct sim_window { /* registered memory; its number and generation are its key */
    char *base;
    size_t length;
    unsigned access;
    uint32_t generation;
    unsigned tick; /* when it was registered */
    bool open;
} sim_window_t;

typedef struct sim_frame {
    bool held;    /* the notice of a put that is not yet written */
    bool dropped; /* … or failed */
    uint8_t tag;
    uint32_t immediate; /* not 0: it is that alone */
    size_t length;
    uint8_t data[SIM_FRAME];
} sim_frame_t;

typedef struct sim_op { /* a put or a get that is under way */
    regx_put_t *put;
    regx_get_t *get;
    sim_frame_t *notice; /* of a put over a device */
    bool made;           /* the bytes are there, or not: */
    regx_status_t status;
} sim_op_t;

typedef enum sim_link { SIM_UP, SIM_BREAKING, SIM_DOWN } sim_link_t;

typedef struct sim_process {
    regx_transport_t transport; /* first */
    unsigned number;
    regx_conn_t conn; /* to the other */
    regx_peer_t peer;
    sim_link_t link;
    regx_counters_t counters;
    regx_flow_t flow;
    regx_pool_t pool;
    regx_registry_t registry;
    regx_rndv_t *rndv;
    uint8_t *pool_memory;
    sim_frame_t *frames; /* all that were sent; `first` is the next to be delivered */
    unsigned first, end;
    sim_op_t ops[SIM_OPEN]; /* in the order in which they were accepted */
    unsigned op_count;
    sim_window_t windows[SIM_WINDOWS];
    unsigned open_windows;
    unsigned staged, mismatches;
    uint32_t hogged[64]; /* slots */
    unsigned hogged_count;
    uint64_t puts, gets; /* that ended well */
    unsigned immediates; /* that were delivered */
    bool quiet;          /* nothing happened since it made progress */
} sim_process_t;

extern const regx_transport_ops_t sim_ops;

void sim_append(sim_process_t *from, uint8_t tag, const void *data, size_t length,
                uint32_t immediate, bool held);
/* Lets the bytes of an operation go, or fail. */
void sim_make(sim_process_t *process, unsigned index);
/* Reports the end of an operation: as it ended, or if its bytes did not go so. */
void sim_end(sim_process_t *process, unsigned index, regx_status_t otherwise);

/* ---- messages and buffers (sim_mpi.c) ---- */

enum { SIM_TAG_MPI = 0x40 }; /* of the MPI library's frames */

typedef struct sim_message {
    unsigned from; /* the process */
    size_t length;
    const uint8_t *content;
    uint8_t *source, *target;
    bool begun, arrived, posted; /* the send; its RTS is there; the receive */
    bool exposed, has_exposure;  /* by the sender, still; the RTS came with it */
    bool sending, sent;          /* the send side is open; the send has ended: */
    regx_status_t status;        /* so */
    bool reading, closed;        /* the receive side is read whole now; has been closed */
    regx_rndv_recv_t *recv;      /* NULL: it is not open */
    regx_rndv_exposure_t exposure;
    uint8_t rts[REGX_CTS_SIZE];
    uint8_t recv_handle[8], send_handle[8]; /* as in messages */
    bool outdated;   /* its memory was reported as changed: nothing is granted before RESUME */
    bool revoked;    /* REVOKE was sent, and RESUME not yet */
    bool met;        /* the receiver knows its sender */
    bool watched;    /* its grants may be revoked */
    unsigned rank;   /* it was closed as the n-th; 0: not so far */
    unsigned looked; /* tick when the receiver looked for the last time (ARRIVED); 0: never */
} sim_message_t;

/* A part of a receive buffer that is replaced in mid-transfer. */
typedef struct sim_change {
    sim_message_t *of; /* NULL: none */
    uint8_t *start;
    size_t length;
    unsigned tick; /* when it was made, if it was */
    bool made, reported;
    unsigned again; /* so often it is to be reported once more, … */
    bool due;       /* … now that what was granted has been taken back */
    bool secret;    /* it is never reported */
    bool unwatched; /* what changes from now on is not reported */
    bool gone;      /* nothing is mapped there now, … */
    bool forever;   /* … until the message has ended */
} sim_change_t;

/* Pages that were replaced. */
typedef struct sim_stale {
    uintptr_t start, end;
    unsigned tick;
} sim_stale_t;

void sim_mpi_begin(sim_message_t *message);
void sim_mpi_post(sim_message_t *message);
void sim_mpi_deliver(unsigned to, const uint8_t *data);
/* The connection is lost: gives up what the message has there. */
void sim_mpi_abandon(sim_message_t *message, unsigned process);
/* What may be done with the message now. */
bool sim_mpi_can_begin(const sim_message_t *message);
bool sim_mpi_can_post(const sim_message_t *message);
bool sim_mpi_can_abandon(const sim_message_t *message, unsigned process);
bool sim_mpi_has_ended(const sim_message_t *message);
/* After a run: nothing was written to a buffer that had been given back. */
void sim_mpi_check(void);

/* ---- their memory (sim_memory.c) ---- */

/* For a scenario, */
void sim_memory_open(void);
void sim_memory_close(void);
/* … and for a run: the messages. */
void sim_memory_reset(void);
/* The fault: of a receive that is open. */
void sim_memory_change(sim_trouble_t trouble);
/* Whether it is not over: it is to be made, reported, mapped again. */
bool sim_memory_goes_on(const sim_change_t *change);
void sim_memory_go_on(sim_change_t *change);
/* The message has ended: what was unmapped is there again. */
void sim_memory_come_back(const sim_message_t *message);
/* What the program changed itself, after the receiver looked for the last time, or where it
 * does not look, counts as right. */
void sim_memory_excuse(const sim_message_t *message);
/* Pages were replaced, by whomever; a report of it. */
void sim_memory_replaced(uintptr_t start, uintptr_t end);
void sim_memory_report(uintptr_t start, uintptr_t end);
/* Whether what is written by that window is lost, since other pages are mapped there now. */
bool sim_is_stale(const sim_window_t *window, const uint8_t *at);
bool sim_is_gone(const void *base, size_t length);

/* ---- a run (sim_run.c) ---- */

typedef struct sim {
    const sim_scenario_t *scenario;
    const sim_fault_t *fault;  /* NULL: none */
    unsigned at;               /* the number of its occasion */
    const sim_fault_t *always; /* the scenario's; NULL: none */
    uint64_t seed, chance;
    bool shows; /* prints each event */
    sim_process_t process[2];
    sim_message_t messages[SIM_MESSAGES];
    unsigned message_count;
    sim_change_t changes[SIM_CHANGES];
    sim_stale_t stales[128];
    unsigned stale_count, tick;
    unsigned closed; /* messages */
    unsigned counts[SIM_OCCASIONS];
    unsigned time;      /* steps */
    int64_t now, began; /* ns; the run */
    bool corrupt;       /* a byte was changed on the wire, which verify is to find */
    bool hostile;       /* a peer said what it should not, and was believed: bytes may be wrong */
    bool may_fail;      /* a request may end with an error */
    uint64_t refused;   /* messages that are to be counted as malformed */
    uint8_t *memory;    /* of the buffers */
    size_t memory_size, each;
    uint8_t *content;
    regx_monitor_t monitor; /* what reports changes, in both */
} sim_t;

extern sim_t sim;

/* The fault that strikes at this occasion, which is counted; NULL: none. */
const sim_fault_t *sim_strikes(sim_occasion_t occasion);
/* The connection of that process is found to be lost. */
void sim_break(unsigned process);
/* A number below `most`. */
unsigned sim_chance(unsigned most);
/* Ends the test, and says in which run. */
_Noreturn void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define sim_check(condition)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            sim_fail("%s:%d: not so: %s", __func__, __LINE__, #condition);                         \
        }                                                                                          \
    } while (0)
void sim_show(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* sim_run.c: one run. */
void sim_open_process(unsigned number);
void sim_close_process(sim_process_t *process);
/* What can happen happens, in an order by chance, until all messages have ended. */
void sim_go(void);
/* Messages that both processes have refused. */
uint64_t sim_malformed(void);
/* Hands a message that no honest peer sends; must: it is to be refused. What is not refused makes
 * the peer one that lies. */
void sim_hand_wrong(sim_process_t *to, uint64_t sender, const sim_frame_t *frame, size_t length,
                    bool must);

/* Of a program: all scenarios, or as its arguments say one (NAME [FAULT [AT [SEED]]]), shown. */
int sim_main(const char *name, const sim_scenario_t *scenarios, size_t count, int argc,
             char **argv);

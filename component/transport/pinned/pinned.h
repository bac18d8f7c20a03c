/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A device that pins, in software: what registration costs and what goes stale can be seen on any
 * machine, without an adapter. Between processes of one node. transport.h says what its operations
 * do.
 *
 * Frames, and puts to the pool, go by a transport of shared memory (shm/) that this one opens for
 * itself. A memory region is a slot of an io_uring's table of registered buffers (uring.h); its key
 * names slot and generation. A put or get of a region goes in pieces through a file in memory,
 * which each connection has of its own, with four cells of one piece each:
 *
 *   put: the initiator transfers from its region to a cell and asks the owner by a frame; the owner
 *        checks the key, transfers from the cell to its region, and answers. With the last piece
 *        the notice is delivered.
 *   get: the initiator asks by a frame; the owner checks the key, transfers from its region to the
 *        cell and answers; the initiator transfers from the cell to its own region.
 *
 * So one process is at one piece while the other is at the next. Both transfer between a file and
 * the pages that were pinned: addresses are looked at by the kernel when memory is registered, and
 * never again. What is put without a region of the initiator's own is written to the cell as plain
 * memory. A put or get ends when its last piece is answered. An owner that refuses a piece, or
 * cannot transfer it, refuses the rest of that operation, so that no notice comes of half of it.
 *
 * An answer is a word in the head of the initiator's file: it needs no room anywhere, and can be
 * given to a process that is gone. An owner that cannot open the file says DENIED by a frame; then
 * nothing is put or got over that connection any more.
 *
 * Threads and locks: the lock is a leaf, and real always, since a thread of the registration cache
 * deregisters. It covers the table of slots, the list of connections with operations and each
 * connection's line. All else of a connection is progress's, and so are peers and transfers: one
 * at a time, without the lock, and awaited, as a copy by the processor is. dereg waits for the one
 * that uses its slot.
 *
 * The kernel has one lock for all of a ring: while a thread registers much (a GiB takes 16 ms, and
 * many times that where pages have to be found), transfers of this process wait for it.
 *
 * A peer that is gone is seen by the initiator, which looks once a second while it awaits an
 * answer. To the owner it does not matter: it has the file.
 *
 * Files: uring.c the ring, cells.c the file, regions.c what is registered, pin_cost.c what that
 * takes, initiator.c and owner.c the two ends, pinned.c opens and closes.
 */
#ifndef REGX_PINNED_H
#define REGX_PINNED_H

#include "base/file.h"
#include "base/thread.h"
#include "transport/pinned/pinned_params.h"
#include "transport/pinned/uring.h"
#include "transport/shm/shm_internal.h"

/* ---- on the wire ---- */

#define REGX_PINNED_CELLS 4u
#define REGX_PINNED_PIECE_MIN (32u << 10)
#define REGX_PINNED_PIECE_MAX (256u << 10) /* bytes of a cell */
/* Bytes after which a call of progress begins no other piece, for each of the two ends. */
#define REGX_PINNED_ROUND (128u << 10)
#define REGX_PINNED_HEAD 4096u /* bytes of the file before the cells */

/* How a peer names a region; sent as it is. */
typedef struct regx_pinned_key {
    uint32_t slot, generation;
    uint64_t length; /* of the region, for the peer: the owner knows it */
    uint64_t zero;
} regx_pinned_key_t;

_Static_assert(sizeof(regx_pinned_key_t) == REGX_KEY_SIZE, "a key is sent as it is");

typedef enum regx_pinned_kind {
    REGX_PINNED_PUT,   /* transfer from the cell */
    REGX_PINNED_GET,   /* transfer to the cell */
    REGX_PINNED_LEFT,  /* nothing more comes of this file */
    REGX_PINNED_DENIED /* from the owner: it cannot open the file */
} regx_pinned_kind_t;

/* A piece, as a frame; sent as it is. */
typedef struct regx_pinned_ask {
    uint8_t kind;
    uint8_t last; /* of its put */
    uint8_t tag, notice_length;
    uint32_t number; /* of the connection's pieces, from 0: its cell is that modulo CELLS */
    uint32_t op;     /* of the connection's operations */
    uint32_t length;
    uint32_t slot, generation;
    uint64_t offset;                 /* in the region */
    regx_shm_file_t file;            /* of the initiator */
    int32_t process;                 /* of the initiator: by which the file is found in /proc, */
    int32_t thread;                  /* or by this one, if the process's first thread has ended */
    uint8_t notice[REGX_NOTICE_MAX]; /* of the last piece of a put */
} regx_pinned_ask_t;

enum { REGX_PINNED_DONE = 1, REGX_PINNED_REFUSED };

/* The head of the file. A word is the number of the piece, plus one, and how it ended. */
typedef struct regx_pinned_head {
    _Atomic uint64_t answers[REGX_PINNED_CELLS];
} regx_pinned_head_t;

/* ---- cells.c ---- */

typedef struct regx_pinned_cells {
    regx_file_t file;
    regx_shm_file_t name; /* as its owner opened it */
    int32_t thread;
    regx_pinned_head_t *head; /* NULL: it is not open */
} regx_pinned_cells_t;

/* Makes the file. false: there is no memory or descriptor for one. */
bool regx_pinned_cells_make(regx_pinned_cells_t *cells);
/* Opens a peer's by what it asks. false: it cannot be opened, or is none. */
bool regx_pinned_cells_open(regx_pinned_cells_t *cells, const regx_pinned_ask_t *ask);
void regx_pinned_cells_close(regx_pinned_cells_t *cells);
/* Where that piece's cell begins in the file. */
static inline uint64_t regx_pinned_cell(uint32_t number)
{
    return REGX_PINNED_HEAD + (uint64_t)(number % REGX_PINNED_CELLS) * REGX_PINNED_PIECE_MAX;
}

/* ---- pin_cost.c ---- */

/* What a registration takes at least, in ns: as much as an adapter's, where io_uring takes less. */
typedef struct regx_pin_cost {
    uint32_t call, page; /* and for each page of memory */
} regx_pin_cost_t;

/* Reads "", "none", "CALL:PAGE" or a profile's name. false: it is none of these, and `error` has the
 * line. */
bool regx_pin_cost_read(const char *text, regx_pin_cost_t *cost, regx_error_t error);
/* Spins until that much has gone by since the registration was begun: a pipeline may hide it, or not,
 * as it does with an adapter. */
void regx_pin_cost_spend(const regx_pin_cost_t *cost, int64_t begun, const void *base,
                         size_t length);

/* ---- the device ---- */

/* A slot of the ring's table, and what is registered there. */
typedef struct regx_pinned_slot {
    uint32_t generation; /* counts up when a region is given up: its keys are dead */
    uint32_t transfers;  /* under way */
    bool used;
    unsigned access;
    uint64_t base, length;
} regx_pinned_slot_t;

typedef struct regx_pinned_peer regx_pinned_peer_t;

typedef struct regx_pinned {
    regx_transport_t super;
    regx_transport_config_t config; /* the user's */
    regx_transport_t *shm;
    regx_lock_t lock;
    regx_uring_t uring;
    regx_pin_cost_t cost;
    char wires[64];
    regx_pinned_slot_t *slots;
    uint32_t *free_slots; /* a stack */
    uint32_t free_count;
    regx_link_t asking;         /* connections with operations */
    regx_link_t conns;          /* all */
    _Atomic uint32_t asked;     /* operations that have not ended */
    regx_pinned_peer_t **peers; /* processes that have asked */
    size_t peer_count, peer_room, peer_next;
    uint32_t awaited; /* pieces that peers have asked for, and that are not answered */
    size_t copied;    /* bytes, in this call of progress */
    bool delivering;  /* a notice of its own, rather than what shm delivers */
} regx_pinned_t;

typedef struct regx_pinned_conn {
    regx_conn_t super;
    regx_conn_t *shm;
    regx_link_t link, turn;        /* in conns, and in asking */
    regx_link_t line;              /* puts and gets, oldest first */
    _Atomic regx_status_t refusal; /* REGX_OK; else nothing is put or got any more */
    regx_pinned_cells_t cells;
    uint32_t told, ended; /* pieces: that the owner was asked for, and that have ended */
    uint32_t ops;         /* begun */
    struct regx_pinned_piece {
        regx_pending_t *op;
        uint32_t number; /* of its operation */
        uint32_t length;
        size_t at; /* in the operation */
    } pieces[REGX_PINNED_CELLS];
    bool holds; /* piece `told` is in its cell, if it is a put's, and the owner is not asked yet */
    unsigned looks;
    int64_t looked; /* whether the peer is there, in ns */
} regx_pinned_conn_t;

static inline regx_pinned_t *regx_pinned_of(const regx_transport_t *transport)
{
    return (regx_pinned_t *)(uintptr_t)transport;
}

static inline regx_pinned_conn_t *regx_pinned_conn_of(const regx_conn_t *conn)
{
    return (regx_pinned_conn_t *)(uintptr_t)conn;
}

extern const regx_transport_ops_t regx_pinned_ops;

/* ---- regions.c ---- */

/* As transport.h's reg and dereg. */
regx_status_t regx_pinned_reg(regx_transport_t *transport, void *base, size_t length,
                              unsigned access, regx_mr_t *mr);
void regx_pinned_dereg(regx_transport_t *transport, regx_mr_t *mr);
/* Copies that range of the region of which the key is to or from the piece's cell, if the region has
 * any of these rights (0: it needs none). Progress alone. REGX_OK; REGX_AGAIN, REGX_FAILED as
 * regx_uring_copy; REGX_DENIED: the key names no such range of a region. */
regx_status_t regx_pinned_copy(regx_pinned_t *pinned, bool to_file, const regx_pinned_key_t *key,
                               uint64_t offset, uint32_t length, unsigned access,
                               const regx_pinned_cells_t *cells, uint32_t number);

/* ---- initiator.c: as described in transport.h ---- */

/* address: that of shared memory. */
regx_status_t regx_pinned_connect(regx_transport_t *transport, uint64_t peer, const void *address,
                                  size_t length, regx_conn_t **conn);
void regx_pinned_disconnect(regx_conn_t *conn);
regx_status_t regx_pinned_put(regx_conn_t *conn, regx_put_t *put);
regx_status_t regx_pinned_get(regx_conn_t *conn, regx_get_t *get);
/* Goes on with what this process puts and gets, up to a bound. Returns how many events there were. */
int regx_pinned_ask(regx_pinned_t *pinned);
/* Tells that process that its file cannot be opened. As transport.h's send; REGX_AGAIN also: there is
 * no connection to it now. */
regx_status_t regx_pinned_deny(regx_pinned_t *pinned, uint64_t peer, const regx_shm_file_t *file);
/* The peer says so of that file, which may be one of a connection that has ended. */
void regx_pinned_denied(regx_pinned_t *pinned, uint64_t peer, const regx_shm_file_t *file);

/* ---- owner.c; all in progress ---- */

/* A frame with REGX_TAG_OWN. */
void regx_pinned_take(regx_pinned_t *pinned, uint64_t sender, const void *data, size_t length);
/* The same for what peers have asked. */
int regx_pinned_serve(regx_pinned_t *pinned);
/* Forgets all peers. */
void regx_pinned_drop_peers(regx_pinned_t *pinned);

#endif

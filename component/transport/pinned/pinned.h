/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A device that pins, in software: what registration costs and what goes stale can be seen on any
 * machine, without an adapter. Between processes of one node. transport.h says what its operations
 * do.
 *
 * It is a variant of shared memory (shm/): frames, zero-copy sends and puts to the pool are that
 * one's, and so are connections; it has regions, puts and gets of its own. Two processes of which
 * one pins alone do not reach each other.
 *
 * A memory region is a slot of an io_uring's table of registered buffers (uring.h); its key names
 * slot and generation, and is good again once 2^32 regions more have had its slot, hours later. A
 * put or get of a region goes in pieces through a file in memory, which each connection has of its
 * own, with four cells of one piece each:
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
 * The owner transfers a piece when its frame is delivered. The answer is a word in the mailbox of the
 * frame: it needs no room anywhere, and can be given to a process that is gone. An owner that cannot
 * open the file answers DENIED; then nothing is put or got over that connection any more.
 *
 * Threads and locks: the lock of shared memory covers the list of connections with operations and
 * each connection's line. All else of a connection is progress's, and so are transfers: one at a
 * time, and awaited, as a copy by the processor is. A lock of its own covers the table of slots. It
 * is a leaf, and real always, since a thread of the registration cache deregisters; and it is held
 * during a transfer, so that dereg waits for that. The kernel has one lock for all of a ring, too:
 * while a thread registers much (a GiB takes 16 ms, and many times that where pages have to be
 * found), transfers of this process wait for it.
 *
 * One call of progress transfers at most 4 pieces that this process asks for, and 16 that each
 * neighbour asks for, as many as it takes frames: these are 4 MiB, some 0.8 ms.
 *
 * A peer that is gone is seen by the initiator, which looks once a second while it awaits an
 * answer. To the owner it does not matter: it has the file, until the mailbox is left.
 *
 * Files: uring.c the ring, regions.c what is registered and what that takes, transfers.c puts and gets
 * at both ends, pinned.c opens and closes.
 */
#ifndef REGX_PINNED_H
#define REGX_PINNED_H

#include "transport/pinned/uring.h"
#include "transport/settings.h"
#include "transport/shm/shm_internal.h"

/* ---- on the wire ---- */

#define REGX_PINNED_CELLS REGX_MAILBOX_ANSWERS
#define REGX_PINNED_PIECE_MIN (32u << 10)
#define REGX_PINNED_PIECE_MAX (256u << 10) /* bytes of a cell */

/* How a peer names a region; sent as it is. */
typedef struct regx_pinned_key {
    uint32_t slot, generation;
    uint64_t length; /* of the region, for the peer: the owner knows it */
} regx_pinned_key_t;

_Static_assert(sizeof(regx_pinned_key_t) <= REGX_KEY_SIZE, "a key is sent as it is");

/* A piece, as a frame; sent as it is. */
typedef struct regx_pinned_ask {
    uint8_t get;         /* transfer to the cell, rather than from it */
    uint8_t first, last; /* of its put or get */
    uint8_t tag, notice_length;
    uint32_t number; /* of the connection's pieces, from 0: its cell is that modulo CELLS */
    uint32_t length;
    int32_t thread; /* of the initiator: by which the file is found in /proc, if its process's first
                       thread has ended */
    uint64_t offset; /* in the region */
    regx_pinned_key_t key;
    regx_shm_file_t file;            /* of the initiator */
    uint8_t notice[REGX_NOTICE_MAX]; /* of the last piece of a put */
} regx_pinned_ask_t;

/* An answer is the number of the piece, plus one, in the upper half, and how it ended. DENIED: the
 * owner cannot open the file. */
enum { REGX_PINNED_DONE = 1, REGX_PINNED_REFUSED, REGX_PINNED_DENIED };

/* What a registration takes at least, in ns: as much as an adapter's, where io_uring takes less. */
typedef struct regx_pin_cost {
    uint32_t call, page; /* and for each page of memory */
} regx_pin_cost_t;

/* ---- the device ---- */

/* What is registered in a slot of the ring's table; all zeros: nothing. */
typedef struct regx_pinned_slot {
    unsigned access;
    uint64_t base, length;
} regx_pinned_slot_t;

typedef struct regx_pinned {
    regx_shm_t *shm;                /* this one's is its transport */
    regx_transport_events_t events; /* the user's */
    regx_lock_t lock;               /* of the slots, and their names */
    regx_uring_t uring;
    regx_pin_cost_t cost;
    char wires[64];
    regx_handle_table_t names; /* of the slots that are taken */
    regx_link_t asking;        /* connections with operations */
    _Atomic uint32_t asked;    /* operations that have not ended */
    bool delivering;           /* a notice of its own, rather than what shm delivers */
    regx_pinned_slot_t slots[];
} regx_pinned_t;

typedef struct regx_pinned_conn {
    regx_shm_conn_t *shm;
    regx_link_t turn;              /* in asking */
    regx_link_t line;              /* puts and gets, oldest first */
    _Atomic regx_status_t refusal; /* REGX_OK; else nothing is put or got any more */
    regx_file_t cells;             /* its descriptor is -1 until there is one */
    regx_shm_file_t name;          /* of it */
    uint32_t told, ended;          /* pieces: that the owner was asked for, and that have ended */
    struct regx_pinned_piece {
        regx_pending_t *op;
        uint32_t length;
        size_t at; /* in the operation */
    } pieces[REGX_PINNED_CELLS];
    unsigned looks;
    int64_t looked; /* whether the peer is there, in ns */
} regx_pinned_conn_t;

static inline regx_pinned_t *regx_pinned_of(const regx_transport_t *transport)
{
    return REGX_CONTAINER_OF(transport, const regx_shm_t, super)->pinned;
}

static inline regx_pinned_conn_t *regx_pinned_conn_of(const regx_conn_t *conn)
{
    return REGX_CONTAINER_OF(conn, const regx_shm_conn_t, super)->pinned;
}

extern const regx_transport_ops_t regx_pinned_ops;

/* ---- regions.c ---- */

/* Reads "", "none", "CALL:PAGE" or a profile's name. false: it is none of these, and `error` has the
 * line. */
bool regx_pin_cost_read(const char *text, regx_pin_cost_t *cost, regx_error_t error);
/* As transport.h's reg and dereg. */
regx_status_t regx_pinned_reg(regx_transport_t *transport, void *base, size_t length,
                              unsigned access, regx_mr_t *mr);
void regx_pinned_dereg(regx_transport_t *transport, regx_mr_t *mr);
/* Copies that range of the region of which the key is to or from the piece's cell, if the region has
 * any of these rights (0: it needs none). Progress alone. REGX_OK; REGX_FAILED; REGX_DENIED: the key
 * names no such range of a region. */
regx_status_t regx_pinned_copy(regx_pinned_t *pinned, bool to_file, const regx_pinned_key_t *key,
                               uint64_t offset, uint32_t length, unsigned access,
                               const regx_file_t *cells, uint32_t number);

/* ---- transfers.c: as described in transport.h ---- */

regx_status_t regx_pinned_connect(regx_transport_t *transport, uint64_t peer, const void *address,
                                  size_t length, regx_conn_t **conn);
void regx_pinned_disconnect(regx_conn_t *conn);
regx_status_t regx_pinned_put(regx_conn_t *conn, regx_put_t *put);
regx_status_t regx_pinned_get(regx_conn_t *conn, regx_get_t *get);
/* Goes on with what one connection puts and gets, up to a bound. Returns how many events there
 * were. */
int regx_pinned_ask(regx_pinned_t *pinned);
/* A frame with REGX_TAG_OWN. In progress. */
void regx_pinned_take(regx_pinned_t *pinned, uint64_t sender, const void *data, size_t length);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared copies: the peer writes the second half of what this process reads (assisted gets of
 * transport.h). Neither waits for the other.
 *
 *   1. The receiver opens a claim cell in its own main segment, and asks the peer by a frame.
 *   2. It reads the first half, while the peer claims pieces of the second by compare-and-swap and
 *      writes them. When the receiver is through, it claims what is left.
 *   3. The claim is the record of itself: the exchange that takes a piece also says which side holds one,
 *      and that side takes this back behind the bytes. When all is claimed and the peer holds nothing,
 *      the bytes are there.
 *
 * The program may leave MPI by siglongjmp anywhere. A side that looks at the cell again and finds that it
 * holds a piece has left that one: it says that a piece has failed. So does a peer that cannot write one.
 * Then the receiver reads the second half itself, once the peer holds nothing.
 *
 * A peer that is not in MPI claims nothing. A peer that comes too late finds that the cell has the
 * number of another use, and does nothing. If the peer dies while it copies a piece, the get fails. A
 * process that has copies of its own to make says so (`busy`); then it is not asked, or the request is
 * withdrawn.
 *
 * The range is divided into halves, rather than into pieces that either side may claim, so that each
 * process finds its half of a buffer that is used again in its own cache. (64 KiB in a stream, on an
 * Intel Xeon: 2.2 us a message; 4.8 us when either side could claim any piece.)
 *
 * A peer claims and copies a piece within one call of progress. So the receiver that gives up a get waits
 * for one system call of the peer, for its next call of MPI if the program has left that, or for its death.
 *
 * The receiver's calls are made by progress and by disconnect, which never run at the same time;
 * regx_shared_copy_ask_locked by any thread. The peer's are made by progress.
 */
#ifndef REGX_TRANSPORT_SHM_SHARED_COPY_H
#define REGX_TRANSPORT_SHM_SHARED_COPY_H

#include "transport/transport.h"

typedef struct regx_shm regx_shm_t;
typedef struct regx_shm_conn regx_shm_conn_t;
typedef struct regx_shm_inbound regx_shm_inbound_t;

/* ---- the claim cell ---- */

#define REGX_CLAIM_PAGE 4096u /* the unit, whatever the machine's page is: both sides agree */
#define REGX_CLAIM_PIECE (512u << 10) /* bytes of a piece: some 30 us */
#define REGX_CLAIM_PIECE_MAX (REGX_CLAIM_PIECE + REGX_CLAIM_PIECE / 8)

#define REGX_SHARED_COPIES 128u          /* gets of one process that may be shared at once */
#define REGX_SHARED_COPY_REQUESTS 128u   /* of peers that wait; more get no help */
#define REGX_SHARED_COPY_MIN (64u << 10) /* bytes of a get: below, the peer comes too late */

/* A claim cell, in the receiver's main segment: how two processes divide the copying of one range
 * while neither waits for the other. */
typedef struct regx_claim_cell {
    _Alignas(64) _Atomic uint64_t word; /* number of the use << 32 | what follows */
} regx_claim_cell_t;

typedef enum regx_claim_side {
    REGX_CLAIM_BY_RECEIVER = 1 << 29, /* that side holds a piece: it is claimed, */
    REGX_CLAIM_BY_PEER = 1 << 30      /* and perhaps not copied */
} regx_claim_side_t;

#define REGX_CLAIM_FAILED (1u << 28)             /* a piece was not copied */
#define REGX_CLAIM_UNITS (REGX_CLAIM_FAILED - 1) /* how many units are claimed */
#define REGX_CLAIM_MAX                                                                             \
    ((uint64_t)REGX_CLAIM_UNITS * REGX_CLAIM_PAGE) /* bytes of a range, at most */

/* A piece, in bytes from the start of the range: [begin, end). */
typedef struct regx_claim_piece {
    uint64_t begin, end;
} regx_claim_piece_t;

/* Units of so many bytes. */
static inline uint32_t regx_claim_units(uint64_t length)
{
    return (uint32_t)((length + REGX_CLAIM_PAGE - 1) / REGX_CLAIM_PAGE);
}

/* Bytes of the next piece of so many: what little would be left over goes along. */
static inline uint64_t regx_claim_piece(uint64_t left)
{
    return left <= REGX_CLAIM_PIECE_MAX ? left : REGX_CLAIM_PIECE;
}

/* The receiver begins use `number`. The cell is in no use. */
void regx_claim_open(regx_claim_cell_t *cell, uint32_t number);
/* Claims the next piece of a range of `length` bytes. Of one that the side still holds it says that it
 * has failed. REGX_OK; REGX_AGAIN: nothing is left; REGX_INVALID: the cell is in another use, or holds
 * what no use writes. */
regx_status_t regx_claim_take(regx_claim_cell_t *cell, uint32_t number, uint64_t length,
                              regx_claim_side_t side, regx_claim_piece_t *piece);
/* The side holds no piece any more. Not copied: the receiver reads all of the range again. */
void regx_claim_end(regx_claim_cell_t *cell, regx_claim_side_t side, bool copied);

static inline uint64_t regx_claim_look(const regx_claim_cell_t *cell)
{
    return atomic_load_explicit(&cell->word, memory_order_acquire);
}

/* The frame that asks for help: a range, whose addresses are those in the one who asks, and in the
 * one who is asked. */
typedef struct regx_shared_copy_frame {
    uint32_t cell;
    uint32_t number; /* of its use */
    uint64_t local, remote;
    uint64_t length;
} regx_shared_copy_frame_t;

/* The receiver's side of a cell. */
typedef struct regx_shared_copy {
    regx_get_t *get;
    regx_shm_conn_t *conn;
    uint64_t half; /* bytes in front of what is divided; they end with a page of the destination */
    uint64_t read; /* of those in front, how many have been copied */
    uint32_t cell, number;
    uint32_t mine;        /* units of the rest that this process copied */
    uint32_t looks;       /* at what the peer has not ended */
    bool from_end;        /* both parts are copied from the end on */
    bool passed_over;     /* other gets were served first: the rest was left to the peer */
    regx_status_t status; /* if it is not REGX_OK the get has failed */
    struct regx_shared_copy *next_free;
} regx_shared_copy_t;

/* What a peer asks of this process. */
typedef struct regx_shared_copy_request {
    regx_shm_inbound_t *from; /* NULL: it is forgotten */
    regx_shared_copy_frame_t frame;
} regx_shared_copy_request_t;

typedef struct regx_shared_copies {
    regx_shared_copy_t gets[REGX_SHARED_COPIES];
    regx_shared_copy_t *free;
    /* A ring. Request n is at n % REGX_SHARED_COPY_REQUESTS. */
    regx_shared_copy_request_t requests[REGX_SHARED_COPY_REQUESTS];
    uint32_t taken, dropped; /* so many, until now */
} regx_shared_copies_t;

/* Requests that peers have made. */
static inline uint32_t regx_shared_copies_asked(const regx_shared_copies_t *copies)
{
    return copies->taken - copies->dropped;
}

void regx_shared_copies_init(regx_shared_copies_t *copies);
/* The receiver. Asks the peer to help. NULL: the get is to be a plain one, because it is short, no
 * cell is free, or the peer has other things to do. Called with the connection's lock held. */
regx_shared_copy_t *regx_shared_copy_ask_locked(regx_shm_conn_t *conn, regx_get_t *get);
/* Takes the request back if nothing is copied and the peer has copies of its own to make. Returns
 * whether it did: then the get is a plain one, and the cell is free. */
bool regx_shared_copy_withdraw(regx_shared_copy_t *copy);
/* Reads a piece. Returns whether there may be more. If not, all is claimed or the get has failed:
 * it is to be ended. */
bool regx_shared_copy_read(regx_shared_copy_t *copy, size_t *copied);
/* Whether other gets are better served before the rest of this one: its first half is read, the
 * peer has not yet claimed all of the second, and helped with the last. Once for each get. */
bool regx_shared_copy_pass_over(regx_shared_copy_t *copy);
/* Ends a get of which all is claimed; what the peer could not write is read first, in one go (a peer
 * that is refused to copy helps no more). REGX_AGAIN: the peer is not ready; else this is the get's
 * status. Then the get is a plain one of which all is moved, or nothing, and the cell is free. */
regx_status_t regx_shared_copy_end(regx_shared_copy_t *copy);
/* Ends a get whatever was copied. Waits until the peer's piece has ended. */
void regx_shared_copy_revoke(regx_shared_copy_t *copy);
/* The peer. A request, as it came. REGX_OK: it was accepted, or is of no use; REGX_INVALID:
 * malformed. The neighbour's main segment is mapped. */
regx_status_t regx_shared_copy_take(regx_shm_t *shm, regx_shm_inbound_t *inbound, const void *data,
                                    size_t length);
/* Claims a piece of what peers read and writes it. Returns whether it did. */
bool regx_shared_copy_write(regx_shm_t *shm);
/* Forgets what that neighbour asked for. */
void regx_shared_copy_forget(regx_shm_t *shm, const regx_shm_inbound_t *inbound);

#endif

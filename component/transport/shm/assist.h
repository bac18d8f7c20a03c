/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Assisted gets: the peer writes the second half of what this process reads.
 *
 * The receiver takes a claim cell (claim.h) in its own main segment, and asks the peer by a frame
 * of shared memory's own. Then it reads the first half (process_vm_readv), while the peer claims
 * pieces of the second and writes them (process_vm_writev). When the receiver is through it claims
 * what is left. Nobody waits for the other: a peer that is busy, or not in MPI, claims nothing, and
 * the receiver reads all. A peer that may not write, or cannot, leaves that piece to the receiver.
 * The get has ended when everything is claimed and all pieces have ended.
 *
 * Why halves, and not pieces of equal right: a program uses its buffers again, and half of the
 * buffer then lies in each of the two caches. With pieces for whoever comes first, 64 KiB messages
 * in a stream took 4.8 us each, with halves 2.2 (Intel Xeon, two processes without MPI).
 *
 * The receiver does not ask a peer that has copies of its own to make, and takes a request back of
 * which nothing is copied when it finds that the peer has such: in both directions at once each
 * side best reads by itself, with the fewest system calls.
 *
 * On the node a process of the same user is trusted as far as the kernel trusts it: the peer copies
 * between its own memory and the process that asked, wherever that says. What a request says is
 * checked only as far as the cell and the lengths go.
 *
 * A peer claims and copies a piece within one call of progress. So it never holds a claim while it
 * disconnects or closes, and the receiver that gives up a get waits for one system call of the
 * peer, or for its death.
 *
 * The receiver's calls are made by progress, and by disconnect, which never run at the same time.
 * regx_assist_ask_locked may be called by any thread. The peer's are made by progress.
 */
#ifndef REGX_TRANSPORT_ASSIST_H
#define REGX_TRANSPORT_ASSIST_H

#include <stdbool.h>
#include <stddef.h>

#include "transport/shm/claim.h"
#include "transport/transport.h"

#define REGX_ASSIST_CELLS 128u    /* gets of one process that may be assisted at once */
#define REGX_ASSIST_REQUESTS 128u /* of peers that wait for this process's help; more go without */
#define REGX_ASSIST_MIN (64u << 10) /* bytes of a get: below, the peer comes too late */

struct regx_shm;
struct regx_shm_conn;
struct regx_shm_inbound;

/* The frame, as it is in the mailbox: a range, whose addresses are those in the one who asks, and
 * in the one who is asked. */
typedef struct regx_assist_frame {
    uint32_t cell;
    uint32_t number; /* of its use */
    uint64_t local, remote;
    uint64_t length;
} regx_assist_frame_t;

/* The receiver's side of a cell. */
typedef struct regx_assisted {
    regx_get_t *get;
    struct regx_shm_conn *conn;
    uint64_t half; /* bytes in front of what is divided; they end with a page of the destination */
    uint64_t read; /* of those in front, how many have been copied */
    uint32_t cell, number;
    uint32_t mine;        /* units of the rest that this process claimed */
    uint32_t theirs;      /* units that the peer claimed; valid once closed */
    uint32_t looks;       /* at what the peer has not ended */
    bool from_end;        /* both parts are copied from the end on */
    bool closed;          /* nothing more is claimed */
    bool passed_over;     /* other gets were served first: the rest was left to the peer */
    regx_status_t status; /* if it is not REGX_OK the get has failed */
    struct regx_assisted *next_free;
} regx_assisted_t;

typedef struct regx_assists {
    regx_claim_cell_t *cells; /* in the main segment */
    regx_assisted_t gets[REGX_ASSIST_CELLS];
    regx_assisted_t *free;
} regx_assists_t;

/* What a peer asks of this process. */
typedef struct regx_assist_request {
    struct regx_shm_inbound *from;
    regx_assist_frame_t frame;
} regx_assist_request_t;

typedef struct regx_assist_requests {
    regx_assist_request_t waiting[REGX_ASSIST_REQUESTS]; /* oldest first */
    unsigned count;
} regx_assist_requests_t;

void regx_assists_init(regx_assists_t *assists, regx_claim_cell_t *cells);

/* ---- the receiver ---- */

/* Asks the peer to assist. NULL: the get is to be a plain one, because it is short, no cell is
 * free, or the peer has other things to do. Called with the connection's lock held. */
regx_assisted_t *regx_assist_ask_locked(struct regx_shm_conn *conn, regx_get_t *get);

/* Takes the request back if nothing is copied and the peer has copies of its own to make. Returns
 * whether it did: then the cell is free, and the get is a plain one. */
bool regx_assist_withdraw(regx_assisted_t *assisted);

/* Reads a piece. Returns whether there may be more. If not, all is claimed or the get has failed:
 * it is to be ended. */
bool regx_assist_read(regx_assisted_t *assisted, size_t *copied);

/* Whether other gets are better served before the rest of this one: its first half is read, the
 * peer has not yet claimed all of the second, and helped with the last. Once for each get. */
bool regx_assist_pass_over(regx_assisted_t *assisted);

/* Ends a get of which all is claimed. REGX_AGAIN: the peer is not ready; else the cell is free, and
 * this is the get's status. */
regx_status_t regx_assist_end(regx_assisted_t *assisted);

/* Ends a get whatever was copied. Waits until the peer's piece has ended. */
void regx_assist_revoke(regx_assisted_t *assisted);

/* ---- the peer ---- */

/* A request, as it came. REGX_OK: it was accepted, or is of no use; REGX_INVALID: malformed. The
 * neighbour's main segment is mapped. */
regx_status_t regx_assist_take(struct regx_shm *shm, struct regx_shm_inbound *inbound,
                               const void *data, size_t length);

/* Claims a piece of what peers read and writes it. Returns whether it did. */
bool regx_assist_write(struct regx_shm *shm);

/* Forgets what that neighbour asked for. */
void regx_assist_forget(struct regx_shm *shm, const struct regx_shm_inbound *inbound);

#endif

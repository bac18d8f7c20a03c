/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport between processes on one machine: mailboxes and the peer's pool in shared memory,
 * and the kernel's copy (vm.h) into and out of memory that is not shared. transport.h says what
 * its operations do.
 *
 * Each process owns a main segment, which holds its connect queue, its claim cells, its pool and a
 * mailbox for each process that the node has at the start. Those that come later get mailboxes in
 * segments of their own, allocated as they are first written to. The mailbox from A to B lies in A's
 * memory. It takes some 1,041 KiB; 529, 273 and 145 with more than 8, 16 and 32 processes on the node, or
 * where more would be over half of what is free in /dev/shm. Of System V no page is taken for a pair of
 * processes that do not talk.
 *
 * Neighbours map each other's main segments when they connect, which those of the start do in
 * MPI_Init, and need nothing more of each other: a program may then drop its privileges or use up
 * its descriptors. Up to REGX_SHM_AHEAD neighbours.
 *
 * A connection is refused only before its first frame was accepted: the peer's memory cannot be mapped,
 * the peer has ended, or there is no memory for a mailbox. The reason is tallied, and the connection is
 * broken.
 *
 * Of a process that has ended MPI nothing stays but the connection's record: Open MPI 4.1 disconnects in its own
 * MPI_Finalize alone, and a process may spawn, or accept, any number of others before. They are looked for
 * whenever another one comes.
 *
 * A process that was killed has closed nothing, but its memory stays as it was where it is mapped. It is noticed by a
 * look at each neighbour's life (vm.h), once a second while this process is in MPI: what it had posted is
 * delivered first. One that is stopped lives.
 *
 * Closing waits until each neighbour has mapped what was sent to it, has closed, or is dead. The neighbour
 * reads that later: its mapping outlives the owner.
 *
 * Files: shm.c opens and closes, shm_conn.c connects and disconnects, mailbox_pool.c has the memory
 * of mailboxes, shm_post.c sends, shm_poll.c receives and completes, neighbour.c maps others' main
 * segments. segment.c has memory that others map, file.c its files and pages (segment.h
 * declares both), and vm.c the kernel's copies, and whether a process lives.
 * Who copies what; each file says how, and when that is best:
 *
 *   a frame             the sender into the mailbox, the receiver out of it      mailbox.c
 *   a zero-copy frame   the sender into its pool, the receiver out of that       shm_post.c, shm_poll.c
 *   a put to the pool   the sender into the peer's pool                          shm_post.c
 *   a put or get        the requester, piece by piece (queued in copies.c): by   vm.c
 *                       the kernel, or itself where the peer's bytes are of
 *                       MPI_Alloc_mem (alloc_mem_segment.c maps them)
 *   an assisted get     the requester the first half, both the second            shared_copy.c
 *   a staged get        the owner into a staging buffer, the requester out of    cico.c
 *   a window's copy     the origin, at once, as a piece                          vm.c
 *
 * Locks: a connection's lock covers its state and its mailbox; the transport's covers the lists, the
 * views and the mailboxes' memory. Where both are needed the connection's is taken first. `inbound`,
 * `delivering`, `ending` and what peers ask in `shared_copies` belong to progress.
 */
#ifndef REGX_TRANSPORT_SHM_INTERNAL_H
#define REGX_TRANSPORT_SHM_INTERNAL_H

#include "base/handle_table.h"
#include "base/thread.h"
#include "transport/shm/cico.h"
#include "transport/shm/mailbox.h"
#include "transport/shm/segment.h"
#include "transport/shm/shared_copy.h"

/* ---- keys ---- */

/* How memory of a process is named to a neighbour: by its address, which the kernel's copy needs.
 * Nothing is registered, and no key is ever taken back: a neighbour is trusted as far as the kernel
 * trusts a process of the same user. Sent as it is. */
typedef struct regx_shm_key {
    uint64_t address;
    uint64_t length : 63;
    /* Of MPI_Alloc_mem, in a process that handles SIGSEGV: perhaps it has protected these pages, and
     * a peer that maps them would not see that. */
    uint64_t by_kernel : 1;
    regx_handle_t offer; /* of what may be staged */
} regx_shm_key_t;

_Static_assert(sizeof(regx_shm_key_t) == REGX_KEY_SIZE, "the key has no room to spare");

static inline regx_shm_key_t regx_shm_key_unpack(const regx_key_t *packed)
{
    regx_shm_key_t key;

    memcpy(&key, packed->bytes, sizeof(key));
    return key;
}

static inline void regx_shm_key_pack(regx_shm_key_t key, regx_key_t *packed)
{
    memcpy(packed->bytes, &key, sizeof(key));
}

/* ---- the main segment ---- */

/* Where a process is. A rank may have a name and a number of its own for the machine, as in a
 * container: then only Open MPI knows that it is on this node. Two processes of one node reach each
 * other if each can map the other's memory: of System V from the same IPC namespace, by whose numbers
 * it is named (where that is not known, /proc is hidden, and the attempt tells); a file with a name
 * where /dev/shm is the same; another by way of /proc, from the same PID and user namespaces alone,
 * since the kernel lets no process look into one of another user namespace. */
typedef struct regx_shm_node {
    uint64_t machine;   /* the host's name and its boot ID */
    uint64_t processes; /* the PID namespace; 0: not known */
    uint64_t ipc;       /* the IPC namespace; 0: not known */
    uint64_t users;     /* the user namespace; 0: not known */
    uint64_t memory;    /* what /dev/shm is; 0: not known */
} regx_shm_node_t;

/* Both known, and not the same. */
static inline bool regx_shm_differ(uint64_t one_space, uint64_t other)
{
    return one_space != 0 && other != 0 && one_space != other;
}

/* What a process publishes for its neighbours; sent as it is. */
typedef struct regx_shm_address {
    regx_segment_name_t main;
    uint64_t pool_offset;
    uint64_t pool_size;
    uint64_t cookie_address;
    regx_vm_cookie_t cookie;
    regx_life_t life;
    regx_shm_node_t node;
    uint64_t variant; /* of this transport, or 0: only the same reach each other */
} regx_shm_address_t;

#define REGX_CONNECT_QUEUE_ENTRIES 32

/* Who asks to be connected, and where its frames will be. */
typedef struct regx_connect_request {
    uint64_t sender;
    regx_shm_address_t address;
    regx_segment_name_t mailboxes; /* the sender's */
    uint64_t mailbox_offset;       /* in them */
    uint32_t mailbox_ring;         /* bytes of its payload */
} regx_connect_request_t;

/* Where neighbours ask to be connected, before they post their first frame. Any number of processes
 * may ask at once. Each claims a free entry, fills it, makes it READY, and then counts up `requests`, the
 * one word that the owner reads per poll. A process that dies before it has counted is seen with the next
 * request. A claim names its process, above these states, so that the next one to ask takes over what a
 * dead one had claimed. */
enum { REGX_REQUEST_FREE, REGX_REQUEST_CLAIMED, REGX_REQUEST_READY };

typedef struct regx_connect_queue {
    _Alignas(64) _Atomic uint64_t requests; /* made until now */
    _Alignas(64) regx_vm_cookie_t cookie;
    _Atomic uint32_t closed; /* the owner reads nothing any more */
    struct {
        _Alignas(64) _Atomic uint64_t state;
        regx_connect_request_t request;
    } entries[REGX_CONNECT_QUEUE_ENTRIES];
} regx_connect_queue_t;

/* ---- memory for the user's buffers (alloc_mem_segment.c) ---- */

#define REGX_ALLOC_MEM_SEGMENTS 32u /* of a process; each takes a file descriptor */
/* Bytes of a block, at least: messages of shorter ones seldom go by rendezvous. */
#define REGX_ALLOC_MEM_MIN (16u << 10)

/* How a segment is named to peers. */
typedef struct regx_alloc_mem_name {
    uint64_t base; /* in the owner */
    uint64_t length;
    regx_shm_file_t file;
} regx_alloc_mem_name_t;

/* In the main segment. A name is written before it is counted, and never again. */
typedef struct regx_alloc_mem_shared {
    _Alignas(64) _Atomic uint32_t count;
    regx_alloc_mem_name_t names[REGX_ALLOC_MEM_SEGMENTS];
} regx_alloc_mem_shared_t;

typedef struct regx_alloc_mem_block regx_alloc_mem_block_t;
typedef struct regx_alloc_mem_view regx_alloc_mem_view_t; /* a peer's segments, mapped here */

typedef struct regx_alloc_mem {
    regx_lock_t lock;                                     /* a leaf; of what follows */
    uint32_t count;                                       /* of segments */
    regx_alloc_mem_name_t names[REGX_ALLOC_MEM_SEGMENTS]; /* peers cannot write these */
    size_t bytes;                                         /* of all segments */
    bool strict;                    /* their pages are taken at once, and kept */
    regx_alloc_mem_block_t *blocks; /* of all segments, free or not */
} regx_alloc_mem_t;

/* ---- mailboxes ---- */

/* A mailbox that this process posts to, for as long as it is in use. */
typedef struct regx_mailbox_box {
    regx_mailbox_memory_t *memory;
    regx_segment_name_t segment; /* for the one who is to read it, */
    size_t offset;               /* where in the segment the mailbox lies, */
    uint32_t ring;               /* and its ring's bytes */
    bool in_use;
    bool begun; /* it was used, and perhaps its last reader has not left it */
} regx_mailbox_box_t;

/* Their memory: a part of the main segment for the neighbours that there are when it is made, so that
 * a process that has mapped it needs nothing more; for others segments of up to four. They are used
 * again when their readers have left them, and freed when the process closes. */
typedef struct regx_mailbox_pool {
    regx_segment_kind_t kind;
    struct regx_mailbox_segment *segments; /* the newest first */
    struct regx_mailbox_segment *in_main;  /* or NULL; one of them */
    unsigned neighbours;                   /* connections there are: how many boxes there may be */
} regx_mailbox_pool_t;

#define REGX_MAILBOX_POOL_UNIT 4u /* mailboxes per segment, at most */

/* ---- the transport ---- */

/* How a main segment begins. The staging buffers follow, the pool, and mailboxes. */
typedef struct regx_shm_main {
    regx_connect_queue_t queue;
    _Alignas(64) _Atomic uint32_t busy; /* whether the owner has copies of its own to make */
    regx_claim_cell_t cells[REGX_SHARED_COPIES];
    regx_cico_shared_t cico;
    regx_alloc_mem_shared_t alloc_mem;
    /* Of one with a name: who has mapped it, of how many. The last of them removes the name. */
    _Alignas(64) _Atomic uint32_t mapped;
    uint32_t expected; /* 0: not known */
} regx_shm_main_t;

/* Where in a main segment the staging buffers begin: on a page. */
static inline size_t regx_cico_offset(void)
{
    return regx_align_up(sizeof(regx_shm_main_t), regx_page_size());
}

/* Where its pool begins in a main segment with so many staging buffers. */
static inline size_t regx_shm_pool_offset(unsigned buffers)
{
    return regx_cico_offset() + (size_t)buffers * REGX_CICO_SIZE;
}

/* A neighbour's main segment, mapped once for all who use it: connections to it, and what it posts. */
typedef struct regx_shm_view regx_shm_view_t;

/* Another process of the node. */
typedef struct regx_shm_neighbour {
    regx_shm_address_t address;
    regx_vm_peer_t vm;
    regx_shm_view_t *view; /* NULL: it is not mapped */
    regx_shm_main_t *main; /* NULL then */
    char *pool;            /* if it is mapped */
} regx_shm_neighbour_t;

/* Neighbours for which memory is mapped and set aside at the start, at most. More would be
 * terabytes of addresses. */
#define REGX_SHM_AHEAD 1024u

#define REGX_SHM_POOL_PARTS 256u /* of a peer's pool, at most, each mapped as it is first put to */

/* The way to a neighbour. Written under its lock: state, out, pool_part, pool_parts, box, uses,
 * refusal, and what of the peer is mapped. Under the transport's: copies, turn, from_end, and next
 * while it is among the refused. Progress's: brought_in, alloc_mem, assisted, last_posted. */
struct regx_shm_conn {
    regx_conn_t super;
    regx_lock_t lock;
    enum { REGX_SHM_NEW, REGX_SHM_ATTACHED, REGX_SHM_REFUSED } state;
    regx_mailbox_out_t out;
    regx_shm_neighbour_t peer;
    size_t pool_part; /* its bytes; whole pages */
    /* Bit per part of the peer's pool that was put to, and bytes of its staging buffers that were
     * copied out. */
    uint64_t pool_parts[REGX_SHM_POOL_PARTS / 64];
    size_t brought_in[REGX_CICO_BUFFERS];
    regx_alloc_mem_view_t *alloc_mem;    /* the peer's; progress's */
    regx_mailbox_box_t *box;             /* of `out` */
    _Atomic uint32_t zcopies;            /* bit per token: the peer has not yet returned it */
    uint32_t uses[REGX_MAILBOX_ZCOPIES]; /* of the tokens, so far */
    regx_link_t copies;                  /* puts and gets for the kernel, oldest first */
    regx_link_t turn;                    /* in `turns` while there are any */
    bool from_end;               /* the last copy of several pieces began with its last one */
    bool assisted;               /* the peer wrote a part of the last get of which it was asked */
    bool last_posted;            /* the last frame was posted */
    bool gone;                   /* at the last look: its process has ended */
    bool lost;                   /* it was reported that the peer has ended without closing */
    bool ended;                  /* the peer has: all that leads to it was given back */
    unsigned putting;            /* puts that write to the peer's pool now; under the lock */
    struct regx_shm_conn *older; /* of all */
    const char *refusal;         /* why it is REFUSED */
    struct regx_shm_conn *next;  /* in the list of disconnecting or of refused ones */
    void *pinned;                /* what pinned/ adds, or NULL */
};

/* Bytes of one copy before the turn of the next one. */
#define REGX_SHM_TURN (2048u * 1024u)
/* A program looks seldom if so many nanoseconds pass between two looks while there is something to copy. */
#define REGX_SHM_SELDOM 1000000

/* Neighbours that post to this process, at most: more than a node has processors. Beyond that the
 * connection is broken, and a warning is printed. */
#define REGX_SHM_NEIGHBOURS_MAX 4096u

/* A neighbour that posts to this process. */
struct regx_shm_inbound {
    uint64_t sender;
    regx_shm_neighbour_t peer; /* mapped if its mailbox lies there, else when it is needed */
    regx_shm_mapping_t boxes;  /* base NULL: its mailbox lies in its main segment */
    regx_mailbox_memory_t *memory;
    regx_mailbox_in_t in;
    regx_file_t cells; /* of pinned/: what the neighbour puts and gets goes by it */
    bool failed;       /* a piece of what it puts or gets now */
};

struct regx_shm {
    regx_transport_t super;
    regx_transport_config_t config;
    regx_shm_address_t address;
    regx_segment_t main;
    size_t cico_offset; /* of the staging buffers, in the main segment */
    regx_connect_queue_t *queue;
    uint64_t
        requests_seen; /* of the connect queue: so many were made when it was last looked through */
    regx_lock_t lock;
    regx_mailbox_pool_t mailboxes;
    regx_shm_view_t *views; /* under the lock */
    regx_shm_conn_t
        *conns; /* all, the newest first; put in front under the lock, taken out by disconnect */
    int64_t looked;      /* when progress last looked whether peers live; 0: not yet */
    bool sweep_due;      /* progress looks for peers that have ended; under the lock */
    regx_link_t zcopies; /* posted, not yet returned */
    _Atomic uint32_t zcopy_count;
    regx_link_t turns;   /* of connections that have copies: one piece each */
    regx_link_t ending;  /* gets whose last pieces the peer is at */
    uint32_t own_copies; /* queued and ending */
    int64_t served_at;   /* when progress copied the last piece; 0: none was left. Progress's */
    /* Copies queued and ending, requests of peers, offers that are queued, staged gets,
     * refused connections, a sweep, and disconnecting ones whose last line found no room: 0, nothing
     * to do.
     */
    _Atomic uint32_t copy_count;
    regx_shm_conn_t *disconnecting; /* their mailboxes are not yet read to the end */
    bool unread;                    /* some were freed before; only when this process closes */
    regx_shm_conn_t *refused;       /* to be reported by progress; under the lock */
    regx_shm_inbound_t **inbound;
    regx_shm_inbound_t *delivering; /* its frames, at this moment */
    _Atomic uint32_t received;      /* frames and connect requests, of all; written by progress */
    size_t inbound_count;
    regx_shared_copies_t shared_copies;
    regx_cico_t cico;
    regx_alloc_mem_t alloc_mem;
    void *life;   /* while this process's is seen by others */
    void *pinned; /* what pinned/ adds, or NULL */
};

static inline regx_shm_t *regx_shm_of(regx_transport_t *transport)
{
    return REGX_CONTAINER_OF(transport, regx_shm_t, super);
}

static inline regx_shm_conn_t *regx_shm_conn_of(regx_conn_t *conn)
{
    return REGX_CONTAINER_OF(conn, regx_shm_conn_t, super);
}

static inline regx_shm_main_t *regx_shm_main(const regx_shm_t *shm)
{
    return (regx_shm_main_t *)(void *)shm->main.base;
}

/* One copy more or less. With one thread no interlocked operation. */
static inline void regx_shm_count_copies(regx_shm_t *shm, int change)
{
    if (shm->lock.real) {
        atomic_fetch_add_explicit(&shm->copy_count, (uint32_t)change, memory_order_relaxed);
    } else {
        atomic_store_explicit(&shm->copy_count,
                              atomic_load_explicit(&shm->copy_count, memory_order_relaxed) +
                                  (uint32_t)change,
                              memory_order_relaxed);
    }
}

/* Whether the connection's next copy, of so many bytes, begins with its last piece: see copies.c.
 * Called with the transport's lock held. */
static inline bool regx_shm_from_end_locked(regx_shm_conn_t *conn, size_t length)
{
    if (length <= REGX_CLAIM_PIECE_MAX) {
        return false;
    }
    conn->from_end = !conn->from_end;
    return conn->from_end;
}

/* Takes a connection's operations out of a line, to another. Returns how many. The transport's lock
 * is held. */
static inline int regx_shm_take_ops_locked(regx_link_t *line, const regx_shm_conn_t *conn,
                                           regx_link_t *taken)
{
    int count = 0;

    for (regx_link_t *link = line->next, *next; link != line; link = next) {
        next = link->next;
        if (regx_pending_of(link)->conn == &conn->super) {
            regx_list_shift(taken, link);
            count++;
        }
    }
    return count;
}

/* What is copied at once between this process and a neighbour. */
typedef struct regx_shm_piece {
    regx_shm_neighbour_t *neighbour;
    regx_alloc_mem_view_t **alloc_mem; /* the neighbour's; NULL: the kernel is to copy */
    regx_copy_direction_t direction;
    char *local;
    uint64_t remote;
    size_t length;
} regx_shm_piece_t;

/* ---- alloc_mem_segment.c ---- */

/* Unmaps the segments in which nothing is allocated any more, and closes the files. */
void regx_alloc_mem_fini(regx_alloc_mem_t *alloc_mem);
/* As transport.h's allocate and release. Any thread. */
void *regx_shm_allocate(regx_transport_t *transport, size_t length);
void regx_shm_release(regx_transport_t *transport, void *memory);
/* The segment of this process's that has all of those bytes, one of shm->alloc_mem.names; NULL: none
 * has. Any thread. */
const regx_alloc_mem_name_t *regx_alloc_mem_find(const regx_shm_t *shm, const void *base,
                                                 size_t length);
/* Where the neighbour's bytes are mapped here, if need be from now on. NULL: nowhere, the kernel is to
 * copy. */
char *regx_alloc_mem_map(const regx_shm_t *shm, const regx_shm_piece_t *piece);
/* So many bytes were copied there. */
void regx_alloc_mem_note(const regx_shm_t *shm, regx_alloc_mem_view_t *view, size_t length);
/* Unmaps what of a peer was mapped. The view is NULL then. */
void regx_alloc_mem_drop(regx_alloc_mem_view_t **view);

/* ---- shm.c ---- */

extern const regx_transport_ops_t regx_shm_ops;
extern const regx_catalog_entry_t regx_shm_entry;
/* As transport.h's address and node.expose. */
size_t regx_shm_address(regx_transport_t *transport, void *buffer);
void regx_shm_expose(regx_transport_t *transport, const void *base, size_t length, regx_key_t *key);

/* ---- shm_conn.c ---- */

bool regx_shm_reaches(const regx_transport_t *transport, const void *address, size_t length,
                      bool same_node);
regx_status_t regx_shm_connect(regx_transport_t *transport, uint64_t peer, const void *address,
                               size_t length, regx_conn_t **conn);
void regx_shm_disconnect(regx_conn_t *conn);
bool regx_shm_reachable(regx_conn_t *conn);
/* Asks the owner of the queue. Any process that maps it. REGX_AGAIN: no entry is free now. */
regx_status_t regx_connect_queue_request(regx_connect_queue_t *queue,
                                         const regx_connect_request_t *request);
/* Maps the peer, gets a mailbox for it and asks it to read that. Called with the connection's lock
 * held. REGX_AGAIN: the peer's connect queue is full; REGX_UNREACHABLE: refused, for good. */
regx_status_t regx_shm_attach_locked(regx_shm_conn_t *conn);
/* Reports those that were refused as broken. Only in progress. */
int regx_shm_report_refused(regx_shm_t *shm);
/* As transport.h's look. */
void regx_shm_look(regx_transport_t *transport);
/* Gives back what leads to peers that have ended, if that is due. Only in progress. */
void regx_shm_sweep(regx_shm_t *shm);
/* Ends those disconnecting connections whose peer has read everything, or reads nothing any more; when this
 * process closes, also those whose peer has mapped what it has to read.
 * In progress, or while that is kept out. */
void regx_shm_reap(regx_shm_t *shm);

/* Begins to read those that ask for it, in progress. How many events there were. */
int regx_shm_accept_neighbours(regx_shm_t *shm);
/* Reads nothing more of a neighbour, and notifies it. Only in progress, or when it is kept out. */
void regx_shm_drop_inbound(regx_shm_t *shm, regx_shm_inbound_t *inbound);

/* ---- mailbox_pool.c. All but ring_choose and begin with the transport's lock held ---- */

/* Bytes of a ring: shorter ones for many neighbours, and to leave enough shared memory for others. all:
 * mailboxes of all processes of this machine, if all talk. room: bytes that they may take together. */
uint32_t regx_mailbox_ring_choose(size_t neighbours, size_t all, size_t room);
/* There are so many, from that offset on. false: no memory. */
bool regx_mailbox_pool_begin(regx_mailbox_pool_t *pool, const regx_segment_t *main, size_t offset,
                             unsigned boxes, uint32_t ring);
/* One in the main segment, of which nothing is touched yet. NULL: there is none. */
regx_mailbox_box_t *regx_mailbox_box_reserve(regx_mailbox_pool_t *pool);
/* One anywhere; more are made if need be. NULL: none is to be had. */
regx_mailbox_box_t *regx_mailbox_box_take(regx_mailbox_pool_t *pool);
/* Before it is first posted to: zeroed except for the owner's cookie. By who has taken it, without the
 * lock. */
void regx_mailbox_box_begin(regx_mailbox_box_t *box, const regx_vm_cookie_t *owner);
void regx_mailbox_box_give_back(regx_mailbox_box_t *box);
/* Frees the memory of all, which no process reads any more. */
void regx_mailbox_pool_free(regx_mailbox_pool_t *pool);

/* ---- shm_post.c: as described in transport.h ---- */

regx_status_t regx_shm_send(regx_conn_t *conn, uint8_t tag, const void *header,
                            size_t header_length, regx_pack_t pack, void *payload,
                            size_t payload_length);
regx_status_t regx_shm_send_zcopy(regx_conn_t *conn, regx_zcopy_t *zcopy);
regx_status_t regx_shm_put(regx_conn_t *conn, regx_put_t *put);
regx_status_t regx_shm_get(regx_conn_t *conn, regx_get_t *get);
regx_status_t regx_shm_copy(regx_conn_t *conn, regx_copy_direction_t direction, void *local,
                            uint64_t remote, size_t length);

/* ---- neighbour.c ---- */

/* Whether what a process says of itself can be true. */
bool regx_shm_address_is_valid(const regx_shm_address_t *address);
/* Who published that address; not mapped. */
regx_shm_neighbour_t regx_shm_neighbour(const regx_shm_t *shm, const regx_shm_address_t *address);
/* Maps it, unless it is mapped. REGX_DENIED: what is there is another process's; REGX_UNREACHABLE:
 * it cannot be mapped. These two: under the lock of the connection that the neighbour belongs to,
 * without the transport's; one that posts here belongs to progress. */
regx_status_t regx_shm_neighbour_map(regx_shm_t *shm, regx_shm_neighbour_t *neighbour);
void regx_shm_neighbour_unmap(regx_shm_t *shm, regx_shm_neighbour_t *neighbour);

/* ---- vm.c ---- */

/* Whether the kernel lets this process copy from and to the neighbour. It is asked once, and why it
 * does not is tallied then. Locks as of regx_shm_neighbour_map. */
bool regx_shm_may_copy(const regx_shm_t *shm, regx_shm_neighbour_t *neighbour);
/* Copies the whole piece, though the kernel may stop early. On an error, as of regx_vm_copy, some
 * of it may be copied. Only in progress, unless alloc_mem is NULL. */
regx_status_t regx_shm_piece_copy(regx_shm_t *shm, regx_shm_piece_t piece);
/* The same of so many bytes of a put or get, from `at` on. Only in progress. */
regx_status_t regx_shm_copy_part(regx_shm_t *shm, regx_pending_t *op, size_t at, size_t length);

/* ---- copies.c ---- */

/* Queues a put or get, of which `pending` is filled in, for progress to have the kernel make. */
void regx_shm_queue_copy(regx_shm_conn_t *conn, regx_pending_t *op);
/* Copies one piece, or several short ones, for this process or, if there is nothing, for a peer.
 * Returns how many events there were. */
int regx_shm_poll_copies(regx_shm_t *shm);
/* Ends all copies of the connection: they have failed. Waits until the peer's piece has ended. */
void regx_shm_drop_copies(regx_shm_conn_t *conn);

/* ---- shm_poll.c ---- */

bool regx_shm_has_next(const regx_transport_t *transport);
int regx_shm_progress(regx_transport_t *transport);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of shared memory share: shm.c opens and closes, shm_conn.c connects and
 * disconnects, shm_post.c sends, shm_poll.c receives and completes, copies.c has the kernel copy,
 * assist.c shares a get's copy with the peer, stage.c copies by way of shared memory, owned.c has
 * memory for the user's buffers, owned_view.c maps a peer's, boxes.c has the mailboxes' memory.
 *
 * Locks: a connection's lock covers its state and its mailbox; the transport's covers the lists and
 * the mailboxes' memory. Where both are needed the connection's is taken first. `inbound`,
 * `ending` and `requests` belong to progress.
 */
#ifndef REGX_TRANSPORT_SHM_INTERNAL_H
#define REGX_TRANSPORT_SHM_INTERNAL_H

#include "base/lock.h"
#include "base/util.h"
#include "transport/arbiter.h"
#include "transport/counters.h"
#include "transport/shm/assist.h"
#include "transport/shm/boxes.h"
#include "transport/shm/connect_queue.h"
#include "transport/shm/mailbox.h"
#include "transport/shm/node.h"
#include "transport/shm/owned_view.h"
#include "transport/shm/segment.h"
#include "transport/shm/shm.h"
#include "transport/shm/stage.h"
#include "transport/shm/vm.h"

/* How a main segment begins. The stages follow, and the pool. */
typedef struct regx_shm_main {
    regx_connect_queue_t queue;
    _Alignas(64) _Atomic uint32_t busy;    /* whether the owner has copies of its own to make */
    _Alignas(64) _Atomic uint32_t copying; /* the kernel copies for the owner now */
    regx_claim_cell_t cells[REGX_ASSIST_CELLS];
    regx_stage_shared_t stage;
    regx_owned_shared_t owned;
} regx_shm_main_t;

/* Where in a main segment the stages' memory begins: on a page. */
static inline size_t regx_shm_stage_offset(void)
{
    return regx_align_up(sizeof(regx_shm_main_t), regx_page_size());
}

static inline regx_shm_main_t *regx_shm_main_at(const regx_shm_mapping_t *mapping)
{
    return (regx_shm_main_t *)(void *)mapping->base;
}

/* What a process publishes for its neighbours. */
typedef struct regx_shm_address {
    regx_segment_name_t main;
    uint64_t pool_offset;
    uint64_t pool_size;
    uint64_t cookie_address;
    regx_vm_cookie_t cookie;
    int64_t pid;
    regx_shm_node_t node;
} regx_shm_address_t;

/* What the kernel is to copy for the puts and gets of a connection, oldest first. Each is named by
 * its scratch. */
typedef struct regx_shm_copies {
    void **first;
    void **last; /* if there is a first */
} regx_shm_copies_t;

/* The way to a neighbour. */
typedef struct regx_shm_conn {
    regx_conn_t super;
    regx_lock_t lock;
    enum { REGX_SHM_NEW, REGX_SHM_ATTACHED, REGX_SHM_REFUSED } state;
    regx_mailbox_out_t out;
    regx_shm_address_t address;
    regx_shm_mapping_t main;     /* the peer's main segment */
    regx_connect_queue_t *queue; /* the peer's; NULL: its main segment is not mapped */
    char *pool;                  /* the peer's */
    uint64_t pool_parts;         /* bit per part of it: put to before */
    regx_vm_peer_t vm;
    regx_owned_view_t *owned; /* the peer's; progress's */
    regx_shm_box_t box;       /* the memory of `out` */
    _Atomic uint32_t zcopies; /* bit per token: the peer has not yet returned it */
    uint32_t laps[REGX_MAILBOX_ZCOPIES];
    regx_shm_copies_t copies;
    regx_arbiter_entry_t turn;  /* waits while there are copies */
    bool from_end;              /* the last copy of several pieces began with its last one */
    bool assisted;              /* the peer wrote a part of the last get of which it was asked */
    bool last_posted;           /* the last frame was posted */
    const char *refusal;        /* why it is REFUSED */
    struct regx_shm_conn *next; /* in the list of disconnecting or of refused ones */
} regx_shm_conn_t;

/* Neighbours that post to this process, at most: more than a node has processors. Beyond that the
 * connection is broken, and a warning is printed. */
#define REGX_SHM_NEIGHBOURS_MAX 4096u

/* A neighbour that posts to this process. */
typedef struct regx_shm_inbound {
    uint64_t sender;
    regx_vm_peer_t vm;
    regx_shm_mapping_t boxes;
    regx_mailbox_memory_t *memory;
    regx_mailbox_in_t in;
    regx_segment_name_t pool_name;
    uint64_t pool_offset, pool_size;
    regx_shm_mapping_t main; /* mapped at the first frame that needs it */
    char *pool;              /* NULL before that */
} regx_shm_inbound_t;

typedef struct regx_shm {
    regx_transport_t super;
    regx_transport_config_t config;
    regx_segment_domain_t domain;
    regx_shm_node_t node;
    regx_segment_t main;
    size_t stage_offset, pool_offset; /* in the main segment */
    regx_connect_queue_t *queue;
    uint64_t accepted; /* requests of the connect queue */
    regx_lock_t lock;
    regx_shm_boxes_t boxes;
    regx_zcopy_t *zcopies; /* posted, not yet returned */
    _Atomic uint32_t zcopy_count;
    regx_arbiter_t turns;     /* of connections that have copies: one piece each */
    regx_shm_copies_t ending; /* gets whose last pieces the peer is at */
    uint32_t pieces;          /* that the kernel copied, in progress */
    uint32_t own;             /* copies queued and ending */
    /* Copies queued and ending, requests of peers, stages that are QUEUED, gets from stages, and
     * refused connections: 0, nothing to do. */
    _Atomic uint32_t copy_count;
    regx_shm_conn_t *disconnecting; /* their mailboxes are not yet read to the end */
    regx_shm_conn_t *refused;       /* to be reported by progress; under the lock */
    regx_shm_inbound_t **inbound;
    size_t inbound_count, inbound_room;
    regx_assists_t assists;
    regx_assist_requests_t requests;
    regx_stages_t stages;
    regx_owned_t owned;
} regx_shm_t;

static inline regx_shm_t *regx_shm_of(regx_transport_t *transport)
{
    return REGX_CONTAINER_OF(transport, regx_shm_t, super);
}

/* One copy more or less. With one thread no interlocked operation. */
static inline void regx_shm_count_copies(regx_shm_t *shm, int change)
{
    if (regx_lock_is_real(&shm->lock)) {
        atomic_fetch_add_explicit(&shm->copy_count, (uint32_t)change, memory_order_relaxed);
    } else {
        atomic_store_explicit(&shm->copy_count,
                              atomic_load_explicit(&shm->copy_count, memory_order_relaxed) +
                                  (uint32_t)change,
                              memory_order_relaxed);
    }
}

static inline regx_shm_conn_t *regx_shm_conn_of(regx_conn_t *conn)
{
    return REGX_CONTAINER_OF(conn, regx_shm_conn_t, super);
}

/* Whether the connection's next copy, of so many bytes, begins with its last piece: see copies.c.
 * Called with the transport's lock held. */
static inline bool regx_shm_order_locked(regx_shm_conn_t *conn, size_t length)
{
    if (length <= REGX_CLAIM_PIECE_MAX) {
        return false;
    }
    conn->from_end = !conn->from_end;
    return conn->from_end;
}

static inline regx_shm_main_t *regx_shm_main(const regx_shm_t *shm)
{
    return (regx_shm_main_t *)(void *)shm->main.base;
}

/* What scratch[] of pending operations holds. In the last word a zero-copy send has the token and
 * lap by which the peer returns it; a put NULL, a get itself, an assisted get its
 * regx_assisted_t. */
enum {
    REGX_SCRATCH_NEXT,
    REGX_SCRATCH_CONN,
    REGX_SCRATCH_DONE, /* bytes that this process copied */
    REGX_SCRATCH_KIND,
    REGX_SCRATCH_TICKET = REGX_SCRATCH_KIND
};

static inline void *regx_shm_ticket(uint32_t token, uint32_t lap)
{
    return (void *)(uintptr_t)((uint64_t)token << 32 | lap);
}

/* ---- shm_conn.c ---- */

bool regx_shm_reaches(const regx_transport_t *transport, const void *address, size_t length);
regx_status_t regx_shm_connect(regx_transport_t *transport, uint64_t peer, const void *address,
                               size_t length, regx_conn_t **conn);
void regx_shm_disconnect(regx_conn_t *conn);
bool regx_shm_reachable(regx_conn_t *conn);
/* Maps the peer, gets a mailbox for it and asks it to read that. Called with the connection's lock
 * held. REGX_AGAIN: the peer's connect queue is full; REGX_UNREACHABLE: refused, for good. */
regx_status_t regx_shm_attach_locked(regx_shm_conn_t *conn);
/* Reports those that were refused as broken. Only in progress. */
int regx_shm_report_refused(regx_shm_t *shm);
/* Waits until no connection is disconnecting any more. Nobody else uses the transport. */
void regx_shm_finish_disconnecting(regx_shm_t *shm);

/* ---- shm_post.c: as described in transport.h ---- */

regx_status_t regx_shm_send(regx_conn_t *conn, uint8_t tag, const void *header,
                            size_t header_length, regx_pack_t pack, void *pack_context,
                            size_t payload_length);
regx_status_t regx_shm_send_zcopy(regx_conn_t *conn, regx_zcopy_t *zcopy);
regx_status_t regx_shm_put(regx_conn_t *conn, regx_put_t *put);
regx_status_t regx_shm_get(regx_conn_t *conn, regx_get_t *get);
regx_status_t regx_shm_copy(regx_conn_t *conn, regx_copy_direction_t direction, void *local,
                            uint64_t remote, size_t length);
void regx_shm_warm(regx_conn_t *conn);

/* ---- copies.c ---- */

/* Queue a copy from or to the memory of the peer, which progress has the kernel make. */
void regx_shm_queue_put(regx_shm_conn_t *conn, regx_put_t *put);
/* assisted: by regx_assist_ask_locked, or NULL. */
void regx_shm_queue_get(regx_shm_conn_t *conn, regx_get_t *get, regx_assisted_t *assisted);
/* Copies one piece, or several short ones, for this process or, if there is nothing, for a peer.
 * Returns how many events there were. */
int regx_shm_poll_copies(regx_shm_t *shm);
/* Ends all copies of the connection: they have failed. Waits until the peer's piece has ended. */
void regx_shm_drop_copies(regx_shm_conn_t *conn);

/* ---- shm_poll.c ---- */

int regx_shm_progress(regx_transport_t *transport);
/* Reads nothing more of a neighbour, and notifies it. Only in progress, or when it is kept out. */
void regx_shm_drop_inbound(regx_shm_inbound_t *inbound);

#endif

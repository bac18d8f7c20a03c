/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the node wire share: node.c makes and ends things, node_post.c sends,
 * node_poll.c receives and completes.
 *
 * Locks: a connection's lock covers its path and its mailbox; the node's covers the lists and the
 * mailbox memory. The connection's is taken first where both are. `inbound` belongs to progress.
 */
#ifndef REGX_TRANSPORT_SHM_INTERNAL_H
#define REGX_TRANSPORT_SHM_INTERNAL_H

#include "base/lock.h"
#include "transport/shm/connect_queue.h"
#include "transport/shm/mailbox.h"
#include "transport/shm/shm.h"
#include "transport/shm/segment.h"
#include "transport/shm/vm.h"

/* The last frame of a mailbox. Open MPI's tags begin above. */
#define REGX_SHM_TAG_DISCONNECT 0

#define REGX_SHM_BOXES 4 /* mailboxes per segment of them */
#define REGX_SHM_FEW                                                                              \
    32u /* neighbours for whom there is memory for the longest rings of payload                    \
         */

typedef struct regx_shm_boxes { /* a segment of mailboxes that this process posts to */
    regx_segment_t segment;
    regx_segment_name_t name;
    uint32_t ring; /* bytes of payload of each */
    bool taken[REGX_SHM_BOXES];
    struct regx_shm_boxes *next;
} regx_shm_boxes_t;

typedef struct regx_shm_address { /* what a process publishes for its neighbours */
    regx_segment_name_t main;
    uint64_t pool_offset;
    uint64_t pool_size;
    uint64_t cookie_address;
    regx_vm_cookie_t cookie;
    int64_t pid;
} regx_shm_address_t;

struct regx_shm_conn {
    regx_shm_t *node;
    uint64_t peer;
    regx_shm_address_t address;
    regx_lock_t lock;
    enum { REGX_SHM_NEW, REGX_SHM_ATTACHED, REGX_SHM_REFUSED } state;
    regx_mapping_t main; /* the peer's main segment */
    regx_connect_queue_t *queue;
    char *pool; /* the peer's */
    regx_vm_peer_t vm;
    regx_shm_boxes_t *boxes; /* where the mailbox lies */
    int box;
    regx_mailbox_out_t out;
    _Atomic uint32_t lent; /* bit per token */
    uint32_t laps[REGX_MAILBOX_LENDS];
    bool said_goodbye;
    struct regx_shm_conn *next; /* in the list of those that part */
};

typedef struct regx_shm_inbound { /* a neighbour that posts to this process */
    uint64_t sender;
    regx_vm_cookie_t cookie;
    regx_mapping_t boxes;
    regx_mailbox_memory_t *memory;
    regx_mailbox_in_t in;
    regx_segment_name_t pool_name;
    uint64_t pool_offset, pool_size;
    regx_mapping_t main; /* mapped at the first lent frame */
    char *pool;
} regx_shm_inbound_t;

/* What the kernel is to copy for puts and gets, oldest first. Each is named by its scratch. */
typedef struct regx_shm_copies {
    void **first;
    void **last; /* if there is a first */
} regx_shm_copies_t;

struct regx_shm {
    regx_transport_config_t config;
    regx_segment_domain_t domain;
    regx_segment_t main;
    regx_segment_name_t main_name;
    regx_connect_queue_t *queue;
    uint64_t requests; /* hellos answered */
    size_t pool_offset, pool_size;
    regx_lock_t lock;
    regx_shm_boxes_t *boxes;
    unsigned neighbours; /* connected to */
    regx_lend_t *lends;  /* posted, not yet returned */
    _Atomic uint32_t lend_count;
    regx_shm_copies_t copies;
    _Atomic uint32_t copy_count;
    regx_shm_conn_t *parting; /* disconnected; their mailboxes are not yet read to the end */
    regx_shm_inbound_t **inbound;
    size_t inbound_count, inbound_room;
};

/* What scratch[] of pending operations holds. */
enum { REGX_SCRATCH_NEXT, REGX_SCRATCH_CONN, REGX_SCRATCH_DONE, REGX_SCRATCH_LAP };
/* … of a put or get, in place of a lend's lap: which of them it is. */
enum { REGX_SCRATCH_WAY = REGX_SCRATCH_LAP };

static inline bool regx_shm_is_get(void *const *copy)
{
    return copy[REGX_SCRATCH_WAY] != NULL;
}

static inline regx_put_t *regx_shm_put_of(void **copy)
{
    return (regx_put_t *)((char *)copy - offsetof(regx_put_t, scratch));
}

static inline regx_get_t *regx_shm_get_of(void **copy)
{
    return (regx_get_t *)((char *)copy - offsetof(regx_get_t, scratch));
}

static inline void regx_shm_end_copy(void **copy, regx_status_t status)
{
    if (regx_shm_is_get(copy)) {
        regx_get_t *get = regx_shm_get_of(copy);

        get->done(get, status);
    } else {
        regx_put_t *put = regx_shm_put_of(copy);

        put->done(put, status);
    }
}
/* The token of a lend shares a word with its lap. */
static inline void *regx_shm_ticket(uint32_t token, uint32_t lap)
{
    return (void *)(uintptr_t)((uint64_t)token << 32 | lap);
}

/* The node's lock is held, or progress kept out; the count is the caller's. */
static inline void regx_shm_append_copy(regx_shm_copies_t *copies, void **copy)
{
    copy[REGX_SCRATCH_NEXT] = NULL;
    if (copies->first == NULL) {
        copies->first = copy;
    } else {
        copies->last[REGX_SCRATCH_NEXT] = copy;
    }
    copies->last = copy;
}

/* Takes the first, which is there. */
static inline void **regx_shm_take_copy(regx_shm_copies_t *copies)
{
    void **copy = copies->first;

    copies->first = copy[REGX_SCRATCH_NEXT];
    return copy;
}

/* Takes and gives back mailbox memory; the node's lock is taken within. NULL: none to be had. */
regx_mailbox_memory_t *regx_shm_box_take(regx_shm_t *node, regx_shm_boxes_t **boxes, int *box);
void regx_shm_box_give(regx_shm_t *node, regx_shm_boxes_t *boxes, int box);

/* Where in their segment it lies. */
static inline size_t regx_shm_box_offset(const regx_shm_boxes_t *boxes, int box)
{
    return (size_t)box * regx_mailbox_size(boxes->ring);
}

static inline regx_mailbox_memory_t *regx_shm_box(const regx_shm_boxes_t *boxes, int box)
{
    char *base = regx_segment_base(&boxes->segment);

    return (regx_mailbox_memory_t *)(void *)(base + regx_shm_box_offset(boxes, box));
}

#endif

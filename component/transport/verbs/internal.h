/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of verbs share.
 *
 *   verbs.c     the transport's operations: opens, closes, locks
 *   ports.c     which ports are used, by distance.c     port.c  one of them, and its address
 *   buffers.c   registered memory of the transport: the pool, receive buffers, slots for sending
 *   pair.c      the RC queue pair to one peer: made, connected, ended
 *   hello.c     the handshake that connects pairs, over one UD queue pair
 *   post.c      work requests: frames, lent frames, puts
 *   get.c       … and gets
 *   on_demand.c regions on demand: whether the device can, prefetching
 *   progress.c  completions, arriving frames, what went wrong
 *   keepalive.c whether peers that nothing is sent to are still there
 *   wire.c      addresses and hellos as bytes
 *
 * All of it runs inside the entrance (transport/entrance.h), one thread at a time.
 *
 * Flow control. What is received lands in the buffers of one shared receive queue, which progress
 * gives back as soon as a frame was delivered. Where it runs dry the device of the receiver turns
 * the sender's away and that one tries again (RNR, without end), so nothing is lost and nobody
 * waits in software; a peer that does not read stops its own pair, and holds no more of the
 * sender's slots than are left (dynamic thresholds: Choudhury and Hahne, 1998). The completion
 * queue has room for every receive buffer and every work request that may be under way, so it
 * cannot overflow: `outstanding_most` bounds the latter.
 *
 * fork. The transport's own memory is kept from children. Of the application's, registered pages
 * stay whole in both where the kernel copies pinned pages for the child (IBV_FORK_UNNEEDED; Linux
 * 5.12 and what distributions took over of it). On older kernels ibv_fork_init is called before the
 * first registration: the library then keeps registered pages from children, where touching them,
 * or what else lies in the first and last of them, ends the child; huge pages that are registered
 * in part are refused, and bounce. Where that call fails the transport is not used.
 *
 * Memory per connected peer: the queue pair (REGX_PAIR_DEPTH requests with their inline data, some
 * 26 KiB in the device's driver), an address handle (some hundred bytes in driver and kernel) and a
 * pair_t of 2 KiB; while a frame of its comes in pieces, REGX_VERBS_LEND_MAX bytes more. A peer
 * that is not talked to costs a conn_t of 72 bytes.
 */
#ifndef REGX_VERBS_INTERNAL_H
#define REGX_VERBS_INTERNAL_H

#include <infiniband/verbs.h>

#include "base/clock.h"
#include "transport/catalog.h"
#include "transport/entrance.h"
#include "transport/transport.h"
#include "transport/turns.h"
#include "transport/verbs/port.h"
#include "transport/verbs/settings.h"
#include "transport/verbs/wire.h"

#define REGX_VERBS_FRAME_MAX 16640u /* an eager message of 16 KiB with its headers */
#define REGX_VERBS_LEND_MAX 65536u
#define REGX_VERBS_RECEIVE_SIZE 8448u /* of one receive buffer: 8 KiB and headers in one piece */
#define REGX_VERBS_PIECES                                                                          \
    ((REGX_VERBS_LEND_MAX + REGX_VERBS_RECEIVE_SIZE - 1) / REGX_VERBS_RECEIVE_SIZE)
#define REGX_VERBS_RECEIVES 128u
#define REGX_VERBS_SLOTS 64u  /* for sending, of REGX_VERBS_FRAME_MAX bytes */
#define REGX_VERBS_HELLOS 64u /* that can arrive between two calls of progress */
#define REGX_VERBS_HELLO_SENDS 16u
#define REGX_VERBS_OUTSTANDING 4096u
#define REGX_VERBS_INLINE 288u /* 256 bytes of the application, and headers */
#define REGX_PAIR_DEPTH 64u    /* work requests of one peer under way */
#define REGX_VERBS_READS 16u   /* of them RDMA READs, and as many of the peer's */
#define REGX_VERBS_BUCKETS 1024u
#define REGX_VERBS_ENDED 64u /* pairs that have ended, remembered */
#define REGX_VERBS_PAIRS_MAX 65536u
#define REGX_SLOT_NOT UINT32_MAX

typedef struct regx_verbs regx_verbs_t;
typedef struct regx_pair regx_pair_t;

typedef struct regx_buffers {
    uint8_t *memory; /* receive buffers, hellos, slots, in this order */
    size_t size;
    struct ibv_mr *mr;
    uint32_t receives;                      /* buffers in the shared receive queue */
    uint32_t returned[REGX_VERBS_RECEIVES]; /* delivered, to be posted again */
    uint32_t returned_count;
    uint32_t slots[REGX_VERBS_SLOTS]; /* those that are free */
    uint32_t slot_count;
    uint64_t hellos_sent, hellos_done; /* of the UD queue pair's own work requests */
    struct {
        struct ibv_ah *way;
        bool orphaned; /* its pair has ended: to be destroyed once the hello has gone */
    } hellos[REGX_VERBS_HELLO_SENDS];
} regx_buffers_t;

typedef struct regx_verbs_conn {
    regx_conn_t super;
    regx_verbs_address_t address;
    regx_pair_t *pair; /* NULL before the first use */
} regx_verbs_conn_t;

/* What a work request stands for when it is done. */
typedef struct regx_work {
    enum {
        REGX_WORK_PLAIN, /* nobody waits for it */
        REGX_WORK_SLOT,
        REGX_WORK_PUT,
        REGX_WORK_LEND,
        REGX_WORK_GET, /* of the pieces of one, the last has the object */
        REGX_WORK_GOODBYE,
        REGX_WORK_TOLD /* nobody, but its end shows: of a self-test, or asks for what came before */
    } kind;
    uint32_t slot; /* SLOT, PUT; of a put REGX_SLOT_NOT, if it has none */
    void *object;  /* the put, lend or get */
    const char *what;
} regx_work_t;

typedef enum regx_pair_state {
    REGX_PAIR_ALONE,  /* the peer's queue pair is not known */
    REGX_PAIR_LINKED, /* ours is connected; whether the peer's is, is not known */
    REGX_PAIR_READY,
    REGX_PAIR_RETURNING, /* we said goodbye, came back, and ask whether the peer is still there */
    REGX_PAIR_BROKEN
} regx_pair_state_t;

struct regx_pair {
    regx_verbs_t *verbs;
    uint64_t peer;
    regx_verbs_conn_t *conn; /* NULL: nobody here has asked for this peer */
    regx_pair_state_t state;
    struct ibv_qp *qp;
    struct ibv_ah *ah; /* to the peer's UD queue pair */
    regx_verbs_address_t address;
    uint32_t psn;

    /* Of the peer, once linked. */
    uint32_t peer_qpn, peer_psn;
    uint64_t peer_pool;
    uint64_t peer_pool_size;
    uint32_t peer_pool_key;
    uint8_t returns, peer_returns; /* ours to this queue pair, and what is known of the peer's */

    /* Work requests under way, in order: those numbered [done, posted). */
    uint32_t depth;
    uint64_t posted, done;
    uint32_t quiet, quiet_slots; /* of the last ones, how many tell nothing when they are done, and
                                  * the slots they hold */
    uint32_t slots;              /* of verbs' slots, how many it holds */
    regx_work_t works[REGX_PAIR_DEPTH];

    /* Puts in line, oldest first; the first may have been posted in part. */
    regx_put_t *first, *last;
    /* Gets, likewise. The device would hold up all that comes behind a READ beyond reads_most, so
     * no more are posted. */
    regx_get_t *first_get, *last_get;
    uint8_t reads_most, reads;

    /* A frame that arrives in pieces. */
    uint8_t *gathered; /* REGX_VERBS_LEND_MAX bytes, or NULL */
    size_t gathered_length;
    bool garbled; /* pieces of one were lost: what follows on this broken pair is no frame */

    bool missed;      /* somebody wanted something of it that cannot be had */
    bool told;        /* … and broken() was called */
    bool leaving;     /* disconnected: goodbye follows what was accepted, if it can */
    bool parting;     /* … goodbye was posted */
    bool parted;      /* the peer said goodbye */
    bool last_taken;  /* the device takes no more from the shared receive queue for it */
    int64_t rests_at; /* broken: when it counts as at rest at the latest; 0: not looked at yet */
    char what[160];   /* what broke it */

    uint64_t seen; /* `posted`, when it was last looked at */
    int64_t seen_at;

    bool asking; /* in verbs' list of those that ask */
    unsigned asked;
    int64_t ask_next; /* when to ask again, in nanoseconds */
    regx_turn_t turn; /* to post what is in line */

    regx_pair_t *next, *next_by_peer, *next_by_qpn, *next_asking;
};

typedef struct regx_ended {
    uint64_t peer;
    uint32_t qpn, psn; /* of the peer's queue pair */
} regx_ended_t;

struct regx_verbs {
    regx_transport_t super;
    regx_transport_config_t config;
    regx_verbs_settings_t settings;
    uint16_t pkey_index;
    regx_port_t port;
    char wires[sizeof(regx_device_name_t) + 8];
    regx_tally_t *sent; /* payload bytes, by port */
    regx_verbs_address_t address;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *ud;
    struct ibv_mr *pool_mr;
    struct {
        uint32_t operations; /* IBV_ODP_SUPPORT_…, of RC */
        bool has_implicit;
        struct ibv_mr *implicit; /* the whole address space, to be read by this process; or NULL */
    } on_demand;
    regx_buffers_t buffers;
    regx_entrance_t entrance;
    uint32_t inline_most;                 /* bytes that a request may carry itself */
    int64_t starved_since, starved_until; /* no memory for a queue pair: since when, and when to try
                                           * again; or 0 */
    uint32_t depth;                       /* of a pair */
    uint64_t piece_most;                  /* bytes of one write or read */
    uint8_t reads_made, reads_answered;   /* RDMA READs at once of a pair, that the device can */

    uint32_t outstanding_most, outstanding, quiet, quiet_slots; /* of all pairs */
    uint32_t stale; /* of the outstanding: their pair was cut, but the completion queue may still
                     * hold what became of them */
    regx_pair_t *pairs;
    uint32_t pair_count;
    regx_pair_t *by_peer[REGX_VERBS_BUCKETS], *by_qpn[REGX_VERBS_BUCKETS];
    regx_pair_t *asking;
    regx_ended_t ended[REGX_VERBS_ENDED];
    uint32_t ended_count;
    regx_turns_t turns;
    bool broke;   /* some pair did, and progress has something to do */
    bool leaving; /* some pair is */
    bool closing;
    int events;        /* of this progress */
    unsigned calls;    /* of progress, since it last looked at the clock */
    int64_t idle_ns;   /* after which a peer is asked for a sign of life */
    int64_t look_next; /* when to look for such peers */
};

static inline regx_verbs_t *regx_verbs_of(regx_transport_t *transport)
{
    return (regx_verbs_t *)transport;
}

/* Payload that this port moves to or from a peer at our request. */
static inline void regx_count_sent(const regx_verbs_t *verbs, size_t bytes)
{
    regx_count_transport(verbs->config.counters, REGX_COUNTER_bytes_verbs, bytes);
    regx_count(verbs->config.counters, &verbs->sent->count, bytes);
}

/* buffers.c. open: REGX_OK; REGX_NO_MEMORY, `error` says which limit. */
regx_status_t regx_buffers_open(regx_verbs_t *verbs, char *error, size_t error_size);
void regx_buffers_close(regx_verbs_t *verbs);
/* The pool's memory, registered: as much as is wanted and can be had. */
regx_status_t regx_verbs_pool_open(regx_verbs_t *verbs, char *error, size_t error_size);
void regx_verbs_pool_close(regx_verbs_t *verbs);
/* Posts every receive buffer. false: the device refuses. */
bool regx_buffers_fill(regx_verbs_t *verbs);
const uint8_t *regx_buffer_received(const regx_verbs_t *verbs, uint32_t index);
/* The frame in that buffer was delivered. */
void regx_buffer_return(regx_verbs_t *verbs, uint32_t index);
/* Posts what was returned again, if that is worth a call. If the device refuses and has none
 * left, all pairs break: peers would try again without end. */
void regx_buffers_repost(regx_verbs_t *verbs);
uint8_t *regx_buffer_slot(const regx_verbs_t *verbs, uint32_t slot);
/* A slot for the pair, or REGX_SLOT_NOT. */
uint32_t regx_slot_take(regx_pair_t *pair);
void regx_slot_give(regx_pair_t *pair, uint32_t slot);
/* Hellos: where one arrived (behind the 40 bytes that UD puts first), posting its buffer again, and
 * sending one, if there is room now: else it will be said again. 0, or the error. */
const uint8_t *regx_buffer_hello(const regx_verbs_t *verbs, uint32_t index);
int regx_buffer_hello_post(regx_verbs_t *verbs, uint32_t index);
int regx_buffer_hello_send(regx_verbs_t *verbs, const regx_pair_t *pair,
                           const uint8_t hello[REGX_VERBS_HELLO_SIZE]);
/* The oldest hello has gone, or failed. */
void regx_buffer_hello_done(regx_verbs_t *verbs);
/* A pair ends: destroys the way to its peer once no hello is under way by it, which would break the
 * UD queue pair. */
void regx_buffer_way_drop(regx_verbs_t *verbs, struct ibv_ah *way);

/* pair.c */
regx_pair_t *regx_pair_find(const regx_verbs_t *verbs, uint64_t peer);
regx_pair_t *regx_pair_find_qpn(const regx_verbs_t *verbs, uint32_t qpn);
/* A pair of its own queue pair, not linked; broken, if the device refuses, or there are too many
 * peers. NULL: no memory now, here or for the device; of the latter the report tells, and a device
 * that has had none for a minute refuses. */
regx_pair_t *regx_pair_new(regx_verbs_t *verbs, uint64_t peer, const regx_verbs_address_t *address);
/* Connects the queue pair to the peer's. false: the device refuses; the pair is then broken. */
bool regx_pair_link(regx_pair_t *pair, const regx_verbs_hello_t *hello);
/* The peer is known to be connected to ours. */
void regx_pair_ready(regx_pair_t *pair);
/* We said goodbye, and want to send again by the same queue pair. */
void regx_pair_return(regx_pair_t *pair);
/* Takes note of what broke it ("RDMA WRITE: transport retry counter exceeded"); progress does the
 * rest. */
void regx_pair_break(regx_pair_t *pair, const char *what, const char *why);
/* Nothing goes on for anybody. */
void regx_pairs_break(regx_verbs_t *verbs, const char *what, const char *why);
/* Ends the queue pair: from here on the device reads and writes nothing for it. What was under way
 * or in line is completed with REGX_FAILED. */
void regx_pair_cut(regx_pair_t *pair);
/* Cuts and frees. */
void regx_pair_delete(regx_pair_t *pair);
/* Progress: tells of broken pairs, cuts them once nothing more comes of them, and lets go of those
 * that are leaving and may. empty: the completion queue was, after the last look at the device. */
void regx_pairs_mourn(regx_verbs_t *verbs, bool empty);
void regx_pairs_part(regx_verbs_t *verbs);
/* Whether everything that was accepted has arrived, or never will. */
bool regx_pair_is_drained(const regx_pair_t *pair);

/* hello.c. open: makes the UD queue pair. */
regx_status_t regx_hello_open(regx_verbs_t *verbs, char *error, size_t error_size);
void regx_hello_close(regx_verbs_t *verbs);
/* Whether the peer has not answered for some ten minutes. */
bool regx_hello_is_late(const regx_pair_t *pair);
/* Sees to it that the pair gets ready. */
void regx_hello_ask(regx_pair_t *pair);
void regx_hello_stop(regx_pair_t *pair);
/* The UD queue pair is of no use any more: breaks all pairs that are not ready. */
void regx_hello_fail(regx_verbs_t *verbs, const char *why);
/* The pair ends: what was said for it and comes later is not heeded. */
void regx_hello_forget(const regx_pair_t *pair);
/* A hello arrived. */
void regx_hello_receive(regx_verbs_t *verbs, const uint8_t *bytes, size_t length);
/* Asks those again that have not answered. */
void regx_hello_progress(regx_verbs_t *verbs);

/* post.c: as transport.h. */
regx_status_t regx_verbs_send(regx_conn_t *conn, uint8_t tag, const void *header,
                              size_t header_length, regx_pack_t pack, void *pack_context,
                              size_t payload_length);
regx_status_t regx_verbs_lend(regx_conn_t *conn, regx_lend_t *lend);
regx_status_t regx_verbs_put(regx_conn_t *conn, regx_put_t *put);
/* A write of no bytes, which the peer's device answers. There is room. */
void regx_post_empty(regx_pair_t *pair, const regx_work_t *work);
/* RDMA WRITE or READ, for a self-test on a pair that is linked and has nothing else to do. */
void regx_post_trial(regx_pair_t *pair, enum ibv_wr_opcode operation, struct ibv_sge *piece,
                     uint64_t address, uint32_t rkey);
/* Posts a goodbye. REGX_OK, REGX_AGAIN. */
regx_status_t regx_post_goodbye(regx_pair_t *pair);
/* Whether a put, get or lend of the pair is under way or in line. */
bool regx_post_touches(const regx_pair_t *pair);
/* The work requests up to that number, itself included, are done. */
void regx_post_done(regx_pair_t *pair, uint64_t number);
/* Ends all of the pair's work with REGX_FAILED. The queue pair is gone. */
void regx_post_fail(regx_pair_t *pair);
/* Moves the lines of puts and gets on; bounded. */
void regx_post_turns(regx_verbs_t *verbs);
/* The connection's pair, once it can be used. REGX_OK, REGX_AGAIN, REGX_UNREACHABLE. */
regx_status_t regx_post_ready(regx_verbs_conn_t *conn);
/* Whether so many requests may be posted, and posting them with one ring of the doorbell. REGX_OK;
 * REGX_UNREACHABLE: the device refuses, which breaks the pair. */
bool regx_post_has_room(const regx_pair_t *pair, uint64_t requests);
regx_status_t regx_post(regx_pair_t *pair, struct ibv_send_wr *requests, const regx_work_t *works,
                        unsigned count);

/* get.c: as transport.h. */
regx_status_t regx_verbs_get(regx_conn_t *conn, regx_get_t *get);
/* Posts what is in line, as far as there is room. */
void regx_get_take_turn(regx_pair_t *pair);
/* A READ of the pair has ended. */
void regx_get_finish(regx_pair_t *pair, regx_get_t *get, regx_status_t status);
/* Ends the line with REGX_FAILED. */
void regx_get_fail(regx_pair_t *pair);

/* on_demand.c. reg: as ibv_reg_mr; may return the implicit region, which stays. */
struct ibv_mr *regx_on_demand_reg(regx_verbs_t *verbs, void *base, size_t length, int flags);
regx_status_t regx_verbs_on_demand(regx_transport_t *transport, char *error, size_t error_size);
regx_status_t regx_verbs_prefetch(regx_transport_t *transport, const regx_mr_t *mr,
                                  const void *base, size_t length);
void regx_on_demand_close(regx_verbs_t *verbs);
/* keepalive.c */
void regx_keepalive_open(regx_verbs_t *verbs);
/* Asks peers to which nothing was sent for long; bounded. Looks at the clock. */
void regx_keepalive_progress(regx_verbs_t *verbs);

/* progress.c. poll: handles what has completed, a bounded amount; returns how many. */
int regx_verbs_poll(regx_verbs_t *verbs);
int regx_verbs_progress(regx_transport_t *transport);
/* What the device tells apart from completions; bounded. A system call. */
void regx_verbs_look(regx_verbs_t *verbs);

/* The numbers of work requests: what was received has the highest bit set. */
#define REGX_RECEIVED (UINT64_C(1) << 63)

#endif

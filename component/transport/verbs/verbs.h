/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The verbs transport: one opened port of an RDMA device, and what its files share.
 *
 *   verbs.c       the transport's operations: open, close, connect, disconnect, registration
 *   ports.c       which ports are used           distance.c  how far they are from our cores
 *   port.c        one port and its address       wire.c      addresses and messages as bytes
 *   buffers.c     the transport's own registered memory: pool, receive buffers, slots
 *   backlog.c     completions in the order in which they came
 *   qp.c          RC queue pairs and routes, as the device makes them
 *   ep.c          an endpoint: the queue pair to one peer
 *   tx.c          work requests and their completion
 *   cm_queue.c    the datagrams that connect, and who waits for one
 *   bound.c       how many peers are connected at once
 *   cleanup.c     the end of endpoints that broke or left
 *   cm.c          connection management: request, accept, disconnect
 *   frame.c, put.c, get.c, fetch.c   what callers send, write, read and change
 *   events.c      what the device reports apart from completions
 *   rx.c          completions: frames that arrived, work that is done
 *   restart.c     another queue pair for one that failed
 *   progress.c    one step of everything
 *   keepalive.c   peers from whom something is only awaited
 *   on_demand.c   on-demand regions
 *
 * Each uses only those above it in this list. All run inside the try-lock (transport/try_lock.h),
 * one thread at a time, unless they say otherwise.
 *
 * Flow control. What is received lands in the buffers of one shared receive queue, and progress
 * posts them again as soon as a frame was delivered. Where the queue runs dry, the receiver's
 * device turns the sender's away, which tries again (RNR, without end by default). So nothing is
 * lost and nobody waits in software. The device reports when the queue runs low, and there are more
 * buffers from then on (buffers.c). A peer that does not read stops its own endpoint only: it
 * holds no more of the sender's slots than are left (dynamic thresholds: Choudhury and Hahne,
 * 1998), and there is always a slot for an endpoint that holds none. The completion queue has room
 * for every receive buffer and every work request under way (outstanding_max), so it cannot
 * overflow.
 *
 * fork. The transport's own memory is kept from children. The application's registered pages stay
 * whole in parent and child where the kernel copies pinned pages for the child (IBV_FORK_UNNEEDED:
 * Linux 5.12, and distributions that took it over). On older kernels ibv_fork_init is called before
 * the first registration. The library then keeps registered pages from children; touching them, or
 * what else lies in the first and last of them, ends the child. Huge pages that are registered in
 * part are refused there, and bounce. Where ibv_fork_init fails, the transport is not used.
 *
 * Memory per connected peer: the queue pair (verbs_sq_depth requests with their inline data, some
 * 26 KiB in the device's driver at the default of 64), an address handle of some hundred bytes, and
 * an endpoint of some 2 KiB; verbs_connections bounds how many. While a frame of the peer comes in
 * segments, REGX_VERBS_ZCOPY_MAX bytes more.
 * A peer that is not talked to costs a connection of some 100 bytes.
 */
#ifndef REGX_VERBS_VERBS_H
#define REGX_VERBS_VERBS_H

#include <infiniband/verbs.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/util.h"
#include "transport/arbiter.h"
#include "transport/counters.h"
#include "transport/transport.h"
#include "transport/try_lock.h"
#include "transport/verbs/port.h"
#include "transport/verbs/settings.h"
#include "transport/verbs/wire.h"

#define REGX_VERBS_FRAME_MAX 16640u /* an eager message of 16 KiB with its headers */
#define REGX_VERBS_ZCOPY_MAX 65536u
#define REGX_VERBS_COPIED_MAX (REGX_VERBS_FRAME_MAX & ~4095u) /* of a put or get, by one slot */
#define REGX_VERBS_RECEIVE_SIZE 8448u /* of one receive buffer: 8 KiB and headers in one segment */
#define REGX_VERBS_SEGMENTS                                                                        \
    ((REGX_VERBS_ZCOPY_MAX + REGX_VERBS_RECEIVE_SIZE - 1) / REGX_VERBS_RECEIVE_SIZE)
#define REGX_VERBS_SLOTS 64u      /* for sending, of REGX_VERBS_FRAME_MAX bytes */
#define REGX_VERBS_SLOT_BLOCK 16u /* slots that are registered at once when there are too few */
#define REGX_VERBS_SLOTS_MAX 4096u
#define REGX_VERBS_SLOT_BLOCKS (REGX_VERBS_SLOTS_MAX / REGX_VERBS_SLOT_BLOCK)
#define REGX_VERBS_RECEIVE_BLOCKS                                                                  \
    6u                        /* added where receive buffers run low, each as large as the first */
#define REGX_CM_RECEIVES 128u /* datagrams that can arrive between two calls of progress */
#define REGX_CM_SENDS 64u     /* datagrams under way */
#define REGX_CM_WAITING 16u   /* requests that are kept until there is room (bound.h) */
#define REGX_VERBS_OUTSTANDING 4096u
#define REGX_VERBS_INLINE 288u /* bytes: 256 of the application, and headers */
#define REGX_VERBS_READS 16u   /* RDMA READs of one endpoint at once, and as many of the peer's */
#define REGX_VERBS_BUCKETS 1024u
#define REGX_VERBS_EPS_MAX 65536u

typedef struct regx_ep regx_ep_t;

/* Registered memory of which more is added as it is needed. */
typedef struct regx_block {
    uint8_t *memory;
    struct ibv_mr *mr;
} regx_block_t;

typedef struct regx_buffers {
    uint8_t *memory; /* receive buffers, datagrams, slots, in this order */
    size_t size, cm_receives_at, cm_sends_at, slots_at;
    struct ibv_mr *mr;
    uint32_t receives;       /* buffers of the shared receive queue */
    uint32_t receives_first; /* how many lie in `memory`, and how many in each of `more` */
    uint32_t receives_max;   /* how many there may be at most */
    bool limit_reached;      /* the device reported that few are left */
    uint32_t *returned;      /* those that were delivered and are to be posted again */
    uint32_t returned_count; /* how many those are */
    regx_block_t more[REGX_VERBS_RECEIVE_BLOCKS];
    uint32_t slot_total;
    uint32_t slot_count; /* free ones */
    uint32_t slots[REGX_VERBS_SLOTS_MAX];
    uint32_t slot_holders; /* endpoints that hold at least one */
    int64_t retry_at;      /* no memory for more slots: when to try again; or 0 */
    regx_block_t blocks[REGX_VERBS_SLOT_BLOCKS]; /* slots beyond the first REGX_VERBS_SLOTS */
} regx_buffers_t;

/* Completions that were polled while a queue pair was ended: [first, end) of the entries. */
typedef struct regx_backlog {
    struct ibv_wc *entries;
    uint32_t first, end, size;
} regx_backlog_t;

/* The path to one peer that a caller has asked for. */
typedef struct regx_verbs_conn {
    regx_conn_t super;
    regx_verbs_address_t address; /* that the peer published */
    regx_ep_t *ep;                /* NULL before the first use */
    struct regx_verbs_conn *next; /* in its bucket of regx_verbs.conns */
} regx_verbs_conn_t;

typedef struct regx_verbs {
    regx_transport_t super;
    regx_transport_config_t config;
    regx_verbs_settings_t settings;
    uint16_t pkey_index;
    regx_port_t port;
    char wires[sizeof(regx_device_name_t) + 8];
    regx_tally_t *sent; /* payload bytes, by port */
    regx_verbs_address_t address;
    bool address_loss_reported; /* a warning was printed: the port lost it */
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_mr *pool_mr;
    struct {
        uint32_t operations; /* IBV_ODP_SUPPORT_…, of RC */
        bool has_implicit;
        struct ibv_mr *implicit; /* the whole address space, to be read by this process; or NULL */
    } on_demand;
    regx_buffers_t buffers;
    regx_try_lock_t try_lock;

    /* What the device can. */
    uint32_t inline_max;                /* bytes of data in a request */
    uint32_t depth;                     /* requests of one endpoint under way */
    uint64_t segment_max;               /* bytes of one WRITE or READ */
    uint8_t reads_made, reads_answered; /* RDMA READs of an endpoint at once */
    bool fetches;                       /* atomic operations, of either side */

    /* Work requests of all endpoints. */
    uint32_t outstanding_max, outstanding, unsignaled, unsignaled_slots;
    uint32_t stale; /* of the outstanding: their endpoint was cut, but the completion queue may
                     * still hold what became of them */

    /* Endpoints. */
    regx_link_t eps;
    uint32_t ep_count;
    regx_ep_t *by_peer[REGX_VERBS_BUCKETS], *by_qpn[REGX_VERBS_BUCKETS];
    regx_ep_t *last_found; /* by queue pair number; or NULL */
    uint64_t last_epoch;
    uint32_t live;     /* endpoints that have a queue pair */
    uint32_t retiring; /* live endpoints that are being closed to make room */
    uint64_t uses;     /* of all endpoints: what each posted or received */
    /* An endpoint was refused for lack of room, and none was made since; or 0. */
    int64_t full_since;
    int64_t patience_ns;    /* after which one goes beyond the bound */
    regx_link_t broken;     /* endpoints to be reported or cut, or whose queue pair comes to rest */
    regx_link_t restarting; /* endpoints whose queue pair is being replaced */
    regx_link_t leaving;    /* endpoints that are disconnected and can take the next step */
    regx_arbiter_t arbiter; /* endpoints with puts or gets in line */
    int64_t starved_since, starved_until; /* no memory for a queue pair: since when, and when to try
                                           * again; or 0 */

    /* Connection management. */
    struct {
        struct ibv_qp *qp;   /* UD */
        uint64_t sent, done; /* of its work requests */
        uint32_t receives;   /* datagrams that the queue pair may still receive */
        bool rests;          /* it failed, and is used again when it holds nothing any more */
        int64_t rests_since;
        int64_t failing_since; /* somebody asks, and no datagram has gone since then; 0: the last
                                * one has */
        struct {
            struct ibv_ah *route;
            bool orphaned; /* its endpoint has ended: to be destroyed once the datagram has gone */
        } under_way[REGX_CM_SENDS];
        regx_link_t asking; /* endpoints that ask, until they are answered */
        regx_link_t due;    /* endpoints for which a datagram is to be sent now, oldest first */
        int64_t ask_next;   /* the earliest of those that ask */
        /* Requests that wait for room, oldest first. */
        struct regx_cm_waiting {
            regx_cm_message_t message; /* kind 0: it waits no longer */
            int64_t requested_at;      /* the last time that it was made */
        } waiting[REGX_CM_WAITING];
        uint32_t waiting_first, waiting_count;
        uint64_t random;
    } cm;
    regx_lock_t conns_lock; /* of the following: connections are made by any thread */
    regx_verbs_conn_t *conns[REGX_VERBS_BUCKETS];

    regx_backlog_t backlog;

    bool closing;
    int events;          /* of this progress */
    unsigned calls;      /* of progress */
    unsigned clock_mask; /* progress looks at the clock where `calls` has none of these bits */
    unsigned looks;      /* at what the device reports */
    int64_t events_next; /* when to look at that again */
    int64_t idle_ns;     /* after which a peer gets a keepalive */
    int64_t look_next;   /* when to look for such peers */
} regx_verbs_t;

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

static inline void regx_count_malformed(const regx_verbs_t *verbs)
{
    regx_count(verbs->config.counters, &verbs->config.counters->malformed, 1);
}

static inline unsigned regx_verbs_bucket(uint64_t key)
{
    return (unsigned)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) % REGX_VERBS_BUCKETS;
}

/* The numbers of work requests: what was received has the highest bit set. */
#define REGX_RECEIVED (UINT64_C(1) << 63)

#endif

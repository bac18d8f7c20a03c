/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The verbs transport: one opened port of an RDMA device, and what its files share.
 *
 *   verbs.c       the transport's operations: open, close, connect, disconnect, registration
 *   port.c        one port and its address        ports.c     which ports are used
 *   buffers.c     the transport's own registered memory: pool, receive buffers, slots
 *   ep.c          an endpoint: the queue pair to one peer, its work requests and their completion
 *   cm.c          connection management           datagram.c  its messages
 *   post.c        what callers send, write and read
 *   cq.c          one step of everything: completions, lines
 *   events.c      what else the device reports: of queue pairs, and of the port
 *
 * All run inside the device's lock, one thread at a time, unless they say otherwise. A call that
 * finds another thread inside does not wait but answers REGX_AGAIN, so that no lock of its caller can
 * be part of a deadlock. A call from inside deliver or done goes through: the lock is recursive.
 *
 * Flow control. What is received lands in the buffers of one shared receive queue, and progress
 * posts them again as soon as a frame was delivered. Where the queue runs dry, the receiver's
 * device turns the sender's away, which tries again (RNR, without end). So nothing is lost and
 * nothing waits in software. A peer that does not read stops its own endpoint only. It holds no
 * more of the sender's slots than are left (dynamic thresholds: Choudhury and Hahne, 1998), and
 * there is always a slot for an endpoint that holds none. A work request is left for each endpoint,
 * too, while fewer than a thousand peers do not read (ep.h). The completion queue has room for every
 * receive buffer and every work request under way (requests.max), so it cannot overflow.
 *
 * fork. The transport's own memory is kept from children. The application's registered pages stay
 * whole in parent and child where the kernel copies pinned pages for the child (IBV_FORK_UNNEEDED:
 * Linux 5.12, and distributions that took it over). On older kernels ibv_fork_init is called before
 * the first registration. The library then keeps registered pages from children; touching them, or
 * what else lies in the first and last of them, ends the child. Huge pages that are registered in
 * part are refused there, and bounce. Where ibv_fork_init fails, the transport is not used.
 *
 * What is assumed of a device, and where that was tried ("in memory": by unit tests; never on hardware):
 *  - It has shared receive queues (Soft-RoCE). Otherwise a line says so, and the port is not used.
 *  - A WRITE that asked for no completion has read its buffer once a later request is complete
 *    (Soft-RoCE). Over iWARP it may not have: only InfiniBand and RoCE are used.
 *  - InfiniBand: the peer's first LID leads to it, and one service level fits all peers; path records
 *    are not asked for, an LMC is ignored (in memory). Otherwise a line after ten minutes.
 *  - RoCE in a VLAN: the kernel takes it from the GID's network device, and the priority from the
 *    service level (not tried).
 *  - The kernel tells a port's speed in /sys (Soft-RoCE, in memory); else it counts as 100 Gb/s.
 *  - A port that goes down, or loses its GID, returns within 7.5 s (some devices: 30 s) if something
 *    was under way, else within a minute; meanwhile nothing is posted, and no other port takes over
 *    (in memory, Soft-RoCE). Otherwise the connection is lost.
 *  - A port keeps its LID and the place of its partition key; a GID that returns is at its former
 *    place, or the device follows it (in memory). Otherwise connections may be lost, with a line.
 *  - A device that fails says so: of a completion queue, of a queue pair, or of itself (in memory).
 *  - The GID to be used is among the first 256 of the port (in memory).
 *
 * Memory per connected peer: the queue pair (REGX_VERBS_DEPTH requests with their inline data, some
 * 26 KiB in the device's driver), and an endpoint of 2.6 KB. A peer that is not talked to costs a
 * connection of some 100 bytes.
 */
#ifndef REGX_VERBS_VERBS_H
#define REGX_VERBS_VERBS_H

#include <infiniband/verbs.h>

#include "base/file.h"
#include "base/list.h"
#include "base/thread.h"
#include "transport/settings.h"
#include "transport/verbs/wire.h"

#define REGX_VERBS_FRAME_MAX 16640u /* an eager message of 16 KiB with its headers */
#define REGX_VERBS_COPIED_MAX (REGX_VERBS_FRAME_MAX & ~4095u) /* of a put, by one slot */
#define REGX_VERBS_SLOTS 64u /* for sending; so many are registered at once */
#define REGX_VERBS_SLOT_BLOCKS 64u
#define REGX_VERBS_SLOTS_MAX (REGX_VERBS_SLOTS * REGX_VERBS_SLOT_BLOCKS)
#define REGX_GRH_SIZE 40              /* bytes that UD puts before what it received */
#define REGX_VERBS_DATAGRAM_ROOM 192u /* for a message behind that */
#define REGX_VERBS_DEPTH 64u          /* work requests of one peer under way */
#define REGX_VERBS_RECEIVES 512u      /* receive buffers; where little may be locked, a quarter */
#define REGX_CM_RECEIVES 128u         /* datagrams that can arrive between two calls of progress */
#define REGX_CM_SENDS 64u             /* datagrams under way */
#define REGX_VERBS_OUTSTANDING 4096u
#define REGX_VERBS_INLINE 288u /* bytes: 256 of the application, and headers */
#define REGX_VERBS_READS 16u   /* RDMA READs of one endpoint at once, and as many of the peer's */
#define REGX_VERBS_BUCKETS 1024u
#define REGX_VERBS_EPS_MAX 65536u
#define REGX_VERBS_AWAY_NS INT64_C(60000000000) /* after which a port is given up */
#define REGX_VERBS_REFUSALS 6000u /* after which a device has no memory for queue pairs: a minute */

typedef struct regx_ep regx_ep_t;

typedef struct regx_verbs_port { /* one that is open */
    struct ibv_context *context;
    struct ibv_device_attr device;
    struct ibv_port_attr attr;
    struct ibv_gid_entry gid;
    regx_device_name_t name; /* DEVICE:PORT */
    uint8_t number;
    uint8_t network_bits; /* as of regx_verbs_address_t */
    unsigned megabits;    /* per second; 0: unknown */
    /* The descriptors of the context, by which all is asked but what the device is told without the
     * kernel. */
    regx_file_t control, events;
    char events_name[64]; /* that the kernel gives: such files share an inode with others */
    /* What the device has reported of it: events.c. */
    const char *away;          /* why nothing is posted: it "is down"; NULL: it is there */
    int64_t since, back, next; /* when that began, when it last ended, when to ask for it */
    char change[64];           /* of what peers know of it, or "" */
    bool failed;               /* the device has */
} regx_verbs_port_t;

/* Memory of the transport's own, registered. */
typedef struct regx_verbs_block {
    void *memory;
    size_t size;
    struct ibv_mr *mr; /* NULL: there is none */
} regx_verbs_block_t;

/* Where everything lands but puts. */
typedef struct regx_verbs_area {
    uint8_t datagrams[REGX_CM_RECEIVES][REGX_VERBS_DATAGRAM_ROOM];
    regx_cm_message_t messages[REGX_CM_SENDS]; /* datagrams that are sent */
    uint8_t received[][REGX_VERBS_FRAME_MAX];
} regx_verbs_area_t;

typedef struct regx_verbs_slot {
    struct regx_verbs_slot *next; /* a free one */
    uint8_t *memory;              /* REGX_VERBS_FRAME_MAX bytes */
    uint32_t lkey;
} regx_verbs_slot_t;

typedef struct regx_verbs_buffers {
    regx_verbs_block_t own, pool;
    regx_verbs_area_t *area; /* in `own` */
    uint32_t receives;       /* buffers of the shared receive queue */
    uint32_t *returned;      /* those that were delivered and are to be posted again */
    uint32_t returned_count; /* how many those are */
    uint32_t slot_total;
    uint32_t slot_count; /* free ones */
    regx_verbs_slot_t *free;
    uint32_t slot_holders; /* endpoints that hold at least one */
    int64_t retry_at;      /* no memory for more slots: when to try again; or 0 */
    regx_verbs_block_t blocks[REGX_VERBS_SLOT_BLOCKS];
    regx_verbs_slot_t slots[REGX_VERBS_SLOTS_MAX];
} regx_verbs_buffers_t;

/* The path to one peer that a caller has asked for. */
typedef struct regx_verbs_conn {
    regx_conn_t super;
    regx_verbs_address_t address; /* that the peer published */
    regx_ep_t *ep;                /* NULL before the first use */
    bool left;                    /* the peer has said goodbye, and has not come back */
    regx_link_t link;             /* in its bucket of regx_verbs.conns */
} regx_verbs_conn_t;

/* What the device can. */
typedef struct regx_verbs_limits {
    uint32_t inline_max;                /* bytes of data in a request */
    uint32_t depth;                     /* requests of one endpoint under way */
    uint32_t odp;                       /* IBV_ODP_SUPPORT_..., of RC; 0: not asked */
    uint64_t segment_max;               /* bytes of one WRITE or READ */
    bool posts_by_kernel;               /* requests are posted by a system call */
    uint8_t reads_made, reads_answered; /* RDMA READs of an endpoint at once */
    uint8_t ack_timeout; /* a packet is sent again after 4.096 us times 2 to the power of this */
} regx_verbs_limits_t;

typedef struct regx_verbs_table { /* of endpoints */
    regx_link_t eps;
    uint32_t count;
    regx_link_t by_peer[REGX_VERBS_BUCKETS], by_qpn[REGX_VERBS_BUCKETS];
    uint64_t last_epoch;
    unsigned refusals;     /* one after the other: the device had no memory for a queue pair */
    int64_t starved_until; /* when it is asked again */
} regx_verbs_table_t;

typedef struct regx_cm { /* connection management */
    struct ibv_qp *qp;   /* UD */
    uint64_t sent, done; /* of its work requests */
    struct regx_route *under_way[REGX_CM_SENDS];
    regx_link_t waiting; /* endpoints with a datagram to send, oldest first */
    int64_t next;        /* when the earliest of them is to be sent */
} regx_cm_t;

typedef struct regx_verbs {
    regx_transport_t super;
    regx_transport_config_t config;
    regx_verbs_settings_t settings;
    regx_verbs_port_t port;
    uint16_t pkey_index;
    uint8_t traffic_class; /* of all packets with a global header */
    bool relaxed; /* keys allow relaxed ordering; from the first registration on it stays */
    char wires[sizeof(regx_device_name_t) + 8];
    regx_tally_t *sent; /* payload bytes, by port */
    regx_verbs_address_t address;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    regx_verbs_limits_t can;
    regx_verbs_buffers_t buffers;
    regx_lock_t lock; /* the device's: see above */
    struct {          /* work requests of all endpoints */
        uint32_t max, outstanding, unsignaled;
    } requests;
    regx_verbs_table_t table;
    regx_link_t ending; /* endpoints that end, and can take the next step */
    regx_link_t turns;  /* endpoints with puts or gets in line, first come first served */
    regx_cm_t cm;
    struct {
        regx_lock_t lock; /* connections are made by any thread */
        regx_link_t by_peer[REGX_VERBS_BUCKETS];
    } conns;
    bool closing;
    int events;             /* of this progress */
    struct {                /* at what the device reports */
        unsigned calls;     /* of progress */
        int64_t next;       /* when */
        int64_t probe_next; /* when to look for endpoints that are idle */
    } look;
} regx_verbs_t;

static inline regx_verbs_t *regx_verbs_of(regx_transport_t *transport)
{
    return (regx_verbs_t *)transport;
}

/* Payload that this port moves to or from a peer at our request. */
static inline void regx_verbs_count_sent(const regx_verbs_t *verbs, size_t bytes)
{
    regx_count(verbs->config.counters, &verbs->config.counters->bytes_verbs, bytes);
    regx_count(verbs->config.counters, &verbs->sent->count, bytes);
}

static inline regx_link_t *regx_verbs_bucket(regx_link_t buckets[REGX_VERBS_BUCKETS], uint64_t key)
{
    return &buckets[(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) % REGX_VERBS_BUCKETS];
}

/* The numbers of work requests: what was received has the highest bit set. */
#define REGX_RECEIVED (UINT64_C(1) << 63)

/* port.c */
/* Opens the port of that name. gid_index -1: the best for the link layer. REGX_OK;
 * REGX_UNREACHABLE: it cannot be opened, REGX_INVALID: there is no such GID; `error` then holds
 * one line. */
regx_status_t regx_verbs_port_open(const char *name, int gid_index, regx_error_t error,
                                   regx_verbs_port_t *port);
/* Chooses the port's GID: that of the index, or by -1 the best to be reached by. Says how many bits of
 * it name the IP network that it is in, by the addresses of this machine's network devices. The
 * context, the number and the attributes are known. false: it has none; `text` then holds the indices
 * that there are. */
bool regx_verbs_port_find_gid(regx_verbs_port_t *port, int index, char *text, size_t size);
static inline bool regx_gid_is_link_local(const struct ibv_gid_entry *gid)
{
    return gid->gid.raw[0] == 0xfe && (gid->gid.raw[1] & 0xc0) == 0x80;
}
/* Megabits per second; 0: not known. */
unsigned regx_verbs_port_speed(const regx_verbs_port_t *port);
/* Of packets with a global header: the port's own, or the usual one of its link layer. */
uint8_t regx_verbs_port_traffic_class(const regx_verbs_port_t *port);
/* Reads the port's attributes anew, and where its GID is. false: it has that GID no more. What cannot
 * be read stays as it was. */
bool regx_verbs_port_refresh(regx_verbs_port_t *port);
/* Whether the context's descriptors are still the device's: the program may have closed them, and opened
 * others by their numbers. libibverbs would write to those, or read from them; so it loses what is not
 * its own, and fails with EBADF from then on. Any thread. To be asked before each call that may be a
 * system call. */
bool regx_verbs_port_has_device(regx_verbs_port_t *port);
bool regx_verbs_port_has_events(regx_verbs_port_t *port);
/* What is known to be wrong with it, to be put behind what broke: "; port mlx5_0:1 is down", or "". */
void regx_verbs_port_describe(const regx_verbs_port_t *port, char *text, size_t size);
/* Says what the device does not give, with errno. REGX_NO_MEMORY; REGX_UNREACHABLE. */
regx_status_t regx_verbs_port_refuse(const regx_verbs_port_t *port, const char *what,
                                     regx_error_t error);
/* ports.c */
/* transport.h's `devices`. Chooses the ports that if_include names, in its order. Else, of those
 * that if_exclude does not name, the ports of the faster link layer (InfiniBand, if both are as
 * fast); of these the ones that are at least half as fast as the fastest, have an address beyond
 * the link if any has, and are near to this process's cores if any is. Behind those come the
 * ones that are as good but far, in subnets in which no near one is: a process elsewhere in its
 * machine may have no port but there. Opens each device for a moment; nothing is registered or
 * connected. The trace names each port that is not used, and why. */
regx_status_t regx_verbs_ports_find(const regx_transport_config_t *config, regx_error_t error,
                                    regx_device_name_t names[REGX_DEVICES_MAX], size_t *count,
                                    size_t *near);
static inline bool regx_verbs_may_post(regx_verbs_t *verbs)
{
    return !verbs->can.posts_by_kernel || regx_verbs_port_has_device(&verbs->port);
}

/* buffers.c. All registrations of the transport, its own and its owner's, are made by this: as
 * ibv_reg_mr, with relaxed ordering where that was settled on. Any thread. NULL: see errno. */
struct ibv_mr *regx_verbs_register(regx_verbs_t *verbs, void *base, size_t length, int access);

/* buffers.c: the pool that peers write to, the receive buffers, room for datagrams, and slots that
 * frames are sent from. */
/* Registers all of it; of the pool as much as is wanted and can be had. Posts every receive buffer.
 * REGX_OK; REGX_NO_MEMORY, REGX_UNREACHABLE: `error` says which limit, or what is refused. */
regx_status_t regx_verbs_buffers_open(regx_verbs_t *verbs, regx_error_t error);
void regx_verbs_buffers_close(regx_verbs_t *verbs);
/* Posts what was returned, if that is worth a call. 0; or the error, if the device refuses and has
 * no buffer left: peers would then try again without end. What is refused otherwise is posted with
 * the next ones. */
int regx_verbs_buffers_repost(regx_verbs_t *verbs);

/* A slot for an endpoint that holds `held` of them, or NULL. An endpoint that holds none is given
 * one as long as memory can be registered. */
regx_verbs_slot_t *regx_verbs_slot_take(regx_verbs_t *verbs, uint32_t *held);
void regx_verbs_slot_give(regx_verbs_t *verbs, regx_verbs_slot_t *slot, uint32_t *held);

/* Posts the room for a datagram: 0, or the error. */
int regx_verbs_buffer_datagram_post(regx_verbs_t *verbs, uint32_t index);

/* cq.c */
int regx_verbs_progress(regx_transport_t *transport);
/* Handles what has completed, a bounded amount. Whether the completion queue was seen empty. */
bool regx_verbs_poll(regx_verbs_t *verbs);

/* events.c */
/* Heeds what the device reports apart from completions, a bounded amount. A system call, which does
 * not block. */
void regx_verbs_look(regx_verbs_t *verbs);

/* Operations of transport.h. */
regx_status_t regx_verbs_send(regx_conn_t *conn, uint8_t tag, const void *header,
                              size_t header_length, regx_pack_t pack, void *pack_context,
                              size_t payload_length);
regx_status_t regx_verbs_send_zcopy(regx_conn_t *conn, regx_zcopy_t *zcopy);
regx_status_t regx_verbs_put(regx_conn_t *conn, regx_put_t *put);
regx_status_t regx_verbs_get(regx_conn_t *conn, regx_get_t *get);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The contract of a transport. A transport moves bytes to and from peers. It knows nothing of MPI,
 * messages or strategies.
 *
 * One regx_transport_t is one opened way out of this process: shared memory, or one port of an RDMA
 * device. It is used through its table of operations, because its code may lie in a shared object
 * that is loaded only if it is chosen (catalog.h). A connection leads to one peer. It costs nothing
 * on the wire until the first send.
 *
 * What is sent:
 *   - A frame is a short message with a tag below REGX_TAG_OWN. Frames of one connection are
 *     delivered in the order in which they were accepted.
 *   - A put writes to the peer's memory: its pool, or a region that it registered. Its completion
 *     notification, the notice, is delivered like a frame, after the written bytes can be seen. It
 *     comes behind all frames that were accepted before the put. Frames accepted after the put may
 *     overtake it, but only on a connection with shares_pool.
 *   - A get reads a region of the peer. The peer's user does not notice, though the peer may copy
 *     a part of it (`assisted`).
 *
 * Everything on the wire is little-endian.
 *
 * Threads and locks:
 *   - devices, open, address, on_demand and close are called by the thread that runs MPI_Init or
 *     MPI_Finalize.
 *   - reaches, connect, send, send_zcopy, put, get, copy, expose, stage, unstage, allocate,
 *     release, reg, dereg and prefetch may be called by any thread, and from inside the event
 *     deliver.
 *   - has_next is called from inside an event alone.
 *   - progress is called by one thread at a time, and not from inside an event or a done.
 *   - disconnect and close are called while no thread is in progress.
 *   - All events and all done are called by progress, disconnect and close. The transport then
 *     holds no lock that any operation waits for.
 *
 * No operation waits but close, disconnect, dereg and unstage: close until the peers have what
 * was accepted, or are gone; the others for a copy or write that is under way. On RoCE progress may
 * wait for the kernel once for each peer, up to a second (verbs/ep.h). What cannot be accepted now
 * answers REGX_AGAIN and has had no effect (but a put may have written bytes).
 */
#ifndef REGX_TRANSPORT_TRANSPORT_H
#define REGX_TRANSPORT_TRANSPORT_H

#include "base/copy.h"
#include "base/counters.h"
#include "base/list.h"
#include "base/param.h"
#include "base/trace.h"
#include "base/util.h"

#define REGX_TRANSPORT_ABI 42 /* of this header; an object built for another is refused */

#define REGX_TAG_OWN 255      /* of frames that a transport sends for itself */
#define REGX_ADDRESS_MAX 1024 /* bytes of what a process publishes about itself */
#define REGX_NOTICE_MAX 48    /* bytes of the notice that follows a put */
#define REGX_IMMEDIATE_MAX 0xffffffu
#define REGX_DEVICES_MAX 32 /* of one kind of transport, in one process */

typedef char regx_device_name_t[80];

typedef struct regx_transport regx_transport_t;
typedef struct regx_conn regx_conn_t;

/* How a peer names registered memory. Opaque outside the transport, sent as it is. */
#define REGX_KEY_SIZE 24
typedef struct regx_key {
    uint8_t bytes[REGX_KEY_SIZE];
} regx_key_t;

/* What a registration is for. */
enum {
    REGX_ACCESS_LOCAL = 1,        /* this process puts from the memory */
    REGX_ACCESS_REMOTE_WRITE = 2, /* peers put to it, and this process may get into it */
    REGX_ACCESS_REMOTE_READ = 4,  /* peers get from it */
    REGX_ACCESS_LOCAL_WRITE = 8,  /* this process gets into it */
    REGX_ACCESS_ANY_WRITE = REGX_ACCESS_REMOTE_WRITE | REGX_ACCESS_LOCAL_WRITE,
    REGX_ACCESS_ON_DEMAND = 64 /* nothing is pinned: the device looks pages up as it needs them */
};

/* A memory region as the device knows it. Owned by who registered it, until deregistered. */
typedef struct regx_mr {
    void *base;
    size_t length;
    unsigned access;
    regx_key_t key;
    void *handle; /* the transport's own */
} regx_mr_t;

/* Callbacks to the user of a transport. */
typedef struct regx_transport_events {
    void *context;
    /* A frame arrived from the process whose id is `sender`; data is valid during the call. */
    void (*deliver)(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length);
    /* A put of that process is complete, and came with an immediate in place of its notice. NULL:
     * peers do not send any. */
    void (*immediate)(void *context, uint64_t sender, uint32_t immediate);
    /* Nothing can be sent to or received from this peer any more. `ended`: its process has ended, for
     * certain. */
    void (*broken)(void *context, uint64_t peer, bool ended, const char *what);
    /* Something is to be sent to this peer, and it has not answered for minutes. It may be gone, or
     * unreachable, or busy outside MPI. The transport goes on trying. May be NULL. */
    void (*silent)(void *context, uint64_t peer);
} regx_transport_events_t;

typedef struct regx_transport_config {
    uint64_t self;       /* id of this process, unique in the job and among connected jobs */
    size_t pool_size;    /* bounce memory wanted: bytes, a multiple of the page */
    size_t pool_min;     /* bytes of it below which it is of no use */
    size_t owned_size;   /* bytes that `allocate` gives, at most */
    unsigned neighbours; /* other processes of the node that it will connect to, as far as known */
    const char *if_include; /* for `devices` alone: comma-separated, or NULL */
    const char *if_exclude;
    const char *device; /* one that `devices` named; NULL where that is NULL */
    /* Its own (catalog.h); NULL: the defaults. Read by devices and open alone; but strings that they point to
     * live as long as the transport. */
    const void *settings;
    bool threads; /* more than one thread will call */
    regx_counters_t *counters;
    const regx_trace_t *trace; /* lives as long as the transport; may be NULL */
    regx_transport_events_t events;
} regx_transport_config_t;

/* Something cannot go as was asked for, and goes another way: counted by reason, and shown to who
 * traces at that level. Any thread. */
static inline void regx_transport_fall_back(const regx_transport_config_t *config, int level,
                                            const char *reason)
{
    regx_tally(config->counters->fallbacks, reason);
    regx_trace(config->trace, level, "fallback: %s", reason);
}

typedef enum regx_pending_kind {
    REGX_PENDING_PUT,
    REGX_PENDING_GET,
    REGX_PENDING_ZCOPY
} regx_pending_kind_t;

/* What a transport keeps of an operation while it is pending: the caller leaves it alone. Each
 * transport uses what it needs of it. */
typedef struct regx_pending {
    regx_link_t link; /* in the line that it waits in */
    regx_pending_kind_t kind;
    bool from_end; /* the copy began with its last piece */
    bool failed;   /* a part of it has: no more is begun, and it ends when nothing is under way */
    regx_conn_t *conn;
    size_t moved; /* bytes that were copied, or posted */
    union {
        struct {
            uint32_t token, use; /* by which the peer returns a zero-copy send */
        };
        struct {
            uint32_t begun, under_way; /* its pieces */
        };
    };
    struct regx_shared_copy *shared; /* a get that the peer may help with, or NULL */
} regx_pending_t;

/* Which memory of the peer a put writes. */
typedef enum regx_target { REGX_TARGET_POOL, REGX_TARGET_REGION } regx_target_t;

/* One write to a peer. The caller fills it and keeps it until done is called. The peer is delivered
 * the notice once it can see the written bytes. A transport whose device writes with immediate data
 * may deliver the immediate instead, if that is not 0: the caller sees to it that both say the
 * same.
 */
typedef struct regx_put {
    const void *local; /* any readable memory, or inside `region` where the transport needs one */
    size_t length;
    const regx_mr_t *region; /* the caller's registration of local, or NULL */
    regx_target_t target;
    uint64_t offset;    /* in the peer's pool, or from the start of the peer's region */
    regx_key_t key;     /* of the peer's region; unused for the pool */
    uint32_t immediate; /* at most REGX_IMMEDIATE_MAX */
    uint8_t tag;        /* of the notice */
    uint8_t notice_length;
    uint8_t notice[REGX_NOTICE_MAX];
    /* Called once, if put answered REGX_PENDING. REGX_OK; REGX_FAILED; REGX_DENIED as for put;
     * REGX_UNREACHABLE: the connection is lost, and the event broken comes before or after this. */
    void (*done)(struct regx_put *put, regx_status_t status);
    void *context;
    regx_pending_t pending;
} regx_put_t;

/* One read of a peer's registered memory. The caller fills it and keeps it until done is called. */
typedef struct regx_get {
    void *local; /* inside `region` */
    size_t length;
    const regx_mr_t *region; /* the caller's registration of local; on a connection with single_copy
                                it may be NULL */
    uint64_t offset;         /* from the start of the peer's region */
    regx_key_t key;          /* of the peer's region, or of what it exposed */
    bool staged;             /* from where the peer copies it, else REGX_AGAIN; get may set it */
    bool assisted;           /* a hint: the peer may write a part of it, if it has nothing to do */
    /* Called once, if get answered REGX_PENDING. REGX_OK: all bytes are there. REGX_FAILED, or
     * REGX_DENIED as for get: some of them may have been written, and no more will be. */
    void (*done)(struct regx_get *get, regx_status_t status);
    void *context;
    regx_pending_t pending;
} regx_get_t;

typedef enum regx_copy_direction { REGX_COPY_TO_PEER, REGX_COPY_FROM_PEER } regx_copy_direction_t;

/* A zero-copy send: a frame of at most max_zcopy bytes that lies in this process's pool. Where the
 * wire allows it, the peer reads the frame there. */
typedef struct regx_zcopy {
    const void *data; /* inside this process's pool memory */
    size_t length;
    uint8_t tag;
    void (*done)(struct regx_zcopy *zcopy, regx_status_t status); /* once, after REGX_PENDING */
    void *context;
    regx_pending_t pending;
} regx_zcopy_t;

static inline regx_pending_t *regx_pending_of(regx_link_t *link)
{
    return REGX_CONTAINER_OF(link, regx_pending_t, link);
}

static inline regx_put_t *regx_put_of(regx_pending_t *pending)
{
    return REGX_CONTAINER_OF(pending, regx_put_t, pending);
}

static inline regx_get_t *regx_get_of(regx_pending_t *pending)
{
    return REGX_CONTAINER_OF(pending, regx_get_t, pending);
}

/* What a put to a region and a get have in common. */
typedef struct regx_move {
    char *local;
    size_t length;
    const regx_mr_t *region; /* of `local`, or NULL */
    const regx_key_t *key;   /* of the peer's region */
    uint64_t offset;         /* in that */
} regx_move_t;

static inline regx_move_t regx_move_of(regx_pending_t *pending)
{
    if (pending->kind == REGX_PENDING_GET) {
        const regx_get_t *get = regx_get_of(pending);

        return (regx_move_t){get->local, get->length, get->region, &get->key, get->offset};
    }
    const regx_put_t *put = regx_put_of(pending);
    return (regx_move_t){(char *)(uintptr_t)put->local, put->length, put->region, &put->key,
                         put->offset};
}

/* Calls the operation's done. The caller may free it there. */
static inline void regx_pending_end(regx_pending_t *pending, regx_status_t status)
{
    regx_put_t *put = regx_put_of(pending);
    regx_get_t *get = regx_get_of(pending);
    regx_zcopy_t *zcopy = REGX_CONTAINER_OF(pending, regx_zcopy_t, pending);

    switch (pending->kind) {
    case REGX_PENDING_PUT:
        put->done(put, status);
        break;
    case REGX_PENDING_GET:
        get->done(get, status);
        break;
    case REGX_PENDING_ZCOPY:
        zcopy->done(zcopy, status);
        break;
    }
}

/* Ends all of a line. It is the caller's: nothing joins it meanwhile. */
static inline void regx_pending_end_all(regx_link_t *line, regx_status_t status)
{
    while (!regx_list_empty(line)) {
        regx_pending_t *pending = regx_pending_of(line->next);

        regx_list_remove(&pending->link);
        regx_pending_end(pending, status);
    }
}

typedef struct regx_transport_ops {
    unsigned abi; /* REGX_TRANSPORT_ABI; first, so that any build can read it */
    const char *name;

    /* Names the devices to use, at least one. The first `near` of them are for all peers, the
     * others for those to which only such lead. Each is then opened as a transport of its own.
     * Answers as open. NULL: the transport is opened once, without the name of a device. */
    regx_status_t (*devices)(const regx_transport_config_t *config, regx_error_t error,
                             regx_device_name_t names[REGX_DEVICES_MAX], size_t *count,
                             size_t *near);

    /* Opens a transport. `config` is copied. REGX_OK; REGX_UNREACHABLE: nothing is usable here;
     * REGX_INVALID: a setting is wrong; REGX_NO_MEMORY. But for REGX_OK, `error` holds one line;
     * for REGX_INVALID the line begins with the setting's name and "=", and says what is allowed.
     * What is refused but can be done without is tallied in counters->fallbacks. */
    regx_status_t (*open)(const regx_transport_config_t *config, regx_error_t error,
                          regx_transport_t **transport);
    /* All connections must be disconnected. Frees the pool, if it is the transport's. */
    void (*close)(regx_transport_t *transport);

    /* Writes what peers need to connect to this process into `buffer`, which has room for
     * REGX_ADDRESS_MAX bytes. Returns its length. */
    size_t (*address)(regx_transport_t *transport, void *buffer);

    /* Whether a connection to the process that published `address` is possible. Both ends get the
     * same answer. same_node: it is known to be on this node; else the address may still tell. NULL:
     * connect has to be tried. */
    bool (*reaches)(const regx_transport_t *transport, const void *address, size_t length,
                    bool same_node);

    /* Prepares the connection to the process that published `address`; nothing is sent yet.
     * REGX_OK: the caller owns `conn` until disconnect; REGX_UNREACHABLE: no way leads to this
     * peer; REGX_INVALID: the address is malformed; REGX_NO_MEMORY. */
    regx_status_t (*connect)(regx_transport_t *transport, uint64_t peer, const void *address,
                             size_t length, regx_conn_t **conn);
    /* Ends the connection and frees it. Frames that were accepted are still delivered, where the
     * wire can. The done of what is pending is called from here, with REGX_FAILED. A device's
     * transport may wait up to 0.1 s for a write that is under way. */
    void (*disconnect)(regx_conn_t *conn);
    /* Whether the process at the other end may still read what is sent. A system call. Called by
     * progress's thread, or while progress is kept out. */
    bool (*reachable)(regx_conn_t *conn);

    /* Sends header (at most 256 bytes) and payload as one frame of at most max_frame bytes.
     * `pack` writes the payload, called at most once, within send; NULL: the payload lies at
     * `pack_context`, or has no bytes.
     * REGX_OK: copied; REGX_AGAIN; REGX_UNREACHABLE: the peer cannot be reached, and the event
     * broken comes before or after this; REGX_INVALID: the frame is too long. */
    regx_status_t (*send)(regx_conn_t *conn, uint8_t tag, const void *header, size_t header_length,
                          regx_pack_t pack, void *pack_context, size_t payload_length);
    /* Sends a frame without copying it, if possible. REGX_OK: it was copied, and the memory may be
     * used again; REGX_PENDING: not before done is called; REGX_AGAIN, REGX_UNREACHABLE,
     * REGX_INVALID as send. */
    regx_status_t (*send_zcopy)(regx_conn_t *conn, regx_zcopy_t *zcopy);
    /* REGX_OK: the bytes are written and the notice is accepted; REGX_PENDING: done will be called;
     * REGX_AGAIN: the peer sees no notice, and the same put may be tried again, though bytes may
     * have been written; REGX_DENIED: this peer's memory cannot be written this way at all;
     * REGX_UNREACHABLE as send; REGX_INVALID: outside what the peer published. */
    regx_status_t (*put)(regx_conn_t *conn, regx_put_t *put);
    /* REGX_PENDING: done will be called; REGX_AGAIN, REGX_UNREACHABLE as send; REGX_DENIED: nothing
     * can be read from this peer; REGX_INVALID: outside what the peer published. NULL: this
     * transport cannot read a peer's memory. */
    regx_status_t (*get)(regx_conn_t *conn, regx_get_t *get);

    /* What only processes of one node can do for each other. Each may be NULL, and all are where
     * peers are on other nodes; unstage goes with stage, release with allocate, and has_next with
     * connections that have shares_pool. A connection says by single_copy (regx_conn_t) whether the
     * kernel copies. */
    struct {
        /* Whether the sender of the notice that is being delivered has posted anything after it: a
         * hint. Called from inside the event alone. */
        bool (*has_next)(const regx_transport_t *transport);
        /* Has the kernel copy `length` bytes between `local` and the address `remote` in the peer:
         * now, and all of them. No key is asked for, so `remote` must be what the peer has offered.
         * REGX_OK: they can be seen at the other end; REGX_DENIED: the kernel does not copy between
         * the two; REGX_FAILED: it does not reach the memory at one of the ends, and some bytes may
         * have been copied. */
        regx_status_t (*copy)(regx_conn_t *conn, regx_copy_direction_t direction, void *local,
                              uint64_t remote, size_t length);
        /* Names memory of this process that a peer may get, and nothing else, without its being
         * registered: over a connection that has single_copy for the peer. Where there is none the
         * key is refused. Prepares nothing, and there is nothing to undo. */
        void (*expose)(regx_transport_t *transport, const void *base, size_t length,
                       regx_key_t *key);
        /* Has progress copy what was exposed to memory that this peer maps too, if the peer asks
         * for it (regx_get_t.staged), and names that place in the key. The bytes stay in use until
         * unstage. false: there are too many such, or too many bytes. */
        bool (*stage)(regx_conn_t *conn, const void *base, size_t length, regx_key_t *key);
        /* The peer has got it, or never will. `key` is the one that stage filled in. When it
         * returns, the bytes are not read any more. */
        void (*unstage)(regx_transport_t *transport, const regx_key_t *key);
        /* Memory for the user's buffers, which neighbours map: a put or a get that the kernel would
         * make to or from it is then made by a process. `length` bytes on a page, not initialised;
         * NULL: it has none for that, and counts the reason as a fallback. What is not released by
         * then stays mapped when the transport closes. */
        void *(*allocate)(regx_transport_t *transport, size_t length);
        /* Not before the last transfer from or to it has ended. */
        void (*release)(regx_transport_t *transport, void *memory);
    } node;

    /* Registers [base, base + length) and fills `mr`, which the caller owns until dereg, with
     * exactly that range and access: room for it is given back by them.
     * REGX_OK; REGX_NO_MEMORY or REGX_DENIED: this memory cannot be registered now, and the caller
     * bounces; REGX_INVALID: no memory can be registered for that access. */
    regx_status_t (*reg)(regx_transport_t *transport, void *base, size_t length, unsigned access,
                         regx_mr_t *mr);
    /* Gives a registration up. Where `registers` is true no peer writes to that memory or reads
     * from it any more when this returns. There it may come from a thread of the registration
     * cache, even in a program that has only one thread: it must not touch what the program's
     * threads use without a lock. */
    void (*dereg)(regx_transport_t *transport, regx_mr_t *mr);

    /* Whether memory can be registered with REGX_ACCESS_ON_DEMAND, to be put. Called before the
     * first connection. REGX_OK; REGX_DENIED: the device cannot, and `error` holds one line. NULL:
     * never possible. */
    regx_status_t (*on_demand)(regx_transport_t *transport, regx_error_t error);
    /* Asks the device to look up pages of an on-demand region before they are needed: for writing,
     * if the region may be written. REGX_OK: the device was asked; whether it did so is not known,
     * unless `wait`, when it has. REGX_DENIED: the device cannot be asked, or did not. NULL where
     * on_demand is NULL. */
    regx_status_t (*prefetch)(regx_transport_t *transport, const regx_mr_t *mr, const void *base,
                              size_t length, bool wait);

    /* Looks whether peers live, at most once a second, and reports those that have ended without closing as broken,
     * once each, when all that they had sent has been delivered. As progress. NULL: progress does. */
    void (*look)(regx_transport_t *transport);

    /* Delivers and completes what is ready, up to a bound. Returns how many events there were. */
    int (*progress)(regx_transport_t *transport);
} regx_transport_ops_t;

/* What is known of a transport whether or not it is loaded: part of the core, not of the plugin.
 * Each defines its entry in its folder; catalog.h lists them. */
typedef struct regx_catalog_entry {
    const regx_param_t *params;      /* its own, ended by one without a name; or NULL */
    const regx_transport_ops_t *ops; /* NULL: it is a plugin (catalog.h) */

    /* Of the one between nodes: */
    const char *remedy;               /* what has to be so that two ports reach each other */
    bool (*owns)(const char *device); /* whether there is a device of that name here */
    const char *(*why_absent)(void);  /* why there is none that can be used; NULL: there is one */
    const char *devices;              /* what they are called: "RDMA device" */
} regx_catalog_entry_t;

/* The common head of every transport. */
struct regx_transport {
    const regx_transport_ops_t *ops;
    void *pool_memory; /* what peers may write by offset; lives until close */
    size_t pool_size;  /* may be less than was asked for */
    size_t max_frame;  /* bytes of header and payload that send takes */
    size_t max_zcopy;  /* bytes that send_zcopy takes: max_frame or more */
    const char *wires; /* for the report: "posix", "verbs:mlx5_0:1" */
    bool registers;    /* registering pins memory, and costs time */
    bool forked;       /* the owner sets it in a child of fork: by address, and by what is pinned,
                          peers reach the parent's memory, so a child offers none of its own */
    uint64_t mr_count; /* regions that all users of the device may have together; 0: no limit */
    uint64_t mr_bytes; /* bytes of the longest region; 0: no limit */
    /* Of puts to a peer's regions no more should be accepted while so many bytes of them are under
     * way to that peer: what is sent then, in the other direction the grants, would wait behind
     * them. 0: as many as there are. */
    size_t put_inflight_max;
    /* Set by on_demand: puts and gets of an on-demand region must begin at a multiple of so many
     * bytes, or the device fails. 1: anywhere. */
    size_t on_demand_grain;
    unsigned megabits; /* per second; 0: not known */
    unsigned latency;  /* of a small message, to be compared between ports: us; 0: not known */
};

/* The common head of every connection: set by connect, and the same from then on. */
struct regx_conn {
    regx_transport_t *transport;
    uint64_t peer;
    /* The two processes map each other's pool: what is bounced is copied once by each of them. */
    bool shares_pool;
    /* Puts to a region, and gets, are copies that the kernel makes between the two processes, and
     * it allows them as far as this process can tell. */
    bool single_copy;
};

#endif

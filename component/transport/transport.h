/* SPDX-License-Identifier: BSD-3-Clause
 *
 * transport/ moves bytes to and from peers; it knows nothing of MPI, messages or strategies.
 *
 * One regx_transport_t is one opened way out of this process (UCT on this machine and tcp, or one
 * verbs port). It is reached through the table of operations below, because its code may live in
 * an object of its own that is loaded only when chosen (load.h). A connection is the path to one
 * peer; it is made lazily, on the first send.
 *
 * Who calls what: open and close are called by the thread that runs MPI_Init or finalize. connect,
 * send, lend, put, get, register, deregister and prefetch may be called by any thread, also from
 * inside deliver.
 * progress is called by one thread at a time and never recursively, disconnect and close only
 * while it is kept out; these make all calls of `events` and of `done`, holding no lock that any
 * of these operations waits for.
 *
 * No operation but close waits (close: until what was accepted is read, or nobody is there to read
 * it): what cannot be accepted now answers REGX_AGAIN and has had no effect.
 * Frames (send, lend) from one process to another are delivered in the order in which they were
 * accepted, and the notice of a put behind those accepted before it. What is accepted after it may
 * come before its notice: on a node, where the kernel copies, it does; over tcp and verbs it does
 * not. Everything on the wire is little-endian.
 */
#ifndef REGX_TRANSPORT_TRANSPORT_H
#define REGX_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/counters.h"
#include "base/status.h"
#include "base/trace.h"

#define REGX_TRANSPORT_ABI 12 /* of this header; an object built for another is refused */

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

/* What is asked for: to put from it, that peers put to it, that peers get it, to get into it. */
enum {
    REGX_ACCESS_LOCAL = 1,
    REGX_ACCESS_REMOTE_WRITE = 2,
    REGX_ACCESS_REMOTE_READ = 4,
    REGX_ACCESS_LOCAL_WRITE = 8,
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

/* Calls out of progress. */
typedef struct regx_transport_events {
    void *context;
    /* A frame arrived from the process whose id is `sender`; data is valid during the call. */
    void (*deliver)(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length);
    /* Likewise, a put's immediate in place of its notice. NULL: peers' puts have none. */
    void (*immediate)(void *context, uint64_t sender, uint32_t immediate);
    /* Nothing can be sent to or received from this peer any more. */
    void (*broken)(void *context, uint64_t peer, const char *what);
    /* For minutes this peer has not answered, to whom something is to be sent: it is gone, or
     * cannot be reached, or has been outside MPI since. It is asked on. NULL: nobody is told. */
    void (*silent)(void *context, uint64_t peer);
} regx_transport_events_t;

struct regx_verbs_settings; /* verbs/settings.h */
struct hwloc_topology;

typedef struct regx_transport_config {
    uint64_t self;          /* id of this process, unique in the job and among connected jobs */
    size_t pool_size;       /* bounce memory wanted: bytes, a multiple of the page */
    size_t pool_least;      /* … and the least that is of use */
    const char *if_include; /* devices, comma-separated names or CIDR, or NULL */
    const char *if_exclude;
    const char *device;              /* one that `devices` named; NULL: open chooses */
    struct hwloc_topology *topology; /* what is known of the machine, or NULL; read by `devices` */
    const char *tls; /* UCT transports allowed, comma-separated, or NULL for all that are known */
    const struct regx_verbs_settings *verbs; /* read by open alone; NULL: the defaults */
    bool threads;                            /* more than one thread will call */
    regx_counters_t *counters;
    const regx_trace_t *trace; /* kept; NULL: nobody wants to know */
    regx_transport_events_t events;
} regx_transport_config_t;

/* What of the peer a put writes. */
typedef enum regx_target { REGX_TARGET_POOL, REGX_TARGET_REGION } regx_target_t;

/* One write to a peer. Filled by the caller, who keeps it until done is called. When the written
 * bytes can be seen by the peer, and not before, the peer is delivered the notice; or, where the
 * wire has writes with immediate data, the immediate, if it is not 0 and says the same. */
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
    /* Only after REGX_PENDING. REGX_OK; REGX_FAILED, or REGX_DENIED as put; REGX_UNREACHABLE: the
     * connection is lost, which the event broken tells, perhaps only after this. */
    void (*done)(struct regx_put *put, regx_status_t status);
    void *context;
    void *scratch[4]; /* the transport's while pending */
} regx_put_t;

/* One read of a peer's registered memory. Filled by the caller, who keeps it until done is called.
 * The peer is not told. */
typedef struct regx_get {
    void *local; /* inside `region` */
    size_t length;
    const regx_mr_t *region; /* the caller's registration of local */
    uint64_t offset;         /* from the start of the peer's region */
    regx_key_t key;          /* of the peer's region */
    /* Only after REGX_PENDING. With REGX_OK all bytes can be seen; with REGX_FAILED, and with
     * REGX_DENIED as get, any part of them may have been written, and no more is. */
    void (*done)(struct regx_get *get, regx_status_t status);
    void *context;
    void *scratch[4]; /* the transport's while pending */
} regx_get_t;

/* A frame of at most 64 KiB sent from the caller's pool memory, without a copy where possible. */
typedef struct regx_lend {
    const void *data; /* inside this process's pool memory */
    size_t length;
    uint8_t tag;
    void (*done)(struct regx_lend *lend, regx_status_t status); /* only after REGX_PENDING */
    void *context;
    void *scratch[4]; /* the transport's while pending */
} regx_lend_t;

/* Writes exactly `length` payload bytes to `to`. Called within send, at most once. */
typedef void (*regx_pack_t)(void *context, void *to, size_t length);

typedef struct regx_transport_ops {
    unsigned abi; /* REGX_TRANSPORT_ABI; first, so that any build can read it */
    const char *name;

    /* Names the devices to use, each to be opened as a transport of its own: one at least. Status
     * and error as open. NULL: there is one transport, without a name. */
    regx_status_t (*devices)(const regx_transport_config_t *config, char *error, size_t error_size,
                             regx_device_name_t names[REGX_DEVICES_MAX], size_t *count);

    /* Opens what is there. REGX_UNREACHABLE where nothing is usable, REGX_INVALID where a setting
     * is wrong; `error` then holds one line that names the thing and what is allowed, and in the
     * latter case begins with the setting's name and "=". What is refused but not needed is
     * tallied in counters->fallbacks. */
    regx_status_t (*open)(const regx_transport_config_t *config, char *error, size_t error_size,
                          regx_transport_t **transport);
    /* All connections must be disconnected. Frees pool memory. */
    void (*close)(regx_transport_t *transport);

    /* Writes what peers need to connect; returns its length, at most REGX_ADDRESS_MAX. */
    size_t (*address)(regx_transport_t *transport, void *buffer);

    /* Whether a path can lead from here to whoever published that; the answer is the same from
     * the other end. NULL: connect tells. */
    bool (*reaches)(const regx_transport_t *transport, const void *address, size_t length);

    /* Prepares the path to the process that published `address`. Opens nothing yet. Shared
     * memory is used only where same_node. REGX_UNREACHABLE: no way to this peer;
     * REGX_INVALID: the address is malformed. */
    regx_status_t (*connect)(regx_transport_t *transport, uint64_t peer, bool same_node,
                             const void *address, size_t length, regx_conn_t **conn);
    /* Drops the path; frames accepted before are still delivered where the wire can. Pending
     * puts, gets and lends are completed with REGX_FAILED, from here. */
    void (*disconnect)(regx_conn_t *conn);
    /* A hint: a small frame will be sent to this peer in a moment. May be NULL. */
    void (*warm)(regx_conn_t *conn);
    /* Whether the process at the other end may still read what is sent. A system call. */
    bool (*reachable)(regx_conn_t *conn);

    /* Sends header (at most 256 bytes) and payload as one frame of at most max_frame bytes.
     * pack may be NULL if payload_length is 0.
     * REGX_OK: copied. REGX_AGAIN. REGX_UNREACHABLE: the path cannot be made. */
    regx_status_t (*send)(regx_conn_t *conn, uint8_t tag, const void *header, size_t header_length,
                          regx_pack_t pack, void *pack_context, size_t payload_length);
    /* REGX_OK: the memory may be used again. REGX_PENDING: done will be called. REGX_AGAIN,
     * REGX_UNREACHABLE as send. */
    regx_status_t (*lend)(regx_conn_t *conn, regx_lend_t *lend);
    /* REGX_OK: written and the notice accepted. REGX_PENDING: done will be called. REGX_AGAIN:
     * nothing was noticed; the same put may be tried again. REGX_DENIED: this peer's memory
     * cannot be written this way at all. REGX_INVALID: outside what the peer published. */
    regx_status_t (*put)(regx_conn_t *conn, regx_put_t *put);
    /* NULL: no wire of this transport reads a peer's memory. REGX_PENDING: done will be called,
     * from progress or disconnect. REGX_AGAIN, REGX_UNREACHABLE as send. REGX_DENIED: nothing can
     * be read from this peer. REGX_INVALID: outside what the peer published. */
    regx_status_t (*get)(regx_conn_t *conn, regx_get_t *get);
    bool copies; /* there are neighbours with whom single_copy (regx_conn_t) may hold */

    /* REGX_NO_MEMORY or REGX_DENIED: bounce instead. REGX_INVALID: no memory can be registered for
     * that access. */
    regx_status_t (*reg)(regx_transport_t *transport, void *base, size_t length, unsigned access,
                         regx_mr_t *mr);
    /* When it returns, no peer's write lands in that memory any more, nor does one read it. */
    void (*dereg)(regx_transport_t *transport, regx_mr_t *mr);

    /* Whether memory can be registered with REGX_ACCESS_ON_DEMAND: the device can, for what is
     * done with regions here, and was seen just now to follow a change of the mapping. Called
     * before anybody connects. REGX_DENIED, REGX_INVALID (it does not follow); `error` then holds
     * one line. NULL: it cannot. */
    regx_status_t (*on_demand)(regx_transport_t *transport, char *error, size_t error_size);
    /* Has the device look up that part of a region on demand before it is needed; if the region
     * may be written, then to be written. REGX_OK: it was asked to, and nobody hears how it went.
     * REGX_DENIED: it does not let itself be asked. NULL where on_demand is. */
    regx_status_t (*prefetch)(regx_transport_t *transport, const regx_mr_t *mr, const void *base,
                              size_t length);

    /* Delivers and completes what is ready, a bounded amount; returns how many events. */
    int (*progress)(regx_transport_t *transport);
} regx_transport_ops_t;

/* The common head of every transport. */
struct regx_transport {
    const regx_transport_ops_t *ops;
    void *pool_memory; /* what peers may write by offset; lives until close */
    size_t pool_size;  /* may be less than was asked for */
    size_t max_frame;  /* bytes of header and payload that send takes */
    const char *wires; /* for the report, such as "posix,tcp" */
    bool registers;    /* registering pins memory, and is worth avoiding */
    uint64_t mr_count; /* regions that the device has for callers, of all who use it; 0: any */
    uint64_t mr_bytes; /* of the longest region; 0: any */
    /* Set by on_demand: what is moved from or to a region on demand must begin at a multiple of
     * this many bytes, or the device errs. 1: anywhere. */
    size_t on_demand_grain;
    unsigned megabits; /* per second; 0: not known */
};

/* The common head of every connection. */
struct regx_conn {
    regx_transport_t *transport;
    uint64_t peer;
    const char *wire; /* "shm", "tcp", …: for messages to people */
    /* The two processes map each other's pool: a bounce is a copy per side. */
    atomic_bool shares_pool;
    /* Puts to a region, and gets, are the kernel's copies between the two processes, which it
     * allows, as far as can be told from this side. */
    atomic_bool single_copy;
};

#endif

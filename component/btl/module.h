/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A module: one open transport, with its pool, cache, rendezvous and peers.
 */
#ifndef REGX_BTL_MODULE_H
#define REGX_BTL_MODULE_H

#include "btl/component.h"
#include "onesided/onesided.h"

/* How Open MPI's memory fragments are kept for the next message (fragment.c). */
typedef enum regx_fragment_kind {
    REGX_FRAGMENT_SMALL, /* a header, or data in a slot of the pool */
    REGX_FRAGMENT_FRAME, /* as much as a frame of the transport takes */
    REGX_FRAGMENT_KINDS
} regx_fragment_kind_t;

struct regx_module {
    mca_btl_base_module_t super; /* first: Open MPI's module is ours */
    regx_component_t *component;
    /* The component's. */
    const regx_params_t *params;
    regx_counters_t *counters;
    regx_flow_t *flow; /* of its kind of peers */
    const regx_trace_t *trace;
    bool threads;
    regx_eager_t eager;

    unsigned index; /* among the component's modules */
    bool far;       /* its device is only for peers that are not reached by others */
    regx_transport_kind_t kind;
    regx_transport_t *transport;
    regx_pool_t pool;
    struct regx_monitor *monitor; /* the component's, or its own; NULL: none */
    regx_registry_t registry;
    regx_rndv_t *rndv;         /* NULL: not started, or closing */
    regx_onesided_t *onesided; /* NULL: closing */
    _Atomic unsigned rounds;   /* of progress, which alone counts them */
    atomic_bool ending;        /* Open MPI finalizes: its callbacks are not called any more */
    bool guarded;              /* progress is, by `inside`: there are threads, or it has ended */
    atomic_bool inside;        /* a thread is in progress, or it has ended */
    /* Ends the job; NULL: not yet, or not any more. */
    _Atomic mca_btl_base_module_error_cb_fn_t error;

    regx_lock_t lock; /* of what follows */
    struct {
        regx_endpoint_t *_Atomic first; /* added under the lock, taken out by progress alone */
        unsigned count;
        unsigned high; /* most at once */
        bool unasked; /* one was made that Open MPI had not asked for (regx_endpoint_new_unasked) */
    } endpoints;
    regx_link_t blocked; /* endpoints that have fragments waiting, in the order of asking */
    struct {
        regx_fragment_t *first[REGX_FRAGMENT_KINDS];
        unsigned count[REGX_FRAGMENT_KINDS];
    } unused;
    struct {                      /* what progress has to do; read without the lock */
        _Atomic unsigned leaving; /* endpoints to be deleted */
        _Atomic unsigned queued;  /* fragments that wait, and peers that onesided has work for */
        _Atomic unsigned
            ended; /* one-sided operations whose completion is to be called; and windows
                                     that are offered, for a fence in each round */
    } due;
};

static inline regx_module_t *regx_module_of(mca_btl_base_module_t *btl)
{
    return (regx_module_t *)btl;
}

/* Opens a module's transport and its pool. ops: of that kind; device: one that `ops->devices`
 * named, or NULL if the transport has none. REGX_OK: it is one of the component's; otherwise as the
 * transport's open, and `error` has the reason. */
regx_status_t regx_module_open(regx_component_t *component, regx_transport_kind_t kind,
                               const regx_transport_ops_t *ops, const char *device,
                               size_t pool_size, regx_error_t error);

/* The rest, once the component's backend was started: cache and rendezvous. false: a warning was
 * printed; the module is to be closed. */
bool regx_module_start(regx_module_t *module);

/* Delivers and sends what is ready; returns how many things went on. Any thread; one at a time is
 * let in, the others return at once. */
int regx_module_progress(regx_module_t *module);

/* Around each callback of Open MPI's that is called from inside progress (regx_compat_receive does the same
 * by itself). Open MPI may call progress from there, which is refused between these two; it is not refused
 * throughout progress, as a program may leave that by siglongjmp. `outer`: what begin returned. */
static inline uintptr_t regx_callback_begin(void)
{
    const uintptr_t outer = atomic_load_explicit(&regx_compat_calling, memory_order_relaxed);

    atomic_store_explicit(&regx_compat_calling, (uintptr_t)__builtin_frame_address(0),
                          memory_order_relaxed);
    return outer;
}

static inline void regx_callback_end(uintptr_t outer)
{
    atomic_store_explicit(&regx_compat_calling, outer, memory_order_relaxed);
}

/* Keeps progress out for good, and stops calling Open MPI back. No other thread is in MPI any more,
 * or leaves it soon. */
void regx_module_end(regx_module_t *module);

/* For a module that has ended: goes on with fragments that Open MPI counts as sent. Whether some
 * still waited here, or in memory that a peer which is alive has yet to read. */
bool regx_module_send_rest(regx_module_t *module);

/* Disconnects its peers and frees it; also a module that was not started. */
void regx_module_close(regx_module_t *module);

/* ---- endpoint.c ---- */

/* An endpoint: one peer, as one module reaches it.
 *
 * Open MPI asks for it by add_procs, keeps the pointer and gives it up by del_procs. From then on
 * none of its callbacks are called for this endpoint, and progress deletes it.
 */

typedef enum regx_endpoint_state {
    REGX_ENDPOINT_OPEN,
    REGX_ENDPOINT_LEAVING /* Open MPI has given it up */
} regx_endpoint_state_t;

struct mca_btl_base_endpoint_t {
    regx_peer_t peer;
    regx_onesided_peer_t onesided;
    opal_proc_t *proc;
    regx_endpoint_t *next, *previous; /* in module->endpoints.first */
    _Atomic regx_endpoint_state_t state;
    bool apart;       /* of another job, joined by MPI_Comm_spawn, connect or accept */
    atomic_bool lost; /* the transport has reported it */
    /* Fragments that found no room, oldest first; written under the module's lock. */
    regx_fragment_t *_Atomic queue;
    regx_fragment_t *queue_end;
    regx_link_t blocked;        /* in module->blocked while there are some */
    _Atomic size_t zcopy_bytes; /* of fragments in the pool that the peer still reads */
};

/* Connects the module to that process. NULL: it does not reach it, or another module talks to it,
 * or there is no memory; a warning was printed where that matters. Any thread. */
regx_endpoint_t *regx_endpoint_new(regx_module_t *module, opal_proc_t *proc);

/* The same to a process that has sent something for which Open MPI wants an endpoint, before it has
 * asked for one itself; if it does, this one is its. */
regx_endpoint_t *regx_endpoint_new_unasked(regx_module_t *module, uint64_t peer);

/* Whether something waits for the peer, which may still read it. A system call if something does.
 */
bool regx_endpoint_has_reader(const regx_endpoint_t *endpoint);

/* Open MPI gives it up: progress deletes it when its peer has read all. Any thread, also inside a
 * receive callback. */
void regx_endpoint_leave(regx_module_t *module, regx_endpoint_t *endpoint);

/* Deletes those that were given up and have no reader, or all. Called by progress, or while it is
 * kept out. */
void regx_endpoints_delete_leaving(regx_module_t *module);
void regx_endpoints_delete_all(regx_module_t *module);

/* The endpoint of that process. NULL: none, or it was given up. In progress, or while that is kept
 * out, or with the module's lock held. */
regx_endpoint_t *regx_endpoint_find(regx_module_t *module, uint64_t peer);

/* Whether fragments wait at this endpoint: what is sent now has to go behind them. */
static inline bool regx_endpoint_is_blocked(const regx_endpoint_t *endpoint)
{
    return atomic_load_explicit(&endpoint->queue, memory_order_relaxed) != NULL;
}

/* Tells the tuner that a message of `length` bytes goes eagerly, or is exposed to be read. */
static inline void regx_endpoint_note(regx_module_t *module, const regx_endpoint_t *endpoint,
                                      size_t length, regx_eager_way_t way)
{
    regx_eager_note(&module->eager, length, way, endpoint->peer.conn->single_copy,
                    atomic_load_explicit(&module->rounds, memory_order_relaxed));
}

/* Whether Open MPI still expects callbacks for this endpoint: it does until the endpoint or the
 * module is being closed. If a process of another job is lost, it hears nothing: ob1 would end this job at any
 * error. */
static inline bool regx_endpoint_expects_callbacks(const regx_module_t *module,
                                                   const regx_endpoint_t *endpoint)
{
    return !module->ending && endpoint->state == REGX_ENDPOINT_OPEN &&
           !(endpoint->apart && endpoint->lost);
}

/* Lost messages and connections: one line to the user, and the job is aborted. Open MPI 4.1 can be
 * notified of them in no other way; it would wait forever. Also the warnings of a job that goes on.
 */

/* `proc`: the process that is lost, of which a job with mpirun --with-ft ulfm is told so that it
 * can go on. NULL: data is wrong or lost, with which no job goes on. At the end of the job Open MPI
 * hears nothing more, and only the line is left. Any thread. */
void regx_module_end_job(regx_module_t *module, opal_proc_t *proc);
/* A message of `size` bytes cannot go on; `direction` is "from" or "to". */
void regx_module_lost(regx_module_t *module, regx_endpoint_t *endpoint, size_t size,
                      const char *direction, const char *why);

/* The transport's events `broken` and `silent`, and the rendezvous' `lost`; the context
 * is the module. */
void regx_lost_connection(void *context, uint64_t peer, bool ended, const char *what);
void regx_no_answer(void *context, uint64_t peer);
void regx_lost_data(void *context, const regx_peer_t *peer, const char *what, bool may_be_longer);

/* ---- address.c ---- */

/* What a process publishes about how it is reached, and which of its modules talks to a peer.
 *
 * Per peer one kind of transport carries all messages: shared memory if the peer is on this node,
 * else the ports of RDMA devices, if one leads there; else regx does not reach it, and Open MPI
 * asks its other BTLs. Open MPI would stripe over all kinds, and expects an answer from the module
 * that asked. Both ends come to the same result, since each decides by what both have published.
 * Several ports are paired, and messages are striped over them on purpose.
 */

/* Publishes how all modules are reached. false: Open MPI refuses. */
bool regx_address_publish(regx_component_t *component);

/* Says, in one process of the job, that no process of another node can be reached, if that is so
 * and is known at the start: no port is open here, and no other BTL may lead there. To be called
 * before addresses are exchanged. */
void regx_address_warn_of_other_nodes(regx_component_t *component);

/* Publishes that this process, which was asked to use regx, does not: others may wait for
 * something. */
void regx_address_publish_none(const regx_component_t *component);

/* Connects the module to that process, if it is the module that talks to it: sets peer->conn;
 * peer->id is set already. false: another module does, or none reaches it. If no module does, and
 * no other BTL of the job may, a warning was printed. Any thread. */
bool regx_address_connect(regx_module_t *module, opal_proc_t *proc, regx_peer_t *peer);

/* ---- registry.c ---- */

/* Which backend keeps registrations valid in this process, and the warnings about it. Called by
 * the thread that initializes or finalizes MPI.
 */

/* Starts the backend, once all transports are open and before the first cache. false: a warning was
 * printed. */
bool regx_backend_start(regx_component_t *component);
/* After the last cache. A backend that was not started is fine. */
void regx_backend_stop(regx_component_t *component);

/* Whether this module keeps registrations. Where registering is free there is no use in that,
 * unless a backend was asked for. */
bool regx_registry_keeps(const regx_module_t *module);

/* Opens one module's cache. false: a warning was printed. */
bool regx_registry_start(regx_module_t *module);
/* A module whose cache was not opened is fine. */
void regx_registry_stop(regx_module_t *module);

/* The pages of that range have changed, or are about to, by regx itself: the caches are notified.
 * For rendezvous/rendezvous.h; `context` is the module. */
void regx_registry_changes(void *context, uintptr_t start, uintptr_t end);

/* Brings the counters up to date with what the caches counted, before they are read. Any thread. */
void regx_registry_count_all(regx_component_t *component);

/* ---- message.c ---- */

/* Eager messages and fragments, sent: Open MPI's calls, with the contract of each
 * (opal/mca/btl/btl.h). What finds no room waits at its endpoint, and goes in order. Any thread.
 */

__typeof__(*(mca_btl_base_module_alloc_fn_t)NULL) regx_btl_alloc;
__typeof__(*(mca_btl_base_module_free_fn_t)NULL) regx_btl_free;
__typeof__(*(mca_btl_base_module_prepare_fn_t)NULL) regx_btl_prepare_src;
__typeof__(*(mca_btl_base_module_send_fn_t)NULL) regx_btl_send;
__typeof__(*(mca_btl_base_module_sendi_fn_t)NULL) regx_btl_sendi;

/* Sends what waits, endpoint by endpoint; returns how many fragments went. From progress only. */
int regx_btl_send_queued(regx_module_t *module);
/* Takes what waits at this endpoint and reports it as unreachable. From progress only. */
void regx_fail_queued(regx_module_t *module, regx_endpoint_t *endpoint);

/* ---- fragment.c ---- */

/* A fragment: what Open MPI fills and sends, and the memory of it.
 *
 * Short data leaves as one frame of the transport, copied. Longer data is packed into a slot of the
 * pool, and the peer reads it there: a zero-copy send, which ends when the peer has read. A
 * fragment that gets no slot has memory of its own, for as much as a frame takes. So a peer that
 * does not read keeps slots, but keeps no thread from sending to another peer; and Open MPI is not
 * refused a descriptor for its control messages.
 *
 * Fragments are kept for the next message. Most are for headers, which are short, or hold what is
 * known of a large message (rdma.c): these are small; of those with memory for a whole frame only a
 * few are kept.
 *
 * Any thread; the module's lock is taken inside.
 */

struct regx_fragment {
    mca_btl_base_descriptor_t base; /* first: a descriptor is its fragment */
    mca_btl_base_segment_t segment;
    regx_endpoint_t *endpoint;
    regx_fragment_t *next; /* among the unused, or in an endpoint's queue */
    regx_zcopy_t zcopy;
    uint32_t slot; /* REGX_SLOT_NONE: the data is in bytes */
    mca_btl_base_tag_t tag;
    regx_fragment_kind_t kind;
    _Alignas(16) uint8_t bytes[]; /* as many as its kind has, and a cache line */
};

/* A fragment of `size` bytes for the endpoint, which belongs to the caller. Its segment begins
 * `skew` bytes behind a cache line's beginning (base/copy.h), or with its slot, if it fills that.
 * If it needs a slot and gets none, the segment is shorter: as long as a frame. NULL: no memory. */
regx_fragment_t *regx_fragment_take(regx_module_t *module, regx_endpoint_t *endpoint, size_t size,
                                    size_t skew);
void regx_fragment_return(regx_module_t *module, regx_fragment_t *fragment);

/* Whether the next `size` bytes of a message of `message` bytes should wait until this very peer
 * has read what was sent: regx_fragment_take would give less than `size`, or they would go slower.
 */
bool regx_fragment_must_wait(const regx_module_t *module, const regx_endpoint_t *endpoint,
                             size_t size, size_t message);

/* Frees those that are kept. */
void regx_fragments_free(regx_module_t *module);

/* ---- rdma.c ---- */

/* Large messages: Open MPI's calls of its put and get protocols (rdma.c says how they become a
 * rendezvous). Any thread. */

__typeof__(*(mca_btl_base_module_register_mem_fn_t)NULL) regx_btl_register_mem;
__typeof__(*(mca_btl_base_module_deregister_mem_fn_t)NULL) regx_btl_deregister_mem;
__typeof__(*(mca_btl_base_module_put_fn_t)NULL) regx_btl_put;
__typeof__(*(mca_btl_base_module_get_fn_t)NULL) regx_btl_get;

/* What Open MPI has of memory that is registered with it. It ships the first REGX_CTS_SIZE bytes to
 * peers, by value: of a receive side its CTS, of what a sender exposes all there is, of a window
 * its name. `kind` tells which: all three have it in that place.
 */
struct mca_btl_base_registration_handle_t {
    union {
        uint8_t bytes[REGX_CTS_SIZE];
        struct {
            uint8_t version;
            uint8_t
                kind; /* REGX_ONESIDED_NAME, REGX_EXPOSURE or REGX_HANDLE_LOCAL; else the path of
                             a CTS */
        };
    };
};

#define REGX_HANDLE_LOCAL 253u /* local memory of a put. Not shipped */

_Static_assert(REGX_PATH_COUNT <= REGX_HANDLE_LOCAL, "a path is no other kind");
_Static_assert(REGX_ONESIDED_NAME_SIZE <= REGX_CTS_SIZE, "a handle has room for a window's name");
_Static_assert(offsetof(regx_cts_t, path) == 1 && offsetof(regx_exposure_t, path) == 1 &&
                   offsetof(regx_onesided_name_t, kind) == 1,
               "where `kind` is");

/* A put, a get or an atomic operation requested by Open MPI, with its completion callback. */
typedef struct regx_call {
    mca_btl_base_module_t *btl;
    regx_endpoint_t *endpoint; /* NULL: some of this process's own memory (osc/rdma) */
    void *local_address;
    size_t size; /* bytes; 0: an atomic operation */
    mca_btl_base_registration_handle_t *local_handle;
    mca_btl_base_rdma_completion_fn_t callback;
    void *context, *data;
} regx_call_t;

/* Calls Open MPI's completion callback. To be called exactly once. */
static inline void regx_call_complete(const regx_call_t *call, int status)
{
    call->callback(call->btl, call->endpoint, call->local_address, call->local_handle,
                   call->context, call->data, status);
}

/* ---- window.c ---- */

/* Windows: the calls of Open MPI's osc/rdma, which puts to, gets from and changes memory that its
 * peers have registered. Any thread.
 *
 * It may call from inside a completion, and there also waits for other operations by calling
 * progress: completions are called after progress has been left.
 */

/* Says in a module's face what it does for windows, and puts its atomic operations there; or that
 * it does nothing, if it may not. Once per module, after the parameters. */
void regx_onesided_declare(mca_btl_base_module_t *face, bool may);

/* Memory that all peers may reach. NULL: no memory, or too many windows. */
mca_btl_base_registration_handle_t *regx_window_register(regx_module_t *module, void *base,
                                                         size_t size);
void regx_window_deregister(regx_module_t *module, mca_btl_base_registration_handle_t *handle);

/* A put or a get, as btl.h has them. OPAL_SUCCESS: the callback tells the end, and may have been
 * called already; OPAL_ERR_OUT_OF_RESOURCE: try again. */
int regx_window_move(const regx_call_t *call, regx_onesided_type_t type, uint64_t remote_address,
                     const mca_btl_base_registration_handle_t *remote_handle);

#endif

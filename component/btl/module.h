/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A module: one open transport, with its pool, cache, rendezvous and peers.
 */
#ifndef REGX_BTL_MODULE_H
#define REGX_BTL_MODULE_H

#include "base/list.h"
#include "base/lock.h"
#include "btl/component.h"
#include "btl/eager.h"
#include "btl/types.h"
#include "compat/compat.h"
#include "onesided/onesided.h"
#include "pool/pool.h"
#include "registration/registration.h"
#include "rendezvous/rendezvous.h"
#include "transport/transport.h"

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
    const regx_trace_t *trace;
    bool threads;
    regx_eager_t eager;

    unsigned place; /* among the component's modules */
    regx_transport_kind_t kind;
    regx_transport_t *transport;
    regx_compat_inbox_t *inbox;
    regx_pool_t pool;
    struct regx_monitor *monitor; /* the component's, or its own; NULL: none */
    regx_registry_t registry;
    regx_rndv_t *rndv;         /* NULL: not started, or closing */
    regx_onesided_t *onesided; /* NULL: closing */
    unsigned rounds;           /* of progress */
    bool ending;               /* Open MPI finalizes: its callbacks are not called any more */
    atomic_bool progressing;   /* one thread is in progress */
    mca_btl_base_module_error_cb_fn_t error; /* ends the job; NULL: not yet, or not any more */

    regx_lock_t lock;                   /* of what follows */
    regx_endpoint_t *_Atomic endpoints; /* all; added under the lock, taken out by progress alone */
    unsigned endpoint_count;
    unsigned endpoints_high; /* most at once */
    unsigned met;            /* endpoints that Open MPI has not asked for */
    regx_link_t blocked;     /* endpoints that have fragments waiting, in the order of asking */
    regx_fragment_t *unused[REGX_FRAGMENT_KINDS];
    unsigned unused_frames; /* how many of REGX_FRAGMENT_FRAME */
    union regx_rdma_record *unused_records;
    unsigned unused_record_count;
    /* Read without the lock. */
    _Atomic unsigned leaving;   /* endpoints that progress is to delete */
    _Atomic unsigned queued;    /* fragments that wait, and peers of whom onesided waits */
    _Atomic unsigned ended;     /* one-sided operations whose completion is to be called */
    _Atomic size_t zcopy_bytes; /* of fragments in the pool that some peer still reads */
};

/* What a module is to be opened with; read by open alone. */
typedef struct regx_module_request {
    const mca_btl_base_module_t *face; /* Open MPI's part, with the inherited parameters */
    regx_transport_kind_t kind;
    const regx_transport_ops_t *ops; /* of that transport */
    const char *device; /* one that `ops->devices` named; NULL: the transport has none */
    const char *if_include, *if_exclude;
    size_t pool_size;
} regx_module_request_t;

/* Opens a module's transport and its pool. REGX_OK: the module is the caller's, to be given to
 * close; otherwise as the transport's open, and `error` has the reason. */
regx_status_t regx_module_open(regx_component_t *component, const regx_module_request_t *request,
                               char *error, size_t error_size, regx_module_t **module);

/* The rest, once the component's backend was started: cache and rendezvous. false: a warning was
 * printed; the module is to be closed. */
bool regx_module_start(regx_module_t *module);

/* Delivers and sends what is ready; returns how many things went on. Any thread; one at a time is
 * let in, the others return at once. */
int regx_module_progress(regx_module_t *module);

/* Keeps progress out for good, and stops calling Open MPI back. No other thread is in MPI any more,
 * or leaves it soon. */
void regx_module_end(regx_module_t *module);

/* For a module that has ended: whether a fragment that Open MPI counts as sent still waits here, or
 * in memory that a peer which is alive has yet to read. */
bool regx_module_has_rest(const regx_module_t *module);
/* Goes on with that. */
void regx_module_send_rest(regx_module_t *module);

/* Disconnects its peers and frees it; also a module that was not started. */
void regx_module_close(regx_module_t *module);

#endif

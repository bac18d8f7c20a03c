/* SPDX-License-Identifier: BSD-3-Clause
 *
 * btl/ is the face that Open MPI sees: it translates between Open MPI's BTL interface and the
 * plain rooms behind. One component per process, and one module for each transport that is open:
 * one with uct, with verbs one for each port that is used. ob1 stripes over modules that reach the
 * same peer, and puts what it matches in order again.
 *
 *   component.c  found, asked for, opened, closed        params*.c   parameters, checked
 *   module.c     opened, progressed, closed              report.c    counters at the end
 *   message.c    eager messages and fragments            rdma.c      landings and sources
 *   registry.c   how registrations stay true             address.c   what is published
 *
 * What modules share: parameters, counters, and the watch that tells of changes of memory. Each
 * has its own pool, cache and rendezvous, since memory is registered with one port's domain; what
 * the user allows the process of pool and cache is divided among them.
 *
 * Threads: register, open, init, add_procs, del_procs, finalize and close are called by one
 * thread at a time. All else may be called by any thread; progress lets in one at a time.
 */
#ifndef REGX_BTL_BTL_H
#define REGX_BTL_BTL_H

#include "compat/compat.h"

#include "base/counters.h"
#include "base/lock.h"
#include "base/trace.h"
#include "btl/params.h"
#include "pool/pool.h"
#include "registration/backend.h"
#include "registration/cache.h"
#include "rendezvous/rendezvous.h"
#include "transport/transport.h"

typedef struct regx_fragment regx_fragment_t;

typedef struct regx_module {
    mca_btl_base_module_t super;
    const regx_params_t *params; /* the component's, as counters */
    regx_counters_t *counters;
    const regx_trace_t *trace;
    unsigned place; /* among the modules as they were opened */
    regx_transport_t *transport;
    regx_pool_t pool;
    regx_watch_t *watch; /* the component's, or its own */
    regx_registry_t registry;
    regx_rndv_t *rndv;
    bool threads;
    unsigned rounds;         /* of progress that delivered something */
    bool gone;               /* Open MPI finalizes: its callbacks are not called any more */
    atomic_bool progressing; /* one thread is in progress */
    regx_lock_t lock;        /* of what follows */
    struct mca_btl_base_endpoint_t *_Atomic endpoints; /* all; only progress takes out */
    _Atomic unsigned leaving;                          /* how many are to be taken out */
    regx_fragment_t *fragments;                        /* to be used again */
    _Atomic unsigned queued;                           /* fragments that wait on their endpoints */
    _Atomic size_t lent; /* bytes of fragments that some peer still reads */
    unsigned peers;      /* most endpoints at once */
    mca_btl_base_module_error_cb_fn_t error;
} regx_module_t;

typedef struct regx_component {
    mca_btl_base_component_t super;
    regx_params_t params;
    regx_counters_t counters;
    regx_trace_t trace;
    regx_backend_choice_t choice; /* .watch: of all caches */
    bool threads;
    atomic_bool told_of_change; /* of a buffer that changed while in use */
    bool ending;                /* the first module was finalized */
    unsigned module_count;
    regx_module_t *modules[REGX_DEVICES_MAX]; /* those that are open */
} regx_component_t;

struct mca_btl_base_endpoint_t {
    regx_peer_t peer; /* first: a peer is its endpoint */
    opal_proc_t *proc;
    struct mca_btl_base_endpoint_t *next, *previous;
    regx_lock_t lock;
    regx_fragment_t *first, *last; /* fragments that found no room, in order */
    atomic_bool waiting;           /* there are some */
    _Atomic size_t lent;           /* bytes of fragments that the peer still reads */
    atomic_bool leaving;           /* Open MPI has given it up */
};

/* Open MPI finds the component by this name. */
__attribute__((visibility("default"))) extern regx_component_t mca_btl_regx_component;
extern mca_btl_base_module_t regx_template; /* what every module begins as */

/* Says one line of what may be wrong on this node alone, once on each. */
void regx_say_of_node(const char *line);

/* beside.c: says, once, which other BTL keeps Open MPI from a rendezvous by this one. All are open,
 * and it is asked where this process has a peer on its node. */
void regx_say_what_hinders(const mca_btl_base_module_t *btl);

/* message.c, fragment.c */
mca_btl_base_descriptor_t *regx_alloc(mca_btl_base_module_t *btl,
                                      struct mca_btl_base_endpoint_t *endpoint, uint8_t order,
                                      size_t size, uint32_t flags);
int regx_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *descriptor);
mca_btl_base_descriptor_t *regx_prepare_src(mca_btl_base_module_t *btl,
                                            struct mca_btl_base_endpoint_t *endpoint,
                                            struct opal_convertor_t *convertor, uint8_t order,
                                            size_t reserve, size_t *size, uint32_t flags);
int regx_send(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
              mca_btl_base_descriptor_t *descriptor, mca_btl_base_tag_t tag);
int regx_sendi(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
               struct opal_convertor_t *convertor, void *header, size_t header_size,
               size_t payload_size, uint8_t order, uint32_t flags, mca_btl_base_tag_t tag,
               mca_btl_base_descriptor_t **descriptor);
/* Whether Open MPI still wants to hear of what happens at this endpoint. */
bool regx_is_heard(const regx_module_t *module, const struct mca_btl_base_endpoint_t *endpoint);
/* Sends what waits; returns how many fragments went. */
int regx_send_queued(regx_module_t *module);
void regx_fail_queued(regx_module_t *module, struct mca_btl_base_endpoint_t *endpoint);
void regx_fragments_free(regx_module_t *module);

/* rdma.c */
mca_btl_base_registration_handle_t *regx_register_mem(mca_btl_base_module_t *btl,
                                                      struct mca_btl_base_endpoint_t *endpoint,
                                                      void *base, size_t size, uint32_t flags);
int regx_deregister_mem(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *handle);
int regx_put(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
             void *local_address, uint64_t remote_address,
             mca_btl_base_registration_handle_t *local_handle,
             mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
             mca_btl_base_rdma_completion_fn_t callback, void *context, void *data);

/* address.c: publishes how all modules are reached, and connects one of them to the process that
 * published the like. false: it does not reach it; said so, if no module does. */
bool regx_address_publish(const regx_component_t *component);
bool regx_address_connect(regx_module_t *module, opal_proc_t *proc, regx_peer_t *peer);

/* module.c. A module of that device (NULL: the transport's only one), with `share` of what the
 * process may have for a pool: transport and pool are opened; `error` says why not. */
regx_status_t regx_module_open(regx_component_t *component, const regx_transport_ops_t *ops,
                               const char *device, unsigned share, char *error, size_t error_size,
                               regx_module_t **module);
/* The rest, once the backend was started. false: said why; to be closed. */
bool regx_module_start(regx_module_t *module);
/* Takes it out of the component's, and frees it; also a module that was not started. */
void regx_module_close(regx_module_t *module);
int regx_module_finalize(mca_btl_base_module_t *btl);
/* A message of `size` bytes, `way` being "from" or "to", cannot go on. Open MPI would wait for it
 * for ever; so the job ends. */
void regx_module_lost(regx_module_t *module, struct mca_btl_base_endpoint_t *endpoint, size_t size,
                      const char *way, const char *why);
int regx_progress(void);

/* registry.c. start: once transports are open, before the first cache. false: said why. stop: after
 * the last cache. */
bool regx_backend_start(regx_component_t *component);
void regx_backend_stop(regx_component_t *component);
/* One module's cache. false: said why. */
bool regx_registry_start(regx_module_t *module);
void regx_registry_stop(regx_module_t *module);

/* report.c: writes the report that the user asked for, if any. */
void regx_report(regx_component_t *component);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An endpoint: one peer, as one module reaches it.
 *
 * Open MPI asks for it by add_procs, keeps the pointer and gives it up by del_procs. From then on
 * none of its callbacks are called for this endpoint, and progress deletes it.
 */
#ifndef REGX_BTL_ENDPOINT_H
#define REGX_BTL_ENDPOINT_H

#include "base/list.h"
#include "btl/module.h"
#include "btl/types.h"

typedef enum regx_endpoint_state {
    REGX_ENDPOINT_OPEN,
    REGX_ENDPOINT_LEAVING /* Open MPI has given it up */
} regx_endpoint_state_t;

struct mca_btl_base_endpoint_t {
    regx_peer_t peer; /* first: a peer is its endpoint */
    regx_onesided_peer_t onesided;
    opal_proc_t *proc;
    regx_endpoint_t *next, *previous; /* in module->endpoints */
    _Atomic regx_endpoint_state_t state;
    bool met;  /* Open MPI has not asked for it yet; under the module's lock */
    bool lost; /* the transport has reported it; in progress */
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
regx_endpoint_t *regx_endpoint_meet(regx_module_t *module, uint64_t peer);

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

/* The endpoint of that process. NULL: none, or it was given up. */
regx_endpoint_t *regx_endpoint_find(regx_module_t *module, uint64_t peer);

/* Whether fragments wait at this endpoint: what is sent now has to go behind them. */
static inline bool regx_endpoint_is_blocked(const regx_endpoint_t *endpoint)
{
    return atomic_load_explicit(&endpoint->queue, memory_order_relaxed) != NULL;
}

/* Whether Open MPI still expects callbacks for this endpoint: it does until the endpoint or the
 * module is being closed. */
static inline bool regx_endpoint_expects_callbacks(const regx_module_t *module,
                                                   const regx_endpoint_t *endpoint)
{
    return !module->ending && endpoint->state == REGX_ENDPOINT_OPEN;
}

#endif

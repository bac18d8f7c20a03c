/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The component: one per process, and what its modules share.
 *
 * btl/ is the face that Open MPI sees. It translates between Open MPI's BTL interface and the plain
 * rooms behind. There is one module for each transport that is open; of one that has devices, for
 * each port of them that is used. ob1 stripes over modules that reach the same peer, and puts what
 * it matches in order again.
 *
 *   - component.c: asked for, opened, progressed, closed; transports.c: which transports are opened
 *   - module.c: one transport, opened, progressed, closed; endpoint.c: one peer of a module
 *   - message.c: eager messages and fragments; rdma.c: large messages
 *   - address.c: what is published, and which module talks to a peer
 *   - registry.c: how registrations stay true
 *   - params*.c: parameters, checked; verbose.c: the trace
 *   - report.c: counters at the end; variables.c: counters for tools, at any time
 *
 * Modules share parameters, counters and the memory monitor. Each has its own pool, cache and
 * rendezvous, since memory is registered with one port's domain; what the user allows the process
 * of pool and cache is divided among them.
 *
 * Threads: register, open, init, add_procs, del_procs, finalize and close are called by one
 * thread at a time. All else may be called by any thread; progress lets in one at a time. A tool's
 * thread reads counters at any time, also while MPI_Finalize closes modules.
 */
#ifndef REGX_BTL_COMPONENT_H
#define REGX_BTL_COMPONENT_H

#include <pthread.h>

#include "base/counters.h"
#include "base/trace.h"
#include "btl/params.h"
#include "btl/types.h"
#include "compat/compat.h"
#include "registration/registration.h"
#include "transport/transport.h"

/* One for the node, and the ports. */
#define REGX_MODULES_MAX (1 + REGX_DEVICES_MAX)

struct regx_component {
    mca_btl_base_component_t super;
    regx_params_t params;
    regx_counters_t counters;
    regx_trace_t trace;
    regx_backend_choice_t choice; /* its monitor is of all caches */
    regx_drain_t *drain;          /* btl_regx_inuse=drain; else NULL */
    char transport_reason[256];   /* why these transports; for the report */
    bool threads;
    bool far_unreachable;         /* no process of another node is reached, and that was said */
    atomic_bool said_unreachable; /* of another process */
    bool windows;                 /* offers Open MPI what it wants for windows */
    atomic_bool warned_of_change; /* of a buffer that changed while in use */
    bool ending;                  /* the first module is being finalized */
    unsigned module_count;
    regx_module_t *modules[REGX_MODULES_MAX]; /* those that are open */
    pthread_mutex_t closing; /* taken to close one, and to read what the caches count */
};

#endif

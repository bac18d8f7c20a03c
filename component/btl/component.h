/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The component: one per process, and what its modules share.
 *
 * btl/ is the face that Open MPI sees. It translates between Open MPI's BTL interface and the plain
 * layers behind. There is one module for each transport that is open; of one that has devices, for
 * each port of them that is used. ob1 stripes over modules that reach the same peer, and puts what
 * it matches in order again.
 *
 *   - component.c: asked for, opened, progressed, closed; transports.c: which transports are opened
 *   - module.c: one transport, opened, progressed, closed; endpoint.c: one peer of a module
 *   - message.c: eager messages and fragments; fragment.c: their memory; rdma.c: large messages
 *   - window.c: what osc/rdma asks for
 *   - address.c: what is published, and which module talks to a peer
 *   - registry.c: which backend runs, and each module's cache
 *   - coexistence.c: other components of Open MPI beside this one
 *   - params.c: parameters, checked; settings.c: the tables of all layers' parameters
 *   - report.c: the trace, counters at the end, and for tools at any time
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

#include "btl/settings.h"
#include "compat/compat.h"
#include "opal/mca/base/mca_base_var.h"

/* ---- params.c ---- */

/* The parameters btl_regx_* as Open MPI has them: all are strings for it, so that regx can check
 * them itself. Their tables are the layers' (settings.h). */

/* What the user asked for, checked, and what follows from it. */
typedef struct regx_params {
    regx_settings_t settings; /* no "auto" in pool_size, cache_bytes and once_bytes */
    const regx_strategy_t *strategy;
    bool leave_pinned;   /* false: the backend is none, because Open MPI was set so */
    bool pool_given;     /* the user gave pool_size: for all transports of auto together */
    size_t pool_wanted;  /* the pool's size if the limit of locked memory were none */
    bool rts_contiguous; /* rndv_eager_limit is of contiguous data, too */
} regx_params_t;

/* Registers all with Open MPI. */
void regx_params_register(const mca_base_component_t *component);

/* Whether the btl list names regx; and whether the user wants it, by that or by enabling it. */
bool regx_params_named(void);
bool regx_params_asked(void);

/* Reads and checks all, also what Open MPI registered for `btl`. false: a warning with the reason
 * was printed. */
bool regx_params_read(regx_params_t *params, mca_btl_base_module_t *btl);

/* Prints why something that was asked for is refused: by the process that prints for the application,
 * where it has the same to say; else by the first process of a node; where that has not either, by each
 * that has. Before addresses are exchanged. Returns false. */
bool regx_params_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints a line for each name of ours that the environment or a file of parameters has and nobody
 * registered; by the process that prints for the application, unless the job's first one does. Once
 * all are registered. */
void regx_params_warn_of_unknown(void);

/* A value that Open MPI keeps, and where it is from; NULL if there is none. */
const void *regx_param_stored(const char *project, const char *framework, const char *component,
                              const char *variable, mca_base_var_source_t *source);
/* Whether the user has set one of btl_regx_*. */
bool regx_param_given(const char *name);

/* What regx.conf says of each, which is made into params_text.c; the last has no name. */
typedef struct regx_param_text {
    const char *name, *initial, *help;
} regx_param_text_t;

extern const regx_param_text_t regx_param_texts[];

/* ---- the component ---- */

typedef struct regx_component regx_component_t;
typedef struct regx_module regx_module_t;               /* module.h */
typedef struct mca_btl_base_endpoint_t regx_endpoint_t; /* module.h; Open MPI's name for it */
typedef struct regx_fragment regx_fragment_t;           /* module.h */

/* One for the node, and the ports. */
#define REGX_MODULES_MAX (1 + REGX_DEVICES_MAX)

struct regx_component {
    mca_btl_base_component_t super;
    /* What every module begins as, with the inherited parameters. */
    const mca_btl_base_module_t *face;
    regx_params_t params;
    regx_counters_t counters;
    regx_flow_t flows[REGX_FLOWS]; /* by regx_transport_kind_t */
    regx_trace_t trace;
    regx_backend_choice_t choice;  /* its monitor is of all caches */
    regx_drain_t *drain;           /* btl_regx_inuse=drain; else NULL */
    regx_owned_t owned;            /* what MPI_Alloc_mem gave */
    char transports[64];           /* those that are open, each once, with commas between them */
    regx_error_t transport_reason; /* why these */
    bool threads;
    bool far_unreachable;         /* no process of another node is reached: a rank has said so */
    atomic_bool said_unreachable; /* this process has named one that it cannot reach, */
    atomic_bool said_unfit;       /* or that is set otherwise */
    bool windows;                 /* offers Open MPI what it wants for windows */
    atomic_bool warned_of_change; /* of a buffer that changed while in use */
    bool ending;                  /* the first module is being finalized */
    unsigned module_count;
    unsigned ports;                           /* modules that were opened for a port of a device */
    regx_module_t *modules[REGX_MODULES_MAX]; /* those that are open */
    pthread_mutex_t closing; /* to list one, open its cache or close it; to read counts */
};

/* ---- transports.c ---- */

/* Which transports this process opens, and what each gets of the pool.
 *
 * btl_regx_transport names one, or is auto: then that of the node is opened, and beside it that
 * between nodes, if the job has processes on other nodes and a device is usable. Why it is not is
 * traced and in the report only; a setting that is wrong is shown to the user in any case. Who
 * talks to whom by what is in address.c.
 */

/* Opens the modules; sets transports and transport_reason. false: a warning
 * was printed; some modules may be open. */
bool regx_transports_open(regx_component_t *component);

/* ---- coexistence.c ---- */

/* Other BTLs beside regx. To one of higher exclusivity regx leaves the peers that both reach. But
 * if regx had puts, gets and atomics, Open MPI would still count it in and call its progress first;
 * and osc/rdma might take it for windows. So it then offers no atomics.
 *
 * One of lower exclusivity carries no message of a peer that regx has, but if it has puts, gets
 * and atomics Open MPI still counts it in, for one-sided communication (bml/r2): it takes the
 * largest of their min_rdma_pipeline_size for the size from which a message goes by rendezvous,
 * and that of 4.1's vader is larger than any message. All would go in fragments.
 */

/* Whether regx is to have windows: no BTL of the job but self has a higher exclusivity, and
 * osc/rdma would use it; or the user has set btl_regx_flags, which then say all that there is. The
 * BTLs of a job need not be the same on all its nodes (vader is not used by a process that is alone
 * on its node), but the answer has to be: so those count that may be used, with what the parameters
 * say of them. To be called when the component is opened: later, Open MPI has dropped some. */
bool regx_may_have_windows(const mca_btl_base_module_t *btl);

/* Whether the job has a BTL beside this that may lead to a process of this node, or of another. */
bool regx_other_btl_leads(bool same_node);

/* Warns the user, once, which other BTL keeps Open MPI from a rendezvous by this one. To be called
 * once all BTLs are open, where this process has a peer on its node. */
void regx_warn_of_other_btls(const mca_btl_base_module_t *btl);

/* MPI_Alloc_mem. Open MPI asks the components of its framework mpool for memory, and takes that of
 * the highest priority; if there is none it calls malloc. A component of mpool in a file of its own
 * and this BTL would have to find each other. So regx adds one to the framework's list while its
 * modules are open. It gives memory of a transport that has some (regx_transport_ops_t.node), for
 * neighbours to map; and where there are none, but a device that pins, memory that it maps. A device
 * registers either once, for its life (registration/registry.h). A call with hints (the key
 * mpool_hints of its info) is left to the others.
 *
 * In Open MPI 4.1, 5.0 and 6.0 MPI_Win_allocate does not ask mpool: osc/rdma and osc/sm put a
 * window that lies on one node into a shared file of their own.
 *
 * Adding and taking out are for the thread that runs MPI_Init or MPI_Finalize.
 */

/* From now on MPI_Alloc_mem gives such memory, if it is of use to a neighbour or a device. Has no
 * effect if it does so already. Not before every other BTL has chosen its memory pools. */
void regx_alloc_mem_start(regx_component_t *component);

/* Takes it back; before that transport closes. */
void regx_alloc_mem_stop(void);

/* ---- report.c: what regx tells of itself ---- */

/* The trace (base/trace.h) goes to Open MPI's verbose stream of the btl framework. */

/* Traces what this process uses, once all of its modules have started. */
void regx_verbose_choice(const regx_component_t *component);

/* Writes the report, and prints what explains the job, if the user asked for them. While the modules
 * are still open. */
void regx_report(regx_component_t *component);

/* Each counter as a performance variable of MPI_T: btl_regx_NAME, by the report's names. A tool can
 * find them from MPI_T_init_thread on, before MPI_Init as well. They are gone when Open MPI closes
 * the component, in MPI_Finalize; until then any thread may read them. (MPI 4.0, 15.3.7.)
 *
 * Once per opening of the component, when its parameters are registered and the job asks for it. A
 * variable that Open MPI has no memory for is left out. */
void regx_variables_register(regx_component_t *component);

#endif

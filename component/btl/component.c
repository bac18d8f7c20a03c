/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "opal/class/opal_bitmap.h"
#include "opal/runtime/opal.h"

#include "base/fault.h"
#include "base/memlock.h"
#include "btl/module.h"

/* Open MPI finds the component by this name. */
__attribute__((visibility("default"))) extern regx_component_t mca_btl_regx_component;

static mca_btl_base_module_t face;

/* What a component sees of Open MPI is the same within a series such as 4.1, and no longer. */
static bool is_of_series(void)
{
    const char *minor = strchr(REGX_BUILT_FOR_OPENMPI, '.') + 1;
    const size_t series = (size_t)(minor - REGX_BUILT_FOR_OPENMPI) + strcspn(minor, ".") + 1;

    return strncmp(opal_version_string, REGX_BUILT_FOR_OPENMPI, series) == 0;
}

/* Refusing here would drop regx from the list before Open MPI looks for who is named in it, and end
 * the job: the refusal is open's. */
static int component_register(void)
{
    if (!is_of_series()) {
        return OPAL_SUCCESS;
    }
    regx_params_register(&mca_btl_regx_component.super.btl_version);
    mca_btl_base_param_register(&mca_btl_regx_component.super.btl_version, &face);
    if (regx_params_asked()) {
        regx_variables_register(&mca_btl_regx_component);
    }
    return OPAL_SUCCESS;
}

/* Open MPI's loader checks too little: a component built for another series crashes later. Here
 * already it may have other structures, so this asks it for little: not for the node. */
static int component_open(void)
{
    if (is_of_series()) {
        mca_btl_regx_component.windows = regx_may_have_windows(&face);
        return OPAL_SUCCESS;
    }
    if (regx_params_asked() && regx_compat_prints()) {
        regx_compat_output(
            "built for Open MPI %s, but this is Open MPI %s: not used; build it for this one",
            REGX_BUILT_FOR_OPENMPI, opal_version_string);
    }
    return OPAL_ERR_NOT_AVAILABLE;
}

/* A job that names regx wants it to carry its messages; another PML would leave it idle in
 * silence. */
static int component_close(void)
{
    const char *pml = regx_compat_pml();

    if (regx_params_named() && regx_params_asked() && pml[0] != '\0' && strcmp(pml, "ob1") != 0 &&
        regx_compat_rank() == 0) {
        regx_compat_output("named in btl, but pml \"%s\" carries this job; add --mca pml ob1", pml);
    }
    return OPAL_SUCCESS;
}

static void close_module(regx_component_t *component, regx_module_t *module)
{
    unsigned i = 0;

    pthread_mutex_lock(&component->closing);
    while (component->modules[i] != module) {
        i++;
    }
    component->module_count--;
    memmove(&component->modules[i], &component->modules[i + 1],
            (component->module_count - i) * sizeof(component->modules[0]));
    pthread_mutex_unlock(&component->closing);
    regx_module_close(module);
}

/* A child may go on with MPI while its parent only waits: as long as both live, peers cannot tell
 * them apart. */
static void note_fork(void)
{
    const regx_component_t *component = &mca_btl_regx_component;

    for (unsigned i = 0; i < component->module_count; i++) {
        component->modules[i]->transport->forked = true;
    }
}

/* What registrations may lock is less than the pool, a message's chunks and what the transport has
 * locked for itself: the pool may be smaller than it was to be, and some messages bounce. */
static void warn_if_limited(const regx_component_t *component)
{
    const regx_params_t *params = &component->params;
    const uint64_t limit = regx_memlock_limit();
    uint64_t pool = 0; /* bytes of the pools that are registered with a device */

    for (unsigned i = 0; i < component->module_count; i++) {
        const regx_transport_t *transport = component->modules[i]->transport;

        pool += transport->registers ? transport->pool_size : 0;
    }
    if (pool == 0 || limit == REGX_MEMLOCK_NONE || !regx_compat_prints()) {
        return;
    }
    const uint64_t pinned = regx_memlock_pinned();
    const uint64_t wanted =
        (pinned > pool ? pinned - pool : 0) +
        (params->pool_wanted > params->settings.pool.pool_size ? params->pool_wanted : pool) +
        (uint64_t)params->settings.rendezvous.chunk_size * params->settings.rendezvous.chunk_depth;
    if (limit < wanted) {
        regx_compat_output(
            "btl_regx_transport=%s: the limit of locked memory (ulimit -l) is %" PRIu64
            " KiB, and %" PRIu64 " KiB are wanted for pool, buffers and btl_regx_chunk_depth "
            "chunks; messages that find no room are copied through the pool; " REGX_MEMLOCK_REMEDY,
            params->settings.component.transport, limit / 1024, wanted / 1024);
    }
}

/* Open MPI's flag for progress threads is ignored: 4.1 always sets it. */
static mca_btl_base_module_t **component_init(int *count, bool progress_threads, bool mpi_threads)
{
    regx_component_t *component = &mca_btl_regx_component;
    mca_btl_base_module_t **modules;
    bool drains;

    (void)progress_threads;
    *count = 0;
    component->trace = (regx_trace_t){.level = regx_compat_verbose(), .write = regx_compat_trace};
    if (!regx_params_asked()) {
        regx_trace(&component->trace, REGX_TRACE_CHOICE,
                   "not used: neither named in btl nor enabled by btl_regx_enable");
        return NULL;
    }
    component->face = &face;
    regx_params_warn_of_unknown();
    if (!regx_params_read(&component->params, &face)) {
        goto unusable;
    }
    memset(&component->counters, 0, sizeof(component->counters));
    memset(component->flows, 0, sizeof(component->flows));
    /* Whether several threads may call. Of those of MPI_Session_init (5.0), and of Open MPI's own
     * progress thread, only opal_using_threads tells. Also where a call that changes memory in use is to
     * wait, since then another one goes on with transfers (registration/monitor/monitor.h). */
    drains = component->params.settings.registration.inuse == REGX_INUSE_DRAIN;
    if (drains) {
        opal_set_using_threads(true); /* whatever the program asked for */
    }
    component->threads = drains || mpi_threads || opal_using_threads();
    component->counters.threads = component->threads;
    component->warned_of_change = component->said_unreachable = component->said_unfit = false;
    component->ending = false;
    pthread_atfork(NULL, NULL, note_fork);
    if (!regx_transports_open(component) || !regx_backend_start(component)) {
        goto close;
    }
    for (unsigned i = 0; i < component->module_count; i++) {
        if (!regx_module_start(component->modules[i])) {
            goto close;
        }
    }
    if (!regx_address_publish(component)) {
        regx_compat_output("cannot publish its address");
        goto close;
    }
    if (regx_compat_takes_ob1()) { /* else another PML may be chosen, and use no BTL */
        regx_address_warn_of_other_nodes(component);
    }
    modules = calloc(component->module_count, sizeof(*modules));
    if (modules == NULL) {
        goto close;
    }
    regx_verbose_choice(component);
    warn_if_limited(component);
    for (unsigned i = 0; i < component->module_count; i++) {
        modules[i] = &component->modules[i]->super;
    }
    *count = (int)component->module_count;
    return modules;

close:
    while (component->module_count > 0) {
        close_module(component, component->modules[component->module_count - 1]);
    }
    regx_backend_stop(component);
unusable:
    regx_address_publish_none(component);
    return NULL;
}

static __attribute__((noinline)) int progress_several(void)
{
    const regx_component_t *component = &mca_btl_regx_component;
    int events = 0;

    for (unsigned i = 0; i < component->module_count; i++) {
        events += regx_module_progress(component->modules[i]);
    }
    return events;
}

/* Only a process that uses ports of RDMA devices may have more than one module. */
static int component_progress(void)
{
    const regx_component_t *component = &mca_btl_regx_component;

    return component->module_count == 1 ? regx_module_progress(component->modules[0])
                                        : progress_several();
}

/* Called at the start with all processes of the node, later with one at a time, also from inside
 * a receive callback; `reachable` is then NULL. Answers success even if no process can be reached:
 * otherwise Open MPI would never progress this component. */
static int add_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                     regx_endpoint_t **endpoints, opal_bitmap_t *reachable)
{
    regx_module_t *module = regx_module_of(btl);

    regx_alloc_mem_start(module->component);
    if (reachable != NULL) {
        regx_fault_note_reporters();
    }
    if (reachable != NULL && count > 1) {
        regx_warn_of_other_btls(btl);
    }
    for (size_t i = 0; i < count; i++) {
        endpoints[i] = regx_endpoint_new(module, procs[i]);
        if (endpoints[i] != NULL && reachable != NULL) {
            opal_bitmap_set_bit(reachable, (int)i);
        }
    }
    return OPAL_SUCCESS;
}

/* May be called from inside a receive callback, or under a lock that a receive callback on another
 * thread waits for: progress deletes the endpoints, later. */
static int del_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                     regx_endpoint_t **endpoints)
{
    regx_module_t *module = regx_module_of(btl);

    (void)procs;
    for (size_t i = 0; i < count; i++) {
        if (endpoints[i] != NULL) {
            regx_endpoint_leave(module, endpoints[i]);
        }
    }
    return OPAL_SUCCESS;
}

static int register_error(mca_btl_base_module_t *btl, mca_btl_base_module_error_cb_fn_t callback)
{
    regx_module_of(btl)->error = callback;
    return OPAL_SUCCESS;
}

/* Once, before the first module is finalized. */
static void end_all(regx_component_t *component)
{
    const struct timespec pause = {.tv_nsec = 50000};
    bool more = true;

    component->ending = true;
    if (component->drain != NULL) { /* its thread calls progress, of modules that are to go */
        regx_drain_stop(component->drain);
    }
    regx_alloc_mem_stop();
    for (unsigned i = 0; i < component->module_count; i++) {
        regx_module_end(component->modules[i]);
    }
    /* Sends what Open MPI counts as sent. By all modules at once: a peer that waits for this process at
     * one may be waited for at another. */
    while (more) {
        more = false;
        for (unsigned i = 0; i < component->module_count; i++) {
            more |= regx_module_send_rest(component->modules[i]);
        }
        if (more) {
            nanosleep(&pause, NULL); /* a peer may need this core to read */
        }
    }
    regx_report(component);
}

static int module_finalize(mca_btl_base_module_t *btl)
{
    regx_component_t *component = &mca_btl_regx_component;

    if (!component->ending) {
        end_all(component);
    }
    close_module(component, regx_module_of(btl));
    if (component->module_count == 0) {
        regx_backend_stop(component);
    }
    return OPAL_SUCCESS;
}

/* ---- what Open MPI gets ---- */

/* What every module begins as: the functions that Open MPI calls, and what it registers as
 * parameters of every BTL. The values are what measured best on shared memory. rndv_eager_limit is
 * not of contiguous data, unless the user asks for it: the base of a rendezvous is where the user's
 * buffer begins. */
static mca_btl_base_module_t face = {
    .btl_component = &mca_btl_regx_component.super,
    .btl_eager_limit = REGX_EAGER_MAX, /* 32 KiB with Open MPI's header */
    .btl_rndv_eager_limit = 4096,
    .btl_max_send_size = 65536,
    .btl_rdma_pipeline_send_length = 0,
    .btl_rdma_pipeline_frag_size = SIZE_MAX,
    .btl_min_rdma_pipeline_size = 0,
    .btl_exclusivity = MCA_BTL_EXCLUSIVITY_DEFAULT,
    .btl_latency = 1,
    .btl_bandwidth = 100000,
    .btl_flags = MCA_BTL_FLAGS_SEND | MCA_BTL_FLAGS_RDMA | MCA_BTL_FLAGS_ATOMIC_FOPS,
    .btl_registration_handle_size = REGX_CTS_SIZE,
    .btl_put_limit = SIZE_MAX,
    .btl_get_limit = SIZE_MAX,
    .btl_add_procs = add_procs,
    .btl_del_procs = del_procs,
    .btl_finalize = module_finalize,
    .btl_alloc = regx_btl_alloc,
    .btl_free = regx_btl_free,
    .btl_prepare_src = regx_btl_prepare_src,
    .btl_send = regx_btl_send,
    .btl_sendi = regx_btl_sendi,
    .btl_put = regx_btl_put,
    .btl_get = regx_btl_get,
    .btl_register_mem = regx_btl_register_mem,
    .btl_deregister_mem = regx_btl_deregister_mem,
    .btl_register_error = register_error,
    .btl_dump = mca_btl_base_dump};

regx_component_t mca_btl_regx_component = {
    .super = {.btl_version = {MCA_BTL_DEFAULT_VERSION("regx"), .mca_open_component = component_open,
                              .mca_close_component = component_close,
                              .mca_register_component_params = component_register},
              .btl_data = {.param_field = MCA_BASE_METADATA_PARAM_NONE},
              .btl_init = component_init,
              .btl_progress = component_progress},
    .closing = PTHREAD_MUTEX_INITIALIZER};

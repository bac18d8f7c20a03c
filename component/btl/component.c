/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "btl/btl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memlock.h"
#include "transport/load.h"

static int component_register(void);
static int component_open(void);
static int component_close(void);
static mca_btl_base_module_t **component_init(int *count, bool progress_threads, bool mpi_threads);

regx_component_t mca_btl_regx_component = {
    .super = {.btl_version = {MCA_BTL_DEFAULT_VERSION("regx"), .mca_open_component = component_open,
                              .mca_close_component = component_close,
                              .mca_register_component_params = component_register},
              .btl_data = {.param_field = MCA_BASE_METADATA_PARAM_NONE},
              .btl_init = component_init,
              .btl_progress = regx_progress}};

/* What a component sees of Open MPI is the same within a series such as 4.1, and no longer. */
static bool is_of_series(void)
{
    const char *minor = strchr(REGX_BUILT_FOR_OPENMPI, '.') + 1;
    const size_t series = (size_t)(minor - REGX_BUILT_FOR_OPENMPI) + strcspn(minor, ".") + 1;

    return strncmp(regx_compat_version(), REGX_BUILT_FOR_OPENMPI, series) == 0;
}

/* Open MPI's loader checks too little: a component built for another series crashes later. Here
 * already it may have other structures, so this asks it for little: not for the node. */
static bool version_matches(void)
{
    char line[160];
    bool named;

    if (is_of_series()) {
        return true;
    }
    if (regx_params_asked(&named) && regx_compat_speaker()) {
        snprintf(line, sizeof(line),
                 "built for Open MPI %s, but this is Open MPI %s: not used; build it for this one",
                 REGX_BUILT_FOR_OPENMPI, regx_compat_version());
        regx_compat_say(line);
    }
    return false;
}

/* Refusing here would drop regx from the list before Open MPI looks for who is named in it, and end
 * the job: the refusal is open's. */
static int component_register(void)
{
    if (!is_of_series()) {
        return OPAL_SUCCESS;
    }
    regx_params_register(&mca_btl_regx_component.super.btl_version);
    mca_btl_base_param_register(&mca_btl_regx_component.super.btl_version, &regx_template);
    return OPAL_SUCCESS;
}

static int component_open(void)
{
    return version_matches() ? OPAL_SUCCESS : OPAL_ERR_NOT_AVAILABLE;
}

/* Whoever names regx wants it to carry the job; another PML would leave it idle in silence. */
static void say_if_idle(void)
{
    const char *pml = regx_compat_pml();
    char line[160];
    bool named;

    if (regx_params_asked(&named) && named && pml[0] != '\0' && strcmp(pml, "ob1") != 0 &&
        regx_compat_rank() == 0) {
        snprintf(line, sizeof(line),
                 "named in btl, but pml \"%s\" carries this job; add --mca pml ob1", pml);
        regx_compat_say(line);
    }
}

static int component_close(void)
{
    say_if_idle();
    return OPAL_SUCCESS;
}

void regx_say_of_node(const char *line)
{
    char with_host[4608]; /* room for a line that names a file */

    if (regx_compat_speaker()) {
        regx_compat_say(line);
    } else if (regx_compat_node_speaker()) {
        snprintf(with_host, sizeof(with_host), "%s, on %s", line, regx_compat_host());
        regx_compat_say(with_host);
    }
}

/* Why a transport is not used, or one device of several. */
static void say_refused(regx_status_t status, const char *error, bool others)
{
    char line[448];

    if (status == REGX_INVALID) { /* the error begins with the name of a parameter */
        snprintf(line, sizeof(line), "btl_regx_%s", error);
    } else {
        snprintf(line, sizeof(line), "btl_regx_transport=%s: %s%s",
                 mca_btl_regx_component.params.settings.component.transport, error,
                 others ? "; the other ports are used without it" : "");
    }
    regx_say_of_node(line);
}

static void start_trace(regx_component_t *component)
{
    component->trace = (regx_trace_t){.level = regx_compat_verbose(), .write = regx_compat_trace};
}

static void trace_backend(const regx_component_t *component)
{
    const regx_backend_choice_t *choice = &component->choice;
    const regx_registration_settings_t *settings = &component->params.settings.registration;

    if (choice->backend->start == NULL) {
        regx_trace(&component->trace, REGX_TRACE_CHOICE, "backend %s (%s), keeping nothing",
                   choice->backend->name, choice->reason);
    } else {
        regx_trace(
            &component->trace, REGX_TRACE_CHOICE,
            "backend %s (%s), keeping at most %" PRIu64 " bytes in %" PRIu64 " registrations",
            choice->backend->name, choice->reason, settings->cache_bytes, settings->cache_count);
    }
}

/* What this process uses, once all of it is known. */
static void trace_choice(const regx_component_t *component)
{
    const regx_params_t *params = &component->params;
    const regx_trace_t *trace = &component->trace;
    const uint64_t limit = regx_memlock_limit();

    if (!regx_traces(trace, REGX_TRACE_CHOICE)) {
        return;
    }
    regx_trace(trace, REGX_TRACE_CHOICE, "regx %s, built for Open MPI %s, rank %u on %s%s",
               REGX_VERSION, REGX_BUILT_FOR_OPENMPI, regx_compat_rank(), regx_compat_host(),
               component->threads ? ", with threads" : "");
    for (unsigned i = 0; i < component->module_count; i++) {
        const regx_module_t *module = component->modules[i];

        regx_trace(trace, REGX_TRACE_CHOICE,
                   "transport %s (%s): %s, pool of %zu bytes, registering memory %s",
                   module->transport->ops->name, params->transport_reason, module->transport->wires,
                   module->transport->pool_size,
                   module->transport->registers ? "pins it" : "is free");
    }
    regx_trace(trace, REGX_TRACE_CHOICE, "rendezvous %s, chunks of %zu bytes, %u at once%s",
               regx_strategy_name(params->strategy), params->settings.rendezvous.chunk_size,
               params->settings.rendezvous.chunk_depth,
               params->settings.rendezvous.verify ? ", verified" : "");
    trace_backend(component);
    if (limit == REGX_MEMLOCK_NONE) {
        regx_trace(trace, REGX_TRACE_CHOICE,
                   "%" PRIu64 " bytes of the pool are locked; there is no limit of locked memory",
                   component->counters.pool_pinned_bytes);
    } else {
        regx_trace(trace, REGX_TRACE_CHOICE,
                   "%" PRIu64
                   " bytes of the pool are locked; the limit of locked memory is %" PRIu64 " bytes",
                   component->counters.pool_pinned_bytes, limit);
    }
}

static regx_status_t list_devices(const regx_component_t *component,
                                  const regx_transport_ops_t *ops, char *error, size_t error_size,
                                  regx_device_name_t names[REGX_DEVICES_MAX], size_t *count)
{
    const regx_transport_config_t config = {
        .if_include = component->params.settings.transport.if_include,
        .if_exclude = component->params.settings.transport.if_exclude,
        .topology = regx_compat_topology()};

    *count = 1;
    return ops->devices == NULL ? REGX_OK : ops->devices(&config, error, error_size, names, count);
}

/* A module for each device. One that cannot be opened is left out, unless it is for what the user
 * said; then none is used. */
static bool open_modules(regx_component_t *component)
{
    regx_device_name_t names[REGX_DEVICES_MAX];
    char error[256], first_error[256];
    size_t count = 0;
    const regx_transport_ops_t *ops =
        regx_transport_load(component->params.settings.component.transport, error, sizeof(error));
    regx_status_t status = REGX_UNREACHABLE, first = REGX_OK;

    if (ops != NULL && !ops->copies && regx_strategy_copies(component->params.strategy)) {
        snprintf(error, sizeof(error),
                 "rendezvous=%s: over transport %s the kernel does not copy between processes; "
                 "allowed: another rendezvous, or transport uct",
                 regx_strategy_name(component->params.strategy), ops->name);
        status = REGX_INVALID;
    } else if (ops != NULL) {
        status = list_devices(component, ops, error, sizeof(error), names, &count);
    }
    if (status != REGX_OK) {
        say_refused(status, error, false);
        return false;
    }
    for (size_t i = 0; i < count && first != REGX_INVALID; i++) {
        regx_module_t *module;

        status = regx_module_open(component, ops, ops->devices == NULL ? NULL : names[i],
                                  (unsigned)count, error, sizeof(error), &module);
        if (status == REGX_OK) {
            module->place = component->module_count;
            component->modules[component->module_count++] = module;
        } else if (first == REGX_OK || status == REGX_INVALID) {
            first = status;
            strcpy(first_error, error);
        }
    }
    if (first != REGX_OK) {
        say_refused(first, first_error, component->module_count > 0);
    }
    return first != REGX_INVALID && component->module_count > 0;
}

static void close_modules(regx_component_t *component)
{
    while (component->module_count > 0) {
        regx_module_close(component->modules[component->module_count - 1]);
    }
    regx_backend_stop(component);
}

static bool start_modules(regx_component_t *component)
{
    if (!open_modules(component) || !regx_backend_start(component)) {
        return false;
    }
    for (unsigned i = 0; i < component->module_count; i++) {
        if (!regx_module_start(component->modules[i])) {
            return false;
        }
    }
    if (!regx_address_publish(component)) {
        regx_compat_say("cannot publish its address");
        return false;
    }
    return true;
}

/* What registrations may lock is less than the pool, a message's chunks and what the transport has
 * locked for itself: the pool may be smaller than it was to be, and some messages bounce. */
static void say_if_limited(const regx_component_t *component)
{
    const regx_params_t *params = &component->params;
    const uint64_t limit = regx_memlock_limit();
    char line[384];

    if (!component->modules[0]->transport->registers || limit == REGX_MEMLOCK_NONE ||
        !regx_compat_speaker()) {
        return;
    }
    const uint64_t pool = component->counters.pool_bytes, pinned = regx_memlock_pinned();
    const uint64_t wanted =
        (pinned > pool ? pinned - pool : 0) +
        (params->pool_wanted > pool ? params->pool_wanted : pool) +
        params->settings.rendezvous.chunk_size * params->settings.rendezvous.chunk_depth;
    if (limit < wanted) {
        snprintf(line, sizeof(line),
                 "btl_regx_transport=%s: the limit of locked memory (ulimit -l) is %" PRIu64
                 " KiB, and %" PRIu64 " KiB are wanted for pool, buffers and btl_regx_chunk_depth "
                 "chunks; what finds no room bounces; " REGX_MEMLOCK_REMEDY,
                 params->settings.component.transport, limit / 1024, wanted / 1024);
        regx_compat_say(line);
    }
}

/* Open MPI's word on progress threads is left aside: regx starts none, and 4.1 says yes always. */
static mca_btl_base_module_t **component_init(int *count, bool progress_threads, bool mpi_threads)
{
    regx_component_t *component = &mca_btl_regx_component;
    mca_btl_base_module_t **modules;
    bool named;

    (void)progress_threads;
    *count = 0;
    start_trace(component);
    if (!regx_params_asked(&named)) {
        regx_trace(&component->trace, REGX_TRACE_CHOICE,
                   "not used: neither named in btl nor enabled by btl_regx_enable");
        return NULL;
    }
    if (!regx_params_read(&component->params, &regx_template)) {
        return NULL;
    }
    memset(&component->counters, 0, sizeof(component->counters));
    component->counters.threads = component->threads = mpi_threads;
    component->told_of_change = component->ending = false;
    modules = start_modules(component) ? calloc(component->module_count, sizeof(*modules)) : NULL;
    if (modules == NULL) {
        close_modules(component);
        return NULL;
    }
    trace_choice(component);
    say_if_limited(component);
    for (unsigned i = 0; i < component->module_count; i++) {
        modules[i] = &component->modules[i]->super;
    }
    *count = (int)component->module_count;
    return modules;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/module.h"

#include <string.h>

#include "opal/runtime/opal_progress.h"

/* What a call waits at most that unmaps memory in use (btl_regx_inuse=drain). */
#define DRAIN_MILLISECONDS 5000u

/* A buffer changed while a transfer used it. Called from any thread. */
static void changed_in_use(void *context, const void *base, size_t length)
{
    regx_module_t *module = context;
    regx_component_t *component = module->component;
    const bool abort_job = component->params.settings.registration.inuse == REGX_INUSE_ABORT;
    const bool revoked = component->params.settings.rendezvous.grant != REGX_GRANT_FINAL;

    if (!abort_job && atomic_exchange(&component->warned_of_change, true)) {
        return; /* this one or another module has warned */
    }
    regx_compat_output(
        "rank %u on %s: memory was unmapped or replaced while MPI was using it, within the "
        "%zu bytes at %p%s%s (btl_regx_inuse)",
        regx_compat_rank(), regx_compat_host(), length, base,
        revoked ? "; what peers were writing there is sent once more" : "",
        abort_job ? ": the job ends" : "; this is said once");
    if (abort_job) {
        regx_module_end_job(module, NULL);
    }
}

static regx_monitor_config_t monitor_config(regx_component_t *component,
                                            regx_transport_t *transport)
{
    return (regx_monitor_config_t){.hooks = &regx_compat_hooks,
                                   .transport = transport,
                                   .counters = &component->counters,
                                   .trace = &component->trace,
                                   .drain = component->drain};
}

static void drain_progress(void *unused)
{
    (void)unused;
    opal_progress();
}

static void warn_unusable(const regx_component_t *component, const char *error)
{
    regx_params_complain("btl_regx_backend=%s %s", component->params.settings.registration.backend,
                         error);
}

/* The transport for which a backend is worth having: the first that pins what it registers, else
 * the first. */
static regx_transport_t *transport_to_monitor(const regx_component_t *component)
{
    for (unsigned i = 0; i < component->module_count; i++) {
        if (component->modules[i]->transport->registers) {
            return component->modules[i]->transport;
        }
    }
    return component->modules[0]->transport;
}

bool regx_backend_start(regx_component_t *component)
{
    const regx_registration_settings_t *settings = &component->params.settings.registration;
    const regx_drain_config_t drain = {.milliseconds = DRAIN_MILLISECONDS,
                                       .progress = drain_progress,
                                       .counters = &component->counters};
    regx_transport_t *transport = transport_to_monitor(component);
    regx_backend_choice_t *choice = &component->choice;
    regx_error_t error;

    component->drain = settings->inuse == REGX_INUSE_DRAIN ? regx_drain_open(&drain) : NULL;
    const regx_monitor_config_t monitor = monitor_config(component, transport);
    if (regx_backend_choose(settings->backend, !transport->registers, &monitor, choice, error) !=
        REGX_OK) {
        choice->monitor = NULL;
        warn_unusable(component, error);
        return false;
    }
    if (settings->inuse == REGX_INUSE_DRAIN &&
        (choice->monitor == NULL || choice->monitor->drain == NULL)) { /* it is not to be had */
        regx_tally(component->counters.fallbacks, "inuse=drain: needs hooks, as warn");
    }
    if (!component->params.leave_pinned) {
        snprintf(choice->reason, sizeof(choice->reason), "mpi_leave_pinned=0");
    }
    return true;
}

void regx_backend_stop(regx_component_t *component)
{
    regx_monitor_t *monitor = component->choice.monitor;

    regx_owned_fini(&component->owned); /* all registries are closed */
    if (monitor != NULL) {
        component->choice.monitor = NULL;
        monitor->stop(monitor);
    }
    if (component->drain != NULL) {
        regx_drain_close(component->drain);
        component->drain = NULL;
    }
}

/* On demand means that the device follows the mapping: each transport's own matter. */
static bool is_on_demand(const regx_monitor_t *monitor)
{
    return monitor != NULL && monitor->by_device;
}

bool regx_registry_keeps(const regx_module_t *module)
{
    const regx_component_t *component = module->component;

    if (component->choice.backend->start == NULL) {
        return false;
    }
    return module->transport->registers ||
           (strcmp(component->params.settings.registration.backend, "auto") != 0 &&
            !is_on_demand(component->choice.monitor));
}

bool regx_registry_start(regx_module_t *module)
{
    regx_component_t *component = module->component;
    const regx_registration_settings_t *settings = &component->params.settings.registration;
    regx_cache_config_t cache = {.bytes = settings->cache_bytes,
                                 .count = REGX_CACHE_COUNT,
                                 .once_bytes = settings->once_bytes,
                                 .owned = &component->owned,
                                 .changed_in_use =
                                     settings->inuse != REGX_INUSE_IGNORE ? changed_in_use : NULL,
                                 .context = module,
                                 .trace = module->trace};
    uint64_t caches = 0;
    regx_error_t error;

    /* What the process may keep is divided among the caches, and as much of owned memory among the
     * devices. */
    for (unsigned i = 0; i < component->module_count; i++) {
        caches += regx_registry_keeps(component->modules[i]) ||
                  component->modules[i]->transport->registers;
    }
    if (component->ports > 1 && cache.once_bytes != REGX_UNLIMITED) {
        cache.once_bytes = regx_max(cache.once_bytes / component->ports, 2 * regx_page_size());
    }
    if (caches > 1) {
        cache.count = cache.count / caches;
        cache.bytes = cache.bytes == REGX_UNLIMITED
                          ? REGX_UNLIMITED
                          : regx_max(cache.bytes / caches, regx_page_size());
    }
    /* One monitor is shared by all caches, but for regions on demand. */
    if (regx_registry_keeps(module)) {
        module->monitor = component->choice.monitor;
        if (is_on_demand(module->monitor) && module->transport != transport_to_monitor(component)) {
            const regx_monitor_config_t config = monitor_config(component, module->transport);

            if (component->choice.backend->start(&config, &module->monitor, error) != REGX_OK) {
                module->monitor = NULL;
                warn_unusable(component, error);
                return false;
            }
        }
    }
    pthread_mutex_lock(&component->closing); /* tools' threads may read already */
    const regx_status_t status = regx_registry_open(&module->registry, module->monitor, &cache,
                                                    module->transport, module->counters);
    pthread_mutex_unlock(&component->closing);
    if (status != REGX_OK) {
        regx_compat_output("no memory for the registration cache");
    }
    return status == REGX_OK;
}

void regx_registry_stop(regx_module_t *module)
{
    regx_registry_close(&module->registry);
    if (module->monitor != NULL && module->monitor != module->component->choice.monitor) {
        module->monitor->stop(module->monitor);
    }
}

void regx_registry_changes(void *context, uintptr_t start, uintptr_t end)
{
    const regx_module_t *module = context;
    const regx_monitor_t *monitor = module->component->choice.monitor;

    if (monitor != NULL) {
        regx_inval_log_write(monitor->log, start, end);
    }
}

void regx_registry_count_all(regx_component_t *component)
{
    pthread_mutex_lock(&component->closing);
    for (unsigned i = 0; i < component->module_count; i++) {
        regx_registry_count(&component->modules[i]->registry);
    }
    pthread_mutex_unlock(&component->closing);
}

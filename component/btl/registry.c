/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which backend keeps registrations true in this process, and what the user hears of it.
 */
#include "btl/btl.h"

#include <stdio.h>
#include <unistd.h>

/* A buffer changed while a transfer used it. Called from any thread. */
static void changed_in_use(void *context, const void *base, size_t length)
{
    const regx_module_t *module = context;
    regx_component_t *component = &mca_btl_regx_component;
    const bool abort_job = component->params.settings.registration.inuse == REGX_INUSE_ABORT;
    char line[320];

    if (!abort_job && atomic_exchange(&component->told_of_change, true)) {
        return; /* another module's cache did */
    }
    snprintf(line, sizeof(line),
             "rank %u on %s: memory was unmapped or replaced while MPI was using it, within the "
             "%zu bytes at %p%s (btl_regx_inuse)",
             regx_compat_rank(), regx_compat_host(), length, base,
             abort_job ? ": the job ends" : "; this is said once");
    regx_compat_say(line);
    if (abort_job && module->error != NULL) {
        module->error((mca_btl_base_module_t *)context, MCA_BTL_ERROR_FLAGS_FATAL, NULL, NULL);
    }
}

static regx_watch_config_t watch_of(const regx_component_t *component, regx_transport_t *transport)
{
    return (regx_watch_config_t){.check = component->params.settings.registration.notifier_check,
                                 .threads = component->threads,
                                 .hooks = component->params.hooks,
                                 .transport = transport,
                                 .prefetch = component->params.settings.registration.odp_prefetch,
                                 .counters = &mca_btl_regx_component.counters};
}

static void say_unusable(const regx_component_t *component, const char *error)
{
    char line[448];

    snprintf(line, sizeof(line), "btl_regx_backend=%s %s",
             component->params.settings.registration.backend, error);
    regx_say_of_node(line);
}

bool regx_backend_start(regx_component_t *component)
{
    regx_transport_t *transport = component->modules[0]->transport;
    const regx_watch_config_t watch = watch_of(component, transport);
    regx_backend_choice_t *choice = &component->choice;
    char error[384];

    if (regx_backend_choose(component->params.settings.registration.backend, !transport->registers,
                            &watch, choice, error, sizeof(error)) != REGX_OK) {
        choice->watch = NULL;
        say_unusable(component, error);
        return false;
    }
    if (!component->params.leave_pinned) {
        snprintf(choice->reason, sizeof(choice->reason), "mpi_leave_pinned=0");
    }
    return true;
}

void regx_backend_stop(regx_component_t *component)
{
    regx_watch_t *watch = component->choice.watch;

    if (watch != NULL) {
        component->choice.watch = NULL;
        watch->stop(watch);
    }
}

/* What the process may keep is divided among the caches; none keeps more than its device has. */
static regx_cache_config_t share_of_cache(const regx_component_t *component,
                                          const regx_transport_t *transport)
{
    const regx_registration_settings_t *settings = &component->params.settings.registration;
    regx_cache_config_t cache = {.bytes = settings->cache_bytes,
                                 .count = settings->cache_count,
                                 .admit = settings->admit,
                                 .inuse = settings->inuse};
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), count = component->module_count;

    if (cache.bytes != REGX_UNLIMITED) {
        cache.bytes = cache.bytes / count > page ? cache.bytes / count : page;
    }
    if (cache.count != REGX_UNLIMITED) {
        cache.count = cache.count / count > 1 ? cache.count / count : 1;
    }
    if (transport->mr_count != 0 && cache.count > transport->mr_count) {
        cache.count = transport->mr_count;
    }
    return cache;
}

/* Who tells of changes tells all caches; regions on demand are each transport's own matter. */
static bool start_watch(const regx_component_t *component, regx_module_t *module)
{
    const regx_watch_config_t config = watch_of(component, module->transport);
    regx_watch_t *shared = component->choice.watch;
    char error[384];

    module->watch = shared;
    if (module->place == 0 || shared == NULL || shared->ready == NULL) {
        return true;
    }
    if (component->choice.backend->start(&config, &module->watch, error, sizeof(error)) !=
        REGX_OK) {
        module->watch = NULL;
        say_unusable(component, error);
        return false;
    }
    return true;
}

bool regx_registry_start(regx_module_t *module)
{
    const regx_component_t *component = &mca_btl_regx_component;
    regx_cache_config_t cache = share_of_cache(component, module->transport);

    cache.changed_in_use = changed_in_use;
    cache.context = module;
    if (!start_watch(component, module)) {
        return false;
    }
    if (regx_registry_open(&module->registry, component->choice.backend, module->watch, &cache,
                           module->transport, module->counters) != REGX_OK) {
        regx_compat_say("no memory for the registration cache");
        return false;
    }
    return true;
}

void regx_registry_stop(regx_module_t *module)
{
    regx_registry_close(&module->registry);
    if (module->watch != NULL && module->watch != mca_btl_regx_component.choice.watch) {
        module->watch->stop(module->watch);
    }
}

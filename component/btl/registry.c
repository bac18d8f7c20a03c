/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which backend keeps registrations true in this process, and what the user hears of it.
 */
#include "btl/btl.h"

#include <stdio.h>

/* A buffer changed while a transfer used it. Called from any thread. */
static void changed_in_use(void *context, const void *base, size_t length)
{
    regx_module_t *module = context;
    const bool abort_job = module->params.cache.inuse == REGX_INUSE_ABORT;
    char line[320];

    snprintf(line, sizeof(line),
             "rank %u on %s: memory was unmapped or replaced while MPI was using it, within the "
             "%zu bytes at %p%s (btl_regx_inuse)",
             regx_compat_rank(), regx_compat_host(), length, base,
             abort_job ? ": the job ends" : "; this is said once");
    regx_compat_say(line);
    if (abort_job && module->error != NULL) {
        module->error(&module->super, MCA_BTL_ERROR_FLAGS_FATAL, NULL, NULL);
    }
}

/* What does not work on one node may work on the others. */
static void say_unusable(const regx_params_t *params, const char *error)
{
    char line[512];

    if (regx_compat_node_speaker()) {
        snprintf(line, sizeof(line), "btl_regx_backend=%s %s%s%s", params->backend, error,
                 regx_compat_speaker() ? "" : ", on ",
                 regx_compat_speaker() ? "" : regx_compat_host());
        regx_compat_say(line);
    }
}

bool regx_registry_start(regx_module_t *module)
{
    const regx_params_t *params = &module->params;
    const regx_watch_config_t watch = {.check = params->check,
                                       .threads = module->threads,
                                       .hooks = params->hooks,
                                       .transport = module->transport,
                                       .prefetch = params->prefetch,
                                       .counters = &module->counters};
    regx_cache_config_t cache = params->cache;
    char error[384];

    if (regx_backend_choose(params->backend, !module->transport->registers, &watch, &module->choice,
                            error, sizeof(error)) != REGX_OK) {
        say_unusable(params, error);
        return false;
    }
    if (!params->leave_pinned) {
        snprintf(module->choice.reason, sizeof(module->choice.reason), "mpi_leave_pinned=0");
    }
    cache.changed_in_use = changed_in_use;
    cache.context = module;
    if (regx_registry_open(&module->registry, module->choice.backend, module->choice.watch, &cache,
                           module->transport, &module->counters) != REGX_OK) {
        regx_compat_say("no memory for the registration cache");
        regx_registry_stop(module);
        return false;
    }
    return true;
}

void regx_registry_stop(regx_module_t *module)
{
    regx_registry_close(&module->registry);
    if (module->choice.watch != NULL) {
        module->choice.watch->stop(module->choice.watch);
        module->choice.watch = NULL;
    }
}

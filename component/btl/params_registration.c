/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The parameters of registration: which backend, and what may be kept.
 */
#include "btl/params.h"

#include <string.h>
#include <unistd.h>

#include "base/memlock.h"
#include "registration/hooks.h"

#define CACHE_COUNT_MAX (1u << 20)

/* A default that fits: what is kept leaves the application the larger part of the node's memory,
 * and transfers under way half of what may be locked, if anything is. */
static uint64_t default_bytes(const regx_params_t *params, uint64_t page)
{
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * page / 4 / regx_compat_local_processes();
    const uint64_t limit = regx_memlock_limit();

    if (limit != REGX_MEMLOCK_NONE && strcmp(params->backend, "odp") != 0) {
        const uint64_t rest = limit > params->pool_size ? limit - params->pool_size : 0;

        bytes = rest / 2 < bytes ? rest / 2 : bytes;
    }
    return bytes > page ? bytes & ~(page - 1) : page;
}

static bool read_budget(regx_params_t *params)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const regx_option_range_t bytes = {.least = page,
                                       .most = UINT64_C(1) << 46,
                                       .step = 1,
                                       .size = true,
                                       .words = "auto, unlimited"};
    const regx_option_range_t count = {
        .least = 1, .most = CACHE_COUNT_MAX, .step = 1, .words = "unlimited"};
    regx_cache_config_t *cache = &params->cache;

    if (regx_param_is(REGX_PARAM_CACHE_BYTES, "auto")) {
        cache->bytes = default_bytes(params, page);
    } else if (regx_param_is(REGX_PARAM_CACHE_BYTES, "unlimited")) {
        cache->bytes = REGX_UNLIMITED;
    } else if (!regx_param_number(REGX_PARAM_CACHE_BYTES, &bytes, &cache->bytes)) {
        return false;
    }
    if (regx_param_is(REGX_PARAM_CACHE_COUNT, "unlimited")) {
        cache->count = REGX_UNLIMITED;
        return true;
    }
    return regx_param_number(REGX_PARAM_CACHE_COUNT, &count, &cache->count);
}

static bool read_backend(regx_params_t *params)
{
    const char *name = regx_param_text(REGX_PARAM_BACKEND);
    char error[REGX_OPTION_ERROR];
    mca_base_var_source_t source;

    params->backend = name != NULL ? name : "";
    if (strcmp(params->backend, "auto") != 0 && regx_backend_find(params->backend) == NULL) {
        regx_option_refuse(REGX_PREFIX "backend", params->backend, regx_backend_names, error);
        return regx_param_refuse(error);
    }
    /* Open MPI's own way to say: keep nothing. */
    const int *leave = regx_param_stored("ompi", "mpi", NULL, "leave_pinned", &source);
    params->leave_pinned = leave == NULL || *leave != 0 || source == MCA_BASE_VAR_SOURCE_DEFAULT;
    regx_param_stored("opal", "btl", "regx", "backend", &source);
    if (source != MCA_BASE_VAR_SOURCE_DEFAULT) {
        params->leave_pinned = true;
    } else if (!params->leave_pinned) {
        params->backend = "none";
        if (regx_compat_speaker()) {
            regx_compat_say("mpi_leave_pinned=0: registrations are not kept; " REGX_PREFIX
                            "backend would say otherwise");
        }
    }
    return true;
}

static bool read_hooks(regx_params_t *params)
{
    const regx_hook_source_t *const sources[] = {&regx_compat_hooks, regx_hooks_ucm};
    const char *const names[] = {"opal", "ucm"};
    unsigned which;

    if (!regx_param_word(REGX_PARAM_HOOKS, names, regx_hooks_ucm != NULL ? 2 : 1, &which)) {
        return false;
    }
    params->hooks = sources[which];
    return true;
}

bool regx_params_read_registration(regx_params_t *params)
{
    static const char *const admit[] = {
        [REGX_ADMIT_FIRST] = "first", [REGX_ADMIT_SECOND] = "second"};
    static const char *const inuse[] = {
        [REGX_INUSE_IGNORE] = "ignore", [REGX_INUSE_WARN] = "warn", [REGX_INUSE_ABORT] = "abort"};
    static const char *const check[] = {[REGX_CHECK_ALWAYS] = "always",
                                        [REGX_CHECK_SCAN] = "scan",
                                        [REGX_CHECK_THREADS] = "threads",
                                        [REGX_CHECK_NEVER] = "never"};
    static const char *const prefetch[] = {[REGX_PREFETCH_ADVISE] = "advise",
                                           [REGX_PREFETCH_TOUCH] = "touch",
                                           [REGX_PREFETCH_NONE] = "none"};
    unsigned admitted, used, checked, prefetched;

    if (!read_backend(params) || !read_budget(params) || !read_hooks(params) ||
        !regx_param_word(REGX_PARAM_ADMIT, admit, 2, &admitted) ||
        !regx_param_word(REGX_PARAM_INUSE, inuse, 3, &used) ||
        !regx_param_word(REGX_PARAM_NOTIFIER_CHECK, check, 4, &checked) ||
        !regx_param_word(REGX_PARAM_ODP_PREFETCH, prefetch, 3, &prefetched)) {
        return false;
    }
    params->cache.admit = (regx_admit_t)admitted;
    params->cache.inuse = (regx_inuse_t)used;
    params->check = (regx_check_t)checked;
    params->prefetch = (regx_prefetch_t)prefetched;
    return true;
}

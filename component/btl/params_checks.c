/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What depends on more than the value itself: on the machine, on other parameters, on Open MPI's.
 */
#include "config.h"

#include "btl/params.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/memlock.h"
#include "base/util.h"
#include "registration/monitor/monitor.h"

#define POOL_MAX_BY_DEFAULT (8u << 20)

static bool check_transport(const regx_params_t *params)
{
    const regx_transport_settings_t *transport = &params->settings.transports.all;

    if (transport->if_include != NULL && transport->if_exclude != NULL) {
        return regx_param_refuse(REGX_PREFIX "if_include and " REGX_PREFIX
                                             "if_exclude are both given; allowed: one");
    }
    return true;
}

static bool check_rendezvous(regx_params_t *params)
{
    const regx_rndv_settings_t *rendezvous = &params->settings.rendezvous;
    char error[REGX_OPTION_ERROR];

    params->strategy = regx_strategy_find(rendezvous->rendezvous);
    if (rendezvous->auto_choice != NULL && strcmp(rendezvous->rendezvous, "auto") != 0) {
        snprintf(error, sizeof(error),
                 REGX_PREFIX "auto_choice is given with " REGX_PREFIX
                             "rendezvous=%s; allowed: auto",
                 rendezvous->rendezvous);
        return regx_param_refuse(error);
    }
    return regx_auto_choice_read(rendezvous->auto_choice, &params->auto_choice, error) ||
           regx_param_refuse(error);
}

static bool is_revocable(const char *strategy)
{
    return regx_strategy_is_revocable(regx_strategy_find(strategy));
}

static bool reports_changes(const char *name)
{
    const regx_backend_t *backend = regx_backend_find(name); /* NULL: auto */

    return backend != NULL && backend->reports_changes;
}

static bool pins_nothing(const char *name)
{
    const regx_backend_t *backend = regx_backend_find(name);

    return backend != NULL && backend->pins_nothing;
}

/* What cannot be revoked is refused, rather than granted for good in silence. */
static bool check_grant(const regx_params_t *params)
{
    const regx_rndv_settings_t *rendezvous = &params->settings.rendezvous;
    const regx_registration_settings_t *registration = &params->settings.registration;
    char error[REGX_OPTION_ERROR], allowed[96];

    if (rendezvous->grant == REGX_GRANT_FINAL) {
        return true;
    }
    const char *grant = rendezvous->grant == REGX_GRANT_SYNCHRONOUS ? "synchronous" : "optimistic";
    if (!is_revocable(rendezvous->rendezvous)) {
        regx_param_list(regx_strategy_word, is_revocable, allowed, sizeof(allowed));
        snprintf(error, sizeof(error),
                 REGX_PREFIX "grant=%s is given with " REGX_PREFIX "rendezvous=%s; allowed: %s",
                 grant, rendezvous->rendezvous, allowed);
        return regx_param_refuse(error);
    }
    if (!reports_changes(registration->backend)) {
        regx_param_list(regx_backend_word, reports_changes, allowed, sizeof(allowed));
        snprintf(error, sizeof(error),
                 REGX_PREFIX "grant=%s is given with " REGX_PREFIX "backend=%s; allowed: %s", grant,
                 registration->backend, allowed);
        return regx_param_refuse(error);
    }
    if (registration->inuse == REGX_INUSE_ABORT || rendezvous->verify) {
        snprintf(error, sizeof(error), REGX_PREFIX "grant=%s is given with " REGX_PREFIX "%s",
                 grant,
                 rendezvous->verify ? "verify=1; allowed: 0"
                                    : "inuse=abort; allowed: ignore, warn, drain");
        return regx_param_refuse(error);
    }
    return true;
}

/* By default, half of what may be locked is left to registrations. */
static void size_pool(regx_params_t *params, uint64_t page)
{
    regx_pool_settings_t *pool = &params->settings.pool;
    const uint64_t half = regx_memlock_limit() / 2 & ~(page - 1);
    const size_t size = half < POOL_MAX_BY_DEFAULT ? half : POOL_MAX_BY_DEFAULT;
    const size_t min = 2 * pool->slot_size;

    params->pool_given = pool->pool_size != 0;
    params->pool_wanted = pool->pool_size;
    if (pool->pool_size == 0) {
        pool->pool_size = size > min ? size : min;
        params->pool_wanted =
            pool->pool_size > POOL_MAX_BY_DEFAULT ? pool->pool_size : POOL_MAX_BY_DEFAULT;
    }
}

/* Open MPI's own setting for: keep nothing. */
static void apply_leave_pinned(regx_params_t *params)
{
    mca_base_var_source_t source;
    const int *leave = regx_param_stored("ompi", "mpi", NULL, "leave_pinned", &source);

    params->leave_pinned = leave == NULL || *leave != 0 || source == MCA_BASE_VAR_SOURCE_DEFAULT;
    regx_param_stored("opal", "btl", "regx", "backend", &source);
    if (source != MCA_BASE_VAR_SOURCE_DEFAULT) {
        params->leave_pinned = true;
    } else if (!params->leave_pinned) {
        params->settings.registration.backend = regx_backend_none.name;
        if (regx_compat_prints()) {
            regx_compat_output("mpi_leave_pinned=0: registrations are not kept; " REGX_PREFIX
                               "backend overrides this");
        }
    }
}

/* A process's part of what is pinned for all of the job's on this node: a quarter of its memory. */
static uint64_t part_of_memory(uint64_t page)
{
    const uint64_t bytes =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * page / 4 / regx_compat_local_processes();

    return bytes > page ? bytes & ~(page - 1) : page;
}

/* A default that fits: what is kept leaves the application the larger part of the node's memory,
 * and transfers under way half of what may be locked, if anything is. */
static void size_cache(regx_params_t *params, uint64_t page)
{
    regx_registration_settings_t *registration = &params->settings.registration;
    uint64_t bytes = part_of_memory(page);
    const uint64_t limit = regx_memlock_limit(), pool = params->settings.pool.pool_size;

    if (registration->cache_bytes != 0) {
        return;
    }
    if (limit != REGX_MEMLOCK_NONE && !pins_nothing(registration->backend)) {
        const uint64_t rest = limit > pool ? limit - pool : 0;

        bytes = rest / 2 < bytes ? rest / 2 : bytes;
    }
    registration->cache_bytes = bytes > page ? bytes & ~(page - 1) : page;
}

/* Memory that is pinned is lacking only where the kernel would else have swapped it. A node with
 * little swap space is not made for programs that are larger than its memory. */
static bool has_swap(void)
{
    struct sysinfo node;

    return sysinfo(&node) == 0 && node.totalswap > 0 && node.totalswap >= node.totalram / 4;
}

/* A default that fits: transfers under way may pin as much again. */
static void size_once(regx_params_t *params, uint64_t page)
{
    uint64_t *bytes = &params->settings.registration.once_bytes;

    if (*bytes == 0) {
        *bytes = has_swap() ? part_of_memory(page) : REGX_UNLIMITED;
    }
}

bool regx_params_check(regx_params_t *params)
{
    const uint64_t page = regx_page_size();

    if (!check_transport(params) || !check_rendezvous(params)) {
        return false;
    }
    params->hooks = regx_hooks_by_default(regx_compat_links_ucx(), &regx_compat_hooks);
    size_pool(params, page);
    apply_leave_pinned(params);
    if (!check_grant(params)) {
        return false;
    }
    size_cache(params, page);
    size_once(params, page);
    return true;
}

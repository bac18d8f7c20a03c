/* SPDX-License-Identifier: BSD-3-Clause */

#include <string.h>

#include "kernel/regx_notify.h"
#include "registration/cache.h"
#include "registration/once.h"
#include "registration/owned.h"

/* ---- the choice of a backend ---- */

/* Registers and deregisters per use. Guarantees that no registration outlives the transfer that
 * made it, so none can be stale; a change of the mapping during a transfer is the application's
 * error. Needs to see no event. The honest baseline of every comparison. */
const regx_backend_t regx_backend_none = {.name = "none"};

const regx_param_word_t regx_backend_words[] = {{.word = "auto"},
#define REGX_BACKEND_ROW(name, text) {.word = text, .row = &regx_backend_##name},
                                                REGX_BACKENDS(REGX_BACKEND_ROW)
#undef REGX_BACKEND_ROW
                                                    {.word = NULL}};

static regx_status_t start(const regx_backend_t *backend, const regx_monitor_config_t *config,
                           regx_backend_choice_t *choice, regx_error_t error)
{
    choice->backend = backend;
    choice->monitor = NULL;
    return backend->start == NULL ? REGX_OK : backend->start(config, &choice->monitor, error);
}

regx_status_t regx_backend_choose(const char *name, bool registering_is_free,
                                  const regx_monitor_config_t *config,
                                  regx_backend_choice_t *choice, regx_error_t error)
{
    const size_t size = sizeof(choice->reason);
    regx_error_t why, kernel;

    if (strcmp(name, "auto") != 0) {
        if (start(regx_backend_find(name), config, choice, why) != REGX_OK) {
            return regx_refuse(error, REGX_DENIED,
                               "cannot be used: %s; always possible: none, auto", why);
        }
        snprintf(choice->reason, size, "asked for");
        return REGX_OK;
    }
    snprintf(choice->reason, size, "not needed");
    if (!registering_is_free) { /* what keeps most, by the least, first */
        snprintf(choice->reason, size, "passed its self-test");
        if (start(&regx_backend_kernel, config, choice, kernel) == REGX_OK) {
            return REGX_OK;
        }
        /* That there is no module is usual, and not worth a word. */
        const bool has_module = access(REGX_NOTIFY_PATH, F_OK) == 0;

        if (start(&regx_backend_notifier, config, choice, why) == REGX_OK) {
            if (has_module) {
                snprintf(choice->reason, size, "kernel: %s", kernel);
            }
            return REGX_OK;
        }
        snprintf(choice->reason, size, "notifier: %s", why);
    }
    return start(&regx_backend_none, config, choice, why);
}

/* ---- a registry ---- */

regx_status_t regx_registry_open(regx_registry_t *registry, regx_monitor_t *monitor,
                                 const regx_cache_config_t *cache, regx_transport_t *transport,
                                 regx_counters_t *counters)
{
    *registry = (regx_registry_t){.transport = transport,
                                  .counters = counters,
                                  .trace = cache->trace,
                                  .monitor = monitor,
                                  .once_max = REGX_UNLIMITED};
    if (cache->once_bytes != 0 && cache->once_bytes != REGX_UNLIMITED && transport->registers) {
        registry->once_max = regx_max(cache->once_bytes / 2, regx_page_size());
    }
    if (transport->registers && (monitor == NULL || !monitor->by_device)) { /* odp pins nothing */
        registry->owned = cache->owned;
        /* Nothing evicts them: of what may be pinned in all, transfers get a part, too. */
        registry->owned_max = monitor == NULL ? cache->bytes : cache->bytes / 2;
    }
    if (monitor == NULL) { /* changes are not reported: nothing may be kept */
        return REGX_OK;
    }
    registry->on_demand = monitor->by_device;
    registry->drain = monitor->drain;
    registry->cache = regx_cache_open(registry, cache);
    return registry->cache != NULL ? REGX_OK : REGX_NO_MEMORY;
}

void regx_registry_close(regx_registry_t *registry)
{
    if (registry->owned != NULL) {
        regx_owned_close(registry);
    }
    if (registry->cache != NULL) {
        regx_cache_close(registry->cache);
        registry->cache = NULL;
    }
}

void regx_registry_progress(regx_registry_t *registry)
{
    if (registry->cache != NULL) {
        regx_cache_progress(registry->cache);
    }
}

void regx_registry_count(regx_registry_t *registry)
{
    if (registry->cache != NULL) {
        regx_cache_count(registry->cache);
    }
}

/* ---- one use ---- */

static regx_status_t acquire_on_demand(regx_registry_t *registry, void *base, size_t length,
                                       unsigned access, regx_region_t *region)
{
    regx_monitor_t *monitor = registry->monitor;

    if (!monitor->follows(monitor, base, length)) {
        return regx_once_register(registry, base, length, access, NULL, region);
    }
    regx_status_t status = regx_cache_acquire(registry->cache, base, length,
                                              access | REGX_ACCESS_ON_DEMAND, true, region);
    if (status == REGX_OK) {
        status = monitor->ready(monitor, region->mr, base, length, access);
        if (status != REGX_OK) {
            regx_region_release(registry, region);
        }
    }
    return status;
}

regx_status_t regx_region_acquire(regx_registry_t *registry, void *base, size_t length,
                                  unsigned access, regx_region_t *region)
{
    region->over_share = false;
    if (__builtin_expect(regx_owned_maybe(registry, base), false) &&
        regx_owned_acquire(registry, base, length, true, region)) {
        return REGX_OK;
    }
    if (registry->cache == NULL) {
        return regx_once_register(registry, base, length, access, NULL, region);
    }
    return registry->on_demand
               ? acquire_on_demand(registry, base, length, access, region)
               : regx_cache_acquire(registry->cache, base, length, access, true, region);
}

bool regx_region_acquire_kept(regx_registry_t *registry, const void *base, size_t length,
                              unsigned access, regx_region_t *region)
{
    if (regx_owned_maybe(registry, base) &&
        regx_owned_acquire(registry, base, length, false, region)) {
        return true;
    }
    return registry->cache != NULL && !registry->on_demand &&
           regx_cache_acquire(registry->cache, base, length, access, false, region) == REGX_OK;
}

bool regx_region_seems_kept(regx_registry_t *registry, const void *base, size_t length,
                            unsigned access)
{
    const regx_request_t request = {.address = (uintptr_t)base, .length = length, .access = access};

    if (regx_owned_maybe(registry, base) && regx_owned_seems_kept(registry, base, length)) {
        return true;
    }
    return registry->cache != NULL && !registry->on_demand &&
           regx_cache_has(registry->cache, &request);
}

void regx_region_release(regx_registry_t *registry, regx_region_t *region)
{
    regx_cache_t *cache = registry->cache;

    if (__builtin_expect(region->kept != 0, true)) {
        regx_cache_release(cache, region);
    } else if (region->owned != NULL) {
        regx_owned_release(registry->owned, region->owned);
    } else if (cache == NULL || !regx_cache_in_child(cache)) {
        regx_once_deregister(registry, region);
    }
}

/* ---- parameters ---- */

static uint64_t a_page(const void *settings)
{
    (void)settings;
    return regx_page_size();
}

#define ROW(type, field, ...)                                                                      \
    REGX_PARAM_ROW(regx_registration_settings_t, "", type, field, __VA_ARGS__)

const regx_param_t regx_registration_params[] = {
    ROW(NAME, backend, 2, .words = regx_backend_words),
    ROW(SIZE, cache_bytes, 4, .max = UINT64_C(1) << 46, .at_least = a_page,
        .words = REGX_WORDS({.word = "auto", .value = 0},
                            {.word = "unlimited", .value = REGX_UNLIMITED})),
    ROW(SIZE, once_bytes, 5, .max = UINT64_C(1) << 46, .at_least = a_page,
        .words = REGX_WORDS({.word = "auto", .value = 0},
                            {.word = "unlimited", .value = REGX_UNLIMITED})),
    ROW(WORD, inuse, 4,
        .words = REGX_WORDS({.word = "ignore", .value = REGX_INUSE_IGNORE},
                            {.word = "warn", .value = REGX_INUSE_WARN},
                            {.word = "abort", .value = REGX_INUSE_ABORT},
                            {.word = "drain", .value = REGX_INUSE_DRAIN})),
    {.name = NULL}};

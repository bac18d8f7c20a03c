/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/registration.h"

#include "registration/cache.h"
#include "registration/device.h"
#include "registration/on_demand.h"

regx_status_t regx_registry_open(regx_registry_t *registry, const regx_backend_t *backend,
                                 struct regx_monitor *monitor,
                                 const struct regx_cache_config *cache, regx_transport_t *transport,
                                 regx_counters_t *counters)
{
    *registry = (regx_registry_t){
        .backend = backend, .transport = transport, .counters = counters, .monitor = monitor};
    if (monitor == NULL) { /* nobody tells of changes: nothing may be kept */
        return REGX_OK;
    }
    registry->on_demand = (monitor->flags & REGX_MONITOR_BY_DEVICE) != 0;
    registry->cache = regx_cache_open(registry, cache);
    return registry->cache != NULL ? REGX_OK : REGX_NO_MEMORY;
}

void regx_registry_close(regx_registry_t *registry)
{
    if (registry->cache != NULL) {
        regx_cache_close(registry->cache);
        registry->cache = NULL;
    }
}

static __attribute__((noinline)) regx_status_t acquire_on_demand(regx_registry_t *registry,
                                                                 void *base, size_t length,
                                                                 unsigned access,
                                                                 regx_region_t *region)
{
    struct regx_monitor *monitor = registry->monitor;

    if (!regx_on_demand_follows(monitor, base)) {
        return regx_device_register_once(registry, base, length, access, region);
    }
    regx_status_t status =
        regx_cache_acquire(registry->cache, base, length, access | REGX_ACCESS_ON_DEMAND, region);
    if (status == REGX_OK) {
        status = regx_on_demand_ready(monitor, region->mr, base, length, access);
        if (status != REGX_OK) {
            regx_cache_release(registry->cache, region);
        }
    }
    return status;
}

regx_status_t regx_region_acquire(regx_registry_t *registry, void *base, size_t length,
                                  unsigned access, regx_region_t *region)
{
    if (registry->cache == NULL) {
        return regx_device_register_once(registry, base, length, access, region);
    }
    return registry->on_demand ? acquire_on_demand(registry, base, length, access, region)
                               : regx_cache_acquire(registry->cache, base, length, access, region);
}

bool regx_region_seems_kept(regx_registry_t *registry, const void *base, size_t length,
                            unsigned access)
{
    return registry->cache != NULL && !registry->on_demand &&
           regx_cache_seems_kept(registry->cache, base, length, access);
}

bool regx_region_acquire_kept(regx_registry_t *registry, const void *base, size_t length,
                              unsigned access, regx_region_t *region)
{
    return registry->cache != NULL && !registry->on_demand &&
           regx_cache_acquire_kept(registry->cache, base, length, access, region);
}

void regx_region_release(regx_registry_t *registry, regx_region_t *region)
{
    if (registry->cache != NULL) {
        regx_cache_release(registry->cache, region);
    } else {
        regx_device_deregister(registry, &region->own);
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

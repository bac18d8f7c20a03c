/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/cache.h"

#include <stdlib.h>

struct regx_cache {
    regx_registry_t *registry;
};

regx_cache_t *regx_cache_open(regx_registry_t *registry, const regx_cache_config_t *config)
{
    regx_cache_t *cache = calloc(1, sizeof(*cache));

    (void)config;
    if (cache != NULL) {
        cache->registry = registry;
    }
    return cache;
}

void regx_cache_close(regx_cache_t *cache)
{
    free(cache);
}

regx_status_t regx_cache_acquire(regx_cache_t *cache, void *base, size_t length, unsigned access,
                                 regx_region_t *region)
{
    return regx_device_register_once(cache->registry, base, length, access, region);
}

void regx_cache_release(regx_cache_t *cache, regx_region_t *region)
{
    regx_device_deregister(cache->registry, &region->own);
}

void regx_cache_progress(regx_cache_t *cache)
{
    (void)cache;
}

void regx_cache_count(regx_cache_t *cache)
{
    (void)cache;
}

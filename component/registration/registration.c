/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/registration.h"

void regx_registry_init(regx_registry_t *registry, const regx_backend_t *backend,
                        regx_transport_t *transport, regx_counters_t *counters)
{
    registry->backend = backend;
    registry->transport = transport;
    registry->counters = counters;
}

regx_status_t regx_region_acquire(regx_registry_t *registry, void *base, size_t length,
                                  unsigned access, regx_region_t *region)
{
    return registry->backend->acquire(registry, base, length, access, region);
}

void regx_region_release(regx_registry_t *registry, regx_region_t *region)
{
    registry->backend->release(registry, region);
}

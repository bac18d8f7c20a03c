/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Registering with the transport's memory domain, counted.
 */
#ifndef REGX_REGISTRATION_DEVICE_H
#define REGX_REGISTRATION_DEVICE_H

#include "registration/registration.h"

/* Whether the device can register so much at once. */
static inline bool regx_device_takes(const regx_registry_t *registry, size_t length)
{
    const uint64_t max = registry->transport->mr_bytes;

    return max == 0 || length <= max;
}

/* REGX_NO_MEMORY also of what the device does not take. */
static inline regx_status_t regx_device_register(regx_registry_t *registry, void *base,
                                                 size_t length, unsigned access, regx_mr_t *mr)
{
    regx_counters_t *counters = registry->counters;
    regx_transport_t *transport = registry->transport;
    const regx_status_t status = regx_device_takes(registry, length)
                                     ? transport->ops->reg(transport, base, length, access, mr)
                                     : REGX_NO_MEMORY;

    if (status != REGX_OK) {
        return status;
    }
    /* The cache's thread deregisters, whatever the application has told of its own. */
    atomic_fetch_add(&counters->registrations, 1);
    atomic_fetch_add(&counters->registered_bytes, length);
    regx_count_high(&counters->largest_registration, length);
    regx_count_high(&counters->registered_high, atomic_load(&counters->registered_bytes));
    return REGX_OK;
}

static inline void regx_device_deregister(regx_registry_t *registry, regx_mr_t *mr)
{
    regx_counters_t *counters = registry->counters;
    const size_t length = mr->length;

    registry->transport->ops->dereg(registry->transport, mr);
    atomic_fetch_add(&counters->deregistrations, 1);
    atomic_fetch_sub(&counters->registered_bytes, length);
}

/* Registers exactly that range for one use, counted as uncached; region->own is to be
 * deregistered. */
static inline regx_status_t regx_device_register_once(regx_registry_t *registry, void *base,
                                                      size_t length, unsigned access,
                                                      regx_region_t *region)
{
    const regx_status_t status = regx_device_register(registry, base, length, access, &region->own);

    if (status == REGX_OK) {
        regx_count(registry->counters, &registry->counters->uncached, 1);
        region->mr = &region->own;
        region->kept = 0;
    }
    return status;
}

#endif

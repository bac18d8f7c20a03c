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
    const uint64_t most = registry->transport->mr_bytes;

    return most == 0 || length <= most;
}

/* REGX_NO_MEMORY also of what the device does not take. */
regx_status_t regx_device_register(regx_registry_t *registry, void *base, size_t length,
                                   unsigned access, regx_mr_t *mr);
void regx_device_deregister(regx_registry_t *registry, regx_mr_t *mr);

/* Registers exactly that range for one use, counted as uncached; region->own is to be
 * deregistered. */
regx_status_t regx_device_register_once(regx_registry_t *registry, void *base, size_t length,
                                        unsigned access, regx_region_t *region);

#endif

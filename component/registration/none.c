/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Backend `none`: registers and deregisters per use. Guarantees that no registration outlives the
 * transfer that made it, so none can be stale; a change of the mapping during a transfer is the
 * application's error. Needs to see no event. The honest baseline of every comparison.
 */
#include "registration/device.h"

static regx_status_t none_acquire(regx_registry_t *registry, void *base, size_t length,
                                  unsigned access, regx_region_t *region)
{
    regx_count(registry->counters, &registry->counters->uncached, 1);
    return regx_device_register(registry, base, length, access, &region->mr);
}

static void none_release(regx_registry_t *registry, regx_region_t *region)
{
    regx_device_deregister(registry, &region->mr);
}

const regx_backend_t regx_backend_none = {
    .name = "none", .acquire = none_acquire, .release = none_release};

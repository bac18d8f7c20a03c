/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/once.h"

#include "registration/regions.h"

/* What is received into has room of its own, and so has what is sent from: who receives much would else
 * have granted all the room there is before anything can be sent. */
static _Atomic uint64_t *taken(regx_registry_t *registry, unsigned access)
{
    return &registry->once[(access & REGX_ACCESS_ANY_WRITE) != 0];
}

static bool is_bounded(const regx_registry_t *registry, unsigned access)
{
    return registry->once_max != REGX_UNLIMITED && (access & REGX_ACCESS_ON_DEMAND) == 0;
}

bool regx_once_enter(regx_registry_t *registry, size_t length, unsigned access)
{
    if (!is_bounded(registry, access) ||
        atomic_fetch_add(taken(registry, access), length) + length <= registry->once_max) {
        return true;
    }
    atomic_fetch_sub(taken(registry, access), length);
    return false;
}

void regx_once_enter_anyway(regx_registry_t *registry, size_t length, unsigned access)
{
    if (is_bounded(registry, access)) {
        atomic_fetch_add(taken(registry, access), length);
    }
}

bool regx_once_has_room(const regx_registry_t *registry, size_t length)
{
    return registry->once_max == REGX_UNLIMITED ||
           (atomic_load(&registry->once[false]) + length <= registry->once_max &&
            atomic_load(&registry->once[true]) + length <= registry->once_max);
}

void regx_once_leave(regx_registry_t *registry, size_t length, unsigned access)
{
    if (is_bounded(registry, access)) {
        atomic_fetch_sub(taken(registry, access), length);
    }
}

/* Room has been taken. */
static regx_status_t register_entered(regx_registry_t *registry, void *base, size_t length,
                                      unsigned access, regx_region_t *region)
{
    const regx_status_t status = regx_device_register(registry, base, length, access, &region->own);

    if (status == REGX_OK) {
        regx_count(registry->counters, &registry->counters->uncached, 1);
        region->mr = &region->own;
        region->kept = 0;
    } else {
        regx_once_leave(registry, length, access);
        regx_device_trace_refusal(registry, base, length, status);
    }
    return status;
}

regx_status_t regx_once_register(regx_registry_t *registry, void *base, size_t length,
                                 unsigned access, regx_region_t *region)
{
    if (!regx_once_enter(registry, length, access)) {
        regx_device_trace_refusal(registry, base, length, REGX_NO_MEMORY);
        return REGX_NO_MEMORY;
    }
    return register_entered(registry, base, length, access, region);
}

regx_status_t regx_once_register_anyway(regx_registry_t *registry, void *base, size_t length,
                                        unsigned access, regx_region_t *region)
{
    regx_once_enter_anyway(registry, length, access);
    return register_entered(registry, base, length, access, region);
}

void regx_once_deregister(regx_registry_t *registry, regx_region_t *region)
{
    const size_t length = region->own.length;
    const unsigned access = region->own.access;

    regx_device_deregister(registry, &region->own);
    regx_once_leave(registry, length, access);
}

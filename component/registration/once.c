/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/once.h"

#include "registration/regions.h"

/* What is received into has room of its own, and so has what is sent from: who receives much would
 * else have granted all the room there is before anything can be sent. */
static _Atomic uint64_t *taken(regx_registry_t *registry, unsigned access)
{
    return &registry->once[(access & REGX_ACCESS_ANY_WRITE) != 0];
}

static bool is_bounded(const regx_registry_t *registry, unsigned access)
{
    return registry->once_max != REGX_UNLIMITED && (access & REGX_ACCESS_ON_DEMAND) == 0;
}

/* What does not fit takes nothing, not even for a moment: others would be refused for it. */
static bool take(_Atomic uint64_t *bytes, uint64_t max, size_t length)
{
    uint64_t before = atomic_load(bytes);

    do {
        if (length > max || before > max - length) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(bytes, &before, before + length));
    return true;
}

bool regx_once_enter(regx_registry_t *registry, size_t length, unsigned access,
                     regx_region_t *region)
{
    region->over_share =
        is_bounded(registry, access) && !take(taken(registry, access), registry->once_max, length);
    return !region->over_share;
}

void regx_once_leave(regx_registry_t *registry, size_t length, unsigned access)
{
    if (is_bounded(registry, access)) {
        atomic_fetch_sub(taken(registry, access), length);
    }
}

regx_status_t regx_once_register(regx_registry_t *registry, void *base, size_t length,
                                 unsigned access, regx_region_t *region)
{
    regx_status_t status = REGX_NO_MEMORY;

    if (regx_once_enter(registry, length, access, region)) {
        status = regx_mr_register(registry, base, length, access, &region->own);
        if (status != REGX_OK) {
            regx_once_leave(registry, length, access);
        }
    }
    if (status == REGX_OK) {
        regx_count(registry->counters, &registry->counters->uncached, 1);
        region->mr = &region->own;
        region->kept = 0;
    } else {
        regx_mr_trace_refusal(registry, base, length, status);
    }
    return status;
}

void regx_once_deregister(regx_registry_t *registry, regx_region_t *region)
{
    /* What was taken: a transport registers exactly what it is asked for (transport.h). */
    const size_t length = region->own.length;
    const unsigned access = region->own.access;

    regx_mr_deregister(registry, &region->own);
    regx_once_leave(registry, length, access);
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/once.h"

static void trace_refusal(const regx_registry_t *registry, const void *base, size_t length,
                          regx_status_t status)
{
    regx_trace(registry->trace, REGX_TRACE_PATH, "registration: %zu bytes at %p: refused, %s",
               length, base, status == REGX_NO_MEMORY ? "no room" : "not to be used so");
}

/* ---- the device ---- */

regx_status_t regx_mr_register(regx_registry_t *registry, void *base, size_t length,
                               unsigned access, regx_mr_t *mr)
{
    regx_counters_t *counters = registry->counters;
    regx_transport_t *transport = registry->transport;
    const int64_t begun = regx_now_ns();
    const regx_status_t status = transport->mr_bytes == 0 || length <= transport->mr_bytes
                                     ? transport->ops->reg(transport, base, length, access, mr)
                                     : REGX_NO_MEMORY;

    if (status != REGX_OK) {
        trace_refusal(registry, base, length, status);
        return status;
    }
    /* The cache's thread deregisters, whatever the application has told of its own. */
    atomic_fetch_add(&counters->registrations, 1);
    atomic_fetch_add(&counters->registering_ns, (uint64_t)(regx_now_ns() - begun));
    atomic_fetch_add(&counters->registered_bytes, length);
    regx_count_high(&counters->registered_high, atomic_load(&counters->registered_bytes));
    return REGX_OK;
}

void regx_mr_deregister(regx_registry_t *registry, regx_mr_t *mr)
{
    regx_counters_t *counters = registry->counters;
    const size_t length = mr->length;

    registry->transport->ops->dereg(registry->transport, mr);
    atomic_fetch_add(&counters->deregistrations, 1);
    atomic_fetch_sub(&counters->registered_bytes, length);
}

/* ---- for one use ---- */

/* Where the bytes are counted that serve one use each; NULL: they need no room, for there is no bound, or
 * nothing is pinned. What is received into has room of its own, and so has what is sent from: who
 * receives much would else have granted all the room there is before anything can be sent. */
static _Atomic uint64_t *share_of(regx_registry_t *registry, unsigned access)
{
    if (registry->once_max == REGX_UNLIMITED || (access & REGX_ACCESS_ON_DEMAND) != 0) {
        return NULL;
    }
    return &registry->once[(access & REGX_ACCESS_ANY_WRITE) != 0];
}

/* What does not fit takes nothing, not even for a moment: others would be refused for it. */
static bool enter(regx_registry_t *registry, const void *base, size_t length, unsigned access,
                  regx_region_t *region)
{
    _Atomic uint64_t *share = share_of(registry, access);

    region->over_share = false;
    if (share == NULL) {
        return true;
    }
    uint64_t before = atomic_load(share);

    do {
        if (length > registry->once_max || before > registry->once_max - length) {
            region->over_share = true;
            trace_refusal(registry, base, length, REGX_NO_MEMORY);
            return false;
        }
    } while (!atomic_compare_exchange_weak(share, &before, before + length));
    return true;
}

static void leave(regx_registry_t *registry, size_t length, unsigned access)
{
    _Atomic uint64_t *share = share_of(registry, access);

    if (share != NULL) {
        atomic_fetch_sub(share, length);
    }
}

/* region->own was registered for it. */
static void serve(regx_registry_t *registry, const char *reason, regx_region_t *region)
{
    if (reason != NULL) {
        regx_trace(registry->trace, REGX_TRACE_PATH,
                   "registration: %zu bytes at %p: for this use alone, %s", region->own.length,
                   region->own.base, reason);
    }
    region->mr = &region->own;
    region->kept = 0;
    region->owned = NULL;
    regx_count(registry->counters, &registry->counters->uncached, 1);
}

regx_status_t regx_once_register(regx_registry_t *registry, void *base, size_t length,
                                 unsigned access, const char *reason, regx_region_t *region)
{
    if (!enter(registry, base, length, access, region)) {
        return REGX_NO_MEMORY;
    }
    const regx_status_t status = regx_mr_register(registry, base, length, access, &region->own);

    if (status == REGX_OK) {
        serve(registry, reason, region);
    } else {
        leave(registry, length, access);
    }
    return status;
}

regx_status_t regx_once_take(regx_registry_t *registry, const char *reason, regx_region_t *region)
{
    if (!enter(registry, region->own.base, region->own.length, region->own.access, region)) {
        regx_mr_deregister(registry, &region->own);
        return REGX_NO_MEMORY;
    }
    serve(registry, reason, region);
    return REGX_OK;
}

void regx_once_deregister(regx_registry_t *registry, regx_region_t *region)
{
    /* What was taken: a transport registers exactly what it is asked for (transport.h). */
    const size_t length = region->own.length;
    const unsigned access = region->own.access;

    regx_mr_deregister(registry, &region->own);
    leave(registry, length, access);
}

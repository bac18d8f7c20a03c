/* SPDX-License-Identifier: BSD-3-Clause */
#include "registry.h"

#include "registration/registry.h"

static regx_status_t registry_reg(regx_transport_t *transport, void *base, size_t length,
                                  unsigned access, regx_mr_t *mr)
{
    registry_t *r = (registry_t *)transport;

    r->regs++;
    r->asked = access;
    if (r->during != NULL) {
        r->during(r, (uintptr_t)base, (uintptr_t)base + length);
    }
    if (r->refusals > 0) {
        r->refusals--;
        return r->refusal;
    }
    if ((access & r->refuse_access) != 0) {
        return REGX_DENIED;
    }
    if (r->no_room && r->live > 0) {
        return REGX_NO_MEMORY;
    }
    r->live++;
    *mr = (regx_mr_t){.base = base, .length = length, .access = access, .handle = r};
    return REGX_OK;
}

static void registry_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    registry_t *r = (registry_t *)transport;

    assert_ptr_equal(mr->handle, r);
    r->deregistered[r->deregs % 64] = (uintptr_t)mr->base;
    r->deregs++;
    r->live--;
    memset(mr, 0xee, sizeof(*mr)); /* nothing of it may be used after */
}

static const regx_transport_ops_t registry_ops = {
    .abi = REGX_TRANSPORT_ABI, .name = "noting", .reg = registry_reg, .dereg = registry_dereg};

static registry_t *registry_of_monitor(regx_monitor_t *monitor)
{
    return (registry_t *)((char *)monitor - offsetof(registry_t, monitor));
}

static bool registry_valid(regx_monitor_t *monitor)
{
    registry_t *r = registry_of_monitor(monitor);

    r->asks++;
    if (r->asking != NULL) {
        r->asking(r);
    }
    return !r->changing;
}

static regx_status_t registry_subscribe(regx_monitor_t *monitor, uintptr_t start, uintptr_t end,
                                        uint64_t *since)
{
    registry_t *r = registry_of_monitor(monitor);

    assert_true(start < end && start % PAGE == 0 && end % PAGE == 0);
    r->subscribes++;
    *since = monitor->log->head;
    return r->refuses_to_watch ? REGX_DENIED : REGX_OK;
}

static void registry_told(void *context, const void *base, size_t length)
{
    registry_t *r = context;

    r->told++;
    r->told_base = base;
    r->told_length = length;
}

static void open_registry(registry_t *r, regx_monitor_t *monitor, const regx_cache_config_t *config)
{
    regx_cache_config_t own = *config;

    own.changed_in_use = registry_told;
    own.context = r;
    r->transport.ops = &registry_ops;
    r->transport.registers = true;
    assert_int_equal(regx_registry_open(&r->registry, monitor, &own, &r->transport, &r->counters),
                     REGX_OK);
    r->cache = r->registry.cache;
}

registry_t *registry_open_over(regx_monitor_t *monitor, const regx_cache_config_t *config)
{
    registry_t *r = calloc(1, sizeof(*r));

    assert_non_null(r);
    open_registry(r, monitor, config);
    return r;
}

registry_t *registry_open_none(uint64_t once_bytes)
{
    return registry_open_over(NULL, &(regx_cache_config_t){.once_bytes = once_bytes});
}

registry_t *registry_open(uint64_t bytes, uint64_t count, bool asks)
{
    const regx_cache_config_t config = {.bytes = bytes, .count = count};
    registry_t *r = calloc(1, sizeof(*r));

    assert_non_null(r);
    r->monitor.log = regx_inval_log_open();
    assert_non_null(r->monitor.log);
    if (asks) {
        r->monitor.valid = registry_valid;
        r->monitor.subscribe = registry_subscribe;
    }
    open_registry(r, &r->monitor, &config);
    return r;
}

registry_t *registry_open_large(bool asks)
{
    return registry_open(UNLIMITED, UNLIMITED, asks);
}

registry_t *registry_open_threaded(uint64_t count, bool asks)
{
    registry_t *r = registry_open(REGX_UNLIMITED, count, asks);

    r->counters.threads = true;
    return r;
}

void registry_close(registry_t *r)
{
    regx_registry_close(&r->registry);
    assert_int_equal(r->live, 0);
    assert_int_equal(r->counters.registrations, r->counters.deregistrations);
    assert_int_equal(r->counters.registered_bytes, 0);
    if (r->monitor.log != NULL) {
        /* Nothing is of interest any more: no change is logged. */
        const uint64_t head = r->monitor.log->head;

        for (uintptr_t at = PAGE; at < (UINT64_C(1) << 30); at += (uintptr_t)1 << 21) {
            regx_inval_log_write(r->monitor.log, at, at + PAGE);
        }
        assert_int_equal(r->monitor.log->head, head);
        regx_inval_log_close(r->monitor.log);
    }
    free(r);
}

regx_status_t registry_try(registry_t *r, uintptr_t base, size_t length, unsigned access,
                           regx_region_t *region)
{
    return regx_region_acquire(&r->registry, (void *)base, length, access, region);
}

void registry_get(registry_t *r, uintptr_t base, size_t length, regx_region_t *region)
{
    assert_int_equal(registry_try(r, base, length, REGX_ACCESS_REMOTE_WRITE, region), REGX_OK);
    assert_true((uintptr_t)region->mr->base <= base &&
                base + length <= (uintptr_t)region->mr->base + region->mr->length);
    assert_true((region->mr->access & REGX_ACCESS_REMOTE_WRITE) != 0);
}

void registry_use(registry_t *r, uintptr_t base, size_t length)
{
    regx_region_t region;

    registry_get(r, base, length, &region);
    regx_region_release(&r->registry, &region);
}

served_t registry_served(registry_t *r, uintptr_t base, size_t length)
{
    const unsigned regs = r->regs;
    const uint64_t misses = r->counters.misses, once = r->counters.uncached;

    regx_registry_count(&r->registry);
    const uint64_t hits = r->counters.hits;

    registry_use(r, base, length);
    regx_registry_count(&r->registry);
    assert_int_equal(
        r->counters.hits - hits + r->counters.misses - misses + r->counters.uncached - once, 1);
    assert_true((r->regs == regs) == (r->counters.hits > hits));
    return r->counters.hits > hits ? HIT : r->counters.misses > misses ? MISS : ONCE;
}

void registry_log(registry_t *r, uintptr_t start, size_t length)
{
    regx_inval_log_write(r->monitor.log, start, start + length);
}

// SPDX-License-Identifier: BSD-3-Clause
//
// regx's cache with one of its backends, by the names of btl_regx_backend.

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "compat/compat.h"
#include "opal/runtime/opal.h"
#include "registration/registry.h"

static struct {
    regx_counters_t counters;
    regx_transport_t transport;
    regx_registry_t registry;
    regx_backend_choice_t choice;
} regx;

_Static_assert(sizeof(regx_region_t) <= sizeof(cache_use_t), "a use has room");

// ---- the empty domain

static regx_status_t domain_register(regx_transport_t *transport, void *base, size_t length,
                                     unsigned access, regx_mr_t *mr)
{
    (void)transport;
    *mr = (regx_mr_t){.base = base, .length = length, .access = access};
    return REGX_OK;
}

static void domain_deregister(regx_transport_t *transport, regx_mr_t *mr)
{
    (void)transport, (void)mr;
}

static const regx_transport_ops_t domain = {
    .abi = REGX_TRANSPORT_ABI, .name = "empty", .reg = domain_register, .dereg = domain_deregister};

// Hooks are Open MPI's, which wants to be started.
static bool start_openmpi(void)
{
    static char name[] = "regx", *arguments[] = {name, NULL};
    char **argv = arguments;
    int argc = 1;

    return opal_init(&argc, &argv) == OPAL_SUCCESS;
}

bool cache_open(const char *name, cache_kind_t *kind, char *why, size_t size)
{
    const regx_cache_config_t cache = {.bytes = REGX_UNLIMITED, .count = REGX_UNLIMITED};
    regx_monitor_config_t monitor = {.counters = &regx.counters};
    regx_error_t error;

    if (regx_backend_find(name) == NULL) {
        snprintf(why, size, "unknown backend \"%s\"", name);
        return false;
    }
    if (strncmp(name, "hooks", 5) == 0) {
        if (!start_openmpi()) {
            snprintf(why, size, "Open MPI's library does not start");
            return false;
        }
        monitor.hooks = &regx_compat_hooks;
    }
    regx.transport.ops = &domain;
    if (regx_backend_choose(name, false, &monitor, &regx.choice, error) != REGX_OK) {
        snprintf(why, size, "%s", error);
        return false;
    }
    if (regx_registry_open(&regx.registry, regx.choice.monitor, &cache, &regx.transport,
                           &regx.counters) != REGX_OK) {
        snprintf(why, size, "out of memory");
        return false;
    }
    *kind = regx.choice.monitor == NULL ? PER_USE : strcmp(name, "retain") == 0 ? BLIND : TOLD;
    return true;
}

int cache_acquire(void *base, size_t length, cache_use_t *use)
{
    return (int)regx_region_acquire(&regx.registry, base, length, REGX_ACCESS_REMOTE_WRITE,
                                    (regx_region_t *)use->bytes);
}

void cache_release(cache_use_t *use)
{
    regx_region_release(&regx.registry, (regx_region_t *)use->bytes);
}

bool cache_query(void)
{
    regx_monitor_t *monitor = regx.choice.monitor;

    return monitor != NULL && monitor->valid != NULL && (monitor->valid(monitor), true);
}

// Progress does a bounded amount each time. What the notifier has read it may not have logged yet.
void cache_settle(void)
{
    const regx_monitor_t *monitor = regx.choice.monitor;
    uint64_t before;

    while (monitor != NULL && atomic_load(&monitor->log->sequence) % 2 != 0) {
        sched_yield();
    }
    do {
        before = cache_deregistrations();
        regx_registry_progress(&regx.registry);
    } while (cache_deregistrations() != before);
}

uint64_t cache_registrations(void)
{
    return atomic_load(&regx.counters.registrations);
}

uint64_t cache_deregistrations(void)
{
    return atomic_load(&regx.counters.deregistrations);
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "rig.h"

#include <sys/mman.h>

#include "../stamp.h"
#include "hold.h"

/* ---- the monitor that never tells ---- */

static void deaf_stop(regx_monitor_t *monitor)
{
    regx_inval_log_close(monitor->log);
    free(monitor);
}

static regx_status_t deaf_start(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                                regx_error_t error)
{
    (void)config;
    (void)error;
    *monitor = calloc(1, sizeof(**monitor));
    if (*monitor == NULL) {
        abort();
    }
    **monitor = (regx_monitor_t){.log = regx_inval_log_open(), .stop = deaf_stop};
    return REGX_OK;
}

static const regx_backend_t unprotected = {.name = "unprotected", .start = deaf_start};

/* ---- opening ---- */

static regx_status_t choose(rig_t *rig, regx_error_t why)
{
    regx_monitor_config_t monitor = {.counters = &rig->counters,
                                     .transport = oracle_transport(rig->oracle)};

    if (strcmp(rig->backend, "unprotected") == 0) {
        rig->choice.backend = &unprotected;
        return unprotected.start(&monitor, &rig->choice.monitor, why);
    }
    if (strncmp(rig->backend, "hooks", strlen("hooks")) == 0) {
        rig_hooks(&monitor);
    }
    return regx_backend_choose(rig->backend, false, &monitor, &rig->choice, why);
}

bool rig_open(rig_t *rig, const char *backend, uint64_t count, regx_error_t why)
{
    const regx_cache_config_t cache = {.bytes = REGX_UNLIMITED,
                                       .count = count > 0 ? count : REGX_UNLIMITED};

    memset(rig, 0, sizeof(*rig));
    rig->backend = backend;
    rig->counters.threads = true;
    rig->oracle = oracle_open(why);
    if (rig->oracle == NULL) {
        return false;
    }
    if (choose(rig, why) != REGX_OK) {
        oracle_close(rig->oracle);
        return false;
    }
    if (regx_registry_open(&rig->registry, rig->choice.monitor, &cache,
                           oracle_transport(rig->oracle), &rig->counters) != REGX_OK) {
        fprintf(stderr, "rig: no memory for a registry\n");
        abort();
    }
    return true;
}

void rig_close(rig_t *rig)
{
    regx_registry_close(&rig->registry);
    if (rig->choice.monitor != NULL) {
        rig->choice.monitor->stop(rig->choice.monitor);
    }
    oracle_close(rig->oracle);
}

/* ---- transfers ---- */

void rig_fill(void *base, size_t length, uint64_t stamp)
{
    stamp_fill(base, length, ~stamp, 0); /* of key 0 the first bytes would be zeros */
}

uint64_t rig_count(rig_t *rig, const _Atomic uint64_t *counter)
{
    regx_registry_count(&rig->registry);
    return atomic_load(counter);
}

void rig_report(rig_t *rig, uint64_t seed, uint64_t changes, uint64_t transfers, uint64_t bytes)
{
    const regx_counters_t *counters = &rig->counters;

    regx_registry_count(&rig->registry);
    printf("seed %llu changes %llu transfers %llu bytes %llu hits %llu uncached %llu "
           "invalidations %llu evictions %llu",
           (unsigned long long)seed, (unsigned long long)changes, (unsigned long long)transfers,
           (unsigned long long)bytes, (unsigned long long)counters->hits,
           (unsigned long long)counters->uncached, (unsigned long long)counters->invalidations,
           (unsigned long long)counters->evictions);
}

/* This thread's. Not from malloc, whose doings may be what is tested. */
static void *scratch(size_t length)
{
    static _Thread_local void *memory;
    static _Thread_local size_t size;

    if (size < length) {
        if (memory != NULL) {
            munmap(memory, size);
        }
        memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            abort();
        }
        size = length;
    }
    return memory;
}

transfer_t rig_transfer(rig_t *rig, direction_t direction, void *base, size_t length,
                        uint64_t stamp)
{
    const uint64_t hits = rig_count(rig, &rig->counters.hits);
    transfer_t transfer = {0};
    regx_region_t region;

    transfer.status = regx_region_acquire(
        &rig->registry, base, length,
        direction == SEND ? REGX_ACCESS_LOCAL : REGX_ACCESS_REMOTE_WRITE, &region);
    if (transfer.status != REGX_OK) {
        return transfer;
    }
    transfer.hit = rig_count(rig, &rig->counters.hits) != hits;
    unsigned char *const data = scratch(length), *const here = base;

    if (direction == SEND) {
        oracle_send(rig->oracle, region.mr, base, length, data);
        transfer.right = memcmp(data, here, length) == 0 ? length : 0;
        while (transfer.right < length && data[transfer.right] == here[transfer.right]) {
            transfer.right++;
        }
    } else {
        rig_fill(data, length, stamp);
        oracle_receive(rig->oracle, region.mr, base, length, data);
        transfer.right = stamp_check(base, length, ~stamp, 0);
    }
    regx_region_release(&rig->registry, &region);
    return transfer;
}

/* ---- the notifier's reader ---- */

void rig_settle(const rig_t *rig)
{
    const regx_monitor_t *monitor = rig->choice.monitor;

    await(monitor == NULL || atomic_load(&monitor->log->sequence) % 2 == 0);
}

bool rig_can_hold(const rig_t *rig)
{
    return strstr(rig->backend, "notifier") != NULL;
}

void rig_hold(rig_t *rig, bool hold)
{
    if (rig_can_hold(rig)) {
        hold_reader(hold ? HOLD_BEFORE_READ : HOLD_NOWHERE);
    }
}

bool rig_held(const rig_t *rig)
{
    return rig_can_hold(rig) && hold_is_held();
}

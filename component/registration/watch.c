/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "registration/registration.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/util.h"

/* since: the head of the log as it was before watching began. */
static bool subscribe(const regx_watch_t *watch, uint64_t *since)
{
    regx_monitor_t *monitor = watch->monitor;

    *since = atomic_load(&monitor->log->head);
    return monitor->subscribe == NULL ||
           monitor->subscribe(monitor, watch->start, watch->end, since) == REGX_OK;
}

bool regx_watch_renew(regx_watch_t *watch)
{
    uint64_t since;

    return subscribe(watch, &since);
}

/* As of a region: interest, then the head, then watching (component/design/cache.md). */
bool regx_watch_begin(regx_watch_t *watch, regx_registry_t *registry, const void *base,
                      size_t length)
{
    const uintptr_t mask = regx_page_size() - 1;
    regx_monitor_t *monitor = registry->monitor;

    *watch = (regx_watch_t){.monitor = monitor,
                            .start = (uintptr_t)base & ~mask,
                            .end = ((uintptr_t)base + length + mask) & ~mask};
    if (monitor == NULL || (monitor->flags & REGX_MONITOR_BY_DEVICE) != 0 ||
        watch->end <= watch->start) {
        watch->monitor = NULL;
        return false;
    }
    regx_inval_log_interest(monitor->log, watch->start, watch->end, 1);
    const bool subscribed = subscribe(watch, &watch->next);
    if (!subscribed) {
        regx_watch_end(watch);
    }
    return subscribed;
}

void regx_watch_end(regx_watch_t *watch)
{
    if (watch->monitor != NULL) {
        regx_inval_log_interest(watch->monitor->log, watch->start, watch->end, -1);
        watch->monitor = NULL;
    }
}

void regx_watch_flush(regx_watch_t *watch)
{
    watch->own++;
    regx_inval_log_write(watch->monitor->log, watch->start, watch->end);
}

/* Whether it is one of our own; or one that is just like it, for which the other then stands. */
static bool is_own(regx_watch_t *watch, const regx_change_t *change)
{
    const bool own = watch->own > 0 && change->start == watch->start && change->end == watch->end;

    watch->own -= own;
    return own;
}

/* In the order of a look-up in the cache (component/design/cache.md): query, sequence, head. */
static bool is_certain(const regx_watch_t *watch)
{
    regx_monitor_t *monitor = watch->monitor;

    return (monitor->valid == NULL || monitor->valid(monitor, watch->start, watch->end)) &&
           atomic_load(&monitor->log->sequence) % 2 == 0;
}

regx_watch_state_t regx_watch_look(regx_watch_t *watch, bool certain, uintptr_t *first)
{
    const regx_inval_log_t *log = watch->monitor->log;
    bool sure = !certain || is_certain(watch);
    const uint64_t head = atomic_load(&log->head);
    uintptr_t lowest = UINTPTR_MAX;

    while (watch->next != head) {
        regx_change_t change = {.start = watch->start, .end = watch->end}; /* if it is lost */
        const regx_change_state_t state = regx_inval_log_read(log, watch->next, &change);

        if (state == REGX_CHANGE_LATER) {
            sure = !certain;
            break;
        }
        if (state == REGX_CHANGE_LOST) {
            change = (regx_change_t){.start = watch->start, .end = watch->end};
            watch->own = 0;
        } else if (is_own(watch, &change)) {
            watch->next++;
            continue;
        }
        if (change.start < watch->end && change.end > watch->start) {
            lowest = regx_min(lowest, regx_max(change.start, watch->start));
        }
        watch->next = state == REGX_CHANGE_LOST ? head : watch->next + 1;
    }
    *first = lowest;
    return lowest != UINTPTR_MAX ? REGX_WATCH_CHANGED : sure ? REGX_WATCH_QUIET : REGX_WATCH_UNSURE;
}

bool regx_watch_is_mapped(const regx_watch_t *watch, uintptr_t from)
{
    const size_t page = regx_page_size();
    unsigned char resident[1024];

    for (uintptr_t at = from & ~(page - 1); at < watch->end; at += sizeof(resident) * page) {
        const size_t length = regx_min(watch->end - at, sizeof(resident) * page);
        int status;

        do {
            status = mincore((void *)at, length, resident);
        } while (status != 0 && errno == EAGAIN);
        if (status != 0) {
            return false;
        }
    }
    return true;
}

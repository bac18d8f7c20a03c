/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A watch: whether memory has changed since somebody began to watch it, and where. For who has to
 * know of each change as long as a transfer lasts, registered or not (rendezvous/revoke.c). It
 * reads the monitor's log of changes beside the caches, and keeps changes of its range from being
 * left out there.
 *
 * What it sees is what the monitor sees. Some changes are reported before they take effect (all by
 * hooks; to the notifier MADV_DONTNEED, MADV_FREE and MADV_REMOVE): that one was seen does not mean
 * that it is over.
 *
 * One thread at a time uses a watch; any, holding no lock.
 */
#ifndef REGX_REGISTRATION_WATCH_H
#define REGX_REGISTRATION_WATCH_H

#include "registration/registration.h"

typedef struct regx_watch {
    regx_monitor_t *monitor; /* NULL: nothing is watched */
    uintptr_t start, end;    /* whole pages */
    uint64_t next;           /* the first change that was not yet looked at */
    unsigned own;            /* of those: how many are regx_watch_flush's */
} regx_watch_t;

typedef enum regx_watch_state {
    REGX_WATCH_QUIET,  /* no change since the last look */
    REGX_WATCH_UNSURE, /* none that is known; but one is under way, or being told, of something */
    REGX_WATCH_CHANGED
} regx_watch_state_t;

/* Changes of that range are seen from now on. false: nobody reports them; nothing is to be ended.
 */
bool regx_watch_begin(regx_watch_t *watch, regx_registry_t *registry, const void *base,
                      size_t length);
/* To be called when other memory may be mapped there. false: nobody reports changes from now on.
 * The watch goes on in any case. What was not watched until now counts as changed, by the next
 * look.
 */
bool regx_watch_renew(regx_watch_t *watch);
void regx_watch_end(regx_watch_t *watch);
/* What is registered of that range is given up, as if it had changed: perhaps it was registered
 * between a change being reported and its being made. The watch itself does not see it as a
 * change. */
void regx_watch_flush(regx_watch_t *watch);

/* Whether there is anything to look at: a load. Any thread. */
static inline bool regx_watch_has_news(const regx_watch_t *watch)
{
    return atomic_load_explicit(&watch->monitor->log->head, memory_order_relaxed) != watch->next;
}

/* What happened since the last look, or since the beginning. CHANGED: *first is the lowest address
 * that changed, at least `start`. certain: no change that ended before the call may be missed,
 * which by the notifier takes a system call; otherwise one may be seen by a later look. UNSURE only
 * if certain. */
regx_watch_state_t regx_watch_look(regx_watch_t *watch, bool certain, uintptr_t *first);

/* Whether something is mapped everywhere from that address on, as far as the range goes. */
bool regx_watch_is_mapped(const regx_watch_t *watch, uintptr_t from);

#endif

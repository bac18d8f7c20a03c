/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The entrance to a wire that one thread at a time may use, where calls come from any thread and
 * also from inside its own callbacks.
 *
 * A call that finds another thread inside answers REGX_AGAIN instead of waiting, so that no lock
 * of the caller's can close a circle; a call from inside deliver or done goes through. Costs
 * nothing where the job has one thread.
 */
#ifndef REGX_TRANSPORT_ENTRANCE_H
#define REGX_TRANSPORT_ENTRANCE_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/lock.h"

typedef struct regx_entrance {
    regx_lock_t lock;
    _Atomic uintptr_t owner; /* who is inside, and how deep (calls from callbacks) */
    unsigned depth;
} regx_entrance_t;

static inline void regx_entrance_init(regx_entrance_t *entrance, bool threads)
{
    regx_lock_init(&entrance->lock, threads);
    atomic_init(&entrance->owner, 0);
    entrance->depth = 0;
}

static inline void regx_entrance_fini(regx_entrance_t *entrance)
{
    regx_lock_fini(&entrance->lock);
}

/* Enters if no other thread is inside. Whoever entered leaves. */
static inline bool regx_enter(regx_entrance_t *entrance)
{
    const uintptr_t self = (uintptr_t)pthread_self();

    if (!entrance->lock.real) {
        return true;
    }
    if (atomic_load_explicit(&entrance->owner, memory_order_relaxed) != self) {
        if (!regx_trylock(&entrance->lock)) {
            return false;
        }
        atomic_store_explicit(&entrance->owner, self, memory_order_relaxed);
    }
    entrance->depth++;
    return true;
}

/* Enters once no other thread is inside. Not from a callback, nor with a lock that one takes. */
static inline void regx_enter_wait(regx_entrance_t *entrance)
{
    if (entrance->lock.real) {
        regx_lock(&entrance->lock);
        atomic_store_explicit(&entrance->owner, (uintptr_t)pthread_self(), memory_order_relaxed);
        entrance->depth = 1;
    }
}

static inline void regx_leave(regx_entrance_t *entrance)
{
    if (entrance->lock.real && --entrance->depth == 0) {
        atomic_store_explicit(&entrance->owner, 0, memory_order_relaxed);
        regx_unlock(&entrance->lock);
    }
}

#endif

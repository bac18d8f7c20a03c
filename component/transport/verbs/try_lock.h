/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A lock for a device that one thread at a time may use, where calls come from any thread and also
 * from inside the device's own callbacks.
 *
 * A call that finds another thread inside does not wait but answers REGX_AGAIN, so that no lock of
 * its caller can be part of a deadlock. A call from inside deliver or done goes through. In a job
 * of one thread it costs one branch.
 */
#ifndef REGX_VERBS_TRY_LOCK_H
#define REGX_VERBS_TRY_LOCK_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/thread.h"

typedef struct regx_try_lock {
    regx_lock_t lock;
    _Atomic uintptr_t owner; /* the thread that is inside; 0: none */
    unsigned depth;          /* how often it has entered: calls from callbacks */
} regx_try_lock_t;

static inline void regx_try_lock_init(regx_try_lock_t *lock, bool threads)
{
    regx_lock_init(&lock->lock, threads);
    atomic_init(&lock->owner, 0);
    lock->depth = 0;
}

static inline void regx_try_lock_fini(regx_try_lock_t *lock)
{
    regx_lock_fini(&lock->lock);
}

/* Enters, if no other thread is inside. Every true is followed by a leave. */
static inline bool regx_try_lock_enter(regx_try_lock_t *lock)
{
    const uintptr_t self = (uintptr_t)pthread_self();

    if (!lock->lock.real) {
        return true;
    }
    if (atomic_load_explicit(&lock->owner, memory_order_relaxed) != self) {
        if (!regx_trylock(&lock->lock)) {
            return false;
        }
        atomic_store_explicit(&lock->owner, self, memory_order_relaxed);
    }
    lock->depth++;
    return true;
}

/* Waits until no other thread is inside, and enters. Not from a callback, and not with a lock held
 * that a callback takes. */
static inline void regx_try_lock_wait(regx_try_lock_t *lock)
{
    if (lock->lock.real) {
        regx_lock(&lock->lock);
        atomic_store_explicit(&lock->owner, (uintptr_t)pthread_self(), memory_order_relaxed);
        lock->depth = 1;
    }
}

static inline void regx_try_lock_leave(regx_try_lock_t *lock)
{
    if (lock->lock.real && --lock->depth == 0) {
        atomic_store_explicit(&lock->owner, 0, memory_order_relaxed);
        regx_unlock(&lock->lock);
    }
}

#endif

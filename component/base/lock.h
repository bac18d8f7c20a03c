/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A lock that costs one predictable branch when the MPI job has a single thread.
 *
 * Whether a lock is real is decided when it is made, from the thread level of the job; sections
 * under it are short: no call into Open MPI, no copy of more than an eager message (but
 * see transport/rkey_table.h), no wait.
 *
 * Lock order, outermost first:
 *   1. `closing` of btl/component.h. Always real.
 *   2. the rendezvous engine's, or that of one-sided operations
 *   3. a connection's. While a path is made, the multiplexer's is held over the path's own.
 *   4. the leaves, of which a thread holds one at a time: the pool's, the registration cache's, the
 *      rkey table's, shared memory's lists (landing.h, owned.h), a module's endpoints
 *      (btl/module.h), a device's connections (verbs/verbs.h). Two leaves are always real, since
 *      threads that are not the job's take them: the notifier's for arming
 *      (registration/uffd_ranges.c), and the one that fork takes (registration/notifier.c).
 */
#ifndef REGX_BASE_LOCK_H
#define REGX_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>

typedef struct regx_lock {
    pthread_mutex_t mutex;
    bool real;
} regx_lock_t;

static inline void regx_lock_init(regx_lock_t *lock, bool threads)
{
    pthread_mutex_init(&lock->mutex, NULL);
    lock->real = threads;
}

static inline void regx_lock_fini(regx_lock_t *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

/* Whether more than one thread may ask for it. */
static inline bool regx_lock_is_real(const regx_lock_t *lock)
{
    return lock->real;
}

static inline void regx_lock(regx_lock_t *lock)
{
    if (lock->real) {
        pthread_mutex_lock(&lock->mutex);
    }
}

static inline bool regx_trylock(regx_lock_t *lock)
{
    return !lock->real || pthread_mutex_trylock(&lock->mutex) == 0;
}

static inline void regx_unlock(regx_lock_t *lock)
{
    if (lock->real) {
        pthread_mutex_unlock(&lock->mutex);
    }
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Locks, and threads of our own beside the application's.
 */
#ifndef REGX_BASE_THREAD_H
#define REGX_BASE_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- locks ----
 * A lock that costs one predictable branch when the MPI job has a single thread.
 *
 * Whether a lock is real is decided when it is made, from the thread level of the job; sections
 * under it are short: no call into Open MPI, no copy of more than an eager message, no wait (but
 * pinned's, which is held while a piece is transferred).
 *
 * Lock order, outermost first:
 *   1. `closing` of btl/component.h, and that of library/ (domain.c)
 *   2. of a fork: the one in registration/monitor/notifier.c
 *   3. the rendezvous engine's (rendezvous/engine.h), or that of one-sided operations
 *      (onesided/onesided.h). Messages are sent with it held.
 *   4. a connection's over shared memory (shm_internal.h), or the device's over verbs. For the
 *      latter no caller waits (verbs/verbs.h), but one that disconnects, with no lock held. So
 *      callbacks, which run with it held, may take the locks of 3.
 *   5. the leaves, of which a thread holds one at a time:
 *      - the pool's (pool/pool.h)
 *      - a module's: its endpoints, their queues, and fragments kept for use (btl/module.h)
 *      - of the locks that osc/rdma holds (btl/window.c): always real, since it is made before the
 *        job's thread level is known
 *      - of the memory that remap exchanges (rendezvous/landing.c)
 *      - of owned memory (registration/registry.h)
 *      - shared memory's two (shm_internal.h)
 *      - of the connections of a port (verbs/verbs.h)
 *      - the registration cache's (registration/cache.h), of the regions of pinned (pinned/pinned.h),
 *        and of the ranges that the notifier watches (registration/monitor/uffd.h): always real, as are
 *        those of 1 and 2, since threads that are not the job's take them, too
 */

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

/* A lock for what takes less than a microsecond and happens often: one locked instruction. It is always
 * real. Who finds it taken looks at it some microseconds, and then takes naps: the thread that has it
 * may be one that was taken off this very core. */
typedef struct regx_spin {
    _Atomic uint32_t taken;
} regx_spin_t;

void regx_spin_wait(regx_spin_t *lock);

static inline void regx_spin_lock(regx_spin_t *lock)
{
    if (__builtin_expect(atomic_exchange_explicit(&lock->taken, 1, memory_order_acquire) != 0,
                         false)) {
        regx_spin_wait(lock);
    }
}

static inline void regx_spin_unlock(regx_spin_t *lock)
{
    atomic_store_explicit(&lock->taken, 0, memory_order_release);
}

/* ---- threads of our own ----
 * How they are started, sleep and are woken. They make system calls directly instead of through
 * libc: a preloaded tracer may wrap read() or poll(), and take a lock or allocate there, while
 * another thread waits for ours. */

/* Starts a thread that takes no signal, has the ordinary policy whatever the caller's is, and may
 * run on every core that the process may have: on the caller's alone, one that spins there with
 * real-time priority would keep it from ever running. 0, or an errno. The caller joins it. */
int regx_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument);

/* Sleeps while the word has that value, up to so many milliseconds (0: without end); may also
 * return for no reason. Both are single system calls: no lock, no allocation. */
void regx_thread_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds);
/* Wakes all that sleep there. Anybody, also within malloc or a hook. */
void regx_thread_wake(_Atomic uint32_t *word);

/* Returns what the kernel does: a negated errno when it refuses. Does not touch errno. */
static inline long regx_raw(long number, long a, long b, long c, long d, long e)
{
#ifdef __x86_64__
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
#else
    const int before = errno;
    const long result = syscall(number, a, b, c, d, e);
    const long answer = result == -1 ? -errno : result;

    errno = before;
    return answer;
#endif
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/thread.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>

int regx_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    cpu_set_t cores;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    memset(&cores, 0xff, sizeof(cores)); /* the kernel takes those that the process may have */
    pthread_attr_init(&attributes);      /* glibc's does not fail */
    /* The attributes' policy is the ordinary one. */
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setaffinity_np(&attributes, sizeof(cores), &cores);
    int error = pthread_create(thread, &attributes, run, argument);
    pthread_attr_destroy(&attributes);
    if (error != 0) { /* a filter may refuse to have them set */
        error = pthread_create(thread, NULL, run, argument);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) {
        pthread_setname_np(*thread, name);
    }
    return error;
}

#define SPINS 1000 /* 20 to 60 us */

static void pause_briefly(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

void regx_spin_wait(regx_spin_t *lock)
{
    for (unsigned i = 1; atomic_load_explicit(&lock->taken, memory_order_relaxed) != 0 ||
                         atomic_exchange_explicit(&lock->taken, 1, memory_order_acquire) != 0;
         i++) {
        if (i % SPINS == 0) {
            regx_thread_wait(&lock->taken, 1, 1);
        } else {
            pause_briefly();
        }
    }
}

void regx_thread_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds)
{
    const struct timespec time = {.tv_sec = milliseconds / 1000,
                                  .tv_nsec = (long)(milliseconds % 1000) * 1000000};

    regx_raw(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, value, milliseconds > 0 ? (long)&time : 0,
             0);
}

void regx_thread_wake(_Atomic uint32_t *word)
{
    regx_raw(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, INT_MAX, 0, 0);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Threads of our own beside the application's: how they are started, sleep and are woken. They make
 * system calls directly instead of through libc: a preloaded tracer may wrap read() or poll(), and
 * take a lock or allocate there, while another thread waits for ours.
 */
#ifndef REGX_BASE_THREAD_H
#define REGX_BASE_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Starts a thread that takes no signal, has the ordinary policy whatever the caller's is, and may
 * run on every core that the process may have: on the caller's alone, one that spins there with
 * real-time priority would keep it from ever running. 0, or an errno. The caller joins it. */
int regx_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument);

/* Sleeps while the word has that value, up to so many milliseconds (0: without end); may also
 * return for no reason. Both are single system calls: no lock, no allocation. */
void regx_thread_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds);
/* Wakes all that sleep there. Anybody, also within malloc or a hook. */
void regx_thread_wake(_Atomic uint32_t *word);

/* Returns what the kernel does: a negated errno when it refuses. Does not touch errno on x86-64. */
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
    const long result = syscall(number, a, b, c, d, e);

    return result == -1 ? -errno : result;
#endif
}

#endif

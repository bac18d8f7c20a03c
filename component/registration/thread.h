/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Threads of our own beside the application's.
 */
#ifndef REGX_REGISTRATION_THREAD_H
#define REGX_REGISTRATION_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* Starts a thread that takes no signal, has the ordinary policy whatever the caller's is, and may
 * run on every core that the process may have: on the caller's alone, one that spins there with
 * real-time priority would keep it from ever running. 0, or an errno. The caller joins it. */
int regx_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument);

/* Sleeps while the word has that value, up to so many milliseconds (0: without end); may also
 * return for no reason. Both are single system calls: no lock, no allocation. */
void regx_thread_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds);
/* Wakes all that sleep there. Anybody, also within malloc or a hook. */
void regx_thread_wake(_Atomic uint32_t *word);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Threads of our own beside the application's.
 */
#ifndef REGX_BASE_THREAD_H
#define REGX_BASE_THREAD_H

#include <pthread.h>

/* Starts a thread that takes no signal, has the ordinary policy whatever the caller's is, and may
 * run on every core that the process may have: on the caller's alone, one that spins there with
 * real-time priority would keep it from ever running. 0, or an errno. The caller joins it. */
int regx_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument);

#endif

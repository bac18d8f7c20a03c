/* SPDX-License-Identifier: BSD-3-Clause
 *
 * See threads_pthreads_mutex.h.
 */
#ifndef REGX_COMPAT_THREADS_PTHREADS_THREADS_H
#define REGX_COMPAT_THREADS_PTHREADS_THREADS_H

#include <sched.h>

static inline void opal_thread_yield(void)
{
    sched_yield();
}

#endif

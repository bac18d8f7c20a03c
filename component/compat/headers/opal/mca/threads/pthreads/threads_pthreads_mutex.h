/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Open MPI 5 and later installs headers that include this one, but not this one itself. What those
 * use of it is here, over POSIX threads: the types have to be of the same size, and the functions
 * do what their names say. Looked for behind all other folders, so that an installed one is
 * preferred.
 */
#ifndef REGX_COMPAT_THREADS_PTHREADS_MUTEX_H
#define REGX_COMPAT_THREADS_PTHREADS_MUTEX_H

#include <pthread.h>
#include <stdbool.h>

#include "opal/class/opal_object.h"
#include "opal/constants.h"
#include "opal/util/show_help.h"

typedef pthread_mutex_t opal_thread_internal_mutex_t;
typedef pthread_cond_t opal_thread_internal_cond_t;

#define OPAL_THREAD_INTERNAL_MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#define OPAL_THREAD_INTERNAL_COND_INITIALIZER PTHREAD_COND_INITIALIZER

static inline int opal_thread_internal_result(int error)
{
    return error == 0 ? OPAL_SUCCESS : OPAL_ERR_IN_ERRNO;
}

static inline int opal_thread_internal_mutex_init(pthread_mutex_t *mutex, bool recursive)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes,
                              recursive ? PTHREAD_MUTEX_RECURSIVE : PTHREAD_MUTEX_DEFAULT);
    const int error = pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return opal_thread_internal_result(error);
}

#define opal_thread_internal_mutex_trylock(mutex) (pthread_mutex_trylock(mutex) != 0)
#define opal_thread_internal_mutex_lock pthread_mutex_lock
#define opal_thread_internal_mutex_unlock pthread_mutex_unlock
#define opal_thread_internal_mutex_destroy pthread_mutex_destroy

#define opal_thread_internal_cond_init(condition)                                                  \
    opal_thread_internal_result(pthread_cond_init(condition, NULL))
#define opal_thread_internal_cond_signal pthread_cond_signal
#define opal_thread_internal_cond_destroy pthread_cond_destroy

#endif

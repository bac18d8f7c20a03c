/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The monitor of the process: there can be one, which all domains share that keep anything. It is
 * started for the first of them and stopped after the last.
 */
#ifndef REGX_LIBRARY_SHARED_H
#define REGX_LIBRARY_SHARED_H

#include <stdbool.h>

#include "registration/registration.h"

typedef struct regx_shared {
    const regx_backend_t *backend;
    regx_monitor_t *monitor;          /* NULL: the backend needs none */
    char reason[REGX_BACKEND_REASON]; /* why this backend */
} regx_shared_t;

/* The words that `join` takes; NULL: there are no more. */
const char *regx_shared_backend(unsigned index);

/* The transport is that of the domain. 0, or an error number: EINVAL,
 * there is no such backend; EOPNOTSUPP, it cannot work here; EBUSY, another one runs. `error` then
 * holds one line. Any thread. */
int regx_shared_join(regx_shared_t *shared, const char *name, regx_transport_t *transport,
                     char *error, size_t error_size);
/* The domain's cache is closed. */
void regx_shared_leave(regx_shared_t *shared);

/* What the monitor counts for all. There always, 0 before the first monitor. */
regx_counters_t *regx_shared_counters(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * In Open MPI's place: each process's host is node7, by whichever of both ways it is asked for.
 */
#pragma once

#include "btl/component.h"

static char *host_of(const opal_proc_t *proc)
{
    static char host[] = "node7";

    return host;
}

#if OPAL_MAJOR_VERSION >= 5
char *(*opal_get_proc_hostname)(const opal_proc_t *proc) = host_of;
#else
char *opal_get_proc_hostname(const opal_proc_t *proc)
{
    return host_of(proc);
}
#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A source of memory hooks: it patches libc's functions and reports what they unmap or replace.
 * compat/ offers Open MPI's, registration/ UCX's; the backends hooks and hooks+notifier use one.
 */
#ifndef REGX_BASE_HOOK_SOURCE_H
#define REGX_BASE_HOOK_SOURCE_H

#include <stddef.h>

#include "base/status.h"

/* Called before a range is unmapped or replaced (after, if brk does it), in the thread that does
 * so, possibly inside malloc. So it may not allocate, nor take a lock under which others do. */
typedef void (*regx_hook_report_t)(void *context, void *base, size_t length);

typedef struct regx_hook_source {
    const char *name; /* opal, ucm */
    /* From now on `report` is called with `context`. REGX_DENIED: hooks cannot work here, and
     * `error` holds one line with the reason. */
    regx_status_t (*install)(regx_hook_report_t report, void *context, char *error,
                             size_t error_size);
    /* `report` is not called any more once this has returned. */
    void (*remove)(regx_hook_report_t report, void *context);
} regx_hook_source_t;

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/uct/version.h"

#include <stdio.h>
#include <ucp/api/ucp.h> /* for its version alone */
#include <uct/api/version.h>

/* UCT promises nothing between minor versions, and half of it is inline: what was compiled here
 * reads the structures of that version (the elements of the callback queue that
 * uct_worker_progress walks have 24 bytes in 1.13, and 16 in 1.18). */
regx_status_t regx_uct_check_version(char *error, size_t error_size)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    if (major == UCT_VERNO_MAJOR && minor == UCT_VERNO_MINOR) {
        return REGX_OK;
    }
    snprintf(error, error_size,
             "built for UCX %d.%d, but this is UCX %u.%u.%u: not used; build it for this one",
             UCT_VERNO_MAJOR, UCT_VERNO_MINOR, major, minor, release);
    return REGX_UNREACHABLE;
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whether the UCX that was loaded is the one that regx was built for.
 */
#ifndef REGX_TRANSPORT_UCT_VERSION_H
#define REGX_TRANSPORT_UCT_VERSION_H

#include <stddef.h>

#include "base/status.h"

/* REGX_OK; REGX_UNREACHABLE: `error` holds one line. Call it before anything else of UCX. */
regx_status_t regx_uct_check_version(char *error, size_t error_size);

#endif

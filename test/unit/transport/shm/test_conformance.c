/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared memory conforms to transport.h.
 */
#include "../parties.h"

#include "transport/shm/shm_internal.h"

const conformance_t *tested =
    &(const conformance_t){.name = "shm", .ops = &regx_shm_ops, .neighbours = 2};

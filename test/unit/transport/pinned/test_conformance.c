/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The pinned device conforms to transport.h.
 */
#include "../parties.h"

#include "ring.h"
#include "transport/pinned/pinned.h"

const conformance_t *tested = &(const conformance_t){.name = "pinned", .ops = &regx_pinned_ops};

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Backend `none`: registers and deregisters per use. Guarantees that no registration outlives the
 * transfer that made it, so none can be stale; a change of the mapping during a transfer is the
 * application's error. Needs to see no event. The honest baseline of every comparison.
 */
#include "registration/backend.h"

const regx_backend_t regx_backend_none = {
    .name = "none", .help = "nothing is kept: each transfer registers and deregisters"};

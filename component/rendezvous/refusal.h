/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Why memory of the application was not registered: for want of room in the process's own share of
 * what may be pinned, which is noted when it happens; else found out afterwards, by the limit of
 * locked memory, and by what is mapped there now. That takes reading /proc, as long as a message
 * may take. So only the first refusals are looked into; of later ones only the device's answer is
 * tallied.
 */
#ifndef REGX_RENDEZVOUS_REFUSAL_H
#define REGX_RENDEZVOUS_REFUSAL_H

#include "rendezvous/engine.h"

#define REGX_REFUSALS_LOOKED_INTO 64u /* by one process */

typedef enum regx_end { REGX_SENDER, REGX_RECEIVER } regx_end_t;

/* Tallies a refusal in `fallbacks`, by end and reason. `status` is what regx_region_acquire
 * answered for `length` bytes at `base`, and not REGX_OK, `refused` the region that it was given.
 * No lock is held. */
void regx_refusal_tally(regx_rndv_t *rndv, regx_end_t end, regx_status_t status,
                        const regx_region_t *refused, const void *base, size_t length);

#endif

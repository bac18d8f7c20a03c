/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Why memory of the application was not registered, found out afterwards: by the limit of locked
 * memory, by what is mapped there now. Slow (it reads /proc); nothing for what was registered.
 */
#ifndef REGX_RENDEZVOUS_REFUSAL_H
#define REGX_RENDEZVOUS_REFUSAL_H

#include <stddef.h>

#include "base/counters.h"
#include "base/status.h"

typedef enum regx_end { REGX_SENDER, REGX_RECEIVER } regx_end_t;

/* Tallies it in `fallbacks`, by end and reason. `status` is what regx_region_acquire answered, not
 * REGX_OK. */
void regx_refusal_tally(regx_counters_t *counters, regx_end_t end, regx_status_t status,
                        const void *base, size_t length);

#endif

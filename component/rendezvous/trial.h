/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A trial: whose turn it is, what is known of each candidate, who is dropped and who wins. How it
 * goes stands in autotune.h. Of one size, alone or in bursts; under the engine's lock.
 */
#ifndef REGX_RENDEZVOUS_TRIAL_H
#define REGX_RENDEZVOUS_TRIAL_H

#include "rendezvous/autotune.h"

void regx_trial_begin(regx_autotune_t *size, bool burst);

/* The candidate whose turn it is. */
unsigned regx_trial_whose(const regx_tune_t *tune);

/* The segment, which was part of the trial, is over, and took `cost` picoseconds a byte. May end
 * the trial. */
void regx_trial_end_turn(regx_autotune_t *segment, float cost);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * All that can go from one side to the other, both ways at the same time: short and long frames,
 * puts with an immediate number and with a notice, gets. Each is to come once and in order, and to
 * end once; nothing is to be written late.
 */
#ifndef REGX_TEST_TRAFFIC_H
#define REGX_TEST_TRAFFIC_H

#include "restart.h"

/* Rounds of progress in which the link is down: from the first to before the other. */
extern unsigned traffic_down_from, traffic_down_until;

/* All operations both ways, at the same time; `two` makes progress once in `slow` times. Then a
 * frame each way. Returns how often a side's queue pair was replaced, at most. */
unsigned traffic_run(unsigned slow);
/* How many requests there are when none fails. */
unsigned traffic_requests(void);

#endif

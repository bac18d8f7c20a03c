/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of queue pairs that fail and are replaced: two sides on devices in memory, each
 * request of which can be made to fail.
 */
#ifndef REGX_TEST_RESTART_H
#define REGX_TEST_RESTART_H

#include "fake_sides.h"

#define HOUR_NS INT64_C(3600000000000)

/* What sides are opened with: at first queue pairs are replaced, within 600 s. */
extern regx_verbs_settings_t restart_settings;

/* Of each test: a device on which nothing fails yet; what fails then was retried in vain. */
int restart_setup(void **state);
uint64_t restart_count(const side_t *side, int counter);
/* A frame each way. After it both are ready. */
void restart_exchange(void);
/* Closes both sides, of which one may not have heard that the other lost it. */
void restart_close(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the path together: what is to go which way.
 */
#ifndef REGX_TEST_TOGETHER_STAGE_H
#define REGX_TEST_TOGETHER_STAGE_H

#include "transfer_stage.h"

enum { DEPTH = 2 };

/* Few slots: what goes by them cannot all be granted at once. */
extern const fake_config_t standard;

stage_t *stage_open_both(const fake_config_t *sender, const fake_config_t *receiver);

stage_t *stage_open(void);

/* A message goes well, by what way ever. */
void goes_well(stage_t *stage, size_t length);

uint64_t fallbacks_of(fake_t *fake, const char *reason);

#endif

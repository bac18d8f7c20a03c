/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the path read.
 */
#ifndef REGX_TEST_READ_STAGE_H
#define REGX_TEST_READ_STAGE_H

#include "transfer_stage.h"

enum { CHUNKS = 7, DEPTH = 3 };

extern const fake_config_t standard;

stage_t *stage_open_both(const fake_config_t *sender, const fake_config_t *receiver);

stage_t *stage_open(void);

#endif

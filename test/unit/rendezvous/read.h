/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the path read.
 */
#ifndef REGX_TEST_READ_H
#define REGX_TEST_READ_H

#include "transfer.h"

enum { CHUNKS = 7, DEPTH = 3 };

static const fake_config_t standard = {
    .slots = 64, .slot_size = SLOT, .strategy = "read", .chunk_size = PAGE, .chunk_depth = DEPTH};

static inline stage_t *stage_open_both(const fake_config_t *sender, const fake_config_t *receiver)
{
    return transfer_open(sender, receiver, REGX_PATH_read, false);
}

static inline stage_t *stage_open(void)
{
    return stage_open_both(&standard, &standard);
}

#endif

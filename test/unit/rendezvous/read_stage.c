/* SPDX-License-Identifier: BSD-3-Clause */
#include "read_stage.h"

const fake_config_t standard = {
    .slots = 64, .slot_size = SLOT, .strategy = "read", .chunk_size = PAGE, .chunk_depth = DEPTH};

stage_t *stage_open_both(const fake_config_t *sender, const fake_config_t *receiver)
{
    return transfer_open(sender, receiver, REGX_PATH_read, false);
}

stage_t *stage_open(void)
{
    return stage_open_both(&standard, &standard);
}

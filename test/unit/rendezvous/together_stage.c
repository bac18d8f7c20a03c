/* SPDX-License-Identifier: BSD-3-Clause */
#include "together_stage.h"

const fake_config_t standard = {.slots = 4,
                                .slot_size = SLOT,
                                .strategy = "together",
                                .chunk_size = PAGE,
                                .chunk_depth = DEPTH};

stage_t *stage_open_both(const fake_config_t *sender, const fake_config_t *receiver)
{
    fake_overtaking = true;
    return transfer_open(sender, receiver, REGX_PATH_together, true);
}

stage_t *stage_open(void)
{
    return stage_open_both(&standard, &standard);
}

void goes_well(stage_t *stage, size_t length)
{
    stage->dones = 0;
    begin_of(stage, length);
    run(stage);
    assert_read_of(stage, length);
    close_recv(stage);
}

uint64_t fallbacks_of(fake_t *fake, const char *reason)
{
    return regx_tally_find(fake->counters.fallbacks, reason)->count;
}

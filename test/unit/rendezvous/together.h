/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the path together: what is to go which way.
 */
#ifndef REGX_TEST_TOGETHER_H
#define REGX_TEST_TOGETHER_H

#include "transfer.h"

/* What the standard buffers make of a message of LENGTH: the half is the longer, up to a page
 * border of the receiver's, and the rest is more chunks than may be exposed at once. */
enum { HALF = 3 * PAGE + 7, GETS = 3, DEPTH = 2 };

/* Few slots: what goes by them cannot all be granted at once. */
static const fake_config_t standard = {.slots = 4,
                                       .slot_size = SLOT,
                                       .strategy = "together",
                                       .chunk_size = PAGE,
                                       .chunk_depth = DEPTH};

static inline stage_t *stage_open_both(const fake_config_t *sender, const fake_config_t *receiver)
{
    fake_overtaking = true;
    return transfer_open(sender, receiver, REGX_PATH_together, true);
}

static inline stage_t *stage_open(void)
{
    return stage_open_both(&standard, &standard);
}

static inline void answer(stage_t *stage, fake_t *at, fake_call_t call, unsigned number,
                          regx_status_t status)
{
    stage->answer.at = at;
    stage->answer.call = call;
    stage->answer.number = number;
    stage->answer.status = status;
}

/* The bytes before the first page border that is not before the middle; at least one. */
static inline size_t half_of(const stage_t *stage, size_t length)
{
    const uintptr_t base = (uintptr_t)stage->received.base + stage->to;
    size_t half = length / 2;

    while ((base + half) % PAGE != 0 || half == 0) {
        half++;
    }
    return half < length ? half : length;
}

/* A message goes well, by what way ever. */
static inline void goes_well(stage_t *stage, size_t length)
{
    stage->dones = 0;
    begin_of(stage, length);
    run(stage);
    assert_read_of(stage, length);
    end(stage);
}

static inline uint64_t fallbacks_of(fake_t *fake, const char *reason)
{
    return regx_tally_find(fake->counters.fallbacks, reason)->count;
}

#endif

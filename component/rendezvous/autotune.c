/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/autotune.h"

#include <string.h>

#include "base/clock.h"

unsigned regx_autotune_size(uint64_t length)
{
    const unsigned size = 63 - (unsigned)__builtin_clzll(length / REGX_AUTOTUNE_SMALLEST | 1);

    return size < REGX_AUTOTUNE_SIZES ? size : REGX_AUTOTUNE_SIZES - 1;
}

void regx_autotune_init(regx_autotune_t autotune[REGX_AUTOTUNE_SIZES],
                        const regx_autotune_prior_t *prior)
{
    memset(autotune, 0, REGX_AUTOTUNE_SIZES * sizeof(autotune[0]));
    for (unsigned size = 0; size < REGX_AUTOTUNE_SIZES; size++) {
        regx_autotune_t *of = &autotune[size];

        for (unsigned burst = 0; burst < 2; burst++) {
            regx_tune_init(&of->tune[burst], burst, prior->candidates, prior->winner[size],
                           prior->patience);
        }
        of->turn.candidate = of->turn.rest = prior->winner[size];
    }
}

bool regx_autotune_outcome(const regx_autotune_t *size, unsigned *candidate)
{
    const bool burst = size->tune[0].trials == 0 ||
                       (size->tune[1].trials > 0 && size->messages[1] > size->messages[0]);

    *candidate = size->tune[burst].winner;
    return size->tune[burst].trials > 0;
}

/* ---- segments ------------------------------------------------------------------------------- */

/* Nothing where messages of another kind came, or of an earlier segment were still open. */
static float cost_of(const regx_autotune_t *segment, int64_t now)
{
    const bool burst = segment->open_max >= REGX_AUTOTUNE_BURST;

    if (segment->began == 0 || segment->told.bytes == 0 || segment->before > 0 ||
        burst != segment->burst) {
        return 0;
    }
    return 1 + (float)(now - segment->began) * 1000 / (float)segment->told.bytes;
}

static void end_segment(regx_autotune_t *segment, int64_t now)
{
    segment->messages[segment->burst] += segment->told.messages;
    segment->told.cost = cost_of(segment, now);
    regx_tune_tell(&segment->tune[segment->burst], &segment->turn, &segment->told);
}

static void begin_segment(regx_autotune_t *segment, bool burst, int64_t now)
{
    const bool stream = segment->burst;
    const uint8_t last =
        segment->told.messages > segment->turn.limit ? segment->turn.rest : segment->turn.candidate;

    segment->burst = burst;
    segment->turn = regx_tune_next(&segment->tune[burst]);
    segment->told = (regx_told_t){0};
    segment->began = now;
    segment->number++;
    segment->open_max = segment->open;
    segment->before = segment->open;
    if (stream && segment->turn.limit == UINT32_MAX && segment->turn.candidate != last) {
        /* What the sender got ahead with the other candidate is not this one's either. */
        segment->before *= 2;
    }
}

static void next_segment(regx_autotune_t *segment, bool burst)
{
    const regx_tune_t *tune = &segment->tune[burst];
    const bool due = tune->wait <= (burst == segment->burst ? segment->told.messages : 0);
    const int64_t now = segment->turn.trial || due || burst ? regx_now_ns() : 0;

    end_segment(segment, now);
    begin_segment(segment, burst, now);
}

regx_trial_t regx_autotune_enter(regx_autotune_t autotune[REGX_AUTOTUNE_SIZES], uint64_t length)
{
    regx_autotune_t *segment = &autotune[regx_autotune_size(length)];

    if (segment->open == 0) {
        next_segment(segment, segment->open_max >= REGX_AUTOTUNE_BURST);
    } else if (!segment->burst && segment->open + 1 >= REGX_AUTOTUNE_BURST) {
        segment->open_max = segment->open + 1;
        next_segment(segment, true);
    } else if (segment->before == 0 && segment->told.closed >= REGX_AUTOTUNE_SEGMENT &&
               segment->told.closed >= segment->open_max) {
        next_segment(segment, segment->open_max >= REGX_AUTOTUNE_BURST);
    }
    segment->open++;
    segment->open_max = segment->open > segment->open_max ? segment->open : segment->open_max;
    const bool rest = segment->told.messages >= segment->turn.limit;

    segment->told.messages++;
    return (regx_trial_t){.of = segment,
                          .trial = segment->turn.trial,
                          .known = segment->tune[segment->burst].trials > 0,
                          .candidate = rest ? segment->turn.rest : segment->turn.candidate,
                          .number = segment->number};
}

void regx_autotune_leave(const regx_trial_t *trial, uint64_t length, bool went)
{
    regx_autotune_t *segment = trial->of;

    if (segment == NULL) {
        return;
    }
    segment->open--;
    if (segment->before > 0) {
        if (--segment->before == 0 && (segment->turn.trial || segment->burst)) {
            segment->began = regx_now_ns();
        }
        return;
    }
    segment->told.closed++;
    segment->told.bytes += length;
    segment->told.own += trial->candidate == segment->turn.candidate ? length : 0;
    if (!went && trial->number == segment->number) {
        segment->told.failed |= (uint8_t)(1u << trial->candidate);
        segment->told.refused++;
    }
}

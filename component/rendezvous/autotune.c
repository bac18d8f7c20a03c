/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/autotune.h"

#include <string.h>

#include "base/clock.h"
#include "rendezvous/trial.h"

#define SLOWER 1.25F     /* bursts take so many times what is expected, */
#define SLOWER_BURSTS 4u /* so many in a row: the next trial comes at once */
#define WAITED 4096u     /* if the last is so many messages ago, or a quarter of the time is over */
#define VAIN 4u          /* segments in a row by which the winner was not to be had: likewise, */
#define VAIN_WAITED 64u  /* if the last trial is so many messages ago */

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
        const uint8_t winner = prior->winner[size];
        regx_autotune_t *of = &autotune[size];

        for (unsigned burst = 0; burst < 2; burst++) {
            of->tune[burst] = (regx_tune_t){.candidates = (uint8_t)prior->candidates,
                                            .winner = winner,
                                            .base = winner,
                                            .wait = prior->patience};
        }
        if (of->tune[1].wait < REGX_AUTOTUNE_PATIENCE) {
            of->tune[1].wait = REGX_AUTOTUNE_PATIENCE;
        }
        of->tune[0].waits = of->tune[0].wait;
        of->tune[1].waits = of->tune[1].wait;
        of->candidate = of->rest = winner;
        of->place = (uint8_t)size;
    }
}

bool regx_autotune_outcome(const regx_autotune_t *size, unsigned *candidate)
{
    const bool burst = size->tune[0].trials == 0 ||
                       (size->tune[1].trials > 0 && size->messages[1] > size->messages[0]);

    *candidate = size->tune[burst].winner;
    return size->tune[burst].trials > 0;
}

/* 0: nothing has closed. */
static float cost_of(const regx_autotune_t *segment, int64_t now)
{
    return segment->bytes == 0 ? 0
                               : 1 + (float)(now - segment->began) * 1000 / (float)segment->bytes;
}

/* A burst outside of a trial. Several in a row that take clearly longer than the winner did in the
 * trial: costs have changed, so the next one comes earlier. */
static void watch(regx_tune_t *tune, float cost)
{
    tune->slower =
        tune->expected > 0 && cost > tune->expected * SLOWER ? (uint8_t)(tune->slower + 1) : 0;
    if (tune->slower >= SLOWER_BURSTS) {
        tune->slower = 0;
        const uint64_t waited = tune->waits - tune->wait;

        tune->wait = waited >= WAITED || waited >= tune->waits / 4 ? 0 : tune->wait;
    }
}

/* One outside of a trial, by the winner alone. If most messages of several in a row cannot have it,
 * the next trial comes at once, and leaves it out. */
static void watch_vain(regx_tune_t *tune, const regx_autotune_t *segment)
{
    if (segment->closed == 0) {
        return;
    }
    tune->vain = 2 * segment->refused > segment->closed ? (uint8_t)(tune->vain + 1) : 0;
    if (tune->vain >= VAIN) {
        tune->vain = 0;
        tune->wait = tune->waits - tune->wait >= VAIN_WAITED ? 0 : tune->wait;
    }
}

static void end_segment(regx_autotune_t *segment, int64_t now)
{
    regx_tune_t *tune = &segment->tune[segment->burst];

    segment->messages[segment->burst] += segment->entered;
    if (segment->timed) {
        regx_trial_end_turn(segment, cost_of(segment, now));
        return;
    }
    tune->wait -= tune->wait < segment->entered ? tune->wait : segment->entered;
    watch_vain(tune, segment);
    if (segment->open_max >= REGX_AUTOTUNE_BURST && segment->began > 0 && segment->bytes > 0) {
        watch(tune, cost_of(segment, now));
    }
}

static void begin_segment(regx_autotune_t *segment, bool burst, int64_t now)
{
    regx_tune_t *tune = &segment->tune[burst];

    if (!tune->trying && tune->wait == 0) {
        regx_trial_begin(segment, burst);
    }
    const bool stream = segment->burst;
    const uint8_t last = segment->entered > segment->limit ? segment->rest : segment->candidate;

    segment->burst = burst;
    segment->timed = tune->trying;
    segment->failed = 0;
    segment->candidate = segment->rest = tune->winner;
    segment->limit = UINT32_MAX;
    segment->began = now;
    if (tune->trying) {
        segment->candidate = (uint8_t)regx_trial_whose(tune);
        segment->rest = tune->base;
        if (segment->candidate != segment->rest && tune->of[segment->rest].cost > 0 &&
            (tune->of[segment->candidate].told == 0 || tune->of[segment->candidate].suspect > 0)) {
            segment->limit = REGX_AUTOTUNE_PROBE;
        }
    }
    segment->number++;
    segment->entered = segment->closed = segment->refused = 0;
    segment->bytes = segment->own = 0;
    segment->copying = 0;
    segment->open_max = segment->open;
    segment->before = segment->open;
    if (stream && segment->limit == UINT32_MAX && segment->candidate != last) {
        /* What the sender got ahead with the other candidate is not this one's either. */
        segment->before *= 2;
    }
}

static void next_segment(regx_autotune_t *segment, bool burst)
{
    const regx_tune_t *tune = &segment->tune[burst];
    const bool due = tune->wait <= (burst == segment->burst ? segment->entered : 0);
    const int64_t now = segment->timed || due || burst ? regx_now_ns() : 0;

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
    } else if (segment->before == 0 && segment->closed >= REGX_AUTOTUNE_SEGMENT &&
               segment->closed >= segment->open_max) {
        next_segment(segment, segment->open_max >= REGX_AUTOTUNE_BURST);
    }
    segment->open++;
    segment->open_max = segment->open > segment->open_max ? segment->open : segment->open_max;
    const bool rest = segment->entered >= segment->limit;

    segment->entered++;
    return (regx_trial_t){.of = segment,
                          .trial = segment->timed,
                          .known = segment->tune[segment->burst].trials > 0,
                          .candidate = rest ? segment->rest : segment->candidate,
                          .number = segment->number};
}

static void note_copying(regx_autotune_t *segment, const regx_trial_t *trial, uint64_t length)
{
    if (trial->copied_ns > 0 && trial->candidate == segment->candidate) {
        const float copying = (float)trial->copied_ns * 1000 / (float)length;

        segment->copying =
            segment->copying == 0 || copying < segment->copying ? copying : segment->copying;
    }
}

void regx_autotune_leave(const regx_trial_t *trial, uint64_t length, bool went)
{
    regx_autotune_t *segment = trial->of;

    if (segment == NULL) {
        return;
    }
    segment->open--;
    if (segment->before > 0) {
        if (--segment->before == 0 && (segment->timed || segment->burst)) {
            segment->began = regx_now_ns();
        }
        return;
    }
    segment->closed++;
    segment->bytes += length;
    segment->own += trial->candidate == segment->candidate ? length : 0;
    if (went) {
        note_copying(segment, trial, length);
    }
    if (!went && trial->number == segment->number) {
        segment->failed |= (uint8_t)(1u << trial->candidate);
        segment->refused++;
    }
}

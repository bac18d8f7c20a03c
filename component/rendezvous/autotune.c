/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/autotune.h"

#include <string.h>

#include "base/clock.h"

#define MIN_SHIFT 14u

static regx_autotune_t *size_class(regx_autotune_t autotune[REGX_AUTOTUNE_SIZES], uint64_t length)
{
    const unsigned power = 63 - (unsigned)__builtin_clzll(length | 1);
    const unsigned size = power > MIN_SHIFT ? power - MIN_SHIFT : 0;

    return &autotune[size < REGX_AUTOTUNE_SIZES ? size : REGX_AUTOTUNE_SIZES - 1];
}

static void begin_round(regx_autotune_t *tune)
{
    tune->began = regx_now_ns();
    tune->open_max = tune->open;
    tune->closed = 0;
    tune->bytes = 0;
}

regx_trial_t regx_autotune_enter(regx_autotune_t autotune[REGX_AUTOTUNE_SIZES], uint64_t length)
{
    regx_autotune_t *tune = size_class(autotune, length);

    if (tune->wait > 0) {
        tune->wait--;
        return (regx_trial_t){.path = tune->winner, .known = tune->factor > 0};
    }
    if (tune->messages == 0) {
        tune->trial = tune->trial == UINT32_MAX ? 1 : tune->trial + 1;
        begin_round(tune);
    } else if (tune->open == 0) {
        tune->began = regx_now_ns(); /* nothing was under way until now */
    }
    tune->messages++;
    tune->open++;
    tune->open_max = tune->open > tune->open_max ? tune->open : tune->open_max;
    return (regx_trial_t){.path = (regx_autotune_path_t)(tune->round / REGX_AUTOTUNE_ROUNDS),
                          .trial = tune->trial};
}

/* No trial for so many messages. */
static void rest(regx_autotune_t *tune, uint64_t wait)
{
    tune->wait = wait < UINT32_MAX ? (uint32_t)wait : UINT32_MAX;
    tune->round = tune->messages = 0;
    tune->invalid = false;
    memset(tune->best, 0, sizeof(tune->best));
}

static void decide(regx_autotune_t *tune)
{
    uint64_t limit = tune->best[REGX_AUTOTUNE_BOUNCE] - tune->best[REGX_AUTOTUNE_BOUNCE] / 8;
    regx_autotune_path_t winner = REGX_AUTOTUNE_BOUNCE;
    bool measured = true;

    for (regx_autotune_path_t path = REGX_AUTOTUNE_BOUNCE; path < REGX_AUTOTUNE_PATHS; path++) {
        measured &= tune->best[path] > 0;
        if (tune->best[path] < limit) {
            winner = path;
            limit = tune->best[path];
        }
    }
    const bool same = tune->factor > 0 && winner == tune->winner;

    if (tune->invalid || !measured) { /* inconclusive */
        rest(tune, (uint64_t)REGX_AUTOTUNE_MIN * tune->messages);
        return;
    }
    if (!same) {
        tune->factor = REGX_AUTOTUNE_MIN;
    } else if (tune->factor < REGX_AUTOTUNE_MAX) {
        tune->factor *= 2;
    }
    tune->winner = winner;
    rest(tune, (uint64_t)tune->factor * tune->messages);
}

static void end_round(regx_autotune_t *tune)
{
    uint64_t *best = &tune->best[tune->round / REGX_AUTOTUNE_ROUNDS];

    if (tune->bytes > 0) {
        const double took = (double)(regx_now_ns() - tune->began) * 1000;
        const uint64_t cost = 1 + (uint64_t)(took / (double)tune->bytes);

        *best = *best == 0 || cost < *best ? cost : *best;
    }
    if (++tune->round == REGX_AUTOTUNE_PATHS * REGX_AUTOTUNE_ROUNDS) {
        decide(tune);
    } else {
        begin_round(tune);
    }
}

void regx_autotune_leave(regx_autotune_t autotune[REGX_AUTOTUNE_SIZES], uint64_t length,
                         const regx_trial_t *trial, bool went)
{
    regx_autotune_t *tune = size_class(autotune, length);

    if (trial->trial == 0) {
        return;
    }
    tune->open--;
    if (tune->messages == 0) {
        return;
    }
    tune->closed++;
    if (trial->trial == tune->trial) {
        const bool its_path =
            trial->path == (regx_autotune_path_t)(tune->round / REGX_AUTOTUNE_ROUNDS);

        tune->bytes += its_path ? length : 0;
        tune->invalid |= !went;
    }
    if (tune->open == 0 ||
        (tune->closed >= REGX_AUTOTUNE_ROUND && tune->closed >= tune->open_max)) {
        end_round(tune);
    }
}

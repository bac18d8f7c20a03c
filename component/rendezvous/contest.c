/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/contest.h"

#include <string.h>

#include "base/clock.h"

#define LEAST_SHIFT 14u

static regx_contest_t *contest_of(regx_contest_t contests[REGX_CONTEST_SIZES], uint64_t length)
{
    const unsigned power = 63 - (unsigned)__builtin_clzll(length | 1);
    const unsigned size = power > LEAST_SHIFT ? power - LEAST_SHIFT : 0;

    return &contests[size < REGX_CONTEST_SIZES ? size : REGX_CONTEST_SIZES - 1];
}

regx_way_t regx_contest_enter(regx_contest_t contests[REGX_CONTEST_SIZES], uint64_t length,
                              bool *on_trial)
{
    regx_contest_t *contest = contest_of(contests, length);

    *on_trial = contest->wait == 0;
    if (!*on_trial) {
        contest->wait--;
        return contest->winner;
    }
    if (contest->messages++ == 0) { /* since the last one some were closed for nothing */
        contest->closed = 0;
        contest->bytes = 0;
        contest->spoiled = false;
    }
    if (contest->open++ == 0 || contest->messages == 1) {
        contest->began = regx_now_ns();
    }
    return (regx_way_t)(contest->round / REGX_CONTEST_ROUNDS);
}

/* No trial for so many messages. */
static void rest(regx_contest_t *contest, uint64_t wait)
{
    contest->wait = wait < UINT32_MAX ? (uint32_t)wait : UINT32_MAX;
    contest->round = contest->messages = 0;
    memset(contest->best, 0, sizeof(contest->best));
}

static void decide(regx_contest_t *contest)
{
    const uint64_t bounce = contest->best[REGX_WAY_BOUNCE], single = contest->best[REGX_WAY_SINGLE];
    const regx_way_t winner = single < bounce - bounce / 8 ? REGX_WAY_SINGLE : REGX_WAY_BOUNCE;
    const bool same = contest->factor > 0 && winner == contest->winner;

    if (contest->spoiled) { /* it tells nothing */
        rest(contest, (uint64_t)REGX_CONTEST_LEAST * contest->messages);
        return;
    }
    contest->factor = same && contest->factor < REGX_CONTEST_MOST ? 2 * contest->factor
                      : same                                      ? REGX_CONTEST_MOST
                                                                  : REGX_CONTEST_LEAST;
    contest->winner = winner;
    rest(contest, (uint64_t)contest->factor * contest->messages);
}

static void end_round(regx_contest_t *contest)
{
    const int64_t now = regx_now_ns();
    uint64_t *best = &contest->best[contest->round / REGX_CONTEST_ROUNDS];
    const uint64_t cost =
        1 + (uint64_t)((double)(now - contest->began) * 1000 / ((double)contest->bytes + 1));

    if (contest->round % REGX_CONTEST_ROUNDS > 0 && (*best == 0 || cost < *best)) {
        *best = cost;
    }
    contest->began = now;
    contest->closed = 0;
    contest->bytes = 0;
    if (++contest->round == REGX_WAYS * REGX_CONTEST_ROUNDS) {
        decide(contest);
    }
}

void regx_contest_leave(regx_contest_t contests[REGX_CONTEST_SIZES], uint64_t length, bool went)
{
    regx_contest_t *contest = contest_of(contests, length);

    contest->open--;
    contest->closed++;
    contest->bytes += length;
    contest->spoiled |= !went;
    if (contest->wait == 0 && (contest->open == 0 || contest->closed == REGX_CONTEST_ROUND)) {
        end_round(contest);
    }
}

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

static void begin_round(regx_contest_t *contest)
{
    contest->began = regx_now_ns();
    contest->most = contest->open;
    contest->closed = 0;
    contest->bytes = 0;
}

regx_entry_t regx_contest_enter(regx_contest_t contests[REGX_CONTEST_SIZES], uint64_t length)
{
    regx_contest_t *contest = contest_of(contests, length);

    if (contest->wait > 0) {
        contest->wait--;
        return (regx_entry_t){.way = contest->winner, .known = contest->factor > 0};
    }
    if (contest->messages == 0) {
        contest->trial = contest->trial == UINT32_MAX ? 1 : contest->trial + 1;
        begin_round(contest);
    } else if (contest->open == 0) {
        contest->began = regx_now_ns(); /* nobody's time has passed */
    }
    contest->messages++;
    contest->open++;
    contest->most = contest->open > contest->most ? contest->open : contest->most;
    return (regx_entry_t){.way = (regx_way_t)(contest->round / REGX_CONTEST_ROUNDS),
                          .trial = contest->trial};
}

/* No trial for so many messages. */
static void rest(regx_contest_t *contest, uint64_t wait)
{
    contest->wait = wait < UINT32_MAX ? (uint32_t)wait : UINT32_MAX;
    contest->round = contest->messages = 0;
    contest->spoiled = false;
    memset(contest->best, 0, sizeof(contest->best));
}

static void decide(regx_contest_t *contest)
{
    uint64_t most = contest->best[REGX_WAY_BOUNCE] - contest->best[REGX_WAY_BOUNCE] / 8;
    regx_way_t winner = REGX_WAY_BOUNCE;
    bool measured = true;

    for (regx_way_t way = REGX_WAY_BOUNCE; way < REGX_WAYS; way++) {
        measured &= contest->best[way] > 0;
        if (contest->best[way] < most) {
            winner = way;
            most = contest->best[way];
        }
    }
    const bool same = contest->factor > 0 && winner == contest->winner;

    if (contest->spoiled || !measured) { /* it tells nothing */
        rest(contest, (uint64_t)REGX_CONTEST_LEAST * contest->messages);
        return;
    }
    if (!same) {
        contest->factor = REGX_CONTEST_LEAST;
    } else if (contest->factor < REGX_CONTEST_MOST) {
        contest->factor *= 2;
    }
    contest->winner = winner;
    rest(contest, (uint64_t)contest->factor * contest->messages);
}

static void end_round(regx_contest_t *contest)
{
    uint64_t *best = &contest->best[contest->round / REGX_CONTEST_ROUNDS];

    if (contest->bytes > 0) {
        const double took = (double)(regx_now_ns() - contest->began) * 1000;
        const uint64_t cost = 1 + (uint64_t)(took / (double)contest->bytes);

        *best = *best == 0 || cost < *best ? cost : *best;
    }
    if (++contest->round == REGX_WAYS * REGX_CONTEST_ROUNDS) {
        decide(contest);
    } else {
        begin_round(contest);
    }
}

void regx_contest_leave(regx_contest_t contests[REGX_CONTEST_SIZES], uint64_t length,
                        const regx_entry_t *entry, bool went)
{
    regx_contest_t *contest = contest_of(contests, length);

    if (entry->trial == 0) {
        return;
    }
    contest->open--;
    if (contest->messages == 0) {
        return;
    }
    contest->closed++;
    if (entry->trial == contest->trial) {
        const bool its_way = entry->way == (regx_way_t)(contest->round / REGX_CONTEST_ROUNDS);

        contest->bytes += its_way ? length : 0;
        contest->spoiled |= !went;
    }
    if (contest->open == 0 ||
        (contest->closed >= REGX_CONTEST_ROUND && contest->closed >= contest->most)) {
        end_round(contest);
    }
}

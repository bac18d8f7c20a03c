/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/contest.h"

#include <string.h>

#include "base/clock.h"

#define EACH 3u /* messages of a trial that go one way, before those that go the other */
#define LEAST_SHIFT 14u

static regx_contest_t *contest_of(regx_contests_t *contests, uint64_t length)
{
    const unsigned power = 63 - (unsigned)__builtin_clzll(length | 1);
    const unsigned size = power > LEAST_SHIFT ? power - LEAST_SHIFT : 0;

    return &contests->of_size[size < REGX_CONTESTS ? size : REGX_CONTESTS - 1];
}

regx_way_t regx_contest_enter(regx_contests_t *contests, uint64_t length, regx_entry_t *entry)
{
    regx_contest_t *contest = contest_of(contests, length);

    *entry = (regx_entry_t){0};
    if (contest->wait > 0) {
        contest->wait--;
        return contest->winner;
    }
    if (contest->entered == EACH * REGX_WAYS) { /* not all of them have left */
        return contest->winner;
    }
    contests->under_way++;
    entry->number = (uint8_t)++contest->entered;
    entry->at = regx_now_ns();
    return (regx_way_t)((entry->number - 1) / EACH);
}

static void decide(regx_contest_t *contest)
{
    const int64_t bounce = contest->taken[REGX_WAY_BOUNCE];
    const int64_t single = contest->taken[REGX_WAY_SINGLE];
    const bool close = single * 4 < bounce * 5 && bounce * 4 < single * 5;

    contest->entered = contest->left = 0;
    if (close && !contest->again && !contest->spoiled) {
        contest->again = true;
        return;
    }
    const regx_way_t winner =
        !contest->spoiled && single * 8 < bounce * 7 ? REGX_WAY_SINGLE : REGX_WAY_BOUNCE;

    if (contest->period == 0 || winner != contest->winner) {
        contest->period = REGX_CONTEST_LEAST;
    } else if (contest->period < REGX_CONTEST_MOST) {
        contest->period *= 2;
    }
    contest->winner = winner;
    contest->wait = contest->period;
    contest->again = contest->spoiled = false;
    memset(contest->taken, 0, sizeof(contest->taken));
}

void regx_contest_leave(regx_contests_t *contests, uint64_t length, const regx_entry_t *entry,
                        bool went)
{
    if (contests->under_way == 0) {
        return;
    }
    const int64_t now = regx_now_ns();

    if (entry->number > 0) {
        regx_contest_t *contest = contest_of(contests, length);
        const unsigned before = entry->number - 1u;
        const int64_t since = entry->at > contests->left_at ? entry->at : contests->left_at;

        if (before % EACH != 0) {
            contest->taken[before / EACH] += now - since;
        }
        contest->spoiled |= !went;
        contests->under_way--;
        if (++contest->left == EACH * REGX_WAYS) {
            decide(contest);
        }
    }
    contests->left_at = now;
}

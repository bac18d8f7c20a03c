/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/contest.h"

#include <string.h>

#include "base/clock.h"

#define LEAST_SHIFT 14u

static unsigned size_of(uint64_t length)
{
    const unsigned power = 63 - (unsigned)__builtin_clzll(length | 1);
    const unsigned size = power > LEAST_SHIFT ? power - LEAST_SHIFT : 0;

    return size < REGX_CONTEST_SIZES ? size : REGX_CONTEST_SIZES - 1;
}

static regx_contest_t *contest_of(regx_contests_t *contests, unsigned size, bool among)
{
    return among ? &contests->among[size] : &contests->alone[size];
}

/* Who has not been tried yet does as the other. */
static regx_way_t winner_of(regx_contests_t *contests, unsigned size, bool among)
{
    const regx_contest_t *own = contest_of(contests, size, among);

    return (own->factor > 0 ? own : contest_of(contests, size, !among))->winner;
}

/* How many messages of each way do not count. */
static uint32_t skipped(const regx_contests_t *contests, unsigned size, bool among)
{
    return among ? 1 + (uint32_t)(contests->lag >> (size + LEAST_SHIFT)) : 1;
}

/* How many there are of each way. */
static uint32_t each(const regx_contests_t *contests, unsigned size, bool among)
{
    return 2 * skipped(contests, size, among) + 1;
}

regx_way_t regx_contest_enter(regx_contests_t *contests, uint64_t length, regx_entry_t *entry)
{
    const unsigned size = size_of(length);
    const bool among = contests->open++ > 0;
    const uint32_t half = each(contests, size, among);
    regx_contest_t *contest = contest_of(contests, size, among);

    *entry = (regx_entry_t){.open = true, .among = among, .opened = ++contests->opened};
    if (contest->wait > 0) {
        contest->wait--;
        return winner_of(contests, size, among);
    }
    if (contest->entered == REGX_WAYS * half) { /* not all of them have left */
        return winner_of(contests, size, among);
    }
    contests->on_trial++;
    entry->number = ++contest->entered;
    entry->at = regx_now_ns();
    return (regx_way_t)((entry->number - 1) / half);
}

/* No trial for so many messages. */
static void rest(regx_contest_t *contest, uint32_t wait)
{
    contest->wait = wait;
    contest->entered = contest->left = 0;
    contest->again = contest->spoiled = false;
    memset(contest->taken, 0, sizeof(contest->taken));
}

static void decide(regx_contest_t *contest, uint32_t length)
{
    const int64_t bounce = contest->taken[REGX_WAY_BOUNCE];
    const int64_t single = contest->taken[REGX_WAY_SINGLE];
    const bool close = single * 4 < bounce * 5 && bounce * 4 < single * 5;

    if (close && !contest->again && !contest->spoiled) {
        contest->entered = contest->left = 0;
        contest->again = true;
        return;
    }
    const regx_way_t winner =
        !contest->spoiled && single * 8 < bounce * 7 ? REGX_WAY_SINGLE : REGX_WAY_BOUNCE;

    if (contest->factor == 0 || winner != contest->winner) {
        contest->factor = REGX_CONTEST_LEAST;
    } else if (contest->factor < REGX_CONTEST_MOST) {
        contest->factor *= 2;
    }
    contest->winner = winner;
    rest(contest, contest->factor * length);
}

static void judge(regx_contests_t *contests, uint64_t length, const regx_entry_t *entry, bool went,
                  int64_t now)
{
    const unsigned size = size_of(length);
    const uint32_t half = each(contests, size, entry->among), before = entry->number - 1;
    const bool behind = entry->among && contests->closed_at > entry->at;
    regx_contest_t *contest = contest_of(contests, size, entry->among);

    contests->on_trial--;
    if (!entry->among && contests->opened != entry->opened) { /* it was not alone for long */
        rest(contest, REGX_CONTEST_LEAST * REGX_WAYS * half);
        return;
    }
    if (before % half >= skipped(contests, size, entry->among)) {
        contest->taken[before / half] += now - (behind ? contests->closed_at : entry->at);
    }
    contest->spoiled |= !went;
    if (++contest->left == REGX_WAYS * half) {
        decide(contest, REGX_WAYS * half);
    }
}

void regx_contest_leave(regx_contests_t *contests, uint64_t length, regx_entry_t *entry, bool went)
{
    if (!entry->open) {
        return;
    }
    contests->open--;
    if (contests->on_trial > 0) {
        const int64_t now = regx_now_ns();

        if (entry->number > 0) {
            judge(contests, length, entry, went, now);
        }
        contests->closed_at = now;
    }
    entry->open = false;
}

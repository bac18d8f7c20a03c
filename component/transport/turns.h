/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Connections that wait for a turn of progress, first come first served. Each has a place of its
 * own, so waiting takes no memory. One thread at a time.
 */
#ifndef REGX_TRANSPORT_TURNS_H
#define REGX_TRANSPORT_TURNS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct regx_turn {
    struct regx_turn *next;
    bool waits;
} regx_turn_t;

typedef struct regx_turns {
    regx_turn_t *first, *last; /* last: of a line that is not empty */
} regx_turns_t;

/* Behind all others, unless it waits already. */
static inline void regx_turn_await(regx_turns_t *turns, regx_turn_t *turn)
{
    if (turn->waits) {
        return;
    }
    *turn = (regx_turn_t){.waits = true};
    if (turns->first == NULL) {
        turns->first = turn;
    } else {
        turns->last->next = turn;
    }
    turns->last = turn;
}

/* The first of a line that is not empty; it waits no more. */
static inline regx_turn_t *regx_turn_take(regx_turns_t *turns)
{
    regx_turn_t *turn = turns->first;

    turns->first = turn->next;
    turn->waits = false;
    return turn;
}

/* Leaves the line, if it is in it. */
static inline void regx_turn_lose(regx_turns_t *turns, regx_turn_t *turn)
{
    regx_turn_t **at = &turns->first, *before = NULL;

    if (!turn->waits) {
        return;
    }
    while (*at != turn) {
        before = *at;
        at = &before->next;
    }
    *at = turn->next;
    if (turns->last == turn) {
        turns->last = before;
    }
    turn->waits = false;
}

#endif

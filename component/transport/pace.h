/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How often to do what takes a system call, such as looking at the network: bounded by time, and
 * rarer while something faster is going on that a system call would delay.
 *
 *   - Busy: while regx_pace_note_traffic is called at least once per tick of the coarse clock (1 to
 *     10 ms, as the kernel was built), it is due once in busy_ns.
 *   - Quiet: after a tick without traffic it is due once in quiet_ns.
 *
 * The coarse clock is read from memory that the kernel shares, without a system call. A pace is
 * used by one thread at a time.
 */
#ifndef REGX_TRANSPORT_PACE_H
#define REGX_TRANSPORT_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* The coarse clock is read once in so many calls, a power of two: so many calls a program that
 * calls MPI rarely needs until it is due. */
#define REGX_PACE_CALLS 8u

typedef struct regx_pace {
    int64_t quiet_ns; /* set by the owner */
    int64_t busy_ns;  /* set by the owner, if it notes traffic */
    unsigned calls;
    bool traffic; /* was noted since the last tick */
    bool quiet;   /* none was noted between the last two ticks */
    int64_t tick; /* the coarse clock when it was last seen to change */
    int64_t last; /* when it was due */
} regx_pace_t;

/* Counts a call: whether a clock is to be read in it. */
static inline bool regx_pace_count(regx_pace_t *pace)
{
    return (++pace->calls & (REGX_PACE_CALLS - 1)) == 0;
}

/* Counts as many calls as make the next one in which a clock is to be read. For an owner that is
 * called only once in so many rounds. */
static inline void regx_pace_count_up(regx_pace_t *pace)
{
    pace->calls = (pace->calls | (REGX_PACE_CALLS - 1)) + 1;
}

/* Reads it, after regx_pace_count has answered true, or regx_pace_count_up. */
bool regx_pace_due_by_clock(regx_pace_t *pace);

static inline void regx_pace_note_traffic(regx_pace_t *pace)
{
    pace->traffic = true;
}

/* Whether to do it now. */
static inline bool regx_pace_due(regx_pace_t *pace)
{
    return regx_pace_count(pace) && regx_pace_due_by_clock(pace);
}

#endif

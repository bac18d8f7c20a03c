/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/pace.h"

#include <time.h>

#include "base/clock.h"

/* The precise clock, which costs more, is read once in so many calls. */
#define PRECISE_CALLS 64u

_Static_assert(PRECISE_CALLS % REGX_PACE_CALLS == 0, "no clock is read in other calls");

static int64_t coarse_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bool regx_pace_due_by_clock(regx_pace_t *pace)
{
    int64_t now = coarse_now_ns();

    if (now != pace->tick) {
        pace->tick = now;
        pace->quiet = !pace->traffic;
        pace->traffic = false;
    } else if (!pace->quiet || pace->traffic || pace->calls % PRECISE_CALLS != 0) {
        return false;
    } else {
        now = regx_now_ns();
    }
    if (now - pace->last < (pace->quiet ? pace->quiet_ns : pace->busy_ns)) {
        return false;
    }
    pace->last = now;
    return true;
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The time that only goes forward, in nanoseconds since some moment.
 */
#ifndef REGX_BASE_CLOCK_H
#define REGX_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t regx_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif

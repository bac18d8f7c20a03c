/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/thread.h"

#include <limits.h>
#include <linux/futex.h>
#include <time.h>

void regx_thread_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds)
{
    const struct timespec time = {.tv_sec = milliseconds / 1000,
                                  .tv_nsec = (long)(milliseconds % 1000) * 1000000};

    regx_raw(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, value, milliseconds > 0 ? (long)&time : 0,
             0);
}

void regx_thread_wake(_Atomic uint32_t *word)
{
    regx_raw(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, INT_MAX, 0, 0);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What all tests of the pinned device need.
 */
#pragma once

#include <sys/syscall.h>

/* With arguments that point nowhere, which the kernel says only where it allows the call. */
static bool ring_is_refused(void)
{
    if (syscall(SYS_io_uring_setup, 1, NULL) < 0 && errno == EFAULT) {
        return false;
    }
    printf("1..0 # SKIP no io_uring: %s\n", strerror(errno));
    return true;
}

const unit_group_t unit_group = {.refused = ring_is_refused};

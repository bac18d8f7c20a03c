/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/shm/reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/util.h"

#define PART ((size_t)2 << 20) /* bytes of one call: a huge page */

/* Beyond the limit of a file's size the process would get a signal. */
static bool fits_file_limit(size_t length)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && length <= limit.rlim_cur;
}

/* In parts: up to Linux 6.1 a signal undoes what an interrupted call did, and with a profiler's timer
 * one for all would not end. */
bool regx_reserve(int file, size_t length)
{
    size_t done = 0;

    /* The length first: by it older kernels decide whether a page may be a huge one. */
    if (!fits_file_limit(length) || ftruncate(file, (off_t)length) != 0) {
        return false;
    }
    while (done < length) {
        const size_t part = regx_min(length - done, PART);

        if (fallocate(file, 0, (off_t)done, (off_t)part) == 0) {
            done += part;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

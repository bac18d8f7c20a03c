/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the kernel says of this process.
 */
#ifndef REGX_TEST_PROCESS_H
#define REGX_TEST_PROCESS_H

#include "unit.h"

#include <dirent.h>

static inline unsigned process_entries(const char *folder)
{
    DIR *directory = opendir(folder);
    unsigned count = 0;

    assert_non_null(directory);
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

static inline unsigned process_descriptors(void)
{
    return process_entries("/proc/self/fd");
}

static inline unsigned process_threads(void)
{
    return process_entries("/proc/self/task");
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the kernel says of this process; with deny.h, what it may be told to refuse it.
 */
#pragma once

#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "../deny.h"
#include "base/util.h"

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

/* One that was joined may be among them for a moment. */
static inline unsigned process_threads(void)
{
    return process_entries("/proc/self/task");
}

/* The thread id, as the kernel has it, of a thread whose name begins so; 0: there is none. (Ids are used
 * again: one that is newer than this process's may be lower.) */
static inline pid_t process_thread(const char *name)
{
    DIR *directory = opendir("/proc/self/task");
    const struct dirent *entry;
    pid_t found = 0;

    assert_non_null(directory);
    while (found == 0 && (entry = readdir(directory)) != NULL) {
        char path[300], line[32] = "";

        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        regx_read_line(path, line, sizeof(line));
        found = strncmp(line, name, strlen(name)) == 0 ? (pid_t)atoi(entry->d_name) : 0;
    }
    closedir(directory);
    return found;
}

/* How many whole pages between the two have that bit: 63, this process has it mapped to memory; 57,
 * a userfaultfd holds up who writes to it. */
static inline unsigned process_pages(const void *from, const void *to, unsigned bit)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    unsigned count = 0;

    assert_true(pagemap >= 0);
    for (uintptr_t i = ((uintptr_t)from + page - 1) / page; (i + 1) * page <= (uintptr_t)to; i++) {
        uint64_t entry;

        assert_int_equal(pread(pagemap, &entry, 8, (off_t)(i * 8)), 8);
        count += (unsigned)(entry >> bit & 1);
    }
    close(pagemap);
    return count;
}

/* The child ends, and well. */
static inline void process_must_end_well(pid_t child)
{
    int status = -1;

    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Whether this is the child that it makes; its parent goes on when that has ended, and well. */
static inline bool process_in_child(void)
{
    const pid_t child = fork();

    if (child != 0) {
        process_must_end_well(child);
    }
    return child == 0;
}

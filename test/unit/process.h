/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the kernel says of this process, and what it may be told to refuse it.
 */
#ifndef REGX_TEST_PROCESS_H
#define REGX_TEST_PROCESS_H

#include "unit.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

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

/* For a child: the system call fails with that answer from now on. False: it cannot be had. */
static inline bool process_deny(unsigned call, int answer)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

#endif

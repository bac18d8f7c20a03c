/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A source of hooks for tests: libc's functions in this program, which report and then make the
 * system call. It can be deaf. In every program that hooked.c is linked into.
 */
#pragma once

#include "../unit.h"

#include "registration/monitor/monitor.h"

enum { DEAF_MUNMAP = 1, DEAF_MREMAP = 2, DEAF_MADVISE = 4, DEAF_MMAP = 8 };

typedef struct hooked {
    _Atomic(regx_hook_report_t) report; /* NULL: not installed */
    unsigned faults;
    bool refuse; /* to be installed */
    unsigned installed, removed;
} hooked_t;

extern hooked_t hooked;

extern const regx_hook_source_t hooked_source;

/* For the setup of a test. */
int hooked_reset(void **state);

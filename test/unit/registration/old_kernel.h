/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The notifier on an older kernel, which is made by wrappers around ioctl and syscall (linked by
 * --wrap).
 */
#ifndef REGX_TEST_OLD_KERNEL_H
#define REGX_TEST_OLD_KERNEL_H

#include "../unit.h"

#include <linux/userfaultfd.h>
#include <stdatomic.h>

#include "registration/monitor/monitor.h"

enum { PAGE = 4096 };

typedef struct old_kernel {
    int refusal;      /* userfaultfd fails so */
    uint64_t lacking; /* features */
    int answers;      /* UFFDIO_API fails from this call on, counted from 1 */
    bool no_scan;     /* PAGEMAP_SCAN */
    bool no_query;    /* PROCMAP_QUERY */
    uintptr_t taken;  /* Linux before 6.17 lets anyone unregister this address, */
    bool took;        /* and somebody did */
    bool keeps;       /* what is watched stays so, whatever is unregistered */
} old_kernel_t;

extern old_kernel_t old;

/* What the reader's thread changes before it reads: tools that wrap pthread_create do. */
typedef struct starting {
    char *page; /* it unmaps this; NULL: nothing */
    void *(*run)(void *);
    void *argument;
    _Atomic bool watched; /* the page is */
    _Atomic bool awaited; /* somebody sleeps until the thread reads */
    _Atomic bool unmapped;
} starting_t;

extern starting_t starting;

/* Setup of each test: this kernel as it is. */
int setup(void **state);

extern regx_counters_t counters; /* of the notifiers that are started */
extern char start_error[256];    /* of the last one that was refused */

/* NULL: it is refused. */
regx_monitor_t *start(void);
/* NULL: it does what it is for. No assertions: it also runs in children. */
const char *fault(void);
void must_work(void);
/* With an error of one line that contains this. */
void must_refuse(const char *expected);
/* Whether this machine refuses it to us already; says so. */
bool refused(void);

#endif

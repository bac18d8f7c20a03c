/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of what the notifier watches: a userfaultfd, its ranges, and memory. Nobody reads
 * events here, so everything is unregistered before it is unmapped.
 */
#ifndef REGX_TEST_RANGES_H
#define REGX_TEST_RANGES_H

#include "../unit.h"

#include "registration/monitor/uffd.h"

enum { PAGE = 4096, BLOCK = 2 << 20 };

typedef struct rig {
    regx_uffd_t uffd;
    regx_inval_log_t *log;
    regx_uffd_ranges_t ranges;
} rig_t;

int setup(void **state);
int teardown(void **state);

/* Memory that begins `before` bytes before a multiple of 2 MiB and has nothing beside it. */
char *map(size_t before, size_t length);
/* Unregisters everything, too. */
void unmap(rig_t *rig, char *base, size_t length);

/* NULL: it is watched; else why not. */
const char *subscribe(rig_t *rig, char *base, size_t length);
void must_subscribe(rig_t *rig, char *base, size_t length);

/* Reads a line of smaps that says which mapping follows. Lines of other content, which begin with
 * letters that might be digits, leave both as they are. */
void read_range(const char *line, uintptr_t *start, uintptr_t *end);

/* That the kernel watches, around `base`, all from start to end and nothing else. */
void expect_watched(const char *base, size_t length, const char *start, const char *end);

/* How many mappings this process has. */
unsigned mappings(void);

#define WATCHED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* Whether this machine has no userfaultfd; then it says so. */
bool refused(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#include "ranges.h"

#include <stdio.h>
#include <sys/mman.h>

int setup(void **state)
{
    static rig_t rig;
    char error[256] = "";

    assert_int_equal(regx_uffd_open(&rig.uffd, error, sizeof(error)), REGX_OK);
    rig.log = regx_inval_log_open();
    assert_non_null(rig.log);
    assert_int_equal(regx_uffd_ranges_open(&rig.ranges, &rig.uffd, rig.log), 0);
    *state = &rig;
    return 0;
}

int teardown(void **state)
{
    rig_t *rig = *state;

    regx_uffd_ranges_clear(&rig->ranges);
    regx_uffd_ranges_close(&rig->ranges);
    regx_uffd_close(&rig->uffd);
    regx_inval_log_close(rig->log);
    return 0;
}

char *map(size_t before, size_t length)
{
    const size_t room = length + 4 * (size_t)BLOCK;
    char *base = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(base, MAP_FAILED);
    char *aligned = (char *)(((uintptr_t)base + 2 * (size_t)BLOCK - 1) / BLOCK * BLOCK);
    assert_int_equal(mprotect(aligned - before, length, PROT_READ | PROT_WRITE), 0);
    return aligned - before;
}

void unmap(rig_t *rig, char *base, size_t length)
{
    regx_uffd_ranges_clear(&rig->ranges);
    assert_int_equal(munmap(base, length), 0);
}

const char *subscribe(rig_t *rig, char *base, size_t length)
{
    uint64_t since;

    return regx_uffd_ranges_add(&rig->ranges, (uintptr_t)base, (uintptr_t)base + length, &since);
}

void must_subscribe(rig_t *rig, char *base, size_t length)
{
    const char *reason = subscribe(rig, base, length);

    if (reason != NULL) {
        fail_msg("%s", reason);
    }
}

void read_range(const char *line, uintptr_t *start, uintptr_t *end)
{
    uintptr_t from;
    uintptr_t to;

    if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
        *start = from;
        *end = to;
    }
}

/* What the kernel says is watched around `base`: mappings that touch each other are one. */
static unsigned watched_pieces(const char *base, size_t length, uintptr_t *start, uintptr_t *end)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[8192];
    uintptr_t from = 0;
    uintptr_t to = 0;
    unsigned pieces = 0;

    assert_non_null(file);
    *start = *end = 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        read_range(line, &from, &to);
        if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " uw") != NULL &&
            from < (uintptr_t)base + length && to > (uintptr_t)base) {
            pieces += from != *end;
            *start = *start == 0 ? from : *start;
            *end = to;
        }
    }
    fclose(file);
    return pieces;
}

void expect_watched(const char *base, size_t length, const char *start, const char *end)
{
    uintptr_t from;
    uintptr_t to;

    assert_int_equal(watched_pieces(base, length, &from, &to), 1);
    assert_ptr_equal((void *)from, start);
    assert_ptr_equal((void *)to, end);
}

unsigned mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    unsigned count = 0;
    int c;

    assert_non_null(file);
    while ((c = getc(file)) != EOF) {
        count += c == '\n';
    }
    fclose(file);
    return count;
}

bool refused(void)
{
    regx_uffd_t uffd;
    char error[256];

    if (regx_uffd_open(&uffd, error, sizeof(error)) != REGX_OK) {
        printf("1..0 # SKIP %s\n", error);
        return true;
    }
    regx_uffd_close(&uffd);
    return false;
}

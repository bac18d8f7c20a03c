/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is watched for a range: the mappings it lies in, whole and no others; no huge page is split,
 * and no mapping is; also while what is there changes.
 */
#include "ranges.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* What happens around the call that watches (ioctl is linked by --wrap). */
static struct {
    void (*before)(void);
    void (*after)(void);
    regx_inval_log_t *log;
    char *base;
} meanwhile;

int __real_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument)
{
    if (request == UFFDIO_REGISTER && meanwhile.before != NULL) {
        meanwhile.before();
    }
    const int result = __real_ioctl(fd, request, argument);
    if (request == UFFDIO_REGISTER && meanwhile.after != NULL) {
        meanwhile.after();
    }
    return result;
}

static void the_whole_mapping_is_watched(void **state)
{
    rig_t *rig = *state;
    const size_t length = 3 * (size_t)BLOCK + 8 * PAGE;
    char *base = map(4 * PAGE, length);

    must_subscribe(rig, base + BLOCK, PAGE);
    expect_watched(base, length, base, base + length);
    must_subscribe(rig, base, length);
    expect_watched(base, length, base, base + length);
    unmap(rig, base, length);
}

/* Two mappings of the application that the kernel made one, of which one was watched first: it may
 * still do with the other what it may do with a mapping. */
static void a_neighbour_can_still_be_moved(void **state)
{
    rig_t *rig = *state;
    const size_t length = BLOCK + 20 * PAGE;
    char *base = map(0, 2 * length);

    must_subscribe(rig, base + PAGE, length - PAGE);
    memset(base, 1, 2 * length); /* what was touched apart would stay apart */
    regx_uffd_ranges_clear(&rig->ranges);
    char *moved = mremap(base + length, length, 2 * length, MREMAP_MAYMOVE);
    assert_ptr_not_equal(moved, MAP_FAILED);
    assert_int_equal(moved[length - 1], 1);
    munmap(moved, 2 * length);
    unmap(rig, base, length);
}

static size_t in_huge_pages(const char *base)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[8192];
    uintptr_t from = 0;
    uintptr_t to = 0;
    size_t kilobytes = 0;
    size_t all = 0;

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        read_range(line, &from, &to);
        if (from >= (uintptr_t)base && from < (uintptr_t)base + 8 * (size_t)BLOCK &&
            sscanf(line, "AnonHugePages: %zu", &kilobytes) == 1) {
            all += kilobytes;
        }
    }
    fclose(file);
    return all;
}

static void huge_pages_stay_whole(void **state)
{
    rig_t *rig = *state;
    char *base = map(0, 8 * (size_t)BLOCK);

    madvise(base, 8 * (size_t)BLOCK, MADV_HUGEPAGE);
    memset(base, 1, 8 * (size_t)BLOCK);
    const size_t before = in_huge_pages(base);
    if (before < 8 * 2048) {
        unmap(rig, base, 8 * (size_t)BLOCK);
        print_message("not tried: no transparent huge pages to be had\n");
        skip();
    }
    for (size_t i = 0; i < 8; i += 2) {
        must_subscribe(rig, base + i * BLOCK + 7 * PAGE, 64 * 1024);
    }
    assert_int_equal(in_huge_pages(base), before);
    regx_uffd_ranges_clear(&rig->ranges);
    assert_int_equal(in_huge_pages(base), before);
    unmap(rig, base, 8 * (size_t)BLOCK);
}

/* What is unwatched of the mappings around a range is said to have changed, and nothing else is:
 * not what was watched before. */
static void what_was_not_watched_is_logged_as_changed(void **state)
{
    rig_t *rig = *state;
    char *base = map(0, 4 * (size_t)BLOCK);
    const uintptr_t at = (uintptr_t)base;
    uint64_t since;

    assert_int_equal(mprotect(base + BLOCK, BLOCK, PROT_READ), 0);
    regx_inval_log_interest(rig->log, at, at + 4 * (size_t)BLOCK, 1);
    const uint64_t before = atomic_load(&rig->log->head);
    assert_null(regx_uffd_ranges_add(&rig->ranges, at + PAGE, at + 2 * PAGE, &since));
    assert_true(regx_inval_log_touched(rig->log, before, at + 10 * PAGE, at + 11 * PAGE));
    assert_false(regx_inval_log_touched(rig->log, before, at + BLOCK, at + BLOCK + PAGE));
    assert_false(regx_inval_log_touched(rig->log, since, at, at + 4 * (size_t)BLOCK));
    const uint64_t first = since;
    assert_null(regx_uffd_ranges_add(&rig->ranges, at + 3 * PAGE, at + 4 * PAGE, &since));
    assert_null(regx_uffd_ranges_add(&rig->ranges, at + PAGE, at + BLOCK + PAGE, &since));
    assert_false(regx_inval_log_touched(rig->log, first, at, at + BLOCK));
    assert_true(regx_inval_log_touched(rig->log, first, at + BLOCK, at + BLOCK + PAGE));
    assert_false(regx_inval_log_touched(rig->log, since, at, at + 4 * (size_t)BLOCK));
    unmap(rig, base, 4 * (size_t)BLOCK);
}

/* Of a range that has both, and also where the other's looks like ours. */
static void memory_of_another_userfaultfd_is_refused(void **state)
{
    rig_t *rig = *state;
    regx_uffd_t other;
    char error[256];
    char *base = map(0, 4 * (size_t)BLOCK);

    assert_int_equal(regx_uffd_open(&other, error, sizeof(error)), REGX_OK);
    assert_int_equal(
        regx_uffd_register(&other, (uintptr_t)base + BLOCK, (uintptr_t)base + 2 * BLOCK), 0);
    assert_string_equal(subscribe(rig, base, 4 * (size_t)BLOCK),
                        "not watched: another userfaultfd has it");
    assert_string_equal(subscribe(rig, base + BLOCK, PAGE),
                        "not watched: another userfaultfd has it");
    must_subscribe(rig, base + 2 * (size_t)BLOCK, PAGE);
    regx_uffd_close(&other);
    must_subscribe(rig, base, 4 * (size_t)BLOCK);
    unmap(rig, base, 4 * (size_t)BLOCK);
}

static void share_it(void)
{
    assert_ptr_equal(mmap(meanwhile.base, BLOCK, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                     meanwhile.base);
}

/* Between our look and watching it, it became what must not be kept; nobody told. */
static void memory_that_becomes_shared_before_it_is_watched_is_refused(void **state)
{
    rig_t *rig = *state;

    meanwhile.base = map(0, 2 * (size_t)BLOCK);
    meanwhile.before = share_it;
    const char *reason = subscribe(rig, meanwhile.base + PAGE, PAGE);
    meanwhile.before = NULL;
    assert_non_null(reason);
    assert_string_equal(reason, "not watched: shared memory");
    regx_uffd_ranges_clear(&rig->ranges);
    (void)regx_uffd_unregister(&rig->uffd, (uintptr_t)meanwhile.base,
                               (uintptr_t)meanwhile.base + BLOCK); /* shared: not looked for */
    unmap(rig, meanwhile.base, 2 * (size_t)BLOCK);
}

static void share_the_neighbour(void)
{
    assert_ptr_equal(mmap(meanwhile.base, PAGE, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                     meanwhile.base);
}

/* The same beside what is to be watched, in a mapping that is watched already: it must not be
 * watched with the rest, or what was registered there would look true. */
static void a_neighbour_that_was_replaced_is_not_watched(void **state)
{
    rig_t *rig = *state;

    meanwhile.base = map(0, BLOCK);
    must_subscribe(rig, meanwhile.base, BLOCK);
    meanwhile.before = share_the_neighbour;
    /* Nobody reads events here: without the watched mapping's the replacement would wait. */
    assert_int_equal(regx_uffd_unregister(&rig->uffd, (uintptr_t)meanwhile.base,
                                          (uintptr_t)meanwhile.base + PAGE),
                     0);
    must_subscribe(rig, meanwhile.base + 2 * PAGE, PAGE);
    meanwhile.before = NULL;
    assert_false(regx_uffd_is_registered(&rig->uffd, (uintptr_t)meanwhile.base,
                                         (uintptr_t)meanwhile.base + PAGE));
    unmap(rig, meanwhile.base, BLOCK);
}

static void tell_of_it(void)
{
    regx_inval_log_write(meanwhile.log, (uintptr_t)meanwhile.base,
                         (uintptr_t)meanwhile.base + PAGE);
}

/* As soon as it is watched it changes, and the log has it before the call returns: what is pinned
 * after that may be of either, and `since` must not be behind it. Watched anew, and watched
 * already. */
static void a_change_right_after_watching_began_is_reported(void **state)
{
    rig_t *rig = *state;

    meanwhile.base = map(0, BLOCK);
    meanwhile.log = rig->log;
    const uintptr_t at = (uintptr_t)meanwhile.base;
    regx_inval_log_interest(rig->log, at, at + PAGE, 1);
    for (int round = 0; round < 2; round++) {
        uint64_t since;

        meanwhile.after = tell_of_it;
        assert_null(regx_uffd_ranges_add(&rig->ranges, at, at + PAGE, &since));
        meanwhile.after = NULL;
        assert_true(regx_inval_log_touched(rig->log, since, at, at + PAGE));
        assert_null(regx_uffd_ranges_add(&rig->ranges, at, at + PAGE, &since));
        assert_false(regx_inval_log_touched(rig->log, since, at, at + PAGE));
    }
    unmap(rig, meanwhile.base, BLOCK);
}

/* The same for what is already watched, when it changes just before: it was looked at before. */
static void a_change_right_before_watching_again_is_reported(void **state)
{
    rig_t *rig = *state;
    uint64_t since;

    meanwhile.base = map(0, BLOCK);
    meanwhile.log = rig->log;
    const uintptr_t at = (uintptr_t)meanwhile.base;
    regx_inval_log_interest(rig->log, at, at + PAGE, 1);
    must_subscribe(rig, meanwhile.base, PAGE);
    meanwhile.before = tell_of_it;
    assert_null(regx_uffd_ranges_add(&rig->ranges, at, at + PAGE, &since));
    meanwhile.before = NULL;
    assert_true(regx_inval_log_touched(rig->log, since, at, at + PAGE));
    unmap(rig, meanwhile.base, BLOCK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WATCHED(the_whole_mapping_is_watched),
        WATCHED(a_neighbour_can_still_be_moved),
        WATCHED(huge_pages_stay_whole),
        WATCHED(what_was_not_watched_is_logged_as_changed),
        WATCHED(memory_of_another_userfaultfd_is_refused),
        WATCHED(memory_that_becomes_shared_before_it_is_watched_is_refused),
        WATCHED(a_neighbour_that_was_replaced_is_not_watched),
        WATCHED(a_change_right_after_watching_began_is_reported),
        WATCHED(a_change_right_before_watching_again_is_reported),
    };

    return refused() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}

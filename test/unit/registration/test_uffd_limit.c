/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How many mappings are watched at the most, and how they are counted.
 */
#include "ranges.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned scans; /* PAGEMAP_SCAN, by which mappings are asked about (linked by --wrap) */

int __real_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument)
{
    scans += _IOC_TYPE(request) == 'f' && _IOC_NR(request) == 16;
    return __real_ioctl(fd, request, argument);
}

/* Ten mappings may be watched; what was watched and is gone gives room again. */
static void mappings_are_watched_up_to_a_limit(void **state)
{
    rig_t *rig = *state;
    char *blocks[40];

    for (int i = 0; i < 40; i++) {
        blocks[i] = map(0, BLOCK);
    }
    rig->ranges.max = 10;
    for (int i = 0; i < 10; i++) {
        must_subscribe(rig, blocks[i], PAGE);
    }
    assert_string_equal(subscribe(rig, blocks[10], PAGE),
                        "not watched: too many mappings (vm.max_map_count)");
    must_subscribe(rig, blocks[3], 2 * PAGE); /* watched already: nothing more */
    for (int i = 0; i < 10; i++) {
        assert_int_equal(
            regx_uffd_unregister(&rig->uffd, (uintptr_t)blocks[i], (uintptr_t)blocks[i] + BLOCK),
            0); /* as an unmapping would */
    }
    int refused = 0;
    while (subscribe(rig, blocks[11], PAGE) != NULL) { /* it is not counted for each */
        assert_in_range(++refused, 1, 2000);
    }
    for (int i = 12; i < 16; i++) { /* the count takes in the odd mapping of the kernel's */
        must_subscribe(rig, blocks[i], PAGE);
    }
    for (int i = 0; i < 40; i++) {
        unmap(rig, blocks[i], BLOCK);
    }
}

/* Where the kernel cannot be asked, what is watched again and again does not use the limit up; and
 * what may be watched counts as if it were. */
static void the_limit_holds_where_the_kernel_cannot_be_asked(void **state)
{
    rig_t *rig = *state;
    char *base = map(0, BLOCK);

    close(rig->uffd.pagemap);
    rig->uffd.pagemap = -1;
    rig->ranges.max = 2 * mappings();
    for (uint32_t i = 0; i < 10 * rig->ranges.max; i++) {
        must_subscribe(rig, base, PAGE);
    }
    rig->ranges.max = 1;
    rig->ranges.count = 1;
    assert_string_equal(subscribe(rig, base, PAGE),
                        "not watched: too many mappings (vm.max_map_count)");
    unmap(rig, base, BLOCK);
}

/* Each is a mapping of its own for good, since it was touched beside one that is watched. So the
 * more there are, the longer it takes until one more is watched; and what was unwatched merges. */
static void buffers_mapped_touched_and_watched_in_turn_stay_below_the_limit(void **state)
{
    enum { BUFFERS = 10000, SIZE = 256 << 10 };
    static char *buffers[BUFFERS];
    rig_t *rig = *state;
    const unsigned before = mappings();
    unsigned watched = 0;

    (void)before;

    rig->ranges.max = BUFFERS / 2;
    for (unsigned i = 0; i < BUFFERS; i++) {
        buffers[i] = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(buffers[i], MAP_FAILED);
        buffers[i][0] = 1;
        const char *reason = subscribe(rig, buffers[i], SIZE);
        if (reason != NULL &&
            strcmp(reason, "not watched: too many mappings (vm.max_map_count)") == 0) {
            fail_msg("buffer %u: %s", i, reason);
        }
        watched += reason == NULL;
    }
    assert_in_range(watched, 256, BUFFERS / 2);
#ifndef __SANITIZE_THREAD__ /* which maps more for each */
    assert_in_range(mappings(), before, before + BUFFERS / 2);
#endif
    /* What is used again and again is watched before long. */
    for (unsigned round = 0; round < 20; round++) {
        watched = 0;
        for (unsigned i = 0; i < BUFFERS; i++) {
            watched += subscribe(rig, buffers[i], SIZE) == NULL;
        }
    }
    assert_int_equal(watched, BUFFERS);
    regx_uffd_ranges_clear(&rig->ranges);
    for (unsigned i = 0; i < BUFFERS; i++) {
        munmap(buffers[i], SIZE);
    }
}

/* Below some thousands nobody needs to know how many there are. */
static void few_are_not_counted_however_many_are_used_and_freed(void **state)
{
    enum { OTHERS = 1000, FRESH = 600 };
    rig_t *rig = *state;
    char *others = map(0, 2 * OTHERS * PAGE);

    for (unsigned i = 0; i < OTHERS; i++) {
        assert_int_equal(mprotect(others + 2 * (size_t)i * PAGE, PAGE, PROT_READ), 0);
    }
    scans = 0;
    for (unsigned i = 0; i < FRESH; i++) {
        char *base = map(0, PAGE);

        must_subscribe(rig, base, PAGE);
        assert_int_equal(regx_uffd_unregister(&rig->uffd, (uintptr_t)base, (uintptr_t)base + PAGE),
                         0);
        assert_int_equal(munmap(base, PAGE), 0);
    }
    assert_in_range(scans, 0, 4 * FRESH);
    unmap(rig, others, 2 * OTHERS * PAGE);
}

static void the_limit_is_a_tenth_of_what_may_be_mapped(void **state)
{
    const rig_t *rig = *state;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    unsigned most;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%u", &most), 1);
    fclose(file);
    assert_int_equal(rig->ranges.max, most / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WATCHED(mappings_are_watched_up_to_a_limit),
        WATCHED(the_limit_holds_where_the_kernel_cannot_be_asked),
        WATCHED(buffers_mapped_touched_and_watched_in_turn_stay_below_the_limit),
        WATCHED(few_are_not_counted_however_many_are_used_and_freed),
        WATCHED(the_limit_is_a_tenth_of_what_may_be_mapped),
    };

    return refused() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is watched for a range: the mappings it lies in, whole and no others; no huge page is split,
 * no mapping is, and there is a limit to them. Nobody reads events here, so everything is
 * unregistered before it is unmapped.
 */
#include "../unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "registration/uffd.h"

enum { PAGE = 4096, BLOCK = 2 << 20 };

/* What happens around the call that watches (ioctl is linked by --wrap). */
static struct {
    void (*before)(void);
    void (*after)(void);
    regx_inval_log_t *log;
    char *base;
} meanwhile;

static unsigned scans; /* PAGEMAP_SCAN, by which mappings are asked about */

int __real_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument)
{
    if (request == UFFDIO_REGISTER && meanwhile.before != NULL) {
        meanwhile.before();
    }
    scans += _IOC_TYPE(request) == 'f' && _IOC_NR(request) == 16;
    const int result = __real_ioctl(fd, request, argument);
    if (request == UFFDIO_REGISTER && meanwhile.after != NULL) {
        meanwhile.after();
    }
    return result;
}

typedef struct rig {
    regx_uffd_t uffd;
    regx_inval_log_t *log;
    regx_uffd_ranges_t ranges;
} rig_t;

static int setup(void **state)
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

static int teardown(void **state)
{
    rig_t *rig = *state;

    regx_uffd_ranges_clear(&rig->ranges);
    regx_uffd_ranges_close(&rig->ranges);
    regx_uffd_close(&rig->uffd);
    regx_inval_log_close(rig->log);
    return 0;
}

/* Memory that begins `before` bytes before a multiple of 2 MiB and has nothing beside it. */
static char *map(size_t before, size_t length)
{
    const size_t room = length + 4 * (size_t)BLOCK;
    char *base = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(base, MAP_FAILED);
    char *aligned = (char *)(((uintptr_t)base + 2 * (size_t)BLOCK - 1) / BLOCK * BLOCK);
    assert_int_equal(mprotect(aligned - before, length, PROT_READ | PROT_WRITE), 0);
    return aligned - before;
}

static void unmap(rig_t *rig, char *base, size_t length)
{
    regx_uffd_ranges_clear(&rig->ranges);
    assert_int_equal(munmap(base, length), 0);
}

static const char *subscribe(rig_t *rig, char *base, size_t length)
{
    uint64_t since;

    return regx_uffd_ranges_add(&rig->ranges, (uintptr_t)base, (uintptr_t)base + length, &since);
}

static void must_subscribe(rig_t *rig, char *base, size_t length)
{
    const char *reason = subscribe(rig, base, length);

    if (reason != NULL) {
        fail_msg("%s", reason);
    }
}

/* Lines of other content begin with letters that might be digits. */
static void read_range(const char *line, uintptr_t *start, uintptr_t *end)
{
    uintptr_t from;
    uintptr_t to;

    if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
        *start = from;
        *end = to;
    }
}

/* What the kernel says is watched around `base`: mappings that touch each other are one. */
static unsigned armed_pieces(const char *base, size_t length, uintptr_t *start, uintptr_t *end)
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

static void expect_armed(const char *base, size_t length, const char *start, const char *end)
{
    uintptr_t from;
    uintptr_t to;

    assert_int_equal(armed_pieces(base, length, &from, &to), 1);
    assert_ptr_equal((void *)from, start);
    assert_ptr_equal((void *)to, end);
}

static void the_whole_mapping(void **state)
{
    rig_t *rig = *state;
    const size_t length = 3 * (size_t)BLOCK + 8 * PAGE;
    char *base = map(4 * PAGE, length);

    must_subscribe(rig, base + BLOCK, PAGE);
    expect_armed(base, length, base, base + length);
    must_subscribe(rig, base, length);
    expect_armed(base, length, base, base + length);
    unmap(rig, base, length);
}

static void over_several_mappings(void **state)
{
    rig_t *rig = *state;
    char *base = map(0, 3 * (size_t)BLOCK);

    assert_int_equal(mprotect(base + BLOCK, BLOCK, PROT_READ), 0);
    must_subscribe(rig, base + BLOCK - PAGE, PAGE); /* its neighbour is left alone */
    expect_armed(base, 3 * (size_t)BLOCK, base, base + BLOCK);
    must_subscribe(rig, base + BLOCK - PAGE, BLOCK + 2 * PAGE);
    expect_armed(base, 3 * (size_t)BLOCK, base, base + 3 * (size_t)BLOCK);
    unmap(rig, base, 3 * (size_t)BLOCK);
}

/* Two mappings of the application that the kernel made one, of which one was covered first: it may
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

static unsigned mappings(void)
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

/* Many small buffers in one mapping. */
static void neighbours_merge(void **state)
{
    rig_t *rig = *state;
    const size_t length = 32 * (size_t)BLOCK;
    char *base = map(0, length);
    const unsigned before = mappings();

    for (size_t i = 0; i < length; i += 5 * 64 * 1024) {
        must_subscribe(rig, base + i, 64 * 1024);
    }
    assert_in_range(mappings(), before, before + 2);
    expect_armed(base, length, base, base + length);
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
static void tells_of_what_it_arms_anew(void **state)
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

/* Ten mappings may be watched; what was watched and is gone gives room again. */
static void up_to_a_limit(void **state)
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
static void up_to_a_limit_on_an_older_kernel(void **state)
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
static void buffers_mapped_touched_and_covered_in_turn_stay_below_the_limit(void **state)
{
    enum { BUFFERS = 10000, SIZE = 256 << 10 };
    static char *buffers[BUFFERS];
    rig_t *rig = *state;
    const unsigned before = mappings();
    unsigned covered = 0;

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
        covered += reason == NULL;
    }
    assert_in_range(covered, 256, BUFFERS / 2);
#ifndef __SANITIZE_THREAD__ /* which maps more for each */
    assert_in_range(mappings(), before, before + BUFFERS / 2);
#endif
    /* What is used again and again is covered before long. */
    for (unsigned round = 0; round < 20; round++) {
        covered = 0;
        for (unsigned i = 0; i < BUFFERS; i++) {
            covered += subscribe(rig, buffers[i], SIZE) == NULL;
        }
    }
    assert_int_equal(covered, BUFFERS);
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

static void the_limit_is_a_tenth(void **state)
{
    const rig_t *rig = *state;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    unsigned most;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%u", &most), 1);
    fclose(file);
    assert_int_equal(rig->ranges.max, most / 10);
}

/* Of a range that has both, and also where the other's looks like ours. */
static void what_another_has(void **state)
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

/* The highest address there is, which outwards may not pass. */
static void at_the_top_of_the_stack(void **state)
{
    rig_t *rig = *state;
    FILE *file = fopen("/proc/self/maps", "r");
    char line[8192];
    uintptr_t start = 0;
    uintptr_t end = 0;

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL && strstr(line, "[stack]") == NULL) {
    }
    fclose(file);
    assert_int_equal(sscanf(line, "%lx-%lx ", &start, &end), 2);
    must_subscribe(rig, (char *)end - PAGE, PAGE);
    assert_string_equal(subscribe(rig, (char *)(UINTPTR_MAX - 2 * PAGE + 1), PAGE),
                        "not watched: not all of it is mapped");
}

static void share_it(void)
{
    assert_ptr_equal(mmap(meanwhile.base, BLOCK, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                     meanwhile.base);
}

/* Between our look and watching it, it became what must not be kept; nobody told. */
static void replaced_before_it_is_armed(void **state)
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

/* The same beside what is to be covered, in a mapping that is watched already: it must not be
 * watched with the rest, or what was registered there would look true. */
static void replaced_beside_it(void **state)
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

/* As soon as it is watched it changes, and the log has it before cover returns: what is pinned
 * after that may be of either, and `since` must not be behind it. Armed anew, and watched
 * already. */
static void changed_once_it_is_armed(void **state)
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
static void changed_before_it_is_armed_again(void **state)
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

#define ARMED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* Whether this machine has userfaultfd at all; says so if not. */
static bool refused(void)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        ARMED(the_whole_mapping),
        ARMED(over_several_mappings),
        ARMED(a_neighbour_can_still_be_moved),
        ARMED(neighbours_merge),
        ARMED(huge_pages_stay_whole),
        ARMED(tells_of_what_it_arms_anew),
        ARMED(up_to_a_limit),
        ARMED(up_to_a_limit_on_an_older_kernel),
        ARMED(buffers_mapped_touched_and_covered_in_turn_stay_below_the_limit),
        ARMED(few_are_not_counted_however_many_are_used_and_freed),
        ARMED(the_limit_is_a_tenth),
        ARMED(what_another_has),
        ARMED(at_the_top_of_the_stack),
        ARMED(replaced_before_it_is_armed),
        ARMED(replaced_beside_it),
        ARMED(changed_once_it_is_armed),
        ARMED(changed_before_it_is_armed_again),
    };

    return refused() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}

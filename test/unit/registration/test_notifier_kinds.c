/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The notifier: which kinds of memory it monitors, and which it refuses; a segment laid over what
 * it monitors, of which the kernel does not tell.
 */
#include "monitored.h"

#include <stdlib.h>
#include <sys/shm.h>

/* ---- a segment laid over private memory, of which the kernel does not tell ---- */

static void attach_over(char *base)
{
    const int id = shmget(IPC_PRIVATE, LENGTH, 0600);

    assert_ptr_equal(shmat(id, base, SHM_REMAP), base);
    assert_int_equal(shmctl(id, IPC_RMID, NULL), 0);
}

static void a_segment_attached_over_it_is_not_seen_without_scan(void **state)
{
    regx_monitor_t *monitor = start();
    char *base = map(LENGTH);
    region_t region = must_keep(monitor, base, LENGTH);

    (void)state;
    assert_true(hits_in_the_end(&region));
    attach_over(base);
    assert_true(hits_in_the_end(&region)); /* stale: the documented blind spot */
    drop(&region);
    monitor->stop(monitor);
    shmdt(base);
}

/* What replaced it unseen is watched along with a neighbour: nothing kept from before may come back
 * to life. */
static void what_was_replaced_unseen_stays_ended_when_watched_again(void **state)
{
    char *base = mmap(NULL, (size_t)4 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *inside = (char *)(((uintptr_t)base + (2 << 20) - 1) >> 21 << 21);

    munmap(base, (size_t)4 << 20);
    assert_ptr_equal(mmap(inside, 2 * LENGTH, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                     inside);
    region_t region = must_keep(*state, inside, LENGTH / 2);
    assert_true(hits_in_the_end(&region));
    attach_over(inside);
    shmdt(inside);
    assert_ptr_equal(mmap(inside, LENGTH, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                     inside);
    region_t part = must_keep(*state, inside + LENGTH / 2, LENGTH);
    assert_false(hits_in_the_end(&region));
    assert_true(hits_in_the_end(&part));
    drop(&region);
    drop(&part);
    munmap(inside, 2 * LENGTH);
}

/* ---- kinds of memory ---- */

static uint64_t tally(const char *reason)
{
    return atomic_load(&regx_tally_find(counters.fallbacks, reason)->count);
}

static void must_not_keep(regx_monitor_t *monitor, void *base, size_t length, const char *reason)
{
    const uint64_t before = tally(reason);
    region_t region = keep(monitor, base, length);

    if (region.status != REGX_DENIED || tally(reason) != before + 1 ||
        strstr(traced_line, reason) == NULL) {
        fail_msg("answered %d, traced \"%s\", expected: %s", (int)region.status, traced_line,
                 reason);
    }
    drop(&region);
}

static unsigned char bss[4 * PAGE];

static void must_notice(regx_monitor_t *monitor, void *base, size_t length)
{
    char *first = (char *)(((uintptr_t)base + PAGE - 1) / PAGE * PAGE);
    const size_t pages = ((uintptr_t)base + length - (uintptr_t)first) / PAGE * PAGE;
    region_t region = must_keep(monitor, first, pages);

    assert_true(hits_in_the_end(&region));
    assert_int_equal(madvise(first, pages, MADV_DONTNEED), 0);
    assert_false(hits(&region));
    drop(&region);
}

static void private_memory_of_every_kind_is_watched(void **state)
{
    volatile unsigned char stack[4 * PAGE];
    void *heap = malloc(64 * 1024);
    char *untouched =
        mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *mixed = map(LENGTH);
    unsigned char resident[LENGTH / PAGE];

    stack[0] = 1;
    must_notice(*state, (void *)(uintptr_t)stack, 2 * PAGE);
    must_notice(*state, bss + PAGE, sizeof(bss) - PAGE);
    must_notice(*state, heap, 64 * 1024);
    region_t region = must_keep(*state, untouched, LENGTH);
    assert_int_equal(mincore(untouched, LENGTH, resident), 0);
    for (int i = 0; i < LENGTH / PAGE; i++) {
        assert_int_equal(resident[i] & 1, 0); /* watching touches nothing */
        assert_int_equal(untouched[i * PAGE], 0);
    }
    drop(&region);
    /* Several mappings, all of the right kind. */
    assert_int_equal(mprotect(mixed + 4 * PAGE, 4 * PAGE, PROT_READ), 0);
    must_notice(*state, mixed, LENGTH);
    region = must_keep(*state, mixed, LENGTH);
    assert_int_equal(munmap(mixed + LENGTH - PAGE, PAGE), 0);
    assert_false(hits(&region));
    drop(&region);
    munmap(mixed, LENGTH);
    munmap(untouched, LENGTH);
    free(heap);
}

static void shared_memory_and_files_are_refused_with_the_reason(void **state)
{
    const int fd = memfd_create("regx", MFD_CLOEXEC);
    char *shared = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *private = map(3 * LENGTH);

    assert_int_equal(ftruncate(fd, LENGTH), 0);
    char *file = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    assert_true(shared != MAP_FAILED && file != MAP_FAILED);
    must_not_keep(*state, shared, LENGTH, "not watched: shared memory");
    must_not_keep(*state, file, LENGTH, "not watched: a mapping of a file");
    attach_over(private + LENGTH);
    must_not_keep(*state, private, 3 * LENGTH, "not watched: shared memory");
    shmdt(private + LENGTH);
    must_not_keep(*state, private, 3 * LENGTH, "not watched: not all of it is mapped");
    must_not_keep(*state, private + LENGTH, LENGTH, "not watched: not all of it is mapped");
    assert_int_equal(munmap(private + 3 * LENGTH - PAGE, PAGE), 0);
    must_not_keep(*state, private + 2 * LENGTH, LENGTH, "not watched: not all of it is mapped");
    munmap(private, 3 * LENGTH);
    munmap(shared, LENGTH);
    munmap(file, LENGTH);
    close(fd);
}

static void huge_pages_are_watched(void **state)
{
    const size_t page = (size_t)2 << 20;
    char *base = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

    if (base == MAP_FAILED) {
        print_message("not tried: no huge pages are set aside (vm.nr_hugepages)\n");
        skip();
    }
    memset(base, 1, 2 * page);
    region_t first = must_keep(*state, base + PAGE, PAGE);
    region_t second = must_keep(*state, base + page, page);
    region_t again = must_keep(*state, base + 3 * PAGE, PAGE);
    drop(&again);
    assert_true(hits_in_the_end(&first) && hits_in_the_end(&second));
    assert_int_equal(madvise(base, page, MADV_DONTNEED), 0);
    assert_false(hits(&first));
    assert_true(hits_in_the_end(&second));
    assert_int_equal(munmap(base, 2 * page), 0);
    assert_false(hits(&second));
    drop(&first);
    drop(&second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_segment_attached_over_it_is_not_seen_without_scan),
        WATCHED(what_was_replaced_unseen_stays_ended_when_watched_again),
        WATCHED(private_memory_of_every_kind_is_watched),
        WATCHED(shared_memory_and_files_are_refused_with_the_reason),
        WATCHED(huge_pages_are_watched),
    };

    return refused() ? 0 : cmocka_run_group_tests(tests, give_up_in_time, NULL);
}

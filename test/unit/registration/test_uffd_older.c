/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The notifier on older kernels: as good as on a new one.
 */
#include "../../below_room.h"
#include "old_kernel.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

static void it_works_on_this_kernel(void **state)
{
    (void)state;
    must_work();
}

/* Linux 5.18 to 6.6, and what has one thing and not the other: works all the same, but cannot scan.
 */
static void without_what_only_scanning_needs_it_works(void **state)
{
    static const uint64_t cases[] = {1 << 13, 1 << 15, 1 << 13 | 1 << 15};

    (void)state;
    for (int no_query = 0; no_query < 2; no_query++) {
        old.no_query = no_query == 1;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            old.lacking = cases[i];
            must_work();
        }
        old.lacking = 0;
        old.no_scan = true;
        must_work();
        old.no_scan = false;
        must_work();
    }
}

/* libc gives the stack back as a thread ends: a change, for which nobody reads any more. */
static void the_readers_end_does_not_wait_for_itself(void **state)
{
    (void)state;
    old.no_scan = old.keeps = true;
    must_work();
}

/* Where nobody can be asked what is watched, what took a range's place unseen is not noticed (the
 * documented hole, seen to be one), but it is watched as any other memory. */
static void an_older_kernel_does_not_see_a_segment_attached_over_it(void **state)
{
    const size_t length = 8 * PAGE;
    char *base = map_below_room(length);
    const uintptr_t at = (uintptr_t)base;
    uint64_t first;
    uint64_t since;

    (void)state;
    old.no_scan = true;
    regx_monitor_t *monitor = start();
    assert_non_null(monitor);
    regx_inval_log_interest(monitor->log, at, at + length, 1);
    assert_int_equal(monitor->subscribe(monitor, at, at + length, &first), REGX_OK);
    assert_int_equal(monitor->subscribe(monitor, at, at + PAGE, &since), REGX_OK);
    assert_false(regx_inval_log_touched(monitor->log, first, at, at + length));
    const int id = shmget(IPC_PRIVATE, length, 0600);
    assert_ptr_equal(shmat(id, base, SHM_REMAP), base);
    assert_int_equal(shmctl(id, IPC_RMID, NULL), 0);
    assert_int_equal(monitor->subscribe(monitor, at, at + PAGE, &since), REGX_DENIED);
    assert_int_equal(shmdt(base), 0);
    assert_ptr_equal(mmap(base, length, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                     base);
    assert_int_equal(monitor->subscribe(monitor, at, at + PAGE, &since), REGX_OK);
    assert_false(regx_inval_log_touched(monitor->log, first, at, at + length));
    assert_int_equal(munmap(base, PAGE), 0);
    while (!regx_inval_log_touched(monitor->log, since, at, at + PAGE)) {
        sched_yield();
    }
    monitor->stop(monitor);
    munmap(base + PAGE, length - PAGE);
}

/* How many pages the application's own userfaultfd still holds writers to. */
static unsigned write_protected(const char *base, unsigned pages)
{
    const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    unsigned count = 0;

    assert_true(pagemap >= 0);
    for (unsigned i = 0; i < pages; i++) {
        const off_t at = (off_t)((uintptr_t)base / PAGE + i) * 8;
        uint64_t entry;

        assert_int_equal(pread(pagemap, &entry, sizeof(entry), at), sizeof(entry));
        count += (unsigned)(entry >> 57 & 1);
    }
    close(pagemap);
    return count;
}

/* Its memory is not kept and stays its own, also when all is unregistered. */
static void memory_of_the_applications_own_userfaultfd_stays_its_own(void **state)
{
    enum { PAGES = 16 };
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    const int own =
        (int)syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */ | O_CLOEXEC, 0, 0, 0, 0, 0);
    char *base =
        mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const uintptr_t at = (uintptr_t)base;
    struct uffdio_register range = {.range = {.start = at, .len = PAGES * PAGE},
                                    .mode = UFFDIO_REGISTER_MODE_WP};
    struct uffdio_writeprotect protect = {.range = range.range,
                                          .mode = UFFDIO_WRITEPROTECT_MODE_WP};

    (void)state;
    memset(base, 1, PAGES * PAGE);
    assert_int_equal(ioctl(own, UFFDIO_API, &api), 0);
    assert_int_equal(ioctl(own, UFFDIO_REGISTER, &range), 0);
    assert_int_equal(ioctl(own, UFFDIO_WRITEPROTECT, &protect), 0);
    for (int no_scan = 0; no_scan < 2; no_scan++) {
        uint64_t since;

        old.no_scan = no_scan == 1;
        memset(&counters, 0, sizeof(counters));
        regx_monitor_t *monitor = start();
        assert_non_null(monitor);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(monitor->subscribe(monitor, at + PAGE, at + 3 * PAGE, &since),
                             REGX_DENIED);
        }
        assert_string_equal(counters.fallbacks[0].reason,
                            "not watched: another userfaultfd has it");
        assert_int_equal(write_protected(base, PAGES), PAGES);
        old.taken = at;
        monitor->stop(monitor);
        assert_false(old.took);
        assert_int_equal(write_protected(base, PAGES), PAGES);
    }
    close(own);
    munmap(base, PAGES * PAGE);
}

static void huge_pages_are_watched_on_an_older_kernel(void **state)
{
    const size_t length = (size_t)4 << 20;
    char *base = mmap(NULL, length, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    uint64_t since;

    (void)state;
    if (base == MAP_FAILED) {
        print_message("not tried: no huge pages are set aside (vm.nr_hugepages)\n");
        skip();
    }
    memset(base, 1, length);
    old.no_query = old.no_scan = true;
    old.lacking = 1 << 13 | 1 << 15;
    regx_monitor_t *monitor = start();
    assert_non_null(monitor);
    regx_inval_log_interest(monitor->log, (uintptr_t)base, (uintptr_t)base + PAGE, 1);
    assert_int_equal(monitor->subscribe(monitor, (uintptr_t)base, (uintptr_t)base + PAGE, &since),
                     REGX_OK);
    assert_int_equal(madvise(base, length / 2, MADV_DONTNEED), 0);
    while (!regx_inval_log_touched(monitor->log, since, (uintptr_t)base, (uintptr_t)base + PAGE)) {
        sched_yield();
    }
    monitor->stop(monitor);
    munmap(base, length);
}

int main(void)
{
#define OLD(test) cmocka_unit_test_setup(test, setup)
    const struct CMUnitTest tests[] = {
        OLD(it_works_on_this_kernel),
        OLD(without_what_only_scanning_needs_it_works),
        OLD(the_readers_end_does_not_wait_for_itself),
        OLD(an_older_kernel_does_not_see_a_segment_attached_over_it),
        OLD(memory_of_the_applications_own_userfaultfd_stays_its_own),
        OLD(huge_pages_are_watched_on_an_older_kernel),
    };

    return refused() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The self-test of monitors, tried on one that hears of changes through wrappers around libc's
 * functions (linked by --wrap) and is made deaf.
 */
#include "../unit.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "registration/monitor/monitor.h"

enum { NONE, MUNMAP, MREMAP, MADVISE, MMAP, SHMAT, ALL };

/* How the monitor hears. */
static struct {
    regx_monitor_t monitor;
    pthread_t main;
    bool tests;        /* is the self-test running */
    bool raw;          /* hears system calls too */
    bool destination;  /* hears of what mremap moves onto */
    int deaf;          /* does not hear this one, */
    bool deaf_in_raw;  /* only of system calls, */
    bool deaf_thread;  /* only in other threads */
    bool holds;        /* tells that something happens, and never what */
    bool refuses;      /* cannot watch the scratch pages */
    bool no_segments;  /* there is no shared memory of System V's */
    unsigned tried[2]; /* changes made by libc, raw */
} it;

static void tell(int change, bool raw, void *base, size_t length)
{
    const bool thread = !pthread_equal(pthread_self(), it.main);

    if (!it.tests) {
        return;
    }
    it.tried[raw]++;
    if ((raw && !it.raw) || it.holds ||
        ((it.deaf == change || it.deaf == ALL) && (raw || !it.deaf_in_raw) &&
         (thread || !it.deaf_thread))) {
        return;
    }
    regx_inval_log_write(it.monitor.log, (uintptr_t)base, (uintptr_t)base + length);
}

static void tell_of_move(bool raw, void *from, void *to, size_t length)
{
    tell(MREMAP, raw, from, length);
    if (it.destination) {
        tell(MREMAP, raw, to, length);
        it.tried[raw]--;
    }
}

int __real_munmap(void *base, size_t length);
int __wrap_munmap(void *base, size_t length);
int __wrap_munmap(void *base, size_t length)
{
    if (length == (size_t)sysconf(_SC_PAGESIZE)) { /* not the scratch pages as a whole */
        tell(MUNMAP, false, base, length);
    }
    return __real_munmap(base, length);
}

int __real_madvise(void *base, size_t length, int advice);
int __wrap_madvise(void *base, size_t length, int advice);
int __wrap_madvise(void *base, size_t length, int advice)
{
    tell(MADVISE, false, base, length);
    return __real_madvise(base, length, advice);
}

void *__real_mremap(void *base, size_t from, size_t to, int flags, void *onto);
void *__wrap_mremap(void *base, size_t from, size_t to, int flags, void *onto);
void *__wrap_mremap(void *base, size_t from, size_t to, int flags, void *onto)
{
    if ((flags & MREMAP_FIXED) != 0) {
        tell_of_move(false, base, onto, from);
    } else { /* it shrinks, and has no such argument */
        tell(MREMAP, false, base, from);
    }
    return __real_mremap(base, from, to, flags, onto);
}

void *__real_mmap(void *base, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *base, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *base, size_t length, int protection, int flags, int fd, off_t offset)
{
    if ((flags & MAP_FIXED) != 0) {
        tell(MMAP, false, base, length);
    }
    return __real_mmap(base, length, protection, flags, fd, offset);
}

void *__real_shmat(int segment, const void *base, int flags);
void *__wrap_shmat(int segment, const void *base, int flags);
void *__wrap_shmat(int segment, const void *base, int flags)
{
    tell(SHMAT, false, (void *)(uintptr_t)base, (size_t)sysconf(_SC_PAGESIZE));
    return __real_shmat(segment, base, flags);
}

int __real_shmget(key_t key, size_t size, int flags);
int __wrap_shmget(key_t key, size_t size, int flags);
int __wrap_shmget(key_t key, size_t size, int flags)
{
    return it.no_segments ? -1 : __real_shmget(key, size, flags);
}

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    switch (number) {
    case SYS_munmap:
        tell(MUNMAP, true, (void *)a, (size_t)b);
        break;
    case SYS_madvise:
        tell(MADVISE, true, (void *)a, (size_t)b);
        break;
    case SYS_mremap:
        tell_of_move(true, (void *)a, (void *)e, (size_t)b);
        break;
    case SYS_mmap:
        tell(MMAP, true, (void *)a, (size_t)b);
        break;
    default:
        break;
    }
    return __real_syscall(number, a, b, c, d, e, f);
}

static bool valid(regx_monitor_t *monitor, uintptr_t start, uintptr_t end)
{
    (void)monitor;
    (void)start;
    (void)end;
    return !it.holds;
}

static regx_status_t subscribe(regx_monitor_t *monitor, uintptr_t start, uintptr_t end,
                               uint64_t *since)
{
    (void)start;
    (void)end;
    *since = atomic_load(&monitor->log->head);
    return it.refuses ? REGX_DENIED : REGX_OK;
}

static int setup(void **state)
{
    (void)state;
    memset(&it, 0, sizeof(it));
    it.main = pthread_self();
    it.monitor.name = "ears";
    it.monitor.log = regx_inval_log_open();
    assert_non_null(it.monitor.log);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    regx_inval_log_close(it.monitor.log);
    return 0;
}

/* expected: what the line says after "self-test: "; NULL: all is well. */
static void expect(unsigned claims, const char *expected)
{
    char error[160] = "";
    char line[160];

    memset(it.tried, 0, sizeof(it.tried));
    it.tests = true;
    const regx_status_t status = regx_selftest(&it.monitor, claims, error, sizeof(error));
    it.tests = false;
    snprintf(line, sizeof(line), "self-test: %s", expected == NULL ? "" : expected);
    if (expected == NULL) {
        assert_string_equal(error, "");
    } else {
        assert_string_equal(error, line);
    }
    assert_int_equal(status, expected == NULL ? REGX_OK : REGX_INVALID);
}

static void every_claim_is_tried(void **state)
{
    (void)state;
    expect(REGX_SELFTEST_LIBC, NULL);
    assert_int_equal(it.tried[0], 4);
    assert_int_equal(it.tried[1], 0);
    expect(REGX_SELFTEST_LIBC | REGX_SELFTEST_THREAD, NULL);
    assert_int_equal(it.tried[0], 8);
    assert_int_equal(it.tried[1], 0);
    it.raw = it.destination = true;
    expect(REGX_SELFTEST_ALL, NULL);
    assert_int_equal(it.tried[0], 10);
    assert_int_equal(it.tried[1], 8);
    it.no_segments = true;
    expect(REGX_SELFTEST_ALL, NULL);
    assert_int_equal(it.tried[0], 8);
    it.deaf = MUNMAP;
    it.deaf_thread = true;
    expect(REGX_SELFTEST_ALL, "munmap by libc in a second thread was not seen");
}

static void a_monitor_deaf_to_one_change_is_refused(void **state)
{
    static const char *const lines[] = {"",
                                        "munmap by libc was not seen",
                                        "mremap by libc was not seen",
                                        "madvise(MADV_DONTNEED) by libc was not seen",
                                        "mmap(MAP_FIXED) by libc was not seen",
                                        "shmat(SHM_REMAP) by libc was not seen"};

    (void)state;
    for (it.deaf = MUNMAP; it.deaf < ALL; it.deaf++) {
        expect(REGX_SELFTEST_LIBC | REGX_SELFTEST_REMAP, lines[it.deaf]);
    }
}

static void a_monitor_deaf_to_raw_calls_is_refused(void **state)
{
    (void)state;
    expect(REGX_SELFTEST_LIBC | REGX_SELFTEST_RAW, "munmap by a raw system call was not seen");
    it.raw = it.deaf_in_raw = true;
    it.deaf = MMAP;
    expect(REGX_SELFTEST_LIBC | REGX_SELFTEST_RAW,
           "mmap(MAP_FIXED) by a raw system call was not seen");
}

static void a_monitor_deaf_to_other_threads_is_refused(void **state)
{
    (void)state;
    it.raw = it.destination = it.deaf_thread = true;
    it.deaf = MADVISE;
    expect(REGX_SELFTEST_ALL, "madvise(MADV_DONTNEED) by libc in a second thread was not seen");
    it.deaf_in_raw = true;
    expect(REGX_SELFTEST_ALL,
           "madvise(MADV_DONTNEED) by a raw system call in a second thread was not seen");
}

static void a_monitor_deaf_to_the_destination_of_a_move_is_refused(void **state)
{
    (void)state;
    it.raw = true;
    expect(REGX_SELFTEST_ALL, "mremap by a raw system call was not seen where it moves to");
}

/* What only ever says "wait" is noticed: the cache would never hit. */
static void a_monitor_that_never_logs_is_refused(void **state)
{
    (void)state;
    it.monitor.valid = valid;
    it.holds = true;
    expect(REGX_SELFTEST_LIBC, "munmap by libc was noticed, but did not come into the log");
}

static void a_monitor_that_cannot_watch_is_refused(void **state)
{
    (void)state;
    it.monitor.subscribe = subscribe;
    it.refuses = true;
    expect(REGX_SELFTEST_LIBC,
           "munmap by libc could not be tried: the scratch pages cannot be watched");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_claim_is_tried, setup, teardown),
        cmocka_unit_test_setup_teardown(a_monitor_deaf_to_one_change_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_monitor_deaf_to_raw_calls_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_monitor_deaf_to_other_threads_is_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_monitor_deaf_to_the_destination_of_a_move_is_refused,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_monitor_that_never_logs_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_monitor_that_cannot_watch_is_refused, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

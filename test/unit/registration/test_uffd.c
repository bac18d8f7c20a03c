/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The notifier where userfaultfd is refused, and on older kernels: refused by name and reason, or
 * as good as on a new one. The older kernel is made by wrappers around ioctl and syscall (linked by
 * --wrap), refusals also by a seccomp filter in a child.
 */
#include "../process.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "registration/monitor.h"
#include "registration/uffd.h"

enum { PAGE = 4096 };

/* ---- the older kernel ---- */

static struct {
    int refusal;      /* userfaultfd fails so */
    uint64_t lacking; /* features */
    int answers;      /* UFFDIO_API fails from this call on, counted from 1 */
    bool no_scan;     /* PAGEMAP_SCAN */
    bool no_query;    /* PROCMAP_QUERY */
    uintptr_t taken;  /* Linux before 6.17 lets anyone unregister this address, */
    bool took;        /* and somebody did */
    bool keeps;       /* what is watched stays so, whatever is unregistered */
} old;

/* What the reader's thread changes before it reads: tools that wrap pthread_create do. */
static struct {
    char *page; /* it unmaps this; NULL: nothing */
    void *(*run)(void *);
    void *argument;
    _Atomic bool watched; /* the page is */
    _Atomic bool awaited; /* somebody sleeps until the thread reads */
    _Atomic bool unmapped;
} starting;

static void *unmap_and_run(void *unused)
{
    (void)unused;
    while (!atomic_load(&starting.watched) && !atomic_load(&starting.awaited)) {
        sched_yield();
    }
    munmap(starting.page, PAGE);
    atomic_store(&starting.unmapped, true);
    return starting.run(starting.argument);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    starting.run = run;
    starting.argument = argument;
    return __real_pthread_create(thread, attributes, starting.page != NULL ? unmap_and_run : run,
                                 argument);
}

void __real_regx_thread_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds);
void __wrap_regx_thread_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds);
void __wrap_regx_thread_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds)
{
    atomic_store(&starting.awaited, true);
    __real_regx_thread_wait(word, value, milliseconds);
}

/* Lets the thread change the page while it is watched, if it has not yet. */
static void note_watched(int fd, const struct uffdio_register *request)
{
    if (starting.page == NULL ||
        (uintptr_t)starting.page - request->range.start >= request->range.len) {
        return;
    }
    atomic_store(&starting.watched, true);
    while (!atomic_load(&starting.unmapped) && regx_uffd_is_idle(fd)) {
        sched_yield();
    }
}

static bool is(unsigned long request, char type, unsigned number)
{
    return _IOC_TYPE(request) == (unsigned)type && _IOC_NR(request) == number;
}

int __real_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument)
{
    if ((old.no_scan && is(request, 'f', 16)) || (old.no_query && is(request, 'f', 17))) {
        errno = ENOTTY;
        return -1;
    }
    if (request == UFFDIO_UNREGISTER && old.taken != 0) {
        const struct uffdio_range *range = argument;

        old.took = old.took || old.taken - range->start < range->len;
    }
    if (request == UFFDIO_UNREGISTER && old.keeps) {
        return 0;
    }
    if (request == UFFDIO_REGISTER) {
        const int result = __real_ioctl(fd, request, argument);

        note_watched(fd, argument);
        return result;
    }
    if (request == UFFDIO_API) {
        struct uffdio_api *api = argument;

        if ((api->features & old.lacking) != 0 || (old.answers > 0 && --old.answers == 0)) {
            errno = EINVAL;
            return -1;
        }
        const int result = __real_ioctl(fd, request, argument);
        api->features &= ~old.lacking;
        return result;
    }
    return __real_ioctl(fd, request, argument);
}

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (number == SYS_userfaultfd && old.refusal != 0) {
        errno = old.refusal;
        return -1;
    }
    return __real_syscall(number, a, b, c, d, e, f);
}

static int setup(void **state)
{
    (void)state;
    memset(&old, 0, sizeof(old));
    memset(&starting, 0, sizeof(starting));
    alarm(UNIT_PATIENCE); /* a hang is a failure, not the end of all tests */
    return 0;
}

/* ---- the notifier on it ---- */

static regx_counters_t counters;
static char error[256];

static regx_monitor_t *start(regx_check_t check)
{
    const regx_monitor_config_t config = {.check = check, .threads = true, .counters = &counters};
    regx_monitor_t *monitor = NULL;

    error[0] = '\0';
    const regx_status_t status =
        regx_backend_notifier.start(&config, &monitor, error, sizeof(error));
    return status == REGX_OK ? monitor : NULL;
}

/* NULL: it does what it is for. No assertions: it also runs in children. */
static const char *fault(void)
{
    const size_t length = 8 * PAGE;
    regx_monitor_t *monitor = start(REGX_CHECK_ALWAYS);
    uint64_t since[2];

    if (monitor == NULL) {
        return error;
    }
    char *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const uintptr_t at = (uintptr_t)base;
    const char *result = NULL;

    while (atomic_load(&monitor->log->sequence) % 2 == 1) {
        sched_yield();
    }
    regx_inval_log_interest(monitor->log, at, at + length, 1);
    if (base == MAP_FAILED ||
        monitor->subscribe(monitor, at, at + 2 * PAGE, &since[0]) != REGX_OK ||
        monitor->subscribe(monitor, at + 4 * PAGE, at + length, &since[1]) != REGX_OK) {
        result = "does not watch";
    } else if (regx_inval_log_touched(monitor->log, since[0], at, at + 2 * PAGE)) {
        result = "one makes another invalid";
    } else if (!monitor->valid(monitor, at, at + PAGE)) {
        result = "is not quiet";
    } else if (munmap(base + 4 * PAGE, PAGE) != 0) {
        result = "munmap fails";
    }
    while (result == NULL && (!monitor->valid(monitor, at, at + PAGE) ||
                              atomic_load(&monitor->log->sequence) % 2 == 1)) {
        sched_yield();
    }
    if (result == NULL &&
        !regx_inval_log_touched(monitor->log, since[1], at + 4 * PAGE, at + length)) {
        result = "does not see munmap";
    } else if (result == NULL &&
               regx_inval_log_touched(monitor->log, since[0], at, at + 2 * PAGE)) {
        result = "sees what did not change";
    }
    munmap(base, length);
    monitor->stop(monitor);
    return result;
}

static void must_work(void)
{
    const char *found = fault();

    if (found != NULL) {
        fail_msg("%s", found);
    }
}

static void must_refuse(regx_check_t check, const char *expected)
{
    assert_null(start(check));
    if (strstr(error, expected) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", error, expected);
    }
    assert_null(strchr(error, '\n'));
}

static void it_works_on_this_kernel(void **state)
{
    (void)state;
    must_work();
}

static void each_refusal_has_its_reason(void **state)
{
    static const struct {
        int refusal;
        const char *line;
    } cases[] = {
        {EPERM, "userfaultfd: Operation not permitted: refused by a seccomp filter or security "
                "module (as it takes no privilege, vm.unprivileged_userfaultfd does not matter)"},
        {EACCES, "userfaultfd: Permission denied: refused by a seccomp filter or security module"},
        {ENOSYS, "userfaultfd: not in this kernel, or hidden by a seccomp filter"},
        {EINVAL, "userfaultfd: this kernel knows none without privilege (Linux 5.11)"},
        {EMFILE, "userfaultfd: Too many open files"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        old.refusal = cases[i].refusal;
        must_refuse(REGX_CHECK_ALWAYS, cases[i].line);
    }
}

/* Its number may be another thread's by the time it would be closed again. */
static void a_descriptor_that_is_refused_its_features_is_closed_once(void **state)
{
    regx_uffd_t uffd = {.fd = -1, .pagemap = -1};
    char line[256];

    (void)state;
    old.answers = 2;
    assert_int_equal(regx_uffd_open(&uffd, line, sizeof(line)), REGX_DENIED);
    assert_int_equal(uffd.fd, -1);
}

static void without_any_needed_feature_it_is_refused(void **state)
{
    static const struct {
        uint64_t feature;
        const char *name;
    } cases[] = {{UFFD_FEATURE_EVENT_UNMAP, "lacks EVENT_UNMAP"},
                 {UFFD_FEATURE_EVENT_REMAP, "lacks EVENT_REMAP"},
                 {UFFD_FEATURE_EVENT_REMOVE, "lacks EVENT_REMOVE"},
                 {UFFD_FEATURE_PAGEFAULT_FLAG_WP, "lacks PAGEFAULT_FLAG_WP"},
                 {1 << 11, "lacks EXACT_ADDRESS (Linux 5.18)"}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        old.lacking = cases[i].feature;
        must_refuse(REGX_CHECK_ALWAYS, cases[i].name);
    }
    old.lacking = 0;
    old.answers = 1;
    must_refuse(REGX_CHECK_ALWAYS, "does not answer");
    old.answers = 2;
    must_refuse(REGX_CHECK_ALWAYS, "its features are refused: Invalid argument");
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
            must_refuse(REGX_CHECK_SCAN, "btl_regx_notifier_check=scan needs PAGEMAP_SCAN");
        }
        old.lacking = 0;
        old.no_scan = true;
        must_work();
        must_refuse(REGX_CHECK_SCAN, "btl_regx_notifier_check=scan needs PAGEMAP_SCAN");
        old.no_scan = false;
        must_work();
    }
}

/* Here stop watches and unwatches all memory. If the reader's own thread changed some meanwhile,
 * before it came to read, it would wait for itself. */
static void nothing_is_watched_before_the_reader_reads(void **state)
{
    (void)state;
    old.no_scan = true;
    starting.page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(starting.page, MAP_FAILED);
    must_refuse(REGX_CHECK_SCAN, "btl_regx_notifier_check=scan needs PAGEMAP_SCAN");
    assert_true(starting.unmapped);
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
    char *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const uintptr_t at = (uintptr_t)base;
    uint64_t first;
    uint64_t since;

    (void)state;
    old.no_scan = true;
    regx_monitor_t *monitor = start(REGX_CHECK_ALWAYS);
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
        regx_monitor_t *monitor = start(REGX_CHECK_ALWAYS);
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
    regx_monitor_t *monitor = start(REGX_CHECK_ALWAYS);
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

/* ---- in a child ---- */

/* Runs it there; what it answers, "" for NULL. */
static void in_a_child(void (*prepare)(int), int with, char answer[256])
{
    int ends[2];
    int status = -1;
    ssize_t got;

    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        alarm(UNIT_PATIENCE);
        prepare(with);
        const char *found = fault();
        const size_t length = found == NULL ? 0 : strlen(found);
        _exit(write(ends[1], found, length) == (ssize_t)length ? 0 : 1);
    }
    close(ends[1]);
    size_t have = 0;
    while ((got = read(ends[0], answer + have, 255 - have)) > 0) {
        have += (size_t)got;
    }
    answer[have] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void filter(int answer)
{
    if (!process_deny(SYS_userfaultfd, answer)) {
        _exit(7);
    }
}

static void a_seccomp_filters_refusal_is_told(void **state)
{
    char answer[256];

    (void)state;
    in_a_child(filter, EPERM, answer);
    assert_non_null(strstr(answer, "userfaultfd: Operation not permitted: refused by a seccomp"));
    in_a_child(filter, ENOSYS, answer);
    assert_non_null(strstr(answer, "userfaultfd: not in this kernel, or hidden by a seccomp"));
}

static void become(int user)
{
    if (setgroups(0, NULL) != 0 || setgid((gid_t)user) != 0 || setuid((uid_t)user) != 0) {
        _exit(7);
    }
}

static void it_works_as_an_ordinary_user(void **state)
{
    FILE *file = fopen("/proc/sys/vm/unprivileged_userfaultfd", "r");
    char answer[256];
    int allowed = 1;

    (void)state;
    if (file == NULL || fscanf(file, "%d", &allowed) != 1 || allowed != 0) {
        print_message("not tried: vm.unprivileged_userfaultfd is not 0\n");
        skip();
    }
    fclose(file);
    if (getuid() != 0) {
        must_work(); /* we are one */
        return;
    }
    in_a_child(become, 65534, answer);
    assert_string_equal(answer, "");
}

#define OLD(test) cmocka_unit_test_setup(test, setup)

/* Whether this machine refuses it to us already; says so. */
static bool refused(void)
{
    regx_monitor_t *monitor = start(REGX_CHECK_ALWAYS);

    if (monitor == NULL && strstr(error, "userfaultfd") != NULL) {
        printf("1..0 # SKIP %s\n", error);
        return true;
    }
    if (monitor != NULL) {
        monitor->stop(monitor);
    }
    return false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OLD(it_works_on_this_kernel),
        OLD(each_refusal_has_its_reason),
        OLD(a_descriptor_that_is_refused_its_features_is_closed_once),
        OLD(without_any_needed_feature_it_is_refused),
        OLD(without_what_only_scanning_needs_it_works),
        OLD(nothing_is_watched_before_the_reader_reads),
        OLD(the_readers_end_does_not_wait_for_itself),
        OLD(an_older_kernel_does_not_see_a_segment_attached_over_it),
        OLD(memory_of_the_applications_own_userfaultfd_stays_its_own),
        OLD(huge_pages_are_watched_on_an_older_kernel),
        OLD(a_seccomp_filters_refusal_is_told),
        OLD(it_works_as_an_ordinary_user),
    };

    return refused() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}

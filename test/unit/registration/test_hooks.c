/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What hooks report comes into the log, in whole pages, until they are removed. The source is a
 * fake one (hooked.h). The real ones are in test/mpi/test_backend.py. And the backends by name.
 */
#include "config.h"

#include "hooked.h"

#include <dlfcn.h>
#include <linux/userfaultfd.h>
#include <sys/shm.h>

#include "../process.h"
#include "registration/monitor/monitor.h"
#include "registration/registry.h"

static regx_counters_t counters;
static regx_transport_t transport;
static const regx_monitor_config_t config = {
    .hooks = &hooked_source, .transport = &transport, .counters = &counters};

static regx_monitor_t *start(void)
{
    regx_error_t error = "";
    regx_monitor_t *monitor = NULL;
    const regx_status_t status = regx_backend_hooks.start(&config, &monitor, error);

    unit_expect(status == REGX_OK, "%s", error);
    return monitor;
}

/* Under hooks that have been started. */
#define HOOKS_TEST(name)                                                                           \
    UNIT_TEST_WITH(name, hooked_reset, regx_monitor_t *, monitor, start(), monitor->stop(monitor))

/* ---- what comes into the log ---- */

#define PAGE UINT64_C(4096)

HOOKS_TEST(reports_are_logged_in_whole_pages)
{
    static const struct {
        uintptr_t base;
        size_t length;
        bool sized;
        uintptr_t start, end;
    } cases[] = {
        {0x10000, 0x1000, true, 0x10000, 0x11000},
        {0x10000, 1, true, 0x10000, 0x11000}, /* the kernel takes the whole page */
        {0x10000, 0x1001, true, 0x10000, 0x12000},
        {0x10064, 0x1000, true, 0x10000, 0x12000},  /* shmat rounds down, sources do not */
        {0x10000, 0x1000, false, 0x10000, 0x11000}, /* a segment's */
        {0x10000, UINTPTR_MAX - PAGE + 1 - 0x10000, true, 0x10000, UINTPTR_MAX - PAGE + 1},
    };

    assert_null(monitor->valid);
    regx_inval_log_interest(monitor->log, 0x10000, 0x20000, 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint64_t before = atomic_load(&monitor->log->head);
        regx_change_t change;

        hooked.report((void *)cases[i].base, cases[i].length, cases[i].sized);
        assert_int_equal(atomic_load(&monitor->log->head), before + 1);
        assert_int_equal(regx_inval_log_read(monitor->log, before, &change), REGX_CHANGE_READ);
        assert_int_equal(change.start, cases[i].start);
        assert_int_equal(change.end, cases[i].end);
    }
}

/* Whether the log has that range, from there on. */
static bool is_logged(regx_monitor_t *monitor, uint64_t *next, const char *start, const char *end)
{
    regx_change_t change;
    const bool found = atomic_load(&monitor->log->head) > *next &&
                       regx_inval_log_read(monitor->log, *next, &change) == REGX_CHANGE_READ &&
                       change.start == (uintptr_t)start && change.end == (uintptr_t)end;

    ++*next;
    return found;
}

/* Of which a source does not know the size: it may lie in several mappings. Where none is attached the
 * kernel refuses. Else what was there would be thought gone, and all above it. */
HOOKS_TEST(a_segment_that_is_detached_is_logged_as_it_lies)
{
    const int id = shmget(IPC_PRIVATE, 4 * PAGE, IPC_CREAT | 0600);
    char *segment = shmat(id, NULL, 0), *hole = segment + PAGE;
    uint64_t next = atomic_load(&monitor->log->head);

    assert_ptr_not_equal(segment, (void *)-1);
    regx_inval_log_interest(monitor->log, 0x10000, UINTPTR_MAX - PAGE, 1);
    hooked.report(segment, 0, false);
    assert_true(is_logged(monitor, &next, segment, segment + 4 * PAGE));
    assert_int_equal(mprotect(hole, PAGE, PROT_READ), 0);
    hooked.report(segment, 0, false);
    assert_true(is_logged(monitor, &next, segment, hole));
    assert_true(is_logged(monitor, &next, hole, hole + PAGE));
    assert_true(is_logged(monitor, &next, hole + PAGE, segment + 4 * PAGE));

    hooked.report(hole, 0, false);
    hooked.report(segment + 1, 0, false);
    hooked.report((void *)0x10000, 0, false);
    assert_int_equal(shmdt(hole), -1);
    assert_int_equal(shmdt(segment + 1), -1);
    assert_int_equal(atomic_load(&monitor->log->head), next);
    assert_int_equal(shmdt(segment), 0);
    shmctl(id, IPC_RMID, NULL);
}

/* Nothing above may be hit any more. */
HOOKS_TEST(where_mappings_cannot_be_read_all_above_is_logged)
{
    uint64_t next = atomic_load(&monitor->log->head);

    regx_inval_log_interest(monitor->log, 0x10000, 0x20000, 1);
    if (process_in_child()) {
        const bool denied = process_deny(SYS_openat, EPERM);

        hooked.report((void *)0x10000, 0, false);
        _exit(denied && is_logged(monitor, &next, (char *)0x10000, (char *)(UINTPTR_MAX - PAGE + 1))
                  ? 0
                  : 1);
    }
}

/* The kernel does nothing, or refuses. */
HOOKS_TEST(what_takes_nothing_away_is_not_logged)
{
    static const size_t lengths[] = {0, SIZE_MAX, UINTPTR_MAX - PAGE + 1};

    regx_inval_log_interest(monitor->log, 0x10000, 0x20000, 1);
    const uint64_t before = atomic_load(&monitor->log->head);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        hooked.report((void *)0x10000, lengths[i], true);
        assert_int_equal(atomic_load(&monitor->log->head), before);
    }
}

/* ---- starting, and not ---- */

UNIT_TEST_BETWEEN(that_there_is_no_source_is_told, hooked_reset, NULL)
{
    const regx_monitor_config_t without = {.counters = &counters};
    regx_error_t error = "";
    regx_monitor_t *monitor = NULL;

    assert_int_equal(regx_backend_hooks.start(&without, &monitor, error), REGX_DENIED);
    assert_non_null(strstr(error, "no source"));
    assert_null(monitor);
}

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65 /* Linux 6.3 */
#endif
#define CANNOT_TRY 77

static int start_without_code_to_change(void)
{
    regx_error_t error = "";
    regx_monitor_t *monitor = NULL;

    if (prctl(PR_SET_MDWE, 1, 0, 0, 0) != 0) {
        return CANNOT_TRY;
    }
    return regx_backend_hooks.start(&config, &monitor, error) == REGX_DENIED &&
                   strstr(error, "may not change code") != NULL && hooked.installed == 0
               ? 0
               : 1;
}

/* It cannot take that back, so a child tries it. */
UNIT_TEST_BETWEEN(a_process_that_may_not_change_code_has_no_hooks, hooked_reset, NULL)
{
    const pid_t child = fork();
    int status;

    if (child == 0) {
        _exit(start_without_code_to_change());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CANNOT_TRY) {
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Hazard 4: a source that is deaf for one kind of change fails the self-test, and nothing is left
 * installed. */
UNIT_TEST_BETWEEN(a_source_that_cannot_be_trusted_is_refused, hooked_reset, NULL)
{
    static const struct {
        unsigned faults;
        const char *named;
    } cases[] = {{DEAF_MUNMAP, "munmap"},
                 {DEAF_MREMAP, "mremap"},
                 {DEAF_MADVISE, "madvise"},
                 {DEAF_MMAP, "mmap"}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        regx_error_t error = "";
        regx_monitor_t *monitor = NULL;

        hooked_reset(NULL);
        hooked.faults = cases[i].faults;
        assert_int_equal(regx_backend_hooks.start(&config, &monitor, error), REGX_INVALID);
        unit_expect(strstr(error, cases[i].named) != NULL, "\"%s\" does not name %s", error,
                    cases[i].named);
        assert_null(monitor);
        assert_int_equal(hooked.installed, 1);
        assert_int_equal(hooked.removed, 1);
    }
}

/* ---- beside UCX's ucm, which Open MPI has patched over but for sbrk: it finds itself unheard ---- */

enum { UCM_SBRK = 1 << 5, UCM_NO_INSTALL = 1 << 24 };

static bool sbrk_is_patched;
static void (*ucm_told)(int event, const void *details, void *context); /* NULL: nobody is to be */
static bool ucm_deaf;

static int ucm_set(int events, int priority, __typeof__(ucm_told) told, void *context)
{
    ucm_told = (events & UCM_NO_INSTALL) != 0 ? told : NULL;
    return ucm_told != NULL ? 0 : -1;
}

static void ucm_unset(int events, void *told, void *context)
{
    ucm_told = events == UCM_SBRK ? NULL : ucm_told;
}

static void ucp_version(unsigned *major, unsigned *minor, unsigned *release)
{
    *major = 2;
}

UNIT_WRAP(void *, dlopen, const char *name, int flags)
{
    return __real_dlopen(strncmp(name, "libuc", 5) == 0 ? NULL : name, flags);
}

UNIT_WRAP(void *, dlsym, void *object, const char *name)
{
    static uint64_t options[512] = {UINT64_MAX, UINT64_MAX, UINT64_MAX,
                                    UINT64_MAX}; /* all is enabled */

    static unsigned char *code; /* that is of no file */

    if (strcmp(name, "sbrk") == 0 && sbrk_is_patched) {
        code = code != NULL ? code : calloc(1, 64);
        return code;
    }
    return strcmp(name, "ucm_global_opts") == 0           ? options
           : strcmp(name, "ucm_set_event_handler") == 0   ? (void *)ucm_set
           : strcmp(name, "ucm_unset_event_handler") == 0 ? (void *)ucm_unset
           : strcmp(name, "ucp_get_version") == 0         ? (void *)ucp_version
                                                          : __real_dlsym(object, name);
}

UNIT_WRAP(void *, sbrk, intptr_t increment)
{
    if (ucm_told != NULL && !ucm_deaf) {
        ucm_told(UCM_SBRK, (const intptr_t[]){0, increment}, NULL);
    }
    return NULL;
}

#ifdef REGX_HAVE_UCM
UNIT_TEST_BETWEEN(sbrk_is_heard_by_ucm_and_the_rest_by_the_others, hooked_reset, NULL)
{
    regx_monitor_t *monitor;
    regx_error_t error = "";

    sbrk_is_patched = ucm_deaf = true;
    assert_int_equal(regx_backend_hooks.start(&config, &monitor, error), REGX_INVALID);
    assert_true(strstr(error, "sbrk by libc was not seen") != NULL && ucm_told == NULL);
    assert_true(hooked.installed == 1 && hooked.removed == 1);
    ucm_deaf = false;
    hooked_reset(NULL);
    hooked.refuse = true;
    assert_int_equal(regx_backend_hooks.start(&config, &monitor, error), REGX_DENIED);
    assert_true(strstr(error, "the fake source") != NULL && ucm_told == NULL);
    hooked.refuse = false;
    assert_int_equal(regx_backend_hooks.start(&config, &monitor, error), REGX_OK);
    uint64_t next = atomic_load(&monitor->log->head);
    regx_inval_log_interest(monitor->log, 0x10000, UINTPTR_MAX - PAGE, 1);
    const char *end = (char *)regx_align_up((uintptr_t)syscall(SYS_brk, 0), PAGE);
    sbrk(PAGE); /* takes nothing away */
    sbrk(-(intptr_t)PAGE);
    assert_true(is_logged(monitor, &next, end - PAGE, end));
    monitor->stop(monitor);
    sbrk_is_patched = false;
    assert_true(ucm_told == NULL && hooked.installed == 1 && hooked.removed == 1);
}
#endif

#ifdef __x86_64__
/* Open MPI's hooks wait in libc's brk, to which that sbrk does not lead. The child alone has it. */
UNIT_TEST_BETWEEN(where_sbrk_was_patched_before_hooks_are_refused, hooked_reset, NULL)
{
    ucm_deaf = true;
    if (process_in_child()) {
        void *libc = __real_dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
        unsigned char *code = __real_dlsym(libc, "sbrk"), *page = code - (uintptr_t)code % PAGE;
        regx_error_t error = "";
        regx_monitor_t *monitor = NULL;
        const bool before = regx_backend_hooks.start(&config, &monitor, error) == REGX_OK;

        monitor->stop(monitor);
        mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
        memcpy(code, "\x48\x31\xc0\xc3", 4); /* xor rax, rax; ret */
        const regx_status_t after = regx_backend_hooks.start(&config, &monitor, error);
        _exit(before && after == REGX_INVALID && strstr(error, "sbrk by libc") != NULL ? 0 : 1);
    }
    ucm_deaf = false;
}
#endif

/* ---- stopping ---- */

static struct {
    atomic_bool end;
    atomic_uint rounds;
} storm;

static void *report_all_the_time(void *unused)
{
    while (!atomic_load(&storm.end)) {
        const regx_hook_report_t report = atomic_load(&hooked.report);

        if (report != NULL) {
            report((void *)0x10000, PAGE, true);
            atomic_fetch_add(&storm.rounds, 1);
        }
    }
    return NULL;
}

/* The log is freed only after the last thread has left it: the sanitizers look on. */
UNIT_TEST_BETWEEN(stopping_waits_for_who_is_inside, hooked_reset, NULL)
{
    atomic_store(&storm.end, false);
    const pthread_t thread = unit_thread(report_all_the_time, NULL);
    for (int i = 0; i < 50; i++) {
        regx_monitor_t *monitor = start();
        const unsigned seen = atomic_load(&storm.rounds);

        regx_inval_log_interest(monitor->log, 0x10000, 0x10000 + PAGE, 1);
        while (atomic_load(&storm.rounds) == seen) {
        }
        monitor->stop(monitor);
    }
    atomic_store(&storm.end, true);
    pthread_join(thread, NULL);
}

/* In a child, memory may be given back and the monitor even be stopped: it is a copy. */
HOOKS_TEST(a_child_is_harmless)
{
    const uint64_t before = atomic_load(&monitor->log->head);

    regx_inval_log_interest(monitor->log, 0, 1 << 30, 1);
    if (process_in_child()) {
        hooked.report((void *)0x10000, PAGE, true);
        monitor->stop(monitor);
        _exit(0);
    }
    assert_int_equal(atomic_load(&monitor->log->head), before);
}

/* hooks+notifier: both write into one log, and each alone is enough. */
UNIT_TEST_BETWEEN(beside_the_notifier_both_are_heard, hooked_reset, NULL)
{
    regx_monitor_t *monitor;
    regx_error_t error = "";
    uint64_t since;

    const regx_status_t status = regx_backend_hooks_notifier.start(&config, &monitor, error);
    unit_need(status != REGX_DENIED, "%s", error);
    assert_int_equal(status, REGX_OK);
    char *memory = unit_map(NULL, PAGE);
    const uintptr_t at = (uintptr_t)memory;
    regx_inval_log_interest(monitor->log, at, at + PAGE, 1);
    assert_int_equal(monitor->subscribe(monitor, at, at + PAGE, &since), REGX_OK);
    assert_false(regx_inval_log_touched(monitor->log, since, at, at + PAGE, true));
    hooked.report(memory, PAGE, true);
    assert_true(regx_inval_log_touched(monitor->log, since, at, at + PAGE, true));

    since = atomic_load(&monitor->log->head);
    hooked.faults = DEAF_MUNMAP;
    munmap(memory, PAGE);
    await(regx_inval_log_touched(monitor->log, since, at, at + PAGE, true));
    regx_inval_log_interest(monitor->log, at, at + PAGE, -1);
    monitor->stop(monitor);
    assert_int_equal(hooked.installed, 1);
    assert_int_equal(hooked.removed, 1);
}

/* ---- the backends by name, and what is chosen where not all of them work ---- */

static regx_backend_choice_t choice;
static regx_error_t error;

static regx_status_t choose(const char *name)
{
    memset(&choice, 0xee, sizeof(choice));
    error[0] = '\0';
    return regx_backend_choose(name, false, &config, &choice, error);
}

static void stop(void)
{
    if (choice.monitor != NULL) {
        choice.monitor->stop(choice.monitor);
    }
}

UNIT_TEST_BETWEEN(auto_is_the_notifier_or_none_with_the_reason, hooked_reset, NULL)
{
    assert_int_equal(choose("auto"), REGX_OK);
    if (choice.monitor != NULL) {
        assert_string_equal(choice.backend->name, "notifier");
        assert_string_equal(choice.reason, "passed its self-test");
    } else {
        assert_string_equal(choice.backend->name, "none");
        assert_memory_equal(choice.reason, "notifier: ", 10);
    }
    assert_int_equal(hooked.installed, 0); /* never hooks */
    stop();
}

UNIT_TEST_BETWEEN(what_does_not_work_is_told_with_what_does, hooked_reset, NULL)
{
    hooked.refuse = true;
    assert_int_equal(choose("hooks"), REGX_DENIED);
    assert_memory_equal(error, "cannot be used: the fake source refuses", 39);
    assert_string_equal(error + 39, "; always possible: none, auto");
    assert_int_equal(hooked.installed, hooked.removed);
}

/* Hazard 12: auto goes on without, and says why: also where the reader could be started and is
 * then refused what it needs. (What a backend that is named says then is tested with jobs.) */
UNIT_TEST_BETWEEN(a_refused_userfaultfd_is_no_end, hooked_reset, NULL)
{
    static const struct {
        unsigned call;
        const char *reason;
    } cases[] = {{SYS_userfaultfd, "notifier: userfaultfd"}, {SYS_read, "notifier: self-test: "}};
    const int allowed =
        (int)syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY); /* its test comes second */

    close(allowed);
    for (size_t i = 0; i < (allowed >= 0 ? 2 : 1); i++) {
        if (process_in_child()) {
            const bool fell_back =
                process_deny(cases[i].call, EPERM) && choose("auto") == REGX_OK &&
                choice.monitor == NULL && strcmp(choice.backend->name, "none") == 0 &&
                strncmp(choice.reason, cases[i].reason, strlen(cases[i].reason)) == 0;

            _exit(fell_back ? 0 : 1);
        }
    }
}

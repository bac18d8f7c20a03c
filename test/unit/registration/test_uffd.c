/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The notifier and what the kernel answers: on older kernels, beside a userfaultfd of the
 * program's, where userfaultfd is refused, and where memory changes just while it is to be watched.
 * Older kernels, and changes at that moment, are made by wrappers around ioctl and syscall.
 */
#include "../../below_room.h"
#include "../process.h"
#include "monitored.h"
#include "registration/monitor/uffd.h"

#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

static struct {
    int refusal;      /* userfaultfd fails so */
    uint64_t lacking; /* features */
    bool no_scan;     /* PAGEMAP_SCAN */
    bool no_query;    /* PROCMAP_QUERY */
    uintptr_t taken;  /* Linux before 6.17 lets anyone unregister this address: */
    bool took;        /* that was tried */
    bool keeps;       /* what is watched stays so, whatever is unregistered */
    uintptr_t huge;   /* bytes of a page, less than which UFFDIO_REGISTER does not take; 0: any */
    unsigned watched; /* calls of UFFDIO_REGISTER */
    unsigned queried; /* of PROCMAP_QUERY */
} kernel;

/* Around the call that watches. */
static struct {
    void (*before)(void);
    void (*after)(void);
    regx_inval_log_t *log;
    char *base;
} meanwhile;

static bool is(unsigned long request, char type, unsigned number)
{
    return _IOC_TYPE(request) == (unsigned)type && _IOC_NR(request) == number;
}

static bool refuses(unsigned long request, const void *argument)
{
    if ((kernel.no_scan && is(request, 'f', 16)) || (kernel.no_query && is(request, 'f', 17))) {
        errno = ENOTTY;
        return true;
    }
    errno = EINVAL;
    return request == UFFDIO_API &&
           (((const struct uffdio_api *)argument)->features & kernel.lacking) != 0;
}

UNIT_WRAP(int, ioctl, int fd, unsigned long request, void *argument)
{
    if (refuses(request, argument)) {
        return -1;
    }
    kernel.queried += is(request, 'f', 17);
    if (request == UFFDIO_UNREGISTER && kernel.taken != 0) {
        const struct uffdio_range *range = argument;

        kernel.took = kernel.took || kernel.taken - range->start < range->len;
    }
    if (request == UFFDIO_UNREGISTER && kernel.keeps) {
        return 0;
    }
    if (request == UFFDIO_REGISTER && meanwhile.before != NULL) {
        meanwhile.before();
    }
    if (request == UFFDIO_REGISTER) {
        const struct uffdio_register *range = argument;

        kernel.watched++;
        if (kernel.huge != 0 && (range->range.start | range->range.len) % kernel.huge != 0) {
            errno = EINVAL;
            return -1;
        }
    }
    const int result = __real_ioctl(fd, request, argument);
    if (request == UFFDIO_REGISTER && meanwhile.after != NULL) {
        meanwhile.after();
    }
    return result;
}

UNIT_WRAP(long, syscall, long number, long a, long b, long c, long d, long e, long f)
{
    if (number == SYS_userfaultfd && kernel.refusal != 0) {
        errno = kernel.refusal;
        return -1;
    }
    return __real_syscall(number, a, b, c, d, e, f);
}

static int reset(void **state)
{
    memset(&kernel, 0, sizeof(kernel));
    memset(&meanwhile, 0, sizeof(meanwhile));
    return 0;
}

/* ---- older kernels ---- */

static void must_work(void)
{
    regx_monitor_t *monitor = start();
    char *base = map(LENGTH);
    region_t first = must_keep(monitor, base, 2 * PAGE);
    region_t second = must_keep(monitor, base + 4 * PAGE, 4 * PAGE);

    assert_true(hits_in_the_end(&first) && hits_in_the_end(&second));
    assert_int_equal(munmap(base + 4 * PAGE, PAGE), 0);
    assert_false(hits(&second));
    assert_true(hits_in_the_end(&first));
    drop(&first);
    drop(&second);
    munmap(base, LENGTH);
    monitor->stop(monitor);
}

#define FRESH(test) UNIT_TEST_BETWEEN(test, reset, NULL)
#define FRESH_WATCHED(test)                                                                        \
    UNIT_TEST_WITH(test, reset, regx_monitor_t *, monitor, start(), monitor->stop(monitor))

/* Linux 5.18 to 6.6, and what has one thing and not the other. */
FRESH(it_works_on_older_kernels)
{
    static const uint64_t lacking[] = {0, 1 << 13, 1 << 15, 1 << 13 | 1 << 15};

    for (unsigned i = 0; i < 16; i++) {
        kernel.no_query = i % 2 == 1;
        kernel.no_scan = i / 2 % 2 == 1;
        kernel.lacking = lacking[i / 4];
        must_work();
    }
}

/* libc gives the stack back as a thread ends: a change, which no reader reads any more. */
FRESH(the_readers_end_does_not_wait_for_itself)
{
    kernel.no_scan = kernel.keeps = true;
    must_work();
}

static void must_refuse(const char *expected)
{
    const regx_monitor_config_t config = {.counters = &counters};
    regx_monitor_t *monitor = NULL;
    regx_error_t error = "";

    assert_int_equal(regx_backend_notifier.start(&config, &monitor, error), REGX_DENIED);
    unit_expect(strstr(error, expected) != NULL && strchr(error, '\n') == NULL,
                "\"%s\" does not say \"%s\"", error, expected);
}

FRESH(a_refusal_has_its_reason)
{
    static const struct {
        int refusal;
        const char *line;
    } cases[] = {
        {EPERM, "userfaultfd: Operation not permitted: refused by a seccomp filter or security "
                "module"},
        {ENOSYS, "not in this kernel, or hidden by a seccomp filter"},
        {EINVAL, "this kernel knows none without privilege (Linux 5.11)"},
        {EMFILE, "userfaultfd: Too many open files"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        kernel.refusal = cases[i].refusal;
        must_refuse(cases[i].line);
    }
    kernel.refusal = 0;
    kernel.lacking = 1 << 11; /* UFFD_FEATURE_EXACT_ADDRESS */
    must_refuse("Linux 5.18");
}

/* ---- beside a userfaultfd of the program's ---- */

/* Its memory is not kept and stays its own, also when all is unregistered. */
FRESH(memory_of_the_applications_own_userfaultfd_stays_its_own)
{
    enum { PAGES = 16 };
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    const int own =
        (int)syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */ | O_CLOEXEC, 0, 0, 0, 0, 0);
    char *base = map(PAGES * PAGE);
    const uintptr_t at = (uintptr_t)base;
    struct uffdio_register range = {.range = {.start = at, .len = PAGES * PAGE},
                                    .mode = UFFDIO_REGISTER_MODE_WP};
    struct uffdio_writeprotect protect = {.range = range.range,
                                          .mode = UFFDIO_WRITEPROTECT_MODE_WP};

    assert_int_equal(ioctl(own, UFFDIO_API, &api), 0);
    assert_int_equal(ioctl(own, UFFDIO_REGISTER, &range), 0);
    assert_int_equal(ioctl(own, UFFDIO_WRITEPROTECT, &protect), 0);
    for (int no_scan = 0; no_scan < 2; no_scan++) {
        kernel.no_scan = no_scan == 1;
        regx_monitor_t *monitor = start();
        for (int i = 0; i < 2; i++) {
            region_t region = keep(monitor, base + PAGE, 2 * PAGE);

            assert_int_equal(region.status, REGX_DENIED);
            drop(&region);
        }
        assert_string_equal(counters.fallbacks[0].reason,
                            "not watched: another userfaultfd has it");
        assert_int_equal(process_pages(base, base + PAGES * PAGE, 57), PAGES);
        kernel.taken = at;
        monitor->stop(monitor);
        assert_false(kernel.took);
        assert_int_equal(process_pages(base, base + PAGES * PAGE, 57), PAGES);
    }
    close(own);
    munmap(base, PAGES * PAGE);
}

/* Of a mapping that is known only what may have changed unheard is asked; but another userfaultfd in the place of the
 * notifier's is not taken for it. */
FRESH_WATCHED(what_is_known_to_be_watched_is_asked_once)
{
    const int own = regx_uffd_create(UFFD_USER_MODE_ONLY, UFFD_FEATURE_PAGEFAULT_FLAG_WP);
    char *base = map(LENGTH);

    for (int i = 0; i < 3; i++) { /* the first watches it */
        kernel.queried = 0;
        must_keep(monitor, base + i * PAGE, PAGE);
    }
    assert_int_equal(kernel.queried, 0);
    munmap(base, PAGE);
    assert_int_equal(keep(monitor, base, PAGE).status, REGX_DENIED);
    assert_true(own >= 0 && dup2(own, monitor->query->file.fd) >= 0);
    assert_int_equal(keep(monitor, base + PAGE, PAGE).status, REGX_DENIED);
    close(own);
    munmap(base, LENGTH);
}

/* ---- whether the program pages memory ---- */

static bool is_paged(regx_paging_t *paging, const char *base, size_t length)
{
    return regx_paging_is_on(paging, (uintptr_t)base, (uintptr_t)base + length);
}

/* Asking brings in no page, changes none and wakes nobody. */
static void must_be_paged(regx_paging_t *paging, int own, char *base, uint64_t mode)
{
    struct uffdio_register range = {.range = {.start = (uintptr_t)base + PAGE, .len = 2 * PAGE},
                                    .mode = mode};
    unsigned char there[4];

    base[PAGE] = 'a';
    assert_false(is_paged(paging, base + PAGE, 1));
    assert_int_equal(ioctl(own, UFFDIO_REGISTER, &range), 0);
    assert_true(is_paged(paging, base + PAGE, 1));
    assert_true(is_paged(paging, base + 3 * PAGE - 1, 1)); /* not there yet */
    assert_false(is_paged(paging, base + PAGE - 1, 1));
    assert_false(is_paged(paging, base + 3 * PAGE, 1));
    assert_int_equal(mincore(base, 4 * PAGE, there), 0);
    assert_int_equal(there[2] & 1, 0);
    assert_int_equal(base[PAGE], 'a');
}

FRESH(memory_that_another_userfaultfd_watches_is_paged)
{
    static const uint64_t modes[] = {UFFDIO_REGISTER_MODE_MISSING, UFFDIO_REGISTER_MODE_WP,
                                     UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP};
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    const int own =
        (int)syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */ | O_CLOEXEC, 0, 0, 0, 0, 0);
    regx_paging_t paging;

    regx_paging_open(&paging);
    assert_int_equal(ioctl(own, UFFDIO_API, &api), 0);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        for (int shared = 0; shared < 2; shared++) {
            char *base = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
                              MAP_ANONYMOUS | (shared == 1 ? MAP_SHARED : MAP_PRIVATE), -1, 0);

            if (shared == 0 || modes[i] == UFFDIO_REGISTER_MODE_MISSING) { /* else Linux 5.19 */
                must_be_paged(&paging, own, base, modes[i]);
            }
            munmap(base, 4 * PAGE);
        }
    }
    close(own);
    regx_paging_close(&paging);
}

/* However small a part of the range it is, if the kernel tells where mappings end. */
FRESH(a_part_that_is_paged_is_found)
{
    const size_t length = 2u << 20;
    char *base = map(length);
    const int pager = regx_uffd_create(UFFD_USER_MODE_ONLY, 0);
    regx_paging_t paging;

    regx_paging_open(&paging);
    if (!paging.maps.query) {
        print_message("not tried: no PROCMAP_QUERY before Linux 6.11\n");
        skip();
    }
    assert_false(is_paged(&paging, base, length));
    assert_int_equal(
        regx_uffd_register(pager, (uintptr_t)base + 5 * PAGE, (uintptr_t)base + 6 * PAGE), 0);
    assert_true(is_paged(&paging, base, length));
    assert_false(is_paged(&paging, base, 5 * PAGE));
    assert_false(is_paged(&paging, base + 6 * PAGE, length - 6 * PAGE));
    regx_paging_close(&paging);
    close(pager);
    munmap(base, length);
}

/* A userfaultfd of another process that has taken the number of the one that is asked would tell of that
 * process, where nothing is watched. */
FRESH(another_processs_userfaultfd_is_not_asked)
{
    const int parents = regx_uffd_create(UFFD_USER_MODE_ONLY, 0);
    const pid_t child = fork();
    int status;

    if (child == 0) {
        char *base = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        const int pager = regx_uffd_create(UFFD_USER_MODE_ONLY, 0);
        regx_paging_t paging;

        regx_paging_open(&paging);
        const bool asks = !is_paged(&paging, base, PAGE) &&
                          regx_uffd_register(pager, (uintptr_t)base, (uintptr_t)base + PAGE) == 0 &&
                          is_paged(&paging, base, PAGE);
        _exit(asks && dup2(parents, paging.file.fd) >= 0 && is_paged(&paging, base, PAGE) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(parents);
}

/* What the notifier watches is not the program's, and the other way round. */
FRESH_WATCHED(the_notifiers_memory_is_told_from_others)
{
    char *base = map(LENGTH);
    char *other = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *paged = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const int pager = regx_uffd_create(UFFD_USER_MODE_ONLY, 0);
    region_t region = must_keep(monitor, base, PAGE);
    regx_paging_t paging;

    regx_paging_open(&paging);
    assert_true(regx_notifier_watches((uintptr_t)base, (uintptr_t)base + LENGTH));
    assert_false(is_paged(&paging, base, LENGTH));
    assert_false(is_paged(&paging, other, PAGE));
    assert_int_equal(regx_uffd_register(pager, (uintptr_t)paged, (uintptr_t)paged + PAGE), 0);
    assert_true(is_paged(&paging, paged, PAGE));
    assert_false(regx_notifier_watches((uintptr_t)paged, (uintptr_t)paged + PAGE));
    regx_paging_close(&paging);
    drop(&region);
    close(pager);
    munmap(paged, PAGE);
    munmap(other, PAGE);
    munmap(base, LENGTH);
}

/* Nor where a part of a page cannot be watched. */
FRESH_WATCHED(so_it_is_of_huge_pages)
{
    const uintptr_t huge = 2u << 20;
    char *room = map(2 * huge);
    char *base = (char *)regx_align_up((uintptr_t)room, huge);
    region_t region = must_keep(monitor, base, PAGE);
    regx_paging_t paging;

    regx_paging_open(&paging);
    kernel.huge = huge;
    assert_false(is_paged(&paging, base + huge / 2, PAGE));
    regx_paging_close(&paging);
    drop(&region);
    munmap(room, 2 * huge);
}

/* To ask takes the lock of the mappings: it is asked once, until something changes. */
FRESH_WATCHED(the_notifier_is_asked_once)
{
    char *base = map(LENGTH), *other = map(LENGTH);
    region_t region = must_keep(monitor, base, LENGTH), second = must_keep(monitor, other, LENGTH);
    regx_paging_t paging;

    regx_paging_open(&paging);
    assert_false(is_paged(&paging, base, LENGTH));
    kernel.watched = 0;
    for (int i = 0; i < 10; i++) {
        assert_false(is_paged(&paging, base, LENGTH));
    }
    assert_int_equal(kernel.watched, 0);
    munmap(other, LENGTH);
    assert_false(is_paged(&paging, base, LENGTH));
    assert_int_equal(kernel.watched, 1); /* also if the reader has not logged it yet */
    regx_paging_close(&paging);
    drop(&region);
    drop(&second);
    munmap(base, LENGTH);
}

static sigjmp_buf out;

static void leave(int signal)
{
    siglongjmp(out, signal);
}

static void raise_it(void)
{
    raise(SIGUSR1);
}

/* A program whose handler leaves by siglongjmp at that moment forks nevertheless. */
FRESH_WATCHED(a_jump_out_of_the_question_leaves_no_lock)
{
    char *base = map(LENGTH);
    region_t region = must_keep(monitor, base, PAGE);

    (void)signal(SIGUSR1, leave);
    meanwhile.after = raise_it;
    if (sigsetjmp(out, 1) == 0) {
        (void)regx_notifier_watches((uintptr_t)base, (uintptr_t)base + LENGTH);
        fail();
    }
    meanwhile.after = NULL;
    (void)signal(SIGUSR1, SIG_DFL);
    const pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    drop(&region);
    munmap(base, LENGTH);
}

/* Where no program can have one nobody pages by it; where it cannot be had now, perhaps somebody does. */
FRESH(where_userfaultfd_is_refused_no_memory_is_paged)
{
    static const struct {
        int refusal;
        bool paged;
    } cases[] = {{EPERM, false}, {ENOSYS, false}, {EMFILE, true}};
    char *base = map(PAGE);
    regx_paging_t paging;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        kernel.refusal = cases[i].refusal;
        regx_paging_open(&paging);
        assert_int_equal(is_paged(&paging, base, PAGE), cases[i].paged);
        regx_paging_close(&paging);
    }
    munmap(base, PAGE);
}

/* ---- memory that changes while it is to be watched ---- */

static void share_it(void)
{
    meanwhile.before = NULL;
    assert_ptr_equal(mmap(meanwhile.base, PAGE, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                     meanwhile.base);
}

/* Between the look and the watch it became what must not be kept, and that is not reported. */
FRESH_WATCHED(memory_that_becomes_shared_before_it_is_watched_is_refused)
{
    meanwhile.base = map(LENGTH);
    meanwhile.before = share_it;
    region_t region = keep(monitor, meanwhile.base, PAGE);
    assert_int_equal(region.status, REGX_DENIED);
    drop(&region);
    munmap(meanwhile.base, LENGTH);
}

/* Beside what is watched again: what was registered there must not look true. */
FRESH_WATCHED(a_neighbour_that_is_replaced_is_not_watched_along)
{
    meanwhile.base = map(LENGTH);
    region_t neighbour = must_keep(monitor, meanwhile.base, PAGE);
    assert_true(hits_in_the_end(&neighbour));
    meanwhile.before = share_it;
    region_t region = must_keep(monitor, meanwhile.base + 2 * PAGE, PAGE);
    assert_false(hits_in_the_end(&neighbour));
    assert_true(hits_in_the_end(&region));
    drop(&region);
    region = keep(monitor, meanwhile.base, PAGE);
    assert_int_equal(region.status, REGX_DENIED); /* shared: it was not watched along */
    drop(&region);
    drop(&neighbour);
    munmap(meanwhile.base, LENGTH);
}

static void tell_of_it(void)
{
    regx_inval_log_write(meanwhile.log, (uintptr_t)meanwhile.base,
                         (uintptr_t)meanwhile.base + PAGE);
}

/* What is pinned after it was watched may be of what was there before or after a change at that
 * moment: `since` must not be behind it. Watched anew, and watched already; before and after. */
FRESH_WATCHED(a_change_at_the_moment_of_watching_is_reported)
{
    meanwhile.base = map(LENGTH);
    meanwhile.log = monitor->log;
    for (int round = 0; round < 3; round++) {
        meanwhile.after = round < 2 ? tell_of_it : NULL;
        meanwhile.before = round < 2 ? NULL : tell_of_it;
        region_t region = must_keep(monitor, meanwhile.base, PAGE);
        meanwhile.before = meanwhile.after = NULL;
        assert_false(hits_in_the_end(&region));
        drop(&region);
        region = must_keep(monitor, meanwhile.base, PAGE);
        assert_true(hits_in_the_end(&region));
        drop(&region);
    }
    munmap(meanwhile.base, LENGTH);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Backend `kernel`: a module of our own (component/kernel) tells of changes, whatever makes them, by
 * writing to memory that this process reads (one of the proposals in osu-configs/debate.md).
 *
 * Guarantees, for memory of any kind (private, shared, of files, of System V, huge pages): no kept
 * registration is used after its pages were taken from its addresses: munmap, mremap, mmap MAP_FIXED,
 * brk, shmdt, SHM_REMAP, madvise of any kind, guard pages, truncation and holes of a file, also by
 * another process. Each change is told before it is made. Nor is a registration of the old pages
 * made while one is under way: what begins to be watched waits for the changes that are.
 * Is blind to nothing that is known. Some is told though nothing was taken: what the kernel does by
 * itself (KSM, NUMA), and of a huge page that is split all of it. Registrations then end needlessly,
 * and a transfer under way counts as one whose memory has changed (btl_regx_inuse).
 *
 * How. The module writes the range of a change that overlaps what is watched into a ring, and counts
 * `told`. A look-up loads `told`: as long as it is what was read last, nothing has changed. If it has
 * moved, who finds that copies what was told into the log, from which all go on as with other
 * monitors. `read` is raised behind the log's head, so who finds it equal to `told` finds the log
 * whole. Where another thread is just copying, a look-up looks a few times more, and is then refused.
 *
 * What it costs: some loads on a hit; three short system calls on a miss, and three when the region
 * ends. No thread, and who changes memory waits for nobody.
 *
 * A child of fork, or of raw clone, is told nothing and answers so. If the program closes the
 * descriptor nothing more can be watched; what is watched is told all the same, since the mapping
 * stays.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/file.h"
#include "base/thread.h"
#include "kernel/regx_notify.h"
#include "registration/monitor/monitor.h"

#define LOOKS 100 /* at what another thread copies; each takes some nanoseconds */

typedef struct regx_kernel {
    regx_monitor_t super;
    const struct regx_notify_page *page; /* what the module writes */
    const unsigned char *ours;           /* the process's mark */
    _Alignas(64) _Atomic uint64_t read;  /* changes that are in the log */
    _Atomic bool copying;                /* a thread is about to raise that */
    regx_file_t file;
    uint32_t number; /* the file's, by which the module tells it from others */
    regx_counters_t *counters;
} regx_kernel_t;

static uint64_t told(const regx_kernel_t *kernel)
{
    return __atomic_load_n(&kernel->page->told, __ATOMIC_ACQUIRE);
}

/* ---- from the ring to the log ---- */

/* By one thread at a time. */
static void copy(regx_kernel_t *kernel)
{
    uint64_t number = atomic_load_explicit(&kernel->read, memory_order_relaxed);
    const uint64_t until = told(kernel);

    while (number != until) {
        const struct regx_notify_range *entry = &kernel->page->ring[number % REGX_NOTIFY_RING];
        /* Acquire: `told` is looked at again after them. */
        const uintptr_t start = __atomic_load_n(&entry->start, __ATOMIC_ACQUIRE);
        const uintptr_t end = __atomic_load_n(&entry->end, __ATOMIC_ACQUIRE);

        /* Whether the ring has gone past it, perhaps while it was read. */
        if (told(kernel) - number >= REGX_NOTIFY_RING) {
            regx_inval_log_write(kernel->super.log, 0, UINTPTR_MAX);
            number = until;
            break;
        }
        regx_inval_log_write(kernel->super.log, start, end);
        number++;
    }
    atomic_store_explicit(&kernel->read, number, memory_order_release);
}

/* Whether the log has all that was told before the call. */
static __attribute__((noinline)) bool catch_up(regx_kernel_t *kernel)
{
    const uint64_t wanted = told(kernel);

    for (int i = 0; i < LOOKS; i++) {
        if (!atomic_exchange_explicit(&kernel->copying, true, memory_order_acquire)) {
            copy(kernel);
            atomic_store_explicit(&kernel->copying, false, memory_order_release);
            return true;
        }
        if (atomic_load_explicit(&kernel->read, memory_order_acquire) - wanted < UINT64_MAX / 2) {
            return true;
        }
    }
    return false;
}

/* ---- the monitor ---- */

static bool valid(regx_monitor_t *monitor)
{
    regx_kernel_t *kernel = (regx_kernel_t *)monitor;

    return !regx_process_is_child(kernel->ours) &&
           (told(kernel) == atomic_load_explicit(&kernel->read, memory_order_acquire) ||
            catch_up(kernel));
}

/* Whether the descriptor is still that of the page. The program may have closed it, and another user of
 * the device in this process (the library) may have its own file by that number. */
static bool has_file(const regx_kernel_t *kernel)
{
    struct regx_notify_agree agree = {.version = REGX_NOTIFY_VERSION,
                                      .size = sizeof(*kernel->page)};

    return regx_file_is_ours(&kernel->file) &&
           ioctl(kernel->file.fd, REGX_NOTIFY_AGREE, &agree) == 0 && agree.file == kernel->number;
}

/* 0 or the errno. */
static int ask(const regx_kernel_t *kernel, unsigned long what, uintptr_t start, uintptr_t end)
{
    struct regx_notify_range range = {.start = start, .end = end};

    return ioctl(kernel->file.fd, what, &range) == 0 ? 0 : errno;
}

/* The head is read before watching begins, so that nothing that is told from then on is below it.
 * What was told before is logged first: it would else look as if it came after. */
static regx_status_t subscribe(regx_monitor_t *monitor, uintptr_t start, uintptr_t end,
                               uint64_t *since)
{
    regx_kernel_t *kernel = (regx_kernel_t *)monitor;
    const char *reason = "not watched: the module refuses";

    (void)valid(monitor);
    *since = atomic_load(&monitor->log->head);
    if (regx_process_is_child(kernel->ours)) {
        reason = "not watched: in a child";
    } else if (!has_file(kernel)) {
        reason = "not watched: the program closed the descriptor of " REGX_NOTIFY_PATH;
    } else {
        switch (ask(kernel, REGX_NOTIFY_WATCH, start, end)) {
        case 0:
            return REGX_OK;
        case EAGAIN:
            reason = "not watched: too many changes are under way at once";
            break;
        case ENOSPC:
            reason = "not watched: the module watches as much as it may";
            break;
        default:
            break;
        }
    }
    return regx_monitor_fallback(monitor, kernel->counters, start, end, reason);
}

static void unsubscribe(regx_monitor_t *monitor, uintptr_t start, uintptr_t end)
{
    const regx_kernel_t *kernel = (const regx_kernel_t *)monitor;

    if (!regx_process_is_child(kernel->ours) && has_file(kernel)) {
        (void)ask(kernel, REGX_NOTIFY_UNWATCH, start, end);
    }
}

/* What there is of it. A child gives back its memory, and its copy of the descriptor. */
static void stop(regx_monitor_t *monitor)
{
    regx_kernel_t *kernel = (regx_kernel_t *)monitor;

    if (kernel->page != MAP_FAILED &&
        (kernel->ours == NULL || !regx_process_is_child(kernel->ours))) {
        munmap((void *)kernel->page, sizeof(*kernel->page));
    }
    if (kernel->number == 0 || has_file(kernel)) {
        regx_file_close(&kernel->file);
    }
    regx_process_unmark((unsigned char *)kernel->ours);
    regx_monitor_free(monitor);
}

/* ---- its start ---- */

static regx_status_t lacks(regx_error_t error, const char *what)
{
    return regx_refuse(error, errno == ENOMEM ? REGX_NO_MEMORY : REGX_DENIED, "%s: %s", what,
                       strerror(errno));
}

/* All of it, or what there is so far. */
static regx_status_t make(regx_kernel_t *kernel, regx_error_t error)
{
    struct regx_notify_agree agree = {.version = REGX_NOTIFY_VERSION,
                                      .size = sizeof(*kernel->page)};
    const int fd = regx_descriptor_move(open(REGX_NOTIFY_PATH, O_RDONLY | O_CLOEXEC));

    if (fd < 0 && errno == ENOENT) {
        return regx_refuse(error, REGX_DENIED,
                           "there is no " REGX_NOTIFY_PATH
                           ": the module regx_notify is not loaded");
    }
    if (fd < 0) {
        return lacks(error, REGX_NOTIFY_PATH);
    }
    kernel->file = regx_file_of(fd);
    if (ioctl(fd, REGX_NOTIFY_AGREE, &agree) != 0) {
        return errno == EPROTO ? regx_refuse(error, REGX_DENIED,
                                             REGX_NOTIFY_PATH " speaks version %u, this is for %d",
                                             agree.version, REGX_NOTIFY_VERSION)
                               : lacks(error, REGX_NOTIFY_PATH);
    }
    kernel->number = agree.file;
    kernel->page = mmap(NULL, sizeof(*kernel->page), PROT_READ, MAP_SHARED, kernel->file.fd, 0);
    if (kernel->page == MAP_FAILED) {
        return lacks(error, "mmap of " REGX_NOTIFY_PATH);
    }
    /* Not in children, where it would keep what this process watches. */
    if (madvise((void *)kernel->page, sizeof(*kernel->page), MADV_DONTFORK) != 0) {
        return lacks(error, "madvise of " REGX_NOTIFY_PATH);
    }
    kernel->ours = regx_process_mark();
    if (kernel->ours == NULL) {
        return lacks(error, "page that is wiped on fork");
    }
    kernel->super.log = regx_inval_log_open();
    if (kernel->super.log == NULL) {
        return lacks(error, "log");
    }
    return regx_monitor_test(&kernel->super, error);
}

static regx_status_t kernel_start(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                                  regx_error_t error)
{
    regx_kernel_t *kernel = aligned_alloc(_Alignof(regx_kernel_t), sizeof(*kernel));

    if (kernel == NULL) {
        return regx_refuse(error, REGX_NO_MEMORY, "out of memory");
    }
    *kernel = (regx_kernel_t){
        .super = {.trace = config->trace,
                  .valid = valid,
                  .logs_when_asked = true,
                  .subscribe = subscribe,
                  .unsubscribe = unsubscribe,
                  .stop = stop},
        .page = MAP_FAILED,
        .file = {.fd = -1},
        .counters = config->counters,
    };
    const regx_status_t status = make(kernel, error);

    if (status != REGX_OK) {
        stop(&kernel->super);
        return status;
    }
    *monitor = &kernel->super;
    return REGX_OK;
}

const regx_backend_t regx_backend_kernel = {
    .name = "kernel", .start = kernel_start, .reports_changes = true};

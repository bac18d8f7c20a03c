/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Backend `notifier`: the kernel reports each change, by userfaultfd; whoever makes it, by
 * whatever call, in whatever thread.
 *
 * Guarantees, for private anonymous memory (also of huge pages): no kept registration is used after
 * munmap, mremap, mmap MAP_FIXED, brk, MADV_DONTNEED, MADV_FREE and their like have returned, nor
 * (see below) while they run. Memory of any other kind is not kept: shared memory and mappings of
 * files change with the object behind them, which nothing reports.
 * Is blind to:
 *   - MADV_GUARD_INSTALL;
 *   - shmat SHM_REMAP over private memory, unless btl_regx_notifier_check is scan;
 *   - before Linux 6.17, UFFDIO_UNREGISTER of our memory by another userfaultfd of this process,
 *     unless btl_regx_notifier_check is scan: it takes the memory from us unnoticed.
 * The kernel reports MADV_DONTNEED, MADV_FREE and MADV_REMOVE before it makes them: one that
 * overlaps a use of the same memory in another thread (an error of the application) may leave a
 * region of the old pages behind, which later uses hit.
 *
 * How. The kernel holds whoever changes memory that we have watched until a
 * thread of ours, the reader, has read of it. The reader raises `sequence` before it reads and
 * lowers it after it has logged: so once a change has returned, a look-up finds either its entry or
 * the sequence odd. Before that, between the change and our reading, the address may already be
 * somebody else's: there the look-up's query answers that a change is under way (`valid`). In the
 * order query, sequence, log no change falls through: what had not begun at the query had not
 * happened to what was looked up, what was under way fails the query, what was read by then fails
 * the sequence or is in the log. btl_regx_notifier_check=never leaves the query out and that window
 * open.
 *
 * What it costs, on two cores of a server CPU in a virtual machine, Linux 6.18, medians. A look-up:
 * a system call, 1.5 times the cheapest there is (0.13 to 0.19 us), 1.6 to 1.7 times within a
 * look-up; with scan another, 4.5 to 4.7 times it in all. A miss makes six system calls in a
 * mapping that is watched: two fstat, by which descriptors are known to be ours still,
 * PROCMAP_QUERY, PAGEMAP_SCAN, UFFDIO_REGISTER and the query. In one that is not watched yet it
 * makes nine, as after UFFDIO_REGISTER it looks again (fstat, PROCMAP_QUERY, PAGEMAP_SCAN). In all
 * a miss takes 1.8 and 2.8 us on an Intel Xeon, with a device that does nothing. (On an AMD EPYC
 * PROCMAP_QUERY alone took 0.38, PAGEMAP_SCAN 0.40, UFFDIO_REGISTER 0.55.) munmap of a watched 64
 * KiB: 12 us (unwatched 4.4), with every core busy 67 us (24), the slowest of 200 some 5 ms. The
 * reader has no core and no priority of its own: the scheduler wakes it beside the caller, which
 * was quicker than on another core, idle (37 us) or busy. A shorter time slice, SCHED_FIFO and
 * spinning after an event changed none of this: what is slow is the caller's own return to a core
 * that somebody else got while it waited. Unregistering touches each page's entry, so stopping
 * takes 30 to 70 ms for each GiB that is watched in pages of 4 KiB.
 *
 * UFFDIO_REGISTER takes the lock of the address space for writing, also where it finds nothing to
 * do (fs/userfaultfd.c); PAGEMAP_SCAN takes it for reading, PROCMAP_QUERY in newer kernels only the
 * mapping's. It cannot be left out: these do not name whose userfaultfd watches, and with scan a
 * region is only safe if it is watched anew (the rule ARM_ALWAYS in test/model). UFFDIO_CONTINUE,
 * which private memory refuses, names what is watched, not by whom, and UFFDIO_MOVE compares the
 * owner; but both give memory that was never touched an anon_vma of its own, so that it never
 * merges with what is watched beside it, and the second moves pages. Nor would it gain: on two
 * cores of an Intel Xeon UFFDIO_REGISTER of what is watched takes 0.24 us, 0.44 while another
 * thread does the same all the time; PAGEMAP_SCAN 0.26 and 0.59; page faults of another thread 1.2
 * beside either.
 *
 * There is no cheaper query. Called in a loop, with a thread that shares the descriptors, in ns:
 * getppid 114, this ioctl 173; COPY, ZEROPAGE and CONTINUE, which ask the same, 176; an ioctl that
 * the descriptor does not know, which is the least that any costs, 163. Each return behind it is
 * mispredicted and adds 5 to 10: so a hit asks by itself (cache.c). poll (196) and read (279) cost
 * more and know of posted events alone, when the address has long been free: of 7,288 times that
 * another thread had the address while its munmap had not returned and this ioctl said so, poll did
 * not in 3,745. FIONREAD is refused and there is nothing to map. What remains is that fetching a
 * shared descriptor takes two atomic operations: 150 if the reader had a table of its own
 * (CLONE_FILES undone), and the program no other thread, as under Open MPI it has.
 *
 * What the application notices. Mappings are watched whole (uffd.h), so whoever frees a neighbour
 * of a buffer in the same mapping pays for it as above. What is mapped beside or into it later
 * stays a mapping of its own until it is used too: mremap of both at once, which the kernel might
 * have made one, fails with EFAULT; since Linux 6.17 half done: MREMAP_FIXED has then moved what
 * comes before the watched mapping, and what was at the destination is gone. Who uses userfaultfd
 * on such memory finds it busy. Huge pages stay, but no new ones are made of memory that is watched
 * and in part untouched.
 *
 * A child of fork watches nothing and answers so: its copy of the descriptors is closed. A child
 * of raw clone still has them and must not use them, since they mean the parent's memory: a page
 * that such a child finds wiped tells. There a descriptor keeps the parent's memory watched after
 * the parent closed its own; so everything is unregistered first, while the reader still runs.
 */
#include "registration/monitor/monitor.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/thread.h"
#include "registration/monitor/uffd.h"

#define LAST_EVENTS_MS 2000

typedef struct regx_notifier {
    regx_monitor_t super;
    regx_uffd_t uffd;
    regx_uffd_ranges_t ranges;
    regx_counters_t *counters;
    void (*on_change)(void *context, uintptr_t start, uintptr_t end);
    void *context;
    pthread_t reader;
    _Atomic uint32_t reads; /* 1: the reader has come so far that it reads */
    int end[2]; /* connected sockets: [1] asks the reader at [0] to stop. It also hears if they are
                   closed. Not a pipe: a write to one that nobody reads raises SIGPIPE. */
    regx_file_id_t end_id[2];
    _Atomic bool stopping; /* stop() was called */
    _Atomic bool lost;     /* the descriptors were closed by somebody else: nothing is heard */
    unsigned char *ours;   /* a page that holds 1, and 0 in any child */
} regx_notifier_t;

/* The one whose descriptors a child closes; fork waits while they come and go. */
static regx_notifier_t *current;
static pthread_mutex_t current_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the reader ----
 * Whoever changes memory waits for it, perhaps inside malloc, perhaps with locks held: it takes no
 * lock, allocates nothing, prints nothing, and calls the kernel by itself, since libc's functions
 * may be a tracer's by now. It touches no thread-local memory. */

static void log_event(regx_notifier_t *notifier, const regx_uffd_event_t *event)
{
    regx_inval_log_write(notifier->super.log, event->start, event->end);
    if (event->to != 0) {
        regx_inval_log_write(notifier->super.log, event->to,
                             event->to + (event->end - event->start));
    }
    if (notifier->on_change != NULL) {
        notifier->on_change(notifier->context, event->start, event->end);
    }
}

/* false: there is nothing to be read from any more. */
static bool read_events(regx_notifier_t *notifier)
{
    _Atomic uint64_t *sequence = &notifier->super.log->sequence;
    regx_uffd_event_t events[REGX_UFFD_EVENTS];

    atomic_fetch_add(sequence, 1);
    const int count = regx_uffd_read(&notifier->uffd, events);
    for (int i = 0; i < count; i++) {
        log_event(notifier, &events[i]);
    }
    atomic_fetch_add(sequence, 1);
    return count >= 0;
}

/* Whoever waits for the reader goes on, unless a child has the descriptor too. */
static void let_all_go(const regx_notifier_t *notifier)
{
    if (regx_uffd_is_ours(&notifier->uffd)) {
        regx_raw(SYS_close, notifier->uffd.fd, 0, 0, 0, 0);
    }
}

/* Somebody closed a descriptor of ours. What there is of userfaultfd is closed, which lets go
 * whoever waits for us; everything that is kept ends, and nothing is kept from now on. (A look-up's
 * query is refused from the moment the descriptor is closed.) */
static void lose(regx_notifier_t *notifier)
{
    atomic_store(&notifier->lost, true);
    let_all_go(notifier);
    regx_inval_log_write(notifier->super.log, 0, UINTPTR_MAX);
}

/* Reads events until it is to stop. false: the descriptors were lost. */
static bool read_until_the_end(regx_notifier_t *notifier)
{
    while (true) {
        const int ready = regx_uffd_wait(&notifier->uffd, notifier->end[0], -1);

        if (ready < 0 || ((ready & REGX_UFFD_EVENT) != 0 && !read_events(notifier))) {
            return false;
        }
        if ((ready & REGX_UFFD_OTHER) != 0) {
            return atomic_load(&notifier->stopping);
        }
    }
}

static void *reader(void *argument)
{
    regx_notifier_t *notifier = argument;

    atomic_store(&notifier->reads, 1);
    regx_thread_wake(&notifier->reads);
    if (!read_until_the_end(notifier)) {
        lose(notifier);
        return NULL;
    }
    /* Nothing is watched any more, but a change from before may still come to us. */
    for (int i = 0; i < LAST_EVENTS_MS && !regx_uffd_is_idle(notifier->uffd.fd); i++) {
        if (regx_uffd_wait(&notifier->uffd, -1, 1) < 0 || !read_events(notifier)) {
            break;
        }
    }
    /* By this thread, before it ends: libc then gives its stack back, a change for which this
     * thread would wait if its stack were still watched (see regx_uffd_ranges_clear). */
    let_all_go(notifier);
    return NULL;
}

/* Returns when it reads. Before that libc, and tools that wrap pthread_create, run code of theirs
 * in the new thread: if that changed memory that is watched already, it would wait for itself. */
static bool start_reader(regx_notifier_t *notifier)
{
    errno = regx_thread_start(&notifier->reader, "regx-notifier", reader, notifier);
    if (errno != 0) {
        return false;
    }
    while (atomic_load(&notifier->reads) == 0) {
        regx_thread_wait(&notifier->reads, 0, 0);
    }
    return true;
}

/* ---- processes ---- */

static bool in_a_child(const regx_notifier_t *notifier)
{
    return *(volatile unsigned char *)notifier->ours == 0;
}

/* What there is of them. */
static void close_all(regx_notifier_t *notifier)
{
    regx_uffd_close(&notifier->uffd);
    regx_uffd_ranges_close(&notifier->ranges);
    regx_file_close(&notifier->end[0], &notifier->end_id[0]);
    regx_file_close(&notifier->end[1], &notifier->end_id[1]);
}

static void before_fork(void)
{
    pthread_mutex_lock(&current_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&current_lock);
}

static void after_fork_in_child(void)
{
    if (current != NULL) {
        regx_uffd_t uffd = current->uffd;
        regx_maps_t maps = current->ranges.maps;
        int end[2] = {current->end[0], current->end[1]};

        /* By copies: to the thread sanitizer the parent's reader still reads the originals. */
        regx_uffd_close(&uffd);
        regx_maps_close(&maps);
        regx_file_close(&end[0], &current->end_id[0]);
        regx_file_close(&end[1], &current->end_id[1]);
        current = NULL;
    }
    pthread_mutex_unlock(&current_lock);
}

/* ---- the monitor ---- */

static bool valid(regx_monitor_t *monitor, uintptr_t start, uintptr_t end)
{
    const regx_notifier_t *notifier = (const regx_notifier_t *)monitor;

    (void)start;
    (void)end;
    return !in_a_child(notifier) && regx_uffd_is_idle(notifier->uffd.fd);
}

/* The query first: what replaces the range after it is seen by the next. */
static bool valid_and_registered(regx_monitor_t *monitor, uintptr_t start, uintptr_t end)
{
    return valid(monitor, start, end) &&
           regx_uffd_is_registered(&((const regx_notifier_t *)monitor)->uffd, start, end);
}

static regx_status_t subscribe(regx_monitor_t *monitor, uintptr_t start, uintptr_t end,
                               uint64_t *since)
{
    regx_notifier_t *notifier = (regx_notifier_t *)monitor;
    const char *reason = in_a_child(notifier) ? "not watched: in a child"
                         : atomic_load(&notifier->lost) || !regx_uffd_is_ours(&notifier->uffd)
                             ? "not watched: the program closed the notifier's descriptor"
                             : regx_uffd_ranges_add(&notifier->ranges, start, end, since);

    if (reason != NULL) {
        regx_monitor_fallback(monitor, notifier->counters, start, end, reason);
        return REGX_DENIED;
    }
    return REGX_OK;
}

static void discard(regx_notifier_t *notifier)
{
    if (notifier->ours != MAP_FAILED) {
        munmap(notifier->ours, (size_t)sysconf(_SC_PAGESIZE));
    }
    if (notifier->super.log != NULL) {
        regx_inval_log_close(notifier->super.log);
    }
    free(notifier);
}

/* In a child only memory is given back: the reader and what is watched are the parent's. */
static void stop(regx_monitor_t *monitor)
{
    regx_notifier_t *notifier = (regx_notifier_t *)monitor;

    if (!in_a_child(notifier)) {
        if (regx_uffd_is_ours(&notifier->uffd)) {
            regx_uffd_ranges_clear(&notifier->ranges);
        }
        atomic_store(&notifier->stopping, true);
        if (regx_file_is(notifier->end[1], &notifier->end_id[1])) { /* else it has noticed */
            (void)send(notifier->end[1], "", 1, MSG_NOSIGNAL);      /* refused: so it has */
        }
        pthread_join(notifier->reader, NULL);
        pthread_mutex_lock(&current_lock);
        close_all(notifier);
        current = NULL;
        pthread_mutex_unlock(&current_lock);
    }
    discard(notifier);
}

static regx_status_t lacks(char *error, size_t error_size, const char *what)
{
    const int reason = errno;

    snprintf(error, error_size, "the notifier gets no %s: %s", what, strerror(reason));
    return reason == ENOMEM ? REGX_NO_MEMORY : REGX_DENIED;
}

/* All of it, or what there is so far. */
static regx_status_t make(regx_notifier_t *notifier, char *error, size_t error_size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const regx_status_t status = regx_uffd_open(&notifier->uffd, error, error_size);

    if (status != REGX_OK) {
        return status;
    }
    notifier->super.log = regx_inval_log_open();
    if (notifier->super.log == NULL) {
        return lacks(error, error_size, "log");
    }
    errno = regx_uffd_ranges_open(&notifier->ranges, &notifier->uffd, notifier->super.log);
    if (errno != 0) {
        return lacks(error, error_size, "list of mappings (/proc/self/maps)");
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, notifier->end) != 0) {
        return lacks(error, error_size, "pair of sockets");
    }
    regx_file_identify(notifier->end[0], &notifier->end_id[0]);
    regx_file_identify(notifier->end[1], &notifier->end_id[1]);
    notifier->ours = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (notifier->ours == MAP_FAILED || madvise(notifier->ours, page, MADV_WIPEONFORK) != 0) {
        return lacks(error, error_size, "page that is wiped on fork");
    }
    *notifier->ours = 1;
    return start_reader(notifier) ? REGX_OK : lacks(error, error_size, "thread");
}

static regx_status_t make_current(regx_notifier_t *notifier, char *error, size_t error_size)
{
    static bool atfork_registered;

    pthread_mutex_lock(&current_lock);
    errno = atfork_registered ? 0 : pthread_atfork(before_fork, after_fork, after_fork_in_child);
    atfork_registered = errno == 0;
    const regx_status_t status = atfork_registered ? make(notifier, error, error_size)
                                                   : lacks(error, error_size, "notice of fork");
    if (status == REGX_OK) {
        current = notifier;
    } else {
        close_all(notifier);
    }
    pthread_mutex_unlock(&current_lock);
    return status;
}

static regx_status_t choose_check(regx_notifier_t *notifier, const regx_monitor_config_t *config,
                                  char *error, size_t error_size)
{
    switch (config->check) {
    case REGX_CHECK_SCAN:
        if (notifier->uffd.pagemap < 0) {
            snprintf(error, error_size,
                     "btl_regx_notifier_check=scan needs PAGEMAP_SCAN, which this kernel lacks "
                     "(Linux 6.7); allowed here: always, threads, never");
            return REGX_DENIED;
        }
        notifier->super.valid = valid_and_registered;
        break;
    case REGX_CHECK_NEVER:
        break;
    case REGX_CHECK_THREADS:
        notifier->super.valid = config->threads ? valid : NULL;
        break;
    default:
        notifier->super.valid = valid;
    }
    if (notifier->super.valid == NULL) {
        notifier->super.flags |= REGX_MONITOR_LATE;
    }
    notifier->super.query = notifier->super.valid == valid ? &notifier->uffd : NULL;
    return REGX_OK;
}

static regx_status_t notifier_start(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                                    char *error, size_t error_size)
{
    regx_notifier_t *notifier = calloc(1, sizeof(*notifier));

    if (notifier == NULL) {
        return lacks(error, error_size, "memory");
    }
    *notifier = (regx_notifier_t){
        .super = {.name = "notifier",
                  .trace = config->trace,
                  .flags = REGX_MONITOR_THREAD,
                  .subscribe = subscribe,
                  .stop = stop},
        .uffd = {.fd = -1, .pagemap = -1},
        .ranges = {.maps = {.fd = -1}, .lock = PTHREAD_MUTEX_INITIALIZER},
        .counters = config->counters,
        .on_change = config->on_change,
        .context = config->context,
        .end = {-1, -1},
        .ours = MAP_FAILED,
    };
    regx_status_t status = make_current(notifier, error, error_size);
    if (status != REGX_OK) {
        discard(notifier);
        return status;
    }
    status = choose_check(notifier, config, error, error_size);
    if (status == REGX_OK) {
        const unsigned blind = config->check == REGX_CHECK_SCAN ? 0 : REGX_SELFTEST_REMAP;

        status = regx_selftest(&notifier->super, REGX_SELFTEST_ALL & ~blind, error, error_size);
    }
    if (status != REGX_OK) {
        stop(&notifier->super);
        return status;
    }
    *monitor = &notifier->super;
    return REGX_OK;
}

const regx_backend_t regx_backend_notifier = {
    .name = "notifier",
    .start = notifier_start,
    .automatic = true,
    .leaves_no_trace = true,
    .reports_changes = true,
    .help = "the kernel reports changes by userfaultfd; only private anonymous memory is cached, "
            "see btl_regx_notifier_check",
    .more = "It reports every way of unmapping and needs no privilege; Linux 5.18 and later. "
            "Shared memory and mapped files are registered for each use. It misses "
            "MADV_GUARD_INSTALL, shmat(SHM_REMAP) over private memory unless "
            "btl_regx_notifier_check is scan, and before Linux 6.17 another userfaultfd of the "
            "process that unregisters the memory; MADV_DONTNEED, MADV_FREE and MADV_REMOVE are "
            "reported before they take effect, as by hooks. It runs one thread per process, and "
            "with devices that pin memory one more per port, which deregisters freed memory while "
            "the program computes. Whole mappings are watched: unmapping any part of one takes 12 "
            "us instead of 4.4; mremap of a partly watched range fails (EFAULT; since Linux 6.17 "
            "only after a fixed destination was unmapped); and for other users of userfaultfd such "
            "memory is busy."};

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Backend `notifier`: the kernel reports changes by userfaultfd, whatever call makes them, in
 * whichever thread.
 *
 * Guarantees, for private anonymous memory (also of huge pages): no kept registration is used after
 * munmap, mremap, mmap MAP_FIXED, brk, MADV_DONTNEED, MADV_FREE and their like have returned, nor
 * (see below) while they run. Memory of any other kind is not kept: shared memory and mappings of
 * files change with the object behind them, which nothing reports.
 * Is blind to:
 *   - MADV_GUARD_INSTALL;
 *   - shmat SHM_REMAP over private memory;
 *   - before Linux 6.17, UFFDIO_UNREGISTER of our memory by another userfaultfd of this process: it
 *     takes the memory from us unnoticed.
 * The kernel reports MADV_DONTNEED, MADV_FREE and MADV_REMOVE before it makes them: one that
 * overlaps a use of the same memory in another thread (an error of the application) may leave a
 * region of the old pages behind, which later uses hit.
 *
 * How. The kernel holds the thread that changes watched memory until a thread of ours, the reader,
 * has read of it. The reader raises `sequence` before it reads and lowers it after it has logged:
 * so once a change has returned, a look-up finds either its entry or the sequence odd. Before
 * that, between the change and our reading, the address may already be another thread's: there the
 * look-up's query answers that a change is under way (`valid`). In the order query, sequence, log
 * no change falls through: what had not begun at the query had not happened to what was looked up,
 * what was under way fails the query, what was read by then fails the sequence or is in the log.
 *
 * The query is UFFDIO_WRITEPROTECT of an empty range. poll, read and FIONREAD either cost more, or
 * report a change only when its event is queued; by then the program may already have the address
 * again. UFFDIO_COPY, _ZEROPAGE and _CONTINUE would do, at the same cost: that of a system call, and
 * of a descriptor that threads share.
 *
 * A miss in a watched mapping makes six system calls: two fstat (the descriptors are still ours),
 * PROCMAP_QUERY, PAGEMAP_SCAN, UFFDIO_REGISTER and the query; the next one there, if no event was read
 * since, only the last three. A miss in a mapping that is not watched yet repeats PROCMAP_QUERY and
 * PAGEMAP_SCAN after UFFDIO_REGISTER. UFFDIO_REGISTER is needed even in a watched mapping: the other
 * calls do not tell whose userfaultfd watches it.
 *
 * The reader is neither bound to a core nor given a priority: the scheduler wakes it fastest on a core
 * near the caller's. To end the watch of a range (UFFDIO_UNREGISTER) takes 30 to 70 ms per GiB. What
 * the rest costs: osu-configs/results/registering.md.
 *
 * What the application notices. Mappings are watched whole (uffd.h), so a thread that frees a
 * neighbour of a buffer in the same mapping waits for the reader too. What is mapped beside or into
 * it later stays a mapping of its own until it is used too: mremap of both at once, which the
 * kernel might have made one, fails with EFAULT; since Linux 6.17 half done: MREMAP_FIXED has then
 * moved what comes before the watched mapping, and what was at the destination is gone. Who uses
 * userfaultfd on such memory finds it busy. Huge pages stay, but no new ones are made of memory
 * that is watched and in part untouched. A program that closes our descriptor by mistake: nothing
 * is kept from the next change on; if its number has become a file that has nothing to tell, that
 * change waits until the reader looks (LOOK_MS).
 *
 * A child of fork watches nothing and answers so: its copy of the descriptors is closed. A child
 * of raw clone still has them and must not use them, since they mean the parent's memory: a page
 * that such a child finds wiped tells. There a descriptor keeps the parent's memory watched after
 * the parent closed its own; so everything is unregistered first, while the reader still runs.
 */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "registration/monitor/uffd.h"

#define LAST_EVENTS_MS 2000
#define LOOK_MS 1000
#define HUGEST ((uintptr_t)1 << 30) /* page there is */

/* A part of a mapping, to its end, that is watched for as long as the log's head is that: what would end
 * the watch is logged. */
typedef struct watched {
    uintptr_t start, end;
    uint64_t head;
} watched_t;

#define KNOWN 16u

typedef struct regx_notifier {
    regx_monitor_t super;
    regx_uffd_t uffd;
    regx_uffd_ranges_t ranges;
    regx_counters_t *counters;
    pthread_t reader;
    _Atomic uint32_t reads; /* 1: the reader has come so far that it reads */
    regx_file_t end[2]; /* connected sockets: [1] wakes the reader at [0] to stop. It also hears if
                           they are closed. Not a pipe: a write to one without a reader raises
                           SIGPIPE. */
    _Atomic bool stopping;  /* stop() was called */
    _Atomic bool lost;      /* the descriptors were closed by the program: nothing is heard */
    unsigned char *ours;    /* its process's mark */
    watched_t known[KNOWN]; /* under current_lock */
} regx_notifier_t;

/* The one whose descriptors a child closes; fork waits while they come and go. */
static regx_notifier_t *current;
static pthread_mutex_t current_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the reader ----
 * The thread that changes memory waits for it, perhaps inside malloc, perhaps with locks held: it
 * takes no lock, allocates nothing, prints nothing, and calls the kernel by itself, since libc's
 * functions may be a tracer's by now. It touches no thread-local memory. */

/* false: there is nothing to be read from any more. */
static bool read_events(regx_notifier_t *notifier)
{
    _Atomic uint64_t *sequence = &notifier->super.log->sequence;
    regx_change_t changes[REGX_UFFD_CHANGES];

    atomic_fetch_add(sequence, 1);
    const int count = regx_uffd_read(&notifier->uffd, changes);
    for (int i = 0; i < count; i++) {
        regx_inval_log_write(notifier->super.log, changes[i].start, changes[i].end);
    }
    atomic_fetch_add(sequence, count >= 0); /* else it stays odd: nothing hits any more */
    return count >= 0;
}

/* Threads that wait for the reader go on, unless a child has the descriptor too. */
static void let_all_go(const regx_notifier_t *notifier)
{
    if (regx_file_is_ours(&notifier->uffd.file)) {
        regx_raw(SYS_close, notifier->uffd.file.fd, 0, 0, 0, 0);
    }
}

static void *reader(void *argument)
{
    regx_notifier_t *notifier = argument;

    atomic_store(&notifier->reads, 1);
    regx_thread_wake(&notifier->reads);
    /* It looks by itself now and then: by a number that has become a silent file it would never be
     * woken, nor by a thread that may not send or has a table of descriptors of its own, where it
     * closed ours (unshare). */
    while (true) {
        const int ready = regx_uffd_wait(&notifier->uffd, notifier->end[0].fd, LOOK_MS);

        if (ready < 0 || ((ready & REGX_UFFD_EVENT) != 0 && !read_events(notifier))) {
            goto lost;
        }
        if (atomic_load(&notifier->stopping)) {
            break;
        }
        if ((ready & REGX_UFFD_OTHER) != 0 || !regx_file_is_ours(&notifier->end[0]) ||
            !regx_file_is_ours(&notifier->uffd.file)) {
            goto lost;
        }
    }
    /* Nothing is watched any more, but a change from before may still come to us. */
    for (int i = 0; i < LAST_EVENTS_MS && !regx_uffd_is_idle(notifier->uffd.file.fd); i++) {
        if (regx_uffd_wait(&notifier->uffd, -1, 1) < 0 || !read_events(notifier)) {
            break;
        }
    }
    /* By this thread, before it ends: libc then gives its stack back, a change for which this
     * thread would wait if its stack were still watched (see regx_uffd_ranges_clear). */
    let_all_go(notifier);
    return NULL;
lost:
    /* The program closed a descriptor of ours. What there is of userfaultfd is closed, which lets go
     * the threads that wait for us; everything that is kept ends, and nothing is kept from now on. (A
     * look-up's query is refused while the number is closed, or another file's, unless that answers
     * EINVAL as another userfaultfd does: the sequence refuses all.) */
    atomic_fetch_or(&notifier->super.log->sequence, 1);
    atomic_store(&notifier->lost, true);
    let_all_go(notifier);
    regx_inval_log_write(notifier->super.log, 0, UINTPTR_MAX);
    return NULL;
}

/* ---- processes ---- */

/* What there is of them. */
static void close_all(regx_notifier_t *notifier)
{
    regx_uffd_close(&notifier->uffd);
    regx_uffd_ranges_close(&notifier->ranges);
    regx_file_close(&notifier->end[0]);
    regx_file_close(&notifier->end[1]);
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
        regx_file_t end[2] = {current->end[0], current->end[1]};

        /* By copies: to the thread sanitizer the parent's reader still reads the originals. */
        regx_uffd_close(&uffd);
        regx_file_close(&maps.file);
        regx_file_close(&end[0]);
        regx_file_close(&end[1]);
        current = NULL;
    }
    pthread_mutex_unlock(&current_lock);
}

static bool watches(regx_notifier_t *notifier, uintptr_t start, uintptr_t end)
{
    watched_t *known = &notifier->known[end / regx_page_size() % KNOWN];
    /* In the order in which no change falls through, as above. */
    const bool settled = regx_uffd_is_idle(notifier->uffd.file.fd) &&
                         atomic_load(&notifier->super.log->sequence) % 2 == 0;
    const uint64_t head = atomic_load(&notifier->super.log->head);
    int error = EINVAL;

    if (settled && known->end == end && known->start <= start && known->head == head) {
        return true;
    }
    if (!regx_file_is_ours(&notifier->uffd.file)) {
        return false;
    }
    /* Asks of a page, which another userfaultfd that watches it refuses; of huge ones that are not whole
     * the kernel says EINVAL. */
    for (uintptr_t size = regx_page_size(); error == EINVAL && size <= HUGEST; size *= 2) {
        const uintptr_t page = start & ~(size - 1);

        error = regx_uffd_register(notifier->uffd.file.fd, page, page + size);
    }
    if (error == 0) {
        *known = (watched_t){start, end, head};
    }
    return error == 0;
}

bool regx_notifier_watches(uintptr_t start, uintptr_t end)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&current_lock);
    const bool ours = current != NULL && watches(current, start, end);
    pthread_mutex_unlock(&current_lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ours;
}

/* ---- memory that the program pages itself ---- */

#define ASKED (512u * 1024u) /* bytes for which one page is asked where mappings are not known */

/* The kernel is asked to fill the page from one that cannot be read. First it looks whether the mapping
 * is watched, by whichever userfaultfd (ENOENT: by none). Whatever else it answers, it fills nothing. */
static bool is_watched(const regx_paging_t *paging, uintptr_t at)
{
    const uintptr_t page = regx_page_size();
    struct uffdio_copy copy = {.dst = at & ~(page - 1),
                               .src = (uintptr_t)paging->hole,
                               .len = page,
                               .mode = UFFDIO_COPY_MODE_DONTWAKE};

    return ioctl(paging->file.fd, UFFDIO_COPY, &copy) == 0 || errno != ENOENT;
}

bool regx_paging_is_on(regx_paging_t *paging, uintptr_t start, uintptr_t end)
{
    if (!paging->possible) {
        return false;
    }
    /* One that another process has sent, perhaps, under the same number: it would tell of that process. */
    if (!regx_file_is_ours(&paging->file)) {
        return true;
    }
    while (start < end) {
        regx_vma_t mapping;

        if (!regx_maps_ask(&paging->maps, start, &mapping)) {
            mapping = (regx_vma_t){.end = start + ASKED};
        }
        start = regx_max(start, mapping.start);
        if (start < end && is_watched(paging, start) &&
            !regx_notifier_watches(start, mapping.end)) {
            return true;
        }
        start = mapping.end;
    }
    return false;
}

/* ---- the monitor ---- */

static bool valid(regx_monitor_t *monitor)
{
    const regx_notifier_t *notifier = (const regx_notifier_t *)monitor;

    return !regx_process_is_child(notifier->ours) && regx_uffd_is_idle(notifier->uffd.file.fd);
}

static regx_status_t subscribe(regx_monitor_t *monitor, uintptr_t start, uintptr_t end,
                               uint64_t *since)
{
    regx_notifier_t *notifier = (regx_notifier_t *)monitor;
    const char *reason;

    if (regx_process_is_child(notifier->ours)) {
        reason = "not watched: in a child";
    } else if (atomic_load(&notifier->lost)) {
        reason = REGX_UFFD_LOST;
    } else {
        reason = regx_uffd_ranges_add(&notifier->ranges, start, end, since);
    }
    return reason == NULL ? REGX_OK
                          : regx_monitor_fallback(monitor, notifier->counters, start, end, reason);
}

static void discard(regx_notifier_t *notifier)
{
    regx_process_unmark(notifier->ours);
    regx_monitor_free(&notifier->super);
}

/* In a child only memory is given back: the reader and what is watched are the parent's. */
static void stop(regx_monitor_t *monitor)
{
    regx_notifier_t *notifier = (regx_notifier_t *)monitor;

    if (!regx_process_is_child(notifier->ours)) {
        if (regx_file_is_ours(&notifier->uffd.file)) {
            regx_uffd_ranges_clear(&notifier->ranges);
        }
        atomic_store(&notifier->stopping, true);
        if (regx_file_is_ours(&notifier->end[1])) { /* else, or if that fails, it notices in time */
            (void)send(notifier->end[1].fd, "", 1, MSG_NOSIGNAL);
        }
        pthread_join(notifier->reader, NULL);
        if (atomic_load(&notifier->lost)) {
            notifier->uffd.file.fd = -1; /* the reader has closed what there was */
        }
        pthread_mutex_lock(&current_lock);
        close_all(notifier);
        current = NULL;
        pthread_mutex_unlock(&current_lock);
    }
    discard(notifier);
}

static regx_status_t lacks(regx_error_t error, const char *what)
{
    return regx_refuse(error, errno == ENOMEM ? REGX_NO_MEMORY : REGX_DENIED,
                       "the notifier gets no %s: %s", what, strerror(errno));
}

/* All of it, or what there is so far. */
static regx_status_t make(regx_notifier_t *notifier, regx_error_t error)
{
    const regx_status_t status = regx_uffd_open(&notifier->uffd, error);
    int end[2];

    if (status != REGX_OK) {
        return status;
    }
    notifier->super.log = regx_inval_log_open();
    if (notifier->super.log == NULL) {
        return lacks(error, "log");
    }
    errno = regx_uffd_ranges_open(&notifier->ranges, &notifier->uffd, notifier->super.log);
    if (errno != 0) {
        return lacks(error, "list of mappings (/proc/self/maps)");
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end) != 0) {
        return lacks(error, "pair of sockets");
    }
    notifier->end[0] = regx_file_of(regx_descriptor_move(end[0]));
    notifier->end[1] = regx_file_of(regx_descriptor_move(end[1]));
    if (notifier->end[0].fd < 0 || notifier->end[1].fd < 0) {
        return lacks(error, "descriptor for its sockets");
    }
    notifier->ours = regx_process_mark();
    if (notifier->ours == NULL) {
        return lacks(error, "page that is wiped on fork");
    }
    errno = regx_thread_start(&notifier->reader, "regx-notifier", reader, notifier);
    if (errno != 0) {
        return lacks(error, "thread");
    }
    /* Until it reads. Before that libc, and tools that wrap pthread_create, run code of theirs in the
     * new thread: if that changed memory that is watched already, it would wait for itself. */
    while (atomic_load(&notifier->reads) == 0) {
        regx_thread_wait(&notifier->reads, 0, 0);
    }
    return REGX_OK;
}

static regx_status_t notifier_start(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                                    regx_error_t error)
{
    static bool atfork_registered;
    regx_notifier_t *notifier = calloc(1, sizeof(*notifier));

    if (notifier == NULL) {
        return lacks(error, "memory");
    }
    *notifier = (regx_notifier_t){
        .super = {.trace = config->trace,
                  .has_thread = true,
                  .valid = valid,
                  .query = &notifier->uffd,
                  .subscribe = subscribe,
                  .stop = stop},
        .uffd = {.file = {.fd = -1}, .pagemap = {.fd = -1}},
        .ranges = {.maps = {.file = {.fd = -1}}, .lock = PTHREAD_MUTEX_INITIALIZER},
        .counters = config->counters,
        .end = {{.fd = -1}, {.fd = -1}},
    };
    pthread_mutex_lock(&current_lock);
    errno = atfork_registered ? 0 : pthread_atfork(before_fork, after_fork, after_fork_in_child);
    atfork_registered = errno == 0;
    regx_status_t status =
        atfork_registered ? make(notifier, error) : lacks(error, "notice of fork");
    if (status == REGX_OK) {
        current = notifier;
    } else {
        close_all(notifier);
    }
    pthread_mutex_unlock(&current_lock);
    if (status != REGX_OK) {
        discard(notifier);
        return status;
    }
    status = regx_monitor_test(&notifier->super, error);
    if (status != REGX_OK) {
        stop(&notifier->super);
        return status;
    }
    *monitor = &notifier->super;
    return REGX_OK;
}

const regx_backend_t regx_backend_notifier = {
    .name = "notifier", .start = notifier_start, .reports_changes = true};

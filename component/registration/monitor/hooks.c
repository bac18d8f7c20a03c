/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Backends `hooks` and `hooks+notifier`.
 *
 * `hooks`: libc's functions report what they are about to change, in the calling thread, through
 * Open MPI's memory hooks, UCX's ucm or both; regx itself patches no code. The report is in the log
 * before the memory changes, so a look-up need not ask. Whether the hooks are still there is
 * asked whenever a region is made, and only then, of each function: those of which a page of our
 * own can be changed must be heard, the code of the others must be what it was. Of the heap, which
 * libc's sbrk trims, the source must have proven that it hears: its brk where nobody has patched
 * sbrk, or else sbrk itself.
 *
 * Sees, of anonymous, shared and file memory, whichever thread makes the call, and inside malloc:
 * munmap, mmap MAP_FIXED, the source of mremap, brk and sbrk, shmdt, shmat SHM_REMAP, madvise
 * MADV_DONTNEED and MADV_REMOVE; by ucm without Open MPI's also MADV_FREE and the destination of
 * mremap MREMAP_FIXED.
 * Is blind to:
 *   - system calls not made by these functions of libc: raw ones, process_madvise, io_uring's
 *     madvise, those of a statically linked allocator or of another libc (dlmopen), and the dynamic
 *     loader's own (a buffer in a library that is closed);
 *   - by Open MPI's hooks the destination of mremap MREMAP_FIXED, which is unmapped even where the
 *     call then fails;
 *   - MADV_DONTNEED_LOCKED and MADV_GUARD_INSTALL; by Open MPI's hooks MADV_FREE, which does no harm
 *     where the kernel leaves pinned pages alone (Linux 5.18);
 *   - holes punched into, and truncation of, the file or segment behind a mapping;
 *   - of what MAP_FIXED with MAP_HUGETLB replaces, the rest of a huge page after a length that is
 *     not a multiple of it; of a segment that shmdt takes away and that lies in several mappings
 *     (mprotect or madvise split it), all but the first;
 *   - that the hooks were patched over, until the next region is made.
 * What is reported before it is made and overlaps a use of the same memory in another thread (an
 * error of the application) may leave a region of the old pages behind, which later uses hit.
 * Only brk is reported after it was done. malloc cannot have given that memory away in between: a
 * thread that grows the heap again waits for malloc's lock, which the caller holds. Another thread
 * that grows it by itself can, and hits what is stale.
 *
 * `hooks+notifier`: hooks that write into the notifier's log, before a libc function changes
 * memory. Guarantees what the notifier guarantees, for the same memory (private anonymous memory
 * alone), also sees shmat SHM_REMAP over such memory, by libc, and can let a change wait (drain.c).
 * Is blind to what both are blind to: MADV_GUARD_INSTALL, and SHM_REMAP by a raw system call.
 */
#include "config.h"

#include "base/thread.h"
#include "registration/monitor/uffd.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef REGX_HAVE_UCM
#include <ucm/api/ucm.h>
#endif

/* The functions that are tried on a page of our own, */
enum { MUNMAP, MMAP, MREMAP, MADVISE, TRIED };
static const char *const tried[TRIED] = {"munmap", "mmap", "mremap", "madvise"};

/* and those that cannot be: how their code begins is compared. */
static const char *const compared[] = {"brk", "sbrk", "shmat", "shmdt"};
enum { COMPARED = sizeof(compared) / sizeof(compared[0]), CODE = 16 };

typedef struct regx_hooks_monitor {
    regx_monitor_t super;
    regx_monitor_t *notifier; /* whose log it is; NULL: hooks alone */
    const regx_hook_source_t *source;
    regx_counters_t *counters;
    const void *code[COMPARED];
    unsigned char begins[COMPARED][CODE]; /* as it did when hooks were installed */
    unsigned char *canary; /* a page of ours for each function, to be changed by it alone: */
    _Atomic unsigned reports[TRIED]; /* how often that was reported */
    _Atomic bool stolen;             /* and never to be trusted again */
} regx_hooks_monitor_t;

/* A thread may still be on its way to us after the source has taken us off its list, so this is
 * static, and the code must not be unloaded. */
static struct {
    _Atomic(regx_hooks_monitor_t *) monitor; /* NULL: reports are ignored */
    _Atomic uintptr_t page;
    _Atomic uint32_t inside; /* threads that may be using the monitor */
    pid_t owner;
} hooks;

static void log_change(uintptr_t start, uintptr_t end)
{
    atomic_fetch_add(&hooks.inside, 1);
    regx_hooks_monitor_t *monitor = atomic_load(&hooks.monitor);
    if (monitor != NULL) {
        const uintptr_t function = (start - (uintptr_t)monitor->canary) / hooks.page;

        if (function < TRIED) {
            atomic_fetch_add(&monitor->reports[function], 1);
        } else {
            regx_drain_wait(monitor->super.drain, start, end);
            regx_inval_log_write(monitor->super.log, start, end);
        }
    }
    atomic_fetch_sub(&hooks.inside, 1);
}

/* The kernel detaches what lies as far from the address as it does in the segment. */
static bool detach(void *context, const regx_vma_t *mapping)
{
    const uintptr_t address = *(const uintptr_t *)context;

    if (mapping->kind == REGX_VMA_SHARED && mapping->start - address == mapping->offset) {
        log_change(mapping->start, mapping->end);
    }
    return true;
}

/* A segment whose size the source did not find out: of one that is attached there, each of its
 * mappings; if none is, the call fails. Where the kernel does not tell, all that is above. In the
 * thread of the program, which must not end in here, nor see another errno. */
static void report_detached(uintptr_t address, uintptr_t last)
{
    const int before = errno;
    regx_maps_t maps;
    int cancelled;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
    if (regx_maps_open(&maps) == 0) {
        regx_maps_each(&maps, address, last, detach, &address);
        regx_file_close(&maps.file);
    } else {
        log_change(address & ~(hooks.page - 1), last);
    }
    pthread_setcancelstate(cancelled, NULL);
    errno = before;
}

/* The kernel rounds a length up. One of 0, or one that goes round the end of all addresses, takes
 * nothing away. */
static void report(void *base, size_t length, bool sized)
{
    const uintptr_t page = hooks.page, address = (uintptr_t)base & REGX_UNTAGGED_MAX;
    const uintptr_t start = address & ~(page - 1), last = UINTPTR_MAX - page + 1;

    if (length == 0 && !sized) {
        report_detached(address, last);
    } else if (length > 0 && length <= last - address) {
        log_change(start, regx_align_up(address + length, page));
    }
}

/* From now on reports go there; NULL: nowhere. When it returns, no thread is in the one before. */
static void set_listener(regx_hooks_monitor_t *monitor)
{
    uint32_t inside;

    atomic_store(&hooks.monitor, NULL);
    /* In a child, a thread that was inside at the fork is there for ever. This one sleeps: that one
     * may have a lower priority and need its processor. */
    while ((inside = atomic_load(&hooks.inside)) > 0 && getpid() == hooks.owner) {
        regx_thread_wait(&hooks.inside, inside, 1);
    }
    atomic_store(&hooks.monitor, monitor);
}

/* The first function that does not report any more; NULL: all do. */
static const char *find_deaf(regx_hooks_monitor_t *monitor)
{
    for (unsigned function = 0; function < TRIED; function++) {
        const unsigned reports = atomic_load(&monitor->reports[function]);
        unsigned char *page = monitor->canary + function * hooks.page;

        /* Calls that the kernel refuses at once, for a reason that no hook looks at: they are
         * reported, and cost a tenth of what they would if they did something. */
        switch (function) {
        case MUNMAP: /* not the start of a page */
            munmap(page + 1, 1);
            break;
        case MMAP: /* neither shared nor private */
            mmap(page, hooks.page, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            break;
        case MREMAP: /* a flag that there is not */
            mremap(page, hooks.page, hooks.page, 1 << 30);
            break;
        default: /* not the start of a page */
            madvise(page + 1, 1, MADV_DONTNEED);
        }
        if (atomic_load(&monitor->reports[function]) == reports) {
            return tried[function];
        }
    }
    for (int i = 0; i < COMPARED; i++) {
        if (monitor->code[i] != NULL && memcmp(monitor->begins[i], monitor->code[i], CODE) != 0) {
            return compared[i];
        }
    }
    return NULL;
}

/* All is covered, as long as the hooks are not patched over. If they were, we are deaf since some
 * time ago: then nothing that is kept can be trusted. The notifier does not depend on it. */
static regx_status_t hooks_subscribe(regx_monitor_t *base, uintptr_t start, uintptr_t end,
                                     uint64_t *since)
{
    regx_hooks_monitor_t *monitor = (regx_hooks_monitor_t *)base;

    if (monitor->notifier != NULL) {
        return monitor->notifier->subscribe(monitor->notifier, start, end, since);
    }
    *since = atomic_load(&base->log->head);
    if (!atomic_load(&monitor->stolen)) {
        if (find_deaf(monitor) == NULL) {
            return REGX_OK;
        }
        atomic_store(&monitor->stolen, true);
        regx_inval_log_write(base->log, 0, UINTPTR_MAX); /* what is not yet kept is also hit */
    }
    return regx_monitor_fallback(base, monitor->counters, start, end,
                                 "hooks: another library patched the same functions");
}

static bool hooks_valid(regx_monitor_t *base)
{
    regx_monitor_t *notifier = ((regx_hooks_monitor_t *)base)->notifier;

    return notifier->valid(notifier);
}

/* ---- the heap ---- */

static void *libc_function(const char *name)
{
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD); /* stays: it always does */

    return dlsym(libc != NULL ? libc : RTLD_DEFAULT, name);
}

/* Whether code is other than in the file that it was loaded from: somebody has patched it. So is taken
 * what cannot be compared. */
static bool is_patched(const void *code)
{
    unsigned char original[CODE];
    struct link_map *object;
    Dl_info info;
    ssize_t length = -1;

    if (code == NULL || dladdr1(code, &info, (void **)&object, RTLD_DL_LINKMAP) == 0) {
        return true;
    }
    const ElfW(Ehdr) *const header = info.dli_fbase;
    const ElfW(Phdr) *const segments = (const void *)((const char *)header + header->e_phoff);
    const ElfW(Addr) at = (uintptr_t)code - object->l_addr;
    const int file = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
    for (int i = 0; file >= 0 && i < header->e_phnum; i++) {
        if (segments[i].p_type == PT_LOAD && at - segments[i].p_vaddr < segments[i].p_filesz) {
            length = pread(file, original, CODE,
                           (off_t)(at - segments[i].p_vaddr + segments[i].p_offset));
        }
    }
    if (file >= 0) {
        close(file);
    }
    return length != CODE || memcmp(code, original, CODE) != 0;
}

/* ---- UCX's ucm as a source of hooks ----
 * It sees what Open MPI's hooks see, and more. It patches libc's functions when UCX is loaded, or its
 * hooks are installed, and leaves them patched: its sbrk no longer goes through libc's brk, where
 * Open MPI's hooks wait. Opened by name: the component must not need UCX's libraries, since loading
 * UCX changes a process (it patches libc and installs signal handlers unless told otherwise).
 *
 * Where UCX is in the process its hooks are used, if they can be. They cannot before UCX 1.15, nor where
 * Open MPI has patched over them, all but sbrk (6.0), so that ucm finds itself unheard. Then Open MPI's
 * report all but sbrk, and ucm that, if it is patched. */

#ifdef REGX_HAVE_UCM

enum { UCM_EVENTS = UCM_EVENT_VM_UNMAPPED | UCM_EVENT_SHMDT | UCM_EVENT_MREMAP };

static struct {
    regx_hook_report_t report;
    __typeof__(ucm_set_event_handler) *set; /* NULL: UCX is not there */
    __typeof__(ucm_unset_event_handler) *unset;
    ucm_global_config_t *options;
    int events;              /* of which ucm tells us */
    _Atomic bool hears_sbrk; /* it has told of one */
} ucm;

/* Of mremap, as UCX 1.15 has it and later ones. The header that this was built with may be older. */
typedef struct ucm_mremap_event {
    void *result;
    void *address;
    size_t old_size, new_size;
    int flags;
    void *new_address;
} ucm_mremap_event_t;

/* Of this thread: ucm has just told that nothing of what begins there goes. NULL: it has not. */
static _Thread_local const void *of_no_size __attribute__((tls_model("initial-exec")));

/* Of shmdt ucm first tells with the segment's size, or 0 where it does not find that out, as if it
 * were any other call; and then that it is shmdt. */
static void ucm_told(ucm_event_type_t type, ucm_event_t *event, void *unused)
{
    (void)unused;
    if (type == UCM_EVENT_VM_UNMAPPED) {
        of_no_size = event->vm_unmapped.size == 0 ? event->vm_unmapped.address : NULL;
        ucm.report(event->vm_unmapped.address, event->vm_unmapped.size, true);
    } else if (type == UCM_EVENT_MREMAP) { /* the source is told of as unmapped */
        const ucm_mremap_event_t *moved = (const ucm_mremap_event_t *)&event->mremap;

        if ((moved->flags & MREMAP_FIXED) != 0) {
            ucm.report(moved->new_address, moved->new_size, true);
        }
    } else if (type == UCM_EVENT_SBRK) { /* before it is done */
        const intptr_t increment = event->sbrk.increment;

        atomic_store(&ucm.hears_sbrk, true);
        if (increment < 0) { /* by a system call: libc's sbrk would lead back into ucm */
            ucm.report((void *)(syscall(SYS_brk, 0) + increment), (size_t)-increment, true);
        }
    } else if (type == UCM_EVENT_SHMDT && event->shmdt.shmaddr == of_no_size) {
        ucm.report((void *)(uintptr_t)event->shmdt.shmaddr, 0, false);
    }
}

/* Whether UCX is in the process, and its hooks are as this was built for. */
static bool ucm_find(regx_hook_report_t reporter)
{
    /* Opened without the rest of UCX, which it needs and does not name, it would end the process. */
    void *object = dlopen("libucm.so.0", RTLD_LAZY | RTLD_NOLOAD); /* stays, see ucm_remove */

    ucm.report = reporter;
    ucm.events = 0;
    ucm.hears_sbrk = false;
    ucm.set = NULL;
    if (object != NULL) {
        ucm.unset = (__typeof__(ucm.unset))dlsym(object, "ucm_unset_event_handler");
        ucm.options = dlsym(object, "ucm_global_opts");
        if (ucm.unset != NULL && ucm.options != NULL) {
            ucm.set = (__typeof__(ucm.set))dlsym(object, "ucm_set_event_handler");
        }
    }
    return ucm.set != NULL;
}

/* The program that loaded UCX may have told it to leave libc alone. ucm reads that when it installs
 * its hooks, now. */
static bool ucm_set_handler(int events)
{
    const int enabled = ucm.options->enable_events;

    ucm.options->enable_events = 1;
    const ucs_status_t status = ucm.set(events, -1, ucm_told, NULL);
    ucm.options->enable_events = enabled;
    ucm.events = status == UCS_OK ? events & ~UCM_EVENT_FLAG_NO_INSTALL : 0;
    return status == UCS_OK;
}

/* The code of libucm stays: what it patched leads there. */
static void ucm_remove(void)
{
    if (ucm.events != 0) {
        ucm.unset(ucm.events, ucm_told, NULL);
        ucm.events = 0;
    }
}

/* Whether somebody's sbrk tells us. It would try brk, too, if it installed anything. */
static bool ucm_hears_sbrk(void)
{
    if (ucm.set == NULL || !ucm_set_handler(UCM_EVENT_SBRK | UCM_EVENT_FLAG_NO_INSTALL)) {
        return false;
    }
    sbrk(0);
    if (!atomic_load(&ucm.hears_sbrk)) {
        ucm_remove();
    }
    return atomic_load(&ucm.hears_sbrk);
}

/* Before 1.15, its mremap loses the address that MREMAP_FIXED needs, and the program's data with
 * it. To be asked before anything is patched. Only libucp knows which UCX this is. */
static bool breaks_mremap(void)
{
    void (*get_version)(unsigned *major, unsigned *minor, unsigned *release) = NULL;
    void *libucp = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
    unsigned major = 0, minor = 0, release = 0;

    if (libucp != NULL) {
        get_version = (__typeof__(get_version))dlsym(libucp, "ucp_get_version");
        if (get_version != NULL) {
            get_version(&major, &minor, &release);
        }
        dlclose(libucp);
    }
    return major < 1 || (major == 1 && minor < 15);
}

static regx_status_t ucm_install(regx_hook_report_t reporter, regx_error_t error)
{
    if (!ucm_find(reporter)) {
        return regx_refuse(error, REGX_DENIED, "ucm: UCX is not there");
    }
    if (breaks_mremap()) {
        return regx_refuse(
            error, REGX_DENIED,
            "ucm: before UCX 1.15 its hooks break the program's mremap(MREMAP_FIXED)");
    }
    return ucm_set_handler(UCM_EVENTS)
               ? REGX_OK
               : regx_refuse(error, REGX_DENIED, "ucm: its hooks cannot be installed");
}

static const regx_hook_source_t ucm_source = {.install = ucm_install, .remove = ucm_remove};

const regx_hook_source_t *const regx_hooks_ucm = &ucm_source;

/* Whether UCX's hooks are better than those that the configuration has. */
static bool prefers_ucm(void)
{
    return ucm_find(NULL) && ucm.options->enable_events && !breaks_mremap();
}

#else

const regx_hook_source_t *const regx_hooks_ucm = NULL;

static bool prefers_ucm(void)
{
    return false;
}

static bool ucm_find(regx_hook_report_t reporter)
{
    (void)reporter;
    return false;
}

static bool ucm_hears_sbrk(void)
{
    return false;
}

static void ucm_remove(void)
{
}

#endif

/* ---- the monitor is started, and stopped ---- */

/* Whether code may be changed, which a process may be denied for its life (PR_SET_MDWE, systemd's
 * MemoryDenyWriteExecute). Those who install hooks do not ask, and die by a signal. Tried on the page of
 * this function, which stays as it is. */
static bool may_change_code(void)
{
    const uintptr_t page = regx_page_size(), code = (uintptr_t)may_change_code & ~(page - 1);

    return mprotect((void *)code, page, PROT_READ | PROT_WRITE | PROT_EXEC) == 0 &&
           mprotect((void *)code, page, PROT_READ | PROT_EXEC) == 0;
}

/* Installs UCX's hooks or the configuration's, and sees to it that the heap's trimming is heard. */
static regx_status_t install(regx_hooks_monitor_t *monitor, regx_error_t error)
{
    if (prefers_ucm() && regx_hooks_ucm->install(report, error) == REGX_OK) {
        monitor->source = regx_hooks_ucm;
        return REGX_OK;
    }
    const regx_status_t status = monitor->source->install(report, error);
    if (status != REGX_OK || monitor->source == regx_hooks_ucm) {
        return status;
    }
    /* libc's sbrk calls its brk, where the source waits; one that somebody has patched may not. */
    ucm_find(report);
    if (!is_patched(libc_function("sbrk")) || ucm_hears_sbrk()) {
        return REGX_OK;
    }
    monitor->source->remove();
    return regx_refuse(error, REGX_INVALID, "self-test: sbrk by libc was not seen");
}

static void uninstall(regx_hooks_monitor_t *monitor)
{
    monitor->source->remove();
    ucm_remove(); /* of sbrk, beside another source */
}

static void hooks_free(regx_hooks_monitor_t *monitor)
{
    if (monitor->canary != MAP_FAILED) {
        munmap(monitor->canary, TRIED * regx_page_size());
    }
    if (monitor->notifier == NULL) {
        regx_inval_log_close(monitor->super.log);
    }
    free(monitor);
}

static void hooks_stop(regx_monitor_t *base)
{
    regx_hooks_monitor_t *monitor = (regx_hooks_monitor_t *)base;

    uninstall(monitor);
    set_listener(NULL);
    regx_monitor_t *notifier = monitor->notifier;
    hooks_free(monitor);
    if (notifier != NULL) {
        notifier->stop(notifier);
    }
}

/* To be called once in a process: Open MPI's hooks cannot be installed a second time. */
static regx_status_t start(const regx_monitor_config_t *config, regx_monitor_t *notifier,
                           regx_monitor_t **monitor, regx_error_t error)
{
    const size_t page = regx_page_size();
    regx_hooks_monitor_t *own = calloc(1, sizeof(*own));
    regx_status_t status;
    Dl_info here;

    if (own == NULL) {
        return regx_refuse(error, REGX_NO_MEMORY, "out of memory");
    }
    own->super = (regx_monitor_t){.trace = config->trace,
                                  .drain = config->drain,
                                  .subscribe = hooks_subscribe,
                                  .stop = hooks_stop};
    own->source = config->hooks;
    own->counters = config->counters;
    own->notifier = notifier;
    if (notifier != NULL) {
        own->super.has_thread = notifier->has_thread;
        own->super.valid = hooks_valid;
    }
    own->super.log = notifier != NULL ? notifier->log : regx_inval_log_open();
    own->canary =
        mmap(NULL, TRIED * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own->super.log == NULL || own->canary == MAP_FAILED) {
        status = regx_refuse(error, REGX_NO_MEMORY, "out of memory");
        goto refused;
    }
    if (own->source == NULL) {
        status = regx_refuse(error, REGX_DENIED, "there is no source of hooks");
        goto refused;
    }
    if (!may_change_code()) {
        status = regx_refuse(error, REGX_DENIED, "this process may not change code (mprotect: %s)",
                             strerror(errno));
        goto refused;
    }
    hooks.page = page;
    hooks.owner = getpid();
    /* Open MPI unloads components in the end, and a thread may then still be on its way to a hook. */
    if (dladdr(&hooks, &here) != 0) {
        (void)dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    }
    status = install(own, error);
    if (status != REGX_OK) {
        goto refused;
    }
    set_listener(own);
    for (int i = 0; i < COMPARED; i++) {
        own->code[i] = libc_function(compared[i]);
        if (own->code[i] != NULL) {
            memcpy(own->begins[i], own->code[i], CODE);
        }
    }
    const char *deaf = find_deaf(own);
    if (deaf == NULL) {
        *monitor = &own->super;
        return REGX_OK;
    }
    uninstall(own);
    set_listener(NULL);
    status = regx_refuse(error, REGX_INVALID, "self-test: %s by libc was not seen", deaf);
refused:
    hooks_free(own);
    return status;
}

static regx_status_t hooks_start(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                                 regx_error_t error)
{
    return start(config, NULL, monitor, error);
}

static regx_status_t both_start(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                                regx_error_t error)
{
    regx_monitor_t *notifier;
    regx_status_t status = regx_backend_notifier.start(config, &notifier, error);

    if (status == REGX_OK) {
        status = start(config, notifier, monitor, error);
        if (status != REGX_OK) {
            notifier->stop(notifier);
        }
    }
    return status;
}

const regx_backend_t regx_backend_hooks = {
    .name = "hooks", .start = hooks_start, .reports_changes = true};

const regx_backend_t regx_backend_hooks_notifier = {
    .name = "hooks+notifier", .start = both_start, .reports_changes = true};

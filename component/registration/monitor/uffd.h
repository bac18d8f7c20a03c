/* SPDX-License-Identifier: BSD-3-Clause
 *
 * userfaultfd, as far as the notifier uses it: the kernel reports changes of ranges that are
 * watched. They are registered in write-protect mode and nothing is ever write-protected, so no
 * access to them faults for it. Needs no privilege. Each call is one system call; nothing here
 * allocates.
 *
 * Around it: what is mapped where, and which mappings are watched.
 */
#ifndef REGX_REGISTRATION_UFFD_H
#define REGX_REGISTRATION_UFFD_H

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "base/file.h"
#include "base/thread.h"
#include "registration/monitor/monitor.h"

/* ---- userfaultfd ---- */

typedef struct regx_uffd {
    regx_file_t file;
    regx_file_t pagemap; /* /proc/self/pagemap, to ask what is watched; closed: this kernel cannot
                            be asked */
} regx_uffd_t;

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

/* A descriptor with those features; -1: refused, see errno; LACKS: this kernel has not all. `flags`:
 * UFFD_USER_MODE_ONLY, or 0. */
#define REGX_UFFD_LACKS (-2)
int regx_uffd_create(int flags, uint64_t features);

/* REGX_DENIED: refused, or too old a kernel; `error` then holds one line with the reason. */
regx_status_t regx_uffd_open(regx_uffd_t *uffd, regx_error_t error);
/* A process that holds a copy of the descriptor keeps watched memory watched beyond this, with
 * no reader: unregister first. */
void regx_uffd_close(regx_uffd_t *uffd);

/* 0, or EBUSY: another userfaultfd has part of it, ENOMEM: too many mappings, or another errno.
 * Holes are left out silently, and watched memory stays watched. */
int regx_uffd_register(int fd, uintptr_t start, uintptr_t end);
/* Only of what is watched: before Linux 6.17 it takes memory away from any userfaultfd. */
int regx_uffd_unregister(int fd, uintptr_t start, uintptr_t end);

/* Whether no change of watched memory is between its start and the moment we read of it. Costs as
 * much as the cheapest system calls, whatever is watched. Inlined, see cache.c. */
static inline bool regx_uffd_is_idle(int fd)
{
    /* The kernel first looks whether a change is under way (EAGAIN), then finds the range empty
     * (EINVAL). */
    static const struct uffdio_writeprotect nothing = {.range = {0, 0}};
    /* What the caller reads next must not have been read before the kernel looked. x86 keeps the
     * order of loads, "memory" the compiler's. (The thread sanitizer knows no fences.) */
#ifdef __x86_64__
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"((long)SYS_ioctl), "D"((long)fd), "S"(UFFDIO_WRITEPROTECT), "d"(&nothing)
                     : "rcx", "r11", "memory");
#else
    const long result = ioctl(fd, UFFDIO_WRITEPROTECT, &nothing) == 0 ? 0 : -errno;

    atomic_thread_fence(memory_order_acquire);
#endif
    return result == -EINVAL;
}

/* Waits until there is something to read, or the descriptor `other` is readable or closed, or so
 * many milliseconds have passed. Returns which; -1: it cannot wait. Calls nothing of libc's. */
enum { REGX_UFFD_EVENT = 0x1, REGX_UFFD_OTHER = 0x2 };
int regx_uffd_wait(const regx_uffd_t *uffd, int other, int milliseconds);

/* Reads the queued events; the threads that made these changes continue. Does not wait, and calls
 * nothing of libc's. Returns how many changes they are (a move is two: of what went, and of as much
 * where it went to); -1: the descriptor is lost. */
#define REGX_UFFD_CHANGES 32
int regx_uffd_read(const regx_uffd_t *uffd, regx_change_t changes[REGX_UFFD_CHANGES]);

/* ---- mappings (maps.c) ----
 * What is mapped where in this process, as the kernel has it: asked for single addresses where the
 * kernel can be asked (PROCMAP_QUERY, Linux 6.11), else read from /proc/self/maps, which takes as
 * long as there are mappings below. Never on a hit. Allocates nothing. */

typedef enum regx_vma_kind {
    REGX_VMA_PRIVATE, /* anonymous: the heap, stacks, .bss, private anonymous mmap */
    REGX_VMA_HUGE,    /* the same, of hugetlb pages */
    REGX_VMA_FILE,    /* a private mapping of a file (.data, libraries): changes with the file */
    REGX_VMA_SHARED   /* with other processes or other mappings, file or not */
} regx_vma_kind_t;

typedef struct regx_vma {
    uintptr_t start, end;
    uint64_t offset; /* of its first byte in the file or segment that is mapped, */
    dev_t device;    /* which is that one */
    ino_t inode;     /* 0: none */
    regx_vma_kind_t kind;
} regx_vma_t;

/* Used by one thread at a time. */
typedef struct regx_maps {
    regx_file_t file; /* /proc/self/maps */
    bool query;       /* the kernel can be asked */
} regx_maps_t;

/* 0, or the errno of what could not be opened. To be closed, its file is (regx_file_close). */
int regx_maps_open(regx_maps_t *maps);

/* The mapping at that address, else the next above. false: none, or the kernel cannot be asked. Any
 * thread. Not for what may be kept: if the program has replaced the descriptor, it is another process's. */
bool regx_maps_ask(const regx_maps_t *maps, uintptr_t address, regx_vma_t *mapping);

/* Calls `each` for each mapping that overlaps the range, whole, in order of address, until it
 * answers false. Those that change meanwhile may be seen before or after. Sees none where the
 * descriptor is not ours any more. */
void regx_maps_each(regx_maps_t *maps, uintptr_t start, uintptr_t end,
                    bool (*each)(void *context, const regx_vma_t *mapping), void *context);

/* ---- memory that the program pages itself ----
 * By a userfaultfd of its own, with a thread that brings in pages, protects them or takes them away. */

typedef struct regx_paging {
    regx_file_t file; /* watches nothing, ever */
    regx_maps_t maps; /* used only where the kernel can be asked */
    void *hole;       /* a page that nobody can read */
    bool possible;    /* here the kernel gives a process a userfaultfd */
} regx_paging_t;

void regx_paging_open(regx_paging_t *paging);
void regx_paging_close(regx_paging_t *paging);
/* notifier.c: whether a userfaultfd other than the notifier's watches any of the mappings that the range lies in;
 * also if that could not be found out. Asked of each mapping, or, before Linux 6.11, once in each half
 * MiB. Takes a few system calls, which write nothing and wake nobody. Any thread; not in a child, where
 * the answer would be of the parent's memory. */
bool regx_paging_is_on(regx_paging_t *paging, uintptr_t start, uintptr_t end);

/* Whether it is this process's notifier that watches the range, which lies in one mapping and
 * ends with it. To be asked only of memory that is watched: other memory would be from then on. The kernel
 * takes its lock of the mappings for writing; so the answer is kept until something that is watched changes.
 * Signals wait meanwhile: their handlers may leave by siglongjmp, and with the lock fork would hang. */
bool regx_notifier_watches(uintptr_t start, uintptr_t end);

/* ---- which mappings are watched (uffd.c) ----
 * That is, registered with userfaultfd: whole mappings or nothing of them. Watching a part would
 * split the mapping for good, and what the application may do with it as a whole (mremap above all)
 * would then fail. So neither is a huge page split, nor does the number of mappings grow when one
 * is watched. The kernel alone knows what is watched, since changes end it; nothing is kept here
 * but an estimate of how much.
 *
 * Where the kernel cannot be asked (before Linux 6.7), what took the place of watched memory unseen
 * (shmat SHM_REMAP, and what then comes into the segment's place) is not noticed here either: it is
 * watched, and regions of what was there before stay. */

/* A mapping of private memory that was watched when the log's sequence was that. */
typedef struct regx_uffd_known {
    uintptr_t start, end;
    uint64_t sequence;
} regx_uffd_known_t;

#define REGX_UFFD_KNOWN 16u
#define REGX_UFFD_LOST "not watched: the program closed the notifier's descriptor"

typedef struct regx_uffd_ranges {
    const regx_uffd_t *uffd;
    regx_inval_log_t *log;
    pthread_mutex_t lock; /* a leaf; never taken by the reader, nothing is allocated under it */
    regx_maps_t maps;     /* the rest is under the lock */
    regx_uffd_known_t known[REGX_UFFD_KNOWN];
    uint32_t next_known; /* that is replaced next */
    uint32_t count;      /* mappings watched, at most: those that went are subtracted only when
                             all are counted anew */
    uint32_t uncounted;  /* watched or refused, since they were last counted */
    uint32_t put_off;    /* ranges that were not watched, since the last that was */
    uint32_t max;        /* that may be watched: a tenth of vm.max_map_count */
} regx_uffd_ranges_t;

/* 0, or the errno of what could not be opened: nothing is to be closed then. */
int regx_uffd_ranges_open(regx_uffd_ranges_t *ranges, const regx_uffd_t *uffd,
                          regx_inval_log_t *log);
void regx_uffd_ranges_close(regx_uffd_ranges_t *ranges);

/* Watches the mappings that the range lies in. NULL, and *since as monitor.h's subscribe has it;
 * else why not, for the counters. */
const char *regx_uffd_ranges_add(regx_uffd_ranges_t *ranges, uintptr_t start, uintptr_t end,
                                 uint64_t *since);

/* Unregisters everything, also what other threads move meanwhile; the reader still runs. Where the
 * kernel cannot be asked, what grows in its place or is moved all the time may stay watched until
 * the descriptor is closed. */
void regx_uffd_ranges_clear(regx_uffd_ranges_t *ranges);

#endif

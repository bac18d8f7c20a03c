/* SPDX-License-Identifier: BSD-3-Clause
 *
 * userfaultfd, as far as the notifier uses it: the kernel tells of changes of ranges that are
 * watched. They are registered in write-protect mode and nothing is ever write-protected, so no
 * access to them faults for it. Needs no privilege. Each call is one system call; nothing here
 * allocates.
 */
#ifndef REGX_REGISTRATION_UFFD_H
#define REGX_REGISTRATION_UFFD_H

#include <errno.h>
#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "base/status.h"
#include "registration/raw.h"

typedef struct regx_uffd {
    int fd;                        /* -1: closed */
    int pagemap;                   /* /proc/self/pagemap, to ask what is watched; -1: this kernel
                                      cannot be asked */
    regx_file_id_t id, pagemap_id; /* by which to tell them, should somebody have closed them */
} regx_uffd_t;

/* REGX_DENIED: refused, or too old a kernel; `error` then holds one line that says why. */
regx_status_t regx_uffd_open(regx_uffd_t *uffd, char *error, size_t error_size);
/* A process that holds a copy of the descriptor keeps watched memory watched beyond this, with
 * nobody to read: unregister first. */
void regx_uffd_close(regx_uffd_t *uffd);
/* Whether the descriptor is still what it was: the application may have closed it. */
static inline bool regx_uffd_is_ours(const regx_uffd_t *uffd)
{
    return regx_file_is(uffd->fd, &uffd->id);
}

/* 0, or EBUSY: another userfaultfd has part of it, ENOMEM: too many mappings, or another errno.
 * Holes are left out silently, and watched memory stays watched. */
int regx_uffd_register(const regx_uffd_t *uffd, uintptr_t start, uintptr_t end);
/* Only of what is watched: before Linux 6.17 it takes memory away from any userfaultfd. */
int regx_uffd_unregister(const regx_uffd_t *uffd, uintptr_t start, uintptr_t end);

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

/* Whether all that is mapped of the range is watched, or looks so since another userfaultfd has it
 * in just this way. Only where there is a pagemap: nothing else can be asked without touching what
 * may be another's. */
bool regx_uffd_is_registered(const regx_uffd_t *uffd, uintptr_t start, uintptr_t end);

/* A change that the kernel told of; of a move, `to` is where it went to (as much as was there
 * before), else 0. */
typedef struct regx_uffd_event {
    uintptr_t start, end, to;
} regx_uffd_event_t;

/* Waits until there is something to read, or the descriptor `other` is readable or closed, or so
 * many milliseconds have passed (-1: without end). Returns which; -1: it cannot wait. Calls nothing
 * of libc's. */
enum { REGX_UFFD_EVENT = 0x1, REGX_UFFD_OTHER = 0x2 };
int regx_uffd_wait(const regx_uffd_t *uffd, int other, int milliseconds);

/* Takes what there is to be told; whoever made these changes goes on. Does not wait, and calls
 * nothing of libc's. Returns how many; -1: the descriptor is lost. */
#define REGX_UFFD_EVENTS 16
int regx_uffd_read(const regx_uffd_t *uffd, regx_uffd_event_t events[REGX_UFFD_EVENTS]);

#endif

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0
 *
 * /dev/regx_notify: the kernel tells a process of changes of its own memory, by writing to memory
 * that the process reads. So a look whether anything has changed is a load (one of the proposals
 * in osu-configs/debate.md).
 *
 * An open file belongs to the address space of who opened it, and watches that alone. So whoever
 * may run a program may open it (mode 0666): what it tells, a process can find out about itself
 * anyway, and all that it takes is bounded and charged to the process's memory cgroup.
 *
 * How to use it:
 *   1. open(REGX_NOTIFY_PATH, O_RDONLY | O_CLOEXEC);
 *   2. REGX_NOTIFY_AGREE: both sides find out whether they mean the same;
 *   3. mmap sizeof(struct regx_notify_page) at offset 0, PROT_READ, MAP_SHARED;
 *   4. REGX_NOTIFY_WATCH a range, after `told` was read; then pin or register its pages; then read
 *      `told` again, and whether what it told meanwhile is of the range. If so what was pinned may
 *      be pages that are gone: unpin it;
 *   5. before each use read `told`; as long as it has not moved, nothing that is watched has
 *      changed. If it has, the ring says what;
 *   6. REGX_NOTIFY_UNWATCH, when the pages are not pinned any more.
 *
 * A change is told before it is made. Who can know that it is over (its call has returned) reads
 * that it was told. WATCH returns only when the changes of the range have ended that began before
 * it, so what is pinned behind it is what these left.
 *
 * Told is what may take pages away from addresses: munmap, mremap, what maps over something, brk,
 * shmdt, MADV_DONTNEED and its like, truncation and punched holes of a file (whoever does it),
 * migration. Not told is what leaves the pages where they are: mprotect, fork, the clearing of
 * dirty bits. Some is told though nothing was taken.
 *
 * A child of fork has the file and the page, of its parent: its changes are not told, and WATCH
 * and UNWATCH answer EPERM to it. What is watched ends with the file: with the last descriptor and
 * the last mapping of it.
 */
#ifndef REGX_NOTIFY_H
#define REGX_NOTIFY_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define REGX_NOTIFY_PATH "/dev/regx_notify"
#define REGX_NOTIFY_VERSION 2
#define REGX_NOTIFY_RING 4095 /* with it the page has 64 KiB */

/* What is mapped. */
struct regx_notify_page {
    __u64 told; /* changes, ever. Change number n (the first is 0) is in ring[n % RING]: whole if
                   `told` is above n, and if it is below n + RING when it was read. An entry that
                   the ring has lapped may be of anything. */
    __u64 file; /* the number that AGREE tells */
    struct regx_notify_range {
        __u64 start, end; /* end: exclusive */
    } ring[REGX_NOTIFY_RING];
};

struct regx_notify_agree {
    __u32 version; /* in: the caller's; out: the module's */
    __u32 size;    /* in: bytes that the caller will map; out: bytes that there are */
    __u32 watches; /* out: that this file may have at once */
    __u32 file; /* out: the number of this open file. Two of one process look alike otherwise: so it
                      finds out whether the descriptor is still that of its page */
};

/* EPROTO: they differ, and what the module has is in there. Before it has answered 0 nothing can be
 * watched (EPROTO). */
#define REGX_NOTIFY_AGREE _IOWR('x', 0xd0, struct regx_notify_agree)

/* Whole pages of the process's own addresses, mapped or not (else EINVAL). Of ranges that overlap or
 * are the same each is watched by itself. Waits for changes that are under way there; a signal that
 * kills ends the wait. EAGAIN: of more than 64 changes that are under way at once the module does not
 * know what they change; ENOSPC: it has as many watches as it may; ENOMEM; EPERM: another process
 * opened the file. */
#define REGX_NOTIFY_WATCH _IOW('x', 0xd1, struct regx_notify_range)

/* Ends one watch of exactly that range (else ENOENT). Does not wait. */
#define REGX_NOTIFY_UNWATCH _IOW('x', 0xd2, struct regx_notify_range)

#endif

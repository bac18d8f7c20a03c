/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory whose address stays free after munmap, so that a test can map it anew. Without care the
 * kernel may put there what other threads map: a thread's stack, malloc's or a sanitizer's memory.
 */
#pragma once

#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* New private memory with free room above it; MAP_FAILED with errno. No hook in libc sees it. The
 * kernel fills a gap from its top: what others map goes into the room, which holds two of the 128
 * MiB that malloc takes for a thread. A page below closes the gap: without it a mapping that is
 * larger than the room would reach from there down over this memory. That page stays when the
 * memory is unmapped: not for endless loops. */
static inline void *map_below_room(size_t length)
{
    const size_t page = 4096, room = 256 << 20;
    const size_t whole = (length + page - 1) & ~(page - 1);
    char *closed = (char *)syscall(SYS_mmap, NULL, page + whole + room, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);

    if (closed == MAP_FAILED || mprotect(closed, page, PROT_NONE) != 0 ||
        syscall(SYS_munmap, closed + page + whole, room) != 0) {
        return MAP_FAILED;
    }
    return closed + page;
}

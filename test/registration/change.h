/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The changes of the address space that an application can make, by libc, where hooks may see them,
 * or by the system call itself, where they cannot. Each answers as the call does.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/types.h>

/* What bookworm's headers do not know yet. */
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

typedef enum { BY_LIBC, BY_SYSCALL } by_t;

void *change_mmap(by_t by, void *address, size_t length, int protection, int flags, int file);
int change_munmap(by_t by, void *address, size_t length);
/* `to` is used with MREMAP_FIXED, and as a hint with MREMAP_DONTUNMAP */
void *change_mremap(by_t by, void *address, size_t length, size_t new_length, int flags, void *to);
int change_madvise(by_t by, void *address, size_t length, int advice);
int change_mprotect(by_t by, void *address, size_t length, int protection);
void *change_shmat(by_t by, int segment, void *address, int flags);
int change_shmdt(by_t by, void *address);
/* The break, moved by that many bytes. 0 or -1. */
int change_brk(by_t by, intptr_t bytes);
/* The break, at the start of a page, for the caller to move: malloc has that much to spare, in
 * blocks of less than 128 KiB, before it moves the break itself. NULL: no memory. */
void *change_own_break(size_t spare);
pid_t change_fork(by_t by);
/* From then on it can be neither unmapped nor moved. By the system call itself: bookworm's libc does
 * not have it. */
int change_mseal(void *address, size_t length);

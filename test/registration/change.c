/* SPDX-License-Identifier: BSD-3-Clause */
#include "change.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

static void *address_of(long result)
{
    return (void *)result; /* -1 is MAP_FAILED */
}

void *change_mmap(by_t by, void *address, size_t length, int protection, int flags, int file)
{
    return by == BY_LIBC
               ? mmap(address, length, protection, flags, file, 0)
               : address_of(syscall(SYS_mmap, address, length, protection, flags, file, 0L));
}

int change_munmap(by_t by, void *address, size_t length)
{
    return by == BY_LIBC ? munmap(address, length) : (int)syscall(SYS_munmap, address, length);
}

void *change_mremap(by_t by, void *address, size_t length, size_t new_length, int flags, void *to)
{
    return by == BY_LIBC
               ? mremap(address, length, new_length, flags, to)
               : address_of(syscall(SYS_mremap, address, length, new_length, (long)flags, to));
}

int change_madvise(by_t by, void *address, size_t length, int advice)
{
    return by == BY_LIBC ? madvise(address, length, advice)
                         : (int)syscall(SYS_madvise, address, length, (long)advice);
}

int change_mprotect(by_t by, void *address, size_t length, int protection)
{
    return by == BY_LIBC ? mprotect(address, length, protection)
                         : (int)syscall(SYS_mprotect, address, length, (long)protection);
}

void *change_shmat(by_t by, int segment, void *address, int flags)
{
    return by == BY_LIBC ? shmat(segment, address, flags)
                         : address_of(syscall(SYS_shmat, (long)segment, address, (long)flags));
}

int change_shmdt(by_t by, void *address)
{
    return by == BY_LIBC ? shmdt(address) : (int)syscall(SYS_shmdt, address);
}

int change_brk(by_t by, intptr_t bytes)
{
    if (by == BY_LIBC) {
        return address_of((long)sbrk(bytes)) == MAP_FAILED ? -1 : 0;
    }
    /* The kernel's own idea of the break, which libc need not know. */
    const long now = syscall(SYS_brk, 0L);

    return syscall(SYS_brk, now + bytes) == now + bytes ? 0 : -1;
}

void *change_own_break(size_t spare)
{
    enum { BLOCK = 100 << 10 };
    const size_t count = spare / BLOCK + 1;
    void **blocks = calloc(count, sizeof(blocks[0]));
    static void *above; /* stays */
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    for (size_t i = 0; blocks != NULL && i < count; i++) {
        blocks[i] = malloc(BLOCK);
    }
    for (size_t i = 0; blocks != NULL && i + 1 < count; i++) {
        free(blocks[i]);
    }
    above = blocks == NULL ? NULL : blocks[count - 1];
    free(blocks);
    const uintptr_t end = (uintptr_t)sbrk(0);
    return above == NULL || sbrk((intptr_t)(-end % page)) == (void *)-1 ? NULL : sbrk(0);
}

pid_t change_fork(by_t by)
{
    return by == BY_LIBC ? fork() : (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
}

int change_mseal(void *address, size_t length)
{
    return (int)syscall(SYS_mseal, address, length, 0L);
}

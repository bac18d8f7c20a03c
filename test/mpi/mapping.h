/* SPDX-License-Identifier: BSD-3-Clause */
/* Mappings for the tests of what is registered: at an address of choice, changed by libc or by the
 * bare system calls, which no hook in libc sees. */
#pragma once

#include <stdatomic.h>

#include "../below_room.h"
#include "check.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* New private memory; at that address, unless it is NULL. */
static inline void *mapping_make(void *at, size_t size, bool raw)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at != NULL ? MAP_FIXED_NOREPLACE : 0);
    const int access = PROT_READ | PROT_WRITE;
    void *memory = raw ? (void *)syscall(SYS_mmap, at, size, access, flags, -1, 0L)
                       : mmap(at, size, access, flags, -1, 0);
    check_that(memory != MAP_FAILED && (at == NULL || memory == at), "mmap of %zu bytes at %p: %s",
               size, at, strerror(errno));
    return memory;
}

static inline void mapping_drop(void *memory, size_t size, bool raw)
{
    const long status = raw ? syscall(SYS_munmap, memory, size) : munmap(memory, size);
    check_that(status == 0, "munmap of %zu bytes at %p: %s", size, memory, strerror(errno));
}

/* What all processes have that name this file: zero at first. */
static inline void *mapping_share(const char *path, size_t size)
{
    const int file = open(path, O_RDWR | O_CREAT, 0600);
    check_that(file >= 0 && ftruncate(file, (off_t)size) == 0, "%s: %s", path, strerror(errno));
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    check_that(memory != MAP_FAILED, "%s: %s", path, strerror(errno));
    close(file);
    return memory;
}

/* Two processes go step by step by a flag that they share: the other one is to act, and this one
 * waits until it is its own turn again. */
static inline void mapping_give_turn(atomic_bool *flag, bool others)
{
    *flag = others;
    await(*flag != others);
}

static inline void *mapping_make_below_room(size_t size)
{
    void *memory = map_below_room(size);

    check_that(memory != MAP_FAILED, "mmap of %zu bytes: %s", size, strerror(errno));
    return memory;
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * System calls that nobody can have wrapped. For threads that others wait for: a tracer's read() or
 * poll(), preloaded, may take a lock or allocate. And descriptors that can be told from others'.
 */
#ifndef REGX_REGISTRATION_RAW_H
#define REGX_REGISTRATION_RAW_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Returns what the kernel does: a negated errno when it refuses. Does not touch errno on x86-64. */
static inline long regx_raw(long number, long a, long b, long c, long d, long e)
{
#ifdef __x86_64__
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
#else
    const long result = syscall(number, a, b, c, d, e);

    return result == -1 ? -errno : result;
#endif
}

/* An open file, whatever its number. Programs close descriptors that they do not know (closefrom),
 * and then a number of ours is somebody else's file. */
typedef struct regx_file_id {
    dev_t device;
    ino_t inode;
} regx_file_id_t;

static inline bool regx_file_identify(int fd, regx_file_id_t *id)
{
    struct stat status;

    if (regx_raw(SYS_fstat, fd, (long)&status, 0, 0, 0) != 0) {
        return false;
    }
    *id = (regx_file_id_t){.device = status.st_dev, .inode = status.st_ino};
    return true;
}

static inline bool regx_file_is(int fd, const regx_file_id_t *id)
{
    regx_file_id_t now;

    return fd >= 0 && regx_file_identify(fd, &now) && now.device == id->device &&
           now.inode == id->inode;
}

/* Closes it if it is still that file. */
static inline void regx_file_close(int *fd, const regx_file_id_t *id)
{
    if (regx_file_is(*fd, id)) {
        regx_raw(SYS_close, *fd, 0, 0, 0, 0);
    }
    *fd = -1;
}

#endif

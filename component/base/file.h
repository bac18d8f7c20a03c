/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Descriptors among those of a program that knows nothing of them.
 *
 * A program whose standard streams are closed, as daemons' are, gets 0, 1 or 2 for what is opened
 * next. If that were a file of regx's, what the program prints would be written to it: over another
 * process's messages, say. And programs open a stream again under its number (dup2). So what regx
 * opens gets a high number at once. Libraries that open for regx find the low numbers taken
 * (regx_low_descriptors_take).
 *
 * Programs also close descriptors that they do not know (closefrom); then a number of regx's may
 * become another file. So a kept one is recognized before it is used or closed (regx_file_t).
 */
#ifndef REGX_BASE_FILE_H
#define REGX_BASE_FILE_H

#include <fcntl.h>
#include <sys/stat.h>

#include "base/thread.h"

/* Above those that programs choose themselves; where the limit of open files is lower, the least. */
#define REGX_DESCRIPTOR_HIGH 100
#define REGX_DESCRIPTOR_LOW 3 /* below are the standard streams */

/* Moves a descriptor that was just opened, if it is low; it is closed on exec. Returns the new number;
 * -1 where it was -1, or where there is none left: then it is closed, and errno tells. */
static inline int regx_descriptor_move(int fd)
{
    int moved = fd;

    if (fd >= 0 && fd < REGX_DESCRIPTOR_HIGH) {
        moved = fcntl(fd, F_DUPFD_CLOEXEC, REGX_DESCRIPTOR_HIGH);
        if (moved < 0 && fd >= REGX_DESCRIPTOR_LOW) {
            return fd;
        }
        if (moved < 0) {
            moved = fcntl(fd, F_DUPFD_CLOEXEC, REGX_DESCRIPTOR_LOW);
        }
        const int error = errno;
        close(fd);
        errno = error;
    }
    return moved;
}

/* While a library opens what it keeps: takes the numbers of standard streams that are closed, and gives
 * them back. Returns a bit for each. */
static inline unsigned regx_low_descriptors_take(void)
{
    unsigned taken = 0;
    int fd;

    while ((fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && fd < REGX_DESCRIPTOR_LOW) {
        taken |= 1u << fd;
    }
    if (fd >= 0) {
        close(fd);
    }
    return taken;
}

static inline void regx_low_descriptors_give(unsigned taken)
{
    for (int fd = 0; fd < REGX_DESCRIPTOR_LOW; fd++) {
        if ((taken >> fd & 1) != 0) {
            close(fd);
        }
    }
}

#define REGX_DEVICE_UNTOLD ((dev_t)-1)

/* An open file that is kept, to be recognized. All zeros: none. */
typedef struct regx_file {
    int fd; /* -1: closed */
    dev_t device;
    ino_t inode;
} regx_file_t;

/* Where a filter of system calls (seccomp) does not know one of the two calls it may know the other:
 * libc's own fstat is now the one, now the other. No file has the device 0, so it stands for none. */
static inline regx_file_t regx_file_of(int fd)
{
    struct stat status = {0};
    long answer = regx_raw(SYS_fstat, fd, (long)&status, 0, 0, 0);

    if (answer != 0) {
        answer = regx_raw(SYS_newfstatat, fd, (long)"", (long)&status, AT_EMPTY_PATH, 0);
    }
    return (regx_file_t){.fd = answer == -EBADF ? -1 : fd,
                         .device = status.st_dev != 0 ? status.st_dev : REGX_DEVICE_UNTOLD,
                         .inode = status.st_ino};
}

/* Whether the descriptor is still what it was: the program may have closed it. Where the kernel was not
 * allowed to tell, it is: a userfaultfd that is not closed would have threads wait for ever. */
static inline bool regx_file_is_ours(const regx_file_t *file)
{
    const regx_file_t now = regx_file_of(file->fd);

    return now.fd >= 0 && file->device != 0 &&
           (now.device == REGX_DEVICE_UNTOLD || file->device == REGX_DEVICE_UNTOLD ||
            (now.device == file->device && now.inode == file->inode));
}

/* Closes it if it is still ours. */
static inline void regx_file_close(regx_file_t *file)
{
    if (regx_file_is_ours(file)) {
        regx_raw(SYS_close, file->fd, 0, 0, 0, 0);
    }
    file->fd = -1;
}

#endif

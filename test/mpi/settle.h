/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waits until the notifier's reader has logged every change that this thread has made. A look-up
 * that comes earlier registers for that use alone: it is right, and whether it happens depends
 * on scheduling. So tests that count hits and misses settle first.
 *
 * A change returns once the reader has read of it, and the reader waits in ppoll again only
 * after it has logged it: that is what is looked for. Nothing is allocated or mapped here.
 */
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SETTLE_TEXT = 64, SETTLE_ENTRIES = 4096 };

/* What such a file says, or "". */
static inline void settle_read(const char *task, const char *file, char text[SETTLE_TEXT])
{
    char path[3 * SETTLE_TEXT];
    snprintf(path, sizeof path, "/proc/self/task/%s/%s", task, file);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t length = fd >= 0 ? read(fd, text, SETTLE_TEXT - 1) : 0;
    text[length > 0 ? length : 0] = '\0';
    if (fd >= 0) {
        close(fd);
    }
}

/* The number of a thread of which the name begins so, other than the main one; or "". */
static inline void settle_find(const char *name, char task[SETTLE_TEXT])
{
    struct entry {
        unsigned long inode, offset;
        unsigned short length;
        unsigned char type;
        char name[];
    };
    _Alignas(struct entry) char entries[SETTLE_ENTRIES];
    const int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long length;
    task[0] = '\0';
    while ((length = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0) {
        for (long at = 0; at < length; at += ((struct entry *)(void *)&entries[at])->length) {
            const struct entry *entry = (struct entry *)(void *)&entries[at];
            char comm[SETTLE_TEXT];
            settle_read(entry->name, "comm", comm);
            if (entry->name[0] != '.' && strtol(entry->name, NULL, 10) != getpid() &&
                strncmp(comm, name, strlen(name)) == 0) {
                snprintf(task, SETTLE_TEXT, "%s", entry->name);
            }
        }
    }
    close(folder);
}

/* Until no such thread is in /proc, where one that was joined stays a moment. */
static inline void settle_ended(const char *name)
{
    char task[SETTLE_TEXT];
    do {
        sched_yield();
        settle_find(name, task);
    } while (task[0] != '\0');
}

/* After MPI_Init, from which on there is a reader or none. */
static inline void settle(void)
{
    static _Thread_local char task[SETTLE_TEXT];
    static _Thread_local int known;
    char call[SETTLE_TEXT], *end;
    if (!known) {
        settle_find("regx-notifier", task);
        known = 1;
    }
    while (task[0] != '\0') {
        settle_read(task, "syscall", call);
        if (strtol(call, &end, 10) == SYS_ppoll && end != call) {
            return;
        }
        sched_yield();
    }
}

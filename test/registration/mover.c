/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "mover.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What bookworm's headers do not know yet. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1u << 12)
#endif

/* A mapping of the file's. */
typedef struct part {
    char *start;
    size_t length, offset;
} part_t;

static mover_t *moved;
static char *file; /* all of it, mapped a second time; not told of */
static ino_t inode;
static int uffd;
static char *snapshot;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* whoever gives back */

static void must(bool well, const char *what)
{
    if (!well) {
        perror(what);
        exit(2);
    }
}

static char *map(void *at, size_t length, int flags, int fd)
{
    char *memory = mmap(at, length, PROT_READ | PROT_WRITE, flags, fd, 0);

    must(memory != MAP_FAILED, "mover: mmap");
    return memory;
}

/* In one step for whoever reads there. */
static void put_in_place(char *memory, size_t length, char *at)
{
    must(mremap(memory, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at, "mover: mremap");
}

/* ---- userfaultfd ---- */

/* -1: there is none, or not with all that is needed. As an ordinary user may have it. */
static int open_uffd(void)
{
    struct uffdio_api api = {.api = UFFD_API,
                             .features = UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |
                                         UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_PAGEFAULT_FLAG_WP |
                                         UFFD_FEATURE_WP_HUGETLBFS_SHMEM};
    const int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

    if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool mover_is_possible(void)
{
    const int fd = open_uffd();

    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

static void watch(void)
{
    struct uffdio_register range = {.range = {.start = (uintptr_t)moved->at, .len = moved->length},
                                    .mode = UFFDIO_REGISTER_MODE_WP};

    must(ioctl(uffd, UFFDIO_REGISTER, &range) == 0, "mover: UFFDIO_REGISTER");
}

/* Holds who writes there. While a change is under way the kernel refuses (EAGAIN). */
static void hold_writers(const part_t *part)
{
    struct uffdio_writeprotect range = {
        .range = {.start = (uintptr_t)part->start, .len = part->length},
        .mode = UFFDIO_WRITEPROTECT_MODE_WP};

    must(ioctl(uffd, UFFDIO_WRITEPROTECT, &range) == 0 || errno == EAGAIN,
         "mover: UFFDIO_WRITEPROTECT");
}

/* Lets go who was held. */
static void unwatch(const part_t *part)
{
    struct uffdio_range range = {.start = (uintptr_t)part->start, .len = part->length};

    must(ioctl(uffd, UFFDIO_UNREGISTER, &range) == 0, "mover: UFFDIO_UNREGISTER");
}

/* ---- giving back ---- */

/* The first mapping of the file's beside `file`. false: there is none. */
static bool find_part(part_t *part)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    bool found = false;

    must(maps != NULL, "mover: /proc/self/maps");
    while (!found && fgets(line, sizeof(line), maps) != NULL) {
        unsigned long start, end, offset, number;

        if (sscanf(line, "%lx-%lx %*s %lx %*s %lu", &start, &end, &offset, &number) == 4 &&
            number == inode && (uintptr_t)file != start) {
            *part =
                (part_t){.start = (char *)start, .length = (size_t)(end - start), .offset = offset};
            found = true;
        }
    }
    fclose(maps);
    return found;
}

static char *copy_of(const part_t *part)
{
    const size_t there = moved->length - part->offset; /* it may have been made longer */
    char *copy = map(NULL, part->length, MAP_PRIVATE | MAP_ANONYMOUS, -1);

    memcpy(copy, file + part->offset, there < part->length ? there : part->length);
    return copy;
}

static void give_back(void)
{
    part_t part;

    pthread_mutex_lock(&lock);
    while (find_part(&part)) {
        hold_writers(&part);
        char *copy = copy_of(&part);
        if (moved->meanwhile != NULL) {
            moved->called = true;
            moved->meanwhile(moved);
        }
        unwatch(&part);
        put_in_place(copy, part.length, part.start);
    }
    pthread_mutex_unlock(&lock);
}

/* Whoever makes a change waits until it has been read of. Which change it is is known only then. */
static void *reader(void *argument)
{
    struct uffd_msg message;

    (void)argument;
    while (true) {
        struct pollfd ready = {.fd = uffd, .events = POLLIN};

        poll(&ready, 1, -1);
        give_back();
        (void)!read(uffd, &message, sizeof(message));
    }
    return NULL;
}

/* ---- fork ---- */

static void take_snapshot(void)
{
    const part_t all = {.start = moved->at, .length = moved->length};

    snapshot = copy_of(&all);
}

static void drop_snapshot(void)
{
    munmap(snapshot, moved->length);
}

static void use_snapshot(void)
{
    put_in_place(snapshot, moved->length, moved->at);
}

/* ---- moving ---- */

static void move(void)
{
    const int fd = memfd_create("moved", MFD_CLOEXEC);
    struct stat status;

    must(fd >= 0 && ftruncate(fd, (off_t)moved->length) == 0 && fstat(fd, &status) == 0,
         "mover: memfd_create");
    inode = status.st_ino;
    file = map(NULL, moved->length, MAP_SHARED, fd);
    memcpy(file, moved->at, moved->length);
    char *memory = map(NULL, moved->length, MAP_SHARED, fd);
    if (moved->way != WAY_SHARED) {
        must(madvise(memory, moved->length, MADV_DONTFORK) == 0, "mover: MADV_DONTFORK");
    }
    put_in_place(memory, moved->length, moved->at);
}

void mover_start(mover_t *mover)
{
    pthread_t thread;
    int error = 0;

    moved = mover;
    if (mover->way != WAY_PRIVATE) {
        move();
    }
    if (mover->way == WAY_GIVEN_BACK || mover->way == WAY_SNAPSHOT) {
        uffd = open_uffd();
        must(uffd >= 0, "mover: userfaultfd");
        watch();
        error = pthread_create(&thread, NULL, reader, NULL);
    }
    if (error == 0 && mover->way == WAY_GIVEN_BACK) {
        error = pthread_atfork(give_back, NULL, NULL);
    } else if (error == 0 && mover->way == WAY_SNAPSHOT) {
        error = pthread_atfork(take_snapshot, drop_snapshot, use_snapshot);
    }
    errno = error;
    must(error == 0, "mover: pthread_create or pthread_atfork");
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/pinned/pinned.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u /* Linux 6.3; vm.memfd_noexec = 2 demands it */
#endif

#define SIZE (REGX_PINNED_HEAD + REGX_PINNED_CELLS * REGX_PINNED_PIECE_MAX)

static bool map_head(regx_pinned_cells_t *cells, int fd)
{
    void *head = fd >= 0 ? regx_shm_file_map(fd, REGX_PINNED_HEAD) : NULL;

    if (head == NULL) {
        return false;
    }
    madvise(head, REGX_PINNED_HEAD, MADV_DONTFORK);
    cells->head = head;
    cells->file = regx_file_of(fd);
    return true;
}

/* Its length is sealed: an owner that answers must not meet a page that is not there. */
bool regx_pinned_cells_make(regx_pinned_cells_t *cells)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create("regx_pinned", flags | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL) {
        fd = memfd_create("regx_pinned", flags);
    }
    fd = regx_descriptor_move(fd);
    /* Of one that does not block io_uring reads at once, rather than by a thread of the kernel. */
    if (fd >= 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && regx_shm_file_reserve(fd, SIZE) &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 &&
        regx_shm_file_name(fd, &cells->name) && map_head(cells, fd)) {
        cells->thread = (int32_t)regx_raw(SYS_gettid, 0, 0, 0, 0, 0);
        return true;
    }
    if (fd >= 0) {
        close(fd);
    }
    return false;
}

/* Whether it is the file that was named, as long as it must be. A process that writes beyond its
 * limit of a file's size gets a signal. */
static bool is_it(int fd, const regx_shm_file_t *name)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct rlimit limit;
    struct stat status;

    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &status) == 0 &&
           status.st_dev == name->device && status.st_ino == name->inode &&
           status.st_size >= (off_t)SIZE && getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           limit.rlim_cur >= SIZE;
}

static bool open_of(regx_pinned_cells_t *cells, int32_t thread, const regx_shm_file_t *name)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", thread, name->descriptor);
    const int fd = regx_descriptor_move(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd >= 0 && is_it(fd, name) && map_head(cells, fd)) {
        return true;
    }
    if (fd >= 0) {
        close(fd);
    }
    return false;
}

bool regx_pinned_cells_open(regx_pinned_cells_t *cells, const regx_pinned_ask_t *ask)
{
    cells->name = ask->file;
    return open_of(cells, ask->process, &ask->file) || open_of(cells, ask->thread, &ask->file);
}

void regx_pinned_cells_close(regx_pinned_cells_t *cells)
{
    if (cells->head != NULL) {
        munmap(cells->head, REGX_PINNED_HEAD);
        regx_file_close(&cells->file);
        cells->head = NULL;
    }
}

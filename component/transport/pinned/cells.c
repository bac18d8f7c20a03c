/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/pinned/pinned.h"

#include <fcntl.h>
#include <sys/mman.h>

#define SIZE (REGX_PINNED_HEAD + REGX_PINNED_CELLS * REGX_PINNED_PIECE_MAX)

bool regx_pinned_cells_make(regx_pinned_cells_t *cells)
{
    void *base;
    const int fd = regx_shm_file_make(SIZE, &cells->name, &base);

    if (fd < 0) {
        return false;
    }
    /* Of one that does not block io_uring reads at once, rather than by a thread of the kernel. */
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    cells->head = base;
    cells->file = regx_file_of(fd);
    cells->thread = (int32_t)regx_raw(SYS_gettid, 0, 0, 0, 0, 0);
    return true;
}

bool regx_pinned_cells_open(regx_pinned_cells_t *cells, const regx_pinned_ask_t *ask)
{
    const int32_t owners[] = {ask->process, ask->thread};
    void *base;

    cells->name = ask->file;
    for (unsigned i = 0; i < 2 && cells->head == NULL && regx_shm_file_fits(SIZE); i++) {
        if (regx_shm_file_map_other(owners[i], &ask->file, SIZE, true, &base, &cells->file) ==
            REGX_OK) {
            madvise(base, SIZE, MADV_DONTFORK);
            cells->head = base;
        }
    }
    return cells->head != NULL;
}

void regx_pinned_cells_close(regx_pinned_cells_t *cells)
{
    if (cells->head != NULL) {
        munmap(cells->head, SIZE);
        regx_file_close(&cells->file);
        cells->head = NULL;
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "shadow.h"

enum { SMALLEST = 24 << 10 };

MPI_Win windows[WINDOWS];

void make_buffer(int of, int b)
{
    static const buffer_kind_t often[] = {BUFFER_PRIVATE, BUFFER_PRIVATE, BUFFER_SHARED,
                                          BUFFER_HEAP,    BUFFER_ALLOC,   BUFFER_ALLOC};
    struct model *model = model_of(of, b);

    model->kind = often[below(sizeof often / sizeof *often)];
    model->size = SMALLEST + below(LARGEST - SMALLEST);
    if (of == rank) {
        buffers[b] = buffer_make(model->kind, model->size);
    }
    renew_bytes((struct part){of, b, 0}, model->size);
}

void give_back(int of, int b)
{
    if (of == rank) {
        buffer_take_away(&buffers[b]);
        buffer_forget(&buffers[b]);
    }
}

void open_window(int b)
{
    for (int of = 0; of < ranks; of++) {
        make_buffer(of, b);
    }
    if (onesided) {
        MPI_Win_create(buffers[b].memory, (MPI_Aint)buffers[b].size, 1, MPI_INFO_NULL,
                       MPI_COMM_WORLD, &windows[b]);
        MPI_Win_lock_all(0, windows[b]);
    }
}

void close_window(int b)
{
    if (onesided) {
        MPI_Win_unlock_all(windows[b]);
        MPI_Win_free(&windows[b]);
    }
    for (int of = 0; of < ranks; of++) {
        give_back(of, b);
    }
}

void renew_window(void)
{
    const int b = (int)below(WINDOWS);

    close_window(b);
    open_window(b);
}

void renew_buffer(void)
{
    const int of = any_rank(), b = WINDOWS + (int)below(BUFFERS - WINDOWS);

    give_back(of, b);
    make_buffer(of, b);
}

void renew_content(void)
{
    const int of = any_rank(), b = (int)below(BUFFERS);
    const size_t length = any_length(model_of(of, b)->size);

    renew_bytes(any_part(of, b, length), length);
}

/* One that is PRIVATE and no window; -1: there is none. */
static int private_buffer(int of)
{
    for (int b = WINDOWS; b < BUFFERS; b++) {
        if (model_of(of, b)->kind == BUFFER_PRIVATE) {
            return b;
        }
    }
    return -1;
}

void replace_pages(void)
{
    const int of = any_rank(), b = private_buffer(of);
    const buffer_change_t change = (buffer_change_t)below(BUFFER_CHANGES);

    if (b < 0) {
        return;
    }
    const size_t pages = model_of(of, b)->size / BUFFER_PAGE;
    const struct part part = {of, b, below(pages) * BUFFER_PAGE};
    const size_t length = (1 + below(pages - part.offset / BUFFER_PAGE)) * BUFFER_PAGE;

    memset(bytes_of(part), 0, length);
    if (of == rank) {
        buffer_replace(&buffers[b], change, part.offset, length);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers of every kind of memory that programs give to MPI: made, replaced in part, given back. */
#pragma once

#include "mapping.h"

enum { BUFFER_PAGE = 4096 };

typedef enum buffer_kind {
    BUFFER_PRIVATE, /* mmap: its pages can be replaced */
    BUFFER_SHARED,  /* a file in memory, mapped twice */
    BUFFER_HEAP,    /* malloc */
    BUFFER_ALLOC,   /* MPI_Alloc_mem */
    BUFFER_KINDS
} buffer_kind_t;

typedef enum buffer_change {
    BUFFER_UNMAP,
    BUFFER_OVER,
    BUFFER_MOVE,
    BUFFER_DONTNEED,
    BUFFER_CHANGES
} buffer_change_t;

struct buffer {
    buffer_kind_t kind;
    size_t size;
    unsigned char *memory;
    unsigned char *seen;   /* SHARED: the second mapping */
    int file;              /* SHARED */
    unsigned char *closed; /* PRIVATE: the page below it (mapping_make_below_room) */
};

static inline unsigned char *buffer_map(int file, size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    check_that(memory != MAP_FAILED, "mmap of a file in memory: %s", strerror(errno));
    return memory;
}

/* Its bytes are any. */
static inline struct buffer buffer_make(buffer_kind_t kind, size_t size)
{
    struct buffer buffer = {.kind = kind, .size = size, .file = -1};

    switch (kind) {
    case BUFFER_PRIVATE:
        buffer.memory = mapping_make_below_room(size);
        buffer.closed = buffer.memory - BUFFER_PAGE;
        break;
    case BUFFER_SHARED:
        buffer.file = memfd_create("buffer", 0);
        check_that(buffer.file >= 0 && ftruncate(buffer.file, (off_t)size) == 0,
                   "memfd of %zu bytes: %s", size, strerror(errno));
        buffer.memory = buffer_map(buffer.file, size);
        buffer.seen = buffer_map(buffer.file, size);
        break;
    case BUFFER_HEAP:
        buffer.memory = malloc(size);
        check_that(buffer.memory != NULL, "no memory for %zu bytes", size);
        break;
    case BUFFER_ALLOC:
        MPI_Alloc_mem((MPI_Aint)size, MPI_INFO_NULL, &buffer.memory);
        break;
    case BUFFER_KINDS:
        break;
    }
    return buffer;
}

/* Takes the memory away that MPI was given; a SHARED one's second mapping is still there. */
static inline void buffer_take_away(struct buffer *buffer)
{
    switch (buffer->kind) {
    case BUFFER_PRIVATE:
    case BUFFER_SHARED:
        mapping_drop(buffer->memory, buffer->size, false);
        break;
    case BUFFER_HEAP:
        free(buffer->memory);
        break;
    case BUFFER_ALLOC:
        MPI_Free_mem(buffer->memory);
        break;
    case BUFFER_KINDS:
        break;
    }
    buffer->memory = NULL;
}

/* The rest of one that was taken away. */
static inline void buffer_forget(struct buffer *buffer)
{
    if (buffer->kind == BUFFER_SHARED) {
        mapping_drop(buffer->seen, buffer->size, false);
        close(buffer->file);
    } else if (buffer->kind == BUFFER_PRIVATE) {
        mapping_drop(buffer->closed, BUFFER_PAGE, false);
    }
}

/* Other pages, of zeros, are in the place of some of a PRIVATE one. */
static inline void buffer_replace(const struct buffer *buffer, buffer_change_t change,
                                  size_t offset, size_t length)
{
    unsigned char *at = buffer->memory + offset;
    void *other;

    switch (change) {
    case BUFFER_UNMAP:
        mapping_drop(at, length, false);
        mapping_make(at, length, false);
        break;
    case BUFFER_OVER:
        check_that(mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                        -1, 0) == at,
                   "mmap over a buffer: %s", strerror(errno));
        break;
    case BUFFER_MOVE:
        other = mapping_make(NULL, length, false);
        check_that(mremap(other, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at,
                   "mremap onto a buffer: %s", strerror(errno));
        break;
    case BUFFER_DONTNEED:
        check_that(madvise(at, length, MADV_DONTNEED) == 0, "madvise: %s", strerror(errno));
        break;
    case BUFFER_CHANGES:
        break;
    }
}

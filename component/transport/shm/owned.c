/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/shm/owned.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"
#include "transport/counters.h"

/* Bytes of a segment, a multiple: small blocks share one. */
#define SEGMENT_UNIT ((size_t)2 << 20)
/* A segment has at least this part of the bytes of all segments before it: so the table suffices
 * for gigabytes. */
#define SEGMENT_PART 4u

#define USED_UP "MPI_Alloc_mem: alloc_mem_size is used up"

/* A part of a segment, free or not. The blocks of a segment follow each other in the list, in the
 * order of their addresses, and cover it. */
struct regx_owned_block {
    char *base;
    size_t length;
    uint32_t segment; /* its place in the table */
    bool used;
    regx_owned_block_t *next;
};

void regx_owned_init(regx_owned_t *owned, regx_owned_shared_t *shared,
                     const regx_transport_config_t *config)
{
    regx_lock_init(&owned->lock, config->threads);
    owned->config = config;
    owned->shared = shared;
    owned->count = 0;
    owned->bytes = 0;
    owned->blocks = NULL;
}

/* ---- segments ---- */

/* A file of that size, which cannot be changed, with all its pages. -1: there is none. */
static int open_file(size_t length, regx_shm_file_t *name)
{
    const int file = memfd_create("regx", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (file >= 0 && (!regx_shm_file_reserve(file, length) ||
                      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
                      !regx_shm_file_name(file, name))) {
        close(file);
        return -1;
    }
    return file;
}

/* Maps a file where no child has it. NULL: refused. */
static char *map_file(int file, size_t length)
{
    void *base = regx_shm_file_map(file, length);

    if (base != NULL && madvise(base, length, MADV_DONTFORK) != 0) {
        munmap(base, length);
        return NULL;
    }
    return base;
}

static char *open_segment(size_t length, regx_owned_name_t *name)
{
    const int file = open_file(length, &name->file);
    char *base = file >= 0 ? map_file(file, length) : NULL;

    if (base == NULL) {
        if (file >= 0) {
            close(file);
        }
        return NULL;
    }
    name->base = (uintptr_t)base;
    name->length = length;
    return base;
}

/* A new segment is one free block of `whole` bytes at least, at the end of the list.
 * REGX_NO_MEMORY: it cannot be made, and `reason` is set. */
static regx_status_t add_segment_locked(regx_owned_t *owned, size_t whole, const char **reason)
{
    const size_t left = owned->config->owned_size - owned->bytes;
    const size_t wanted = regx_align_up(regx_max(whole, owned->bytes / SEGMENT_PART), SEGMENT_UNIT);
    const size_t length = regx_min(wanted, left & ~(regx_page_size() - 1));
    regx_owned_block_t **last = &owned->blocks;
    regx_owned_name_t name;

    if (length < whole || owned->count == REGX_OWNED_SEGMENTS) {
        *reason = USED_UP;
        return REGX_NO_MEMORY;
    }
    regx_owned_block_t *block = malloc(sizeof(*block));
    char *base = block != NULL ? open_segment(length, &name) : NULL;
    if (base == NULL) {
        free(block);
        *reason = "MPI_Alloc_mem: no shared memory";
        return REGX_NO_MEMORY;
    }
    *block = (regx_owned_block_t){.base = base, .length = length, .segment = owned->count};
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = block;
    owned->bytes += length;
    regx_count_transport(owned->config->counters, REGX_COUNTER_owned_bytes, length);
    owned->names[owned->count] = name;
    owned->shared->names[owned->count++] = name;
    atomic_store_explicit(&owned->shared->count, owned->count, memory_order_release);
    return REGX_OK;
}

/* ---- blocks ---- */

/* The first free block of that length at least; what it has more becomes a block of its own, if
 * there is memory for that. NULL: there is none. */
static void *take_block_locked(regx_owned_t *owned, size_t length)
{
    regx_owned_block_t *block = owned->blocks;

    while (block != NULL && (block->used || block->length < length)) {
        block = block->next;
    }
    if (block == NULL) {
        return NULL;
    }
    regx_owned_block_t *rest = block->length > length ? malloc(sizeof(*rest)) : NULL;
    if (rest != NULL) {
        *rest = *block;
        rest->base += length;
        rest->length -= length;
        block->length = length;
        block->next = rest;
    }
    block->used = true;
    return block->base;
}

static void *allocate_locked(regx_owned_t *owned, size_t length, const char **reason)
{
    void *memory = take_block_locked(owned, length);

    if (memory == NULL && add_segment_locked(owned, length, reason) == REGX_OK) {
        memory = take_block_locked(owned, length);
    }
    return memory;
}

void *regx_owned_allocate(regx_owned_t *owned, size_t length)
{
    const char *reason = USED_UP;
    void *memory = NULL;

    if (length < REGX_OWNED_MIN || owned->config->owned_size == 0) {
        return NULL;
    }
    if (length <= owned->config->owned_size) {
        regx_lock(&owned->lock);
        memory = allocate_locked(owned, regx_align_up(length, regx_page_size()), &reason);
        regx_unlock(&owned->lock);
    }
    if (memory == NULL) {
        regx_transport_fall_back(owned->config, REGX_TRACE_CHOICE, reason);
    }
    return memory;
}

/* Makes one of a free block and those that follow it, if they are free and of its segment. */
static void join_next(regx_owned_block_t *block)
{
    regx_owned_block_t *next = block->next;

    while (!block->used && next != NULL && !next->used && next->segment == block->segment) {
        block->length += next->length;
        block->next = next->next;
        free(next);
        next = block->next;
    }
}

void regx_owned_free(regx_owned_t *owned, const void *memory)
{
    regx_owned_block_t *before = NULL;

    regx_lock(&owned->lock);
    regx_owned_block_t *block = owned->blocks;
    while (block != NULL && (block->base != memory || !block->used)) {
        before = block;
        block = block->next;
    }
    if (block != NULL) {
        block->used = false;
        join_next(block);
        if (before != NULL) {
            join_next(before);
        }
    }
    regx_unlock(&owned->lock);
}

/* ---- the end ---- */

void regx_owned_fini(regx_owned_t *owned)
{
    while (owned->blocks != NULL) {
        regx_owned_block_t *block = owned->blocks;

        owned->blocks = block->next;
        if (!block->used) {
            munmap(block->base, block->length);
        }
        free(block);
    }
    for (uint32_t i = 0; i < owned->count; i++) {
        regx_shm_file_close(&owned->names[i].file);
    }
    regx_lock_fini(&owned->lock);
}

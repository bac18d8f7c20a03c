/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory for the user's buffers that this library allocates (MPI_Alloc_mem), so that processes of
 * the node can map it; and a peer's, mapped here. A copy to or from it by another process is then done
 * in user space (vm.c), where the kernel would copy otherwise.
 *
 * It is allocated in segments, each a memfd, whose size is sealed. Its pages are taken when they are first
 * touched, by whichever process: so they lie on the node of who touches them. Only where the kernel grants
 * no more memory than there is (vm.overcommit_memory 2) all are taken at once, or who touched one later
 * could be ended by SIGBUS. A table in the main segment names the segments: a peer opens them by /proc,
 * which the kernel allows if it allows process_vm_readv.
 *
 * A segment is kept until close, and its addresses serve later allocations; the pages of what is freed go
 * back to the system. So the table only grows, and what a peer has mapped stays valid. Blocks that the
 * user has not freed when the transport closes stay mapped, as memory from malloc would.
 *
 * A peer's pages that this process has touched count as its own, too, in its resident set, by which batch
 * systems enforce limits. So after some MiB of copies all are unmapped, and come again by page faults.
 *
 * A child of fork does not have this memory (MADV_DONTFORK). If it had, it would share it: each
 * would see what the other writes. It dies instead if it touches a buffer there.
 *
 * That the program maps something else in place of it is not noticed: peers go on with the file.
 * The program may not do that, as with memory from malloc.
 *
 * What a peer's table says is not trusted: a file is mapped only if it is as long as is said, cannot
 * be cut short, and is the one that the peer means.
 */
#include "transport/shm/shm_internal.h"

#include <stdlib.h>

#include "base/file.h"

/* Bytes of a segment, a multiple: small blocks share one. */
#define SEGMENT_UNIT ((size_t)2 << 20)
/* A segment has at least this part of the bytes of all segments before it: so the table suffices
 * for gigabytes. */
#define SEGMENT_PART 4u
/* Bytes that this process copies by mappings of its neighbours before what it has touched is unmapped. */
#define TOUCHED_MAX ((size_t)16 << 20)

#define USED_UP "MPI_Alloc_mem: alloc_mem_size is used up"

/* A part of a segment, free or not. The blocks of a segment follow each other in the list, in the
 * order of their addresses, and cover it. */
struct regx_alloc_mem_block {
    char *base;
    size_t length;
    uint32_t segment; /* its place in the table */
    bool used;
    regx_alloc_mem_block_t *next;
};

/* ---- segments ---- */

/* Whether the kernel grants no more memory than there is. */
static bool is_strict(void)
{
    char line[16] = "";

    regx_read_line("/proc/sys/vm/overcommit_memory", line, sizeof(line));
    return line[0] == '2';
}

/* A new segment is one free block of `whole` bytes at least. `last`: the end of the list of blocks.
 * NULL; or why it cannot be made. */
static const char *add_segment_locked(regx_shm_t *shm, size_t whole, regx_alloc_mem_block_t **last)
{
    regx_alloc_mem_t *alloc_mem = &shm->alloc_mem;
    regx_alloc_mem_shared_t *shared = &regx_shm_main(shm)->alloc_mem; /* only written */
    const size_t left = shm->config.owned_size - alloc_mem->bytes;
    const size_t wanted =
        regx_align_up(regx_max(whole, alloc_mem->bytes / SEGMENT_PART), SEGMENT_UNIT);
    const size_t length = regx_min(wanted, left & ~(regx_page_size() - 1));
    regx_alloc_mem_name_t name = {.length = length};
    void *base;

    if (length < whole || alloc_mem->count == REGX_ALLOC_MEM_SEGMENTS) {
        return USED_UP;
    }
    regx_alloc_mem_block_t *block = malloc(sizeof(*block));
    alloc_mem->strict = alloc_mem->strict || is_strict();
    if (block == NULL || regx_shm_file_make(length, alloc_mem->strict, &name.file, &base) < 0) {
        free(block);
        return "MPI_Alloc_mem: no shared memory";
    }
    name.base = (uintptr_t)base;
    *block = (regx_alloc_mem_block_t){.base = base, .length = length, .segment = alloc_mem->count};
    *last = block;
    alloc_mem->bytes += length;
    alloc_mem->names[alloc_mem->count] = name;
    shared->names[alloc_mem->count++] = name;
    atomic_store_explicit(&shared->count, alloc_mem->count, memory_order_release);
    return NULL;
}

/* ---- blocks ---- */

void *regx_shm_allocate(regx_transport_t *transport, size_t length)
{
    regx_shm_t *shm = regx_shm_of(transport);
    const size_t most = shm->config.owned_size, whole = regx_align_up(length, regx_page_size());
    const char *reason = USED_UP;
    void *memory = NULL;

    if (length < REGX_ALLOC_MEM_MIN || most == 0) {
        return NULL;
    }
    regx_lock(&shm->alloc_mem.lock);
    /* The first free block of that length at least, or a new segment's. */
    regx_alloc_mem_block_t **at = &shm->alloc_mem.blocks;
    while (*at != NULL && ((*at)->used || (*at)->length < whole)) {
        at = &(*at)->next;
    }
    if (length <= most && (*at != NULL || (reason = add_segment_locked(shm, whole, at)) == NULL)) {
        regx_alloc_mem_block_t *block = *at;
        /* What it has more becomes a block of its own, if there is memory for that. */
        regx_alloc_mem_block_t *rest = block->length > whole ? malloc(sizeof(*rest)) : NULL;

        if (rest != NULL) {
            *rest = *block;
            rest->base += whole;
            rest->length -= whole;
            block->length = whole;
            block->next = rest;
        }
        block->used = true;
        memory = block->base;
    }
    regx_unlock(&shm->alloc_mem.lock);
    if (memory == NULL) {
        regx_transport_fall_back(&shm->config, REGX_TRACE_CHOICE, reason);
    }
    return memory;
}

/* Makes one of a free block and those that follow it, if they are free and of its segment. */
static void join_next(regx_alloc_mem_block_t *block)
{
    regx_alloc_mem_block_t *next = block->next;

    while (!block->used && next != NULL && !next->used && next->segment == block->segment) {
        block->length += next->length;
        block->next = next->next;
        free(next);
        next = block->next;
    }
}

void regx_shm_release(regx_transport_t *transport, void *memory)
{
    regx_alloc_mem_t *alloc_mem = &regx_shm_of(transport)->alloc_mem;
    regx_alloc_mem_block_t *before = NULL;

    regx_lock(&alloc_mem->lock);
    regx_alloc_mem_block_t *block = alloc_mem->blocks;
    while (block != NULL && (block->base != memory || !block->used)) {
        before = block;
        block = block->next;
    }
    if (block != NULL) {
        block->used = false;
        if (!alloc_mem->strict) {
            madvise(block->base, block->length, MADV_REMOVE);
        }
        join_next(block);
        if (before != NULL) {
            join_next(before);
        }
    }
    regx_unlock(&alloc_mem->lock);
}

/* A name that is counted never changes. */
const regx_alloc_mem_name_t *regx_alloc_mem_find(const regx_shm_t *shm, const void *base,
                                                 size_t length)
{
    const uint32_t count =
        atomic_load_explicit(&regx_shm_main(shm)->alloc_mem.count, memory_order_acquire);
    const uint64_t start = (uintptr_t)base;

    for (uint32_t i = 0; i < regx_min(count, REGX_ALLOC_MEM_SEGMENTS); i++) {
        const regx_alloc_mem_name_t *name = &shm->alloc_mem.names[i];

        if (start >= name->base && regx_within(start - name->base, length, name->length)) {
            return name;
        }
    }
    return NULL;
}

/* ---- a peer's ---- */

/* Each segment is mapped once, at the first copy that could use it; that the peer has ended does not
 * harm. Of progress, or of who drops the peer. */
struct regx_alloc_mem_view {
    uint32_t count; /* segments looked at */
    size_t touched; /* bytes copied since they were last unmapped from the page table */
    struct mapped {
        uint64_t base; /* in the peer */
        uint64_t length;
        char *here; /* NULL: it could not be mapped, and the kernel copies */
    } segments[REGX_ALLOC_MEM_SEGMENTS];
};

char *regx_alloc_mem_map(const regx_shm_t *shm, const regx_shm_piece_t *piece)
{
    if (piece->alloc_mem == NULL) {
        return NULL;
    }
    const regx_alloc_mem_shared_t *peers = &piece->neighbour->main->alloc_mem;
    const uint32_t published = atomic_load_explicit(&peers->count, memory_order_acquire);
    if (published == 0) {
        return NULL;
    }
    if (*piece->alloc_mem == NULL) {
        *piece->alloc_mem = calloc(1, sizeof(**piece->alloc_mem));
    }
    regx_alloc_mem_view_t *view = *piece->alloc_mem;
    while (view != NULL && view->count < regx_min(published, REGX_ALLOC_MEM_SEGMENTS)) {
        const regx_alloc_mem_name_t name = peers->names[view->count]; /* the peer may change it */
        void *here = NULL;

        if (name.length != 0 && name.base <= UINT64_MAX - name.length &&
            name.file.descriptor >= 0 &&
            regx_shm_file_map_other(piece->neighbour->vm.pid, &name.file, name.length, true, &here,
                                    NULL) == REGX_OK) {
            madvise(here, name.length, MADV_DONTFORK);
            madvise(here, name.length, MADV_DONTDUMP); /* a core is of the process's own memory */
        } else {
            regx_transport_fall_back(&shm->config, REGX_TRACE_PATH,
                                     "shm: a peer's MPI_Alloc_mem cannot be mapped");
        }
        view->segments[view->count++] =
            (struct mapped){.base = name.base, .length = name.length, .here = here};
    }
    for (uint32_t i = 0; view != NULL && i < view->count; i++) {
        const struct mapped *segment = &view->segments[i];

        if (segment->here != NULL && piece->remote >= segment->base &&
            regx_within(piece->remote - segment->base, piece->length, segment->length)) {
            return segment->here + (piece->remote - segment->base);
        }
    }
    return NULL;
}

void regx_alloc_mem_note(const regx_shm_t *shm, regx_alloc_mem_view_t *view, size_t length)
{
    view->touched += length;
    if (view->touched < TOUCHED_MAX / regx_max(shm->config.neighbours, 1u)) {
        return;
    }
    for (uint32_t i = 0; i < view->count; i++) {
        if (view->segments[i].here != NULL) {
            madvise(view->segments[i].here, view->segments[i].length, MADV_DONTNEED);
        }
    }
    view->touched = 0;
}

void regx_alloc_mem_drop(regx_alloc_mem_view_t **view)
{
    for (uint32_t i = 0; *view != NULL && i < (*view)->count; i++) {
        const struct mapped *segment = &(*view)->segments[i];

        if (segment->here != NULL) {
            munmap(segment->here, segment->length);
        }
    }
    free(*view);
    *view = NULL;
}

/* ---- the end ---- */

void regx_alloc_mem_fini(regx_alloc_mem_t *alloc_mem)
{
    while (alloc_mem->blocks != NULL) {
        regx_alloc_mem_block_t *block = alloc_mem->blocks;

        alloc_mem->blocks = block->next;
        if (!block->used) {
            munmap(block->base, block->length);
        }
        free(block);
    }
    for (uint32_t i = 0; i < alloc_mem->count; i++) {
        regx_shm_file_close(&alloc_mem->names[i].file);
    }
    regx_lock_fini(&alloc_mem->lock);
}

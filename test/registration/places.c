/* SPDX-License-Identifier: BSD-3-Clause */
#include "places.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <unistd.h>

enum { HEAP_BLOCK = 120 << 10 }; /* below what malloc maps by itself */
enum { HUGE = 2 << 20 };

bool must(bool so, const char *what)
{
    if (!so) {
        fprintf(stderr, "table: %s: %s\n", what, strerror(errno));
        abort();
    }
    return true;
}

bool allocate(place_t *place)
{
    place->target = malloc(place->length);
    return must(place->target != NULL, "malloc");
}

void *allocate_above(uintptr_t address, size_t length)
{
    enum { MOST = 1000 };
    void *found = NULL;

    for (unsigned i = 0; i < MOST && (uintptr_t)found <= address; i++) {
        found = malloc(length);
    }
    must((uintptr_t)found > address, "malloc");
    return found;
}

/* Target, and another block, where the heap ends. Who else needs memory, finds some below. */
static void allocate_the_end(place_t *place)
{
    void *spare = allocate_above((uintptr_t)sbrk(0) - (size_t)3 * HEAP_BLOCK, HEAP_BLOCK);

    place->barrier = allocate_above((uintptr_t)spare, 2000);
    place->target = allocate_above((uintptr_t)place->barrier, place->length);
    place->plug = allocate_above((uintptr_t)place->target, HEAP_BLOCK);
    free(spare);
}

static uint8_t *map(uint8_t *at, size_t length, int flags, int file)
{
    uint8_t *memory = mmap(at, length, READ_WRITE, flags | MAP_FIXED_NOREPLACE, file, 0);

    if (memory == MAP_FAILED && (flags & MAP_HUGETLB) != 0) {
        return NULL;
    }
    must(memory == at, "mmap");
    return memory;
}

/* The place is at the start of what can be a huge page, and now is, or is not. */
static bool open_huge(place_t *place, int advice)
{
    place->left = map(BASE, HUGE, NEW, -1);
    if (madvise(BASE, HUGE, advice) != 0) {
        munmap(BASE, HUGE);
        return false;
    }
    return true;
}

static void open_break(place_t *place)
{
    place->left = change_own_break((size_t)4 << 20);
    must(place->left != NULL && sbrk((intptr_t)(2 * place->length)) != (void *)-1, "sbrk");
}

static void open_heap(place_t *place)
{
    allocate(place);
    place->plug = malloc(64);
    must(place->plug != NULL, "malloc");
}

/* Large enough that malloc maps it by itself, every time. */
static void open_large(place_t *place)
{
    place->length *= 16;
    allocate(place);
}

bool place_open(place_t *place, const row_t *row, by_t by)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t buffers = row->last ? 2 : 3;

    *place = (place_t){.by = by, .length = 16 * page, .file = -1, .segment = -1};
    if (row->shape == HUGETLB || row->shape == LARGE) {
        place->length = HUGE;
    }
    switch (row->shape) {
    case PRIVATE:
    case LARGE:
        place->left = map(BASE, buffers * place->length, NEW, -1);
        break;
    case HUGE_PAGE:
    case SMALL_PAGES:
        if (!open_huge(place, row->shape == HUGE_PAGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE)) {
            return false;
        }
        break;
    case HUGETLB:
        place->left = map(BASE, buffers * place->length, NEW | MAP_HUGETLB, -1);
        if (place->left == NULL) {
            return false;
        }
        break;
    case SHARED:
        place->left = map(BASE, buffers * place->length, MAP_SHARED | MAP_ANONYMOUS, -1);
        break;
    case MEMORY_FILE:
    case PRIVATE_FILE:
        place->file = memfd_create("table", MFD_CLOEXEC);
        must(place->file >= 0 && ftruncate(place->file, (off_t)(buffers * place->length)) == 0,
             "a memory file");
        place->left = map(BASE, buffers * place->length,
                          row->shape == PRIVATE_FILE ? MAP_PRIVATE : MAP_SHARED, place->file);
        break;
    case SYSV:
        place->left = map(BASE, place->length, NEW, -1);
        map(BASE + 2 * place->length, place->length, NEW, -1);
        place->segment = shmget(IPC_PRIVATE, place->length, IPC_CREAT | 0600);
        must(place->segment >= 0 &&
                 shmat(place->segment, BASE + place->length, 0) == BASE + place->length,
             "shmat");
        break;
    case BREAK:
        open_break(place);
        break;
    case HEAP:
        open_heap(place);
        break;
    case HEAP_END:
        allocate_the_end(place);
        break;
    case HEAP_LARGE:
        open_large(place);
        break;
    }
    if (row->shape < HEAP) {
        place->target = place->left + place->length;
        place->right = row->last ? NULL : place->target + place->length;
    }
    if (row->other_before) {
        place->other = map(OTHER, place->length, NEW, -1);
    }
    place->changed = place->target + (row->part == SECOND_HALF ? place->length / 2 : 0);
    place->changed_length = row->part == WHOLE ? place->length : place->length / 2;
    return true;
}

void place_close(place_t *place, const row_t *row)
{
    if (row->shape >= HEAP) {
        free(place->barrier);
        free(place->target);
        free(place->plug);
        return;
    }
    if (place->segment >= 0) {
        shmctl(place->segment, IPC_RMID, NULL);
    }
    if (place->file >= 0) {
        close(place->file);
    }
    if (row->shape == BREAK) {
        must(brk(place->left) == 0, "brk");
    } else {
        munmap(BASE, (size_t)16 << 20);
    }
    munmap(OTHER, (size_t)16 << 20);
}

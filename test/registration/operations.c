/* SPDX-License-Identifier: BSD-3-Clause */
#include "operations.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#define ELSEWHERE (arena_at(0) + ((size_t)1 << 30)) /* where memory is moved for a moment */
#define HUGE_BASE (arena_at(0) + ((size_t)2 << 30)) /* of hugetlb memory, if there is any */
#define HUGE ((size_t)2 << 20)

enum { BLOCKS = 32, BREAK_PAGES = 32, SEGMENTS = 8 };

const kind_row_t kinds[KINDS] = {
    [MAP_OVER] = {"mmap FIXED", 120},
    [MAP_SHARED_OVER] = {"mmap FIXED, shared", 20},
    [UNMAP] = {"munmap", 300},
    [SHRINK] = {"mremap to less", 60},
    [GROW] = {"mremap to more", 60},
    [MOVE] = {"mremap", 80},
    [MOVE_AND_STAY] = {"mremap DONTUNMAP", 60},
    [MOVE_AWAY_AND_BACK] = {"mremap away and back", 30},
    [DONTNEED] = {"MADV_DONTNEED", 120},
    [DONTNEED_LOCKED] = {"MADV_DONTNEED_LOCKED", 20},
    [FREE] = {"MADV_FREE", 30},
    [REMOVE] = {"MADV_REMOVE", 40},
    [ADVICE] = {"other advice", 40},
    [PROTECT] = {"mprotect", 20},
    [BREAK] = {"brk", 30},
    [ATTACH] = {"shmat", 10},
    [ATTACH_OVER] = {"shmat REMAP", 10},
    [DETACH] = {"shmdt", 10},
    [HEAP] = {"free, malloc", 60},
    [HUGE_PAGES] = {"hugetlb", 10},
    [FORK] = {"fork", 1},
};

bool hooks_only, remap_seen;

static uint8_t *blocks[BLOCKS];
static size_t block_sizes[BLOCKS];
static bool huge_mapped;
static uint8_t *break_start;
static unsigned break_pages;
static struct {
    uint8_t *at;
    unsigned page;
} segments[SEGMENTS];

void operations_open(void)
{
    break_start = change_own_break((size_t)16 << 20);
}

uint8_t *operations_block(size_t *length)
{
    const unsigned which = below(BLOCKS);

    *length = block_sizes[which];
    return blocks[which];
}

uint8_t *operations_break(size_t *length)
{
    *length = (size_t)break_pages * PAGE;
    return break_pages == 0 ? NULL : break_start;
}

/* ---- operations: each answers whether it was made ---- */

/* Of shared memory more than there is cannot be touched. */
static bool resize(by_t by, extent_t at, bool more)
{
    const unsigned less = (at.pages + 1) / 2;

    if (!arena_all_are(at.page, more ? less : at.pages, PRIVATE) ||
        (more && !arena_all_are(at.page + less, at.pages - less, NOTHING))) {
        return false;
    }
    const void *moved =
        change_mremap(by, arena_at(at.page), (size_t)(more ? less : at.pages) * PAGE,
                      (size_t)(more ? at.pages : less) * PAGE, 0, NULL);
    arena_look(at.page, at.pages, PRIVATE);
    return moved != MAP_FAILED;
}

static bool move(by_t by, extent_t from, extent_t to, int flags)
{
    const size_t length = (size_t)from.pages * PAGE;
    state_t moving[LARGEST];

    to.pages = from.pages;
    if (to.page > PAGES - to.pages) {
        to.page = PAGES - to.pages;
    }
    /* Shared memory that also stays would be at two addresses. */
    if (!(flags == 0 ? arena_all_mapped(from.page, from.pages)
                     : arena_all_are(from.page, from.pages, PRIVATE)) ||
        (from.page < to.page + to.pages && to.page < from.page + from.pages)) {
        return false;
    }
    if (hooks_only && !change_munmap(by, arena_at(to.page), length)) {
        arena_set(to.page, to.pages, NOTHING);
    }
    memcpy(moving, &arena_states[from.page], from.pages * sizeof(moving[0]));
    const void *moved = change_mremap(by, arena_at(from.page), length, length,
                                      MREMAP_MAYMOVE | MREMAP_FIXED | flags, arena_at(to.page));
    arena_look(from.page, from.pages, PRIVATE);
    arena_look(to.page, to.pages, SHARED); /* a part may have been moved */
    if (moved == MAP_FAILED) {
        return false;
    }
    memcpy(&arena_states[to.page], moving, from.pages * sizeof(moving[0]));
    return true;
}

static bool away_and_back(by_t by, extent_t at)
{
    const size_t length = (size_t)at.pages * PAGE;

    if (!arena_all_mapped(at.page, at.pages)) {
        return false;
    }
    void *moved = change_mremap(by, arena_at(at.page), length, length,
                                MREMAP_MAYMOVE | MREMAP_FIXED, ELSEWHERE);
    if (moved != MAP_FAILED) {
        moved = change_mremap(by, ELSEWHERE, length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
                              arena_at(at.page));
    }
    arena_look(at.page, at.pages, PRIVATE);
    munmap(ELSEWHERE, length);
    return moved != MAP_FAILED;
}

static bool advise(by_t by, extent_t at, int advice)
{
    return arena_all_mapped(at.page, at.pages) &&
           change_madvise(by, arena_at(at.page), (size_t)at.pages * PAGE, advice) == 0;
}

static bool advise_something(by_t by, extent_t at)
{
    static const int advices[] = {
        MADV_COLD,     MADV_PAGEOUT,    MADV_POPULATE_WRITE, MADV_MERGEABLE, MADV_UNMERGEABLE,
        MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTFORK,       MADV_DOFORK,    MADV_COLLAPSE};

    return advise(by, at, advices[below(sizeof(advices) / sizeof(advices[0]))]);
}

static bool protect(by_t by, extent_t at)
{
    const size_t length = (size_t)at.pages * PAGE;

    return arena_all_mapped(at.page, at.pages) &&
           change_mprotect(by, arena_at(at.page), length, PROT_READ) == 0 &&
           change_mprotect(by, arena_at(at.page), length, PROT_READ | PROT_WRITE) == 0;
}

/* libc's own idea of the break must stay right, for malloc: by libc only. */
static bool move_break(void)
{
    const unsigned pages = below(BREAK_PAGES + 1);

    if (sbrk(0) != break_start + (size_t)break_pages * PAGE) { /* malloc took more */
        break_pages = 0;
        return false;
    }
    if (brk(break_start + (size_t)pages * PAGE) != 0) {
        give_up("brk");
    }
    break_pages = pages;
    return true;
}

static bool attach(by_t by, extent_t at, bool over)
{
    const unsigned which = below(SEGMENTS);

    if (segments[which].at != NULL) {
        return false;
    }
    if (!over && !arena_all_are(at.page, at.pages, NOTHING)) {
        return false;
    }
    const int segment = shmget(IPC_PRIVATE, (size_t)at.pages * PAGE, IPC_CREAT | 0600);
    if (segment < 0) {
        give_up("shmget");
    }
    void *memory = change_shmat(by, segment, arena_at(at.page), over ? SHM_REMAP : 0);
    shmctl(segment, IPC_RMID, NULL);
    if (memory == (void *)-1) {
        return false;
    }
    arena_set(at.page, at.pages, SHARED);
    segments[which].at = memory;
    segments[which].page = at.page;
    return true;
}

static bool detach(by_t by)
{
    const unsigned which = below(SEGMENTS);

    if (segments[which].at == NULL) {
        return false;
    }
    const unsigned page = segments[which].page;
    const bool done = change_shmdt(by, segments[which].at) == 0; /* else it was mapped over */
    /* … or another was moved to where the kernel takes it for this one. */
    arena_look(page, PAGES - page < LARGEST ? PAGES - page : LARGEST, SHARED);
    segments[which].at = NULL;
    return done;
}

static bool reallocate(void)
{
    static const size_t sizes[] = {3000, 20000, 100000, 300000};
    const unsigned which = below(BLOCKS);

    free(blocks[which]);
    block_sizes[which] = sizes[below(4)];
    blocks[which] = malloc(block_sizes[which]);
    return blocks[which] != NULL;
}

/* One huge page comes, changes, or goes. */
static bool change_huge_page(by_t by)
{
    const bool was = huge_mapped;

    if (was && below(2) == 0) {
        return change_madvise(by, HUGE_BASE, HUGE, MADV_DONTNEED) == 0;
    }
    if (was && below(2) == 0) {
        huge_mapped = change_munmap(by, HUGE_BASE, HUGE) != 0;
        return !huge_mapped;
    }
    const void *page = change_mmap(
        by, HUGE_BASE, HUGE, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (was ? MAP_FIXED : MAP_FIXED_NOREPLACE), -1);
    unsigned char there;
    huge_mapped = mincore(HUGE_BASE, PAGE, &there) == 0;
    return page == HUGE_BASE;
}

static bool make_child(by_t by, extent_t at)
{
    int status;
    const pid_t pid = change_fork(by);

    if (pid < 0) {
        if (errno == ENOMEM && huge_mapped) { /* none left for the child */
            return false;
        }
        give_up("fork");
    }
    if (pid == 0) {
        unsigned char there;

        if (mincore(arena_at(at.page), PAGE, &there) == 0) {
            memset(arena_at(at.page), 0xcc, PAGE); /* its own copy, if it is private */
        }
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || status != 0) {
        give_up("a child");
    }
    return true;
}

bool operations_make(kind_t kind, by_t by, extent_t at, extent_t to)
{
    switch (kind) {
    case MAP_OVER:
        arena_map(by, at.page, at.pages, MAP_PRIVATE | MAP_FIXED);
        return true;
    case MAP_SHARED_OVER:
        arena_map(by, at.page, at.pages, MAP_SHARED | MAP_FIXED);
        return true;
    case UNMAP:
        if (change_munmap(by, arena_at(at.page), (size_t)at.pages * PAGE) != 0) {
            give_up("munmap");
        }
        arena_set(at.page, at.pages, NOTHING);
        return true;
    case SHRINK:
        return resize(by, at, false);
    case GROW:
        return resize(by, at, true);
    case MOVE:
        return move(by, at, to, 0);
    case MOVE_AND_STAY:
        return move(by, at, to, MREMAP_DONTUNMAP);
    case MOVE_AWAY_AND_BACK:
        return away_and_back(by, at);
    case DONTNEED:
        return advise(by, at, MADV_DONTNEED);
    case DONTNEED_LOCKED:
        return !hooks_only && advise(by, at, MADV_DONTNEED_LOCKED);
    case FREE:
        return advise(by, at, MADV_FREE);
    case REMOVE:
        return !hooks_only && advise(by, at, MADV_REMOVE);
    case ADVICE:
        return advise_something(by, at);
    case PROTECT:
        return protect(by, at);
    case BREAK:
        return move_break();
    case ATTACH:
        return attach(by, at, false);
    case ATTACH_OVER:
        return remap_seen && attach(BY_LIBC, at, true);
    case DETACH: /* of a segment in several mappings, Open MPI's hooks report the first alone */
        return !hooks_only && detach(by);
    case HEAP:
        return reallocate();
    case HUGE_PAGES:
        return change_huge_page(by);
    case FORK:
        return make_child(by, at);
    case KINDS:
        break;
    }
    return false;
}

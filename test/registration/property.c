/* SPDX-License-Identifier: BSD-3-Clause
 *
 * property BACKEND SEED OPERATIONS [FILE]: random changes of the address space, a transfer after
 * each, and no byte may be wrong.
 *
 * Operation number i is made of SEED and i alone, and makes sense in whatever state it meets: any
 * subset can be run. FILE names one, by its numbers: so shrink.py finds a short reproduction. The
 * last line on stdout says what was done. Ends with 1 where a byte was wrong, and then says where;
 * with 77 where the backend or the oracle cannot be had.
 */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "change.h"
#include "rig.h"

#define BASE ((uint8_t *)((uintptr_t)1 << 45))
#define ELSEWHERE (BASE + ((size_t)1 << 30)) /* where memory is moved for a moment */
#define HUGE_BASE (BASE + ((size_t)2 << 30)) /* of hugetlb memory, if there is any */
#define HUGE ((size_t)2 << 20)

enum {
    PAGE = 4096,
    PAGES = 4096,   /* of the arena */
    MOSTLY = 8,     /* pages of a change, or of a transfer, at the most; */
    LARGEST = 1024, /* one in 500 has so many */
    FAVOURITES = 64,
    BLOCKS = 32,
    BREAK_PAGES = 32,
    SEGMENTS = 8,
    UNAVAILABLE = 77
};

typedef enum {
    MAP_OVER,
    MAP_SHARED_OVER,
    UNMAP,
    SHRINK,
    GROW,
    MOVE,
    MOVE_AND_STAY,
    MOVE_AWAY_AND_BACK,
    DONTNEED,
    DONTNEED_LOCKED,
    FREE,
    REMOVE,
    ADVICE, /* that changes nothing */
    PROTECT,
    BREAK,
    ATTACH,
    ATTACH_OVER,
    DETACH,
    HEAP,
    HUGE_PAGES,
    FORK,
    KINDS
} kind_t;

static const struct {
    const char *name;
    unsigned weight;
} kinds[KINDS] = {
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

typedef enum { NOTHING, PRIVATE, SHARED } state_t; /* what is mapped at a page of the arena */

/* The state of things. */
static rig_t rig;
static bool hooks_only; /* makes what hooks can see, and nothing else */
static bool remap_seen; /* shmat(SHM_REMAP) */
static state_t states[PAGES];
static uint8_t *blocks[BLOCKS];
static size_t block_sizes[BLOCKS];
static bool huge_mapped;
static uint8_t *break_start;
static unsigned break_pages;
static struct {
    uint8_t *at;
    unsigned page;
} segments[SEGMENTS];

static bool tell;              /* what is done */
static uint64_t seed, current; /* the operation */
static uint64_t random_state;
static uint64_t made[KINDS], transfers, bytes, refused;

_Noreturn static void give_up(const char *what)
{
    fprintf(stderr, "property: seed %llu, operation %llu: %s: %s\n", (unsigned long long)seed,
            (unsigned long long)current, what, strerror(errno));
    exit(2);
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static unsigned below(unsigned limit)
{
    return (unsigned)(next_random(&random_state) % limit);
}

/* ---- the arena ---- */

static uint8_t *address(unsigned page)
{
    return BASE + (size_t)page * PAGE;
}

static void set_state(unsigned page, unsigned pages, state_t state)
{
    for (unsigned i = 0; i < pages; i++) {
        states[page + i] = state;
    }
}

static bool all_mapped(unsigned page, unsigned pages)
{
    for (unsigned i = 0; i < pages; i++) {
        if (states[page + i] == NOTHING) {
            return false;
        }
    }
    return true;
}

static bool all_are(unsigned page, unsigned pages, state_t state)
{
    for (unsigned i = 0; i < pages; i++) {
        if (states[page + i] != state) {
            return false;
        }
    }
    return true;
}

/* After something that may have failed half way: what is mapped, is of that kind. */
static void look(unsigned page, unsigned pages, state_t state)
{
    unsigned char there;

    for (unsigned i = 0; i < pages; i++) {
        if (mincore(address(page + i), PAGE, &there) != 0) {
            states[page + i] = NOTHING;
        } else if (states[page + i] == NOTHING) {
            states[page + i] = state;
        }
    }
}

/* Where something happens: often near where transfers often are. */
typedef struct extent {
    unsigned page, pages;
    unsigned before, after; /* bytes of the first and last page that a transfer leaves out */
} extent_t;

static extent_t any_extent(uint64_t *state)
{
    const unsigned most = next_random(state) % 500 == 0 ? LARGEST : MOSTLY;
    extent_t extent = {.pages = 1 + (unsigned)(next_random(state) % most)};

    extent.page = (unsigned)(next_random(state) % (PAGES - extent.pages));
    if (next_random(state) % 2 == 0) {
        extent.before = (unsigned)(next_random(state) % (PAGE / 2));
        extent.after = (unsigned)(next_random(state) % (PAGE / 2));
    }
    return extent;
}

static extent_t favourite(unsigned which)
{
    uint64_t state = seed * 1000 + which;

    return any_extent(&state);
}

static extent_t place_of_change(void)
{
    extent_t extent = any_extent(&random_state);

    if (below(2) == 0) {
        const unsigned near = favourite(below(FAVOURITES)).page + below(MOSTLY);

        extent.page = near < 4 ? 0 : near - below(4);
        if (extent.page > PAGES - extent.pages) {
            extent.page = PAGES - extent.pages;
        }
    }
    return extent;
}

static bool map_new(by_t by, unsigned page, unsigned pages, int flags)
{
    void *memory = change_mmap(by, address(page), (size_t)pages * PAGE, PROT_READ | PROT_WRITE,
                               MAP_ANONYMOUS | flags, -1);

    if (memory != address(page)) {
        give_up("mmap");
    }
    set_state(page, pages, (flags & MAP_SHARED) != 0 ? SHARED : PRIVATE);
    return true;
}

/* Whatever is not mapped there, is then. */
static void fill_holes(by_t by, unsigned page, unsigned pages)
{
    for (unsigned i = 0; i < pages; i++) {
        unsigned hole = 0;

        while (i + hole < pages && states[page + i + hole] == NOTHING) {
            hole++;
        }
        if (hole > 0) {
            map_new(by, page + i, hole, MAP_PRIVATE | MAP_FIXED_NOREPLACE);
            i += hole;
        }
    }
}

/* ---- transfers ---- */

static bool transfer(uint8_t *base, size_t length)
{
    const direction_t direction = below(2) == 0 ? SEND : RECEIVE;

    for (size_t at = below(PAGE / 2); direction == SEND && at + 8 <= length; at += PAGE) {
        memcpy(base + at, &transfers, sizeof(transfers));
    }
    const transfer_t done = rig_transfer(&rig, direction, base, length, next_random(&random_state));
    if (done.status != REGX_OK) {
        printf("refused: operation %llu: %zu bytes at %p: status %d\n", (unsigned long long)current,
               length, (void *)base, (int)done.status);
        refused++;
        return true;
    }
    transfers++;
    bytes += length;
    if (done.right != length) {
        printf(
            "stale: seed %llu, operation %llu: %s of %zu bytes at %p by a %s: byte %zu is wrong\n",
            (unsigned long long)seed, (unsigned long long)current,
            direction == SEND ? "send" : "receive", length, (void *)base,
            done.hit ? "kept region" : "new registration", done.right);
        return false;
    }
    return true;
}

static bool transfer_extent(by_t by, extent_t extent)
{
    if (!all_mapped(extent.page, extent.pages)) {
        if (below(4) == 0) {
            return true;
        }
        fill_holes(by, extent.page, extent.pages);
    }
    return transfer(address(extent.page) + extent.before,
                    (size_t)extent.pages * PAGE - extent.before - extent.after);
}

static bool some_transfer(by_t by)
{
    const unsigned where = below(16);

    if (where == 0) {
        const unsigned block = below(BLOCKS);

        return blocks[block] == NULL || transfer(blocks[block], block_sizes[block]);
    }
    if (where == 1) {
        return break_pages == 0 || transfer(break_start, (size_t)break_pages * PAGE);
    }
    return transfer_extent(by,
                           where < 14 ? favourite(below(FAVOURITES)) : any_extent(&random_state));
}

/* ---- operations: each answers whether it was made ---- */

/* Of shared memory more than there is cannot be touched. */
static bool resize(by_t by, extent_t at, bool more)
{
    const unsigned less = (at.pages + 1) / 2;

    if (!all_are(at.page, more ? less : at.pages, PRIVATE) ||
        (more && !all_are(at.page + less, at.pages - less, NOTHING))) {
        return false;
    }
    const void *moved = change_mremap(by, address(at.page), (size_t)(more ? less : at.pages) * PAGE,
                                      (size_t)(more ? at.pages : less) * PAGE, 0, NULL);
    look(at.page, at.pages, PRIVATE);
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
    if (!(flags == 0 ? all_mapped(from.page, from.pages)
                     : all_are(from.page, from.pages, PRIVATE)) ||
        (from.page < to.page + to.pages && to.page < from.page + from.pages)) {
        return false;
    }
    if (hooks_only && !change_munmap(by, address(to.page), length)) {
        set_state(to.page, to.pages, NOTHING);
    }
    memcpy(moving, &states[from.page], from.pages * sizeof(moving[0]));
    const void *moved = change_mremap(by, address(from.page), length, length,
                                      MREMAP_MAYMOVE | MREMAP_FIXED | flags, address(to.page));
    look(from.page, from.pages, PRIVATE);
    look(to.page, to.pages, SHARED); /* a part may have been moved */
    if (moved == MAP_FAILED) {
        return false;
    }
    memcpy(&states[to.page], moving, from.pages * sizeof(moving[0]));
    return true;
}

static bool away_and_back(by_t by, extent_t at)
{
    const size_t length = (size_t)at.pages * PAGE;

    if (!all_mapped(at.page, at.pages)) {
        return false;
    }
    void *moved = change_mremap(by, address(at.page), length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
                                ELSEWHERE);
    if (moved != MAP_FAILED) {
        moved = change_mremap(by, ELSEWHERE, length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
                              address(at.page));
    }
    look(at.page, at.pages, PRIVATE);
    munmap(ELSEWHERE, length);
    return moved != MAP_FAILED;
}

static bool advise(by_t by, extent_t at, int advice)
{
    return all_mapped(at.page, at.pages) &&
           change_madvise(by, address(at.page), (size_t)at.pages * PAGE, advice) == 0;
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

    return all_mapped(at.page, at.pages) &&
           change_mprotect(by, address(at.page), length, PROT_READ) == 0 &&
           change_mprotect(by, address(at.page), length, PROT_READ | PROT_WRITE) == 0;
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
    if (!over && !all_are(at.page, at.pages, NOTHING)) {
        return false;
    }
    const int segment = shmget(IPC_PRIVATE, (size_t)at.pages * PAGE, IPC_CREAT | 0600);
    if (segment < 0) {
        give_up("shmget");
    }
    void *memory = change_shmat(by, segment, address(at.page), over ? SHM_REMAP : 0);
    shmctl(segment, IPC_RMID, NULL);
    if (memory == (void *)-1) {
        return false;
    }
    set_state(at.page, at.pages, SHARED);
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
    look(page, PAGES - page < LARGEST ? PAGES - page : LARGEST, SHARED);
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

        if (mincore(address(at.page), PAGE, &there) == 0) {
            memset(address(at.page), 0xcc, PAGE); /* its own copy, if it is private */
        }
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || status != 0) {
        give_up("a child");
    }
    return true;
}

static bool make(kind_t kind, by_t by, extent_t at, extent_t to)
{
    switch (kind) {
    case MAP_OVER:
        return map_new(by, at.page, at.pages, MAP_PRIVATE | MAP_FIXED);
    case MAP_SHARED_OVER:
        return map_new(by, at.page, at.pages, MAP_SHARED | MAP_FIXED);
    case UNMAP:
        if (change_munmap(by, address(at.page), (size_t)at.pages * PAGE) != 0) {
            give_up("munmap");
        }
        set_state(at.page, at.pages, NOTHING);
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
        return remap_seen && attach(by, at, true);
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

/* Operation number `number`, and a transfer or two. */
static bool operate(uint64_t number)
{
    unsigned total = 0;
    kind_t kind = 0;

    current = number;
    random_state = seed * UINT64_C(0x2545f4914f6cdd1d) + number;
    for (kind_t i = 0; i < KINDS; i++) {
        total += kinds[i].weight;
    }
    unsigned draw = below(total);
    while (draw >= kinds[kind].weight) {
        draw -= kinds[kind++].weight;
    }
    const by_t by = hooks_only || below(2) == 0 ? BY_LIBC : BY_SYSCALL;
    const extent_t at = place_of_change();
    const extent_t to = place_of_change();
    if (tell) {
        printf("operation %llu: %s by %s: pages %u to %u; %u\n", (unsigned long long)number,
               kinds[kind].name, by == BY_LIBC ? "libc" : "system call", at.page,
               at.page + at.pages - 1, to.page);
    }
    if (!make(kind, by, at, to)) { /* this makes sense everywhere */
        kind = below(2) == 0 ? MAP_OVER : UNMAP;
        make(kind, by, at, to);
    }
    made[kind]++;
    if (below(2) == 0 && kind < BREAK && !transfer_extent(by, at)) {
        return false;
    }
    if (below(16) == 0) {
        regx_registry_progress(&rig.registry);
    }
    return some_transfer(by);
}

/* ---- the run ---- */

static void open_arena(void)
{
    break_start = change_own_break((size_t)16 << 20);
    map_new(BY_LIBC, 0, PAGES, MAP_PRIVATE | MAP_FIXED_NOREPLACE);
}

static bool run(uint64_t operations)
{
    for (uint64_t i = 0; i < operations; i++) {
        if (!operate(i)) {
            return false;
        }
    }
    return true;
}

static bool run_subset(const char *name)
{
    FILE *file = fopen(name, "r");
    unsigned long long number;
    bool right = true;

    if (file == NULL) {
        give_up(name);
    }
    tell = true;
    while (right && fscanf(file, "%llu", &number) == 1) {
        right = operate(number);
    }
    fclose(file);
    return right;
}

static void report(void)
{
    uint64_t changes = 0;

    for (kind_t i = 0; i < KINDS; i++) {
        printf("%s: %llu\n", kinds[i].name, (unsigned long long)made[i]);
        changes += made[i];
    }
    for (size_t i = 0; i < REGX_REASONS_MAX; i++) {
        const regx_tally_t *tally = &rig.counters.fallbacks[i];

        if (atomic_load(&tally->count) > 0) {
            printf("%s: %llu\n", tally->reason, (unsigned long long)atomic_load(&tally->count));
        }
    }
    printf("seed %llu changes %llu transfers %llu hits %llu uncached %llu refused %llu "
           "invalidations %llu bytes %llu evictions %llu\n",
           (unsigned long long)seed, (unsigned long long)changes, (unsigned long long)transfers,
           (unsigned long long)rig_count(&rig, &rig.counters.hits),
           (unsigned long long)rig_count(&rig, &rig.counters.uncached), (unsigned long long)refused,
           (unsigned long long)rig_count(&rig, &rig.counters.invalidations),
           (unsigned long long)bytes, (unsigned long long)rig_count(&rig, &rig.counters.evictions));
}

int main(int argc, char **argv)
{
    char why[256];

    if (argc < 4 || argc > 5) {
        fprintf(stderr, "usage: property BACKEND SEED OPERATIONS [FILE]\n");
        return 2;
    }
    seed = strtoull(argv[2], NULL, 10);
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* and stays there */
    rig_begin();
    if (!rig_open(&rig, &(rig_config_t){.backend = argv[1]}, why, sizeof(why))) {
        printf("%s\n", why);
        rig_end();
        return UNAVAILABLE;
    }
    hooks_only = strcmp(argv[1], "hooks") == 0;
    remap_seen = hooks_only || strcmp(argv[1], "notifier/scan") == 0;
    open_arena();
    const bool right = argc == 5 ? run_subset(argv[4]) : run(strtoull(argv[3], NULL, 10));
    report();
    if (!right) {
        return 1;
    }
    rig_close(&rig);
    rig_end();
    return 0;
}

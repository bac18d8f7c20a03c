/* SPDX-License-Identifier: BSD-3-Clause */
#include "places.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "other_ways.h"

/* ---- changes ---- */

static bool unmap(place_t *place)
{
    return must(change_munmap(place->by, place->changed, place->changed_length) == 0, "munmap");
}

static bool take_new(place_t *place)
{
    void *memory = change_mmap(place->by, place->changed, place->changed_length, READ_WRITE,
                               NEW | MAP_FIXED_NOREPLACE, -1);

    must(memory == place->changed || errno == EEXIST, "mmap");
    return memory == place->changed;
}

static bool shrink(place_t *place)
{
    return must(change_mremap(place->by, place->target, place->length, place->length / 2, 0,
                              NULL) == place->target,
                "mremap to less");
}

static bool shrink_and_grow(place_t *place)
{
    shrink(place);
    return must(change_mremap(place->by, place->target, place->length / 2, place->length, 0,
                              NULL) == place->target,
                "mremap to more");
}

static bool grow(place_t *place)
{
    place->other = place->target + place->length;
    return must(change_mremap(place->by, place->target, place->length, 2 * place->length, 0,
                              NULL) == place->target,
                "mremap to more");
}

static bool move_to(place_t *place, uint8_t *from, size_t new_length, int flags, uint8_t *to)
{
    void *moved = change_mremap(place->by, from, place->length, new_length,
                                MREMAP_MAYMOVE | MREMAP_FIXED | flags, to);

    if (moved == MAP_FAILED && errno == EINVAL && flags != 0) {
        return false;
    }
    return must(moved == to, "mremap");
}

static bool move(place_t *place)
{
    place->other = OTHER;
    return move_to(place, place->target, place->length, 0, OTHER);
}

static bool move_and_grow(place_t *place)
{
    place->other = OTHER;
    return move_to(place, place->target, 2 * place->length, 0, OTHER);
}

static bool move_and_stay(place_t *place)
{
    place->other = OTHER;
    return move_to(place, place->target, place->length, MREMAP_DONTUNMAP, OTHER);
}

/* From two mappings at `from` to `to`. Before Linux 6.17 one call moves one mapping. */
static bool moves_several(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *from = mmap(OTHER, 2 * page, READ_WRITE, NEW | MAP_FIXED_NOREPLACE, -1, 0);

    must(from == OTHER && madvise(from, page, MADV_DONTFORK) == 0, "two mappings");
    const bool so = change_mremap(BY_SYSCALL, from, 2 * page, 2 * page,
                                  MREMAP_MAYMOVE | MREMAP_FIXED, from + 2 * page) != MAP_FAILED;
    must(so || errno == EFAULT, "mremap of two mappings");
    munmap(OTHER, 4 * page);
    return so;
}

/* While userfaultfd watches them the kernel refuses; then they are made one before. */
static bool move_several(place_t *place)
{
    uint8_t *const second = place->target + place->length / 2;

    if (!moves_several()) {
        return false;
    }
    place->other = OTHER;
    must(madvise(second, place->length / 2, MADV_DONTFORK) == 0, "DONTFORK");
    if (change_mremap(place->by, place->target, place->length, place->length,
                      MREMAP_MAYMOVE | MREMAP_FIXED, OTHER) == OTHER) {
        return true;
    }
    must(errno == EFAULT, "mremap of watched mappings is refused");
    must(madvise(second, place->length / 2, MADV_DOFORK) == 0, "DOFORK");
    return move_to(place, place->target, place->length, 0, OTHER);
}

/* What the new content of target begins with, where the old one's first byte is not zero. */
static bool is_empty(place_t *place)
{
    return *(volatile uint8_t *)place->target == 0;
}

static bool new_onto(place_t *place)
{
    must(mmap(OTHER, place->length, READ_WRITE, NEW | MAP_FIXED_NOREPLACE, -1, 0) == OTHER, "mmap");
    return move_to(place, OTHER, place->length, 0, place->target);
}

static bool used_onto(place_t *place)
{
    memset(place->other, 0, place->length);
    return move_to(place, place->other, place->length, 0, place->target);
}

static bool used_onto_and_stay(place_t *place)
{
    memset(place->other, 0, place->length);
    return move_to(place, place->other, place->length, MREMAP_DONTUNMAP, place->target);
}

/* The place that target's new content came from is free. */
static bool take_source(place_t *place)
{
    if (!is_empty(place)) {
        return false;
    }
    void *memory = mmap(place->other, place->length, READ_WRITE, NEW | MAP_FIXED_NOREPLACE, -1, 0);
    return must(memory == place->other, "mmap where it came from");
}

/* The kernel unmaps what is at the destination, and only then finds that there may not be more
 * memory. */
static struct rlimit limit; /* of address space, as it was */

static bool fail_onto(place_t *place)
{
    must(mmap(OTHER, place->length, READ_WRITE, NEW | MAP_FIXED_NOREPLACE, -1, 0) == OTHER, "mmap");
    must(getrlimit(RLIMIT_AS, &limit) == 0, "getrlimit");
    must(setrlimit(RLIMIT_AS, &(struct rlimit){.rlim_cur = 1, .rlim_max = limit.rlim_max}) == 0,
         "setrlimit");
    void *moved = change_mremap(place->by, OTHER, place->length, place->length,
                                MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, place->target);
    must(moved == MAP_FAILED && errno == ENOMEM, "mremap fails");
    return must(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
}

/* Once it is unmapped the call has met the limit. */
static bool take_within_limit(place_t *place)
{
    unsigned char there;

    if (mincore(place->target, 1, &there) == 0) {
        return false;
    }
    must(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
    return take_new(place);
}

/* There is no huge page left: the kernel finds that once it has unmapped what was there. */
static bool fail_over(place_t *place)
{
    while (mmap(NULL, place->length, READ_WRITE, NEW | MAP_HUGETLB, -1, 0) != MAP_FAILED) {
    }
    return must(change_mmap(place->by, place->target, place->length, READ_WRITE,
                            NEW | MAP_FIXED | MAP_HUGETLB, -1) == MAP_FAILED,
                "mmap of a huge page fails");
}

static bool map_over(place_t *place)
{
    return must(change_mmap(place->by, place->target, place->length, READ_WRITE, NEW | MAP_FIXED,
                            -1) == place->target,
                "mmap over it");
}

static bool break_shrink(place_t *place)
{
    return must(change_brk(place->by, -(intptr_t)place->length) == 0, "brk");
}

static bool break_grow(place_t *place)
{
    unsigned char there;

    if (mincore(place->target, 1, &there) == 0) { /* not yet shrunk */
        return false;
    }
    /* Another thread may be in sbrk: the system call itself. */
    return must(change_brk(BY_SYSCALL, (intptr_t)place->length) == 0, "brk");
}

static bool detach(place_t *place)
{
    return must(change_shmdt(place->by, place->target) == 0, "shmdt");
}

static bool attach_over(place_t *place)
{
    place->segment = shmget(IPC_PRIVATE, place->length, IPC_CREAT | 0600);
    must(place->segment >= 0, "shmget");
    void *memory = change_shmat(place->by, place->segment, place->target, SHM_REMAP);
    return must(memory == place->target, "shmat over it");
}

static bool advise(place_t *place, int advice)
{
    const int result = change_madvise(place->by, place->changed, place->changed_length, advice);

    must(result == 0 || errno == EINVAL, "madvise");
    return result == 0;
}

static bool dontneed_locked(place_t *place)
{
    must(mlock(place->target, place->length) == 0, "mlock");
    return advise(place, MADV_DONTNEED_LOCKED);
}

static bool guard(place_t *place)
{
    return advise(place, MADV_GUARD_INSTALL) && advise(place, MADV_GUARD_REMOVE);
}

static bool ring_dontneed(place_t *place)
{
    return other_ring_madvise(place->changed, place->changed_length, MADV_DONTNEED);
}

static bool process_dontneed(place_t *place)
{
    return other_process_madvise(place->changed, place->changed_length, MADV_DONTNEED);
}

static bool unmap_by_other_libc(place_t *place)
{
    return other_libc_munmap(place->changed, place->changed_length);
}

/* The kernel leaves pages that are pinned, and memory that is watched, as they are, and says so. */
static bool collapse(place_t *place)
{
    const size_t huge = (size_t)2 << 20;

    if (madvise(BASE, huge, MADV_HUGEPAGE) != 0) {
        return false;
    }
    return change_madvise(place->by, BASE, huge, MADV_COLLAPSE) == 0 || errno != EINVAL;
}

static bool seal(place_t *place)
{
    if (change_mseal(place->target, place->length) != 0) {
        return false;
    }
    return must(change_munmap(place->by, place->target, place->length) != 0 && errno == EPERM,
                "munmap of what is sealed");
}

static bool mergeable(place_t *place)
{
    return advise(place, MADV_MERGEABLE) && advise(place, MADV_UNMERGEABLE);
}

static bool protect(place_t *place)
{
    return must(change_mprotect(place->by, place->target, place->length, PROT_READ) == 0 &&
                    change_mprotect(place->by, place->target, place->length, READ_WRITE) == 0,
                "mprotect");
}

static bool punch(place_t *place)
{
    return must(fallocate(place->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          place->target - place->left, (off_t)place->length) == 0,
                "fallocate");
}

static bool truncate_file(place_t *place)
{
    return must(ftruncate(place->file, place->target - place->left) == 0 &&
                    ftruncate(place->file, place->target - place->left + (off_t)place->length) == 0,
                "ftruncate");
}

/* In a process of its own. */
static bool child(place_t *place, void (*what)(place_t *))
{
    int status;
    const pid_t pid = change_fork(place->by);

    must(pid >= 0, "fork");
    if (pid == 0) {
        what(place);
        _exit(0);
    }
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    return must(status == 0, "the child ends well");
}

static void truncates(place_t *place)
{
    truncate_file(place);
}

static bool truncate_elsewhere(place_t *place)
{
    return child(place, truncates);
}

static void writes(place_t *place)
{
    memset(place->target, 0xcc, place->length);
}

static bool fork_child(place_t *place)
{
    return child(place, writes);
}

static bool vfork_child(place_t *place)
{
    int status;
    const pid_t pid = vfork(); /* NOLINT: it is what is tested */

    (void)place;
    if (pid == 0) {
        _exit(0);
    }
    return must(waitpid(pid, &status, 0) == pid && status == 0, "vfork");
}

static void nothing(place_t *place)
{
    (void)place;
}

static bool fork_without_it(place_t *place)
{
    return advise(place, MADV_DONTFORK) && child(place, nothing) && advise(place, MADV_DOFORK);
}

static bool run_command(place_t *place)
{
    (void)place;
    return must(system("true") == 0, "system");
}

/* ---- the heap ---- */

static bool free_block(place_t *place)
{
    free(place->target);
    return true;
}

static bool free_and_trim(place_t *place)
{
    free(place->target);
    malloc_trim(0);
    return true;
}

/* What is free at the end of the heap goes back to the kernel, from 128 KiB on. */
static bool free_the_end(place_t *place)
{
    free(place->plug);
    place->plug = NULL;
    free(place->target);
    return true;
}

static bool allocate_again(place_t *place)
{
    const uintptr_t target = (uintptr_t)place->target;

    place->target = allocate_above(target - 1, place->length);
    return must((uintptr_t)place->target == target, "malloc at the same place");
}

/* ---- the rows ---- */

bool row_change(const row_t *row, place_t *place)
{
    return row->change != NULL ? row->change(place) : advise(place, row->advice);
}

const row_t rows[] = {
    {"munmap", PRIVATE, .stale = true, .change = unmap, .take = take_new},
    {"munmap of a part", PRIVATE, .stale = true, .part = FIRST_HALF, .change = unmap,
     .take = take_new},
    {"munmap within a huge page", HUGE_PAGE, .stale = true, .change = unmap, .take = take_new},
    {"munmap of hugetlb", HUGETLB, .stale = true, .change = unmap, .take = take_new},
    {"mremap to less", PRIVATE, .stale = true, .last = true, .part = SECOND_HALF, .change = shrink,
     .take = take_new},
    {"mremap to less and more", PRIVATE, .stale = true, .last = true, .part = SECOND_HALF,
     .change = shrink_and_grow},
    {"mremap to more, in place", PRIVATE, .last = true, .other_after = true, .change = grow},
    {"mremap elsewhere", PRIVATE, .stale = true, .other_after = true, .change = move,
     .take = take_new},
    {"mremap to more, elsewhere", PRIVATE, .stale = true, .other_after = true,
     .change = move_and_grow, .take = take_new},
    {"mremap of new memory onto it", PRIVATE, .stale = true, .change = new_onto, .take = is_empty},
    {"mremap of used memory onto it", PRIVATE, .stale = true, .other_before = true,
     .other_after = true, .change = used_onto, .take = take_source},
    {"mremap of several mappings (Linux 6.17)", PRIVATE, .stale = true, .other_after = true,
     .change = move_several, .take = take_new},
    {"mremap FIXED onto it that fails", PRIVATE, .stale = true, .change = fail_onto,
     .take = take_within_limit},
    {"mremap DONTUNMAP", PRIVATE, .stale = true, .other_after = true, .change = move_and_stay,
     .take = is_empty},
    {"mremap DONTUNMAP onto it", PRIVATE, .stale = true, .other_before = true, .other_after = true,
     .change = used_onto_and_stay, .take = is_empty},
    {"mmap FIXED over it", PRIVATE, .stale = true, .change = map_over, .take = is_empty},
    {"mmap FIXED HUGETLB over it that fails", LARGE, .stale = true, .change = fail_over,
     .take = take_new},
    {"munmap by another libc (dlmopen)", PRIVATE, .stale = true, .change = unmap_by_other_libc,
     .take = take_new},
    {"brk to less and more", BREAK, .stale = true, .last = true, .change = break_shrink,
     .take = break_grow},
    {"shmdt", SYSV, .stale = true, .change = detach, .take = take_new},
    {"shmat SHM_REMAP over it", PRIVATE, .stale = true, .change = attach_over, .take = is_empty},
    {"MADV_DONTNEED", PRIVATE, .stale = true, .early = true, .advice = MADV_DONTNEED},
    {"MADV_DONTNEED of a part", PRIVATE, .stale = true, .part = FIRST_HALF, .early = true,
     .advice = MADV_DONTNEED},
    {"MADV_DONTNEED within a huge page", HUGE_PAGE, .stale = true, .early = true,
     .advice = MADV_DONTNEED},
    {"MADV_DONTNEED of hugetlb", HUGETLB, .stale = true, .early = true, .advice = MADV_DONTNEED},
    {"MADV_DONTNEED, shared memory", SHARED, .early = true, .advice = MADV_DONTNEED},
    {"MADV_DONTNEED_LOCKED", PRIVATE, .stale = true, .early = true, .change = dontneed_locked},
    {"MADV_DONTNEED by io_uring", PRIVATE, .stale = true, .early = true, .change = ring_dontneed},
    {"MADV_DONTNEED by process_madvise (after Linux 6.12)", PRIVATE, .stale = true, .early = true,
     .change = process_dontneed},
    {"MADV_FREE", PRIVATE, .early = true, .undefined = true, .advice = MADV_FREE},
    {"MADV_REMOVE, shared memory", SHARED, .stale = true, .early = true, .advice = MADV_REMOVE},
    {"MADV_GUARD_INSTALL, _REMOVE", PRIVATE, .stale = true, .change = guard},
    {"fallocate PUNCH_HOLE", MEMORY_FILE, .stale = true, .change = punch},
    {"ftruncate", MEMORY_FILE, .stale = true, .last = true, .change = truncate_file},
    {"ftruncate, private mapping", PRIVATE_FILE, .stale = true, .last = true,
     .change = truncate_file},
    {"ftruncate by another process", MEMORY_FILE, .stale = true, .last = true,
     .change = truncate_elsewhere},
    {"mprotect", PRIVATE, .change = protect},
    {"MADV_COLD", PRIVATE, .advice = MADV_COLD},
    {"MADV_PAGEOUT", PRIVATE, .advice = MADV_PAGEOUT},
    {"MADV_POPULATE_WRITE", PRIVATE, .advice = MADV_POPULATE_WRITE},
    {"MADV_COLLAPSE", SMALL_PAGES, .change = collapse},
    {"mseal (Linux 6.10), munmap is refused", PRIVATE, .change = seal},
    {"MADV_MERGEABLE", PRIVATE, .change = mergeable},
    {"fork, the child writes", PRIVATE, .change = fork_child},
    {"vfork", PRIVATE, .change = vfork_child},
    {"MADV_DONTFORK, fork", PRIVATE, .change = fork_without_it},
    {"system()", PRIVATE, .libc_only = true, .change = run_command},
    {"free, malloc", HEAP, .libc_only = true, .change = free_block, .take = allocate},
    {"free, malloc_trim, malloc", HEAP, .stale = true, .libc_only = true, .change = free_and_trim,
     .take = allocate},
    {"free of the heap's end, malloc", HEAP_END, .stale = true, .libc_only = true,
     .change = free_the_end, .take = allocate_again},
    {"free of a large block, malloc", HEAP_LARGE, .stale = true, .libc_only = true,
     .change = free_block, .take = allocate},
};
const size_t row_count = sizeof(rows) / sizeof(rows[0]);

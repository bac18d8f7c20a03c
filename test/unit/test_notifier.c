/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The notifier: each change that it claims to see is seen before a look-up could go wrong, also by
 * another thread in the middle of it; nothing but what changed is; no process is in another's way,
 * and nothing is left at the end.
 */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "registration/notifier.h"

enum { PAGE = 4096 };

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

extern char **environ;

/* ---- a watch and what it covers ---- */

static regx_counters_t counters;
static _Atomic unsigned told; /* changes that the kernel told of */

static void count_told(void *context, uintptr_t start, uintptr_t end)
{
    (void)context;
    (void)start;
    (void)end;
    atomic_fetch_add(&told, 1);
}

static regx_watch_t *start(regx_check_t check)
{
    const regx_watch_config_t config = {
        .check = check, .threads = true, .counters = &counters, .told = count_told};
    regx_watch_t *watch = NULL;
    char error[256] = "";

    memset(&counters, 0, sizeof(counters));
    if (regx_watch_notifier(&config, &watch, error, sizeof(error)) != REGX_OK) {
        fail_msg("%s", error);
    }
    atomic_store(&told, 0);
    return watch;
}

static int setup(void **state)
{
    *state = start(REGX_CHECK_ALWAYS);
    return 0;
}

static int teardown(void **state)
{
    regx_watch_t *watch = *state;

    watch->stop(watch);
    return 0;
}

/* Memory that a cache would keep a registration of. */
typedef struct region {
    regx_watch_t *watch;
    uintptr_t start, end;
    uint64_t since;
    regx_status_t status;
} region_t;

static region_t keep(regx_watch_t *watch, void *base, size_t length)
{
    region_t region = {.watch = watch, .start = (uintptr_t)base, .end = (uintptr_t)base + length};

    while (atomic_load(&watch->changes->sequence) % 2 == 1) {
        sched_yield(); /* what happened here before comes into the log */
    }
    regx_changes_interest(watch->changes, region.start, region.end, 1);
    region.status = watch->cover(watch, region.start, region.end, &region.since);
    return region;
}

static region_t must_keep(regx_watch_t *watch, void *base, size_t length)
{
    const region_t region = keep(watch, base, length);

    assert_int_equal(region.status, REGX_OK);
    return region;
}

static void drop(region_t *region)
{
    regx_changes_interest(region->watch->changes, region->start, region->end, -1);
}

/* A cache's look-up, in its order. */
static bool hits(const region_t *region)
{
    regx_watch_t *watch = region->watch;

    return (watch->quiet == NULL || watch->quiet(watch, region->start, region->end)) &&
           atomic_load(&watch->changes->sequence) % 2 == 0 &&
           !regx_changes_touched(watch->changes, region->since, region->start, region->end);
}

/* The same, once nothing is under way. */
static bool hits_in_the_end(const region_t *region)
{
    while (!region->watch->quiet(region->watch, region->start, region->end) ||
           atomic_load(&region->watch->changes->sequence) % 2 == 1) {
        sched_yield();
    }
    return hits(region);
}

static char *map(size_t length)
{
    char *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(base, MAP_FAILED);
    memset(base, 1, length);
    return base;
}

/* ---- each change ---- */

enum { LENGTH = 16 * PAGE, CHANGED = 4 * PAGE, UNTIL = 8 * PAGE };

typedef struct change {
    const char *name;
    void (*make)(char *base); /* changes what is from CHANGED until UNTIL, nothing else */
} change_t;

static void require(bool ok)
{
    assert_true(ok);
}

static void by_munmap(char *base)
{
    require(munmap(base + CHANGED, UNTIL - CHANGED) == 0);
}

static void by_raw_munmap(char *base)
{
    require(syscall(SYS_munmap, base + CHANGED, UNTIL - CHANGED) == 0);
}

static void by_moving(char *base)
{
    require(mremap(base + CHANGED, UNTIL - CHANGED, UNTIL - CHANGED, MREMAP_MAYMOVE | MREMAP_FIXED,
                   map(UNTIL - CHANGED)) != MAP_FAILED);
}

static void by_moving_larger(char *base)
{
    require(mremap(base + CHANGED, UNTIL - CHANGED, 4 * LENGTH, MREMAP_MAYMOVE) != MAP_FAILED);
}

static void by_moving_what_stays_mapped(char *base)
{
    require(mremap(base + CHANGED, UNTIL - CHANGED, UNTIL - CHANGED,
                   MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0) != MAP_FAILED);
}

static void by_moving_onto(char *base)
{
    require(mremap(map(UNTIL - CHANGED), UNTIL - CHANGED, UNTIL - CHANGED,
                   MREMAP_MAYMOVE | MREMAP_FIXED, base + CHANGED) != MAP_FAILED);
}

static void by_shrinking(char *base)
{
    require(mremap(base + CHANGED, UNTIL - CHANGED, PAGE, 0) != MAP_FAILED);
    by_munmap(base); /* and the head that is left */
}

static void by_mapping_over(char *base)
{
    require(mmap(base + CHANGED, UNTIL - CHANGED, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
}

static void by_emptying(char *base)
{
    require(madvise(base + CHANGED, UNTIL - CHANGED, MADV_DONTNEED) == 0);
}

static void by_emptying_locked(char *base)
{
    require(madvise(base + CHANGED, UNTIL - CHANGED, MADV_DONTNEED_LOCKED) == 0);
}

static void by_freeing(char *base)
{
    require(madvise(base + CHANGED, UNTIL - CHANGED, MADV_FREE) == 0);
}

static void *thread_of(void *base)
{
    by_mapping_over(base);
    return NULL;
}

static void by_a_thread(char *base)
{
    pthread_t thread;

    require(pthread_create(&thread, NULL, thread_of, base) == 0);
    pthread_join(thread, NULL);
}

#ifndef __SANITIZE_THREAD__
/* vfork: the child is in our memory. */
static void by_a_child_in_our_memory(char *base)
{
    const pid_t child = vfork();

    if (child == 0) {
        _exit(munmap(base + CHANGED, UNTIL - CHANGED) == 0 ? 0 : 1);
    }
    int status = -1;
    require(waitpid(child, &status, 0) == child && status == 0);
}
#endif

static const change_t changes[] = {
    {"munmap", by_munmap},
    {"raw munmap", by_raw_munmap},
    {"mremap away", by_moving},
    {"mremap away, larger", by_moving_larger},
    {"mremap away, MREMAP_DONTUNMAP", by_moving_what_stays_mapped},
    {"mremap onto", by_moving_onto},
    {"mremap smaller", by_shrinking},
    {"mmap MAP_FIXED", by_mapping_over},
    {"MADV_DONTNEED", by_emptying},
    {"MADV_DONTNEED_LOCKED", by_emptying_locked},
    {"MADV_FREE", by_freeing},
    {"mmap MAP_FIXED by a thread", by_a_thread},
#ifndef __SANITIZE_THREAD__ /* which makes a fork of it */
    {"munmap by a vfork child", by_a_child_in_our_memory},
#endif
};

static void each_change_and_no_more(void **state)
{
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        char *base = map(LENGTH);
        region_t before = must_keep(*state, base, CHANGED);
        region_t changed = must_keep(*state, base + CHANGED, UNTIL - CHANGED);
        region_t inner = must_keep(*state, base + UNTIL - PAGE, PAGE);
        region_t outer = must_keep(*state, base, LENGTH);
        region_t after = must_keep(*state, base + UNTIL, LENGTH - UNTIL);

        if (!hits_in_the_end(&changed) || !hits(&inner) || !hits(&outer)) {
            fail_msg("%s: refused before it was made", changes[i].name);
        }
        changes[i].make(base);
        if (hits(&changed) || hits(&inner) || hits(&outer)) {
            fail_msg("%s: not seen", changes[i].name);
        }
        if (hits_in_the_end(&changed) || hits_in_the_end(&inner) || hits_in_the_end(&outer)) {
            fail_msg("%s: not seen in the end", changes[i].name);
        }
        if (!hits_in_the_end(&before) || !hits_in_the_end(&after)) {
            fail_msg("%s: its neighbours are refused", changes[i].name);
        }
        drop(&before);
        drop(&changed);
        drop(&inner);
        drop(&outer);
        drop(&after);
        munmap(base, LENGTH);
    }
}

/* Where a move goes to, with something kept there. */
static void the_place_moved_to(void **state)
{
    char *from = map(LENGTH);
    char *onto = map(LENGTH);
    region_t there = must_keep(*state, onto, LENGTH);
    region_t here = must_keep(*state, from, LENGTH);

    assert_true(hits_in_the_end(&there));
    assert_ptr_equal(mremap(from, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, onto), onto);
    assert_false(hits(&there) || hits(&here));
    assert_false(hits_in_the_end(&there) || hits_in_the_end(&here));
    drop(&there);
    there = must_keep(*state, onto, LENGTH); /* armed, since it was where it came from */
    assert_true(hits_in_the_end(&there));
    assert_int_equal(munmap(onto + PAGE, PAGE), 0);
    assert_false(hits(&there));
    drop(&there);
    drop(&here);
    munmap(onto, LENGTH);
}

static void what_grows_in_place(void **state)
{
    char *base = map(4 * LENGTH);

    assert_int_equal(munmap(base + LENGTH, 3 * LENGTH), 0); /* room to grow */
    region_t head = must_keep(*state, base, LENGTH);
    assert_ptr_equal(mremap(base, LENGTH, 2 * LENGTH, 0), base);
    region_t tail = must_keep(*state, base + LENGTH, LENGTH);

    assert_true(hits_in_the_end(&head) && hits_in_the_end(&tail));
    assert_int_equal(munmap(base + LENGTH, PAGE), 0);
    assert_false(hits(&tail));
    assert_true(hits_in_the_end(&head));
    drop(&head);
    drop(&tail);
    munmap(base, 2 * LENGTH);
}

static void the_heap_that_shrinks(void **state)
{
    char *base = sbrk(2 * LENGTH);
    char *start_of = (char *)(((uintptr_t)base + PAGE - 1) / PAGE * PAGE);

    assert_ptr_not_equal(base, (void *)-1);
    memset(start_of, 1, LENGTH);
    region_t region = must_keep(*state, start_of, LENGTH);

    assert_true(hits_in_the_end(&region));
    assert_ptr_not_equal(sbrk(-2 * LENGTH), (void *)-1);
    assert_false(hits(&region));
    assert_false(hits_in_the_end(&region));
    drop(&region);
}

static void five_thousand_regions(void **state)
{
    enum { REGIONS = 5000 };
    static region_t regions[REGIONS];
    char *base = map((size_t)REGIONS * 2 * PAGE);

    for (size_t i = 0; i < REGIONS; i++) {
        regions[i] = must_keep(*state, base + i * 2 * PAGE, PAGE);
    }
    atomic_store(&told, 0);
    assert_int_equal(munmap(base, (size_t)REGIONS * 2 * PAGE), 0);
    for (size_t i = 0; i < REGIONS; i++) {
        assert_false(hits(&regions[i]));
    }
    assert_false(hits_in_the_end(&regions[0]));
    assert_int_equal(atomic_load(&told), 1);
    for (size_t i = 0; i < REGIONS; i++) {
        drop(&regions[i]);
    }
}

/* ---- the window between a change and its entry, held open ---- */

static _Atomic bool returned;

static void *unmap_it(void *base)
{
    munmap(base, LENGTH);
    atomic_store(&returned, true);
    return NULL;
}

static void *move_what_is_in_it(void *base)
{
    mremap(base, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    return NULL;
}

/* Another thread changes `region`; the reader has been stopped at `where`. */
static pthread_t change_and_hold(region_t *region, void *(*change)(void *), regx_hold_t where)
{
    pthread_t thread;

    atomic_store(&returned, false);
    regx_notifier_hold_for_test(region->watch, where);
    assert_int_equal(pthread_create(&thread, NULL, change, (void *)region->start), 0);
    while (!regx_notifier_held_for_test(region->watch)) {
        sched_yield();
    }
    return thread;
}

static void take_address(const region_t *region)
{
    assert_ptr_equal(mmap((void *)region->start, region->end - region->start,
                          PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                          -1, 0),
                     (void *)region->start);
}

/* The thread that unmaps has not come back, and the address is somebody else's already. */
static void before_it_is_read(void **state)
{
    region_t region = must_keep(*state, map(LENGTH), LENGTH);
    region_t neighbour = must_keep(*state, map(LENGTH), LENGTH);

    assert_true(hits_in_the_end(&region));
    const pthread_t thread = change_and_hold(&region, unmap_it, REGX_HOLD_BEFORE_READ);
    take_address(&region);
    assert_false(atomic_load(&returned));
    /* The query alone knows. */
    assert_int_equal(atomic_load(&region.watch->changes->sequence) % 2, 0);
    assert_false(
        regx_changes_touched(region.watch->changes, region.since, region.start, region.end));
    assert_false(hits(&region));
    regx_notifier_hold_for_test(*state, REGX_HOLD_NOWHERE);
    pthread_join(thread, NULL);
    assert_false(hits_in_the_end(&region));
    assert_true(hits_in_the_end(&neighbour));
    munmap((void *)region.start, LENGTH);
    drop(&region);
    drop(&neighbour);
}

/* The thread that unmapped goes on, but the log does not have it yet: the sequence alone knows. */
static void before_it_is_logged(void **state)
{
    region_t region = must_keep(*state, map(LENGTH), LENGTH);

    assert_true(hits_in_the_end(&region));
    const pthread_t thread = change_and_hold(&region, unmap_it, REGX_HOLD_BEFORE_LOG);
    pthread_join(thread, NULL);
    take_address(&region);
    assert_true(region.watch->quiet(region.watch, region.start, region.end));
    assert_false(
        regx_changes_touched(region.watch->changes, region.since, region.start, region.end));
    assert_false(hits(&region));
    regx_notifier_hold_for_test(*state, REGX_HOLD_NOWHERE);
    assert_false(hits_in_the_end(&region));
    munmap((void *)region.start, LENGTH);
    drop(&region);
}

/* What is newly kept in the middle of a change is not of what was there before. */
static void kept_in_the_window(void **state)
{
    region_t region = must_keep(*state, map(LENGTH), LENGTH);
    const pthread_t thread = change_and_hold(&region, unmap_it, REGX_HOLD_BEFORE_READ);

    take_address(&region);
    region_t newer = must_keep(*state, (void *)region.start, LENGTH);
    regx_notifier_hold_for_test(*state, REGX_HOLD_NOWHERE);
    pthread_join(thread, NULL);
    assert_false(hits_in_the_end(&region));
    drop(&newer); /* hit or not: the event may have come before or after */
    newer = must_keep(*state, (void *)region.start, LENGTH);
    assert_true(hits_in_the_end(&newer));
    assert_int_equal(madvise((void *)region.start, PAGE, MADV_DONTNEED), 0);
    assert_false(hits(&newer));
    munmap((void *)region.start, LENGTH);
    drop(&region);
    drop(&newer);
}

/* btl_regx_notifier_check=never: the documented hole, seen to be one. */
static void without_the_query(void **state)
{
    regx_watch_t *watch = start(REGX_CHECK_NEVER);

    (void)state;
    assert_null(watch->quiet);
    region_t region = must_keep(watch, map(LENGTH), LENGTH);
    const pthread_t thread = change_and_hold(&region, unmap_it, REGX_HOLD_BEFORE_READ);
    take_address(&region);
    assert_true(hits(&region)); /* stale */
    regx_notifier_hold_for_test(watch, REGX_HOLD_NOWHERE);
    pthread_join(thread, NULL);
    while (hits(&region)) {
        sched_yield();
    }
    munmap((void *)region.start, LENGTH);
    watch->stop(watch);
}

static void asked_only_with_threads(void **state)
{
    regx_watch_config_t config = {.check = REGX_CHECK_THREADS, .counters = &counters};
    regx_watch_t *watch;
    char error[256] = "";

    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        config.threads = threads == 1;
        assert_int_equal(regx_watch_notifier(&config, &watch, error, sizeof(error)), REGX_OK);
        assert_int_equal(watch->quiet != NULL, config.threads);
        watch->stop(watch);
    }
}

/* ---- a segment laid over private memory, of which the kernel does not tell ---- */

static void attach_over(char *base)
{
    const int id = shmget(IPC_PRIVATE, LENGTH, 0600);

    assert_ptr_equal(shmat(id, base, SHM_REMAP), base);
    assert_int_equal(shmctl(id, IPC_RMID, NULL), 0);
}

static void a_segment_over_it(void **state)
{
    regx_watch_t *watch = start(REGX_CHECK_ALWAYS);
    char *base = map(LENGTH);
    region_t region = must_keep(watch, base, LENGTH);

    (void)state;
    assert_true(hits_in_the_end(&region));
    attach_over(base);
    assert_true(hits_in_the_end(&region)); /* stale: the documented blind spot */
    drop(&region);
    watch->stop(watch);
    shmdt(base);
}

static void a_segment_over_it_with_scan(void **state)
{
    regx_watch_t *watch = start(REGX_CHECK_SCAN);
    char *base = map(LENGTH);
    region_t region = must_keep(watch, base, LENGTH);
    region_t neighbour = must_keep(watch, map(LENGTH), LENGTH);

    (void)state;
    assert_true(hits(&region));
    attach_over(base);
    assert_false(hits(&region));
    assert_true(hits(&neighbour));
    shmdt(base);
    assert_ptr_equal(mmap(base, LENGTH, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                     base);
    assert_false(hits(&region));
    drop(&region);
    drop(&neighbour);
    watch->stop(watch);
    munmap(base, LENGTH);
}

/* What stays armed all the time: scanning does not replace the query. */
static void moved_away_with_scan(void **state)
{
    regx_watch_t *watch = start(REGX_CHECK_SCAN);
    region_t region = must_keep(watch, map(LENGTH), LENGTH);

    (void)state;
    assert_true(hits(&region));
    const pthread_t thread = change_and_hold(&region, move_what_is_in_it, REGX_HOLD_BEFORE_READ);
    assert_false(hits(&region));
    regx_notifier_hold_for_test(watch, REGX_HOLD_NOWHERE);
    pthread_join(thread, NULL);
    drop(&region);
    watch->stop(watch);
}

/* Armed memory is moved onto the segment: the range is watched again, but not what it was. */
static void a_segment_and_then_a_move_with_scan(void **state)
{
    regx_watch_t *watch = start(REGX_CHECK_SCAN);
    char *base = map(LENGTH);
    char *other = map(LENGTH);
    region_t region = must_keep(watch, base, LENGTH);
    region_t moved = must_keep(watch, other, LENGTH);

    (void)state;
    assert_true(hits(&region) && hits(&moved));
    attach_over(base);
    assert_ptr_equal(mremap(other, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, base), base);
    while (atomic_load(&watch->changes->sequence) % 2 == 1) {
        sched_yield();
    }
    assert_false(hits(&region));
    drop(&region);
    drop(&moved);
    watch->stop(watch);
    munmap(base, LENGTH);
}

/* What replaced it unseen is armed along with a neighbour: nothing kept from before may come back
 * to life. */
static void armed_again_by_a_neighbour(void **state)
{
    char *base = mmap(NULL, (size_t)4 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *inside = (char *)(((uintptr_t)base + (2 << 20) - 1) >> 21 << 21);

    munmap(base, (size_t)4 << 20);
    assert_ptr_equal(mmap(inside, 2 * LENGTH, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                     inside);
    region_t region = must_keep(*state, inside, LENGTH / 2);
    assert_true(hits_in_the_end(&region));
    attach_over(inside);
    shmdt(inside);
    assert_ptr_equal(mmap(inside, LENGTH, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                     inside);
    region_t part = must_keep(*state, inside + LENGTH / 2, LENGTH);
    assert_false(hits_in_the_end(&region));
    assert_true(hits_in_the_end(&part));
    drop(&region);
    drop(&part);
    munmap(inside, 2 * LENGTH);
}

/* ---- kinds of memory ---- */

static uint64_t tally(const char *reason)
{
    return atomic_load(&regx_tally_find(counters.fallbacks, reason)->count);
}

static void must_not_keep(regx_watch_t *watch, void *base, size_t length, const char *reason)
{
    const uint64_t before = tally(reason);
    region_t region = keep(watch, base, length);

    if (region.status != REGX_DENIED || tally(reason) != before + 1) {
        fail_msg("answered %d, expected: %s", (int)region.status, reason);
    }
    drop(&region);
}

static unsigned char bss[4 * PAGE];

static void must_notice(regx_watch_t *watch, void *base, size_t length)
{
    char *first = (char *)(((uintptr_t)base + PAGE - 1) / PAGE * PAGE);
    const size_t pages = ((uintptr_t)base + length - (uintptr_t)first) / PAGE * PAGE;
    region_t region = must_keep(watch, first, pages);

    assert_true(hits_in_the_end(&region));
    assert_int_equal(madvise(first, pages, MADV_DONTNEED), 0);
    assert_false(hits(&region));
    drop(&region);
}

static void kinds_that_are_kept(void **state)
{
    volatile unsigned char stack[4 * PAGE];
    void *heap = malloc(64 * 1024);
    char *untouched =
        mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *mixed = map(LENGTH);
    unsigned char resident[LENGTH / PAGE];

    stack[0] = 1;
    must_notice(*state, (void *)(uintptr_t)stack, 2 * PAGE);
    must_notice(*state, bss + PAGE, sizeof(bss) - PAGE);
    must_notice(*state, heap, 64 * 1024);
    region_t region = must_keep(*state, untouched, LENGTH);
    assert_int_equal(mincore(untouched, LENGTH, resident), 0);
    for (int i = 0; i < LENGTH / PAGE; i++) {
        assert_int_equal(resident[i] & 1, 0); /* watching touches nothing */
        assert_int_equal(untouched[i * PAGE], 0);
    }
    drop(&region);
    /* Several mappings, all of the right kind. */
    assert_int_equal(mprotect(mixed + 4 * PAGE, 4 * PAGE, PROT_READ), 0);
    must_notice(*state, mixed, LENGTH);
    region = must_keep(*state, mixed, LENGTH);
    assert_int_equal(munmap(mixed + LENGTH - PAGE, PAGE), 0);
    assert_false(hits(&region));
    drop(&region);
    munmap(mixed, LENGTH);
    munmap(untouched, LENGTH);
    free(heap);
}

static void kinds_that_are_not(void **state)
{
    const int fd = memfd_create("regx", MFD_CLOEXEC);
    char *shared = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *private = map(3 * LENGTH);

    assert_int_equal(ftruncate(fd, LENGTH), 0);
    char *file = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    assert_true(shared != MAP_FAILED && file != MAP_FAILED);
    must_not_keep(*state, shared, LENGTH, "not watched: shared memory");
    must_not_keep(*state, file, LENGTH, "not watched: a mapping of a file");
    attach_over(private + LENGTH);
    must_not_keep(*state, private, 3 * LENGTH, "not watched: shared memory");
    shmdt(private + LENGTH);
    must_not_keep(*state, private, 3 * LENGTH, "not watched: not all of it is mapped");
    must_not_keep(*state, private + LENGTH, LENGTH, "not watched: not all of it is mapped");
    assert_int_equal(munmap(private + 3 * LENGTH - PAGE, PAGE), 0);
    must_not_keep(*state, private + 2 * LENGTH, LENGTH, "not watched: not all of it is mapped");
    munmap(private, 3 * LENGTH);
    munmap(shared, LENGTH);
    munmap(file, LENGTH);
    close(fd);
}

static void huge_pages(void **state)
{
    const size_t page = (size_t)2 << 20;
    char *base = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

    if (base == MAP_FAILED) {
        print_message("not tried: no huge pages are set aside (vm.nr_hugepages)\n");
        skip();
    }
    memset(base, 1, 2 * page);
    region_t first = must_keep(*state, base + PAGE, PAGE);
    region_t second = must_keep(*state, base + page, page);
    region_t again = must_keep(*state, base + 3 * PAGE, PAGE);
    drop(&again);
    assert_true(hits_in_the_end(&first) && hits_in_the_end(&second));
    assert_int_equal(madvise(base, page, MADV_DONTNEED), 0);
    assert_false(hits(&first));
    assert_true(hits_in_the_end(&second));
    assert_int_equal(munmap(base, 2 * page), 0);
    assert_false(hits(&second));
    drop(&first);
    drop(&second);
}

/* ---- other processes ---- */

static unsigned descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    unsigned count = 0;

    assert_non_null(directory);
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

static void must_end_well(pid_t child)
{
    int status = -1;

    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* In a child, where nothing may be asserted: 0 if it is inert. */
static int inert(region_t *region)
{
    regx_watch_t *watch = region->watch;
    uint64_t since;

    return hits(region)                                                             ? 1
           : watch->cover(watch, region->start, region->end, &since) != REGX_DENIED ? 2
           : munmap((void *)region->start, region->end - region->start) != 0        ? 3
                                                                                    : 0;
}

static void a_forked_child_is_inert(void **state)
{
    (void)state;
    const unsigned without = descriptors();
    regx_watch_t *watch = start(REGX_CHECK_ALWAYS);
    region_t region = must_keep(watch, map(LENGTH), LENGTH);

    assert_true(hits_in_the_end(&region));
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        int fault = inert(&region);
        if (fault == 0 && descriptors() != without) {
            fault = 4;
        }
        watch->stop(watch);
#ifndef __SANITIZE_THREAD__ /* which lets no thread start here */
        /* It may have a watch of its own. */
        watch = start(REGX_CHECK_ALWAYS);
        region = keep(watch, map(LENGTH), LENGTH);
        if (fault == 0 && (region.status != REGX_OK || !hits_in_the_end(&region))) {
            fault = 5;
        }
        watch->stop(watch);
#endif
        _exit(fault);
    }
    must_end_well(child);
    assert_true(hits_in_the_end(&region)); /* nothing of ours changed */
    assert_int_equal(munmap((void *)region.start, PAGE), 0);
    assert_false(hits(&region));
    drop(&region);
    watch->stop(watch);
}

/* Raw clone runs no handlers: the child lives on with our descriptor. */
static void a_cloned_child_is_inert(void **state)
{
    int went[2];
    int go[2];
    char byte = 0;

    (void)state;
    regx_watch_t *watch = start(REGX_CHECK_ALWAYS);
    char *base = map(2 * LENGTH);
    region_t region = must_keep(watch, base, LENGTH);

    assert_true(pipe(went) == 0 && pipe(go) == 0);
    assert_true(hits_in_the_end(&region));
    const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        alarm(60);
        close(go[1]);
        const int fault = inert(&region);
        watch->stop(watch);
        if (write(went[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 0) {
            _exit(9);
        }
        _exit(fault);
    }
    close(go[0]);
    assert_int_equal(read(went[0], &byte, 1), 1); /* it has done what it could do to us */
    assert_true(hits_in_the_end(&region));
    assert_int_equal(munmap(base, PAGE), 0);
    assert_false(hits(&region));
    drop(&region);
    watch->stop(watch);
    assert_int_equal(munmap(base + PAGE, PAGE), 0); /* waits for nobody */
    assert_int_equal(munmap(base + LENGTH, LENGTH), 0);
    /* And again, with that child still there. */
    watch = start(REGX_CHECK_ALWAYS);
    region = must_keep(watch, base + 2 * PAGE, PAGE);
    assert_int_equal(munmap(base + 2 * PAGE, PAGE), 0);
    assert_false(hits(&region));
    drop(&region);
    watch->stop(watch);
    close(go[1]);
    close(went[0]);
    close(went[1]);
    must_end_well(child);
}

static struct {
    char *low, *high;
    atomic_bool end;
    atomic_uint moves;
} mover;

static void *move_to_and_fro(void *unused)
{
    char *from = mover.high;

    (void)unused;
    while (!atomic_load(&mover.end)) {
        char *to = from == mover.high ? mover.low : mover.high;

        require(mremap(from, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
        from = to;
        atomic_fetch_add(&mover.moves, 1);
    }
    return NULL;
}

/* What a thread moves from where stopping has yet to look to where it has looked must not stay
 * armed: with such a child there, nobody would read of its next move and that thread would wait for
 * ever. */
static void stopped_while_it_moves_beside_a_cloned_child(void **state)
{
    enum { BETWEEN = 1000 }; /* mappings that stopping has to look at on its way */
    const size_t length = 2 * BETWEEN * PAGE + 2 * LENGTH;

    (void)state;
    for (int round = 0; round < 10; round++) {
        char *area =
            mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        int go[2];
        char byte;
        pthread_t thread;

        mover.low = area;
        mover.high = area + length - LENGTH;
        for (int i = 0; i < BETWEEN; i++) {
            require(mprotect(area + LENGTH + (size_t)(2 * i) * PAGE, PAGE, PROT_READ) == 0);
        }
        require(mprotect(mover.high, LENGTH, PROT_READ | PROT_WRITE) == 0);
        memset(mover.high, 1, LENGTH);
        regx_watch_t *watch = start(REGX_CHECK_ALWAYS);
        region_t region = must_keep(watch, mover.high, LENGTH);
        drop(&region);
        assert_int_equal(pipe(go), 0);
        const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
            alarm(60);
            close(go[1]);
            _exit(read(go[0], &byte, 1) == 0 ? 0 : 9);
        }
        close(go[0]);
        atomic_store(&mover.end, false);
        atomic_store(&mover.moves, 0);
        assert_int_equal(pthread_create(&thread, NULL, move_to_and_fro, NULL), 0);
        while (atomic_load(&mover.moves) < 10) {
            sched_yield();
        }
        watch->stop(watch);
        const unsigned moves = atomic_load(&mover.moves);
        while (atomic_load(&mover.moves) < moves + 3) { /* it waits for nobody */
            sched_yield();
        }
        atomic_store(&mover.end, true);
        pthread_join(thread, NULL);
        close(go[1]);
        must_end_well(child);
        munmap(area, length);
    }
}

static void other_ways_to_start_programs(void **state)
{
    char *const arguments[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c",
                               (char *)(uintptr_t) "! ls -l /proc/self/fd | grep userfault", NULL};
    region_t region = must_keep(*state, map(LENGTH), LENGTH);
    char line[256];
    pid_t child;

    assert_true(hits_in_the_end(&region));
    assert_int_equal(posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ), 0);
    must_end_well(child);
    assert_int_equal(system(arguments[2]), 0);
    FILE *output = popen("ls -l /proc/self/fd", "r");
    assert_non_null(output);
    while (fgets(line, sizeof(line), output) != NULL) {
        assert_null(strstr(line, "userfault"));
    }
    pclose(output);
    child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    must_end_well(child);
    assert_true(hits_in_the_end(&region));
    assert_int_equal(munmap((void *)region.start, LENGTH), 0);
    assert_false(hits(&region));
    drop(&region);
}

/* Forks from one thread while watches come and go in another: no child keeps a descriptor. */
static _Atomic bool enough;

static void *fork_often(void *without)
{
    unsigned long wrong = 0;

    for (int i = 0; i < 50; i++) {
        int status = -1;
        const pid_t child = fork();

        if (child == 0) {
            _exit(descriptors() == *(unsigned *)without ? 0 : 1);
        }
        waitpid(child, &status, 0);
        wrong += status != 0;
    }
    atomic_store(&enough, true);
    return (void *)wrong;
}

static void forks_while_it_starts_and_stops(void **state)
{
    unsigned without = descriptors();
    pthread_t thread;
    void *wrong;

    (void)state;
    atomic_store(&enough, false);
    assert_int_equal(pthread_create(&thread, NULL, fork_often, &without), 0);
    while (!atomic_load(&enough)) {
        regx_watch_t *watch = start(REGX_CHECK_ALWAYS);
        watch->stop(watch);
    }
    pthread_join(thread, &wrong);
    assert_null(wrong);
}

/* ---- threads ---- */

/* Blocks of malloc's that come and go, so that free unmaps and trims with malloc's lock held, while
 * they are watched. */
static void *allocate(void *watch)
{
    for (int i = 0; i < 3000; i++) {
        const size_t length = (size_t)(1 + i % 40) * 16 * 1024;
        char *block = malloc(length);

        block[0] = 1;
        char *first = (char *)(((uintptr_t)block + PAGE - 1) / PAGE * PAGE);
        region_t region = keep(watch, first, (size_t)(block + length - first) / PAGE * PAGE);
        free(block);
        drop(&region);
    }
    return NULL;
}

static void inside_malloc(void **state)
{
    pthread_t threads[3];

    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, allocate, *state), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_not_equal(atomic_load(&told), 0);
}

static void *map_and_unmap(void *unused)
{
    (void)unused;
    while (!atomic_load(&enough)) {
        char *base = map(LENGTH);
        munmap(base, LENGTH);
    }
    return NULL;
}

/* The end comes while others change what is watched. */
static void stopped_in_the_middle(void **state)
{
    pthread_t threads[2];

    (void)state;
    atomic_store(&enough, false);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, map_and_unmap, NULL), 0);
    }
    for (int round = 0; round < 20; round++) {
        regx_watch_t *watch = start(REGX_CHECK_ALWAYS);
        char *base = map((size_t)8 << 20); /* some of theirs lies beside it */

        for (int i = 0; i < 200; i++) {
            region_t region = keep(watch, base, (size_t)8 << 20);
            drop(&region);
        }
        watch->stop(watch);
        munmap(base, (size_t)8 << 20);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* How many threads of that name there are, and what one of them blocks. */
static unsigned readers(uint64_t *blocked)
{
    DIR *directory = opendir("/proc/self/task");
    struct dirent *entry;
    unsigned count = 0;

    assert_non_null(directory);
    while ((entry = readdir(directory)) != NULL) {
        char path[300];
        char line[128];
        bool ours = false;

        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
            if (strcmp(line, "Name:\tregx-notifier\n") == 0) {
                ours = true;
                count++;
            } else if (ours) {
                (void)sscanf(line, "SigBlk: %lx", blocked);
            }
        }
        if (file != NULL) {
            fclose(file);
        }
    }
    closedir(directory);
    return count;
}

static void the_reader_takes_no_signal(void **state)
{
    uint64_t blocked = 0;
    sigset_t mine;

    (void)state;
    assert_int_equal(readers(&blocked), 1);
    for (int number = 1; number < 32; number++) {
        if (number != SIGKILL && number != SIGSTOP) {
            assert_true((blocked >> (number - 1) & 1) == 1);
        }
    }
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    assert_int_equal(sigismember(&mine, SIGUSR1), 0);
}

/* ---- the end ---- */

static unsigned threads(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    unsigned count = 0;

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL && sscanf(line, "Threads: %u", &count) != 1) {
    }
    fclose(file);
    return count;
}

static unsigned armed_mappings(void)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned count = 0;

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " uw") != NULL) {
            count++;
        }
    }
    fclose(file);
    return count;
}

static void nothing_is_left(void **state)
{
    const unsigned before = descriptors();
    char *base = map((size_t)16 << 20);
    const unsigned threads_before = threads();

    (void)state;
    for (int check = 0; check <= REGX_CHECK_NEVER; check++) {
        regx_watch_t *watch = start((regx_check_t)check);
        region_t heap = keep(watch, (void *)((uintptr_t)sbrk(0) - LENGTH), LENGTH);
        region_t region = must_keep(watch, base, LENGTH);
        region_t another = must_keep(watch, base + (10 << 20), LENGTH);

        assert_true(armed_mappings() >= (heap.status == REGX_OK ? 2u : 1u));
        /* Armed memory that went elsewhere. */
        assert_ptr_not_equal(mremap(base, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0),
                             MAP_FAILED);
        drop(&heap);
        drop(&region);
        drop(&another);
        watch->stop(watch);
        assert_int_equal(armed_mappings(), 0);
        assert_int_equal(descriptors(), before);
        while (threads() != threads_before) { /* one that was joined may yet be seen */
            sched_yield();
        }
    }
    munmap(base, (size_t)16 << 20);
}

static int give_up_in_time(void **state)
{
    (void)state;
    alarm(250); /* a hang is a failure, not the end of all tests */
    return 0;
}

#define WATCHED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* Whether this machine has it at all; says so if not. */
static bool refused(void)
{
    const regx_watch_config_t config = {.counters = &counters};
    regx_watch_t *watch;
    char error[256];

    if (regx_watch_notifier(&config, &watch, error, sizeof(error)) == REGX_DENIED) {
        printf("1..0 # SKIP %s\n", error);
        return true;
    }
    watch->stop(watch);
    return false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WATCHED(each_change_and_no_more),
        WATCHED(the_place_moved_to),
        WATCHED(what_grows_in_place),
        WATCHED(the_heap_that_shrinks),
        WATCHED(five_thousand_regions),
        WATCHED(before_it_is_read),
        WATCHED(before_it_is_logged),
        WATCHED(kept_in_the_window),
        cmocka_unit_test(without_the_query),
        cmocka_unit_test(asked_only_with_threads),
        cmocka_unit_test(a_segment_over_it),
        cmocka_unit_test(a_segment_over_it_with_scan),
        cmocka_unit_test(a_segment_and_then_a_move_with_scan),
        cmocka_unit_test(moved_away_with_scan),
        WATCHED(armed_again_by_a_neighbour),
        WATCHED(kinds_that_are_kept),
        WATCHED(kinds_that_are_not),
        WATCHED(huge_pages),
        cmocka_unit_test(a_forked_child_is_inert),
        cmocka_unit_test(a_cloned_child_is_inert),
        cmocka_unit_test(stopped_while_it_moves_beside_a_cloned_child),
        WATCHED(other_ways_to_start_programs),
        cmocka_unit_test(forks_while_it_starts_and_stops),
        WATCHED(inside_malloc),
        cmocka_unit_test(stopped_in_the_middle),
        WATCHED(the_reader_takes_no_signal),
        cmocka_unit_test(nothing_is_left),
    };

    return refused() ? 0 : cmocka_run_group_tests(tests, give_up_in_time, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The notifier: each change that it claims to see is seen before a look-up could go wrong; nothing
 * but what changed is.
 */
#include "monitored.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

enum { CHANGED = 4 * PAGE, UNTIL = 8 * PAGE };

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

static void each_change_ends_what_it_touched_and_no_more(void **state)
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
static void what_was_where_a_move_goes_to_misses(void **state)
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
    there = must_keep(*state, onto, LENGTH); /* watched, since it was where it came from */
    assert_true(hits_in_the_end(&there));
    assert_int_equal(munmap(onto + PAGE, PAGE), 0);
    assert_false(hits(&there));
    drop(&there);
    drop(&here);
    munmap(onto, LENGTH);
}

static void memory_grown_in_place_is_watched(void **state)
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

static void a_heap_that_shrinks_misses(void **state)
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

static void one_munmap_of_5000_regions_ends_all(void **state)
{
    enum { REGIONS = 5000 };
    static region_t regions[REGIONS];
    char *base = map((size_t)REGIONS * 2 * PAGE);

    for (size_t i = 0; i < REGIONS; i++) {
        regions[i] = must_keep(*state, base + i * 2 * PAGE, PAGE);
    }
    const uint64_t head = ((regx_monitor_t *)*state)->log->head;
    assert_int_equal(munmap(base, (size_t)REGIONS * 2 * PAGE), 0);
    for (size_t i = 0; i < REGIONS; i++) {
        assert_false(hits(&regions[i]));
    }
    assert_false(hits_in_the_end(&regions[0]));
    assert_int_equal(((regx_monitor_t *)*state)->log->head, head + 1);
    for (size_t i = 0; i < REGIONS; i++) {
        drop(&regions[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WATCHED(each_change_ends_what_it_touched_and_no_more),
        WATCHED(what_was_where_a_move_goes_to_misses),
        WATCHED(memory_grown_in_place_is_watched),
        WATCHED(a_heap_that_shrinks_misses),
        WATCHED(one_munmap_of_5000_regions_ends_all),
    };

    return refused() ? 0 : cmocka_run_group_tests(tests, give_up_in_time, NULL);
}

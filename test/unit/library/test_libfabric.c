/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory monitor for libfabric, without libfabric: this file has in its place what the monitor
 * is imported by, and caches that call it as libfabric's do. (test/registration/fabric_steps.c has
 * libfabric.)
 */
#include "../unit.h"

#include <errno.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_ext.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "library/regx/libfabric.h"

enum { PAGE = 4096, LENGTH = 16 * PAGE, CACHES = 2, ENTRIES = 8192 };

/* ---- libfabric ---- */

typedef struct entry {
    char *base; /* NULL: none */
    size_t length;
    unsigned pinned; /* what it was that was pinned: a number that the test gave it */
} entry_t;

static struct fid_mem_monitor *monitor;
static int import_result;
static pthread_mutex_t mm_lock = PTHREAD_MUTEX_INITIALIZER;
static entry_t caches[CACHES][ENTRIES];

static bool is_within(const entry_t *entry, const char *base, size_t length)
{
    return entry->base != NULL && entry->base <= base &&
           base + length <= entry->base + entry->length;
}

static void drop_overlapping(entry_t *cache, const char *base, size_t length)
{
    for (entry_t *entry = cache; entry < cache + ENTRIES; entry++) {
        if (entry->base != NULL && entry->base < base + length &&
            base < entry->base + entry->length) {
            *entry = (entry_t){0};
        }
    }
}

static entry_t *find_entry(int cache, const char *base, size_t length)
{
    for (entry_t *entry = caches[cache]; entry < caches[cache] + ENTRIES; entry++) {
        if (is_within(entry, base, length)) {
            return entry;
        }
    }
    return NULL;
}

static void notify(struct fid_mem_monitor *fid, const void *base, size_t length)
{
    (void)fid;
    pthread_mutex_lock(&mm_lock);
    for (int i = 0; i < CACHES; i++) {
        drop_overlapping(caches[i], base, length);
    }
    pthread_mutex_unlock(&mm_lock);
}

static int close_nothing(struct fid *fid)
{
    (void)fid;
    return 0;
}

static int import(struct fid *fid, struct fid *what, uint64_t flags)
{
    static struct fi_ops_mem_notify notifies = {.size = sizeof(notifies), .notify = notify};

    (void)fid;
    (void)flags;
    if (import_result != 0) {
        return import_result;
    }
    assert_int_equal(what->fclass, FI_CLASS_MEM_MONITOR);
    monitor = (struct fid_mem_monitor *)what;
    monitor->import_ops = &notifies;
    assert_true(monitor->export_ops->size >= sizeof(struct fi_ops_mem_monitor));
    assert_int_equal(monitor->export_ops->start(monitor), 0);
    return 0;
}

int fi_open(uint32_t version, const char *name, void *attr, size_t attr_len, uint64_t flags,
            struct fid **fid, void *context)
{
    static struct fi_ops operations = {
        .size = sizeof(operations), .close = close_nothing, .bind = import};
    static struct fid cache = {.ops = &operations};

    (void)version;
    (void)attr;
    (void)attr_len;
    (void)flags;
    (void)context;
    assert_string_equal(name, "mr_cache");
    *fid = &cache;
    return 0;
}

/* What a registration came to; each is more than the one before. */
typedef enum { ONCE, KEPT, HIT } outcome_t;

/* The first half of a registration. true: it is done, by `pinned`. */
static bool search(int cache, char *base, size_t length, unsigned *pinned)
{
    pthread_mutex_lock(&mm_lock);
    const entry_t *entry = find_entry(cache, base, length);
    const bool hit =
        entry != NULL && monitor->export_ops->valid(monitor, entry->base, entry->length);
    if (hit) {
        *pinned = entry->pinned;
    } else {
        drop_overlapping(caches[cache], base, length);
    }
    pthread_mutex_unlock(&mm_lock);
    return hit;
}

/* The second half: it is pinned. */
static outcome_t insert(int cache, char *base, size_t length, unsigned pinned)
{
    pthread_mutex_lock(&mm_lock);
    entry_t *entry = caches[cache];
    while (entry->base != NULL) {
        entry++;
    }
    *entry = (entry_t){.base = base, .length = length, .pinned = pinned};
    const bool kept = monitor->export_ops->subscribe(monitor, base, length) == 0;
    if (!kept) {
        *entry = (entry_t){0};
    }
    pthread_mutex_unlock(&mm_lock);
    return kept ? KEPT : ONCE;
}

/* `now`: what is there, which is to be what is pinned. */
static outcome_t use(int cache, char *base, size_t length, unsigned now)
{
    unsigned pinned = now;
    const bool hit = search(cache, base, length, &pinned);

    if (pinned != now) {
        fail_msg("a registration of memory that is gone was used");
    }
    return hit ? HIT : insert(cache, base, length, now);
}

/* Until it comes to that: what was there before may have to be dropped first, and while the
 * notifier's reader has something to write nothing is known. */
static void use_until(outcome_t wanted, int cache, char *base, unsigned now)
{
    while (use(cache, base, LENGTH, now) < wanted) {
        sched_yield();
    }
}

/* ---- memory ---- */

static char *map(size_t length)
{
    char *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(base, MAP_FAILED);
    memset(base, 1, length);
    return base;
}

static void map_again(char *base, size_t length)
{
    if (mmap(base, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) != base) {
        abort();
    }
    memset(base, 1, length);
}

static void by_munmap(char *base)
{
    assert_int_equal(munmap(base, LENGTH), 0);
    map_again(base, LENGTH);
}

static void by_raw_munmap(char *base)
{
    assert_int_equal(syscall(SYS_munmap, base, LENGTH), 0);
    map_again(base, LENGTH);
}

static void by_mmap_over_it(char *base)
{
    map_again(base, LENGTH);
}

static void by_mremap_onto_it(char *base)
{
    char *other = map(LENGTH);

    assert_ptr_equal(mremap(other, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, base), base);
}

static void by_dontneed(char *base)
{
    assert_int_equal(madvise(base + PAGE, PAGE, MADV_DONTNEED), 0);
}

/* ---- tests ---- */

static char error[256];

static void imported(void)
{
    if (monitor != NULL) {
        return;
    }
    if (regx_libfabric_monitor(0, error, sizeof(error)) == EOPNOTSUPP) {
        print_message("not tried: %s\n", error);
        skip();
    }
    assert_non_null(monitor);
}

static void what_is_refused_says_why(void **state)
{
    (void)state;
    assert_int_equal(regx_libfabric_monitor(~0u, error, sizeof(error)), EINVAL);
    assert_string_equal(error, "flags=0xffffffff: allowed: 0, REGX_LIBFABRIC_SCAN");
    setenv("FI_MR_CACHE_MONITOR", "memhooks", 1);
    assert_int_equal(regx_libfabric_monitor(0, error, sizeof(error)), EBUSY);
    assert_string_equal(error, "FI_MR_CACHE_MONITOR=memhooks is in the environment");
    unsetenv("FI_MR_CACHE_MONITOR");
    import_result = -FI_EBUSY;
    if (regx_libfabric_monitor(0, error, sizeof(error)) != EOPNOTSUPP) {
        assert_string_equal(error,
                            "libfabric has another memory monitor, or has begun to use its own");
    }
    import_result = 0;
    imported();
    assert_int_equal(regx_libfabric_monitor(0, error, sizeof(error)), EBUSY);
    assert_string_equal(error, "libfabric has this memory monitor already");
    assert_int_equal(regx_libfabric_monitor(0, NULL, 0), EBUSY);
}

static void a_buffer_is_kept_but_never_at_its_first_registration(void **state)
{
    (void)state;
    imported();
    char *base = map(LENGTH);
    assert_int_equal(use(0, base, LENGTH, 1), ONCE);
    use_until(HIT, 0, base, 1);
    while (use(0, base + 1, LENGTH - PAGE, 1) != HIT) { /* a part of it */
        use_until(KEPT, 0, base, 1);
    }
    use_until(HIT, 1, base, 1); /* the other cache has its own */
    munmap(base, LENGTH);
}

static void no_change_is_missed(void **state)
{
    static void (*const changes[])(char *) = {by_munmap, by_raw_munmap, by_mmap_over_it,
                                              by_mremap_onto_it, by_dontneed};

    (void)state;
    imported();
    char *base = map(LENGTH);
    for (unsigned i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        use_until(HIT, 0, base, i);
        changes[i](base);
        assert_int_equal(use(0, base, LENGTH, i + 1), ONCE);
    }
    munmap(base, LENGTH);
}

static void shared_memory_is_never_kept(void **state)
{
    (void)state;
    imported();
    char *base = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(use(0, base, LENGTH, 1), ONCE);
    }
    munmap(base, LENGTH);
}

/* Both have it, it changes, and one of them registers what is there now. */
static void what_another_cache_keeps_is_not_true_again(void **state)
{
    (void)state;
    imported();
    char *base = map(LENGTH);
    for (unsigned i = 0; i < 20; i++) {
        use_until(KEPT, 0, base, i);
        use_until(KEPT, 1, base, i);
        by_mmap_over_it(base);
        use_until(KEPT, 0, base, i + 1);
        (void)use(1, base, LENGTH, i + 1); /* fails if it is what was there before */
    }
    munmap(base, LENGTH);
}

static void freed_memory_is_dropped_without_another_registration(void **state)
{
    (void)state;
    imported();
    char *base = map(LENGTH);
    use_until(KEPT, 0, base, 1);
    munmap(base, LENGTH);
    for (bool is_there = true; is_there; sched_yield()) {
        pthread_mutex_lock(&mm_lock);
        is_there = find_entry(0, base, LENGTH) != NULL;
        pthread_mutex_unlock(&mm_lock);
    }
}

static void what_changes_while_it_is_pinned_is_not_kept(void **state)
{
    unsigned pinned = 1;

    (void)state;
    imported();
    char *base = map(LENGTH);
    assert_int_equal(use(0, base, LENGTH, 1), ONCE);
    assert_false(search(0, base, LENGTH, &pinned));
    by_mmap_over_it(base);
    assert_int_equal(insert(0, base, LENGTH, 1), ONCE);
    munmap(base, LENGTH);
}

/* A thread has pinned memory, and not yet subscribed, which changes before another thread has it
 * watched. */
typedef struct slow {
    char *base;
    atomic_int step;
    outcome_t outcome;
} slow_t;

static void *register_slowly(void *argument)
{
    slow_t *slow = argument;
    unsigned pinned = 1;

    (void)search(0, slow->base, LENGTH, &pinned);
    atomic_store(&slow->step, 1);
    while (atomic_load(&slow->step) != 2) {
        sched_yield();
    }
    slow->outcome = insert(0, slow->base, LENGTH, 1);
    return NULL;
}

static void what_was_pinned_before_it_was_watched_is_not_kept(void **state)
{
    pthread_t thread;

    (void)state;
    imported();
    slow_t slow = {.base = map(LENGTH)};
    assert_int_equal(pthread_create(&thread, NULL, register_slowly, &slow), 0);
    while (atomic_load(&slow.step) != 1) {
        sched_yield();
    }
    by_mmap_over_it(slow.base);
    assert_int_equal(use(1, slow.base, LENGTH, 2), ONCE);
    atomic_store(&slow.step, 2);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(slow.outcome, ONCE);
    munmap(slow.base, LENGTH);
}

static void more_buffers_than_there_is_room_for(void **state)
{
    enum { MANY = 6000, ROUNDS = 4 };
    unsigned hits = 0;

    (void)state;
    imported();
    char *base = map((size_t)MANY * PAGE);
    for (unsigned i = 0; i < MANY * ROUNDS; i++) {
        /* Each a few times in a row. */
        hits += use(0, base + (size_t)(i / ROUNDS) * PAGE, PAGE, 1) == HIT ? 1 : 0;
    }
    assert_true(hits > MANY);
    map_again(base, (size_t)MANY * PAGE);
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(use(0, base + (size_t)i * PAGE, PAGE, 2), ONCE);
    }
    munmap(base, (size_t)MANY * PAGE);
}

/* Threads with buffers of their own, side by side, which they change and use, in any cache. */
enum { THREADS = 3, BUFFERS = 8, TURNS = 2000 };

typedef struct storm {
    pthread_t thread;
    char *base;
    uint64_t chance;
    unsigned hits, wrong;
} storm_t;

/* As libfabric's allocations may. */
static void unmap_with_the_lock_held(char *base)
{
    pthread_mutex_lock(&mm_lock);
    map_again(base, LENGTH);
    pthread_mutex_unlock(&mm_lock);
}

static void *run_storm(void *argument)
{
    storm_t *storm = argument;
    unsigned now[BUFFERS] = {0};

    for (unsigned turn = 0; turn < TURNS; turn++) {
        const uint64_t lot = chance_next(&storm->chance) >> 16;
        const unsigned number = lot % BUFFERS;
        const int cache = (int)((lot >> 8) % CACHES);
        char *base = storm->base + (size_t)number * LENGTH;
        unsigned pinned = now[number];

        if ((lot >> 16) % 8 == 0) {
            now[number]++;
            if ((lot >> 24) % 2 == 0) {
                map_again(base, LENGTH);
            } else {
                unmap_with_the_lock_held(base);
            }
        } else if (search(cache, base, LENGTH, &pinned)) {
            storm->hits++;
            storm->wrong += pinned != now[number] ? 1 : 0;
        } else {
            (void)insert(cache, base, LENGTH, now[number]);
        }
    }
    return NULL;
}

static void threads_never_use_what_is_gone(void **state)
{
    storm_t storms[THREADS];
    unsigned hits = 0;

    (void)state;
    imported();
    char *base = map((size_t)THREADS * BUFFERS * LENGTH);
    for (unsigned i = 0; i < THREADS; i++) {
        storms[i] = (storm_t){.base = base + (size_t)i * BUFFERS * LENGTH, .chance = i + 1};
        assert_int_equal(pthread_create(&storms[i].thread, NULL, run_storm, &storms[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(storms[i].thread, NULL), 0);
        assert_int_equal(storms[i].wrong, 0);
        hits += storms[i].hits;
    }
    assert_true(hits > 0);
    munmap(base, (size_t)THREADS * BUFFERS * LENGTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_refused_says_why),
        cmocka_unit_test(a_buffer_is_kept_but_never_at_its_first_registration),
        cmocka_unit_test(no_change_is_missed),
        cmocka_unit_test(shared_memory_is_never_kept),
        cmocka_unit_test(what_another_cache_keeps_is_not_true_again),
        cmocka_unit_test(freed_memory_is_dropped_without_another_registration),
        cmocka_unit_test(what_changes_while_it_is_pinned_is_not_kept),
        cmocka_unit_test(what_was_pinned_before_it_was_watched_is_not_kept),
        cmocka_unit_test(more_buffers_than_there_is_room_for),
        cmocka_unit_test(threads_never_use_what_is_gone)};

    alarm(UNIT_PATIENCE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

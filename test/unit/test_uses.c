/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Uses of regions by many threads: counted by each for itself, seen by who retires; records used
 * again; and all of it at once, against a device and a memory that notice what must not happen.
 */
#include "registry.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

#define UNLIMITED REGX_UNLIMITED

/* Barriers (syscall is linked by --wrap). */
static struct {
    _Atomic unsigned count;
    bool fail;
    _Atomic uint64_t *uses; /* what becomes visible by the barrier, and not before */
} barriers;

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (number == SYS_membarrier && a == MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        barriers.count++;
        if (barriers.fail) {
            errno = ENOMEM;
            return -1;
        }
        if (barriers.uses != NULL) {
            *barriers.uses += REGX_USE_ACQUIRED;
        }
    }
    return __real_syscall(number, a, b, c, d, e, f);
}

/* Also after a failure, for the tests that follow. */
static int free_barriers(void **state)
{
    (void)state;
    barriers.fail = false;
    barriers.uses = NULL;
    return 0;
}

/* As where the kernel has no membarrier. */
static void use_fences(regx_cache_t *cache, bool fences)
{
    if (fences) {
        cache->fences = true;
        cache->fast = UINT64_MAX;
    }
}

static registry_t *open_threaded(uint64_t count, bool asks, bool fences)
{
    registry_t *r = registry_open(UNLIMITED, count, REGX_ADMIT_FIRST, asks);

    r->counters.threads = true;
    use_fences(r->cache, fences);
    return r;
}

static void run(void *(*function)(void *), void *argument)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, function, argument), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

typedef struct job {
    registry_t *r;
    regx_region_t regions[8];
    served_t served[8];
} job_t;

static void *release_all(void *argument)
{
    job_t *job = argument;

    for (unsigned i = 0; i < 8; i++) {
        regx_region_release(&job->r->registry, &job->regions[i]);
    }
    return NULL;
}

static void *acquire_all(void *argument)
{
    job_t *job = argument;

    for (unsigned i = 0; i < 8; i++) {
        registry_get(job->r, 0x100000, PAGE, &job->regions[i]);
    }
    return NULL;
}

static void a_release_by_another_thread_counts(void **state)
{
    (void)state;
    for (int fences = 0; fences <= 1; fences++) {
        job_t job = {.r = open_threaded(1, false, fences)};

        for (unsigned round = 0; round < 4; round++) {
            /* By this thread and another, or by two others; both ways. */
            if (round % 2 == 0) {
                acquire_all(&job);
            } else {
                run(acquire_all, &job);
            }
            assert_int_equal(registry_served(job.r, 0x900000, PAGE), ONCE); /* no room: in use */
            if (round / 2 == 0) {
                run(release_all, &job);
            } else {
                release_all(&job);
            }
            assert_int_equal(registry_served(job.r, 0x900000, PAGE), MISS);
            assert_int_equal(job.r->live, 1);
        }
        registry_close(job.r);
    }
}

static void *serve_all(void *argument)
{
    job_t *job = argument;

    for (unsigned i = 0; i < 8; i++) {
        job->served[i] = registry_served(job->r, 0x100000, PAGE);
    }
    return NULL;
}

static unsigned seats(const registry_t *r)
{
    unsigned count = 0;

    for (const regx_seat_t *seat = r->cache->seats; seat != NULL; seat = seat->next) {
        count++;
    }
    return count;
}

static void threads_that_end_leave_their_seats_and_their_uses(void **state)
{
    job_t job = {.r = open_threaded(UNLIMITED, false, false)};

    (void)state;
    registry_use(job.r, 0x100000, PAGE);
    for (unsigned round = 0; round < 50; round++) {
        run(serve_all, &job);
        for (unsigned i = 0; i < 8; i++) {
            assert_int_equal(job.served[i], HIT);
        }
    }
    assert_in_range(seats(job.r), 3, 4); /* the common one, ours, and one for all of them */
    run(acquire_all, &job);              /* its uses outlive it */
    registry_log(job.r, 0x100000, PAGE);
    run(serve_all, &job);
    assert_int_equal(job.served[0], MISS);
    assert_int_equal(job.r->live, 2);
    regx_registry_progress(&job.r->registry);
    assert_int_equal(job.r->live, 2);
    release_all(&job);
    regx_registry_progress(&job.r->registry);
    assert_int_equal(job.r->live, 1);
    assert_int_equal(job.r->counters.hits, 50 * 8 + 8 + 7);
    registry_close(job.r);
}

/* One thread and several caches, as in tests of several processes. */
static void a_thread_has_a_seat_in_each_cache(void **state)
{
    registry_t *r[3];

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        r[i] = open_threaded(UNLIMITED, false, false);
    }
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(registry_served(r[i], 0x100000, PAGE), round == 0 ? MISS : HIT);
            assert_int_equal(registry_served(r[i], 0x100000, PAGE), HIT);
        }
    }
    assert_int_equal(seats(r[0]), 2);
    registry_close(r[0]);
    r[0] = open_threaded(UNLIMITED, false, false); /* perhaps where the other was */
    assert_int_equal(registry_served(r[0], 0x100000, PAGE), MISS);
    for (unsigned i = 0; i < 3; i++) {
        registry_close(r[i]);
    }
}

/* What the front table remembers may be another region by now. */
static void a_record_used_again_is_another_region(void **state)
{
    registry_t *r = open_threaded(UNLIMITED, false, false);
    regx_region_t region;

    (void)state;
    for (uintptr_t round = 1; round <= 100; round++) {
        const uintptr_t at = round << 16;

        registry_get(r, at, 2 * PAGE, &region);
        assert_int_equal(region.kept, 1); /* the same record each time */
        regx_region_release(&r->registry, &region);
        assert_int_equal(registry_served(r, at, 2 * PAGE), HIT);
        if (round > 1) {
            registry_get(r, at - 0x10000, PAGE, &region); /* where it was before */
            assert_ptr_equal(region.mr->base, at - 0x10000);
            regx_region_release(&r->registry, &region);
            registry_log(r, at - 0x10000, PAGE);
        }
        registry_log(r, at, PAGE);
        regx_registry_progress(&r->registry);
        assert_int_equal(r->live, 0);
    }
    assert_in_range(r->cache->regions.used, 2, 3);
    registry_close(r);
}

/* ---- the front table ---- */

/* The next page, from that one on, whose requests are looked for in set 0; also: first in `way`. */
static uintptr_t next_of_set(uintptr_t page, uint32_t way)
{
    regx_front_key_t key;

    do {
        page += PAGE;
        key = regx_front_key(page);
    } while (key.set != 0 || (way < REGX_FRONT_WAYS && key.way != way));
    return page;
}

/* Places that name a region for requests that begin there, and those of them that name that one. */
static unsigned places(uintptr_t at, uint32_t number, unsigned *right)
{
    const regx_front_key_t key = regx_front_key(at);
    unsigned count = 0;

    *right = 0;
    for (uint32_t probe = 0; probe < REGX_FRONT_WAYS; probe++) {
        const uint32_t entry = regx_front_entry(regx_here.seat, &key, probe);

        if (entry != 0 && regx_front_is(entry, &key)) {
            count++;
            *right += regx_front_number(entry) == number;
        }
    }
    return count;
}

static bool is_in_front(registry_t *r, uintptr_t at)
{
    unsigned right;

    places(at, regx_index_exact(&r->cache->index, at, at + PAGE), &right);
    return right == 1;
}

/* A set of the front table is full of what nobody asks for, under numbers that are alive again. */
static registry_t *open_with_a_full_set(uintptr_t *last)
{
    registry_t *r = open_threaded(UNLIMITED, false, false);
    uintptr_t at = 0;

    for (unsigned i = 0; i < REGX_FRONT_WAYS; i++) {
        at = next_of_set(at, REGX_FRONT_WAYS);
        registry_use(r, at, PAGE);
    }
    registry_log(r, PAGE, at);
    regx_registry_progress(&r->registry);
    assert_int_equal(r->live, 0);
    for (uintptr_t i = 1; i <= REGX_FRONT_WAYS; i++) {
        registry_use(r, ((uintptr_t)1 << 40) + i * PAGE, PAGE);
    }
    assert_int_equal(r->cache->regions.used, 1 + REGX_FRONT_WAYS);
    for (unsigned i = 0; i < REGX_FRONT_WAYS; i++) {
        assert_true(regx_here.seat->front[0][i] != 0);
    }
    *last = at;
    return r;
}

static void what_is_asked_for_washes_out_what_is_not(void **state)
{
    uintptr_t live[REGX_FRONT_WAYS];
    unsigned found = 0;

    (void)state;
    /* Two that are looked for in the same place first do not push out each other. */
    registry_t *r = open_with_a_full_set(&live[0]);

    live[0] = next_of_set(live[0], 0);
    live[1] = next_of_set(live[0], 0);
    for (unsigned round = 0; round < 10; round++) {
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(registry_served(r, live[i], PAGE), round == 0 ? MISS : HIT);
            assert_true(is_in_front(r, live[i]));
            assert_true(round == 0 || is_in_front(r, live[1 - i]));
        }
    }
    registry_close(r);

    /* As many as there are places, wherever they are looked for first: soon all of them are there.
     */
    for (uint32_t way = 0; way <= REGX_FRONT_WAYS; way++) {
        r = open_with_a_full_set(&live[0]);
        live[0] = next_of_set(live[0], way);
        for (unsigned i = 1; i < REGX_FRONT_WAYS; i++) {
            live[i] = next_of_set(live[i - 1], way);
        }
        found = 0;
        for (unsigned round = 0; round < 100 && found < REGX_FRONT_WAYS; round++) {
            found = 0;
            for (unsigned i = 0; i < REGX_FRONT_WAYS; i++) {
                registry_use(r, live[i], PAGE);
            }
            for (unsigned i = 0; i < REGX_FRONT_WAYS; i++) {
                found += is_in_front(r, live[i]);
            }
        }
        assert_int_equal(found, REGX_FRONT_WAYS);
        registry_close(r);
    }
}

static uint32_t first_place(uintptr_t at)
{
    const regx_front_key_t key = regx_front_key(at);

    return regx_front_number(regx_front_entry(regx_here.seat, &key, 0));
}

/* Where a region was that is another by now, the look-ups do not come upon that one first. */
static void what_is_elsewhere_by_now_makes_way(void **state)
{
    registry_t *r = open_threaded(UNLIMITED, false, false);
    regx_region_t region;

    (void)state;
    registry_get(r, 0x100000, PAGE, &region);
    const uint32_t number = region.kept;

    regx_region_release(&r->registry, &region);
    registry_log(r, 0x100000, PAGE);
    regx_registry_progress(&r->registry);
    registry_get(r, 0x900000, PAGE, &region);
    assert_int_equal(region.kept, number);
    regx_region_release(&r->registry, &region);
    assert_int_equal(first_place(0x100000), number);
    registry_get(r, 0x100000, PAGE, &region);
    assert_true(region.kept != number);
    assert_int_equal(first_place(0x100000), region.kept);
    regx_region_release(&r->registry, &region);
    registry_close(r);
}

/* Two pages that the front table cannot tell apart are both found in it. */
static void the_same_key_twice(void **state)
{
    registry_t *r = open_threaded(UNLIMITED, false, false);
    const uintptr_t at = 0x100000;
    const regx_front_key_t key = regx_front_key(at);
    uintptr_t last = 1, apart = 1; /* Fibonacci numbers, which the hash spreads least */
    regx_front_key_t other;

    (void)state;
    do {
        const uintptr_t next = last + apart;

        last = apart;
        apart = next;
        other = regx_front_key(at + apart * PAGE);
    } while (key.set != other.set || key.way != other.way || key.tag != other.tag);
    for (unsigned round = 0; round < 3; round++) {
        assert_int_equal(registry_served(r, at, PAGE), round == 0 ? MISS : HIT);
        assert_int_equal(registry_served(r, at + apart * PAGE, PAGE), round == 0 ? MISS : HIT);
        unsigned right;

        assert_int_equal(places(at, first_place(at), &right), 2);
    }
    registry_close(r);
}

/* ---- dead and in use ---- */

/* Uses that a look-up takes back: region dead, or not known to be true. */
static void a_refused_use_holds_nothing(void **state)
{
    (void)state;
    for (int fences = 0; fences <= 1; fences++) {
        registry_t *r = open_threaded(UNLIMITED, true, fences);
        regx_region_t held;

        registry_use(r, 0x100000, PAGE);
        r->loud = true;
        assert_int_equal(registry_served(r, 0x100000, PAGE), ONCE);
        r->loud = false;
        registry_get(r, 0x100000, PAGE, &held);
        registry_log(r, 0x100000, PAGE);
        assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
        regx_registry_progress(&r->registry);
        assert_int_equal(r->live, 2);
        regx_region_release(&r->registry, &held);
        regx_registry_progress(&r->registry);
        assert_int_equal(r->live, 1);
        registry_close(r);
    }
}

static void end_it_while_asking(registry_t *r)
{
    r->asking = NULL;
    registry_log(r, 0x100000, PAGE);
    regx_registry_progress(&r->registry);
    assert_int_equal(r->counters.invalidations, 1);
    assert_int_equal(r->live, 1); /* in use, as far as anybody can see */
    assert_false(r->cache->work);
}

/* It was looked at while the look-up held it: the look-up is the last to know. */
static void a_refused_use_hands_on_what_it_held_up(void **state)
{
    (void)state;
    for (int fences = 0; fences <= 1; fences++) {
        registry_t *r = open_threaded(UNLIMITED, true, fences);

        registry_use(r, 0x100000, PAGE);
        r->asking = end_it_while_asking;
        assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
        assert_null(r->asking);
        regx_registry_progress(&r->registry);
        assert_int_equal(r->live, 1); /* the new one */
        registry_close(r);
    }
}

/* A use whose count nobody sees before a barrier, of a region that died after it was found. */
static void uses_are_counted_after_a_barrier(void **state)
{
    registry_t *r = open_threaded(UNLIMITED, false, false);
    regx_region_t held;

    (void)state;
    if (r->cache->fences) {
        registry_close(r);
        skip();
    }
    registry_get(r, 0x100000, PAGE, &held);
    barriers.uses = &regx_here.seat->uses[held.kept];
    *barriers.uses -= REGX_USE_ACQUIRED;
    registry_log(r, 0x100000, PAGE);
    regx_registry_progress(&r->registry);
    barriers.uses = NULL;
    assert_int_equal(r->live, 1);
    regx_registry_progress(&r->registry);
    assert_int_equal(r->live, 1);
    regx_region_release(&r->registry, &held);
    regx_registry_progress(&r->registry);
    assert_int_equal(r->live, 0);
    registry_close(r);
}

/* One for all that died meanwhile, none for nothing; without one nothing is deregistered. */
static void a_barrier_is_for_a_batch(void **state)
{
    enum { COUNT = 100 };

    (void)state;
    for (int fences = 0; fences <= 1; fences++) {
        registry_t *r = open_threaded(UNLIMITED, false, fences);
        const unsigned one = r->cache->fences ? 0 : 1;

        for (unsigned round = 0; round < 3; round++) {
            for (uintptr_t i = 1; i <= COUNT; i++) {
                registry_use(r, i * PAGE, PAGE);
            }
            registry_log(r, PAGE, COUNT * PAGE);
            barriers.count = 0;
            if (round == 1) {
                barriers.fail = true;
                regx_registry_progress(&r->registry);
                assert_int_equal(barriers.count, one);
                assert_int_equal(r->live == COUNT, one == 1);
                barriers.fail = false;
                barriers.count = 0;
            }
            for (unsigned i = 0; i < COUNT; i++) {
                regx_registry_progress(&r->registry);
            }
            assert_int_equal(barriers.count, one);
            assert_int_equal(r->live, 0);
        }
        registry_use(r, PAGE, PAGE);
        barriers.fail = true;
        registry_close(r); /* needs none, and asserts that all is deregistered */
        barriers.fail = false;
    }
}

/* Many that are dead and in use: progress does not look at them again and again for nothing. */
static void progress_with_nothing_to_do_does_nothing(void **state)
{
    enum { COUNT = 500 };
    static regx_region_t held[COUNT];
    registry_t *r = open_threaded(UNLIMITED, false, false);

    (void)state;
    for (uintptr_t i = 0; i < COUNT; i++) {
        registry_get(r, (i + 1) * PAGE, PAGE, &held[i]);
    }
    registry_log(r, PAGE, COUNT * PAGE);
    for (unsigned i = 0; i < COUNT && (i == 0 || r->cache->work); i++) {
        regx_registry_progress(&r->registry);
    }
    assert_false(r->cache->work);
    assert_int_equal(r->live, COUNT);
    regx_region_release(&r->registry, &held[COUNT / 2]);
    for (unsigned i = 0; i < COUNT && r->cache->work; i++) {
        regx_registry_progress(&r->registry);
    }
    assert_false(r->cache->work);
    assert_int_equal(r->live, COUNT - 1);
    for (unsigned i = 0; i < COUNT; i++) {
        if (i != COUNT / 2) {
            regx_region_release(&r->registry, &held[i]);
        }
    }
    registry_close(r);
}

/* ---- all at once ----
 * Memory of a few pages, each of a generation that grows when the page is changed; a device that
 * pins the generations it finds. Who uses a range must get a registration that pinned, of each of
 * its pages, no generation older than it was before the look-up, and that lives until the release.
 */

enum { PAGES = 64, SLOTS = 4096, THREADS = 4, RACES = 500 };

typedef struct pin { /* a registration */
    _Atomic bool live;
    uintptr_t first, count;
    uint64_t generations[PAGES];
} pin_t;

typedef struct world {
    regx_transport_t transport; /* first */
    regx_watch_t watch;
    regx_counters_t counters;
    regx_registry_t registry;
    pin_t pins[SLOTS];
    _Atomic unsigned next;
    _Atomic unsigned pinned;
    _Atomic uint64_t generations[PAGES];
    pthread_rwlock_t changing[PAGES]; /* hooks: nobody uses what is being changed */
    _Atomic unsigned under_way;       /* notifier: anybody may, the watch says so */
    pthread_mutex_t reader;
    _Atomic bool stop;
    bool asks;
    bool careless; /* the application has no order of its own: any content may be right */
} world_t;

static void broken(const char *what)
{
    fprintf(stderr, "%s\n", what);
    abort();
}

static regx_status_t world_reg(regx_transport_t *transport, void *base, size_t length,
                               unsigned access, regx_mr_t *mr)
{
    world_t *world = (world_t *)transport;
    const uintptr_t first = (uintptr_t)base / PAGE - 1;
    pin_t *pin;

    if (world->pinned > 200) {
        return REGX_NO_MEMORY;
    }
    do {
        pin = &world->pins[world->next++ % SLOTS];
    } while (atomic_exchange(&pin->live, true));
    world->pinned++;
    pin->first = first;
    pin->count = length / PAGE;
    for (uintptr_t i = 0; i < pin->count; i++) {
        pin->generations[first + i] = world->generations[first + i];
    }
    *mr = (regx_mr_t){.base = base, .length = length, .access = access, .handle = pin};
    return REGX_OK;
}

static void world_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    pin_t *pin = mr->handle;

    memset(pin->generations, 0, sizeof(pin->generations));
    if (!atomic_exchange(&pin->live, false)) {
        broken("deregistered twice");
    }
    ((world_t *)transport)->pinned--;
    memset(mr, 0xee, sizeof(*mr));
}

static world_t *world_of(regx_watch_t *watch)
{
    return (world_t *)((char *)watch - offsetof(world_t, watch));
}

static bool world_quiet(regx_watch_t *watch, uintptr_t start, uintptr_t end)
{
    (void)start;
    (void)end;
    return world_of(watch)->under_way == 0;
}

static void change(world_t *world, uintptr_t first, uintptr_t count)
{
    const uintptr_t start = (first + 1) * PAGE, end = start + count * PAGE;
    regx_changes_t *changes = world->watch.changes;

    if (!world->asks) { /* a hook: told first; the application keeps its own order */
        for (uintptr_t i = 0; i < count && !world->careless; i++) {
            pthread_rwlock_wrlock(&world->changing[first + i]);
        }
        regx_changes_log(changes, start, end);
        for (uintptr_t i = 0; i < count && !world->careless; i++) {
            world->generations[first + i]++;
            pthread_rwlock_unlock(&world->changing[first + i]);
        }
        return;
    }
    world->under_way++;
    for (uintptr_t i = 0; i < count; i++) {
        world->generations[first + i]++;
    }
    pthread_mutex_lock(&world->reader);
    changes->sequence++;
    world->under_way--; /* read by the one reader, which lets go whoever changed it */
    regx_changes_log(changes, start, end);
    changes->sequence++;
    pthread_mutex_unlock(&world->reader);
}

static void use(world_t *world, uintptr_t first, uintptr_t count, uint64_t *random)
{
    uint64_t before[PAGES];
    regx_region_t region;

    for (uintptr_t i = 0; i < count; i++) {
        if (!world->asks && !world->careless) {
            pthread_rwlock_rdlock(&world->changing[first + i]);
        }
        before[i] = world->generations[first + i];
    }
    if (regx_region_acquire(&world->registry, (void *)((first + 1) * PAGE), count * PAGE,
                            REGX_ACCESS_LOCAL, &region) == REGX_OK) {
        const pin_t *pin = region.mr->handle;

        for (unsigned again = 0; again < 1 + unit_random(random) % 4; again++) {
            for (uintptr_t i = 0; i < count; i++) {
                if (first + i < pin->first || first + i >= pin->first + pin->count) {
                    broken("not all of it is registered");
                }
                if (pin->generations[first + i] < before[i]) {
                    broken("stale, or deregistered while in use");
                }
            }
            if (!pin->live) {
                broken("deregistered while in use");
            }
        }
        regx_region_release(&world->registry, &region);
    }
    for (uintptr_t i = 0; i < count && !world->asks && !world->careless; i++) {
        pthread_rwlock_unlock(&world->changing[first + i]);
    }
}

static void *work(void *argument)
{
    world_t *world = argument;
    uint64_t random = (uintptr_t)&random;

    while (!world->stop) {
        const uint64_t what = unit_random(&random);
        const uintptr_t count = 1 + what % 4;
        const uintptr_t first = (what >> 8) % (PAGES - count);

        if (what >> 16 < UINT64_C(1) << 42) { /* one in 64 */
            change(world, first, count);
        } else if (what >> 16 < UINT64_C(1) << 43) {
            regx_registry_progress(&world->registry);
        } else {
            use(world, first & ~(uintptr_t)1, count, &random);
        }
    }
    return NULL;
}

static const regx_transport_ops_t world_ops = {
    .abi = REGX_TRANSPORT_ABI, .name = "world", .reg = world_reg, .dereg = world_dereg};

static world_t *world_open(bool asks, bool fences)
{
    const regx_cache_config_t config = {
        .bytes = 80 * PAGE, .count = 40, .admit = REGX_ADMIT_SECOND};
    world_t *world = calloc(1, sizeof(*world));

    assert_non_null(world);
    world->asks = asks;
    world->transport.ops = &world_ops;
    world->counters.threads = true;
    world->watch.changes = regx_changes_open();
    world->watch.quiet = asks ? world_quiet : NULL;
    pthread_mutex_init(&world->reader, NULL);
    for (unsigned i = 0; i < PAGES; i++) {
        pthread_rwlock_init(&world->changing[i], NULL);
    }
    assert_int_equal(regx_registry_open(&world->registry, &regx_backend_none, &world->watch,
                                        &config, &world->transport, &world->counters),
                     REGX_OK);
    use_fences(world->registry.cache, fences);
    return world;
}

static void world_close(world_t *world)
{
    regx_registry_close(&world->registry);
    assert_int_equal(world->pinned, 0);
    assert_int_equal(world->counters.registrations, world->counters.deregistrations);
    assert_true(world->counters.hits > 0);
    print_message("# hits %ju misses %ju once %ju evictions %ju invalidations %ju refused %ju\n",
                  (uintmax_t)world->counters.hits, (uintmax_t)world->counters.misses,
                  (uintmax_t)world->counters.uncached, (uintmax_t)world->counters.evictions,
                  (uintmax_t)world->counters.invalidations,
                  (uintmax_t)world->counters.stale_prevented);
    regx_changes_close(world->watch.changes);
    free(world);
}

static void all_at_once(bool asks, bool fences)
{
    world_t *world = world_open(asks, fences);
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, world), 0);
    }
    /* Not how long it takes, but how much is done. */
    while (world->counters.misses < 20000 || world->counters.invalidations < 2000 ||
           world->counters.evictions < 2000) {
        regx_registry_progress(&world->registry);
        sched_yield();
    }
    world->stop = true;
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    world_close(world);
}

static void all_at_once_with_hooks(void **state)
{
    (void)state;
    all_at_once(false, false);
}

static void all_at_once_with_a_notifier(void **state)
{
    (void)state;
    all_at_once(true, false);
}

static void all_at_once_without_membarrier(void **state)
{
    (void)state;
    all_at_once(true, true);
}

/* One page, changed and retired as fast as it is used: what is only just too late must show. */
static void *use_one_page(void *argument)
{
    world_t *world = argument;
    uint64_t random = 1;

    while (!world->stop) {
        use(world, 0, 1, &random);
    }
    return NULL;
}

static void a_race(bool asks, bool fences)
{
    world_t *world = world_open(asks, fences);
    pthread_t thread;

    world->careless = !asks;
    assert_int_equal(pthread_create(&thread, NULL, use_one_page, world), 0);
    for (uint64_t seen = 0; seen < RACES;) {
        regx_registry_progress(&world->registry);
        if (world->counters.misses == seen) {
            sched_yield();
            continue;
        }
        seen = world->counters.misses; /* it is there again */
        for (volatile unsigned wait = 0; wait < seen % 64; wait++) {
        }
        change(world, 0, 1);
    }
    world->stop = true;
    pthread_join(thread, NULL);
    world_close(world);
}

static void a_race_for_one_region_with_hooks(void **state)
{
    (void)state;
    a_race(false, false);
}

static void a_race_for_one_region_with_a_notifier(void **state)
{
    (void)state;
    a_race(true, false);
}

static void a_race_for_one_region_without_membarrier(void **state)
{
    (void)state;
    a_race(false, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_release_by_another_thread_counts),
        cmocka_unit_test(threads_that_end_leave_their_seats_and_their_uses),
        cmocka_unit_test(a_thread_has_a_seat_in_each_cache),
        cmocka_unit_test(a_record_used_again_is_another_region),
        cmocka_unit_test(what_is_asked_for_washes_out_what_is_not),
        cmocka_unit_test(what_is_elsewhere_by_now_makes_way),
        cmocka_unit_test(the_same_key_twice),
        cmocka_unit_test(a_refused_use_holds_nothing),
        cmocka_unit_test(a_refused_use_hands_on_what_it_held_up),
        cmocka_unit_test_teardown(uses_are_counted_after_a_barrier, free_barriers),
        cmocka_unit_test_teardown(a_barrier_is_for_a_batch, free_barriers),
        cmocka_unit_test(progress_with_nothing_to_do_does_nothing),
        cmocka_unit_test(all_at_once_with_hooks),
        cmocka_unit_test(all_at_once_with_a_notifier),
        cmocka_unit_test(all_at_once_without_membarrier),
        cmocka_unit_test(a_race_for_one_region_with_hooks),
        cmocka_unit_test(a_race_for_one_region_with_a_notifier),
        cmocka_unit_test(a_race_for_one_region_without_membarrier),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

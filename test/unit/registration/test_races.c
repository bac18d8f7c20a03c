/* SPDX-License-Identifier: BSD-3-Clause
 *
 * All of a cache at once, by many threads.
 *
 * Memory of a few pages, each of a generation that grows when the page is changed; a device that
 * pins the generations it finds. Who uses a range must get a registration that pinned, of each of
 * its pages, no generation older than it was before the look-up, and that lives until the release.
 */
#include "registry.h"

#include "registration/registry.h"

enum { PAGES = 64, SLOTS = 4096, THREADS = 4, RACES = 500 };

typedef struct pin { /* a registration */
    _Atomic bool live;
    uintptr_t first, count;
    uint64_t generations[PAGES];
} pin_t;

typedef struct world {
    regx_transport_t transport; /* first */
    regx_monitor_t monitor;
    regx_counters_t counters;
    regx_registry_t registry;
    pin_t pins[SLOTS];
    _Atomic unsigned next;
    _Atomic unsigned pinned;
    _Atomic uint64_t generations[PAGES];
    pthread_rwlock_t changing[PAGES]; /* hooks: no thread uses what is being changed */
    _Atomic unsigned under_way;       /* notifier: anybody may, the monitor says so */
    pthread_mutex_t reader;
    _Atomic bool stop;
    bool asks;
    bool careless; /* the application has no order of its own: any content may be right */
} world_t;

static void must(bool so, const char *what)
{
    if (!so) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
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
    must(atomic_exchange(&pin->live, false), "deregistered twice");
    ((world_t *)transport)->pinned--;
    memset(mr, 0xee, sizeof(*mr));
}

static world_t *world_of(regx_monitor_t *monitor)
{
    return (world_t *)((char *)monitor - offsetof(world_t, monitor));
}

static bool world_valid(regx_monitor_t *monitor)
{
    return world_of(monitor)->under_way == 0;
}

static void change(world_t *world, uintptr_t first, uintptr_t count)
{
    const uintptr_t start = (first + 1) * PAGE, end = start + count * PAGE;
    regx_inval_log_t *log = world->monitor.log;

    if (!world->asks) { /* a hook: told first; the application keeps its own order */
        for (uintptr_t i = 0; i < count && !world->careless; i++) {
            pthread_rwlock_wrlock(&world->changing[first + i]);
        }
        regx_inval_log_write(log, start, end);
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
    log->sequence++;
    world->under_way--; /* read by the one reader, which lets the changer go on */
    regx_inval_log_write(log, start, end);
    log->sequence++;
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
    void *base = (void *)((first + 1) * PAGE);
    if (chance_next(random) % 4 == 0
            ? regx_region_acquire_kept(&world->registry, base, count * PAGE, REGX_ACCESS_LOCAL,
                                       &region)
            : regx_region_acquire(&world->registry, base, count * PAGE, REGX_ACCESS_LOCAL,
                                  &region) == REGX_OK) {
        const pin_t *pin = region.mr->handle;

        for (unsigned again = 0; again < 1 + chance_next(random) % 4; again++) {
            for (uintptr_t i = 0; i < count; i++) {
                must(first + i >= pin->first && first + i < pin->first + pin->count,
                     "not all of it is registered");
                must(pin->generations[first + i] >= before[i],
                     "stale, or deregistered while in use");
            }
            must(pin->live, "deregistered while in use");
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
        const uint64_t what = chance_next(&random);
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

typedef struct kind {
    bool asks;
    unsigned applied_max;
} kind_t;

static world_t *world_open(const kind_t *kind)
{
    const regx_cache_config_t config = {.bytes = 80 * PAGE, .count = 40};
    world_t *world = calloc(1, sizeof(*world));

    assert_non_null(world);
    world->asks = kind->asks;
    world->transport.ops = &world_ops;
    world->counters.threads = true;
    world->monitor.log = regx_inval_log_open();
    world->monitor.valid = kind->asks ? world_valid : NULL;
    pthread_mutex_init(&world->reader, NULL);
    for (unsigned i = 0; i < PAGES; i++) {
        pthread_rwlock_init(&world->changing[i], NULL);
    }
    assert_int_equal(regx_registry_open(&world->registry, &world->monitor, &config,
                                        &world->transport, &world->counters),
                     REGX_OK);
    world->registry.cache->applied_max = kind->applied_max;
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
    regx_inval_log_close(world->monitor.log);
    free(world);
}

static void threads_never_use_what_changed(void **state)
{
    world_t *world = world_open(*state);
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        threads[i] = unit_thread(work, world);
    }
    /* Not how long it takes, but how much is done. */
    while (world->counters.misses < 8000 || world->counters.invalidations < 800 ||
           world->counters.evictions < 800) {
        regx_registry_progress(&world->registry);
        sched_yield();
    }
    world->stop = true;
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    world_close(world);
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

static void one_region_is_never_used_too_late(void **state)
{
    world_t *world = world_open(*state);

    world->careless = true;
    const pthread_t thread = unit_thread(use_one_page, world);
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

/* ---- how a cache learns of changes, and how much it acts on at a time ---- */

static kind_t hooks = {.applied_max = REGX_APPLIED_MAX};
static kind_t notifier = {.asks = true, .applied_max = REGX_APPLIED_MAX};
/* Some of what a change touched has ended, and some not: each may be asked for. */
static kind_t hooks_in_parts = {.applied_max = 1};

/* clang-format off */
#define WITH(test, kind) {#test " with " #kind, test, NULL, NULL, &(kind)}
/* clang-format on */

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(threads_never_use_what_changed, hooks),
        WITH(threads_never_use_what_changed, notifier),
        WITH(threads_never_use_what_changed, hooks_in_parts),
        WITH(one_region_is_never_used_too_late, hooks),
        WITH(one_region_is_never_used_too_late, notifier),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Hazards of registration caches, by the numbers of the project's list of what broke others, with
 * each backend that caches. Every byte is compared with what the oracle, as the device, has.
 */
#include "unit.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "change.h"
#include "rig.h"

enum { LENGTH = 64 << 10 };

static rig_t rig;
static bool opened;
static char why[256];

/* ---- what the tests share ---- */

static const char *backend; /* of the test that runs */

static void open_rig(rig_config_t config)
{
    config.backend = backend;
    opened = rig_open(&rig, &config, why, sizeof(why));
    if (!opened) {
        print_message("not tried: %s\n", why);
        skip();
    }
    rig_settle(&rig); /* of the self-test's changes */
}

/* The user's, and root is not charged. */
static void need_locked(size_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    if (geteuid() != 0 && limit.rlim_cur < bytes) {
        print_message("not tried: this user may lock %zu bytes only\n", (size_t)limit.rlim_cur);
        skip();
    }
}

static int setup(void **state)
{
    backend = *state;
    opened = false;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (opened) {
        rig_close(&rig);
    }
    return 0;
}

static uint8_t *map_at(void *where, size_t length)
{
    const int fixed = where == NULL ? 0 : MAP_FIXED_NOREPLACE;
    uint8_t *memory =
        mmap(where, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static transfer_t right(direction_t direction, void *base, size_t length, uint64_t stamp)
{
    const transfer_t transfer = rig_transfer(&rig, direction, base, length, stamp);

    assert_int_equal(transfer.status, REGX_OK);
    assert_int_equal(transfer.right, length);
    return transfer;
}

static uint64_t count(const _Atomic uint64_t *counter)
{
    return rig_count(&rig, counter);
}

/* Acts on all changes so far, and deregisters all that is dead. */
static void settle(void)
{
    unsigned before;

    rig_settle(&rig);
    do {
        before = oracle_registered(rig.oracle);
        regx_registry_progress(&rig.registry);
    } while (oracle_registered(rig.oracle) != before);
}

/* ---- 1 ---- */

static void same_address(direction_t direction)
{
    uint8_t *control, *buffer;
    uint64_t control_hits = 0;

    open_rig((rig_config_t){0});
    control = map_at(NULL, LENGTH);
    buffer = map_at(NULL, LENGTH);
    for (uint64_t round = 1; round <= 10000; round++) {
        rig_fill(buffer, 4096, round);
        assert_false(right(direction, buffer, LENGTH, round).hit);
        rig_settle(&rig);
        right(direction, buffer, LENGTH, round);
        assert_true(right(direction, buffer, 4096, round).hit); /* inside what is kept */
        control_hits += right(direction, control, 4096, round).hit;
        assert_int_equal(munmap(buffer, LENGTH), 0);
        assert_ptr_equal(map_at(buffer, LENGTH), buffer);
        regx_registry_progress(&rig.registry);
    }
    assert_in_range(control_hits, 9900, 9999);
    assert_in_range(oracle_registered(rig.oracle), 1, 2);
    munmap(buffer, LENGTH);
    munmap(control, LENGTH);
}

static void hazard_1_same_address_new_pages_sent(void **state)
{
    (void)state;
    same_address(SEND);
}

static void hazard_1_same_address_new_pages_received(void **state)
{
    (void)state;
    same_address(RECEIVE);
}

/* ---- 3, 5 ---- */

/* What only the kernel can tell of. */
static void need_kernel(void)
{
    if (strcmp(backend, "hooks") == 0) {
        print_message("not tried: hooks are blind to it, as documented\n");
        skip();
    }
}

/* As a statically linked allocator does it. */
static void hazard_3_raw_system_calls(void **state)
{
    uint8_t *buffer;

    (void)state;
    need_kernel();
    open_rig((rig_config_t){0});
    buffer = map_at(NULL, LENGTH);
    for (uint64_t round = 1; round <= 1000; round++) {
        const direction_t direction = round % 2 == 0 ? SEND : RECEIVE;

        rig_fill(buffer, LENGTH, round);
        assert_false(right(direction, buffer, LENGTH, round).hit);
        if (round % 3 == 0) {
            rig_settle(&rig);
            right(direction, buffer, LENGTH, round);
            assert_true(right(direction, buffer, LENGTH, round).hit);
        }
        assert_int_equal(change_munmap(BY_SYSCALL, buffer, LENGTH), 0);
        assert_ptr_equal(map_at(buffer, LENGTH), buffer);
    }
    munmap(buffer, LENGTH);
}

static void *unmap_in_thread(void *buffer)
{
    change_munmap(BY_LIBC, buffer, LENGTH);
    return NULL;
}

/* The kernel's news is there and nobody has read it: who unmapped still waits, and another thread
 * has the address. */
static void hazard_5_news_that_is_not_read(void **state)
{
    uint8_t *buffer;

    (void)state;
    open_rig((rig_config_t){0});
    if (!rig_can_hold(&rig)) {
        print_message("not tried: nothing is read, hooks run in the thread that unmaps\n");
        skip();
    }
    buffer = map_at(NULL, LENGTH);
    for (uint64_t round = 1; round <= 20; round++) {
        const direction_t direction = round % 2 == 0 ? SEND : RECEIVE;
        pthread_t thread;

        rig_fill(buffer, LENGTH, 2 * round);
        right(direction, buffer, LENGTH, round);
        assert_true(right(direction, buffer, LENGTH, round).hit);

        rig_hold(&rig, true);
        assert_int_equal(pthread_create(&thread, NULL, unmap_in_thread, buffer), 0);
        while (!rig_held(&rig)) {
            sched_yield();
        }
        assert_ptr_equal(map_at(buffer, LENGTH), buffer);
        rig_fill(buffer, LENGTH, 2 * round + 1);
        for (unsigned i = 0; i < 3; i++) {
            assert_false(right(direction, buffer, LENGTH, round + i).hit);
        }
        rig_hold(&rig, false);
        pthread_join(thread, NULL);
        right(direction, buffer, LENGTH, round);
        rig_settle(&rig);
        right(direction, buffer, LENGTH, round);
        assert_true(right(direction, buffer, LENGTH, round).hit);
    }
    munmap(buffer, LENGTH);
}

/* ---- 6 ---- */

/* More changes than the log holds, while nobody looks: what changed among them is not used. */
static void hazard_6_a_flush_is_not_lost(void **state)
{
    enum { OTHERS = 64, CHANGES = REGX_CHANGES_RING + 100 };
    uint8_t *buffer, *others;
    uint64_t before;

    (void)state;
    need_locked((size_t)16 << 20);
    open_rig((rig_config_t){0});
    buffer = map_at(NULL, LENGTH);
    others = map_at(NULL, (size_t)OTHERS * LENGTH);
    for (unsigned i = 0; i < OTHERS; i++) {
        right(SEND, others + (size_t)i * LENGTH, LENGTH, 0);
    }
    rig_fill(buffer, LENGTH, 1);
    right(SEND, buffer, LENGTH, 0);
    assert_true(right(SEND, buffer, LENGTH, 0).hit);
    before = count(&rig.counters.invalidations);

    assert_int_equal(munmap(buffer, LENGTH), 0); /* the change that counts, the first */
    assert_ptr_equal(map_at(buffer, LENGTH), buffer);
    for (unsigned i = 0; i < CHANGES; i++) {
        assert_int_equal(madvise(others, 4096, MADV_DONTNEED), 0);
    }
    rig_fill(buffer, LENGTH, 2);
    assert_false(right(SEND, buffer, LENGTH, 0).hit);
    rig_settle(&rig);
    right(SEND, buffer, LENGTH, 0);
    /* All was given up, also what did not change. */
    assert_int_equal(count(&rig.counters.invalidations) - before, OTHERS + 1);
    for (unsigned i = 0; i < OTHERS; i++) {
        assert_false(right(SEND, others + (size_t)i * LENGTH, LENGTH, 0).hit);
        assert_true(right(SEND, others + (size_t)i * LENGTH, LENGTH, 0).hit);
    }
    munmap(buffer, LENGTH);
    munmap(others, (size_t)OTHERS * LENGTH);
}

/* ---- 7 ---- */

static void hazard_7_changed_while_in_use(void **state)
{
    static uint8_t data[LENGTH];
    const size_t half = LENGTH / 2;
    regx_region_t region;
    uint8_t *buffer;

    (void)state;
    open_rig((rig_config_t){0});
    for (unsigned round = 0; round < 3; round++) {
        const uint64_t changes = count(&rig.counters.inuse_changes);
        const unsigned registered = oracle_registered(rig.oracle);

        buffer = map_at(NULL, LENGTH);
        memset(data, 'd', sizeof(data));
        memset(buffer, 'a', LENGTH);
        assert_int_equal(
            regx_region_acquire(&rig.registry, buffer, LENGTH, REGX_ACCESS_REMOTE_WRITE, &region),
            REGX_OK);
        oracle_flight_t *flight = oracle_receive_start(rig.oracle, region.mr, buffer, LENGTH);

        /* Half of it becomes something else. */
        assert_int_equal(munmap(buffer + half, half), 0);
        assert_ptr_equal(map_at(buffer + half, half), buffer + half);
        memset(buffer + half, 'b', half);
        rig_settle(&rig);
        regx_registry_progress(&rig.registry);
        assert_in_range(oracle_registered(rig.oracle), registered + 1, registered + 2);
        /* No new use of the old registration. */
        assert_false(right(SEND, buffer, LENGTH, 0).hit);

        oracle_receive_end(flight, data);
        assert_memory_equal(buffer, data, half); /* what is left of it is received */
        for (size_t i = half; i < LENGTH; i++) {
            assert_int_equal(buffer[i], 'b'); /* and nothing foreign is written */
        }
        regx_region_release(&rig.registry, &region);
        assert_int_equal(count(&rig.counters.inuse_changes) - changes, 1);
        assert_int_equal(munmap(buffer, LENGTH), 0);
        settle();
        assert_int_equal(oracle_registered(rig.oracle), registered);
    }
}

/* ---- 9 ---- */

static void hazard_9_one_munmap_over_5000_regions(void **state)
{
    enum { REGIONS = 5000 };
    uint8_t *memory, *control;

    (void)state;
    need_locked((size_t)32 << 20);
    open_rig((rig_config_t){0});
    control = map_at(NULL, LENGTH);
    memory = map_at(NULL, (size_t)REGIONS * 4096);
    right(SEND, control, LENGTH, 0);
    for (unsigned round = 0; round < 3; round++) {
        const uint64_t before = count(&rig.counters.invalidations);

        for (unsigned i = 0; i < REGIONS; i++) {
            assert_false(right(SEND, memory + (size_t)i * 4096, 4096, 0).hit);
        }
        for (unsigned i = 0; i < REGIONS; i++) {
            assert_true(right(SEND, memory + (size_t)i * 4096, 4096, 0).hit);
        }
        assert_int_equal(oracle_registered(rig.oracle), REGIONS + 1);
        assert_int_equal(munmap(memory, (size_t)REGIONS * 4096), 0);
        assert_ptr_equal(map_at(memory, (size_t)REGIONS * 4096), memory);
        settle();
        assert_int_equal(count(&rig.counters.invalidations) - before, REGIONS);
        assert_int_equal(oracle_registered(rig.oracle), 1);
        assert_true(right(SEND, control, LENGTH, 0).hit);
    }
    munmap(memory, (size_t)REGIONS * 4096);
    munmap(control, LENGTH);
}

/* ---- 13 ---- */

/* Whatever the memory is, the transfer succeeds, twice; kept or not. */
static void both_ways(const char *what, uint8_t *buffer, size_t length)
{
    for (uint64_t i = 1; i <= 2; i++) {
        const transfer_t sent = rig_transfer(&rig, SEND, buffer, length, 0);
        const transfer_t received = rig_transfer(&rig, RECEIVE, buffer, length, i);

        if (sent.status != REGX_OK || sent.right != length || received.status != REGX_OK ||
            received.right != length) {
            fail_msg("%s: send %d, %zu; receive %d, %zu of %zu", what, (int)sent.status, sent.right,
                     (int)received.status, received.right, length);
        }
    }
}

static uint8_t zeros[LENGTH];                /* .bss, never touched before */
static uint8_t ones[LENGTH] = {[100] = 1};   /* .data */
static const uint8_t constant[LENGTH] = {1}; /* .rodata */

static void hazard_13_any_memory_can_be_used(void **state)
{
    uint8_t stack[8192];
    char name[] = "/tmp/regx-XXXXXX";
    uint8_t *memory;

    (void)state;
    need_locked((size_t)8 << 20);
    open_rig((rig_config_t){0});
    memory = map_at(NULL, LENGTH);
    both_ways("never touched", memory, LENGTH);
    munmap(memory, LENGTH);
    both_ways(".bss", zeros, sizeof(zeros));
    both_ways(".data", ones, sizeof(ones));
    memset(stack, 1, sizeof(stack));
    both_ways("stack", stack, sizeof(stack));
    memory = malloc(LENGTH);
    both_ways("heap", memory, LENGTH);
    free(memory);

    memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    both_ways("shared", memory, LENGTH);
    munmap(memory, LENGTH);

    int file = memfd_create("hazard", MFD_CLOEXEC);
    assert_int_equal(ftruncate(file, LENGTH), 0);
    memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    both_ways("memory file", memory, LENGTH);
    munmap(memory, LENGTH);
    close(file);

    file = mkstemp(name);
    assert_true(file >= 0);
    unlink(name);
    assert_int_equal(ftruncate(file, LENGTH), 0);
    memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    both_ways("file, mapped private", memory, LENGTH);
    munmap(memory, LENGTH);

    memory = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB,
                  -1, 0);
    if (memory != MAP_FAILED) {
        both_ways("hugetlb", memory, 2 << 20);
        munmap(memory, 2 << 20);
    }

    /* What the device does not take is told, twice the same, and leaves nothing behind. */
    memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    settle();
    const unsigned before = oracle_registered(rig.oracle);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(rig_transfer(&rig, SEND, memory, LENGTH, 0).status, REGX_DENIED);
        assert_int_equal(rig_transfer(&rig, SEND, (uint8_t *)(uintptr_t)constant, LENGTH, 0).status,
                         REGX_DENIED);
        assert_int_equal(rig_transfer(&rig, SEND, (void *)4096, LENGTH, 0).status, REGX_DENIED);
        assert_int_equal(rig_transfer(&rig, SEND, NULL, LENGTH, 0).status, REGX_INVALID);
    }
    assert_in_range(oracle_registered(rig.oracle), 0, before);
    munmap(memory, LENGTH);
}

/* ---- 16 ---- */

/* The device has room for 16,384 registrations, and the cache does not know. */
static void hazard_16_70000_buffers(void **state)
{
    enum { BUFFERS = 70000 };
    uint8_t *memory;

    (void)state;
    need_locked((size_t)128 << 20);
    open_rig((rig_config_t){0});
    memory = map_at(NULL, (size_t)BUFFERS * 4096);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < BUFFERS; i++) {
            rig_fill(memory + (size_t)i * 4096, 64, i);
            right(i % 2 == 0 ? SEND : RECEIVE, memory + (size_t)i * 4096, 4096, i);
        }
    }
    assert_in_range(oracle_registered(rig.oracle), ORACLE_BUFFERS_PER_RING / 2,
                    ORACLE_BUFFERS_PER_RING);
    /* The last ones are kept. */
    assert_true(right(SEND, memory + (BUFFERS - 2) * (size_t)4096, 4096, 0).hit);
    munmap(memory, (size_t)BUFFERS * 4096);
}

/* The same number of mappings of their own, so that none can be armed together with another. */
static void hazard_16_many_mappings(void **state)
{
    enum { MAPPINGS = 20000 };
    uint8_t *memory;

    (void)state;
    open_rig((rig_config_t){0});
    /* Every other page; what is between belongs to nobody. */
    memory = map_at(NULL, (size_t)MAPPINGS * 8192);
    for (unsigned i = 0; i < MAPPINGS; i++) {
        assert_int_equal(munmap(memory + (size_t)i * 8192 + 4096, 4096), 0);
    }
    for (unsigned i = 0; i < MAPPINGS; i++) {
        uint8_t *buffer = memory + (size_t)i * 8192;

        rig_fill(buffer, 64, i);
        right(SEND, buffer, 4096, 0);
        right(RECEIVE, buffer, 4096, i);
    }
    if (strcmp(backend, "hooks") != 0) { /* a tenth of what the kernel allows is watched */
        assert_in_range(oracle_registered(rig.oracle), 1, MAPPINGS - 1);
        assert_true(rig_reason(&rig, "not watched: too many mappings") > 0);
    }
    /* The application still can map. */
    munmap(map_at(NULL, LENGTH), LENGTH);
    munmap(memory, (size_t)MAPPINGS * 8192);
}

/* ---- 17 ---- */

enum { DEAD = 16 }; /* regions that were given up and are not yet deregistered */

static void small_cache(rig_config_t config, unsigned most)
{
    enum { BUFFERS = 40 };
    uint8_t *memory;

    open_rig(config);
    memory = map_at(NULL, (size_t)BUFFERS * LENGTH);
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < BUFFERS; i++) {
            uint8_t *buffer = memory + (size_t)i * LENGTH;

            rig_fill(buffer, LENGTH, round * BUFFERS + i);
            right(SEND, buffer, LENGTH, 0);
            right(SEND, buffer, LENGTH, 0);
            right(RECEIVE, buffer + 5, LENGTH / 2, i);
            assert_in_range(oracle_registered(rig.oracle), 0, most);
        }
        if (round % 4 == 3) {
            assert_int_equal(munmap(memory, (size_t)BUFFERS * LENGTH), 0);
            assert_ptr_equal(map_at(memory, (size_t)BUFFERS * LENGTH), memory);
        }
    }
    assert_true(count(&rig.counters.hits) > 0);
    munmap(memory, (size_t)BUFFERS * LENGTH);
    settle();
    assert_int_equal(oracle_registered(rig.oracle), 0);
}

static void hazard_17_a_cache_of_one_region(void **state)
{
    (void)state;
    small_cache((rig_config_t){.count = 1}, 1 + DEAD);
}

static void hazard_17_a_cache_of_one_megabyte(void **state)
{
    (void)state;
    small_cache((rig_config_t){.bytes = 1 << 20}, 16 + DEAD);
}

static void hazard_17_a_cache_smaller_than_any_region(void **state)
{
    enum { ROUNDS = 10 };
    uint8_t *buffer;

    (void)state;
    open_rig((rig_config_t){.bytes = 4096});
    buffer = map_at(NULL, LENGTH);
    for (unsigned i = 0; i < ROUNDS; i++) {
        rig_fill(buffer, LENGTH, i);
        assert_false(right(SEND, buffer, LENGTH, 0).hit);
    }
    assert_int_equal(count(&rig.counters.uncached), ROUNDS);
    settle();
    assert_int_equal(oracle_registered(rig.oracle), 0);
    munmap(buffer, LENGTH);
}

/* ---- 18 ---- */

static void hazard_18_pinned_memory_returns_when_idle(void **state)
{
    uint64_t before;

    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("not tried: the sanitizers' malloc keeps what is freed\n");
    skip();
#endif
    need_locked((size_t)16 << 20);
    open_rig((rig_config_t){0});
    before = oracle_pinned();
    mallopt(M_MMAP_THRESHOLD, 1 << 20); /* stays: malloc would keep what was freed once */
    for (unsigned i = 1; i <= 200; i++) {
        uint8_t *buffer = malloc(4 << 20); /* mapped, and unmapped again by free */

        rig_fill(buffer, 4 << 20, i);
        right(SEND, buffer, 4 << 20, 0);
        free(buffer);
        regx_registry_progress(&rig.registry);
    }
    settle(); /* and no further transfer */
    assert_int_equal(oracle_pinned(), before);
    assert_int_equal(oracle_registered(rig.oracle), 0);
}

/* ---- 23 ---- */

static void hazard_23_parts_of_huge_pages(void **state)
{
    const size_t huge = 2 << 20;
    uint8_t *memory, *at;

    (void)state;
    need_locked((size_t)32 << 20);
    open_rig((rig_config_t){0});
    memory = map_at(NULL, 4 * huge);
    at = memory + (huge - (uintptr_t)memory % huge) % huge;
    madvise(at, 2 * huge, MADV_HUGEPAGE);
    rig_fill(at, 2 * huge, 1);
    right(SEND, at, 2 * huge, 0);
    assert_true(right(RECEIVE, at + 4096, huge, 2).status == REGX_OK);
    for (size_t part = 4096; part <= huge; part *= 8) {
        /* A part across the border of two huge pages goes and comes back. */
        uint8_t *hole = at + huge - part / 2 - part / 2 % 4096;

        right(SEND, at, 2 * huge, 0);
        assert_true(right(SEND, at, 2 * huge, 0).hit);
        assert_int_equal(munmap(hole, part), 0);
        assert_ptr_equal(map_at(hole, part), hole);
        rig_fill(hole, part, part);
        assert_false(right(SEND, at, 2 * huge, 0).hit);
        assert_false(right(RECEIVE, at, 2 * huge, part).hit);
    }
    munmap(memory, 4 * huge);
}

/* ---- the run ---- */

#define HAZARD(function)                                                                           \
    {                                                                                              \
#function, function, setup, teardown, NULL                                                 \
    }

int main(void)
{
    static const struct CMUnitTest hazards[] = {
        HAZARD(hazard_1_same_address_new_pages_sent),
        HAZARD(hazard_1_same_address_new_pages_received),
        HAZARD(hazard_3_raw_system_calls),
        HAZARD(hazard_5_news_that_is_not_read),
        HAZARD(hazard_6_a_flush_is_not_lost),
        HAZARD(hazard_7_changed_while_in_use),
        HAZARD(hazard_9_one_munmap_over_5000_regions),
        HAZARD(hazard_13_any_memory_can_be_used),
        HAZARD(hazard_16_70000_buffers),
        HAZARD(hazard_16_many_mappings),
        HAZARD(hazard_17_a_cache_of_one_region),
        HAZARD(hazard_17_a_cache_of_one_megabyte),
        HAZARD(hazard_17_a_cache_smaller_than_any_region),
        HAZARD(hazard_18_pinned_memory_returns_when_idle),
        HAZARD(hazard_23_parts_of_huge_pages),
    };
    static const char *const with[] = {"hooks", "notifier", "notifier/scan", "hooks+notifier"};
    enum {
        HAZARDS = sizeof(hazards) / sizeof(hazards[0]),
        BACKENDS = sizeof(with) / sizeof(with[0])
    };
    static struct CMUnitTest tests[HAZARDS * BACKENDS];
    static char names[HAZARDS * BACKENDS][80];

    for (size_t i = 0; i < HAZARDS * BACKENDS; i++) {
        tests[i] = hazards[i % HAZARDS];
        tests[i].initial_state = (void *)(uintptr_t)with[i / HAZARDS];
        snprintf(names[i], sizeof(names[i]), "%s with %s", tests[i].name, with[i / HAZARDS]);
        tests[i].name = names[i];
    }
    rig_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

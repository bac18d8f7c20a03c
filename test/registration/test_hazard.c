/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Hazards of registration caches, by their numbers in test/hazard/hazards.md, that are of room:
 * more changes than are logged, any memory, more buffers than fit, small caches, and what stays
 * pinned; and what a hit asks the kernel. Each is tried with each backend that caches, and every byte is compared with what the
 * oracle, as the device, has. (Other changes of memory: the rows of the table in staleness.md.)
 */
#include "unit.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "../below_room.h"
#include "base/memlock.h"
#include "change.h"
#include "rig.h"

enum { LENGTH = 64 << 10 };

static rig_t rig;
static bool opened;
static regx_error_t why;

static const char *backend; /* of the test that runs */

static void open_rig(rig_config_t config)
{
    config.backend = backend;
    opened = rig_open(&rig, &config, why);
    unit_need(opened, "%s", why);
    rig_settle(&rig); /* of the self-test's changes */
}

/* The user's, and root is not charged. */
static void need_locked(size_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    unit_need(geteuid() == 0 || limit.rlim_cur >= bytes, "this user may lock %zu bytes only",
              (size_t)limit.rlim_cur);
}

static int setup(void **state)
{
    alarm(UNIT_PATIENCE); /* a hang is a failure, not the end of all tests */
    backend = *state;
    opened = false;
    return 0;
}

static int teardown(void **state)
{
    if (opened) {
        rig_close(&rig);
    }
    return 0;
}

/* Anywhere (NULL), where other threads do not map when it is unmapped; or there, where it was. */
static uint8_t *map_at(void *where, size_t length)
{
    uint8_t *memory = where == NULL ? map_below_room(length) : unit_map(where, length);

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

/* How often a registration could not be kept for that reason. */
static uint64_t reason(const char *text)
{
    return regx_tally_find(rig.counters.fallbacks, text)->count;
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

/* Until so many regions are registered, and no more: our thread may still be at work. */
static void await_registered(unsigned regions)
{
    rig_settle(&rig);
    while (oracle_registered(rig.oracle) != regions) {
        regx_registry_progress(&rig.registry);
        sched_yield();
    }
}

/* ---- 6 ---- */

/* More changes than the log holds: what changed among them is not used. No look-up is made
 * meanwhile, so all is given up. */
static void hazard_6_a_flush_is_not_lost(void **state)
{
    enum { OTHERS = 64, CHANGES = REGX_INVAL_LOG_RING + 100 };
    uint8_t *buffer, *others;
    uint64_t before;

    need_locked((size_t)16 << 20);
    open_rig((rig_config_t){.alone = true});
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

/* ---- 13 ---- */

/* Whatever the memory is, the transfer succeeds, twice; kept or not. */
static void both_ways(const char *what, uint8_t *buffer, size_t length)
{
    for (uint64_t i = 1; i <= 2; i++) {
        const transfer_t sent = rig_transfer(&rig, SEND, buffer, length, 0);
        const transfer_t received = rig_transfer(&rig, RECEIVE, buffer, length, i);

        unit_expect(sent.status == REGX_OK && sent.right == length && received.status == REGX_OK &&
                        received.right == length,
                    "%s: send %d, %zu; receive %d, %zu of %zu", what, (int)sent.status, sent.right,
                    (int)received.status, received.right, length);
    }
}

static uint8_t zeros[LENGTH];                /* .bss, never touched before */
static uint8_t ones[LENGTH] = {[100] = 1};   /* .data */
static const uint8_t constant[LENGTH] = {1}; /* .rodata */

static void hazard_13_any_memory_can_be_used(void **state)
{
    uint8_t stack[8192];
    char name[] = "/var/tmp/regx-XXXXXX"; /* on disk: /tmp may be memory */
    uint8_t *memory;

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
        assert_int_equal(rig_transfer(&rig, SEND, NULL, LENGTH, 0).status, REGX_DENIED);
    }
    assert_in_range(oracle_registered(rig.oracle), 0, before);
    munmap(memory, LENGTH);
}

/* ---- 16 ---- */

/* The device has room for fewer registrations, and the cache does not know. */
static void hazard_16_more_buffers_than_the_device_registers(void **state)
{
    enum { ROOM = 256, BUFFERS = 4 * ROOM };
    uint8_t *memory;

    need_locked((size_t)4 << 20);
    open_rig((rig_config_t){.buffers = ROOM});
    memory = map_at(NULL, (size_t)BUFFERS * 4096);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < BUFFERS; i++) {
            rig_fill(memory + (size_t)i * 4096, 64, i);
            right(i % 2 == 0 ? SEND : RECEIVE, memory + (size_t)i * 4096, 4096, i);
        }
    }
    assert_in_range(oracle_registered(rig.oracle), ROOM / 2, ROOM);
    /* The last ones are kept. */
    assert_true(right(SEND, memory + (BUFFERS - 2) * (size_t)4096, 4096, 0).hit);
    munmap(memory, (size_t)BUFFERS * 4096);
}

/* The same number of mappings of their own, so that none can be watched together with another. */
static void hazard_16_many_mappings(void **state)
{
    enum { MAPPINGS = 4000 };
    uint8_t *memory;

    open_rig((rig_config_t){0});
    /* Every other page; what is between is not mapped. */
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
    if (strcmp(backend, "hooks") != 0) { /* the more are watched, the later one more is */
        assert_in_range(oracle_registered(rig.oracle), 1, MAPPINGS - 1);
        assert_true(reason("not watched yet: many mappings are") > 0);
        assert_int_equal(reason("not watched: too many mappings (vm.max_map_count)"), 0);
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
    for (unsigned round = 0; round < 8; round++) {
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
    await_registered(0);
}

static void hazard_17_a_cache_of_one_region_beside_our_thread(void **state)
{
    small_cache((rig_config_t){.count = 1}, 1 + DEAD);
}

static void hazard_17_a_cache_of_one_megabyte(void **state)
{
    small_cache((rig_config_t){.alone = true, .bytes = 1 << 20}, 16 + DEAD);
}

/* ---- what a hit asks the kernel ---- */

/* From here on this thread may end the process, and ask the notifier's question if that is so. By
 * any other system call the kernel kills it. */
static void forbid_system_calls(bool asks)
{
    const uint32_t number = offsetof(struct seccomp_data, nr);
    const uint32_t command = offsetof(struct seccomp_data, args) + sizeof(uint64_t);
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, asks ? SYS_ioctl : UINT32_MAX, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, command),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)UFFDIO_WRITEPROTECT, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
    const struct sock_fprog filter = {.len = sizeof(rules) / sizeof(rules[0]), .filter = rules};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        _exit(EXIT_FAILURE);
    }
}

/* Ends with success if each use was a hit. */
_Noreturn static void hit_without_system_calls(uint8_t *buffer)
{
    enum { USES = 1000 };
    const bool asks = strstr(backend, "notifier") != NULL;
    regx_region_t region;

    if (!rig_open(&rig, &(rig_config_t){.backend = backend}, why)) {
        _exit(EXIT_FAILURE);
    }
    rig_transfer(&rig, SEND, buffer, LENGTH, 0);
    rig_settle(&rig);
    rig_transfer(&rig, SEND, buffer, LENGTH, 0);
    const uint64_t before = count(&rig.counters.hits);
    forbid_system_calls(asks);
    for (unsigned i = 0; i < USES; i++) {
        if (regx_region_acquire(&rig.registry, buffer, LENGTH, REGX_ACCESS_LOCAL, &region) !=
            REGX_OK) {
            _exit(EXIT_FAILURE);
        }
        regx_region_release(&rig.registry, &region);
    }
    _exit(count(&rig.counters.hits) - before == USES ? EXIT_SUCCESS : EXIT_FAILURE);
}

static void a_hit_makes_no_system_call_but_the_notifiers_question(void **state)
{
    uint8_t *buffer = map_at(NULL, LENGTH);
    int status;

    need_locked(LENGTH);
    open_rig((rig_config_t){0}); /* whether there is such a backend */
    rig_close(&rig);
    opened = false;
    const pid_t child = fork();
    if (child == 0) {
        hit_without_system_calls(buffer);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    munmap(buffer, LENGTH);
}

/* ---- 35 ---- */

/* Sent, all freed, and then the program computes: it calls nothing of ours any more. */
static void hazard_35_pinned_memory_returns_while_the_program_computes(void **state)
{
    enum { BUFFERS = 64 };
    uint8_t *buffers[BUFFERS];
    uint64_t before;

    unit_need(strcmp(backend, "hooks") != 0,
              "with hooks alone there is no thread of ours, as documented");
    need_locked((size_t)BUFFERS << 20);
    open_rig((rig_config_t){0});
    before = regx_memlock_pinned();
    for (unsigned i = 0; i < BUFFERS; i++) {
        buffers[i] = map_at(NULL, 1 << 20);
        rig_fill(buffers[i], 1 << 20, i);
        right(SEND, buffers[i], 1 << 20, 0);
    }
    assert_true(regx_memlock_pinned() > before);
    for (unsigned i = 0; i < BUFFERS; i++) {
        munmap(buffers[i], 1 << 20);
    }
    await(regx_memlock_pinned() == before && oracle_registered(rig.oracle) == 0);
}

enum { BACKENDS = 3, NAME_MOST = 80 };

#define HAZARD(function)                                                                           \
    {                                                                                              \
#function, function, setup, teardown, NULL                                                 \
    }

int main(void)
{
    static const char *const with[BACKENDS] = {"hooks", "notifier", "hooks+notifier"};
    static const struct CMUnitTest hazards[] = {
        HAZARD(hazard_6_a_flush_is_not_lost),
        HAZARD(hazard_13_any_memory_can_be_used),
        HAZARD(hazard_16_more_buffers_than_the_device_registers),
        HAZARD(hazard_16_many_mappings),
        HAZARD(hazard_17_a_cache_of_one_region_beside_our_thread),
        HAZARD(hazard_17_a_cache_of_one_megabyte),
        HAZARD(a_hit_makes_no_system_call_but_the_notifiers_question),
        HAZARD(hazard_35_pinned_memory_returns_while_the_program_computes),
    };
    enum { HAZARDS = sizeof(hazards) / sizeof(hazards[0]) };
    static struct CMUnitTest tests[HAZARDS * BACKENDS];
    static char names[HAZARDS * BACKENDS][NAME_MOST];

    for (size_t i = 0; i < HAZARDS * BACKENDS; i++) {
        tests[i] = hazards[i % HAZARDS];
        tests[i].initial_state = (void *)(uintptr_t)with[i / HAZARDS];
        snprintf(names[i], NAME_MOST, "%s with %s", tests[i].name, with[i / HAZARDS]);
        tests[i].name = names[i];
    }
    rig_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Hazards of registration caches, by their numbers in test/hazard/hazards.md: any memory, many mappings,
 * what stays pinned, and what a hit asks the kernel. Each is tried with each backend that caches, and every
 * byte is compared with what the oracle, as the device, has. (Other changes of memory: the rows of the table
 * in staleness.md. Of small caches, and more changes than are logged: test/unit/registration.)
 */
#include "process.h"

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

static void open_rig(void)
{
    opened = rig_open(&rig, backend, 0, why);
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

static void right(direction_t direction, void *base, size_t length, uint64_t stamp)
{
    const transfer_t transfer = rig_transfer(&rig, direction, base, length, stamp);

    assert_int_equal(transfer.status, REGX_OK);
    assert_int_equal(transfer.right, length);
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

/* ---- 13 ---- */

/* Whatever the memory is, the transfer succeeds, twice; kept or not. (Of the heap, shared, of a file in
 * memory, and of huge pages: the rows of the table.) */
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
    open_rig();
    memory = map_at(NULL, LENGTH);
    both_ways("never touched", memory, LENGTH);
    munmap(memory, LENGTH);
    both_ways(".bss", zeros, sizeof(zeros));
    both_ways(".data", ones, sizeof(ones));
    memset(stack, 1, sizeof(stack));
    both_ways("stack", stack, sizeof(stack));
    const int file = mkstemp(name);
    assert_true(file >= 0);
    unlink(name);
    assert_int_equal(ftruncate(file, LENGTH), 0);
    memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    both_ways("file, mapped private", memory, LENGTH);
    munmap(memory, LENGTH);

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

/* Mappings of their own, so that none can be watched together with another. */
static void hazard_16_many_mappings(void **state)
{
    enum { MAPPINGS = 4000 };
    uint8_t *memory;

    open_rig();
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

    if (!rig_open(&rig, backend, 0, why)) {
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

    need_locked(LENGTH);
    open_rig(); /* whether there is such a backend */
    rig_close(&rig);
    opened = false;
    if (process_in_child()) {
        hit_without_system_calls(buffer);
    }
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
    open_rig();
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
        HAZARD(hazard_13_any_memory_can_be_used),
        HAZARD(hazard_16_many_mappings),
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

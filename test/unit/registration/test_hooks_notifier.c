/* SPDX-License-Identifier: BSD-3-Clause
 *
 * hooks+notifier: hooks and kernel into one log, and a count of what only the kernel saw. Where the
 * machine refuses userfaultfd these tests are skipped.
 */
#include "../../below_room.h"
#include "../../registration/hold.h"
#include "hooked.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

static regx_counters_t counters;
static const regx_monitor_config_t config = {.hooks = &hooked_source, .counters = &counters};

#define PAGES 4
static size_t page;

static regx_monitor_t *start(void)
{
    char error[256] = "";
    regx_monitor_t *monitor = NULL;

    page = (size_t)sysconf(_SC_PAGESIZE);
    switch (regx_backend_hooks_notifier.start(&config, &monitor, error, sizeof(error))) {
    case REGX_OK:
        return monitor;
    case REGX_DENIED:
        print_message("not tried: %s\n", error);
        skip();
        break;
    default:
        fail_msg("%s", error);
    }
    return NULL;
}

static char *map(void)
{
    char *memory = map_below_room(PAGES * page);

    assert_ptr_not_equal(memory, MAP_FAILED);
    memset(memory, 1, PAGES * page);
    return memory;
}

/* As the cache does before it registers. */
static uint64_t subscribe(regx_monitor_t *monitor, const char *memory)
{
    const uintptr_t from = (uintptr_t)memory;
    uint64_t since;

    regx_inval_log_interest(monitor->log, from, from + PAGES * page, 1);
    assert_int_equal(monitor->subscribe(monitor, from, from + PAGES * page, &since), REGX_OK);
    return since;
}

/* Whether a look-up finds out, now and once the reader has logged. */
static bool refused(regx_monitor_t *monitor, uint64_t since, const char *memory)
{
    const uintptr_t from = (uintptr_t)memory;

    return !monitor->valid(monitor, from, from + PAGES * page) ||
           atomic_load(&monitor->log->sequence) % 2 == 1 ||
           regx_inval_log_touched(monitor->log, since, from, from + PAGES * page);
}

static void settle(regx_monitor_t *monitor)
{
    while (atomic_load(&monitor->log->sequence) % 2 == 1) {
        sched_yield();
    }
}

enum change { LIBC_MUNMAP, LIBC_MADVISE, LIBC_MMAP, LIBC_MREMAP, RAW_MUNMAP, RAW_MADVISE, ONTO };

static void make(enum change change, char *memory)
{
    const size_t length = PAGES * page;

    switch (change) {
    case LIBC_MUNMAP:
        munmap(memory, length);
        break;
    case LIBC_MADVISE:
        madvise(memory, length, MADV_DONTNEED);
        break;
    case LIBC_MMAP:
        mmap(memory, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        break;
    case LIBC_MREMAP:
        assert_ptr_not_equal(mremap(memory, length, 2 * length, MREMAP_MAYMOVE), MAP_FAILED);
        break;
    case RAW_MUNMAP:
        syscall(SYS_munmap, memory, length);
        break;
    case RAW_MADVISE:
        syscall(SYS_madvise, memory, length, MADV_DONTNEED);
        break;
    case ONTO: /* by libc, but hooks see the source only */
        assert_ptr_equal(mremap(map(), length, length, MREMAP_MAYMOVE | MREMAP_FIXED, memory),
                         memory);
        break;
    }
}

static void *unmap(void *memory)
{
    make(LIBC_MUNMAP, memory);
    return NULL;
}

static void *unmap_raw(void *memory)
{
    make(RAW_MUNMAP, memory);
    return NULL;
}

static void what_hooks_did_not_see_is_counted(void **state)
{
    static const struct {
        enum change change;
        unsigned missed;
    } cases[] = {{LIBC_MUNMAP, 0}, {RAW_MUNMAP, 1},  {LIBC_MADVISE, 0}, {RAW_MADVISE, 1},
                 {LIBC_MMAP, 0},   {LIBC_MREMAP, 0}, {ONTO, 1},         {LIBC_MUNMAP, 0}};
    regx_monitor_t *monitor = start();

    (void)state;
    assert_string_equal(monitor->name, "hooks+notifier");
    assert_int_equal(counters.hooks_missed, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *memory = map();
        const uint64_t since = subscribe(monitor, memory);
        const uint64_t before = counters.hooks_missed;

        assert_false(refused(monitor, since, memory));
        make(cases[i].change, memory);
        assert_true(refused(monitor, since, memory));
        settle(monitor);
        assert_true(refused(monitor, since, memory));
        if (counters.hooks_missed != before + cases[i].missed) {
            fail_msg("case %zu: %u missed, not %u", i, (unsigned)(counters.hooks_missed - before),
                     cases[i].missed);
        }
    }
    monitor->stop(monitor);
}

/* What was announced of an earlier mapping at the same address says nothing of the next one. */
static void an_announcement_is_good_for_one_mapping(void **state)
{
    regx_monitor_t *monitor = start();
    char *memory = map();

    (void)state;
    counters.hooks_missed = 0;
    munmap(memory, PAGES * page); /* announced, and not watched: the kernel says nothing */
    assert_ptr_equal(mmap(memory, PAGES * page, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                     memory);
    subscribe(monitor, memory);
    syscall(SYS_munmap, memory, PAGES * page);
    settle(monitor);
    assert_int_equal(counters.hooks_missed, 1);
    monitor->stop(monitor);
}

/* The reader has let go whoever unmapped, and lags; meanwhile there is new memory at that address,
 * which is used. Hooks saw the change all the same. */
static void a_reader_that_lags_finds_the_announcement(void **state)
{
    regx_monitor_t *monitor = start();
    char *memory = map();

    (void)state;
    subscribe(monitor, memory);
    counters.hooks_missed = 0;
    hold_reader(HOLD_BEFORE_LOG);
    munmap(memory, PAGES * page);
    while (!hold_is_held()) {
        sched_yield();
    }
    for (int i = 0; i < 3; i++) {
        munmap(memory + 1, 1); /* refused, but announced */
    }
    assert_ptr_equal(mmap(memory, PAGES * page, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                     memory);
    subscribe(monitor, memory);
    hold_reader(HOLD_NOWHERE);
    settle(monitor);
    assert_int_equal(counters.hooks_missed, 0);
    munmap(memory, PAGES * page);
    monitor->stop(monitor);
}

/* What another thread announces meanwhile, however much it is, is beside the point. */
static void a_reader_that_lags_behind_many_announcements(void **state)
{
    regx_monitor_t *monitor = start();
    char *memory = map(), *other = map();
    pthread_t thread;

    (void)state;
    subscribe(monitor, memory);
    counters.hooks_missed = 0;
    hold_reader(HOLD_BEFORE_READ);
    assert_int_equal(pthread_create(&thread, NULL, unmap, memory), 0);
    while (!hold_is_held()) {
        sched_yield();
    }
    for (unsigned i = 0; i < 1000; i++) {
        munmap(other + 1, 1); /* refused, but announced */
    }
    hold_reader(HOLD_NOWHERE);
    pthread_join(thread, NULL);
    settle(monitor);
    assert_int_equal(counters.hooks_missed, 0);
    munmap(other, PAGES * page);
    monitor->stop(monitor);
}

/* More threads than have places of their own: nobody's change counts as missed once the others are
 * done, and what hooks did not see still does. */
static void threads_share_places(void **state)
{
    regx_monitor_t *monitor = start();

    (void)state;
    for (unsigned i = 0; i < 600; i++) {
        char *memory = map();
        const bool raw = i % 3 == 0;
        pthread_t thread;

        subscribe(monitor, memory);
        counters.hooks_missed = 0;
        assert_int_equal(pthread_create(&thread, NULL, raw ? unmap_raw : unmap, memory), 0);
        pthread_join(thread, NULL);
        settle(monitor);
        assert_int_equal(counters.hooks_missed, raw);
    }
    monitor->stop(monitor);
}

/* Of this the kernel says nothing; hooks do. */
static void a_segment_over_private_memory_is_seen(void **state)
{
    const int id = shmget(IPC_PRIVATE, PAGES * (size_t)sysconf(_SC_PAGESIZE), IPC_CREAT | 0600);
    regx_monitor_t *monitor = start();
    char *memory = map();
    const uint64_t since = subscribe(monitor, memory);

    (void)state;
    assert_false(refused(monitor, since, memory));
    assert_ptr_equal(shmat(id, memory, SHM_REMAP), memory);
    assert_true(refused(monitor, since, memory));
    shmctl(id, IPC_RMID, NULL);
    shmdt(memory);
    monitor->stop(monitor);
}

static unsigned descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) != -1;
    }
    return count;
}

static void nothing_is_left_after_stop(void **state)
{
    char *memory = map();
    const unsigned before = descriptors();
    regx_monitor_t *monitor = start();

    (void)state;
    subscribe(monitor, memory);
    assert_true(descriptors() > before);
    monitor->stop(monitor);
    assert_int_equal(descriptors(), before);
    assert_int_equal(hooked.installed, 1); /* Open MPI's are deaf from the second time on */
    assert_int_equal(hooked.removed, 1);
    munmap(memory, PAGES * page); /* would wait for ever, were it still watched */
}

/* The kernel would hear for them: so they are tried alone. */
static void deaf_hooks_are_refused_all_the_same(void **state)
{
    char error[256] = "";
    regx_monitor_t *monitor = NULL;

    (void)state;
    hooked.faults = DEAF_MADVISE;
    assert_int_equal(regx_backend_hooks_notifier.start(&config, &monitor, error, sizeof(error)),
                     REGX_INVALID);
    assert_non_null(strstr(error, "madvise"));
    assert_null(monitor);
    assert_int_equal(hooked.installed, hooked.removed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_hooks_did_not_see_is_counted, hooked_reset),
        cmocka_unit_test_setup(an_announcement_is_good_for_one_mapping, hooked_reset),
        cmocka_unit_test_setup(a_reader_that_lags_finds_the_announcement, hooked_reset),
        cmocka_unit_test_setup(a_reader_that_lags_behind_many_announcements, hooked_reset),
        cmocka_unit_test_setup(threads_share_places, hooked_reset),
        cmocka_unit_test_setup(a_segment_over_private_memory_is_seen, hooked_reset),
        cmocka_unit_test_setup(nothing_is_left_after_stop, hooked_reset),
        cmocka_unit_test_setup(deaf_hooks_are_refused_all_the_same, hooked_reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

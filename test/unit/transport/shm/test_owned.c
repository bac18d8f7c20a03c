/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Owned memory: what is allocated, and how a peer's is mapped.
 */
#define _GNU_SOURCE
#include "sides.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { MIB = 1 << 20, LEAST = REGX_OWNED_MIN };

typedef struct owner {
    regx_counters_t counters;
    regx_transport_config_t config;
    regx_owned_shared_t shared;
    regx_owned_t owned;
} owner_t;

/* ---- allocation, in one process ---- */

static owner_t *owner_new(size_t size)
{
    owner_t *owner = aligned_alloc(64, sizeof(*owner));

    assert_non_null(owner);
    memset(owner, 0, sizeof(*owner));
    owner->config = (regx_transport_config_t){.owned_size = size, .counters = &owner->counters};
    regx_owned_init(&owner->owned, &owner->shared, &owner->config);
    return owner;
}

static void owner_free(owner_t *owner)
{
    regx_owned_fini(&owner->owned);
    free(owner);
}

static char *allocate(owner_t *owner, size_t length)
{
    return regx_owned_allocate(&owner->owned, length);
}

static uint64_t fallbacks(const regx_counters_t *counters)
{
    uint64_t count = 0;

    for (unsigned i = 0; i < REGX_REASONS_MAX; i++) {
        count += counters->fallbacks[i].count;
    }
    return count;
}

static void blocks_do_not_overlap_and_are_used_again(void **state)
{
    static const size_t lengths[] = {LEAST, LEAST + 1, 3 * MIB, 100000, MIB};
    owner_t *owner = owner_new(64 * MIB);
    char *blocks[5];
    uint64_t made = 0;

    (void)state;
    for (int lap = 0; lap < 3; lap++) {
        for (unsigned i = 0; i < 5; i++) {
            blocks[i] = allocate(owner, lengths[i]);
            assert_non_null(blocks[i]);
            assert_int_equal((uintptr_t)blocks[i] % regx_page_size(), 0);
            unit_fill((uint8_t *)blocks[i], lengths[i], i, 0);
        }
        for (unsigned i = 0; i < 5; i++) {
            assert_true(unit_is_filled((uint8_t *)blocks[i], lengths[i], i));
        }
        made = lap == 0 ? owner->owned.bytes : made;
        for (unsigned i = 0; i < 5; i++) { /* each lap in another order */
            regx_owned_free(&owner->owned, blocks[(2 * i + (unsigned)lap) % 5]);
        }
    }
    assert_int_equal(owner->owned.bytes, made);
    assert_int_equal(owner->counters.transport[REGX_COUNTER_owned_bytes], made);
    owner_free(owner);
}

static void freed_neighbours_become_one_block(void **state)
{
    owner_t *owner = owner_new(2 * MIB);
    char *blocks[4];

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        blocks[i] = allocate(owner, MIB / 2);
        assert_non_null(blocks[i]);
    }
    assert_null(allocate(owner, LEAST));
    regx_owned_free(&owner->owned, blocks[1]);
    regx_owned_free(&owner->owned, blocks[3]);
    assert_null(allocate(owner, MIB));
    regx_owned_free(&owner->owned, blocks[2]);
    assert_ptr_equal(allocate(owner, 3 * MIB / 2), blocks[1]);
    owner_free(owner);
}

static void a_file_of_the_programs_is_not_closed(void **state)
{
    owner_t *owner = owner_new(8 * MIB);

    (void)state;
    assert_non_null(allocate(owner, MIB));
    const int descriptor = owner->owned.names[0].file.descriptor;
    close(descriptor); /* as daemons do, and open their own then */
    assert_int_equal(dup2(STDERR_FILENO, descriptor), descriptor);
    owner_free(owner);
    assert_int_not_equal(fcntl(descriptor, F_GETFD), -1);
    close(descriptor);
}

static void no_more_is_given_than_allowed(void **state)
{
    owner_t *owner = owner_new(8 * MIB);
    unsigned given = 0;

    (void)state;
    assert_null(allocate(owner, LEAST - 1)); /* too short: nobody is told */
    assert_int_equal(fallbacks(&owner->counters), 0);
    assert_null(allocate(owner, SIZE_MAX));
    assert_null(allocate(owner, 8 * MIB + 1));
    while (allocate(owner, MIB) != NULL) {
        given++;
    }
    assert_int_equal(given, 8);
    assert_int_equal(owner->owned.bytes, 8 * MIB);
    assert_int_equal(fallbacks(&owner->counters), 3);
    owner_free(owner);
    owner = owner_new(0);
    assert_null(allocate(owner, MIB));
    assert_int_equal(fallbacks(&owner->counters), 0);
    owner_free(owner);
}

/* Under a limit of the process there is none, and no signal. */
static void refused_by(int resource, rlim_t limit)
{
    owner_t *owner = owner_new(64 * MIB);
    struct rlimit before;

    assert_int_equal(getrlimit(resource, &before), 0);
    const struct rlimit low = {limit, before.rlim_max};
    assert_int_equal(setrlimit(resource, &low), 0);
    char *block = allocate(owner, 4 * MIB);
    assert_int_equal(setrlimit(resource, &before), 0);
    assert_null(block);
    assert_int_equal(fallbacks(&owner->counters), 1);
    assert_int_equal(owner->owned.bytes, 0);
    assert_non_null(allocate(owner, 4 * MIB));
    owner_free(owner);
}

static void what_the_system_refuses_is_not_given(void **state)
{
    (void)state;
    refused_by(RLIMIT_FSIZE, MIB);
    refused_by(RLIMIT_NOFILE, 3);
}

static void what_is_not_freed_stays(void **state)
{
    owner_t *owner = owner_new(64 * MIB);
    uint8_t *kept = (uint8_t *)allocate(owner, MIB);

    (void)state;
    assert_non_null(kept);
    unit_fill(kept, MIB, 5, 0);
    owner_free(owner);
    assert_true(unit_is_filled(kept, MIB, 5));
    munmap(kept, MIB);
}

static void a_child_does_not_have_it(void **state)
{
    owner_t *owner = owner_new(64 * MIB);
    volatile char *block = allocate(owner, MIB);
    int status;

    (void)state;
    assert_non_null(block);
    block[0] = 1;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit no_core = {0, 0};

        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGSEGV, SIG_DFL);
        block[0] = 2;
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    assert_int_equal(block[0], 1);
    owner_free(owner);
}

/* ---- a peer's table ---- */

/* Where the view has so many bytes from `at` on. */
static char *find(owner_t *owner, regx_owned_view_t **view, const void *at, size_t length)
{
    return regx_owned_find(view, &owner->shared, getpid(), (uintptr_t)at, length, &owner->config);
}

static void a_view_shows_the_same_memory(void **state)
{
    owner_t *owner = owner_new(64 * MIB);
    regx_owned_view_t *view = NULL;
    char outside;

    (void)state;
    assert_null(find(owner, &view, &outside, 1)); /* nothing is allocated */
    char *first = allocate(owner, 2 * MIB), *second = allocate(owner, 2 * MIB);
    char *seen = find(owner, &view, first, 2 * MIB);
    assert_non_null(seen);
    assert_ptr_not_equal(seen, first);
    first[2 * MIB - 1] = 7;
    assert_int_equal(seen[2 * MIB - 1], 7);
    seen = find(owner, &view, second + 5, 100);
    assert_non_null(seen);
    second[6] = 8;
    assert_int_equal(seen[1], 8);
    assert_null(find(owner, &view, &outside, 1));
    assert_null(find(owner, &view, first - 1, 2));
    assert_null(find(owner, &view, first, 2 * MIB + 1)); /* its segment ends */
    assert_null(find(owner, &view, first, SIZE_MAX));
    assert_non_null(find(owner, &view, first + 2 * MIB, 0));
    assert_int_equal(fallbacks(&owner->counters), 0);
    regx_owned_drop(&view);
    assert_null(view);
    owner_free(owner);
}

/* What the table says of the first segment is changed: then it is not mapped, which is counted. */
static void refused_if(void (*change)(regx_owned_name_t *name))
{
    owner_t *owner = owner_new(64 * MIB);
    regx_owned_view_t *view = NULL;
    char *block = allocate(owner, 2 * MIB);

    change(&owner->shared.names[0]);
    for (int i = 0; i < 3; i++) {
        assert_null(find(owner, &view, block, 1));
    }
    assert_int_equal(fallbacks(&owner->counters), 1);
    assert_non_null(find(owner, &view, allocate(owner, 2 * MIB), 1)); /* others are */
    regx_owned_drop(&view);
    owner_free(owner);
}

static void say_longer(regx_owned_name_t *name)
{
    name->length += regx_page_size();
}

static void say_nothing(regx_owned_name_t *name)
{
    name->length = 0;
}

static void say_too_far(regx_owned_name_t *name)
{
    name->base = UINT64_MAX - MIB;
}

static void say_another_file(regx_owned_name_t *name)
{
    name->file.inode++;
}

static void say_no_descriptor(regx_owned_name_t *name)
{
    name->file.descriptor = -1;
}

static int other_file = -1;

/* A file that could be cut short while it is mapped. */
static void say_one_without_seals(regx_owned_name_t *name)
{
    other_file = memfd_create("test", 0);
    assert_true(other_file >= 0 && ftruncate(other_file, (off_t)name->length) == 0 &&
                regx_shm_file_name(other_file, &name->file));
}

static void what_a_peer_says_wrong_is_refused(void **state)
{
    (void)state;
    refused_if(say_longer);
    refused_if(say_nothing);
    refused_if(say_too_far);
    refused_if(say_another_file);
    refused_if(say_no_descriptor);
    refused_if(say_one_without_seals);
    close(other_file);
}

static void a_table_is_not_read_beyond_its_end(void **state)
{
    owner_t *owner = owner_new(64 * MIB);
    regx_owned_view_t *view = NULL;
    char *block = allocate(owner, 2 * MIB);

    (void)state;
    atomic_store(&owner->shared.count, UINT32_MAX);
    assert_non_null(find(owner, &view, block, 2 * MIB));
    assert_int_equal(view->count, REGX_OWNED_SEGMENTS);
    assert_int_equal(fallbacks(&owner->counters), REGX_OWNED_SEGMENTS - 1);
    regx_owned_drop(&view);
    owner_free(owner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_do_not_overlap_and_are_used_again),
        cmocka_unit_test(freed_neighbours_become_one_block),
        cmocka_unit_test(a_file_of_the_programs_is_not_closed),
        cmocka_unit_test(no_more_is_given_than_allowed),
        cmocka_unit_test(what_the_system_refuses_is_not_given),
        cmocka_unit_test(what_is_not_freed_stays),
        cmocka_unit_test(a_child_does_not_have_it),
        cmocka_unit_test(a_view_shows_the_same_memory),
        cmocka_unit_test(what_a_peer_says_wrong_is_refused),
        cmocka_unit_test(a_table_is_not_read_beyond_its_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

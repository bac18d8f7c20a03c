/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages from and to memory that MPI_Alloc_mem gave, with nothing else kept: a device registers it once.
 * On devices in memory.
 */
#include "fake_parts.h"
#include "verbs_parties.h"

#include <errno.h>
#include <sys/mman.h>

#include "registration/registry.h"

enum { MESSAGES = 12, LENGTH = 100000, BYTES = 4 * LENGTH / 4096 * 4096 };

static regx_owned_t owned;
static regx_registry_t at_one, at_two;
static uint8_t *from, *to;

static void unmap(void *base, size_t length)
{
    assert_int_equal(munmap(base, length), 0);
}

/* At that place, if it is not NULL. */
static uint8_t *map(uint8_t *place)
{
    uint8_t *memory = mmap(place, BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | (place != NULL ? MAP_FIXED : 0), -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static void open_all(void)
{
    const regx_cache_config_t config = {.bytes = REGX_UNLIMITED, .owned = &owned};

    unit_handle_no_faults(); /* else it may have protected its own, and nothing is used for life */
    parties_open(false);
    parties_exchange();
    regx_owned_init(&owned, false, unmap);
    assert_int_equal(regx_registry_open(&at_one, NULL, &config, one.transport, &one.counters),
                     REGX_OK);
    assert_int_equal(regx_registry_open(&at_two, NULL, &config, two.transport, &two.counters),
                     REGX_OK);
    from = map(NULL);
    to = map(NULL);
}

static void own_both(void)
{
    assert_true(regx_owned_add(&owned, from, BYTES));
    assert_true(regx_owned_add(&owned, to, BYTES));
}

static void close_all(void)
{
    regx_registry_close(&at_one);
    regx_registry_close(&at_two);
    regx_owned_fini(&owned);
    assert_int_equal(one.counters.registrations, one.counters.deregistrations);
    assert_int_equal(two.counters.registrations, two.counters.deregistrations);
    verbs_close();
}

/* A put of the stream, and a get of it to elsewhere. Returns the key by which the peer was written. */
static regx_verbs_key_t move(size_t offset, uint64_t stream)
{
    uint8_t *source = from + offset, *target = to + BYTES - LENGTH - offset;
    uint8_t *back = from + BYTES - LENGTH;
    regx_region_t local, remote;
    op_t op;

    unit_fill(source, LENGTH, stream, 0);
    assert_int_equal(regx_region_acquire(&at_one, source, LENGTH, REGX_ACCESS_LOCAL, &local),
                     REGX_OK);
    assert_int_equal(
        regx_region_acquire(&at_two, target, LENGTH, REGX_ACCESS_REMOTE_WRITE, &remote), REGX_OK);
    const regx_verbs_key_t key = regx_verbs_key_unpack(&remote.mr->key);
    const uint64_t start = (uint64_t)(target - (uint8_t *)remote.mr->base);
    op_put(&op, source, LENGTH, REGX_TARGET_REGION, start);
    op.put.region = local.mr;
    op.put.key = remote.mr->key;
    op_put_to_two(&op, target, stream);
    assert_int_equal(op.status, REGX_OK);
    assert_true(unit_is_filled(target, LENGTH, stream));
    regx_region_release(&at_one, &local);
    regx_region_release(&at_two, &remote);

    memset(back, 0, LENGTH);
    assert_int_equal(regx_region_acquire(&at_one, back, LENGTH, REGX_ACCESS_LOCAL_WRITE, &local),
                     REGX_OK);
    assert_int_equal(regx_region_acquire(&at_two, target, LENGTH, REGX_ACCESS_REMOTE_READ, &remote),
                     REGX_OK);
    op_get(&op, back, LENGTH, local.mr, remote.mr, (uint64_t)(target - (uint8_t *)remote.mr->base));
    op_start_get(&one, &op);
    op_await(&op);
    assert_int_equal(op.status, REGX_OK);
    assert_true(unit_is_filled(back, LENGTH, stream));
    regx_region_release(&at_one, &local);
    regx_region_release(&at_two, &remote);
    return key;
}

static bool is_alive(const regx_verbs_key_t *key)
{
    return fake_is_registered(key->rkey, key->base, key->length, 0);
}

VERBS_TEST(messages_of_owned_memory_need_one_registration_at_each_end)
{
    open_all();
    own_both();
    for (unsigned i = 0; i < MESSAGES; i++) {
        move(i * 777, 10 + i);
    }
    assert_int_equal(one.counters.registrations, 1);
    assert_int_equal(two.counters.registrations, 1);
    assert_int_equal(one.counters.deregistrations + two.counters.deregistrations, 0);
    assert_int_equal(one.counters.uses_owned, 2 * MESSAGES);
    close_all();
    unmap(from, BYTES);
    unmap(to, BYTES);
}

/* The control. */
VERBS_TEST(messages_of_other_memory_need_one_each)
{
    open_all();
    for (unsigned i = 0; i < MESSAGES; i++) {
        const regx_verbs_key_t key = move(i * 777, 10 + i);

        assert_false(is_alive(&key));
    }
    assert_int_equal(one.counters.registrations, 2 * MESSAGES);
    assert_int_equal(two.counters.registrations, 2 * MESSAGES);
    assert_int_equal(one.counters.uses_owned, 0);
    close_all();
    unmap(from, BYTES);
    unmap(to, BYTES);
}

/* At the same addresses, in other pages. */
VERBS_TEST(memory_that_was_freed_and_allocated_again_is_registered_anew)
{
    open_all();
    for (unsigned i = 1; i <= MESSAGES; i++) {
        own_both();
        const regx_verbs_key_t key = move(i * 777, 10 + i);

        assert_true(is_alive(&key));
        move(i * 333, 50 + i);
        regx_owned_free(&owned, from);
        regx_owned_free(&owned, to);
        assert_false(is_alive(&key));
        assert_int_equal(two.counters.registrations, i);
        assert_int_equal(two.counters.deregistrations, i);
        map(from);
        map(to);
    }
    close_all();
    unmap(from, BYTES);
    unmap(to, BYTES);
}

/* For want of room: later uses try again, after ever longer pauses. */
VERBS_TEST(what_the_device_has_no_room_for_is_registered_when_it_has)
{
    regx_region_t none;

    open_all();
    own_both();
    fake.register_error = ENOMEM;
    for (unsigned i = 0; i < MESSAGES; i++) {
        assert_int_equal(regx_region_acquire(&at_one, from, 10, REGX_ACCESS_LOCAL, &none),
                         REGX_NO_MEMORY);
    }
    assert_int_equal(at_one.owned_bytes, 0);
    fake.register_error = 0;
    for (unsigned i = 0; i < 2 * MESSAGES; i++) {
        move(i * 777, 10 + i);
    }
    assert_true(one.counters.registrations > 1 && one.counters.registrations < MESSAGES);
    assert_true(regx_region_seems_kept(&at_one, from, 10, REGX_ACCESS_LOCAL));
    assert_int_equal(two.counters.registrations, 1);
    close_all();
    unmap(from, BYTES);
    unmap(to, BYTES);
}

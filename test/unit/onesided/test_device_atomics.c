/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Atomic operations that a device makes, and those that it leaves to the target's processor.
 */
#include "device_stage.h"

static call_t new_change(regx_onesided_type_t type, regx_atomic_op_t op, size_t size,
                         uint64_t operand, uint64_t compare)
{
    return (call_t){.request = {.type = type,
                                .window = stage.name.handle,
                                .address = stage.name.base + 16,
                                .op = op,
                                .size = size,
                                .operand = operand,
                                .compare = compare,
                                .done = done}};
}

static uint64_t changed(regx_onesided_type_t type, uint64_t operand, uint64_t compare)
{
    call_t call = new_change(type, REGX_ATOMIC_ADD, 8, operand, compare);

    assert_int_equal(move(&call), REGX_PENDING);
    run(REGX_OK);
    regx_onesided_complete(stage.origin->onesided);
    expect(&call, REGX_OK);
    return call.request.result;
}

/* The others are for the target's processor, with which the device's are in order. */
static void the_device_adds_to_and_swaps_numbers_of_8_bytes(void **state)
{
    uint64_t *number = (uint64_t *)(void *)(stage.memory + 16);

    (void)state;
    stage.target->transport.atomics = true;
    offer(stage.memory, BYTES);
    assert_true(stage.name.has_atomics);
    *number = 5;
    assert_int_equal(changed(REGX_ONESIDED_ATOMIC, 2, 0), 5);
    assert_int_equal(changed(REGX_ONESIDED_SWAP, 9, 5), 7);
    assert_int_equal(changed(REGX_ONESIDED_SWAP, 9, 7), 7);
    assert_int_equal(*number, 9);
    assert_int_equal(stage.origin->counters.onesided_atomics, 3);
    assert_int_equal(stage.origin->counters.onesided_device, 3);
    call_t others[] = {new_change(REGX_ONESIDED_ATOMIC, REGX_ATOMIC_AND, 8, 1, 0),
                       new_change(REGX_ONESIDED_ATOMIC, REGX_ATOMIC_SWAP, 8, 1, 0),
                       new_change(REGX_ONESIDED_ATOMIC, REGX_ATOMIC_ADD, 4, 1, 0),
                       new_change(REGX_ONESIDED_SWAP, REGX_ATOMIC_ADD, 4, 1, 9)};
    for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_int_equal(move(&others[i]), REGX_DENIED);
    }
    assert_int_equal(*number, 9);
    assert_int_equal(stage.origin->onesided->pending, 0);
}

static void a_device_whose_atomics_are_its_own_does_none(void **state)
{
    (void)state;
    offer(stage.memory, BYTES);
    assert_true(stage.name.has_key && !stage.name.has_atomics);
    assert_int_equal(stage.asked & REGX_ACCESS_REMOTE_ATOMIC, 0);
    call_t call = new_change(REGX_ONESIDED_ATOMIC, REGX_ATOMIC_ADD, 8, 1, 0);
    assert_int_equal(move(&call), REGX_DENIED);
    stage.registries[1].on_demand = true; /* nor on pages that it looks up */
    stage.target->transport.atomics = true;
    offer(stage.memory, BYTES);
    assert_true(stage.name.has_key && !stage.name.has_atomics);
    stage.registries[1].on_demand = false;
}

static void without_atomics_a_window_is_written_and_read_all_the_same(void **state)
{
    (void)state;
    stage.target->transport.atomics = true;
    stage.refuses_atomics = true;
    offer(stage.memory, BYTES);
    assert_true(stage.name.has_key && !stage.name.has_atomics);
    assert_int_equal(stage.asked & REGX_ACCESS_REMOTE_WRITE, REGX_ACCESS_REMOTE_WRITE);
    assert_int_equal(stage.regs, 1);
}

/* A fetch that has not been accepted has had no effect; one that was lost is not made again. */
static void a_fetch_is_made_once_or_is_lost(void **state)
{
    uint64_t *number = (uint64_t *)(void *)(stage.memory + 16);

    (void)state;
    stage.target->transport.atomics = true;
    offer(stage.memory, BYTES);
    *number = 5;
    call_t lost = new_change(REGX_ONESIDED_ATOMIC, REGX_ATOMIC_ADD, 8, 2, 0);
    call_t kept = new_change(REGX_ONESIDED_ATOMIC, REGX_ATOMIC_ADD, 8, 3, 0);
    stage.has_no_room = true;
    assert_int_equal(move(&lost), REGX_AGAIN);
    assert_int_equal(stage.origin->onesided->pending, 0);
    stage.has_no_room = false;
    assert_int_equal(move(&lost), REGX_PENDING);
    run(REGX_FAILED);
    regx_onesided_complete(stage.origin->onesided);
    expect(&lost, REGX_UNREACHABLE);
    assert_int_equal(*number, 5);
    assert_int_equal(stage.fetch_count, 0);
    assert_int_equal(move(&kept), REGX_PENDING);
    regx_onesided_forget(stage.origin->onesided, &stage.origin->peers[1]);
    assert_int_equal(kept.times, 0);
    run(REGX_FAILED);
    expect(&kept, REGX_UNREACHABLE);
    assert_int_equal(stage.origin->onesided->pending, 0);
    regx_onesided_add(stage.origin->onesided, &stage.origin->peers[1], stage.target->id,
                      &stage.origin->conns[1].conn);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_stage, close_stage)
    const struct CMUnitTest tests[] = {
        TEST(the_device_adds_to_and_swaps_numbers_of_8_bytes),
        TEST(a_device_whose_atomics_are_its_own_does_none),
        TEST(without_atomics_a_window_is_written_and_read_all_the_same),
        TEST(a_fetch_is_made_once_or_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Windows that a device reaches, and the puts and gets that it makes.
 */
#include "device_stage.h"

#include <sys/mman.h>

#include "base/util.h"

static bool fell_back(const line_t *process, const char *reason)
{
    for (unsigned i = 0; i < REGX_REASONS_MAX; i++) {
        if (strncmp(process->counters.fallbacks[i].reason, reason, strlen(reason)) == 0) {
            return true;
        }
    }
    return false;
}

/* And is done when the device says so, but not before progress has been left. */
static void the_device_does_them_and_the_target_is_not_asked(void **state)
{
    const size_t lengths[] = {1, COPIED, COPIED + 1, BYTES - 10};

    (void)state;
    offer(stage.memory, BYTES);
    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        call_t puts = new_call(REGX_ONESIDED_PUT, 10, lengths[i]);
        call_t gets = new_call(REGX_ONESIDED_GET, 10, lengths[i]);
        const uint8_t before = stage.memory[9];

        unit_fill(stage.mine + 10, lengths[i], 10 + i, 0);
        assert_int_equal(move(&puts), REGX_PENDING);
        run(REGX_OK);
        assert_int_equal(puts.times, 0);
        regx_onesided_complete(stage.origin->onesided);
        expect(&puts, REGX_OK);
        assert_true(unit_is_filled(stage.memory + 10, lengths[i], 10 + i));
        assert_int_equal(stage.memory[9], before);
        memset(stage.mine + 10, 0, lengths[i]);
        assert_int_equal(move(&gets), REGX_PENDING);
        run(REGX_OK);
        regx_onesided_complete(stage.origin->onesided);
        expect(&gets, REGX_OK);
        assert_true(unit_is_filled(stage.mine + 10, lengths[i], 10 + i));
    }
    assert_int_equal(stage.origin->conns[1].count, 0);
    assert_int_equal(stage.origin->counters.onesided_device, 8);
    assert_int_equal(stage.origin->counters.onesided_puts, 4);
    assert_int_equal(stage.origin->counters.onesided_gets, 4);
    assert_int_equal(stage.origin->counters.onesided_messages, 0);
    assert_int_equal(stage.regs, 1 + 2 * 2); /* the window, and what is too long to be copied */
    assert_int_equal(stage.deregs, 4);
}

static void a_window_is_registered_while_it_is_offered(void **state)
{
    (void)state;
    offer(stage.memory, BYTES);
    assert_true(stage.name.has_key);
    assert_int_equal(stage.name.offset, BEFORE);
    assert_int_equal(stage.regs, 1);
    /* A message of all of it is served by the same registration, and does not take its place. */
    assert_int_equal(stage.asked, REGX_ACCESS_LOCAL | REGX_ACCESS_LOCAL_WRITE |
                                      REGX_ACCESS_REMOTE_WRITE | REGX_ACCESS_REMOTE_READ);
    regx_onesided_withdraw(stage.target->onesided, stage.window);
    assert_int_equal(stage.deregs, 1);
    offer(stage.memory, BYTES);
    assert_int_equal(stage.regs, 2); /* anew, and given up at the end */
}

static void of_a_window_that_cannot_be_registered_the_target_is_asked(void **state)
{
    (void)state;
    stage.refuses_memory = true;
    offer(stage.memory, BYTES);
    assert_false(stage.name.has_key);
    assert_true(fell_back(stage.target, "window: cannot be registered"));
    call_t puts = new_call(REGX_ONESIDED_PUT, 0, 8);
    assert_int_equal(move(&puts), REGX_DENIED);
    assert_int_equal(
        regx_onesided_ask(stage.origin->onesided, &stage.origin->peers[1], &puts.request),
        REGX_PENDING);
    line_run(stage.processes);
    expect(&puts, REGX_OK);
    assert_memory_equal(stage.memory, stage.mine, 8);
    assert_int_equal(stage.origin->counters.onesided_device, 0);
}

/* osc/rdma would attach other memory there, and not say so. */
static void whole_pages_are_registered_only_if_the_device_follows_changes(void **state)
{
    const size_t page = regx_page_size();
    uint8_t *pages =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_ptr_not_equal(pages, MAP_FAILED);
    offer(pages, 2 * page);
    assert_false(stage.name.has_key);
    assert_int_equal(stage.regs, 0);
    assert_true(fell_back(stage.target, "window: whole pages"));
    assert_int_equal(stage.target->counters.onesided_registered, 0);
    regx_onesided_withdraw(stage.target->onesided, stage.window);
    offer(pages, page + 8);
    assert_true(stage.name.has_key);
    assert_int_equal(stage.target->counters.onesided_registered, page + 8);
    regx_onesided_withdraw(stage.target->onesided, stage.window);
    offer(pages + 8, page);
    assert_true(stage.name.has_key);
    regx_onesided_withdraw(stage.target->onesided, stage.window);
    stage.registries[1].on_demand = true;
    stage.target->transport.on_demand_grain = 1;
    offer(pages, page);
    assert_true(stage.name.has_key);
    regx_onesided_withdraw(stage.target->onesided, stage.window);
    stage.registries[1].on_demand = false;
    munmap(pages, 2 * page);
}

/* By pages that the device looks up it cannot reach any byte. */
static void a_window_of_on_demand_pages_is_not_for_a_device_that_wants_whole_ones(void **state)
{
    (void)state;
    stage.registries[1].on_demand = true;
    stage.target->transport.on_demand_grain = 4096;
    offer(stage.memory, BYTES);
    assert_false(stage.name.has_key);
    assert_int_equal(stage.regs, 0);
    stage.registries[1].on_demand = false;
}

static void a_window_of_no_bytes_is_not_registered(void **state)
{
    (void)state;
    offer(stage.memory, 0);
    assert_false(stage.name.has_key);
    offer(stage.memory, BYTES);
    call_t nothing = new_call(REGX_ONESIDED_PUT, 0, 0);
    assert_int_equal(move(&nothing), REGX_DENIED);
}

/* A put is copied all the same; of a get the target is asked. */
static void buffers_that_cannot_be_registered(void **state)
{
    (void)state;
    offer(stage.memory, BYTES);
    call_t puts = new_call(REGX_ONESIDED_PUT, 0, BYTES);
    call_t gets = new_call(REGX_ONESIDED_GET, 0, BYTES);
    stage.refuses_memory = true;
    assert_int_equal(move(&puts), REGX_PENDING);
    assert_null(stage.puts[0]->region);
    run(REGX_OK);
    regx_onesided_complete(stage.origin->onesided);
    expect(&puts, REGX_OK);
    assert_memory_equal(stage.memory, stage.mine, BYTES);
    assert_int_equal(move(&gets), REGX_DENIED);
    assert_int_equal(stage.origin->onesided->pending, 0);
    assert_true(fell_back(stage.origin, "window: a buffer cannot be registered"));
}

/* Nothing is registered for it, nothing is left of it, and it can be tried again. */
static void without_room_it_is_for_the_caller_to_try_again(void **state)
{
    (void)state;
    offer(stage.memory, BYTES);
    call_t puts = new_call(REGX_ONESIDED_PUT, 0, BYTES);
    call_t gets = new_call(REGX_ONESIDED_GET, 0, BYTES);
    stage.has_no_room = true;
    assert_int_equal(move(&puts), REGX_AGAIN);
    assert_int_equal(move(&gets), REGX_AGAIN);
    assert_int_equal(stage.regs, 1); /* the window */
    stage.has_no_room = false;
    stage.loses_room = true; /* to another thread */
    assert_int_equal(move(&puts), REGX_AGAIN);
    assert_int_equal(move(&gets), REGX_AGAIN);
    assert_int_equal(stage.origin->onesided->pending, 0);
    assert_int_equal(stage.regs, 1 + stage.deregs);
    assert_int_equal(stage.origin->counters.onesided_device, 0);
    stage.loses_room = false;
    assert_int_equal(move(&puts), REGX_PENDING);
    run(REGX_OK);
    regx_onesided_complete(stage.origin->onesided);
    expect(&puts, REGX_OK);
    assert_int_equal(gets.times, 0);
}

static void no_more_are_open_than_may_be(void **state)
{
    static call_t calls[UNDER_WAY];

    (void)state;
    offer(stage.memory, BYTES);
    for (unsigned i = 0; i < UNDER_WAY; i++) {
        calls[i] = new_call(i % 2 == 0 ? REGX_ONESIDED_PUT : REGX_ONESIDED_GET, 0, 8);
        assert_int_equal(move(&calls[i]), i < REGX_ONESIDED_PENDING ? REGX_PENDING : REGX_AGAIN);
    }
    run(REGX_OK);
    regx_onesided_complete(stage.origin->onesided);
    for (unsigned i = 0; i < REGX_ONESIDED_PENDING; i++) {
        expect(&calls[i], REGX_OK);
    }
}

static void of_a_lost_connection_they_end_unreachable(void **state)
{
    (void)state;
    offer(stage.memory, BYTES);
    call_t puts = new_call(REGX_ONESIDED_PUT, 0, BYTES);
    assert_int_equal(move(&puts), REGX_PENDING);
    run(REGX_FAILED);
    regx_onesided_complete(stage.origin->onesided);
    expect(&puts, REGX_UNREACHABLE);
}

/* Its requests end when the connection does, each once; what had ended before ends as it did. */
static void of_a_peer_that_is_forgotten_they_end_with_the_connection(void **state)
{
    (void)state;
    offer(stage.memory, BYTES);
    call_t ended = new_call(REGX_ONESIDED_PUT, 0, 8);
    call_t long_put = new_call(REGX_ONESIDED_PUT, 0, BYTES);
    call_t gets = new_call(REGX_ONESIDED_GET, 0, 8);
    assert_int_equal(move(&ended), REGX_PENDING);
    run(REGX_OK);
    assert_int_equal(move(&long_put), REGX_PENDING);
    assert_int_equal(move(&gets), REGX_PENDING);
    regx_onesided_forget(stage.origin->onesided, &stage.origin->peers[1]);
    expect(&ended, REGX_OK);
    assert_int_equal(long_put.times + gets.times, 0); /* the device has them */
    run(REGX_FAILED);
    expect(&long_put, REGX_UNREACHABLE);
    expect(&gets, REGX_UNREACHABLE);
    assert_int_equal(stage.origin->onesided->pending, 0);
    assert_int_equal(stage.origin->ended, 0);
    regx_onesided_add(stage.origin->onesided, &stage.origin->peers[1], stage.target->id,
                      &stage.origin->conns[1].conn);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_stage, close_stage)
    const struct CMUnitTest tests[] = {
        TEST(the_device_does_them_and_the_target_is_not_asked),
        TEST(a_window_is_registered_while_it_is_offered),
        TEST(of_a_window_that_cannot_be_registered_the_target_is_asked),
        TEST(a_window_of_on_demand_pages_is_not_for_a_device_that_wants_whole_ones),
        TEST(a_window_of_no_bytes_is_not_registered),
        TEST(buffers_that_cannot_be_registered),
        TEST(without_room_it_is_for_the_caller_to_try_again),
        TEST(no_more_are_open_than_may_be),
        TEST(whole_pages_are_registered_only_if_the_device_follows_changes),
        TEST(of_a_lost_connection_they_end_unreachable),
        TEST(of_a_peer_that_is_forgotten_they_end_with_the_connection),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Puts and gets that a device makes: process 0 asks, process 1 has the window. The device notes
 * what it is to do, and does it when the test says.
 */
#include "../unit.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/util.h"
#include "line.h"
#include "onesided/device.h"

enum { BYTES = 8192, COPIED = 1000, UNDER_WAY = REGX_ONESIDED_PENDING + 1, BEFORE = 64 };

typedef struct call {
    regx_onesided_request_t request;
    unsigned times;
    regx_status_t status;
} call_t;

static struct {
    line_t processes[LINE_PROCESSES];
    line_t *origin, *target;
    regx_transport_ops_t ops;
    regx_registry_t registries[LINE_PROCESSES];
    _Alignas(4096) uint8_t before[64]; /* so that `memory` is not of whole pages */
    uint8_t memory[BYTES], mine[BYTES];
    regx_window_t *window;
    regx_window_name_t name;
    /* The device. */
    regx_put_t *puts[UNDER_WAY];
    regx_get_t *gets[UNDER_WAY];
    regx_fetch_t *fetches[UNDER_WAY];
    unsigned put_count, get_count, fetch_count;
    unsigned asked; /* the access of the last region */
    unsigned regs, deregs;
    bool refuses_memory, refuses_atomics, has_no_room, loses_room;
} stage;

/* Its regions begin before what was asked for, and a key is where. */
static regx_status_t reg(regx_transport_t *transport, void *base, size_t length, unsigned access,
                         regx_mr_t *mr)
{
    const uintptr_t start = (uintptr_t)base - BEFORE;

    (void)transport;
    if (stage.refuses_memory ||
        (stage.refuses_atomics && (access & REGX_ACCESS_REMOTE_ATOMIC) != 0)) {
        return REGX_NO_MEMORY;
    }
    stage.regs++;
    stage.asked = access;
    *mr = (regx_mr_t){.base = (void *)start, .length = length + BEFORE, .access = access};
    memcpy(mr->key.bytes, &start, sizeof(start));
    return REGX_OK;
}

static void dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    (void)transport;
    (void)mr;
    stage.deregs++;
}

static regx_status_t put(regx_conn_t *conn, regx_put_t *put)
{
    (void)conn;
    assert_true(put->silent && put->target == REGX_TARGET_REGION);
    if (stage.has_no_room || stage.loses_room) {
        return REGX_AGAIN;
    }
    stage.puts[stage.put_count++] = put;
    return REGX_PENDING;
}

static regx_status_t get(regx_conn_t *conn, regx_get_t *get)
{
    (void)conn;
    assert_true(get->region != NULL || get->length <= COPIED);
    if (stage.has_no_room || stage.loses_room) {
        return REGX_AGAIN;
    }
    stage.gets[stage.get_count++] = get;
    return REGX_PENDING;
}

static regx_status_t fetch(regx_conn_t *conn, regx_fetch_t *fetch)
{
    (void)conn;
    if (stage.has_no_room || stage.loses_room) {
        return REGX_AGAIN;
    }
    stage.fetches[stage.fetch_count++] = fetch;
    return REGX_PENDING;
}

static regx_status_t accepts(regx_conn_t *conn, bool puts)
{
    (void)conn;
    (void)puts;
    return stage.has_no_room ? REGX_AGAIN : REGX_OK;
}

static char *at(const regx_key_t *key, uint64_t offset)
{
    uintptr_t start;

    memcpy(&start, key->bytes, sizeof(start));
    return (char *)(start + offset);
}

/* The device does, or loses, all that it has. */
static void run(regx_status_t status)
{
    for (unsigned i = 0; i < stage.put_count; i++) {
        regx_put_t *made = stage.puts[i];

        if (status == REGX_OK) {
            memcpy(at(&made->key, made->offset), made->local, made->length);
        }
        made->done(made, status);
    }
    for (unsigned i = 0; i < stage.get_count; i++) {
        regx_get_t *made = stage.gets[i];

        if (status == REGX_OK) {
            memcpy(made->local, at(&made->key, made->offset), made->length);
        }
        made->done(made, status);
    }
    for (unsigned i = 0; i < stage.fetch_count; i++) {
        regx_fetch_t *made = stage.fetches[i];
        uint64_t *number = (uint64_t *)(void *)at(&made->key, made->offset);

        if (status == REGX_OK) {
            made->result = *number;
            if (!made->swaps) {
                *number += made->operand;
            } else if (*number == made->compare) {
                *number = made->operand;
            }
        }
        made->done(made, status);
    }
    stage.put_count = stage.get_count = stage.fetch_count = 0;
}

static void offer(void *base, size_t length)
{
    uint8_t bytes[REGX_WINDOW_NAME_SIZE];

    assert_int_equal(
        regx_onesided_offer(stage.target->onesided, base, length, &stage.window, bytes), REGX_OK);
    assert_true(regx_window_is(bytes));
    regx_window_unpack(bytes, &stage.name);
}

static int open_stage(void **state)
{
    const regx_cache_config_t none = {.bytes = 0};

    (void)state;
    memset(&stage, 0, sizeof(stage));
    line_open(stage.processes);
    stage.origin = &stage.processes[0];
    stage.target = &stage.processes[1];
    stage.ops = *stage.origin->transport.ops;
    stage.ops.reg = reg;
    stage.ops.dereg = dereg;
    stage.ops.put = put;
    stage.ops.get = get;
    stage.ops.fetch = fetch;
    stage.ops.accepts = accepts;
    for (unsigned i = 0; i < LINE_PROCESSES; i++) {
        line_t *process = &stage.processes[i];

        process->transport.ops = &stage.ops;
        process->transport.registers = true;
        process->transport.silent_copied = COPIED;
        process->onesided->config.registry = &stage.registries[i];
        assert_int_equal(regx_registry_open(&stage.registries[i], regx_backend_find("none"), NULL,
                                            &none, &process->transport, &process->counters),
                         REGX_OK);
    }
    unit_fill(stage.memory, BYTES, 1, 0);
    unit_fill(stage.mine, BYTES, 2, 0);
    return 0;
}

/* Also windows that are still offered are no longer registered. */
static int close_stage(void **state)
{
    (void)state;
    line_close(stage.processes);
    assert_int_equal(stage.regs, stage.deregs);
    for (unsigned i = 0; i < LINE_PROCESSES; i++) {
        regx_registry_close(&stage.registries[i]);
    }
    return 0;
}

static void done(regx_onesided_request_t *request, regx_status_t status)
{
    call_t *call = (call_t *)request;

    call->times++;
    call->status = status;
}

static call_t new_call(regx_onesided_type_t type, size_t offset, size_t length)
{
    return (call_t){.request = {.type = type,
                                .window = stage.name.handle,
                                .address = stage.name.base + offset,
                                .local = stage.mine + offset,
                                .length = length,
                                .done = done}};
}

static regx_status_t move(call_t *call)
{
    return regx_onesided_move(stage.origin->onesided, &stage.origin->peers[1], &stage.name,
                              &call->request);
}

static void expect(const call_t *call, regx_status_t status)
{
    assert_int_equal(call->times, 1);
    assert_int_equal(call->status, status);
}

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
        TEST(the_device_does_them_and_the_target_is_not_asked),
        TEST(a_window_is_registered_while_it_is_offered),
        TEST(of_a_window_that_cannot_be_registered_the_target_is_asked),
        TEST(a_window_of_on_demand_pages_is_not_for_a_device_that_wants_whole_ones),
        TEST(a_window_of_no_bytes_is_not_registered),
        TEST(buffers_that_cannot_be_registered),
        TEST(without_room_it_is_for_the_caller_to_try_again),
        TEST(no_more_are_open_than_may_be),
        TEST(the_device_adds_to_and_swaps_numbers_of_8_bytes),
        TEST(a_device_whose_atomics_are_its_own_does_none),
        TEST(without_atomics_a_window_is_written_and_read_all_the_same),
        TEST(a_fetch_is_made_once_or_is_lost),
        TEST(whole_pages_are_registered_only_if_the_device_follows_changes),
        TEST(of_a_lost_connection_they_end_unreachable),
        TEST(of_a_peer_that_is_forgotten_they_end_with_the_connection),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

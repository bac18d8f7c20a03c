/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Puts over a real device: every byte is there before the notice, and none beyond; those that
 * cannot be made fail, each once, and write nothing.
 */
#include "sides.h"

#include <stdlib.h>
#include <sys/mman.h>

static regx_put_t new_put(const void *local, size_t length, regx_target_t target, uint64_t offset)
{
    return (regx_put_t){.local = local,
                        .length = length,
                        .target = target,
                        .offset = offset,
                        .tag = 5,
                        .notice_length = 3,
                        .notice = "ab",
                        .done = side_put_done};
}

/* However long it takes to be connected. */
static void begin(regx_put_t *put)
{
    regx_status_t status;

    while ((status = regx_transport_ops.put(one.conn, put)) == REGX_AGAIN) {
        sides_progress();
    }
    assert_int_equal(status, REGX_PENDING);
}

/* The notice finds the bytes there, and none beyond them. */
static void do_put(regx_put_t *put, uint8_t *at, uint64_t stream)
{
    const unsigned before = two.delivered, was_done = done_ok;

    two.watched = at;
    two.watched_length = put->length;
    two.watched_stream = stream;
    begin(put);
    side_await(&two.delivered, before + 1);
    side_await(&done_ok, was_done + 1);
    assert_int_equal(two.last_tag, 5);
    assert_int_equal(two.last_length, 3);
    assert_memory_equal(two.last, "ab", 3);
    two.watched = NULL;
}

static void puts_to_the_pool_write_their_bytes_alone(void **state)
{
    const size_t sizes[] = {0, 1, 4095, 16383, 16384, 16385, 65536, 200000};

    (void)state;
    sides_open(false);

    uint8_t *local = malloc(POOL);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        regx_put_t put = new_put(local, sizes[i], REGX_TARGET_POOL, 4096);
        uint8_t *pool = two.transport->pool_memory;

        memset(pool, 0xee, POOL);
        unit_fill(local, sizes[i], i, 0);
        do_put(&put, pool + 4096, i);
        assert_int_equal(pool[4095], 0xee);
        assert_int_equal(pool[4096 + sizes[i]], 0xee);
        /* The same from the own pool, without a copy. */
        unit_fill(one.transport->pool_memory, sizes[i], 100 + i, 0);
        put = new_put(one.transport->pool_memory, sizes[i], REGX_TARGET_POOL, 8192);
        do_put(&put, pool + 8192, 100 + i);
    }
    regx_put_t outside = new_put(local, 4096, REGX_TARGET_POOL, POOL - 4095);
    assert_int_equal(regx_transport_ops.put(one.conn, &outside), REGX_INVALID);
    outside = new_put(local, 1, REGX_TARGET_POOL, UINT64_MAX);
    assert_int_equal(regx_transport_ops.put(one.conn, &outside), REGX_INVALID);
    sides_close();
    free(local);
}

/* Immediate data comes in the notice's place, and finds the bytes there, also where they had to be
 * copied; not where there are none. What follows it comes after it. */
static void an_immediate_comes_in_place_of_the_notice(void **state)
{
    const size_t sizes[] = {1, 4096, 100000};

    (void)state;
    sides_open(false);
    uint8_t *to = two.transport->pool_memory, *own = calloc(1, POOL);
    for (unsigned i = 0; i < 6; i++) {
        const size_t size = sizes[i % 3];
        uint8_t *from = i < 3 ? one.transport->pool_memory : own;
        regx_put_t put = new_put(from, size, REGX_TARGET_POOL, 4096);

        memset(to, 0xee, POOL);
        unit_fill(from, size, i, 0);
        put.immediate = REGX_IMMEDIATE_MAX - i;
        two.watched = to + 4096;
        two.watched_length = size;
        two.watched_stream = i;
        begin(&put);
        side_send(&one, 9, 7, 100);
        side_await(&two.delivered, i + 1);
        assert_int_equal(two.immediates, i + 1);
        assert_int_equal(two.last_immediate, put.immediate);
        assert_int_equal(two.last_tag, 9);
        assert_int_equal(to[4095], 0xee);
        assert_int_equal(to[4096 + size], 0xee);
        side_await(&done_ok, i + 1);
    }
    two.watched = NULL;
    regx_put_t nothing = new_put(own, 0, REGX_TARGET_POOL, 0);
    nothing.immediate = 1;
    do_put(&nothing, to, 0);
    assert_int_equal(two.immediates, 6);
    sides_close();
    free(own);
}

/* As on a device whose messages are short: the last of the writes tells, once. */
static void put_in_segments_with_immediate(regx_put_t put, uint8_t *at)
{
    const uint64_t most = verbs_of(&one)->can.segment_max;
    const unsigned immediates = two.immediates, delivered = two.delivered, done = done_ok;

    memset(at, 0xee, put.length);
    two.watched = at;
    two.watched_length = put.length;
    two.watched_stream = put.length;
    verbs_of(&one)->can.segment_max = 4096;
    put.immediate = 77;
    begin(&put);
    side_await(&done_ok, done + 1);
    side_await(&two.immediates, immediates + 1);
    verbs_of(&one)->can.segment_max = most;
    two.watched = NULL;
    assert_int_equal(two.last_immediate, 77);
    assert_int_equal(two.delivered, delivered);
}

static void puts_to_a_region_stay_within_it(void **state)
{
    regx_mr_t local, remote;

    (void)state;
    sides_open(false);

    uint8_t *from = malloc(4 * MIB), *to = malloc(4 * MIB);
    side_reg(&one, from, 4 * MIB, REGX_ACCESS_LOCAL, &local);
    side_reg(&two, to + 100, 3 * MIB, REGX_ACCESS_REMOTE_WRITE, &remote);
    for (size_t length = 1; length <= 3 * MIB; length = length * 7 + 13) {
        regx_put_t put = new_put(from + 5, length, REGX_TARGET_REGION, 3 * MIB - length);

        memset(to, 0xee, 4 * MIB);
        unit_fill(from + 5, length, length, 0);
        put.region = &local;
        put.key = remote.key;
        do_put(&put, to + 100 + 3 * MIB - length, length);
        assert_int_equal(to[100 + 3 * MIB], 0xee);
        assert_int_equal(to[99 + 3 * MIB - length], 0xee);
        put_in_segments_with_immediate(put, to + 100 + 3 * MIB - length);
        put = new_put(from + 5, length, REGX_TARGET_REGION, 3 * MIB - length + 1);
        put.region = &local;
        put.key = remote.key;
        assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_INVALID);
    }
    regx_transport_ops.dereg(one.transport, &local);
    regx_transport_ops.dereg(two.transport, &remote);
    sides_close();
    free(from);
    free(to);
}

/* Puts queue up behind one another and before frames; all of them come in order. */
static void queued_puts_end_in_order_before_frames(void **state)
{
    enum { PUTS = 40, LENGTH = 60000 };
    regx_put_t puts[PUTS];

    (void)state;
    sides_open(false);

    uint8_t *local = malloc((size_t)PUTS * LENGTH);
    side_expected = 0;
    for (unsigned i = 0; i < PUTS; i++) {
        unit_fill(local + (size_t)i * LENGTH, LENGTH, i, 0);
        puts[i] = new_put(local + (size_t)i * LENGTH, LENGTH, REGX_TARGET_POOL, 0);
        puts[i].tag = (uint8_t)i;
        puts[i].notice_length = 20;
        unit_fill(puts[i].notice, 20, i, 0);
        begin(&puts[i]);
    }
    two.on_deliver = side_in_order;
    side_send(&one, PUTS, PUTS, 100);
    side_await(&two.delivered, PUTS + 1);
    side_await(&done_ok, PUTS);
    assert_true(unit_is_filled(two.transport->pool_memory, LENGTH, PUTS - 1));
    sides_close();
    free(local);
}

/* A key that was given back opens nothing: the writer gets an error, told once, by a line that
 * names operation and status; every put ends exactly once. */
static void a_key_that_was_given_back_opens_nothing(void **state)
{
    regx_mr_t local, remote;
    regx_put_t puts[3];

    (void)state;
    sides_open(false);

    uint8_t *from = malloc(MIB), *to = malloc(MIB);
    side_send(&one, 1, 1, 1);
    side_await(&two.delivered, 1);
    side_reg(&one, from, MIB, REGX_ACCESS_LOCAL, &local);
    side_reg(&two, to, MIB, REGX_ACCESS_REMOTE_WRITE, &remote);
    memset(to, 0xee, MIB);
    regx_transport_ops.dereg(two.transport, &remote);
    for (int i = 0; i < 3; i++) {
        puts[i] = new_put(from, MIB, REGX_TARGET_REGION, 0);
        puts[i].region = &local;
        puts[i].key = remote.key;
        begin(&puts[i]);
    }
    side_await(&one.broken, 1);
    sides_settle();
    assert_int_equal(done_failed, 3);
    assert_int_equal(done_ok, 0);
    assert_non_null(strstr(one.what, "RDMA WRITE: "));
    assert_non_null(strstr(one.what, "remote access error"));
    assert_int_equal(two.delivered, 1);
    for (size_t i = 0; i < MIB; i++) {
        assert_int_equal(to[i], 0xee);
    }
    assert_false(regx_transport_ops.reachable(one.conn));
    assert_int_equal(regx_transport_ops.send(one.conn, 1, NULL, 0, NULL, NULL, 0),
                     REGX_UNREACHABLE);
    assert_int_equal(regx_transport_ops.put(one.conn, &puts[0]), REGX_UNREACHABLE);
    for (int i = 0; i < 1000; i++) {
        regx_transport_ops.progress(one.transport);
    }
    assert_int_equal(one.broken, 1);
    regx_transport_ops.dereg(one.transport, &local);
    sides_close();
    free(from);
    free(to);
}

/* The same for memory that was registered to be read only, by this process or by others, or to be
 * written by this process. */
static void a_key_of_the_wrong_kind_writes_nothing(void **state)
{
    static const unsigned kinds[] = {REGX_ACCESS_LOCAL, REGX_ACCESS_REMOTE_READ,
                                     REGX_ACCESS_LOCAL_WRITE};

    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        regx_mr_t remote;

        sides_open(false);
        uint8_t *memory = calloc(1, 8192);
        side_reg(&two, memory, 8192, kinds[kind], &remote);
        regx_put_t put = new_put(one.transport->pool_memory, 4096, REGX_TARGET_REGION, 0);
        memset(one.transport->pool_memory, 1, 4096);
        put.key = remote.key;
        begin(&put);
        side_await(&one.broken, 1);
        sides_settle();
        assert_int_equal(done_failed, 1);
        for (int i = 0; i < 8192; i++) {
            assert_int_equal(memory[i], 0);
        }
        regx_transport_ops.dereg(two.transport, &remote);
        sides_close();
        free(memory);
    }
}

enum { AT_ONCE = 8 };

/* So many are under way. Answers where they are from. */
static uint8_t *open_and_put(regx_put_t puts[AT_ONCE])
{
    sides_open(false);

    uint8_t *local = calloc(1, POOL);
    side_send(&one, 1, 1, 1);
    side_await(&two.delivered, 1);
    for (int i = 0; i < AT_ONCE; i++) {
        puts[i] = new_put(local, POOL, REGX_TARGET_POOL, 0);
        begin(&puts[i]);
    }
    return local;
}

/* The own queue pair is driven to error from outside, in the middle of puts. */
static void every_put_ends_when_the_own_queue_pair_fails(void **state)
{
    regx_put_t puts[AT_ONCE];

    (void)state;

    uint8_t *local = open_and_put(puts);
    side_fail(regx_ep_find(verbs_of(&one), TWO)->qp);
    side_await(&one.broken, 1);
    sides_settle();
    assert_int_equal(done_ok + done_failed, AT_ONCE);
    assert_true(done_failed > 0);
    assert_int_equal(verbs_of(&one)->buffers.slot_count, REGX_VERBS_SLOTS);
    assert_int_equal(verbs_of(&one)->requests.unsignaled, 0);
    sides_close();
    free(local);
}

static void disconnecting_ends_puts(void **state)
{
    regx_put_t puts[AT_ONCE];

    (void)state;

    uint8_t *local = open_and_put(puts);
    regx_transport_ops.disconnect(one.conn);
    one.conn = NULL;
    assert_int_equal(done_ok + done_failed, AT_ONCE);
    assert_true(done_failed > 0);
    assert_int_equal(one.broken, 0);
    sides_close();
    free(local);
}

static void memory_that_cannot_be_accessed_so_is_not_registered(void **state)
{
    const size_t page = 4096;
    regx_mr_t mr;

    (void)state;
    sides_open(false);
    uint8_t *memory = mmap(NULL, 4 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    side_reg(&one, memory, 4 * page, REGX_ACCESS_LOCAL, &mr); /* to send from it */
    regx_transport_ops.dereg(one.transport, &mr);
    assert_int_equal(
        regx_transport_ops.reg(one.transport, memory, 4 * page, REGX_ACCESS_REMOTE_WRITE, &mr),
        REGX_DENIED);
    assert_int_equal(munmap(memory + page, page), 0);
    assert_int_equal(
        regx_transport_ops.reg(one.transport, memory, 4 * page, REGX_ACCESS_LOCAL, &mr),
        REGX_DENIED);
    munmap(memory, 4 * page);
    sides_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_to_the_pool_write_their_bytes_alone),
        cmocka_unit_test(an_immediate_comes_in_place_of_the_notice),
        cmocka_unit_test(puts_to_a_region_stay_within_it),
        cmocka_unit_test(queued_puts_end_in_order_before_frames),
        cmocka_unit_test(a_key_that_was_given_back_opens_nothing),
        cmocka_unit_test(a_key_of_the_wrong_kind_writes_nothing),
        cmocka_unit_test(every_put_ends_when_the_own_queue_pair_fails),
        cmocka_unit_test(disconnecting_ends_puts),
        cmocka_unit_test(memory_that_cannot_be_accessed_so_is_not_registered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Frames over a real device arrive once, whole and in order, however long they are, lent or not,
 * and whoever sends them from where.
 */
#include <stdlib.h>

#include "sides.h"

#include <pthread.h>
#include <sched.h>

static void frames_of_all_sizes_arrive_whole(void **state)
{
    const size_t sizes[] = {0,    1,    8,    255,  256,   257,   4096,
                            8191, 8192, 8448, 8449, 16384, 16385, REGX_VERBS_FRAME_MAX};
    unsigned count = 0;

    (void)state;
    sides_open(false);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        count++;
        side_send(&one, (uint8_t)i, i, sizes[i]);
        side_await(&two.delivered, count);
        assert_int_equal(two.last_tag, i);
        assert_int_equal(two.last_length, sizes[i]);
        assert_true(unit_is_filled(two.last, sizes[i], i));
        side_send(&two, (uint8_t)(100 + i), 1000 + i, sizes[i]);
        side_await(&one.delivered, count);
        assert_int_equal(one.last_tag, 100 + i);
        assert_true(unit_is_filled(one.last, sizes[i], 1000 + i));
    }
    assert_int_equal(regx_transport_ops.send(one.conn, 0, NULL, 0, side_pack, &one.self,
                                             REGX_VERBS_FRAME_MAX + 1),
                     REGX_INVALID);
    sides_close();
}

static void header_and_payload_arrive_as_one_frame(void **state)
{
    uint8_t header[256];
    uint64_t stream = 9;

    (void)state;
    sides_open(false);
    unit_fill(header, sizeof(header), 8, 0);
    for (size_t payload = 0; payload <= 3000; payload += 1500) {
        regx_status_t status;

        while ((status = regx_transport_ops.send(one.conn, 3, header, sizeof(header), side_pack,
                                                 &stream, payload)) == REGX_AGAIN) {
            sides_progress();
        }
        assert_int_equal(status, REGX_OK);
        side_await(&two.delivered, (unsigned)(payload / 1500) + 1);
        assert_int_equal(two.last_length, sizeof(header) + payload);
        assert_true(unit_is_filled(two.last, sizeof(header), 8));
        assert_true(unit_is_filled(two.last + sizeof(header), payload, 9));
    }
    sides_close();
}

/* Far more than the receive queue and the slots hold, while the receiver does not look; all comes,
 * in order, and nothing else. */
static void more_frames_than_there_is_room_arrive_in_order(void **state)
{
    const size_t sizes[] = {40, 3000, 200, 16000};
    unsigned accepted = 0, refused = 0;

    (void)state;
    sides_open(false);
    side_send(&one, 0, 0, 1); /* connects */
    side_await(&two.delivered, 1);
    side_expected = accepted = 1;
    two.on_deliver = side_in_order;
    while (refused < 100000) {
        uint64_t stream = accepted;

        if (regx_transport_ops.send(one.conn, (uint8_t)(accepted % 251), NULL, 0, side_pack,
                                    &stream, sizes[accepted % 4]) == REGX_OK) {
            accepted++;
        } else {
            refused++;
            regx_transport_ops.progress(one.transport);
        }
    }
    assert_int_equal(two.delivered, 1);
    assert_true(accepted > 32);
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t stream = accepted;

        while (regx_transport_ops.send(one.conn, (uint8_t)(accepted % 251), NULL, 0, side_pack,
                                       &stream, sizes[accepted % 4]) == REGX_AGAIN) {
            sides_progress();
        }
        accepted++;
    }
    side_await(&two.delivered, accepted);
    sides_close();
}

/* Sends that tell nothing of their end keep their slots: peers that are left alone then must leave
 * most to the others. */
static void idle_peers_leave_most_slots_to_the_others(void **state)
{
    enum { PEERS = 4, FEW = 15, MANY = 200 };
    static side_t peers[PEERS];
    regx_conn_t *conns[PEERS];

    (void)state;
    side_open(&one, ONE, TWO, false);
    for (unsigned i = 0; i < PEERS; i++) {
        side_t *peer = &peers[i];
        const unsigned frames = i + 1 < PEERS ? FEW : MANY;

        side_open(peer, TWO + i, ONE, false);
        one.other = peer->self;
        side_connect(&one, peer);
        conns[i] = one.conn;
        for (unsigned sent = 0; sent < frames;) {
            uint64_t stream = sent;

            sent +=
                regx_transport_ops.send(one.conn, 1, NULL, 0, side_pack, &stream, 1000) == REGX_OK;
            regx_transport_ops.progress(one.transport);
            regx_transport_ops.progress(peer->transport);
            assert_true(verbs_of(&one)->requests.unsignaled_slots <= REGX_VERBS_SLOTS / 4);
        }
        while (peer->delivered < frames) {
            regx_transport_ops.progress(one.transport);
            regx_transport_ops.progress(peer->transport);
        }
        assert_true(unit_is_filled(peer->last, 1000, frames - 1));
    }
    assert_int_equal(verbs_of(&one)->requests.unsignaled_slots,
                     REGX_VERBS_SLOTS / 4); /* as many as may */
    while (verbs_of(&one)->buffers.slot_count < REGX_VERBS_SLOTS - REGX_VERBS_SLOTS / 4) {
        regx_transport_ops.progress(one.transport); /* the rest comes back */
    }
    for (unsigned i = 0; i < PEERS; i++) {
        regx_transport_ops.disconnect(conns[i]);
        regx_transport_ops.close(peers[i].transport);
    }
    regx_transport_ops.close(one.transport);
}

/* Peers that do not read leave slots to others. */
static void slots_are_shared(void **state)
{
    enum { PEERS = 6 };
    uint32_t slots[PEERS][REGX_VERBS_SLOTS], held[PEERS] = {0};

    (void)state;
    sides_open(false);
    for (unsigned i = 0; i < PEERS; i++) {
        while ((slots[i][held[i]] = regx_slot_take(verbs_of(&one), held[i])) != REGX_SLOT_NONE) {
            held[i]++;
        }
        assert_int_equal(held[i], REGX_VERBS_SLOTS >> (i + 1)); /* half of what is left */
    }
    for (unsigned i = 0; i < PEERS; i++) {
        while (held[i] > 0) {
            held[i]--;
            regx_slot_give(verbs_of(&one), slots[i][held[i]], held[i]);
        }
    }
    sides_close();
}

static void zero_copy_sends_of_all_sizes_arrive(void **state)
{
    const size_t sizes[] = {0, 1, 8448, 8449, 65535, 65536};
    regx_zcopy_t zcopy = {.tag = 7, .done = side_zcopy_done};

    (void)state;
    sides_open(false);
    zcopy.data = one.transport->pool_memory;
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        regx_status_t status;

        unit_fill(one.transport->pool_memory, sizes[i], i, 0);
        zcopy.length = sizes[i];
        while ((status = regx_transport_ops.send_zcopy(one.conn, &zcopy)) == REGX_AGAIN) {
            sides_progress();
        }
        assert_int_equal(status, REGX_PENDING);
        side_await(&two.delivered, i + 1);
        side_await(&done_ok, i + 1);
        assert_int_equal(two.last_length, sizes[i]);
        assert_true(unit_is_filled(two.last, sizes[i], i));
    }
    sides_close();
}

static void answer(side_t *side)
{
    uint64_t stream = side->last_tag;

    if (side->last_tag > 0) {
        /* From inside deliver, on a connection that may not have been used before. */
        if (regx_transport_ops.send(side->conn, side->last_tag - 1, NULL, 0, side_pack, &stream,
                                    500) == REGX_AGAIN) {
            side->on_deliver = NULL;
        }
    }
}

static void a_callback_may_answer(void **state)
{
    (void)state;
    sides_open(false);
    side_send(&two, 0, 0, 1);
    side_await(&one.delivered, 1);
    one.on_deliver = two.on_deliver = answer;
    side_send(&one, 200, 0, 500);
    while (one.last_tag > 1 || two.last_tag > 1 || one.delivered + two.delivered < 202) {
        sides_progress();
    }
    assert_non_null(one.on_deliver);
    assert_non_null(two.on_deliver);
    sides_close();
}

/* A process talks to itself by the same means. */
static void a_process_sends_to_itself(void **state)
{
    (void)state;
    done_ok = done_failed = 0;
    side_open(&one, ONE, ONE, false);
    side_connect(&one, &one);
    for (unsigned i = 1; i <= 20; i++) {
        regx_status_t status;
        uint64_t stream = i;

        while ((status = regx_transport_ops.send(one.conn, 1, NULL, 0, side_pack, &stream,
                                                 i * 800)) == REGX_AGAIN) {
            regx_transport_ops.progress(one.transport);
        }
        assert_int_equal(status, REGX_OK);
        while (one.delivered < i) {
            regx_transport_ops.progress(one.transport);
        }
        assert_true(unit_is_filled(one.last, i * 800, i));
    }
    regx_transport_ops.disconnect(one.conn);
    regx_transport_ops.close(one.transport);
}

static _Atomic bool stop, sender_ended;

static void *progress_two(void *nothing)
{
    while (!stop) {
        regx_transport_ops.progress(two.transport);
    }
    return nothing;
}

static void *send_many(void *nothing)
{
    uint64_t stream = 4;

    for (int i = 0; i < 300; i++) {
        while (regx_transport_ops.send(one.conn, 2, NULL, 0, side_pack, &stream, (size_t)i * 20) !=
               REGX_OK) {
            sched_yield();
        }
    }
    sender_ended = true;
    return nothing;
}

/* Two threads send at once while others make progress. */
static void threads_send_at_once_beside_progress(void **state)
{
    pthread_t sender, progresser;

    (void)state;
    sides_open(true);
    stop = sender_ended = false;
    pthread_create(&progresser, NULL, progress_two, NULL);
    pthread_create(&sender, NULL, send_many, NULL);
    for (int i = 0; i < 300; i++) {
        uint64_t stream = 5;

        while (regx_transport_ops.send(one.conn, 2, NULL, 0, side_pack, &stream, (size_t)i * 20) !=
               REGX_OK) {
            regx_transport_ops.progress(one.transport);
        }
    }
    while (!sender_ended) {
        regx_transport_ops.progress(one.transport);
    }
    pthread_join(sender, NULL);
    stop = true;
    pthread_join(progresser, NULL);
    side_await(&two.delivered, 600);
    sides_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_all_sizes_arrive_whole),
        cmocka_unit_test(header_and_payload_arrive_as_one_frame),
        cmocka_unit_test(more_frames_than_there_is_room_arrive_in_order),
        cmocka_unit_test(idle_peers_leave_most_slots_to_the_others),
        cmocka_unit_test(slots_are_shared),
        cmocka_unit_test(zero_copy_sends_of_all_sizes_arrive),
        cmocka_unit_test(a_callback_may_answer),
        cmocka_unit_test(a_process_sends_to_itself),
        cmocka_unit_test(threads_send_at_once_beside_progress),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

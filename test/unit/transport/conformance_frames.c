/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Conformance: addresses, and frames. What is accepted arrives once, whole and in order.
 */
#include "parties.h"

/* ---- addresses ---- */

CONFORMANCE_TEST(an_address_of_another_length_is_refused)
{
    uint8_t address[REGX_ADDRESS_MAX];
    regx_conn_t *conn;

    const size_t length = tested->ops->address(two.transport, address);
    for (size_t wrong = 0; wrong < length; wrong++) {
        assert_int_equal(tested->ops->connect(one.transport, THREE, address, wrong, &conn),
                         REGX_INVALID);
    }
    if (tested->ops->reaches != NULL) {
        assert_true(tested->ops->reaches(one.transport, address, length, true));
        assert_false(tested->ops->reaches(one.transport, address, length - 1, true));
    }
}

/* ---- frames ---- */

static void await_frame(const party_t *at, unsigned count, uint8_t tag, uint64_t stream,
                        size_t length)
{
    parties_await(&at->delivered, count);
    assert_int_equal(at->last_tag, tag);
    assert_int_equal(at->last_length, length);
    assert_true(unit_is_filled(at->last, length, stream));
}

CONFORMANCE_TEST(frames_of_each_length_arrive_whole)
{
    const size_t lengths[] = {0,    1,    8,     16,    17,    55,    56,   57,
                              112,  113,  448,   449,   4095,  4096,  8191, 8192,
                              8448, 8449, 10000, 16384, 16640, 32767, 32768};
    unsigned count = 0;

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        if (lengths[i] <= one.transport->max_frame) {
            count++;
            party_send(&one, (uint8_t)i, i, lengths[i]);
            await_frame(&two, count, (uint8_t)i, i, lengths[i]);
            party_send(&two, (uint8_t)(REGX_TAG_OWN - 1 - i), 1000 + i, lengths[i]);
            await_frame(&one, count, (uint8_t)(REGX_TAG_OWN - 1 - i), 1000 + i, lengths[i]);
        }
    }
    party_send(&one, 1, 5, one.transport->max_frame);
    await_frame(&two, count + 1, 1, 5, one.transport->max_frame);
    assert_int_equal(party_try(&one, 1, 5, one.transport->max_frame + 1), REGX_INVALID);
    parties_settle();
    assert_int_equal(two.delivered, count + 1);
}

/* The payload lies there, as with a NULL for pack; or there is none. */
CONFORMANCE_TEST(header_and_payload_arrive_as_one_frame)
{
    const size_t headers[] = {0, 1, 12, 56, 256}, payloads[] = {0, 1, 8, 13, 300, 5000};
    uint8_t header[256], payload[5000];
    unsigned count = 0;

    unit_fill(header, sizeof(header), 8, 0);
    unit_fill(payload, sizeof(payload), 9, 0);
    for (size_t i = 0; i < 30; i++) {
        const size_t first = headers[i / 6], second = payloads[i % 6];
        regx_status_t status;

        until((status = tested->ops->send(one.conn, 3, header, first, NULL, payload, second)) !=
                  REGX_AGAIN,
              parties_progress());
        assert_int_equal(status, REGX_OK);
        parties_await(&two.delivered, ++count);
        assert_int_equal(two.last_length, first + second);
        assert_true(unit_is_filled(two.last, first, 8));
        assert_true(unit_is_filled(two.last + first, second, 9));
    }
}

CONFORMANCE_TEST(zero_copy_sends_of_each_length_arrive)
{
    op_t op;

    const size_t most = one.transport->max_zcopy;
    const size_t lengths[] = {0, 1, 56, 4096, 8448, 8449, most - 1, most};
    uint8_t *pool = one.transport->pool_memory;
    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        regx_status_t status;

        unit_fill(pool + 4096, lengths[i], i, 0);
        op_zcopy(&op, pool + 4096, lengths[i], 7);
        until((status = tested->ops->send_zcopy(one.conn, &op.zcopy)) != REGX_AGAIN,
              parties_progress());
        await_frame(&two, i + 1, 7, i, lengths[i]);
        if (status == REGX_OK) {
            continue; /* it was copied */
        }
        assert_int_equal(status, REGX_PENDING);
        op_await(&op);
        memset(pool, 0xee, POOL); /* it may be used again */
    }
}

/* ---- order ---- */

static unsigned expected; /* the frame that is to come to `two` */
static const size_t mixed[] = {40, 3000, 200, 0, 8000, 57};

static void in_order(party_t *party)
{
    assert_int_equal(party->last_length, mixed[expected % 6]);
    assert_int_equal(party->last_tag, expected % 251);
    assert_true(unit_is_filled(party->last, party->last_length, expected));
    expected++;
}

/* Frame n from `one`: copied, or lent from one of eight places in the pool. */
static bool send_mixed(unsigned n)
{
    static op_t lent[8];
    op_t *op = &lent[n % 8];
    uint8_t *place = (uint8_t *)one.transport->pool_memory + (n % 8) * 8192;

    if (n < 8) {
        op->ended = 1;
    }
    if (n % 3 != 0) {
        return party_try(&one, (uint8_t)(n % 251), n, mixed[n % 6]) == REGX_OK;
    }
    if (op->ended == 0) {
        return false;
    }
    unit_fill(place, mixed[n % 6], n, 0);
    op_zcopy(op, place, mixed[n % 6], (uint8_t)(n % 251));
    const regx_status_t status = tested->ops->send_zcopy(one.conn, &op->zcopy);
    op->ended = status != REGX_PENDING;
    return status != REGX_AGAIN;
}

CONFORMANCE_TEST(copied_and_lent_frames_arrive_in_order)
{
    enum { FRAMES = 2000 };
    unsigned sent = 0;

    expected = 0;
    two.on_deliver = in_order;
    while (sent < FRAMES || two.delivered < FRAMES) {
        while (sent < FRAMES && send_mixed(sent)) {
            sent++;
        }
        parties_progress();
    }
    two.on_deliver = NULL;
}

/* Frames to `two`, which makes no progress, until no more are accepted for long. Returns how many
 * have been sent. */
static unsigned fill_the_way(unsigned sent)
{
    for (unsigned refused = 0; refused < 1000;) {
        if (party_try(&one, (uint8_t)(sent % 251), sent, mixed[sent % 6]) == REGX_OK) {
            sent++;
        } else {
            refused++;
            tested->ops->progress(one.transport);
        }
    }
    return sent;
}

/* Wherever a transport's rings stand then. */
CONFORMANCE_TEST(more_frames_than_there_is_room_for_arrive_in_order)
{
    enum { ROUNDS = 30 };

    expected = 0;
    two.on_deliver = in_order;
    party_send(&one, 0, 0, mixed[0]);
    parties_await(&two.delivered, 1);
    for (unsigned sent = 1, round = 0; round < ROUNDS; round++) {
        const unsigned before = sent;

        sent = fill_the_way(sent);
        assert_int_equal(two.delivered, before);
        assert_true(sent > before + 16);
        for (unsigned i = 0; i < 100 + round; i++, sent++) {
            party_send(&one, (uint8_t)(sent % 251), sent, mixed[sent % 6]);
        }
        parties_await(&two.delivered, sent);
    }
    two.on_deliver = NULL;
}

CONFORMANCE_TEST(a_peer_that_does_not_read_stops_no_other)
{
    expected = 0;
    two.on_deliver = in_order;
    party_send(&one, 0, 0, mixed[0]);
    parties_await(&two.delivered, 1);
    const unsigned sent = fill_the_way(1);
    regx_conn_t *const to_two = one.conn;

    party_open(&three, THREE, false);
    party_connect(&one, &three);
    for (unsigned n = 0; n < 600; n++) {
        while (party_try(&one, 1, n, 300) == REGX_AGAIN) {
            tested->ops->progress(one.transport);
            tested->ops->progress(three.transport);
        }
        while (three.delivered <= n) {
            tested->ops->progress(one.transport);
            tested->ops->progress(three.transport);
        }
        assert_true(unit_is_filled(three.last, 300, n));
    }
    assert_int_equal(two.delivered, 1);
    parties_await(&two.delivered, sent);
    two.on_deliver = NULL;
    tested->ops->disconnect(one.conn);
    one.conn = to_two;
    parties_settle();
    party_close(&three);
}

/* ---- from where frames may be sent ---- */

static void answer(party_t *party)
{
    if (party->last_tag > 0 &&
        party_try(party, party->last_tag - 1, party->last_tag, 500) != REGX_OK) {
        party->on_deliver = NULL;
    }
}

CONFORMANCE_TEST(a_delivery_may_answer)
{
    parties_exchange();
    one.on_deliver = two.on_deliver = answer;
    party_send(&one, 200, 0, 500);
    until(one.delivered + two.delivered >= 2 + 201, parties_progress());
    assert_ptr_equal(one.on_deliver, two.on_deliver);
    assert_int_equal(two.last_tag, 0);
    one.on_deliver = two.on_deliver = NULL;
}

UNIT_TEST_BETWEEN(a_process_sends_to_itself, conformance_reset, NULL)
{
    party_open(&one, ONE, false);
    party_connect(&one, &one);
    for (unsigned i = 1; i <= 20; i++) {
        party_send(&one, 1, i, (size_t)i * 400);
        await_frame(&one, i, 1, i, (size_t)i * 400);
        assert_true(one.last_sender == ONE);
    }
    party_end(&one);
}

/* ---- threads ---- */

enum { BY_EACH = 300 };
static _Atomic bool sender_has_ended;

static void *send_many(void *nothing)
{
    for (unsigned i = 0; i < BY_EACH; i++) {
        await(party_try(&one, 2, i, (size_t)i * 20) == REGX_OK);
    }
    sender_has_ended = true;
    return nothing;
}

static uint64_t arrived_bytes;

static void check_stamp(party_t *party)
{
    assert_true(unit_is_filled(party->last, party->last_length, party->last_length / 20));
    arrived_bytes += party->last_length;
}

/* Two threads send by one connection, one of which makes progress as well; another reads. */
UNIT_TEST_BETWEEN(threads_send_at_once_beside_progress, conformance_reset, NULL)
{
    parties_open(true);
    sender_has_ended = false;
    arrived_bytes = 0;
    two.on_deliver = check_stamp;
    two_works_begin();
    const pthread_t sender = unit_thread(send_many, NULL);
    for (unsigned i = 0; i < BY_EACH; i++) {
        until(party_try(&one, 2, i, (size_t)i * 20) == REGX_OK,
              tested->ops->progress(one.transport));
    }
    until(sender_has_ended, tested->ops->progress(one.transport));
    pthread_join(sender, NULL);
    two_works_end();
    parties_await(&two.delivered, 2 * BY_EACH);
    assert_true(arrived_bytes == UINT64_C(20) * BY_EACH * (BY_EACH - 1));
    two.on_deliver = NULL;
    parties_close();
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Buffers that are used again, by the strategy auto: the receiver grants one that it knows whole,
 * and a sender to whom its own is new writes that in pieces.
 */
#include "pair.h"

#include "rendezvous/send.h"

enum { CHUNK = 4096, DEPTH = 4, WHOLE = DEPTH * CHUNK };

static const fake_config_t keeping = {.slots = 300,
                                      .slot_size = 64,
                                      .strategy = "auto",
                                      .chunk_size = CHUNK,
                                      .chunk_depth = DEPTH,
                                      .cache_bytes = REGX_UNLIMITED};

/* Puts are done at once, or later. */
static const regx_status_t answers[] = {REGX_OK, REGX_PENDING};

typedef struct buffers {
    guarded_t sent, received;
} buffers_t;

/* What one transfer took, of each end. */
typedef struct taken {
    uint64_t grants, puts, registered, sender_registered;
} taken_t;

static buffers_t buffers_new(size_t length)
{
    return (buffers_t){guarded_new(length), guarded_new(length)};
}

static void buffers_free(buffers_t *buffers)
{
    guarded_free(&buffers->sent);
    guarded_free(&buffers->received);
}

static taken_t taken_so_far(const pair_t *pair)
{
    return (taken_t){.grants = pair->receiver->counters.grants,
                     .puts = pair->sender->counters.puts,
                     .registered = pair->receiver->counters.registrations,
                     .sender_registered = pair->sender->counters.registrations};
}

/* Sends once; the transfer's own bytes are to arrive. */
static taken_t send_once(pair_t *pair, const buffers_t *buffers)
{
    static uint64_t stream;
    const taken_t before = taken_so_far(pair);
    const unsigned dones = pair->dones;
    const size_t length = buffers->sent.length;

    guarded_fill(&buffers->sent, ++stream);
    regx_rndv_recv_t *recv = regx_rndv_recv_open(pair->receiver->rndv, &pair->receiver->peers[0],
                                                 buffers->received.base, length);
    regx_rndv_send_open(pair->sender->rndv, &pair->sender->peers[1], buffers->sent.base, length,
                        fake_cts(recv), pair_done, pair);
    pair_run(pair);
    assert_int_equal(pair->dones, dones + 1);
    assert_int_equal(pair->status, REGX_OK);
    assert_memory_equal(buffers->received.base, buffers->sent.base, length);
    assert_int_equal(pair->sender->counters.malformed, 0);
    assert_int_equal(pair->receiver->counters.malformed, 0);
    regx_rndv_recv_close(pair->receiver->rndv, recv);
    const taken_t after = taken_so_far(pair);
    return (taken_t){.grants = after.grants - before.grants,
                     .puts = after.puts - before.puts,
                     .registered = after.registered - before.registered,
                     .sender_registered = after.sender_registered - before.sender_registered};
}

static void assert_taken(taken_t taken, taken_t expected)
{
    assert_int_equal(taken.grants, expected.grants);
    assert_int_equal(taken.puts, expected.puts);
    assert_int_equal(taken.registered, expected.registered);
    assert_int_equal(taken.sender_registered, expected.sender_registered);
}

static void end(pair_t *pair)
{
    fake_close(pair->sender);
    fake_close(pair->receiver);
    free(pair);
}

/* As the MPI library's progress does. */
static void settle(pair_t *pair)
{
    fake_settle(pair->sender);
    fake_settle(pair->receiver);
}

static pair_t *begin(const fake_config_t *config, regx_status_t puts)
{
    pair_t *pair = pair_open(config, config);

    pair->puts = puts;
    return pair;
}

/* First in chunks; then, being known, whole, which is registered once; then it is found. */
static void a_known_buffer_goes_as_one_chunk(void **state)
{
    (void)state;
    for (size_t a = 0; a < 2; a++) {
        pair_t *pair = begin(&keeping, answers[a]);
        buffers_t buffers = buffers_new(WHOLE);

        assert_taken(send_once(pair, &buffers), (taken_t){DEPTH, DEPTH, DEPTH, DEPTH});
        assert_taken(send_once(pair, &buffers), (taken_t){1, 1, 1, 1});
        for (unsigned i = 0; i < 10; i++) {
            assert_taken(send_once(pair, &buffers), (taken_t){1, 1, 0, 0});
        }
        assert_int_equal(pair->sender->counters.messages[REGX_PATH_pipeline], 12);
        assert_int_equal(pair->sender->counters.bytes[REGX_PATH_pipeline], 12 * WHOLE);
        assert_int_equal(pair->sender->counters.messages[REGX_PATH_fallback], 0);
        buffers_free(&buffers);
        end(pair);
    }
}

/* Neither by the other strategies, nor without a cache, nor what is longer than may be in flight,
 * nor once its memory has changed. */
static void a_new_buffer_goes_in_chunks(void **state)
{
    fake_config_t configs[] = {keeping, keeping, keeping};

    (void)state;
    configs[1].strategy = "pipeline";
    configs[2].cache_bytes = 0;
    for (size_t c = 0; c < 3; c++) {
        pair_t *pair = begin(&configs[c], REGX_OK);
        buffers_t buffers = buffers_new(WHOLE + (c == 0));
        const uint64_t chunks = DEPTH + (c == 0);

        for (unsigned i = 0; i < 5; i++) {
            const taken_t taken = send_once(pair, &buffers);

            assert_int_equal(taken.grants, chunks);
            assert_int_equal(taken.puts, chunks);
        }
        buffers_free(&buffers);
        end(pair);
    }
    pair_t *pair = begin(&keeping, REGX_OK);
    buffers_t buffers = buffers_new(WHOLE);

    for (unsigned i = 0; i < 5; i++) {
        assert_taken(send_once(pair, &buffers), (taken_t){DEPTH, DEPTH, DEPTH, DEPTH});
        fake_changed(buffers.sent.base, WHOLE);
        fake_changed(buffers.received.base, WHOLE);
    }
    buffers_free(&buffers);
    end(pair);
}

/* The registration of the whole is refused: a chunk is granted as ever. */
static void a_buffer_that_cannot_be_registered_whole_goes_in_chunks(void **state)
{
    pair_t *pair = begin(&keeping, REGX_OK);
    buffers_t buffers = buffers_new(WHOLE);

    (void)state;
    send_once(pair, &buffers);
    pair->refused_region = pair->receiver->calls[FAKE_REG] + 1;
    pair->refused_most = pair->refused_region + 1; /* also when others have been given up for it */
    assert_taken(send_once(pair, &buffers), (taken_t){DEPTH, DEPTH, DEPTH, 0});
    for (unsigned i = 0; i < 3; i++) {
        assert_taken(send_once(pair, &buffers), (taken_t){DEPTH, DEPTH, 0, 0});
    }
    assert_int_equal(pair->receiver->calls[FAKE_REG], pair->refused_most + DEPTH);
    assert_int_equal(pair->sender->counters.messages[REGX_PATH_fallback], 0);
    buffers_free(&buffers);
    end(pair);
}

/* An end that can register no more than a chunk at once: that costs one message its path at the
 * sender, once, and at the receiver none. */
static void a_refusal_of_a_whole_buffer_is_remembered(void **state)
{
    (void)state;
    for (unsigned sender = 0; sender <= 1; sender++) {
        pair_t *pair = begin(&keeping, REGX_OK);
        buffers_t buffers = buffers_new(WHOLE);

        *(sender == 1 ? &pair->sender->longest : &pair->receiver->longest) = CHUNK;
        for (unsigned i = 0; i < 10; i++) {
            send_once(pair, &buffers);
            settle(pair);
        }
        assert_int_equal(pair->sender->counters.messages[REGX_PATH_fallback], sender);
        assert_int_equal(pair->sender->counters.messages[REGX_PATH_pipeline], 10 - sender);
        assert_taken(send_once(pair, &buffers), (taken_t){sender ? 1 : DEPTH, DEPTH, 0, 0});
        buffers_free(&buffers);
        end(pair);
    }
}

/* But not where the transfers' own room did not suffice: that comes back. */
static void a_refusal_for_want_of_room_is_not_remembered(void **state)
{
    fake_config_t small = keeping;

    (void)state;
    small.cache_bytes = CHUNK; /* the first chunk is kept */
    for (unsigned sender = 0; sender <= 1; sender++) {
        pair_t *pair = sender == 1 ? pair_open(&small, &keeping) : pair_open(&keeping, &small);
        fake_t *bounded = sender == 1 ? pair->sender : pair->receiver;
        buffers_t buffers = buffers_new(WHOLE);

        pair->puts = REGX_PENDING; /* so the first chunk is in use, and makes no way */
        send_once(pair, &buffers);
        bounded->registry.once_max = 1;
        for (unsigned i = 0; i < 2; i++) { /* a sender tries the whole the second time */
            send_once(pair, &buffers);
        }
        assert_true(regx_tally_find(bounded->counters.fallbacks,
                                    sender ? "sender: over btl_regx_once_bytes"
                                           : "receiver: over btl_regx_once_bytes")
                        ->count > 0);
        assert_false(bounded->rndv->whole_refused);
        bounded->registry.once_max = REGX_UNLIMITED;
        assert_taken(send_once(pair, &buffers), (taken_t){1, 1, sender == 0, 1});
        buffers_free(&buffers);
        end(pair);
    }
}

/* The sender's buffer is another each time: it registers no more than a chunk at once, and has no
 * more under way than it may. */
static void a_senders_new_buffer_is_written_in_pieces(void **state)
{
    (void)state;
    for (size_t a = 0; a < 2; a++) {
        pair_t *pair = begin(&keeping, answers[a]);
        buffers_t buffers = buffers_new(WHOLE - 5);

        send_once(pair, &buffers);
        send_once(pair, &buffers);
        pair->sender->counters.largest_registration = 0;
        for (unsigned i = 0; i < 10; i++) {
            buffers_t other = {guarded_new(WHOLE - 5), buffers.received};

            /* Of whole pages, and it begins in one: the last piece lies in the last but one's. */
            assert_taken(send_once(pair, &other), (taken_t){1, DEPTH, 0, DEPTH - 1});
            guarded_free(&other.sent);
            settle(pair);
        }
        assert_in_range(pair->sender->counters.largest_registration, CHUNK, 2 * CHUNK);
        assert_in_range(pair->sender->counters.chunks_high, 1, DEPTH);
        buffers_free(&buffers);
        end(pair);
    }
}

/* Where the sender may have fewer chunks under way than the grant has pieces. */
static void no_more_pieces_than_chunk_depth_are_in_flight(void **state)
{
    (void)state;
    for (unsigned depth = 1; depth < DEPTH; depth++) {
        fake_config_t sending = keeping;

        sending.chunk_depth = depth;
        pair_t *pair = pair_open(&sending, &keeping);
        buffers_t buffers = buffers_new(WHOLE);

        pair->puts = REGX_PENDING;
        for (unsigned i = 0; i < 5; i++) {
            buffers_t other = {guarded_new(WHOLE), buffers.received};
            const taken_t taken = send_once(pair, &other);

            assert_int_equal(taken.puts, DEPTH);
            assert_int_equal(taken.grants, i == 0 ? DEPTH : 1);
            assert_in_range(pair->sender->counters.chunks_high, 1, i == 0 ? DEPTH : depth);
            pair->sender->counters.chunks_high = 0;
            guarded_free(&other.sent);
            settle(pair);
        }
        buffers_free(&buffers);
        end(pair);
    }
}

/* Where its puts end later than what it sends behind them. */
static void no_pieces_are_written_within_the_node(void **state)
{
    (void)state;
    pair_t *pair = begin(&keeping, REGX_OK);
    buffers_t buffers = buffers_new(WHOLE);

    send_once(pair, &buffers);
    send_once(pair, &buffers);
    pair->sender->conns[1].conn.shares_pool = true;
    for (unsigned i = 0; i < 3; i++) {
        buffers_t other = {guarded_new(WHOLE), buffers.received};

        assert_taken(send_once(pair, &other), (taken_t){1, 1, 0, 1});
        guarded_free(&other.sent);
        settle(pair);
    }
    buffers_free(&buffers);
    end(pair);
}

/* From the nth piece on the sender can register nothing: what is left goes by slots. */
static void a_piece_that_cannot_be_registered_is_nacked_with_the_rest(void **state)
{
    (void)state;
    for (unsigned piece = 1; piece <= DEPTH; piece++) {
        for (size_t a = 0; a < 2; a++) {
            pair_t *pair = begin(&keeping, answers[a]);
            buffers_t buffers = buffers_new(WHOLE);

            send_once(pair, &buffers);
            send_once(pair, &buffers);
            buffers_t other = {guarded_new(WHOLE), buffers.received};
            pair->sender_refused = pair->sender->calls[FAKE_REG] + piece;
            const taken_t taken = send_once(pair, &other);
            assert_int_equal(taken.sender_registered, piece - 1);
            assert_int_equal(pair->sender->counters.bytes[REGX_PATH_bounce],
                             (DEPTH - piece + 1) * CHUNK);
            assert_int_equal(pair->sender->counters.messages[REGX_PATH_fallback], 1);
            guarded_free(&other.sent);
            buffers_free(&buffers);
            end(pair);
        }
    }
}

/* The wire fails one piece while others are under way: the transfer fails, and ends. */
static void a_piece_that_fails_ends_the_transfer(void **state)
{
    (void)state;
    for (unsigned piece = 0; piece < DEPTH; piece++) {
        pair_t *pair = begin(&keeping, REGX_PENDING);
        buffers_t buffers = buffers_new(WHOLE);

        send_once(pair, &buffers);
        send_once(pair, &buffers);
        const unsigned dones = pair->dones;
        buffers_t other = {guarded_new(WHOLE), buffers.received};
        regx_rndv_recv_t *recv = regx_rndv_recv_open(
            pair->receiver->rndv, &pair->receiver->peers[0], other.received.base, WHOLE);
        regx_rndv_send_open(pair->sender->rndv, &pair->sender->peers[1], other.sent.base, WHOLE,
                            fake_cts(recv), pair_done, pair);
        assert_true(fake_complete(pair->sender, 1, piece, REGX_FAILED));
        pair_run(pair);
        assert_int_equal(pair->dones, dones + 1);
        assert_int_equal(pair->status, REGX_FAILED);
        regx_rndv_recv_close(pair->receiver->rndv, recv);
        guarded_free(&other.sent);
        buffers_free(&buffers);
        end(pair);
    }
}

/* What the sender's test says of a chunk; whether the receive takes it. */
static bool takes(const pair_t *pair, const regx_cts_t *cts, regx_control_type_t type,
                  uint64_t offset, uint64_t length)
{
    const regx_control_t control = {.type = type,
                                    .to = cts->recv,
                                    .from = {.id = 1, .generation = 1},
                                    .offset = offset,
                                    .length = length};
    uint8_t bytes[REGX_CONTROL_MAX];
    const uint64_t before = pair->receiver->counters.malformed;

    fake_arrive(pair->receiver, 0, bytes, regx_control_pack(&control, bytes));
    return pair->receiver->counters.malformed == before;
}

static regx_rndv_recv_t *open_recv(const pair_t *pair, const buffers_t *buffers, regx_cts_t *cts)
{
    regx_rndv_recv_t *recv = regx_rndv_recv_open(pair->receiver->rndv, &pair->receiver->peers[0],
                                                 buffers->received.base, WHOLE);

    assert_true(regx_send_read_cts(pair->receiver->rndv, fake_cts(recv), cts));
    return recv;
}

/* Pieces come in order, of what was granted so, and all that is left is refused or nothing. */
static void pieces_out_of_order_are_malformed(void **state)
{
    const regx_control_type_t done = REGX_CONTROL_ATP_CHUNK, refused = REGX_CONTROL_NACK;
    pair_t *pair = begin(&keeping, REGX_OK);
    buffers_t buffers = buffers_new(WHOLE);
    regx_cts_t cts;

    (void)state;
    regx_rndv_recv_t *recv = open_recv(pair, &buffers, &cts);
    assert_false(cts.pieces);
    assert_int_equal(cts.chunk_length, CHUNK);
    assert_false(takes(pair, &cts, done, 0, CHUNK - 1));
    regx_rndv_recv_close(pair->receiver->rndv, recv);

    recv = open_recv(pair, &buffers, &cts);
    assert_true(cts.pieces);
    assert_int_equal(cts.chunk_length, WHOLE);
    assert_false(takes(pair, &cts, done, 1, CHUNK));
    assert_false(takes(pair, &cts, done, 0, 0));
    assert_false(takes(pair, &cts, done, 0, WHOLE + 1));
    assert_false(takes(pair, &cts, refused, 0, CHUNK));
    assert_true(takes(pair, &cts, done, 0, CHUNK));
    assert_false(takes(pair, &cts, done, 0, CHUNK));
    assert_false(takes(pair, &cts, done, CHUNK, WHOLE));
    assert_false(takes(pair, &cts, refused, CHUNK, CHUNK));
    assert_int_equal(pair->receiver->counters.slots_high, 0);
    assert_true(takes(pair, &cts, refused, CHUNK, WHOLE - CHUNK));
    assert_true(pair->receiver->counters.slots_high > 0);
    assert_false(takes(pair, &cts, done, CHUNK, CHUNK));
    regx_rndv_recv_close(pair->receiver->rndv, recv);
    while (fake_receive(pair->sender, pair->receiver)) { /* slots for nobody */
    }
    buffers_free(&buffers);
    end(pair);
}

int main(void)
{
    fake_immediates = true; /* of which a piece must make no use */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_known_buffer_goes_as_one_chunk),
        cmocka_unit_test(a_new_buffer_goes_in_chunks),
        cmocka_unit_test(a_buffer_that_cannot_be_registered_whole_goes_in_chunks),
        cmocka_unit_test(a_refusal_of_a_whole_buffer_is_remembered),
        cmocka_unit_test(a_refusal_for_want_of_room_is_not_remembered),
        cmocka_unit_test(a_senders_new_buffer_is_written_in_pieces),
        cmocka_unit_test(no_more_pieces_than_chunk_depth_are_in_flight),
        cmocka_unit_test(no_pieces_are_written_within_the_node),
        cmocka_unit_test(a_piece_that_cannot_be_registered_is_nacked_with_the_rest),
        cmocka_unit_test(a_piece_that_fails_ends_the_transfer),
        cmocka_unit_test(pieces_out_of_order_are_malformed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

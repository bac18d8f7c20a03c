/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Staging buffers: what the sender copies to shared memory, and when, and what the receiver takes. `one`
 * receives, `two` sends.
 */
#include "shm_parties.h"

#include <time.h>

enum {
    MOST = REGX_CICO_SIZE, /* of the messages of most tests */
    HALF = MOST / 2,
    LONG = 5 * MOST + 777,
    MESSAGES = 2 * REGX_CICO_FIRST,
    /* Of these get a buffer at the start, with growth: */
    AT_ONCE = REGX_CICO_FIRST + (MESSAGES - REGX_CICO_FIRST) / REGX_CICO_GROWTH,
    UNSTAGED = 200
};

/* A message of `two`'s that is staged, and a get of it. */
typedef struct message {
    size_t length;
    uint8_t *data, *to;
    regx_mr_t exposed;
    op_t op;
} message_t;

static message_t messages[MESSAGES];

static message_t *expose_long(unsigned i, uint64_t stream, size_t length)
{
    message_t *message = &messages[i];

    message->length = length;
    message->data = malloc(length);
    message->to = guarded_new(length);
    unit_fill(message->data, length, stream, 0);
    memset(message->to, 0xee, length);
    regx_shm_expose(two.transport, message->data, length, &message->exposed.key);
    assert_true(regx_shm_stage(two.conn, message->data, length, &message->exposed.key));
    return message;
}

static message_t *expose(unsigned i, uint64_t stream)
{
    return expose_long(i, stream, MOST);
}

static regx_status_t take_as(message_t *message, const regx_key_t *key, size_t length, bool staged)
{
    op_get(&message->op, message->to, length, NULL, &message->exposed, 0);
    message->op.get.key = *key;
    message->op.get.staged = staged;
    return regx_shm_get(one.conn, &message->op.get);
}

static void take(message_t *message)
{
    assert_int_equal(take_as(message, &message->exposed.key, message->length, true), REGX_PENDING);
}

/* Nothing reads the sender's memory any more. */
static void leave(message_t *message)
{
    regx_shm_unstage(two.transport, &message->exposed.key);
    free(message->data);
    guarded_free(message->to, message->length);
}

/* It has come. */
static void end(message_t *message)
{
    assert_true(message->op.ended == 1 && message->op.status == REGX_OK);
    assert_memory_equal(message->to, message->data, message->length);
    leave(message);
}

static regx_handle_t offer_of(const message_t *message)
{
    return regx_shm_key_unpack(&message->exposed.key).offer;
}

static unsigned index_of(const message_t *message)
{
    return offer_of(message).id - (UINT32_MAX - REGX_CICO_OFFERS);
}

static const regx_cico_offer_t *offer(const message_t *message)
{
    return &shm_of(&two)->cico.offers[index_of(message)];
}

static regx_cico_cell_t *cell(const message_t *message)
{
    return &regx_shm_main(shm_of(&two))->cico.cells[index_of(message)];
}

static unsigned buffer_of(const message_t *message)
{
    return atomic_load(&cell(message)->row).first;
}

static uint32_t copied_in(const message_t *message)
{
    return (uint32_t)atomic_load(&cell(message)->copied_in);
}

/* The test plays the sender: so many bytes are there. */
static void make_copied_in(const message_t *message, uint32_t bytes)
{
    atomic_store(&cell(message)->copied_in, (uint64_t)offer_of(message).generation << 32 | bytes);
}

/* And in these buffers. */
static void make_row(const message_t *message, uint16_t first, uint16_t count)
{
    atomic_store(&cell(message)->row, ((regx_cico_row_t){.first = first, .count = count}));
}

/* The test plays the receiver: it has copied out so many bytes. */
static void make_copied_out(const message_t *message, uint32_t bytes)
{
    atomic_store(&cell(message)->copied_out, (uint64_t)offer_of(message).generation << 32 | bytes);
}

static uint8_t *buffer_memory(const message_t *message)
{
    return (uint8_t *)shm_of(&two)->main.base + regx_cico_offset() +
           (size_t)buffer_of(message) * REGX_CICO_SIZE;
}

/* Time goes by as the test says: how long a step takes on a busy machine decides nothing. */
static int64_t now_ns = 1;

UNIT_WRAP(int, clock_gettime, clockid_t clock, struct timespec *time)
{
    *time = (struct timespec){.tv_sec = now_ns / 1000000000, .tv_nsec = now_ns % 1000000000};
    return 0;
}

/* A message is sent and taken. at_once: bytes that are copied before it is asked for. */
static void pass(uint64_t stream, uint32_t at_once)
{
    static unsigned before = REGX_CICO_BUFFERS;
    message_t *message = expose(0, stream);

    step(&two);
    assert_int_equal(copied_in(message), at_once);
    take(message);
    while (copied_in(message) < MOST) {
        assert_true(step(&two) > 0);
    }
    assert_int_equal(step(&two), 0);
    assert_int_not_equal(buffer_of(message), before); /* they are used in turn */
    before = buffer_of(message);
    step_to_end(&one, &message->op);
    end(message);
}

/* The sender copies when it is asked, and after so many in a row before; but not if the last one went
 * another way. */
SHM_TEST(nothing_is_copied_in_vain)
{
    message_t *message;

    for (unsigned i = 0; i <= REGX_CICO_STANDING; i++) {
        pass(i, i < REGX_CICO_STANDING ? 0 : REGX_CICO_STEP);
    }
    assert_int_equal(one.counters.stages_taken, REGX_CICO_STANDING + 1);
    message = expose(0, 50);
    assert_true(step(&two) > 0);
    leave(message);
    pass(51, 0);
    pass(52, REGX_CICO_STEP);
    message = expose(0, 77);
    assert_int_equal(take_as(message, &message->exposed.key, MOST, false), REGX_PENDING);
    step_to_end(&one, &message->op); /* by the kernel */
    end(message);
    message = expose(0, 78);
    assert_int_equal(step(&two), 0); /* it is not taken so any more */
    leave(message);
}

/* The one half from the staging buffer, the other by the kernel; twice, since the order of the kernel's
 * copies changes. */
SHM_TEST(the_kernel_copies_what_the_sender_has_not)
{
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t before = one.counters.bytes_shm;
        message_t *message = expose(0, 5);

        make_row(message, 0, 1);
        unit_fill(buffer_memory(message), HALF, 6, 0);
        make_copied_in(message, HALF);
        take(message);
        step(&one);
        make_copied_in(message, 0);
        step_to_end(&one, &message->op);
        assert_true(unit_is_filled(message->to, HALF, 6));
        assert_memory_equal(message->to + HALF, message->data + HALF, HALF);
        memcpy(message->to, message->data, HALF);
        assert_int_equal(one.counters.stages_taken, 0);
        assert_int_equal(one.counters.bytes_shm - before, MOST);
        end(message);
        assert_int_equal(atomic_load(&shm_of(&one)->copy_count), 0);
    }
}

/* Of the second there is always something more; of the first nothing comes. */
SHM_TEST(a_sender_that_computes_is_not_waited_for_while_another_sends)
{
    uint32_t bytes = 0;

    for (uint16_t i = 0; i < 2; i++) {
        take(expose(i, i));
        make_row(&messages[i], i, 1);
    }
    unit_fill(buffer_memory(&messages[1]), MOST, 1, 0);
    while (messages[0].op.ended == 0) {
        assert_true(bytes < 2 * REGX_CICO_LOOKS);
        make_copied_in(&messages[1], ++bytes);
        assert_true(step(&one) > 0);
    }
    assert_int_equal(messages[1].op.ended, 0);
    make_copied_in(&messages[1], MOST);
    step_to_end(&one, &messages[1].op);
    assert_int_equal(one.counters.stages_taken, 1);
    end(&messages[0]);
    end(&messages[1]);
}

/* Of the sender that is late nothing is waited for any more. */
SHM_TEST(all_that_a_late_sender_has_offered_is_given_up)
{
    unsigned steps = 0;

    for (unsigned i = 0; i < MESSAGES; i++) {
        take(expose(i, i));
    }
    while (messages[MESSAGES - 1].op.ended == 0) {
        assert_true(steps++ < 2 * REGX_CICO_LOOKS);
        step(&one);
    }
    for (unsigned i = 0; i < MESSAGES; i++) {
        end(&messages[i]);
    }
    assert_int_equal(one.counters.stages_taken, 0);
}

/* It would have to look a thousand times. */
SHM_TEST(a_receiver_that_looks_seldom_waits_no_longer)
{
    message_t *message = expose(0, 3);
    unsigned steps = 0;

    take(message);
    while (message->op.ended == 0) {
        assert_true(steps++ < 8);
        step(&one);
        now_ns += 1000000; /* longer than it is patient */
    }
    end(message);
}

/* A staging buffer's length for each look would be slow. The next message is not judged by that one's time. */
SHM_TEST(the_kernel_copies_for_a_receiver_that_looks_seldom)
{
    message_t *message = expose_long(0, 4, 40 * MOST);
    unsigned steps = 0;

    take(message);
    while (message->op.ended == 0) {
        assert_true(steps++ < 10);
        step(&two);
        step(&two);
        step(&one);
        now_ns += 3000000; /* long enough to count as seldom */
    }
    end(message);
    assert_int_equal(one.counters.stages_taken, 0);
    message = expose_long(1, 5, 4 * MOST);
    take(message);
    while (message->op.ended == 0) {
        step(&two);
        step(&one);
    }
    end(message);
    assert_int_equal(one.counters.stages_taken, 1);
}

/* Of two the longer one leaves the other its turn. */
SHM_TEST(a_short_message_does_not_wait_for_a_long_one)
{
    message_t *first = expose_long(0, 1, 48 * MOST);

    take(first);
    step(&two);
    step(&one);
    message_t *second = expose(1, 2);
    take(second);
    while (second->op.ended == 0) {
        step(&two);
        step(&one);
    }
    assert_int_equal(first->op.ended, 0);
    parties_await(&first->op.ended, 1);
    end(first);
    end(second);
}

/* While another thread copies. */
UNIT_TEST(nothing_is_read_after_unstage)
{
    shm_parties_open(true);
    two_works_begin();
    for (unsigned i = 0; i < UNSTAGED; i++) {
        message_t *message = expose(0, i);

        make_copied_out(message, 0);
        atomic_fetch_add(&regx_shm_main(shm_of(&two))->cico.requests, 1);
        await(copied_in(message) != 0);
        regx_shm_unstage(two.transport, &message->exposed.key);
        memset(message->data, 0xdd, MOST); /* a race, if it were still read */
        free(message->data);
        guarded_free(message->to, MOST);
    }
    two_works_end();
    assert_int_equal(atomic_load(&shm_of(&two)->copy_count), 0);
    parties_close();
}

static regx_key_t key_of_offer(const message_t *message, uint32_t id, uint32_t generation)
{
    regx_shm_key_t key = regx_shm_key_unpack(&message->exposed.key);
    regx_key_t packed;

    key.offer = (regx_handle_t){key.offer.id + id, key.offer.generation + generation};
    regx_shm_key_pack(key, &packed);
    return packed;
}

SHM_TEST(what_a_peer_says_is_checked)
{
    message_t *message = expose(0, 9);
    const uint32_t wrong[] = {REGX_CICO_OFFERS, UINT32_MAX /* one before the first */};

    for (unsigned i = 0; i < REGX_CICO_STANDING; i++) {
        const regx_key_t key = key_of_offer(message, wrong[i % 2], 0);

        assert_int_equal(take_as(message, &key, MOST, true), REGX_AGAIN);
    }
    /* None was taken so. */
    assert_int_equal(atomic_load(&regx_shm_main(shm_of(&one))->cico.standing), 0);
    assert_int_equal(take_as(message, &message->exposed.key, MOST + 1, true), REGX_INVALID);
    /* Of another use of the cell nothing is taken. */
    const regx_key_t other = key_of_offer(message, 0, 1);
    make_row(message, 0, 1);
    make_copied_in(message, MOST);
    assert_int_equal(take_as(message, &other, MOST, true), REGX_PENDING);
    step_to_end(&one, &message->op);
    assert_memory_equal(message->to, message->data, MOST);
    memset(message->to, 0xee, MOST);
    /* The sender says that it went further than its staging buffer goes. The kernel copies it. */
    make_copied_in(message, MOST + 1);
    assert_int_equal(take_as(message, &message->exposed.key, 5000, true), REGX_PENDING);
    step_to_end(&one, &message->op);
    assert_int_equal(one.counters.stages_taken, 0);
    assert_memory_equal(message->to, message->data, 5000);
    assert_int_equal(message->to[5000], 0xee);
    /* That it lies where there is no staging buffer, or not so many. The kernel copies it. */
    const uint16_t rows[][2] = {
        {REGX_CICO_BUFFERS, 1}, {1, REGX_CICO_BUFFERS}, {UINT16_MAX, 2}, {0, 0}};
    for (unsigned i = 0; i < 4; i++) {
        make_row(message, rows[i][0], rows[i][1]);
        make_copied_in(message, MOST);
        memset(message->to, 0xee, MOST);
        take(message);
        step_to_end(&one, &message->op);
        assert_int_equal(one.counters.stages_taken, 0);
        assert_memory_equal(message->to, message->data, MOST);
        atomic_store(&cell(message)->reader, (uint64_t)offer_of(message).generation << 32);
    }
    /* The receiver says that it has copied out what there is not yet. */
    make_copied_out(message, UINT32_MAX);
    atomic_fetch_add(&regx_shm_main(shm_of(&two))->cico.requests, 1);
    make_copied_in(message, 0);
    work(&two);
    assert_int_equal(copied_in(message), MOST);
    take(message); /* now the sender's word is good again */
    make_copied_in(message, 0);
    parties_await(&message->op.ended, 1);
    end(message);
}

/* It goes round in its staging buffer: the sender is never more than that ahead. To a core that shares no
 * cache it is written past them. */
SHM_TEST(a_message_longer_than_a_staging_buffer_goes_round_in_it)
{
    for (unsigned i = 0; i < 3; i++) {
        conn_of(&two)->out.distance = i * 70; /* on this core, near, far */
        message_t *message = expose_long(0, i, LONG + i);

        assert_int_equal(offer(message)->past, i == 2);
        take(message);
        while (message->op.ended == 0) {
            work(&two);
            assert_in_range(copied_in(message) - message->op.get.pending.moved, 1, MOST);
            step(&one);
        }
        assert_int_equal(one.counters.stages_taken, i + 1);
        end(message);
    }
}

/* It was taken in part, and the sender stays away, in the middle of a round. */
SHM_TEST(the_kernel_copies_the_rest_of_a_long_one)
{
    for (unsigned i = 0; i < 2; i++) {
        message_t *message = expose_long(0, i, LONG);

        take(message);
        for (unsigned steps = 0; steps < 4; steps++) {
            assert_true(step(&two) > 0);
            step(&one);
        }
        step_to_end(&one, &message->op);
        assert_int_equal(one.counters.stages_taken, 0);
        end(message);
        assert_int_equal(atomic_load(&shm_of(&one)->copy_count), 0);
    }
}

/* There are more messages than staging buffers: one has to wait, and gets the first that is free. */
SHM_TEST(a_staging_buffer_is_used_again_when_its_message_has_gone)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        take(expose(i, i));
    }
    work(&two);
    assert_int_equal(copied_in(&messages[AT_ONCE]), 0);
    step_to_end(&one, &messages[2].op);
    const unsigned buffer = buffer_of(&messages[2]);
    end(&messages[2]);
    work(&two);
    assert_int_equal(buffer_of(&messages[AT_ONCE]), buffer);
    for (unsigned i = 0; i < MESSAGES; i++) {
        if (i != 2) {
            parties_await(&messages[i].op.ended, 1);
            end(&messages[i]);
        }
    }
}

/* So many messages are sent at once. Returns a bit for each buffer that one had. */
static uint64_t send_at_once(unsigned count)
{
    uint64_t used = 0;

    for (unsigned i = 0; i < count; i++) {
        take(expose_long(i, i, REGX_CICO_STEP));
    }
    for (unsigned i = 0; i < count; i++) {
        parties_await(&messages[i].op.ended, 1);
        used |= UINT64_C(1) << buffer_of(&messages[i]);
        end(&messages[i]);
    }
    return used;
}

/* A stream comes to use all of them. Where few are under way these are the first ones. */
SHM_TEST(a_stream_uses_more_staging_buffers)
{
    const uint64_t all = (UINT64_C(1) << REGX_CICO_BUFFERS) - 1;
    uint64_t used = 0;

    for (unsigned i = 0; i < REGX_CICO_BUFFERS; i++) {
        used |= send_at_once(i % REGX_CICO_FIRST + 1);
    }
    assert_int_equal(used, (1u << REGX_CICO_FIRST) - 1);
    for (unsigned i = 0; used != all; i++) {
        assert_true(i < REGX_CICO_BUFFERS);
        used |= send_at_once(MESSAGES);
    }
}

/* A message that is longer than one has several then, of which no other message has any: so much of it is
 * copied before anything is copied out. Four are left, for one each. */
SHM_TEST(a_long_message_has_several_staging_buffers)
{
    const size_t lengths[] = {
        LONG, REGX_CICO_ROW * MOST + 5, LONG + 1, 3 * MOST, 2 * MOST, LONG + 2, 9};
    const size_t copied[] = {LONG, REGX_CICO_ROW * MOST, LONG + 1, 3 * MOST, MOST, MOST, 9};
    const unsigned count = sizeof(lengths) / sizeof(lengths[0]);

    while (shm_of(&two)->cico.buffers < REGX_CICO_BUFFERS) {
        send_at_once(MESSAGES);
    }
    const uint64_t before = one.counters.stages_taken;
    for (unsigned i = 0; i < count; i++) {
        take(expose_long(i, i, lengths[i]));
        work(&two);
        assert_int_equal(copied_in(&messages[i]), copied[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        parties_await(&messages[i].op.ended, 1);
        end(&messages[i]);
    }
    assert_int_equal(one.counters.stages_taken - before, count);
    assert_int_equal(shm_of(&two)->cico.used, 0);
}

/* However late it is: a handler of the program's may be about to fill what the kernel would copy. A get
 * that is to be the kernel's from the start comes from the sender's copy, too. */
SHM_TEST(the_kernel_copies_nothing_while_the_sender_does)
{
    message_t *read = expose(0, 0), *late = expose(1, 1);

    atomic_store(&cell(read)->reader, (uint64_t)offer_of(read).generation << 32 | REGX_CICO_SENDER);
    atomic_store(&cell(late)->reader, (uint64_t)offer_of(late).generation << 32 | REGX_CICO_SENDER);
    assert_int_equal(take_as(read, &read->exposed.key, read->length, false), REGX_PENDING);
    take(late);
    for (unsigned i = 0; i < 3 * REGX_CICO_LOOKS; i++) {
        now_ns += 1000000;
        step(&one);
    }
    assert_int_equal(read->op.ended, 0);
    assert_int_equal(late->op.ended, 0);
    atomic_store(&cell(read)->reader, (uint64_t)offer_of(read).generation << 32);
    atomic_store(&cell(late)->reader, (uint64_t)offer_of(late).generation << 32);
    while (read->op.ended == 0 || late->op.ended == 0) {
        now_ns += 1000000;
        step(&one);
    }
    work(&two);
    assert_int_equal(copied_in(read) + copied_in(late), 0); /* the sender leaves both alone */
    assert_int_equal(one.counters.stages_taken, 0);
    end(read);
    end(late);
}

/* Two connections to the same process: the one ends, and its get. */
SHM_TEST(what_is_pending_fails_at_disconnect)
{
    regx_conn_t *const kept = one.conn;
    party_connect(&one, &two);
    take(expose(0, 0));
    regx_conn_t *const left = one.conn;
    one.conn = kept;
    take(expose(1, 1));
    regx_shm_disconnect(left);
    assert_true(messages[0].op.ended == 1 && messages[0].op.status == REGX_FAILED);
    assert_int_equal(messages[1].op.ended, 0);
    parties_await(&messages[1].op.ended, 1);
    end(&messages[1]);
    leave(&messages[0]);
    assert_int_equal(atomic_load(&shm_of(&one)->copy_count), 0);
}

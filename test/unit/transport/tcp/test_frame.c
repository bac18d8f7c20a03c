/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What tcp accepts from the wire: well-formed messages, and nothing outside of what was granted.
 */
#include "../../unit.h"

#include <stdlib.h>

#include "transport/tcp/tcp_internal.h"

enum { SENDER = 77, TAG = 9, SIZE = 4096, GUARD = 256, DATA = 100 };

/* A receiver without a network, whose pool and one window lie between guards. */
typedef struct receiver {
    regx_tcp_t tcp;
    regx_counters_t counters;
    regx_rkey_table_t rkeys;
    regx_key_t key;
    void *handle;
    uint8_t pool[GUARD + SIZE + GUARD];
    uint8_t region[GUARD + SIZE + GUARD];
    unsigned delivered;
    uint64_t sender;
    uint8_t tag;
    size_t length;
    uint8_t data[SIZE];
} receiver_t;

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    receiver_t *receiver = context;

    receiver->delivered++;
    receiver->sender = sender;
    receiver->tag = tag;
    receiver->length = length;
    assert_in_range(length, 0, SIZE);
    memcpy(receiver->data, data, length);
}

static receiver_t *make_receiver(void)
{
    receiver_t *receiver = calloc(1, sizeof(*receiver));

    assert_non_null(receiver);
    receiver->tcp.config.counters = &receiver->counters;
    receiver->tcp.config.events.context = receiver;
    receiver->tcp.config.events.deliver = deliver;
    receiver->tcp.config.rkeys = &receiver->rkeys;
    receiver->tcp.super.pool_memory = receiver->pool + GUARD;
    receiver->tcp.super.pool_size = SIZE;
    regx_rkey_table_init(&receiver->rkeys, false);
    assert_int_equal(regx_rkey_table_add(&receiver->rkeys, receiver->region + GUARD, SIZE,
                                         REGX_ACCESS_REMOTE_WRITE, &receiver->key,
                                         &receiver->handle),
                     REGX_OK);
    return receiver;
}

static void free_receiver(receiver_t *receiver)
{
    regx_rkey_table_remove(&receiver->rkeys, receiver->handle);
    regx_rkey_table_fini(&receiver->rkeys);
    free(receiver);
}

/* Hands a message over in memory of exactly its length, so that reading beyond it is seen. */
static void hand_over(receiver_t *receiver, const uint8_t *message, size_t length)
{
    uint8_t *exact = malloc(length > 0 ? length : 1);

    assert_non_null(exact);
    memcpy(exact, message, length);
    (void)regx_tcp_receive(&receiver->tcp, exact, length);
    free(exact);
}

static bool is_zero(const uint8_t *from, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (from[i] != 0) {
            return false;
        }
    }
    return true;
}

static void check_guards(const receiver_t *receiver)
{
    assert_true(is_zero(receiver->pool, GUARD));
    assert_true(is_zero(receiver->pool + GUARD + SIZE, GUARD));
    assert_true(is_zero(receiver->region, GUARD));
    assert_true(is_zero(receiver->region + GUARD + SIZE, GUARD));
}

/* The message of each kind that the tests begin with. */
static size_t make_message(const receiver_t *receiver, regx_tcp_kind_t kind, regx_target_t target,
                           uint64_t offset, uint8_t *message)
{
    uint8_t notice[REGX_NOTICE_MAX];
    regx_tcp_frame_t frame = {.kind = kind,
                              .tag = kind == REGX_TCP_PIECE ? 0 : TAG,
                              .sender = SENDER,
                              .target = target,
                              .offset = offset,
                              .notice = notice,
                              .notice_length = kind == REGX_TCP_LAST ? 20 : 0,
                              .length = DATA};
    size_t length;

    if (target == REGX_TARGET_REGION) {
        frame.key = receiver->key;
    }
    for (size_t i = 0; i < sizeof(notice); i++) {
        notice[i] = unit_stamp(2, i);
    }
    length = regx_tcp_encode(&frame, message);
    for (size_t i = 0; i < DATA; i++) {
        message[length + i] = unit_stamp(1, i) | 1;
    }
    return length + DATA;
}

static void well_formed_messages_arrive(void **state)
{
    static const regx_tcp_kind_t kinds[] = {REGX_TCP_FRAME, REGX_TCP_PIECE, REGX_TCP_LAST};

    (void)state;
    for (size_t kind = 0; kind < 3; kind++) {
        for (int target = REGX_TARGET_POOL; target <= REGX_TARGET_REGION; target++) {
            uint8_t message[REGX_TCP_HEAD_MAX + DATA];
            receiver_t *receiver = make_receiver();
            const uint8_t *to =
                (target == REGX_TARGET_POOL ? receiver->pool : receiver->region) + GUARD + 50;
            const size_t length =
                make_message(receiver, kinds[kind], (regx_target_t)target, 50, message);
            const uint8_t *data = message + length - DATA;

            hand_over(receiver, message, length);
            assert_int_equal(receiver->counters.malformed, 0);
            assert_int_equal(receiver->delivered, kinds[kind] != REGX_TCP_PIECE);
            if (kinds[kind] == REGX_TCP_FRAME) {
                assert_int_equal(receiver->length, DATA);
                assert_memory_equal(receiver->data, data, DATA);
            } else {
                assert_memory_equal(to, data, DATA);
            }
            if (kinds[kind] == REGX_TCP_LAST) {
                assert_int_equal(receiver->length, 20);
                for (size_t i = 0; i < 20; i++) {
                    assert_int_equal(receiver->data[i], unit_stamp(2, i));
                }
            }
            if (kinds[kind] != REGX_TCP_PIECE) {
                assert_int_equal(receiver->sender, SENDER);
                assert_int_equal(receiver->tag, TAG);
            }
            check_guards(receiver);
            free_receiver(receiver);
        }
    }
}

static void other_lengths_are_malformed(void **state)
{
    static const regx_tcp_kind_t kinds[] = {REGX_TCP_FRAME, REGX_TCP_PIECE, REGX_TCP_LAST};

    (void)state;
    for (size_t kind = 0; kind < 3; kind++) {
        uint8_t message[REGX_TCP_HEAD_MAX + DATA + 1] = {0};
        receiver_t *receiver = make_receiver();
        const size_t length = make_message(receiver, kinds[kind], REGX_TARGET_REGION, 0, message);
        unsigned refused = 0;

        for (size_t other = 0; other <= length + 1; other++) {
            if (other != length) {
                hand_over(receiver, message, other);
                assert_int_equal(receiver->counters.malformed, ++refused);
            }
        }
        assert_int_equal(receiver->delivered, 0);
        assert_true(is_zero(receiver->region, sizeof(receiver->region)));
        free_receiver(receiver);
    }
}

/* Every value of every byte before the data. What is still accepted changed only whom the message
 * is from, what it is, or where inside the grant it goes. */
static void no_byte_reaches_outside(void **state)
{
    static const regx_tcp_kind_t kinds[] = {REGX_TCP_FRAME, REGX_TCP_PIECE, REGX_TCP_LAST};

    (void)state;
    for (size_t kind = 0; kind < 3; kind++) {
        for (int target = REGX_TARGET_POOL; target <= REGX_TARGET_REGION; target++) {
            uint8_t message[REGX_TCP_HEAD_MAX + DATA];
            receiver_t *receiver = make_receiver();
            const size_t length =
                make_message(receiver, kinds[kind], (regx_target_t)target, SIZE - DATA, message);

            for (size_t byte = 0; byte < length - DATA; byte++) {
                const bool header = byte < 16;
                /* version, kind, target, length; key, notice length, zeros. */
                const bool fixed = header
                                       ? byte == 0 || byte == 3 || (byte >= 4 && byte < 8)
                                       : kinds[kind] != REGX_TCP_FRAME && byte >= 24 && byte < 56;

                for (unsigned flip = 1; flip < 256; flip++) {
                    const uint64_t malformed = receiver->counters.malformed;

                    message[byte] ^= (uint8_t)flip;
                    hand_over(receiver, message, length);
                    message[byte] ^= (uint8_t)flip;
                    assert_true(!fixed || receiver->counters.malformed == malformed + 1);
                    /* The grant ends where the data would: no offset but a lower one is good. */
                    assert_true(!(byte >= 16 && byte < 24 && kinds[kind] != REGX_TCP_FRAME) ||
                                receiver->counters.malformed == malformed + 1 ||
                                (message[byte] ^ flip) < message[byte]);
                    check_guards(receiver);
                }
            }
            if (target == REGX_TARGET_POOL) {
                assert_true(is_zero(receiver->region, sizeof(receiver->region)));
            }
            free_receiver(receiver);
        }
    }
}

static void noise_writes_nothing_outside(void **state)
{
    receiver_t *receiver = make_receiver();
    uint64_t seed = 2009;

    (void)state;
    for (int round = 0; round < 200000; round++) {
        uint8_t message[200];
        const size_t length = chance_next(&seed) % (sizeof(message) + 1);

        for (size_t i = 0; i < sizeof(message); i++) {
            message[i] = (uint8_t)chance_next(&seed);
        }
        /* Half of them are well begun, so that they come further. */
        if (round % 2 == 0) {
            message[0] = REGX_TCP_VERSION;
            message[1] = (uint8_t)(1 + message[1] % 7);
            message[3] &= 1;
            memset(message + 5, 0, 3);
            memset(message + 18, 0, 6);
            memcpy(message + 24, receiver->key.bytes, REGX_KEY_SIZE);
            memset(message + 49, 0, 7);
        }
        hand_over(receiver, message, length);
        check_guards(receiver);
    }
    assert_int_not_equal(receiver->counters.malformed, 0);
    free_receiver(receiver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(well_formed_messages_arrive),
        cmocka_unit_test(other_lengths_are_malformed),
        cmocka_unit_test(no_byte_reaches_outside),
        cmocka_unit_test(noise_writes_nothing_outside),
    };

    return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}

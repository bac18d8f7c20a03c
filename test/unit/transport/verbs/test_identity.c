/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Processes that lie about who or where they are. On devices in memory.
 */
#include "fake_sides.h"

#include <unistd.h>

static side_t three;

/* A process that says it is another, whom we know by what it published. */
static void process_that_takes_the_name_of_another(void **state)
{
    (void)state;
    fake_add(0, 2);
    side_ports[0] = side_ports[1] = "fake0:1";
    sides_open(false);
    assert_int_equal(side_try(one.conn, 10), REGX_AGAIN);
    side_open(&three, TWO, ONE, false);
    side_connect(&three, &one);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(side_try(three.conn, 10), REGX_AGAIN);
        regx_transport_ops.progress(three.transport);
        regx_transport_ops.progress(one.transport);
    }
    assert_true(one.counters.malformed > 0);
    one.counters.malformed = 0;
    sides_exchange(1, 3000); /* with the true one */
    regx_transport_ops.disconnect(three.conn);
    side_close(&three);
    sides_close();
}

/* One that gives another's address as well is found out by where its request came from. */
static void process_that_takes_the_address_of_another(void **state)
{
    (void)state;
    fake_add(0, 2);
    side_ports[0] = side_ports[1] = "fake0:1";
    sides_open(false);
    side_ports[1] = NULL;
    side_open(&three, TWO, ONE, false);
    side_connect(&three, &one);
    verbs_of(&three)->address = verbs_of(&two)->address;
    assert_int_equal(side_try(three.conn, 10), REGX_AGAIN);
    for (int i = 0; i < 10; i++) {
        regx_transport_ops.progress(three.transport);
        regx_transport_ops.progress(one.transport);
    }
    assert_null(regx_ep_find(verbs_of(&one), TWO));
    assert_true(one.counters.malformed > 0);
    one.counters.malformed = 0;
    sides_exchange(1, 3000);
    regx_transport_ops.disconnect(three.conn);
    side_close(&three);
    sides_close();
}

/* One that comes before anything is known of the other loses the name once that one's published
 * address is. */
static void process_that_took_a_name_before_its_owner_was_known(void **state)
{
    (void)state;
    side_open(&one, ONE, TWO, false);
    side_open(&two, TWO, ONE, false);
    side_open(&three, TWO, ONE, false);
    side_connect(&three, &one);
    while (side_try(three.conn, 10) == REGX_AGAIN) {
        regx_transport_ops.progress(three.transport);
        regx_transport_ops.progress(one.transport);
    }
    side_connect(&one, &two);
    side_connect(&two, &one);
    side_send(&one, 1, 5, 3000);
    side_await(&two.delivered, 1);
    assert_true(unit_is_filled(two.last, 3000, 5));
    assert_int_equal(one.broken + two.broken, 0);
    assert_true(one.counters.malformed > 0);
    one.counters.malformed = 0;
    regx_transport_ops.disconnect(three.conn);
    side_close(&three);
    sides_close();
}

/* It concerns its sender alone. */
static void request_whose_address_cannot_be_routed_to_ends_nothing(void **state)
{
    (void)state;
    fake_make_infiniband(&fake.ports[0], 0);
    fake.ports[0].port_flags = IBV_QPF_GRH_REQUIRED; /* else the device tells where it came from */
    sides_open(false);
    side_open(&three, THREE, ONE, false);
    side_connect(&three, &one);
    verbs_of(&three)->address.lid = 0xd000;
    assert_int_equal(side_try(three.conn, 10), REGX_AGAIN);
    for (int i = 0; i < 10; i++) {
        regx_transport_ops.progress(three.transport);
        regx_transport_ops.progress(one.transport);
    }
    assert_int_equal(one.broken, 0);
    assert_true(one.counters.malformed > 0);
    assert_null(regx_ep_find(verbs_of(&one), THREE));
    one.counters.malformed = 0;
    sides_exchange(1, 3000);
    regx_transport_ops.disconnect(three.conn);
    side_close(&three);
    sides_close();
}

/* Each of these fields has a value that means nothing. */
static void malformed_messages_are_counted_and_make_nothing(void **state)
{
    static const struct {
        size_t at;
        uint64_t value;
        size_t size;
    } wrong[] = {
        {0, REGX_VERBS_VERSION + 1, 1},
        {1, 0, 1},
        {1, REGX_CM_READY + 1, 1},
        {1, REGX_CM_ACCEPT, 1}, /* an answer to nothing */
        {3, 1, 1},
        {offsetof(regx_cm_message_t, qpn), 0, 4},
        {offsetof(regx_cm_message_t, qpn), 1 << 24, 4},
        {offsetof(regx_cm_message_t, psn), 1 << 24, 4},
        {offsetof(regx_cm_message_t, epoch), 0, 8},
        {offsetof(regx_cm_message_t, known), 5, 8}, /* a request, and yet connected to us */
        {offsetof(regx_cm_message_t, to), THREE, 8},
        {offsetof(regx_cm_message_t, pool), UINT64_MAX - 5, 8}, /* ends before it begins */
        {offsetof(regx_cm_message_t, address), REGX_VERBS_VERSION + 1, 1},
        {offsetof(regx_cm_message_t, zeros), 1, 4}};
    enum { WRONG = sizeof(wrong) / sizeof(wrong[0]) };
    uint8_t bytes[REGX_CM_MESSAGE_SIZE];

    (void)state;
    sides_open(false);
    const regx_cm_message_t message = {.version = REGX_VERBS_VERSION,
                                       .kind = REGX_CM_REQUEST,
                                       .qpn = 0x1234,
                                       .epoch = 1,
                                       .from = TWO,
                                       .to = ONE,
                                       .pool_size = POOL,
                                       .address = verbs_of(&two)->address};
    const regx_cm_source_t source = {.qpn = message.address.qpn};
    for (size_t i = 0; i < WRONG; i++) {
        memcpy(bytes, &message, sizeof(bytes));
        memcpy(bytes + wrong[i].at, &wrong[i].value, wrong[i].size);
        regx_cm_receive(verbs_of(&one), bytes, sizeof(bytes), &source);
        assert_int_equal(one.counters.malformed, i + 1);
        assert_null(regx_ep_find(verbs_of(&one), TWO));
    }
    memcpy(bytes, &message, sizeof(bytes));
    regx_cm_receive(verbs_of(&one), bytes, sizeof(bytes) - 1, &source);
    assert_int_equal(one.counters.malformed, WRONG + 1);
    assert_null(regx_ep_find(verbs_of(&one), TWO));
    regx_cm_receive(verbs_of(&one), bytes, sizeof(bytes), &source);
    assert_int_equal(one.counters.malformed, WRONG + 1);
    assert_non_null(regx_ep_find(verbs_of(&one), TWO)); /* the control */
    one.counters.malformed = 0;
    sides_exchange(1, 3000);
    sides_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(process_that_takes_the_name_of_another, fake_sides_reset),
        cmocka_unit_test_setup(process_that_takes_the_address_of_another, fake_sides_reset),
        cmocka_unit_test_setup(process_that_took_a_name_before_its_owner_was_known,
                               fake_sides_reset),
        cmocka_unit_test_setup(request_whose_address_cannot_be_routed_to_ends_nothing,
                               fake_sides_reset),
        cmocka_unit_test_setup(malformed_messages_are_counted_and_make_nothing, fake_sides_reset),
    };

    return cmocka_run_group_tests_name("verbs identity", tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Processes that lie about who or where they are. On devices in memory.
 */
#include "fake_device.h"
#include "verbs_parties.h"

/* `three` says it is `two`, on a port of its own. */
static void open_three_as_two(void)
{
    verbs_conformance.devices[1] = "fake1:1";
    party_open(&three, TWO, false);
    party_connect(&three, &one);
}

/* Its requests are heard, and refused. */
static void assert_refused(void)
{
    for (int i = 0; i < 10; i++) {
        assert_int_equal(conn_try(three.conn, 10), REGX_AGAIN);
        regx_transport_ops.progress(three.transport);
        regx_transport_ops.progress(one.transport);
    }
    assert_true(one.counters.malformed > 0);
    one.counters.malformed = 0;
}

/* With the true one all goes well. */
static void exchange_and_close(void)
{
    regx_transport_ops.disconnect(three.conn);
    party_drop(&three);
    parties_exchange();
    verbs_close();
}

static void open_two_ports(void)
{
    fake_add(0, 2);
    verbs_conformance.devices[0] = verbs_conformance.devices[1] = "fake0:1";
    parties_open(false);
}

/* A process that says it is another, whom we know by what it published. */
static void process_that_takes_the_name_of_another(void **state)
{
    open_two_ports();
    one_asks();
    open_three_as_two();
    assert_refused();
    exchange_and_close();
}

/* One that gives another's address as well is found out by where its request came from. */
static void process_that_takes_the_address_of_another(void **state)
{
    open_two_ports();
    open_three_as_two();
    verbs_of(&three)->address = verbs_of(&two)->address;
    assert_refused();
    assert_null(ep_of(&one, TWO));
    exchange_and_close();
}

/* One that comes before anything is known of the other loses the name once that one's published
 * address is. */
static void process_that_took_a_name_before_its_owner_was_known(void **state)
{
    party_open(&one, ONE, false);
    party_open(&two, TWO, false);
    fake_add(0, 2);
    open_three_as_two();
    while (conn_try(three.conn, 10) == REGX_AGAIN) {
        regx_transport_ops.progress(three.transport);
        regx_transport_ops.progress(one.transport);
    }
    party_connect(&one, &two);
    party_connect(&two, &one);
    party_send(&one, 1, 5, 3000);
    parties_await(&two.delivered, 1);
    assert_true(one.counters.malformed > 0);
    one.counters.malformed = 0;
    regx_transport_ops.disconnect(three.conn);
    party_drop(&three);
    assert_int_equal(one.broken + two.broken, 0);
    verbs_close();
}

/* It concerns its sender alone. */
static void request_whose_address_cannot_be_routed_to_ends_nothing(void **state)
{
    fake_make_infiniband(&fake.ports[0], 0);
    fake.ports[0].port_flags = IBV_QPF_GRH_REQUIRED; /* else the device tells where it came from */
    parties_open(false);
    party_open(&three, THREE, false);
    party_connect(&three, &one);
    verbs_of(&three)->address.lid = 0xd000;
    assert_refused();
    assert_int_equal(one.broken, 0);
    assert_null(ep_of(&one, THREE));
    exchange_and_close();
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
    parties_open(false);
    const regx_cm_message_t message = {.version = REGX_VERBS_VERSION,
                                       .kind = REGX_CM_REQUEST,
                                       .qpn = 0x1234,
                                       .epoch = 1,
                                       .from = TWO,
                                       .to = ONE,
                                       .pool_size = POOL,
                                       .address = verbs_of(&two)->address};
    for (size_t i = 0; i < WRONG; i++) {
        regx_cm_message_t malformed = message;

        memcpy((uint8_t *)&malformed + wrong[i].at, &wrong[i].value, wrong[i].size);
        party_hear(&one, &malformed, sizeof(malformed));
        assert_int_equal(one.counters.malformed, i + 1);
        assert_null(ep_of(&one, TWO));
    }
    party_hear(&one, &message, sizeof(message) - 1);
    assert_int_equal(one.counters.malformed, WRONG + 1);
    assert_null(ep_of(&one, TWO));
    party_hear(&one, &message, sizeof(message));
    assert_int_equal(one.counters.malformed, WRONG + 1);
    assert_non_null(ep_of(&one, TWO)); /* the control */
    one.counters.malformed = 0;
    parties_exchange();
    verbs_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        VERBS_TEST(process_that_takes_the_name_of_another),
        VERBS_TEST(process_that_takes_the_address_of_another),
        VERBS_TEST(process_that_took_a_name_before_its_owner_was_known),
        VERBS_TEST(request_whose_address_cannot_be_routed_to_ends_nothing),
        VERBS_TEST(malformed_messages_are_counted_and_make_nothing),
    };

    return cmocka_run_group_tests_name("verbs identity", tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What real clusters have and one Soft-RoCE device has not: many peers of which some compute,
 * devices without inline data, InfiniBand, separate networks, and processes that lie. On devices in
 * memory.
 */
#include "fake_device.h"
#include "sides.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum {
    MANY = 2 * REGX_CM_SENDS, /* more than can be asked at once */
    BUSY = 40,
    WAVES = 20,
    PATIENCE = 60, /* seconds */
    THREE = 3000003
};

static side_t others[MANY], three;
static uint64_t stream = 1;

static int reset(void **state)
{
    (void)state;
    alarm(PATIENCE);
    fake_reset();
    side_settings = NULL;
    side_ports[0] = side_ports[1] = NULL;
    return 0;
}

static regx_status_t try_to_send(regx_conn_t *conn, size_t length)
{
    return regx_transport_ops.send(conn, 1, NULL, 0, side_pack, &stream, length);
}

/* Connects `one` to a side that is not `two`. */
static regx_conn_t *connect_to(const side_t *to)
{
    uint8_t address[REGX_ADDRESS_MAX];
    regx_conn_t *conn;
    const size_t length = regx_transport_ops.address(to->transport, address);

    assert_int_equal(
        regx_transport_ops.connect(one.transport, to->self, false, address, length, &conn),
        REGX_OK);
    return conn;
}

/* Closes a transport that others may still be connected to, in this same process. */
static void close_side(const side_t *side)
{
    regx_eps_break(verbs_of(side), "test", "the end");
    regx_transport_ops.close(side->transport);
}

static void exchange(unsigned round, size_t length)
{
    side_send(&one, 1, round, length);
    side_send(&two, 1, round + 1, length);
    side_await(&one.delivered, round);
    side_await(&two.delivered, round);
    assert_true(unit_is_filled(one.last, length, round + 1));
    assert_true(unit_is_filled(two.last, length, round));
    assert_int_equal(one.broken + two.broken, 0);
}

/* With few receive buffers each. */
static void open_many(regx_conn_t *conns[], unsigned count)
{
    static regx_verbs_settings_t few = REGX_VERBS_DEFAULTS;

    few.srq_depth = 32;
    side_settings = &few;
    side_open(&one, ONE, TWO, false);
    side_open(&two, TWO, ONE, false);
    for (unsigned i = 0; i < count; i++) {
        side_open(&others[i], THREE + i, ONE, false);
        conns[i] = connect_to(&others[i]);
    }
    side_connect(&one, &two);
    side_connect(&two, &one);
}

static void close_many(regx_conn_t *conns[], unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        regx_transport_ops.disconnect(conns[i]);
    }
    regx_transport_ops.disconnect(one.conn);
    regx_transport_ops.disconnect(two.conn);
    for (unsigned i = 0; i < count; i++) {
        close_side(&others[i]);
    }
    close_side(&one);
    close_side(&two);
}

static void make_due(void)
{
    verbs_of(&one)->cm.ask_next = 0;
    for (regx_link_t *at = verbs_of(&one)->eps.next; at != &verbs_of(&one)->eps; at = at->next) {
        REGX_CONTAINER_OF(at, regx_ep_t, link)->ask_next = 0;
    }
}

/* Peers that compute for long are asked again and again. They are more than may be asked at once,
 * and keep nobody from being connected. */
static void peer_is_connected_though_many_others_compute(void **state)
{
    regx_conn_t *conns[MANY];

    (void)state;
    open_many(conns, MANY);
    fake.drop_datagrams = true; /* else the first question would do */
    assert_int_equal(try_to_send(one.conn, 10), REGX_AGAIN);
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(try_to_send(conns[i], 10), REGX_AGAIN);
    }
    for (int i = 0; i < 10; i++) {
        sides_progress();
    }
    fake.drop_datagrams = false;
    for (int wave = 0; wave < WAVES; wave++) {
        make_due();
        sides_progress();
        sides_progress();
    }
    assert_int_equal(regx_ep_find(verbs_of(&one), TWO)->state, REGX_EP_READY);
    close_many(conns, MANY);
}

/* Nobody is counted as asked to whom nothing was sent. */
static void questions_that_were_not_sent_do_not_count(void **state)
{
    regx_conn_t *conns[MANY];
    unsigned asked = 0;

    (void)state;
    open_many(conns, MANY);
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(try_to_send(conns[i], 10), REGX_AGAIN);
    }
    for (int wave = 0; wave < WAVES; wave++) {
        make_due();
        regx_transport_ops.progress(one.transport);
    }
    while (verbs_of(&one)->cm.sent != verbs_of(&one)->cm.done) {
        regx_transport_ops.progress(one.transport);
    }
    for (regx_link_t *at = verbs_of(&one)->eps.next; at != &verbs_of(&one)->eps; at = at->next) {
        asked += REGX_CONTAINER_OF(at, regx_ep_t, link)->asked;
    }
    assert_true(asked > REGX_CM_SENDS);
    assert_int_equal(asked, fake.datagrams);
    close_many(conns, MANY);
}

static void put_done(regx_put_t *put, regx_status_t status)
{
    (void)put;
    *(status == REGX_OK ? &done_ok : &done_failed) += 1;
}

static void put_with_notice(void)
{
    uint8_t *data = one.transport->pool_memory;
    regx_put_t put = {.local = data,
                      .length = 5000,
                      .target = REGX_TARGET_POOL,
                      .tag = 9,
                      .notice_length = REGX_NOTICE_MAX,
                      .done = put_done};

    unit_fill(data, 5000, 77, 0);
    unit_fill(put.notice, REGX_NOTICE_MAX, 78, 0);
    const unsigned delivered = two.delivered;
    two.watched = two.transport->pool_memory;
    two.watched_length = 5000;
    two.watched_stream = 77;
    done_ok = done_failed = 0;
    assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_PENDING);
    side_await(&two.delivered, delivered + 1);
    assert_true(unit_is_filled(two.last, REGX_NOTICE_MAX, 78));
    side_await(&done_ok, 1);
    two.watched = NULL;
}

/* Some devices carry no data in their requests, others little. */
static void devices_with_little_or_no_inline_data(void **state)
{
    static const uint32_t limits[] = {0, 32, 64};

    (void)state;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        fake_reset();
        fake.ports[0].inline_max = limits[i];
        sides_open(false);
        exchange(1, 8);
        exchange(2, 48);
        exchange(3, 200);
        put_with_notice();
        assert_true(fake.inline_max <= limits[i]);
        sides_close();
    }
}

/* Others make no queue pair at all when asked for more than they can. */
static void devices_that_refuse_too_much_inline_data(void **state)
{
    (void)state;
    fake.ports[0].inline_refused = fake.ports[0].inline_max = 40;
    sides_open(false);
    exchange(1, 8);
    exchange(2, 200);
    put_with_notice();
    sides_close();
}

static void make_infiniband(fake_port_t *port, uint8_t subnet)
{
    const uint8_t gid[16] = {0xfe, 0x80, [7] = subnet, [15] = (uint8_t)port->lid};

    port->link_layer = IBV_LINK_LAYER_INFINIBAND;
    port->gid_type = IBV_GID_TYPE_IB;
    memcpy(port->gid, gid, sizeof(gid));
}

/* Virtual ports of InfiniBand are found by their GID only. */
static void port_that_requires_a_global_route(void **state)
{
    (void)state;
    make_infiniband(&fake.ports[0], 0);
    sides_open(false);
    exchange(1, 8);
    assert_false(fake.routed.is_global);
    sides_close();
    fake.ports[0].port_flags = IBV_QPF_GRH_REQUIRED;
    sides_open(false);
    exchange(1, 8);
    assert_true(fake.routed.is_global);
    sides_close();
}

static regx_status_t connect_two_ports(void)
{
    uint8_t address[REGX_ADDRESS_MAX];

    side_ports[0] = "fake0:1";
    side_ports[1] = "fake1:1";
    side_open(&one, ONE, TWO, false);
    side_open(&two, TWO, ONE, false);
    size_t length = regx_transport_ops.address(two.transport, address);
    const bool reaches = regx_transport_ops.reaches(one.transport, address, length);
    const regx_status_t status =
        regx_transport_ops.connect(one.transport, TWO, false, address, length, &one.conn);
    assert_int_equal(status, reaches ? REGX_OK : REGX_UNREACHABLE);
    length = regx_transport_ops.address(one.transport, address);
    assert_int_equal(regx_transport_ops.reaches(two.transport, address, length), reaches);
    if (reaches) {
        regx_transport_ops.disconnect(one.conn);
    }
    regx_transport_ops.close(one.transport);
    regx_transport_ops.close(two.transport);
    return status;
}

/* Ports of separate fabrics are not taken for each other's. */
static void ports_of_other_networks_are_reached_where_there_are_routers(void **state)
{
    static const regx_verbs_settings_t routed = {.timeout = 18,
                                                 .retry_count = 6,
                                                 .rnr_retry = 7,
                                                 .gid_index = -1,
                                                 .sq_depth = 64,
                                                 .any_subnet = true};

    (void)state;
    fake_add(0, 2);
    assert_int_equal(connect_two_ports(), REGX_OK); /* one network */
    fake_reset();
    fake_add(1, 2);
    assert_int_equal(connect_two_ports(), REGX_UNREACHABLE);
    fake_reset();
    fake_add(0, 2);
    make_infiniband(&fake.ports[0], 1);
    make_infiniband(&fake.ports[1], 1);
    assert_int_equal(connect_two_ports(), REGX_OK);
    make_infiniband(&fake.ports[1], 2);
    assert_int_equal(connect_two_ports(), REGX_UNREACHABLE);
    side_settings = &routed;
    assert_int_equal(connect_two_ports(), REGX_OK);
    fake_reset();
    fake_add(1, 2);
    assert_int_equal(connect_two_ports(), REGX_OK);
}

/* Addresses of hosts alone, as some networks give them, tell of no network. */
static void address_of_one_host_names_no_network(void **state)
{
    (void)state;
    fake_add(1, 2);
    fake.ports[0].netmask = fake.ports[1].netmask = 0xffffffff;
    assert_int_equal(connect_two_ports(), REGX_OK);
    fake.ports[1].netmask = 0xffffff00;
    assert_int_equal(connect_two_ports(), REGX_OK);
}

/* A process that says it is another, whom we know by what it published. */
static void process_that_takes_the_name_of_another(void **state)
{
    (void)state;
    fake_add(0, 2);
    side_ports[0] = side_ports[1] = "fake0:1";
    sides_open(false);
    assert_int_equal(try_to_send(one.conn, 10), REGX_AGAIN);
    side_open(&three, TWO, ONE, false);
    side_connect(&three, &one);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(try_to_send(three.conn, 10), REGX_AGAIN);
        regx_transport_ops.progress(three.transport);
        regx_transport_ops.progress(one.transport);
    }
    assert_true(one.counters.malformed > 0);
    one.counters.malformed = 0;
    exchange(1, 3000); /* with the true one */
    regx_transport_ops.disconnect(three.conn);
    close_side(&three);
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
    assert_int_equal(try_to_send(three.conn, 10), REGX_AGAIN);
    for (int i = 0; i < 10; i++) {
        regx_transport_ops.progress(three.transport);
        regx_transport_ops.progress(one.transport);
    }
    assert_null(regx_ep_find(verbs_of(&one), TWO));
    assert_true(one.counters.malformed > 0);
    one.counters.malformed = 0;
    exchange(1, 3000);
    regx_transport_ops.disconnect(three.conn);
    close_side(&three);
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
    while (try_to_send(three.conn, 10) == REGX_AGAIN) {
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
    close_side(&three);
    sides_close();
}

/* It concerns its sender alone. */
static void request_whose_address_cannot_be_routed_to_ends_nothing(void **state)
{
    (void)state;
    make_infiniband(&fake.ports[0], 0);
    fake.ports[0].port_flags = IBV_QPF_GRH_REQUIRED; /* else the device tells where it came from */
    sides_open(false);
    side_open(&three, THREE, ONE, false);
    side_connect(&three, &one);
    verbs_of(&three)->address.lid = 0xd000;
    assert_int_equal(try_to_send(three.conn, 10), REGX_AGAIN);
    for (int i = 0; i < 10; i++) {
        regx_transport_ops.progress(three.transport);
        regx_transport_ops.progress(one.transport);
    }
    assert_int_equal(one.broken, 0);
    assert_true(one.counters.malformed > 0);
    assert_null(regx_ep_find(verbs_of(&one), THREE));
    one.counters.malformed = 0;
    exchange(1, 3000);
    regx_transport_ops.disconnect(three.conn);
    close_side(&three);
    sides_close();
}

/* Receivers that compute hold what was sent to them, and leave something for one that is idle. */
static void busy_receivers_do_not_block_an_idle_one(void **state)
{
    regx_conn_t *conns[BUSY];

    (void)state;
    open_many(conns, BUSY);
    for (unsigned i = 0; i < BUSY; i++) {
        while (try_to_send(conns[i], 10) != REGX_OK) {
            regx_transport_ops.progress(one.transport);
            regx_transport_ops.progress(others[i].transport);
        }
    }
    side_send(&one, 1, 1, 10);
    side_await(&two.delivered, 1);
    for (unsigned i = 0; i < BUSY; i++) {
        for (int n = 0; n < 4000; n++) {
            try_to_send(conns[i], 1024);
            regx_transport_ops.progress(one.transport);
        }
    }
    for (unsigned round = 2; round < 20; round++) {
        for (int n = 0; n < 100 && try_to_send(one.conn, 1024) != REGX_OK; n++) {
            sides_progress();
        }
        for (int n = 0; n < 100 && two.delivered < round; n++) {
            sides_progress();
        }
        assert_int_equal(two.delivered, round);
    }
    close_many(conns, BUSY);
}

static void put_may_fail(regx_put_t *put, regx_status_t status)
{
    (void)put;
    (void)status;
    done_failed++;
}

/* A device may forget completions of a queue pair that is destroyed, and with them the receive
 * buffers. */
static void disconnecting_in_a_put_loses_no_receive_buffers(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        fake_reset();
        fake.ports[0].drops_receives = true;
        sides_open(false);
        exchange(1, 100);
        for (int i = 0; i < 30; i++) {
            try_to_send(two.conn, 100);
        }
        regx_transport_ops.progress(two.transport); /* they have arrived at `one` */
        regx_put_t put = {.local = one.transport->pool_memory,
                          .length = 5000,
                          .target = REGX_TARGET_POOL,
                          .notice_length = 8,
                          .done = put_may_fail};
        done_failed = 0;
        assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_PENDING);
        regx_transport_ops.disconnect(one.conn);
        assert_int_equal(done_failed, 1);
        for (int i = 0; i < 100; i++) {
            sides_progress();
        }
        const regx_buffers_t *buffers = &verbs_of(&one)->buffers;
        assert_int_equal(fake_srq_length(verbs_of(&one)->srq) + buffers->returned_count,
                         buffers->receives);
        regx_transport_ops.disconnect(two.conn);
        close_side(&one);
        close_side(&two);
    }
}

/* A device may give the number of a queue pair to the next one. What completed for the first while
 * it was ended is not taken for the second's. */
static void new_queue_pair_gets_nothing_of_one_that_had_its_number(void **state)
{
    regx_put_t put = {
        .length = 5000, .target = REGX_TARGET_POOL, .notice_length = 8, .done = put_may_fail};

    (void)state;
    sides_open(false);
    exchange(1, 100);
    side_open(&three, THREE, ONE, false);
    regx_conn_t *conn = connect_to(&three);
    for (int i = 0; i < 30; i++) {
        try_to_send(two.conn, 100);
    }
    regx_transport_ops.progress(two.transport); /* they have arrived at `one` */
    const uint32_t number = regx_ep_find(verbs_of(&one), TWO)->qp->qp_num;
    put.local = one.transport->pool_memory;
    done_failed = 0;
    assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_PENDING);
    regx_transport_ops.disconnect(one.conn);
    assert_int_equal(done_failed, 1);
    assert_int_equal(try_to_send(conn, 10), REGX_AGAIN);
    assert_int_equal(regx_ep_find(verbs_of(&one), THREE)->qp->qp_num, number);
    for (int i = 0; i < 10; i++) {
        regx_transport_ops.progress(one.transport);
    }
    assert_int_equal(one.delivered, 1);
    const regx_buffers_t *buffers = &verbs_of(&one)->buffers;
    assert_int_equal(fake_srq_length(verbs_of(&one)->srq) + buffers->returned_count,
                     buffers->receives);
    regx_transport_ops.disconnect(conn);
    regx_transport_ops.disconnect(two.conn);
    close_side(&three);
    close_side(&one);
    close_side(&two);
}

/* It has said goodbye, and its queue pair is gone, so that it cannot hear one. */
static void peer_that_left_and_lost_its_queue_pair_comes_back(void **state)
{
    (void)state;
    sides_open(false);
    exchange(1, 100);
    regx_transport_ops.disconnect(two.conn);
    while (!regx_ep_find(verbs_of(&one), TWO)->remote_closed) {
        sides_progress();
    }
    regx_ep_break(regx_ep_find(verbs_of(&two), ONE), "test", "it is lost");
    while (verbs_of(&two)->ep_count > 0) {
        regx_transport_ops.progress(two.transport);
    }
    side_connect(&two, &one);
    side_send(&two, 1, 3, 100);
    side_await(&one.delivered, 2);
    side_send(&one, 1, 2, 100);
    side_await(&two.delivered, 2);
    assert_int_equal(one.broken + two.broken, 0);
    sides_close();
}

/* At either end. */
static void a_route_is_made_later_where_memory_was_short(void **state)
{
    static const int errors[] = {ENOMEM, EAGAIN};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        sides_open(false);
        if (i / 2 == 1) {
            assert_int_equal(try_to_send(one.conn, 10), REGX_AGAIN); /* only the other needs one */
        }
        fake.routes = 0;
        fake.route_error = errors[i % 2];
        while (fake.routes < 2) {
            if (i / 2 == 0) {
                assert_int_equal(try_to_send(one.conn, 10), REGX_AGAIN);
            }
            sides_progress();
        }
        assert_int_equal(one.broken + two.broken, 0);
        fake.route_error = 0;
        exchange(1, 100);
        sides_close();
    }
}

/* Registering is slow, and every endpoint without a slot asks again and again. */
static void slots_that_cannot_be_registered_are_not_asked_for_at_once_again(void **state)
{
    static const char says[] = "verbs: no memory for more slots for a while";
    unsigned taken = 0;

    (void)state;
    sides_open(false);
    fake.register_error = ENOMEM;
    for (unsigned i = 0; i < 2 * REGX_VERBS_SLOTS; i++) {
        taken += regx_slot_take(verbs_of(&one), 0) != REGX_SLOT_NONE;
    }
    assert_int_equal(taken, REGX_VERBS_SLOTS);
    assert_true(fake.registers < REGX_VERBS_SLOTS / 2);
    assert_int_equal(regx_tally_find(one.counters.fallbacks, says)->count, 1);
    fake.register_error = 0;
    while (regx_slot_take(verbs_of(&one), 0) == REGX_SLOT_NONE) {
    }
    regx_transport_ops.disconnect(one.conn);
    regx_transport_ops.disconnect(two.conn);
    close_side(&one);
    close_side(&two);
}

static void await_broken(void)
{
    while (one.broken == 0) {
        try_to_send(one.conn, 10);
        sides_progress();
    }
}

/* Nor does the wait have no end. */
static void no_route_is_told(void **state)
{
    (void)state;
    sides_open(false);
    fake.route_error = ENOMEM;
    assert_int_equal(try_to_send(one.conn, 10), REGX_AGAIN);
    verbs_of(&one)->starved_since -= 60 * INT64_C(1000000000);
    await_broken();
    assert_non_null(strstr(one.what, "making a route: Cannot allocate memory"));
    sides_close();
    fake.route_error = EINVAL;
    sides_open(false);
    await_broken();
    assert_string_equal(one.what, "making a route: Invalid argument");
    sides_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(peer_is_connected_though_many_others_compute, reset),
        cmocka_unit_test_setup(questions_that_were_not_sent_do_not_count, reset),
        cmocka_unit_test_setup(devices_with_little_or_no_inline_data, reset),
        cmocka_unit_test_setup(devices_that_refuse_too_much_inline_data, reset),
        cmocka_unit_test_setup(port_that_requires_a_global_route, reset),
        cmocka_unit_test_setup(ports_of_other_networks_are_reached_where_there_are_routers, reset),
        cmocka_unit_test_setup(address_of_one_host_names_no_network, reset),
        cmocka_unit_test_setup(process_that_takes_the_name_of_another, reset),
        cmocka_unit_test_setup(process_that_takes_the_address_of_another, reset),
        cmocka_unit_test_setup(process_that_took_a_name_before_its_owner_was_known, reset),
        cmocka_unit_test_setup(request_whose_address_cannot_be_routed_to_ends_nothing, reset),
        cmocka_unit_test_setup(busy_receivers_do_not_block_an_idle_one, reset),
        cmocka_unit_test_setup(disconnecting_in_a_put_loses_no_receive_buffers, reset),
        cmocka_unit_test_setup(peer_that_left_and_lost_its_queue_pair_comes_back, reset),
        cmocka_unit_test_setup(a_route_is_made_later_where_memory_was_short, reset),
        cmocka_unit_test_setup(no_route_is_told, reset),
        cmocka_unit_test_setup(slots_that_cannot_be_registered_are_not_asked_for_at_once_again,
                               reset),
        cmocka_unit_test_setup(new_queue_pair_gets_nothing_of_one_that_had_its_number, reset),
    };

    return cmocka_run_group_tests_name("verbs connecting", tests, NULL, NULL);
}

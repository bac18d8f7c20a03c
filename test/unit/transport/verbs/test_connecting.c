/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What real clusters have and one Soft-RoCE device has not: many peers of which some compute,
 * devices without inline data, InfiniBand, and separate networks. On devices in memory.
 */
#include "fake_sides.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum {
    MANY = 2 * REGX_CM_SENDS, /* more than can be asked at once */
    WAVES = 20
};

static side_t others[MANY];

static void make_due(void)
{
    verbs_of(&one)->cm.ask_next = 0;
    for (regx_link_t *at = verbs_of(&one)->table.eps.next; at != &verbs_of(&one)->table.eps;
         at = at->next) {
        REGX_CONTAINER_OF(at, regx_ep_t, link)->cm.ask_next = 0;
    }
}

/* Peers that compute for long are asked again and again. They are more than may be asked at once,
 * and keep no other from being connected. */
static void peer_is_connected_though_many_others_compute(void **state)
{
    regx_conn_t *conns[MANY];

    (void)state;
    sides_open_many(others, conns, MANY);
    fake.drop_datagrams = true; /* else the first question would do */
    assert_int_equal(side_try(one.conn, 10), REGX_AGAIN);
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(side_try(conns[i], 10), REGX_AGAIN);
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
    sides_close_many(others, conns, MANY);
}

/* Whichever of the first datagrams are lost or come twice, whether one side asks or both. */
static void lost_and_doubled_datagrams_are_made_up_for(void **state)
{
    (void)state;
    for (uint32_t mask = 0; mask < 64; mask++) {
        fake_reset();
        *(mask % 2 == 0 ? &fake.lose : &fake.twice) = mask / 4;
        sides_open(false);
        assert_int_equal(side_try(one.conn, 10), REGX_AGAIN);
        if (mask / 2 % 2 == 1) {
            assert_int_equal(side_try(two.conn, 10), REGX_AGAIN);
        }
        sides_exchange(1, 100);
        sides_close();
    }
}

static void queues_that_hold_no_longest_frame_are_refused(void **state)
{
    char error[256];
    regx_transport_t *transport;

    (void)state;
    fake.ports[0].depth = 6;
    memset(&one, 0, sizeof(one));
    one.config = (regx_transport_config_t){
        .self = ONE, .pool_size = POOL, .pool_min = POOL, .counters = &one.counters};
    assert_int_equal(regx_transport_ops.open(&one.config, error, sizeof(error), &transport),
                     REGX_UNREACHABLE);
    assert_string_equal(error, "fake0:1 takes 6 requests of a queue pair, fewer than 8");
}

/* Soft-RoCE errs on demand in packets that are shorter than a page. */
static void a_peer_whose_packets_are_too_small_on_demand_is_not_connected(void **state)
{
    uint8_t address[REGX_ADDRESS_MAX];
    regx_conn_t *conn;

    (void)state;
    sides_open(false);
    one.transport->on_demand_grain = 4096;
    verbs_of(&two)->address.mtu = IBV_MTU_2048;
    const size_t length = regx_transport_ops.address(two.transport, address);
    assert_int_equal(regx_transport_ops.connect(one.transport, THREE, address, length, &conn),
                     REGX_UNREACHABLE);
    assert_int_equal(regx_tally_find(one.counters.fallbacks,
                                     "verbs: a peer's packets are too small for odp here")
                         ->count,
                     1);
    sides_close();
}

/* Virtual ports of InfiniBand are found by their GID only. */
static void a_port_that_requires_a_global_route_gets_one(void **state)
{
    (void)state;
    fake_make_infiniband(&fake.ports[0], 0);
    sides_open(false);
    sides_exchange(1, 8);
    assert_false(fake.routed.is_global);
    sides_close();
    fake.ports[0].port_flags = IBV_QPF_GRH_REQUIRED;
    sides_open(false);
    sides_exchange(1, 8);
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
        regx_transport_ops.connect(one.transport, TWO, address, length, &one.conn);
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
    static const regx_verbs_settings_t routed = {.gid_index = -1, .any_subnet = true};

    (void)state;
    fake_add(0, 2);
    assert_int_equal(connect_two_ports(), REGX_OK); /* one network */
    fake_reset();
    fake_add(1, 2);
    assert_int_equal(connect_two_ports(), REGX_UNREACHABLE);
    fake_reset();
    fake_add(0, 2);
    fake_make_infiniband(&fake.ports[0], 1);
    fake_make_infiniband(&fake.ports[1], 1);
    assert_int_equal(connect_two_ports(), REGX_OK);
    fake_make_infiniband(&fake.ports[1], 2);
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

/* It has said goodbye, and its queue pair is gone, so that it cannot hear one. */
static void peer_that_left_and_lost_its_queue_pair_comes_back(void **state)
{
    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    regx_transport_ops.disconnect(two.conn);
    regx_ep_t *ep = regx_ep_find(verbs_of(&two), ONE);
    while (ep->sq.done != ep->sq.posted) {
        regx_transport_ops.progress(two.transport);
    }
    regx_ep_break(ep, "test", "it is lost");
    while (verbs_of(&two)->table.count > 0) {
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
            assert_int_equal(side_try(one.conn, 10), REGX_AGAIN); /* only the other needs one */
        }
        fake.routes = 0;
        fake.route_error = errors[i % 2];
        while (fake.routes < 2) {
            if (i / 2 == 0) {
                assert_int_equal(side_try(one.conn, 10), REGX_AGAIN);
            }
            sides_progress();
        }
        assert_int_equal(one.broken + two.broken, 0);
        fake.route_error = 0;
        sides_exchange(1, 100);
        sides_close();
    }
}

static void await_broken(void)
{
    while (one.broken == 0) {
        side_try(one.conn, 10);
        sides_progress();
    }
}

static void no_route_is_told(void **state)
{
    (void)state;
    fake.route_error = EINVAL;
    sides_open(false);
    await_broken();
    assert_string_equal(one.what, "making a route: Invalid argument");
    sides_close();
}

/* Frames go to it, gets do not. */
static void a_peer_that_answers_no_reads_is_asked_for_none(void **state)
{
    uint64_t theirs = 4, ours = 5;
    regx_mr_t remote, into;

    (void)state;
    sides_open(false);
    verbs_of(&two)->can.reads_answered = 0;
    side_reg(&one, &ours, sizeof(ours), REGX_ACCESS_LOCAL_WRITE, &into);
    side_reg(&two, &theirs, sizeof(theirs), REGX_ACCESS_REMOTE_READ, &remote);
    sides_exchange(1, 10);
    regx_get_t get = {.local = &ours, .length = sizeof(ours), .region = &into, .key = remote.key};
    assert_int_equal(regx_transport_ops.get(one.conn, &get), REGX_DENIED);
    sides_exchange(2, 10);
    assert_int_equal(theirs, 4);
    assert_int_equal(ours, 5);
    assert_int_equal(done_ok + done_failed, 0);
    regx_transport_ops.dereg(one.transport, &into);
    regx_transport_ops.dereg(two.transport, &remote);
    sides_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(peer_is_connected_though_many_others_compute, fake_sides_reset),
        cmocka_unit_test_setup(lost_and_doubled_datagrams_are_made_up_for, fake_sides_reset),
        cmocka_unit_test_setup(queues_that_hold_no_longest_frame_are_refused, fake_sides_reset),
        cmocka_unit_test_setup(a_peer_whose_packets_are_too_small_on_demand_is_not_connected,
                               fake_sides_reset),
        cmocka_unit_test_setup(a_port_that_requires_a_global_route_gets_one, fake_sides_reset),
        cmocka_unit_test_setup(ports_of_other_networks_are_reached_where_there_are_routers,
                               fake_sides_reset),
        cmocka_unit_test_setup(address_of_one_host_names_no_network, fake_sides_reset),
        cmocka_unit_test_setup(peer_that_left_and_lost_its_queue_pair_comes_back, fake_sides_reset),
        cmocka_unit_test_setup(a_route_is_made_later_where_memory_was_short, fake_sides_reset),
        cmocka_unit_test_setup(no_route_is_told, fake_sides_reset),
        cmocka_unit_test_setup(a_peer_that_answers_no_reads_is_asked_for_none, fake_sides_reset),
    };

    return cmocka_run_group_tests_name("verbs connecting", tests, NULL, NULL);
}

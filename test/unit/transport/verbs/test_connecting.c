/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What real clusters have and one Soft-RoCE device has not: many peers of which some compute,
 * devices without inline data, InfiniBand, and separate networks. On devices in memory.
 */
#include "fake_device.h"
#include "verbs_parties.h"

enum {
    MANY = 2 * REGX_CM_SENDS, /* more than can be asked at once */
    WAVES = 20
};

static party_t others[MANY];

static const char *port_class; /* what /sys has of the ports; NULL: nothing */

UNIT_WRAP(FILE *, fopen, const char *path, const char *mode)
{
    if (strstr(path, "/traffic_class") == NULL) {
        return __real_fopen(path, mode);
    }
    return port_class == NULL ? NULL
                              : fmemopen((void *)(uintptr_t)port_class, strlen(port_class), "r");
}

static void make_due(void)
{
    verbs_of(&one)->cm.next = 0;
    for (regx_link_t *at = verbs_of(&one)->table.eps.next; at != &verbs_of(&one)->table.eps;
         at = at->next) {
        REGX_CONTAINER_OF(at, regx_ep_t, link)->cm.next = 0;
    }
}

/* Peers that compute for long are asked again and again. They are more than may be asked at once,
 * and keep no other from being connected. */
VERBS_OPEN_TEST(peer_is_connected_though_many_others_compute)
{
    regx_conn_t *conns[MANY];

    fake.drop_datagrams = true; /* else the first question would do */
    one_asks();
    for (unsigned i = 0; i < MANY; i++) {
        party_open(&others[i], THREE + i, false);
        conns[i] = one_connect(&others[i]);
        assert_int_equal(conn_try(conns[i], 10), REGX_AGAIN);
    }
    for (int i = 0; i < 10; i++) {
        parties_progress();
    }
    fake.drop_datagrams = false;
    for (int wave = 0; wave < WAVES; wave++) {
        make_due();
        parties_progress();
        parties_progress();
    }
    assert_int_equal(ep_of(&one, TWO)->state, REGX_EP_READY);
    for (unsigned i = 0; i < MANY; i++) {
        regx_transport_ops.disconnect(conns[i]);
        party_drop(&others[i]);
    }
}

static void ask_times(unsigned count)
{
    while (ep_of(&one, TWO)->cm.asked < count) {
        make_due();
        regx_transport_ops.progress(one.transport);
    }
}

/* To make one, the kernel may ask the network, for up to a second. */
VERBS_OPEN_TEST(a_peer_is_asked_and_answered_by_one_route)
{
    fake.drop_datagrams = true;
    one_asks();
    ask_times(10);
    assert_int_equal(fake.routes_made, 1);
    fake.drop_datagrams = false;
    fake.lose = 1u << (fake.datagrams + 1) % 32; /* the first answer */
    make_due();
    parties_exchange();
    parties_settle();
    assert_int_equal(fake.routes_made, 2); /* one of each end */
    assert_int_equal(fake.routes_left, 0);
}

/* The peer may have moved to another network device. */
VERBS_TEST(a_peer_that_does_not_answer_is_asked_by_another_route)
{
    parties_open(false);
    fake.drop_datagrams = true;
    one_asks();
    ask_times(100);
    assert_int_equal(fake.routes_made, 7);
    assert_true(fake.routes_left <= 2); /* of the last question, and of the next */
    party_leave(&one);                  /* it leaves before it was heard */
    regx_transport_ops.progress(one.transport);
    regx_transport_ops.progress(one.transport);
    assert_int_equal(fake.routes_left, 0);
    fake.drop_datagrams = false;
    party_connect(&one, &two);
    parties_exchange();
    verbs_close();
    assert_int_equal(fake.routes_left, 0);
}

/* Whichever of the first datagrams are lost or come twice, whether one side asks or both. */
VERBS_TEST(lost_and_doubled_datagrams_are_made_up_for)
{
    for (uint32_t mask = 0; mask < 64; mask++) {
        fake_reset();
        *(mask % 2 == 0 ? &fake.lose : &fake.twice) = mask / 4;
        parties_open(false);
        one_asks();
        if (mask / 2 % 2 == 1) {
            assert_int_equal(conn_try(two.conn, 10), REGX_AGAIN);
        }
        parties_exchange();
        parties_settle();
        assert_true(regx_list_empty(&verbs_of(&one)->cm.waiting));
        assert_true(regx_list_empty(&verbs_of(&two)->cm.waiting));
        verbs_close();
    }
}

/* Soft-RoCE errs on demand in packets that are shorter than a page. */
VERBS_OPEN_TEST(a_peer_whose_packets_are_too_small_on_demand_is_not_connected)
{
    uint8_t address[REGX_ADDRESS_MAX];
    regx_conn_t *conn;

    one.transport->on_demand_grain = 4096;
    verbs_of(&two)->address.mtu = IBV_MTU_2048;
    const size_t length = regx_transport_ops.address(two.transport, address);
    assert_int_equal(regx_transport_ops.connect(one.transport, THREE, address, length, &conn),
                     REGX_UNREACHABLE);
    assert_int_equal(party_fell_back(&one, "verbs: a peer's packets are too small for odp here"),
                     1);
}

/* Virtual ports of InfiniBand are found by their GID only. */
VERBS_TEST(a_port_that_requires_a_global_route_gets_one)
{
    fake_make_infiniband(&fake.ports[0], 0);
    parties_open(false);
    parties_exchange();
    assert_false(fake.receives.ah_attr.is_global);
    verbs_close();
    fake.ports[0].port_flags = IBV_QPF_GRH_REQUIRED;
    parties_open(false);
    parties_exchange();
    assert_true(fake.receives.ah_attr.is_global);
    verbs_close();
}

static regx_status_t connect_two_ports(void)
{
    uint8_t address[REGX_ADDRESS_MAX];

    verbs_conformance.devices[0] = "fake0:1";
    verbs_conformance.devices[1] = "fake1:1";
    party_open(&one, ONE, false);
    party_open(&two, TWO, false);
    size_t length = regx_transport_ops.address(two.transport, address);
    const bool reaches = regx_transport_ops.reaches(one.transport, address, length, false);
    const regx_status_t status =
        regx_transport_ops.connect(one.transport, TWO, address, length, &one.conn);
    assert_int_equal(status, reaches ? REGX_OK : REGX_UNREACHABLE);
    length = regx_transport_ops.address(one.transport, address);
    assert_int_equal(regx_transport_ops.reaches(two.transport, address, length, false), reaches);
    if (reaches) {
        regx_transport_ops.disconnect(one.conn);
    }
    regx_transport_ops.close(one.transport);
    regx_transport_ops.close(two.transport);
    return status;
}

/* Ports of separate fabrics are not taken for each other's. */
VERBS_TEST(ports_of_other_networks_are_reached_where_there_are_routers)
{
    static const regx_verbs_settings_t routed = {.gid_index = -1, .any_subnet = true};

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
    verbs_conformance.settings = &routed;
    assert_int_equal(connect_two_ports(), REGX_UNREACHABLE); /* a LID leads into one subnet */
    fake_reset();
    fake_add(1, 2);
    assert_int_equal(connect_two_ports(), REGX_OK);
}

/* A port's table may have both memberships of a partition, or begin with a limited one. */
VERBS_TEST(full_membership_of_a_partition_is_preferred)
{
    static const struct {
        uint16_t pkeys[FAKE_PKEYS], wanted, taken;
    } tables[] = {{{0x7fff, 0x8001}, 0, 0x8001},
                  {{0x7fff, 0, 0xffff}, 0, 0xffff},
                  {{0x0123, 0xffff, 0x8123}, 0x0123, 0x8123},
                  {{0x0123, 0xffff}, 0x8123, 0x0123},
                  {{0x7fff, 0x0001}, 0, 0x7fff},
                  {{0x8001, 0xffff}, 0, 0x8001}};

    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        const regx_verbs_settings_t settings = {.gid_index = -1, .pkey = tables[i].wanted};

        memcpy(fake.ports[0].pkeys, tables[i].pkeys, sizeof(tables[i].pkeys));
        verbs_conformance.settings = &settings;
        party_open(&one, ONE, false);
        assert_int_equal(verbs_of(&one)->address.pkey, tables[i].taken);
        assert_int_equal(fake.ports[0].pkeys[verbs_of(&one)->pkey_index], tables[i].taken);
        party_end(&one);
    }
}

/* Addresses of hosts alone, as some networks give them, tell of no network. */
VERBS_TEST(address_of_one_host_names_no_network)
{
    fake_add(1, 2);
    fake.ports[0].netmask = fake.ports[1].netmask = 0xffffffff;
    assert_int_equal(connect_two_ports(), REGX_OK);
    fake.ports[1].netmask = 0xffffff00;
    assert_int_equal(connect_two_ports(), REGX_OK);
}

/* It has said goodbye, and its queue pair is gone, so that it cannot hear one. */
VERBS_CONNECTED_TEST(peer_that_left_and_lost_its_queue_pair_comes_back)
{
    regx_transport_ops.disconnect(two.conn);
    regx_ep_t *ep = ep_of(&two, ONE);
    until(ep->sq.done == ep->sq.posted, regx_transport_ops.progress(two.transport));
    regx_ep_break(ep, "test", "it is lost");
    until(verbs_of(&two)->table.count == 0, regx_transport_ops.progress(two.transport));
    party_connect(&two, &one);
    party_send(&two, 1, 3, 100);
    parties_await(&one.delivered, 2);
    parties_exchange();
}

/* At either end, for a datagram or for the queue pair: memory was short, or the kernel's question
 * for the peer's hardware address got lost. */
VERBS_TEST(a_route_that_is_not_there_is_asked_for_again)
{
    static const int errors[] = {ENOMEM, EAGAIN, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH};
    enum { ERRORS = sizeof(errors) / sizeof(errors[0]) };

    for (unsigned i = 0; i < 4 * ERRORS; i++) {
        const bool only_other = i / ERRORS % 2 == 1, of_queue_pair = i / ERRORS / 2 == 1;
        int *const error = of_queue_pair ? &fake.connect_error : &fake.route_error;

        parties_open(false);
        if (only_other) {
            one_asks();
        }
        fake.routes = 0;
        *error = errors[i % ERRORS];
        while (fake.routes < 3 && one.broken + two.broken == 0) {
            if (!only_other) {
                one_asks();
            }
            make_due();
            parties_progress();
        }
        assert_int_equal(one.broken + two.broken, 0);
        *error = 0;
        parties_exchange();
        verbs_close();
    }
}

/* Each question may take the kernel a second, in which nothing else goes on. */
VERBS_TEST(a_network_that_stays_silent_is_given_up)
{
    for (int of_queue_pair = 0; of_queue_pair < 2; of_queue_pair++) {
        parties_open(false);
        *(of_queue_pair != 0 ? &fake.connect_error : &fake.route_error) = ETIMEDOUT;
        fake.routes = 0;
        one_asks();
        while (one.broken + two.broken == 0) {
            make_due();
            parties_progress();
        }
        assert_int_equal(fake.routes, 10);
        assert_non_null(strstr(of_queue_pair != 0 ? two.what : one.what, "Connection timed out"));
        fake.connect_error = fake.route_error = 0;
        verbs_close();
    }
}

VERBS_OPEN_TEST(no_route_is_told)
{
    fake.route_error = EINVAL;
    one_asks();
    await_broken("making a route: Invalid argument");
}

/* Frames go to it, gets do not. */
VERBS_OPEN_TEST(a_peer_that_answers_no_reads_is_asked_for_none)
{
    uint64_t theirs = 4, ours = 5;
    regx_mr_t remote, into;
    op_t get;

    verbs_of(&two)->can.reads_answered = 0;
    party_reg(&one, &ours, sizeof(ours), REGX_ACCESS_LOCAL_WRITE, &into);
    party_reg(&two, &theirs, sizeof(theirs), REGX_ACCESS_REMOTE_READ, &remote);
    parties_exchange();
    op_get(&get, &ours, sizeof(ours), &into, &remote, 0);
    assert_int_equal(regx_transport_ops.get(one.conn, &get.get), REGX_DENIED);
    parties_exchange();
    assert_true(theirs == 4 && ours == 5 && get.ended == 0);
    regx_transport_ops.dereg(one.transport, &into);
    regx_transport_ops.dereg(two.transport, &remote);
}

/* ---- what the device is told ---- */

VERBS_TEST(settings_reach_every_queue_pair_and_route)
{
    static const regx_verbs_settings_t chosen = {
        .gid_index = 1, .pkey = 0x0123, .service_level = 3, .traffic_class = 0x68};
    const fake_port_t *port = &fake.ports[0];
    const struct ibv_ah_attr *const routes[] = {&port->route, &port->datagram_route};

    verbs_conformance.settings = &chosen;
    parties_open(false);
    parties_exchange();
    assert_int_equal(fake.begins.pkey_index, 1);
    assert_int_equal(port->datagram_pkey_index, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(routes[i]->grh.sgid_index, chosen.gid_index);
        assert_int_equal(routes[i]->sl, chosen.service_level);
        assert_int_equal(routes[i]->grh.traffic_class, chosen.traffic_class);
    }
    assert_int_equal(fake.sends.timeout, 18);
    assert_int_equal(fake.sends.retry_cnt, 6); /* 7 is endless on Soft-RoCE */
    assert_int_equal(fake.sends.rnr_retry, 7); /* a peer may compute for long */
    verbs_close();
}

/* Every key has the order that was asked for; there is firmware that refuses keys without relaxed
 * ordering, which by default is given in to. */
VERBS_TEST(keys_allow_relaxed_ordering_where_it_is_wanted_or_needed)
{
    static const struct {
        regx_verbs_ordering_t wanted;
        bool device_wants;
        regx_status_t status;
    } rows[] = {{REGX_VERBS_STRICT, false, REGX_OK},
                {REGX_VERBS_RELAXED, false, REGX_OK},
                {REGX_VERBS_ORDERING_AUTO, true, REGX_OK},
                {REGX_VERBS_STRICT, true, REGX_NO_MEMORY}};
    regx_error_t error;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const regx_verbs_settings_t settings = {
            .gid_index = -1, .traffic_class = -1, .relaxed_ordering = rows[i].wanted};
        static regx_counters_t counters;
        const regx_transport_config_t config = {.self = 1,
                                                .pool_size = 65536,
                                                .pool_min = 65536,
                                                .device = "fake0:1",
                                                .counters = &counters,
                                                .settings = &settings};
        regx_transport_t *transport = NULL;
        uint64_t memory = 0;
        regx_mr_t mr;

        fake_reset();
        fake.relaxed_only = rows[i].device_wants;
        assert_int_equal(regx_transport_ops.open(&config, error, &transport), rows[i].status);
        if (rows[i].status != REGX_OK) {
            assert_non_null(strstr(error, "Invalid argument"));
            continue;
        }
        assert_int_equal(
            regx_transport_ops.reg(transport, &memory, sizeof(memory), REGX_ACCESS_LOCAL, &mr),
            REGX_OK);
        const bool relaxed = rows[i].wanted != REGX_VERBS_STRICT;
        assert_true((relaxed ? fake.relaxed : fake.strict) > 3);
        assert_int_equal(relaxed ? fake.strict : fake.relaxed, 0);
        regx_transport_ops.dereg(transport, &mr);
        regx_transport_ops.close(transport);
    }
}

/* Switches keep lossless what has a certain class: the port's own is what the administrator says, and
 * without one that which is usual on RoCE. */
VERBS_TEST(packets_have_the_ports_own_class_or_the_usual_one)
{
    static const struct {
        const char *told;
        unsigned on_roce, on_infiniband;
    } ports[] = {{NULL, 106, 0},
                 {"Global tclass=64\n", 64, 64},
                 {"Global tclass=256\n", 106, 0},
                 {"\n", 106, 0}};

    for (size_t i = 0; i < sizeof(ports) / sizeof(ports[0]); i++) {
        for (int infiniband = 0; infiniband < 2; infiniband++) {
            fake_port_t *port = &fake.ports[0];

            fake_reset();
            if (infiniband == 1) {
                fake_make_infiniband(port, 1);
                port->port_flags = IBV_QPF_GRH_REQUIRED;
            }
            port_class = ports[i].told;
            parties_open(false);
            parties_exchange();
            const unsigned wanted = infiniband == 1 ? ports[i].on_infiniband : ports[i].on_roce;
            assert_int_equal(port->route.grh.traffic_class, wanted);
            assert_int_equal(port->datagram_route.grh.traffic_class, wanted);
            verbs_close();
        }
    }
    port_class = NULL;
}

/* A put goes by requests as long as the longest that is known. */
VERBS_TEST(a_port_that_tells_no_longest_request_takes_any)
{
    static uint8_t bytes[8192], target[8192];
    regx_mr_t mr, remote;
    op_t put;

    fake.ports[0].message_untold = true;
    parties_open(false);
    parties_exchange();
    party_reg(&one, bytes, sizeof(bytes), REGX_ACCESS_LOCAL, &mr);
    party_reg(&two, target, sizeof(target), REGX_ACCESS_REMOTE_WRITE, &remote);
    memset(bytes, 0x5a, sizeof(bytes));
    op_put(&put, bytes, sizeof(bytes), REGX_TARGET_REGION, 0);
    put.put.region = &mr;
    put.put.key = remote.key;
    op_start_put(&one, &put);
    for (unsigned i = 0; i < 1000 && put.ended == 0; i++) {
        parties_progress();
    }
    assert_int_equal(put.ended, 1);
    assert_memory_equal(bytes, target, sizeof(bytes));
    regx_transport_ops.dereg(one.transport, &mr);
    regx_transport_ops.dereg(two.transport, &remote);
    verbs_close();
}

/* Its network device is down, or in another network namespace. */
VERBS_TEST(an_address_that_is_in_use_is_preferred)
{
    for (int away = 0; away < 2; away++) {
        fake_port_t *port = &fake.ports[0];

        memcpy(port->worse, port->gid, sizeof(port->worse));
        port->worse[15] = 99;
        party_open(&one, ONE, false);
        assert_memory_equal(verbs_of(&one)->address.gid, port->worse, 16); /* the first */
        regx_transport_ops.close(one.transport);
        port->without_interface = away == 1;
        port->interface_down = away == 0;
        party_open(&one, ONE, false);
        assert_memory_equal(verbs_of(&one)->address.gid, port->gid, 16);
        assert_int_equal(verbs_of(&one)->port.gid.gid_index, 1);
        party_end(&one);
        fake_reset();
    }
}

/* A request names it in one byte. */
VERBS_TEST(an_address_behind_the_first_256_is_not_used)
{
    fake.ports[0].gid_index = 255;
    memcpy(fake.ports[0].worse, fake.ports[0].gid, 16);
    fake.ports[0].worse[0] = 0x20; /* of IPv6 */
    party_open(&one, ONE, false);
    assert_int_equal(verbs_of(&one)->port.gid.gid_index, 255);
    party_end(&one);
}

VERBS_TEST(the_smaller_mtu_of_both_ends_holds)
{
    for (int which = 0; which < 2; which++) {
        party_open(&one, ONE, false);
        party_open(&two, TWO, false);
        verbs_of(which == 0 ? &one : &two)->address.mtu = IBV_MTU_256;
        party_connect(&one, &two);
        party_connect(&two, &one);
        fake.receives.path_mtu = IBV_MTU_4096;
        parties_exchange();
        assert_int_equal(fake.receives.path_mtu, IBV_MTU_256);
        verbs_close();
    }
}

/* ---- processes that lie about who or where they are ---- */

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
VERBS_TEST(process_that_takes_the_name_of_another)
{
    open_two_ports();
    one_asks();
    open_three_as_two();
    assert_refused();
    exchange_and_close();
}

/* One that gives another's address as well is found out by where its request came from. */
VERBS_TEST(process_that_takes_the_address_of_another)
{
    open_two_ports();
    open_three_as_two();
    verbs_of(&three)->address = verbs_of(&two)->address;
    assert_refused();
    assert_null(ep_of(&one, TWO));
    exchange_and_close();
}

/* What is before an IPv4 header may look like one of IPv6. */
VERBS_TEST(what_is_before_a_header_of_ipv4_means_nothing)
{
    fake.undefined = 0x60;
    parties_open(false);
    parties_exchange();
    verbs_close();
    process_that_takes_the_address_of_another(state);
}

/* One that comes before anything is known of the other loses the name once that one's published
 * address is. */
VERBS_TEST(process_that_took_a_name_before_its_owner_was_known)
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
VERBS_TEST(request_whose_address_cannot_be_routed_to_ends_nothing)
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
VERBS_OPEN_TEST(malformed_messages_are_counted_and_make_nothing)
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
    const regx_cm_message_t message = request_of_two(1);
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
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a device reports apart from completions, of a port that goes and comes back or changes and of
 * what fails, and what becomes of the connections; also if the program takes the device's
 * descriptors away. On devices in memory, of which that of `one` is
 * told what to report.
 */
#include "fake_parties.h"

static fake_port_t *const port = &fake.ports[0];

#define EVENTS_TEST(test)                                                                          \
    UNIT_TEST_WITHIN(test, verbs_reset, fake_open_connected(false), verbs_close())

static void tell(struct ibv_async_event event)
{
    fake_tell(verbs_of(&one)->port.context, &event);
    regx_verbs_look(verbs_of(&one));
}

static void tell_port(enum ibv_event_type type)
{
    tell((struct ibv_async_event){.event_type = type, .element.port_num = 1});
}

static uint64_t times_away(void)
{
    return party_fell_back(&one, "verbs: a port was away for a while");
}

static void go_and_come(bool goes, bool of_gid)
{
    *(of_gid ? &port->without_gid : &port->down) = goes;
    tell_port(of_gid ? IBV_EVENT_GID_CHANGE : goes ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
}

/* Whatever is sent meanwhile waits; the device would fail. So do questions for a connection. */
VERBS_TEST(a_port_that_comes_back_has_lost_nothing)
{
    for (int which = 0; which < 4; which++) {
        const bool of_gid = which % 2 == 1, connected = which / 2 == 1;
        op_t put;

        fake_open_two(false);
        if (connected) {
            parties_exchange();
        } else {
            one_asks();
        }
        go_and_come(true, of_gid);
        assert_int_equal(conn_try(one.conn, 10), REGX_AGAIN);
        op_put(&put, one.transport->pool_memory, 3000, REGX_TARGET_POOL, 0);
        const regx_status_t status = regx_transport_ops.put(one.conn, &put.put);
        assert_int_equal(status, connected ? REGX_PENDING : REGX_AGAIN);
        for (int i = 0; i < 100; i++) {
            verbs_of(&one)->cm.next = 0;
            parties_progress();
        }
        assert_int_equal(one.broken + two.broken + put.ended, 0);
        go_and_come(false, of_gid);
        if (connected) {
            op_await(&put);
            parties_await(&two.delivered, 2); /* the notice */
        }
        parties_exchange();
        assert_int_equal(times_away(), 1);
        verbs_close();
    }
}

/* A device keeps so many events and no more. */
EVENTS_TEST(a_port_whose_return_is_not_told_is_asked_for)
{
    go_and_come(true, false);
    port->down = false;
    verbs_of(&one)->port.next = 0;
    regx_verbs_look(verbs_of(&one));
    parties_exchange();
}

VERBS_TEST(a_port_that_stays_away_is_given_up_by_name)
{
    for (int of_gid = 0; of_gid < 2; of_gid++) {
        fake_open_connected(false);
        go_and_come(true, of_gid == 1);
        verbs_of(&one)->port.since -= INT64_C(60000000000);
        regx_verbs_look(verbs_of(&one));
        await_broken(of_gid == 1 ? "sending: given up after a minute; port fake0:1 has lost its GID"
                                 : "sending: given up after a minute; port fake0:1 is down");
        go_and_come(false, of_gid == 1);
        verbs_close();
    }
}

/* What is under way the device itself tries for a while; then who asks why is told of the port. */
VERBS_TEST(what_is_lost_with_a_port_names_it)
{
    static const uint8_t other[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 9};
    const struct {
        bool infiniband, back;
        enum ibv_event_type type;
        const char *says;
    } lost[] = {
        {false, false, IBV_EVENT_PORT_ERR, "; port fake0:1 is down"},
        {false, true, IBV_EVENT_PORT_ERR, "; port fake0:1 was away for 0 s"},
        {false, false, IBV_EVENT_GID_CHANGE, "; port fake0:1 has lost its GID"},
        {true, false, IBV_EVENT_LID_CHANGE, "; of port fake0:1 its LID has changed from 1 to 99"},
        {true, false, IBV_EVENT_CLIENT_REREGISTER,
         "; of port fake0:1 its LID has changed from 1 to 99"},
        {true, false, IBV_EVENT_SM_CHANGE, "; of port fake0:1 its LID has changed from 1 to 99"},
        {true, false, IBV_EVENT_PKEY_CHANGE,
         "; of port fake0:1 the partition key 0xffff has left its place"}};

    for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++) {
        fake_open_connected(lost[i].infiniband);
        port->down = lost[i].type == IBV_EVENT_PORT_ERR;
        if (lost[i].type == IBV_EVENT_GID_CHANGE) {
            memcpy(port->gid, other, sizeof(other));
        } else if (lost[i].type == IBV_EVENT_PKEY_CHANGE) {
            port->pkeys[0] = 0x8123;
            port->pkeys[1] = 0xffff;
        } else if (!port->down) {
            port->lid = 99;
        }
        tell_port(lost[i].type);
        assert_int_equal(one.broken, 0); /* it may come back in time */
        if (lost[i].back) {
            go_and_come(false, false);
        }
        qp_fail(ep_of(&one, TWO)->qp);
        regx_verbs_look(verbs_of(&one));
        await_broken("queue pair: last WQE reached; ");
        assert_non_null(strstr(one.what, lost[i].says));
        port->down = false;
        tell_port(IBV_EVENT_PORT_ACTIVE);
        verbs_close();
    }
}

EVENTS_TEST(another_port_of_the_device_is_nobodys)
{
    port->down = true;
    tell((struct ibv_async_event){.event_type = IBV_EVENT_PORT_ERR, .element.port_num = 2});
    port->down = false;
    parties_exchange();
    assert_int_equal(times_away(), 0);
}

/* Its network device was given its address again, behind others. */
VERBS_TEST(a_gid_that_moves_is_used_where_it_is)
{
    fake_open_two(false);
    fake.drop_datagrams = true;
    one_asks();
    regx_transport_ops.progress(one.transport);
    fake.drop_datagrams = false;
    port->gid_index = 7;
    tell_port(IBV_EVENT_GID_CHANGE);
    parties_exchange();
    assert_int_equal(port->route.grh.sgid_index, 7);
    assert_int_equal(port->datagram_route.grh.sgid_index, 7);
    assert_int_equal(times_away(), 0);
    verbs_close();
}

/* In each line stands what has failed. */
VERBS_TEST(what_fails_is_told_by_name)
{
    static const struct {
        enum ibv_event_type type;
        const char *says;
    } failures[] = {
        {IBV_EVENT_QP_FATAL, "queue pair: local work queue catastrophic error"},
        {IBV_EVENT_QP_REQ_ERR, "queue pair: invalid request local work queue error"},
        {IBV_EVENT_QP_ACCESS_ERR, "queue pair: local access violation work queue error"},
        {IBV_EVENT_CQ_ERR, "device: CQ error"},
        {IBV_EVENT_SRQ_ERR, "device: SRQ catastrophic error"},
        {IBV_EVENT_DEVICE_FATAL, "device: local catastrophic error"}};

    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        struct ibv_async_event event = {.event_type = failures[i].type};

        fake_open_connected(false);
        if (failures[i].type == IBV_EVENT_CQ_ERR) {
            event.element.cq = verbs_of(&one)->cq;
        } else if (failures[i].type == IBV_EVENT_SRQ_ERR) {
            event.element.srq = verbs_of(&one)->srq;
        } else if (failures[i].type != IBV_EVENT_DEVICE_FATAL) {
            event.element.qp = ep_of(&one, TWO)->qp;
        }
        tell(event);
        await_broken(failures[i].says);
        verbs_close();
    }
}

VERBS_TEST(a_device_that_has_failed_connects_nobody)
{
    fake_open_two(false);
    tell((struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL});
    assert_int_equal(conn_try(one.conn, 10), REGX_AGAIN);
    await_broken("making a queue pair: the device has failed");
    verbs_close();
}

/* The goodbye is tried, by the device alone. */
VERBS_TEST(closing_does_not_wait_for_a_port)
{
    fake_open_connected(false);
    go_and_come(true, false);
    party_end(&one);
    party_end(&two);
}

/* ---- what the program does to descriptors ---- */

static int ends[2]; /* the program's, of a pipe with five bytes in it */

/* As closefrom and dup2 do. */
static void take(int fd, bool replaced)
{
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(write(ends[1], "bytes", 5), 5);
    if (replaced) {
        assert_int_equal(dup2(ends[0], fd), fd);
    }
}

/* What is not the device's was not used, or closed. */
static void assert_untouched(int fd, bool replaced)
{
    char bytes[8];

    assert_int_equal(fake.strays, 0);
    assert_int_equal(read(replaced ? fd : ends[0], bytes, sizeof(bytes)), 5);
    close(ends[0]);
    close(ends[1]);
    if (replaced) {
        close(fd);
    }
}

static void register_memory(void)
{
    static uint64_t bytes;
    regx_mr_t mr;

    assert_int_equal(
        regx_transport_ops.reg(one.transport, &bytes, sizeof(bytes), REGX_ACCESS_LOCAL, &mr),
        REGX_DENIED);
}

static regx_mr_t kept;

static void deregister(void)
{
    regx_transport_ops.dereg(one.transport, &kept);
}

static void send_one(void)
{
    assert_int_equal(conn_try(one.conn, 10), REGX_UNREACHABLE);
}

static void leave_peer(void)
{
    regx_transport_ops.disconnect(one.conn);
    party_connect(&one, &two);
    for (int i = 0; i < 100; i++) {
        parties_progress();
    }
    assert_int_equal(conn_try(one.conn, 10), REGX_AGAIN);
}

static void answer_another(void)
{
    party_open(&three, THREE, false);
    party_connect(&three, &one);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(conn_try(three.conn, 10), REGX_AGAIN);
        regx_transport_ops.progress(three.transport);
        regx_transport_ops.progress(one.transport);
    }
    regx_transport_ops.disconnect(three.conn);
    party_drop(&three);
}

static void look(void)
{
    regx_verbs_look(verbs_of(&one));
}

VERBS_TEST(a_descriptor_that_is_not_the_devices_is_never_used)
{
    static void (*const first[])(void) = {look,     register_memory, deregister,
                                          send_one, leave_peer,      answer_another};
    enum { FIRST = sizeof(first) / sizeof(first[0]) };
    static uint64_t bytes;

    for (unsigned i = 0; i < 2 * FIRST; i++) {
        const bool replaced = i / FIRST == 1;

        fake_reset();
        port->vendor = 0xffffff;
        fake_add(0, 2);
        verbs_conformance.devices[0] = "fake0:1";
        verbs_conformance.devices[1] = verbs_conformance.devices[2] = "fake1:1";
        parties_open(false);
        parties_exchange();
        party_reg(&one, &bytes, sizeof(bytes), REGX_ACCESS_LOCAL, &kept);
        const int fd = verbs_of(&one)->port.context->cmd_fd;
        take(fd, replaced);
        first[i % FIRST]();
        look();
        await_broken("; the program has closed or replaced a descriptor of port fake0:1");
        if (first[i % FIRST] != deregister) {
            deregister();
        }
        party_end(&one);
        regx_transport_ops.disconnect(two.conn);
        party_drop(&two);
        assert_untouched(fd, replaced);
    }
}

/* Connections need none. */
VERBS_TEST(events_that_the_program_has_closed_are_done_without)
{
    for (int replaced = 0; replaced < 2; replaced++) {
        fake_open_connected(false);
        const int fd = verbs_of(&one)->port.context->async_fd;
        take(fd, replaced == 1);
        look();
        look();
        parties_exchange();
        assert_int_equal(
            party_fell_back(&one, "verbs: the program has closed the descriptor of events"), 1);
        verbs_close();
        assert_untouched(fd, replaced == 1);
    }
}

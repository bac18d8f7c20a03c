/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How connections begin and end: peers that come again, and what comes late or is malformed. And
 * keys that open nothing: one that was given back, and those of another kind of access; what is
 * asked with them fails, each once and all that comes behind, and the device moves no byte.
 */
#include "verbs_parties.h"

static void await_unbroken(const unsigned *count, unsigned value)
{
    parties_await(count, value);
    assert_int_equal(one.broken + two.broken, 0);
}

static unsigned expected; /* the tag of what is to come, and its stream */

static void in_order(party_t *party)
{
    assert_int_equal(party->last_tag, expected);
    assert_true(unit_is_filled(party->last, party->last_length, expected));
    expected++;
}

/* What the one who stayed had accepted still arrives by the old queue pair, before what it sends by
 * the new one. */
VERBS_CONNECTED_TEST(what_was_accepted_before_the_other_came_back_arrives_first)
{
    enum { COUNT = 20 };
    op_t put;

    one.on_deliver = in_order;
    expected = 0;
    regx_transport_ops.disconnect(one.conn);
    party_connect(&one, &two);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(party_try(&two, (uint8_t)i, i, 700), REGX_OK);
    }
    op_put(&put, two.transport->pool_memory, 3000, REGX_TARGET_POOL, 0);
    put.put.tag = COUNT;
    unit_fill(put.put.notice, REGX_NOTICE_MAX, COUNT, 0);
    op_start_put(&two, &put);
    party_send(&one, 1, 2, 3000);
    await_unbroken(&one.delivered, 1 + COUNT + 1);
    party_send(&two, COUNT + 1, COUNT + 1, 3000);
    await_unbroken(&one.delivered, 1 + COUNT + 2);
    op_await(&put);
}

static unsigned leave_or_return(party_t *party, const party_t *other)
{
    if (party->conn == NULL) {
        party_connect(party, other);
        return 1;
    }
    /* As under MPI, where what was to be sent has been sent before anybody leaves. */
    const regx_ep_t *ep = ((regx_verbs_conn_t *)party->conn)->ep;
    if (ep == NULL || ep->state == REGX_EP_READY) {
        party_leave(party);
    }
    return 0;
}

/* Whatever both do, in whatever order: what was accepted arrives. */
VERBS_OPEN_TEST(what_was_accepted_arrives_in_any_order_of_disconnects)
{
    uint64_t random = 1;
    unsigned sent[2] = {0, 0}, returns = 0;
    party_t *const parties[2] = {&one, &two};

    while (returns < 100) {
        const uint64_t drawn = chance_next(&random);
        const int which = (int)(drawn & 1);
        party_t *party = parties[which];

        if ((drawn >> 1 & 15) > 3) {
            regx_transport_ops.progress(party->transport);
        } else if (party->conn == NULL || (drawn >> 5 & 127) == 0) {
            returns += leave_or_return(party, parties[1 - which]);
        } else if (party_try(party, 1, 5, 700) == REGX_OK) {
            sent[which]++;
        }
        assert_int_equal(one.broken + two.broken, 0);
    }
    assert_true(sent[0] > 0 && sent[1] > 0);
    await_unbroken(&two.delivered, sent[0]);
    await_unbroken(&one.delivered, sent[1]);
    for (int which = 0; which < 2; which++) {
        if (parties[which]->conn == NULL) {
            party_connect(parties[which], parties[1 - which]);
        }
    }
    parties_exchange();
}

/* A datagram that comes after its queue pair has ended leads no peer to it for long. */
VERBS_CONNECTED_TEST(a_request_that_comes_late_does_no_harm)
{
    op_t put;

    const regx_ep_t *ep = ep_of(&one, TWO);
    const regx_cm_message_t message = {.version = REGX_VERBS_VERSION,
                                       .kind = REGX_CM_REQUEST,
                                       .qpn = ep->qp->qp_num,
                                       .psn = ep->psn,
                                       .epoch = ep->epoch,
                                       .from = ONE,
                                       .to = TWO,
                                       .address = verbs_of(&one)->address};
    regx_transport_ops.disconnect(one.conn);
    regx_transport_ops.disconnect(two.conn);
    until(verbs_of(&one)->table.count + verbs_of(&two)->table.count == 0, parties_progress());
    party_connect(&one, &two);
    party_connect(&two, &one);
    party_hear(&two, &message, sizeof(message));
    op_put(&put, two.transport->pool_memory, 3000, REGX_TARGET_POOL, 0);
    op_start_put(&two, &put);
    party_send(&one, 1, 2, 3000);
    await_unbroken(&two.delivered, 2);
    op_await(&put);
    await_unbroken(&one.delivered, 2);
    party_hear(&two, &message, sizeof(message));
    parties_exchange();
}

/* Each of these bytes has values that mean nothing; and a port of another kind is no peer. */
VERBS_OPEN_TEST(hostile_addresses_are_refused)
{
    static const struct {
        size_t at;
        uint8_t value;
    } wrong[] = {{0, 0},  {0, REGX_VERBS_VERSION + 1},
                 {1, 0},  {1, 3},
                 {3, 0},  {3, 6},
                 {32, 4}, {33, 129},
                 {34, 1}, {35, 1}};
    uint8_t address[REGX_ADDRESS_MAX];
    regx_conn_t *conn;

    const size_t length = regx_transport_ops.address(two.transport, address);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const uint8_t right = address[wrong[i].at];

        address[wrong[i].at] = wrong[i].value;
        assert_int_equal(regx_transport_ops.connect(one.transport, 77, address, length, &conn),
                         REGX_INVALID);
        assert_false(regx_transport_ops.reaches(one.transport, address, length, false));
        address[wrong[i].at] = right;
    }
    address[1] = address[1] == REGX_VERBS_ETHERNET ? REGX_VERBS_INFINIBAND : REGX_VERBS_ETHERNET;
    assert_int_equal(regx_transport_ops.connect(one.transport, 77, address, length, &conn),
                     REGX_UNREACHABLE);
}

/* ---- keys of the peer's memory that open nothing ---- */

enum { OPS = 3 };

static regx_status_t ask(bool puts, op_t *op, uint8_t *local, const regx_mr_t *mine,
                         const regx_mr_t *its)
{
    if (!puts) {
        op_get(op, local, MIB, mine, its, 0);
        return regx_transport_ops.get(one.conn, &op->get);
    }
    op_put(op, local, MIB, REGX_TARGET_REGION, 0);
    op->put.region = mine;
    op->put.key = its->key;
    return regx_transport_ops.put(one.conn, &op->put);
}

/* `access`: what the peer's memory is registered for; 0: for this, and given back. */
static void opens_nothing(bool puts, unsigned access)
{
    const unsigned right = puts ? REGX_ACCESS_REMOTE_WRITE : REGX_ACCESS_REMOTE_READ;
    op_t ops[OPS], late;
    regx_mr_t mine, its;

    parties_open(false);
    uint8_t *local = malloc(MIB), *remote = malloc(MIB);
    parties_exchange();
    party_reg(&one, local, MIB, puts ? REGX_ACCESS_LOCAL : REGX_ACCESS_LOCAL_WRITE, &mine);
    party_reg(&two, remote, MIB, access != 0 ? access : right, &its);
    memset(local, 0x11, MIB);
    memset(remote, 0xee, MIB);
    if (access == 0) {
        regx_transport_ops.dereg(two.transport, &its);
    }
    for (unsigned i = 0; i < OPS; i++) {
        assert_int_equal(ask(puts, &ops[i], local, &mine, &its), REGX_PENDING);
    }
    await_broken(puts ? "RDMA WRITE: remote access error" : "RDMA READ: remote access error");
    parties_settle();
    for (unsigned i = 0; i < OPS; i++) {
        assert_true(ops[i].ended == 1 && ops[i].status == REGX_FAILED);
    }
    assert_int_equal(two.delivered, 1);
    assert_true(unit_is_all(local, MIB, 0x11) && unit_is_all(remote, MIB, 0xee));
    assert_false(regx_transport_ops.reachable(one.conn));
    assert_int_equal(conn_try(one.conn, 0), REGX_UNREACHABLE);
    assert_int_equal(ask(puts, &late, local, &mine, &its), REGX_UNREACHABLE);
    regx_transport_ops.dereg(one.transport, &mine);
    if (access != 0) {
        regx_transport_ops.dereg(two.transport, &its);
    }
    verbs_close();
    free(remote);
    free(local);
}

VERBS_TEST(keys_that_were_given_back_open_nothing)
{
    opens_nothing(true, 0);
    opens_nothing(false, 0);
}

VERBS_TEST(keys_of_the_wrong_kind_open_nothing)
{
    opens_nothing(true, REGX_ACCESS_LOCAL);
    opens_nothing(true, REGX_ACCESS_REMOTE_READ);
    opens_nothing(true, REGX_ACCESS_LOCAL_WRITE);
    opens_nothing(false, REGX_ACCESS_LOCAL);
    opens_nothing(false, REGX_ACCESS_REMOTE_WRITE);
}

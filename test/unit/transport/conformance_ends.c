/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Conformance: the ends of connections. What was accepted arrives, what is under way ends once, and
 * nothing is written after it.
 */
#include "parties.h"

#include "pair.h"

enum { AREA = MIB, UNDER_WAY = 8 };

/* Operations of `one` towards `two`, of each kind. */
typedef struct under_way {
    op_t ops[2 * UNDER_WAY];
    unsigned begun;
    uint8_t *mine, *its;
    regx_mr_t local, remote;
} under_way_t;

static void under_way_new(under_way_t *all)
{
    all->begun = 0;
    all->mine = calloc(1, AREA);
    all->its = malloc(AREA);
    unit_fill(all->its, AREA, 3, 0);
    party_reg(&one, all->mine, AREA, REGX_ACCESS_LOCAL | REGX_ACCESS_LOCAL_WRITE, &all->local);
    party_reg(&two, all->its, AREA, REGX_ACCESS_REMOTE_WRITE | REGX_ACCESS_REMOTE_READ,
              &all->remote);
}

/* Begins some of each kind, twice at most for one connection. Those that are not accepted are left
 * out. */
static void begin_all(under_way_t *all)
{
    uint8_t *pool = one.transport->pool_memory;

    for (unsigned i = 0; i < UNDER_WAY; i++) {
        op_t *op = &all->ops[all->begun];
        const size_t length = i % 2 == 0 ? MIB : 5000;
        regx_status_t status;

        if (i % 4 == 0) {
            op_put(op, all->mine, length, REGX_TARGET_REGION, 0);
            op->put.key = all->remote.key;
            op->put.region = &all->local;
            status = tested->ops->put(one.conn, &op->put);
        } else if (i % 4 == 1) {
            op_zcopy(op, pool, 5000, 9);
            status = tested->ops->send_zcopy(one.conn, &op->zcopy);
        } else {
            op_get(op, all->mine, length, &all->local, &all->remote, 0);
            op->get.assisted = i % 4 == 2;
            status = tested->ops->get(one.conn, &op->get);
        }
        all->begun += status == REGX_PENDING;
    }
}

static void assert_all_ended(const under_way_t *all)
{
    for (unsigned i = 0; i < all->begun; i++) {
        assert_int_equal(all->ops[i].ended, 1);
    }
}

/* Nothing is written after its end. */
static void assert_silent(under_way_t *all)
{
    uint8_t *mine = malloc(AREA), *its = malloc(AREA);

    memcpy(mine, all->mine, AREA);
    memcpy(its, all->its, AREA);
    parties_settle();
    assert_memory_equal(mine, all->mine, AREA);
    assert_memory_equal(its, all->its, AREA);
    assert_all_ended(all);
    free(mine);
    free(its);
}

/* Both, open and connected, and some of each kind under way. */
static void under_way_open(under_way_t *all)
{
    parties_open(false);
    parties_exchange();
    under_way_new(all);
    begin_all(all);
    assert_true(all->begun >= 4);
}

static void under_way_close(under_way_t *all)
{
    tested->ops->dereg(one.transport, &all->local);
    tested->ops->dereg(two.transport, &all->remote);
    free(all->mine);
    free(all->its);
    parties_close();
}

/* After each number of steps that the two may have made. */
UNIT_TEST_BETWEEN(what_is_under_way_ends_once_when_its_connection_does, conformance_reset, NULL)
{
    static under_way_t all;

    for (unsigned steps = 0; steps < 14; steps++) {
        under_way_open(&all);
        for (unsigned i = 0; i < steps; i++) {
            tested->ops->progress(i % 3 == 2 ? two.transport : one.transport);
        }
        party_leave(&one);
        assert_all_ended(&all);
        assert_silent(&all);
        under_way_close(&all);
    }
}

/* Also before the disconnect. close waits until they have been read. */
UNIT_TEST_BETWEEN(frames_accepted_before_the_close_arrive, conformance_reset, NULL)
{
    parties_open(false);
    parties_exchange();
    const unsigned before = two.delivered;
    for (unsigned i = 0; i < 12; i++) {
        assert_int_equal(party_try(&one, 1, i, (size_t)i * 300), REGX_OK);
    }
    party_leave(&one);
    if (tested->is_ending != NULL) {
        parties_settle();
    }
    party_close(&one);
    parties_settle();
    assert_int_equal(two.delivered, before + 12);
    assert_true(two.last_length == 3300 && unit_is_filled(two.last, 3300, 11));
    party_leave(&two);
    parties_settle();
    party_close(&two);
}

CONFORMANCE_TEST(a_peer_may_connect_again)
{
    for (unsigned round = 0; round < 12; round++) {
        parties_exchange();
        tested->ops->disconnect(one.conn);
        if (round % 3 != 2) { /* or the other stays */
            tested->ops->disconnect(two.conn);
        }
        parties_settle();
        party_connect(&one, &two);
        if (round % 3 != 2) {
            party_connect(&two, &one);
        }
    }
}

/* ---- a peer that fails ---- */

static void the_way_to_a_peer_is_cut(void)
{
    static under_way_t all;

    under_way_open(&all);
    tested->cut(one.transport, TWO);
    until(one.broken != 0, tested->ops->progress(one.transport));
    assert_int_equal(one.broken, 1);
    assert_int_equal(party_try(&one, 1, 1, 10), REGX_UNREACHABLE);
    party_leave(&one);
    assert_silent(&all);
    under_way_close(&all);
}

/* What the processes tell each other. */
typedef struct introduction {
    uint8_t address[REGX_ADDRESS_MAX];
    uint64_t length;
    regx_key_t key;
} introduction_t;

static void introduce(int end, introduction_t *own, introduction_t *its)
{
    own->length = tested->ops->address(one.transport, own->address);
    pair_tell(end, own, sizeof(*own));
    pair_hear(end, its, sizeof(*its));
    REQUIRE(tested->ops->connect(one.transport, in_child ? ONE : TWO, its->address, its->length,
                                 &one.conn) == REGX_OK);
}

/* The child, connected, until it is killed. */
static void be_killed(int end)
{
    until(one.delivered != 0, tested->ops->progress(one.transport));
    pair_meet(end);
    for (;;) {
        pause();
    }
}

/* In this process one.conn leads to the child. */
static void outlive(pid_t child, int end, const regx_key_t *key)
{
    static under_way_t all;

    all.begun = 0;
    all.mine = calloc(1, AREA);
    all.its = NULL;
    party_reg(&one, all.mine, AREA, REGX_ACCESS_LOCAL | REGX_ACCESS_LOCAL_WRITE, &all.local);
    all.remote.key = *key;
    party_send(&one, 1, 1, 100);
    pair_meet(end);
    assert_true(tested->ops->reachable(one.conn));
    begin_all(&all);
    assert_true(all.begun >= 4);
    kill(child, SIGKILL);
    until(!tested->ops->reachable(one.conn), tested->ops->progress(one.transport));
    begin_all(&all);
    while (party_try(&one, 1, 1, 3000) == REGX_OK) { /* never read */
    }
    parties_settle();
    tested->ops->disconnect(one.conn);
    assert_all_ended(&all);
    tested->ops->dereg(one.transport, &all.local);
    tested->ops->close(one.transport); /* does not wait for the dead */
    free(all.mine);
}

static void a_peer_is_killed(void)
{
    introduction_t own = {.length = 0}, its;
    regx_mr_t mr;
    int end;
    const pid_t child = pair_fork(&end);

    memset(&two, 0, sizeof(two));
    party_open(&one, in_child ? TWO : ONE, false);
    uint8_t *memory = calloc(1, AREA);
    party_reg(&one, memory, AREA, REGX_ACCESS_REMOTE_WRITE | REGX_ACCESS_REMOTE_READ, &mr);
    own.key = mr.key;
    introduce(end, &own, &its);
    if (in_child) {
        be_killed(end);
    }
    outlive(child, end, &its.key);
    one.transport = NULL;
    free(memory);
    pair_join(child, end, true);
}

UNIT_TEST_BETWEEN(what_is_under_way_ends_when_the_peer_fails, conformance_reset, NULL)
{
    if (tested->cut != NULL) {
        the_way_to_a_peer_is_cut();
    } else {
        a_peer_is_killed();
    }
}

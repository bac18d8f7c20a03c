/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Disconnecting on the node, while the kernel copies for this connection and for another.
 */
#include "copies.h"

enum { MIXED = 6 };

/* Connects, and makes sure that there is a mailbox. */
static regx_conn_t *connect_to(side_t *side, uint64_t peer, const regx_shm_address_t *address)
{
    regx_conn_t *conn;
    regx_status_t status;

    conn = side_connect(side, peer, address);
    while ((status = regx_shm_send(conn, 1, "", 0, NULL, NULL, 0)) == REGX_AGAIN) {
        progress(side);
    }
    REQUIRE(status == REGX_OK);
    return conn;
}

/* Queues operations, those of the mask's bits by the one connection, drops that after some
 * progress, and lets the others come to their end. Returns how many puts went by the other. */
static unsigned drop_one(side_t *side, unsigned mask, regx_conn_t *dropped, regx_conn_t *kept)
{
    op_t ops[MIXED];
    unsigned ended[MIXED], puts = 0;

    orders = 0;
    for (unsigned i = 0; i < MIXED; i++) {
        const bool large = i == mask % MIXED; /* in steps */

        ops[i] = op_new((mask >> i & 1) != 0 ? dropped : kept, (i + mask / 8) % 2 == 0,
                        i * (ZONE / 8), large ? STEP + 9 : 99);
        REQUIRE(post(&ops[i]) == REGX_PENDING);
    }
    for (unsigned i = 0; i < mask % 4; i++) {
        regx_shm_progress(side->transport);
    }
    for (unsigned i = 0; i < MIXED; i++) {
        ended[i] = ops[i].ended;
    }
    regx_shm_disconnect(dropped);
    for (unsigned i = 0; i < MIXED; i++) {
        const bool drops = (mask >> i & 1) != 0;

        REQUIRE(ops[i].ended == (drops ? 1 : ended[i]));
        REQUIRE(!drops || ended[i] == 1 || ops[i].status == REGX_FAILED);
    }
    while (orders < MIXED) {
        progress(side);
    }
    REQUIRE(atomic_load(&side->shm->copy_count) == 0);
    for (unsigned i = 0, last = 0; i < MIXED; i++) {
        if ((mask >> i & 1) == 0) {
            assert_got(&ops[i]);
            REQUIRE(ops[i].order >= last);
            last = ops[i].order;
            puts += !ops[i].get;
        } else {
            REQUIRE(ops[i].ended == 1);
        }
        op_free(&ops[i]);
    }
    return puts;
}

static void drop_and_go_on(side_t *side)
{
    const regx_shm_address_t other = regx_shm_conn_of(side->conn)->address;
    regx_shm_address_t own;

    begin(side);
    side_address(side, &own);
    regx_conn_t *self = connect_to(side, PARENT, &own);
    for (unsigned mask = 1; mask < 1 << MIXED; mask++) {
        if (mask % 2 == 0) {
            drop_one(side, mask, self, side->conn);
            self = connect_to(side, PARENT, &own);
            continue;
        }
        notices[0] = 0;
        const unsigned puts = drop_one(side, mask, side->conn, self);
        side->conn = connect_to(side, CHILD, &other);
        while (notices[0] < puts) {
            progress(side);
        }
        REQUIRE(notices[0] == puts);
    }
    regx_shm_disconnect(self);
    finish(side);
}

static void disconnecting_ends_those_of_that_connection(void **state)
{
    (void)state;
    run_pair(false, drop_and_go_on, serve);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disconnecting_ends_those_of_that_connection),
    };

    return cmocka_run_group_tests_name("shm_disconnect", tests, NULL, NULL);
}

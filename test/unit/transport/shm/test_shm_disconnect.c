/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Disconnecting on the node: while the kernel copies for this connection and for another, and while
 * the other process closes.
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
        work_alone(side); /* takes what came by the one that was dropped before */
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

/* ---- a mailbox that is used again ---- */

static side_t *closing; /* this process closes; the calls are counted */
static unsigned unmaps;

void __real_regx_segment_unmap(regx_shm_mapping_t *mapping);
void __wrap_regx_segment_unmap(regx_shm_mapping_t *mapping);
void __wrap_regx_segment_unmap(regx_shm_mapping_t *mapping)
{
    unmaps += closing != NULL;
    if (closing != NULL && unmaps == 1) { /* one mailbox is left, and the other is not */
        meet(closing);
        meet(closing);
    } else if (closing != NULL && unmaps == 2) { /* both are */
        meet(closing);
    }
    __real_regx_segment_unmap(mapping);
}

static void reuse_a_mailbox(side_t *side)
{
    const regx_shm_address_t other = regx_shm_conn_of(side->conn)->address;
    regx_shm_address_t own;

    begin(side);
    side_address(side, &own);
    regx_conn_t *second = connect_to(side, CHILD, &other);
    meet(side); /* the other has left the first mailbox */
    regx_shm_disconnect(second);
    regx_conn_t *self = connect_to(side, PARENT, &own);
    meet(side); /* it leaves the second */
    meet(side);
    REQUIRE(atomic_load(&regx_shm_conn_of(self)->box.memory->left) == 0);
    regx_shm_disconnect(self);
    finish_alone();
}

static void close_slowly(side_t *side)
{
    begin(side);
    while (side->shm->inbound_count < 2) {
        progress(side);
    }
    closing = side;
    unmaps = 0;
    finish_alone();
}

static void a_process_that_closes_does_not_mark_mailboxes_that_are_used_again(void **state)
{
    (void)state;
    run_pair(false, reuse_a_mailbox, close_slowly);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disconnecting_ends_those_of_that_connection),
        cmocka_unit_test(a_process_that_closes_does_not_mark_mailboxes_that_are_used_again),
    };

    return cmocka_run_group_tests_name("shm_disconnect", tests, NULL, NULL);
}

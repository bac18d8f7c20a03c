/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Keys of the peer's memory that open nothing: one that was given back, and those of another kind
 * of access. What is asked with them fails, each once and all that comes behind, and the device
 * moves no byte.
 */
#include "verbs_parties.h"

#include <stdlib.h>

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
    for (size_t i = 0; i < MIB; i++) {
        assert_true(local[i] == 0x11 && remote[i] == 0xee);
    }
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

static void keys_that_were_given_back_open_nothing(void **state)
{
    opens_nothing(true, 0);
    opens_nothing(false, 0);
}

static void keys_of_the_wrong_kind_open_nothing(void **state)
{
    opens_nothing(true, REGX_ACCESS_LOCAL);
    opens_nothing(true, REGX_ACCESS_REMOTE_READ);
    opens_nothing(true, REGX_ACCESS_LOCAL_WRITE);
    opens_nothing(false, REGX_ACCESS_LOCAL);
    opens_nothing(false, REGX_ACCESS_REMOTE_WRITE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        VERBS_TEST(keys_that_were_given_back_open_nothing),
        VERBS_TEST(keys_of_the_wrong_kind_open_nothing),
    };

    return cmocka_run_group_tests_name("verbs keys", tests, NULL, NULL);
}

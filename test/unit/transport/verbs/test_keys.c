/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Keys of the peer's memory that open nothing: one that was given back, and those of another kind
 * of access. What is asked with them fails, each once and all that comes behind, and the device
 * moves no byte.
 */
#include "sides.h"

#include <stdlib.h>

enum { OPS = 3 };

static regx_status_t ask(bool puts, uint8_t *local, const regx_mr_t *mine, const regx_mr_t *its,
                         unsigned which)
{
    static regx_put_t all_puts[OPS + 1];
    static regx_get_t all_gets[OPS + 1];

    all_puts[which] = (regx_put_t){.local = local,
                                   .length = MIB,
                                   .region = mine,
                                   .target = REGX_TARGET_REGION,
                                   .key = its->key,
                                   .notice_length = 3,
                                   .done = side_put_done};
    all_gets[which] = (regx_get_t){
        .local = local, .length = MIB, .region = mine, .key = its->key, .done = side_get_done};
    return puts ? regx_transport_ops.put(one.conn, &all_puts[which])
                : regx_transport_ops.get(one.conn, &all_gets[which]);
}

/* `access`: what the peer's memory is registered for; 0: for this, and given back. */
static void opens_nothing(bool puts, unsigned access)
{
    const unsigned right = puts ? REGX_ACCESS_REMOTE_WRITE : REGX_ACCESS_REMOTE_READ;
    regx_mr_t mine, its;

    sides_open(false);
    uint8_t *local = malloc(MIB), *remote = malloc(MIB);
    sides_exchange(1, 1);
    side_reg(&one, local, MIB, puts ? REGX_ACCESS_LOCAL : REGX_ACCESS_LOCAL_WRITE, &mine);
    side_reg(&two, remote, MIB, access != 0 ? access : right, &its);
    memset(local, 0x11, MIB);
    memset(remote, 0xee, MIB);
    if (access == 0) {
        regx_transport_ops.dereg(two.transport, &its);
    }
    for (unsigned i = 0; i < OPS; i++) {
        assert_int_equal(ask(puts, local, &mine, &its, i), REGX_PENDING);
    }
    side_await(&one.broken, 1);
    sides_settle();
    assert_int_equal(done_failed, OPS);
    assert_int_equal(done_ok, 0);
    assert_non_null(strstr(one.what, puts ? "RDMA WRITE: " : "RDMA READ: "));
    assert_non_null(strstr(one.what, "remote access error"));
    assert_int_equal(two.delivered, 1);
    for (size_t i = 0; i < MIB; i++) {
        assert_true(local[i] == 0x11 && remote[i] == 0xee);
    }
    assert_false(regx_transport_ops.reachable(one.conn));
    assert_int_equal(side_try(one.conn, 0), REGX_UNREACHABLE);
    assert_int_equal(ask(puts, local, &mine, &its, OPS), REGX_UNREACHABLE);
    sides_settle();
    assert_int_equal(one.broken, 1);
    regx_transport_ops.dereg(one.transport, &mine);
    if (access != 0) {
        regx_transport_ops.dereg(two.transport, &its);
    }
    sides_close();
    free(remote);
    free(local);
}

static void keys_that_were_given_back_open_nothing(void **state)
{
    (void)state;
    opens_nothing(true, 0);
    opens_nothing(false, 0);
}

static void keys_of_the_wrong_kind_open_nothing(void **state)
{
    (void)state;
    opens_nothing(true, REGX_ACCESS_LOCAL);
    opens_nothing(true, REGX_ACCESS_REMOTE_READ);
    opens_nothing(true, REGX_ACCESS_LOCAL_WRITE);
    opens_nothing(false, REGX_ACCESS_LOCAL);
    opens_nothing(false, REGX_ACCESS_REMOTE_WRITE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_were_given_back_open_nothing),
        cmocka_unit_test(keys_of_the_wrong_kind_open_nothing),
    };

    alarm(UNIT_PATIENCE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

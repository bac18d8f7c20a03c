/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What devices can of atomic operations. On devices in memory.
 */
#include "fake_device.h"
#include "sides.h"

#include <unistd.h>

static int reset(void **state)
{
    (void)state;
    alarm(UNIT_PATIENCE);
    fake_reset();
    return 0;
}

/* Offered for windows only if they are in order with the processor's. */
static void only_those_that_go_with_the_processors_are_offered(void **state)
{
    static const enum ibv_atomic_cap caps[] = {IBV_ATOMIC_NONE, IBV_ATOMIC_HCA, IBV_ATOMIC_GLOB};

    (void)state;
    for (unsigned i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
        uint64_t number = 4;
        regx_mr_t remote;

        fake.atomics = caps[i];
        sides_open(false);
        assert_int_equal(one.transport->atomics, caps[i] == IBV_ATOMIC_GLOB);
        side_reg(&two, &number, sizeof(number), REGX_ACCESS_REMOTE_ATOMIC, &remote);
        side_send(&one, 1, 1, 1);
        side_await(&two.delivered, 1);
        regx_fetch_t fetch = {.key = remote.key, .operand = 3, .done = side_fetch_done};
        if (caps[i] == IBV_ATOMIC_NONE) {
            assert_int_equal(regx_transport_ops.fetch(one.conn, &fetch), REGX_DENIED);
            assert_int_equal(number, 4);
        } else {
            assert_int_equal(regx_transport_ops.fetch(one.conn, &fetch), REGX_PENDING);
            side_await(&done_ok, 1);
            assert_int_equal(number, 7);
        }
        regx_transport_ops.dereg(two.transport, &remote);
        sides_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(only_those_that_go_with_the_processors_are_offered, reset),
    };

    return cmocka_run_group_tests_name("verbs atomics", tests, NULL, NULL);
}

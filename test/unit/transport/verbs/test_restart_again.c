/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a queue pair that replaces another sends again: no more than was under way, and nothing that
 * must not have its effect twice.
 */
#include "restart.h"

#include <stdlib.h>

/* Of one whose answer was lost nobody knows whether it was done. One that has completed is no
 * hindrance. */
static void an_atomic_operation_is_never_repeated(void **state)
{
    static uint64_t number;

    (void)state;
    for (int late = 0; late < 2; late++) {
        regx_mr_t theirs;

        number = 0;
        sides_open(false);
        side_reg(&two, &number, sizeof(number), REGX_ACCESS_REMOTE_ATOMIC, &theirs);
        restart_exchange();
        regx_fetch_t fetch = {.key = theirs.key, .operand = 1, .done = side_fetch_done};
        assert_int_equal(regx_transport_ops.fetch(one.conn, &fetch), REGX_PENDING);
        side_await(&done_ok, 1);
        fake.fault.late = late == 1;
        fake.fault.at[0] = fake.fault.done + 1;
        restart_exchange();
        assert_int_equal(restart_count(&one, REGX_COUNTER_restarts), 1);
        fake.fault.at[0] = fake.fault.done + 1;
        assert_int_equal(regx_transport_ops.fetch(one.conn, &fetch), REGX_PENDING);
        side_await(&one.broken, 1);
        assert_non_null(strstr(one.what, "one-sided operation"));
        assert_int_equal(done_failed, 1);
        assert_int_equal(number, 1 + late);
        regx_transport_ops.dereg(two.transport, &theirs);
        sides_close();
    }
}

/* Its receiver may have seen what a silent put wrote, and have written there again: the 7. */
static void a_silent_put_is_never_repeated(void **state)
{
    enum { LENGTH = 3 << 20 }; /* of three segments, of which any may be the last that is posted */
    static uint8_t theirs[LENGTH], ours[LENGTH];

    (void)state;
    for (unsigned failing = 1; failing <= 3; failing++) {
        regx_mr_t target, source;

        memset(theirs, 0, sizeof(theirs));
        memset(ours, 1, sizeof(ours));
        sides_open(false);
        side_reg(&two, theirs, sizeof(theirs), REGX_ACCESS_REMOTE_WRITE, &target);
        side_reg(&one, ours, sizeof(ours), REGX_ACCESS_LOCAL, &source);
        restart_exchange();
        verbs_of(&one)->segment_max = LENGTH / 3;
        regx_put_t put = {.local = ours,
                          .length = LENGTH,
                          .region = &source,
                          .target = REGX_TARGET_REGION,
                          .key = target.key,
                          .silent = true,
                          .done = side_put_done};
        fake.fault.late = true;
        fake.fault.at[0] = fake.fault.done + failing;
        assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_PENDING);
        while (theirs[(failing - 1) * (LENGTH / 3)] == 0) {
            sides_progress();
        }
        theirs[0] = 7;
        side_await(&one.broken, 1);
        assert_non_null(strstr(one.what, "one-sided operation"));
        assert_int_equal(done_failed, 1);
        assert_int_equal(theirs[0], 7);
        regx_transport_ops.dereg(one.transport, &source);
        regx_transport_ops.dereg(two.transport, &target);
        sides_close();
    }
}

/* Sent again is at most what was under way. */
static void what_is_sent_again_is_bounded(void **state)
{
    enum { CHUNK = 65536, CHUNKS = 20, WINDOW = 4 };
    uint8_t *from = malloc((size_t)CHUNK * CHUNKS), *to = calloc(CHUNKS, CHUNK);
    regx_put_t puts[CHUNKS];
    regx_mr_t source, target;

    (void)state;
    unit_fill(from, (size_t)CHUNK * CHUNKS, 1, 0);
    for (unsigned fault = 1; fault <= 100; fault += 9) {
        sides_open(false);
        sides_exchange(1, 100);
        verbs_of(&one)->segment_max = CHUNK / 4;
        side_reg(&one, from, (size_t)CHUNK * CHUNKS, REGX_ACCESS_LOCAL, &source);
        side_reg(&two, to, (size_t)CHUNK * CHUNKS, REGX_ACCESS_REMOTE_WRITE, &target);
        memset(to, 0, (size_t)CHUNK * CHUNKS);
        fake.fault.late = fault % 2 == 0;
        fake.fault.at[0] = fake.fault.done + fault;
        for (unsigned i = 0; i < CHUNKS; i++) {
            puts[i] = (regx_put_t){.local = from + (size_t)i * CHUNK,
                                   .length = CHUNK,
                                   .region = &source,
                                   .target = REGX_TARGET_REGION,
                                   .offset = (size_t)i * CHUNK,
                                   .key = target.key,
                                   .notice_length = 3,
                                   .done = side_put_done};
            while (i >= done_ok + WINDOW) {
                sides_progress();
            }
            assert_int_equal(regx_transport_ops.put(one.conn, &puts[i]), REGX_PENDING);
        }
        side_await(&done_ok, CHUNKS);
        side_await(&two.delivered, 1 + CHUNKS);
        assert_memory_equal(from, to, (size_t)CHUNK * CHUNKS);
        restart_exchange();
        assert_int_equal(restart_count(&one, REGX_COUNTER_restarts), 1);
        assert_in_range(restart_count(&one, REGX_COUNTER_bytes_resent), 0, WINDOW * (CHUNK + 3));
        assert_int_equal(restart_count(&two, REGX_COUNTER_bytes_resent), 0);
        regx_transport_ops.dereg(one.transport, &source);
        regx_transport_ops.dereg(two.transport, &target);
        sides_close();
    }
    free(from);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_atomic_operation_is_never_repeated, restart_setup),
        cmocka_unit_test_setup(a_silent_put_is_never_repeated, restart_setup),
        cmocka_unit_test_setup(what_is_sent_again_is_bounded, restart_setup),
    };

    return cmocka_run_group_tests_name("verbs restart, again", tests, NULL, NULL);
}

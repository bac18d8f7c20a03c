/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Atomic operations on a peer's memory: each is one request, done once, and answers what was there.
 */
#include "sides.h"

#include <stdlib.h>
#include <unistd.h>

enum { NUMBERS = 4, MANY = 1000 };

typedef struct stage {
    uint64_t *theirs;
    regx_mr_t remote;
    regx_ep_t *ep; /* of `one` to `two` */
} stage_t;

static stage_t stage;

/* Connected, with memory at `two` that is registered for that access. */
static void open_for(unsigned access)
{
    alarm(UNIT_PATIENCE); /* a hang is a failure, not the end of all tests */
    sides_open(false);
    if (!verbs_of(&one)->can.fetches) {
        sides_close();
        print_message("not tried: the device has no atomic operations\n");
        skip();
    }
    stage.theirs = calloc(NUMBERS, sizeof(*stage.theirs));
    side_reg(&two, stage.theirs, NUMBERS * sizeof(*stage.theirs), access, &stage.remote);
    side_send(&one, 1, 1, 1);
    side_await(&two.delivered, 1);
    stage.ep = regx_ep_find(verbs_of(&one), TWO);
}

static void close_all(void)
{
    regx_transport_ops.dereg(two.transport, &stage.remote);
    sides_close();
    free(stage.theirs);
}

static regx_fetch_t new_add(unsigned number, uint64_t operand)
{
    return (regx_fetch_t){.offset = number * sizeof(uint64_t),
                          .key = stage.remote.key,
                          .operand = operand,
                          .done = side_fetch_done};
}

static regx_fetch_t new_swap(unsigned number, uint64_t compare, uint64_t value)
{
    return (regx_fetch_t){.swaps = true,
                          .offset = number * sizeof(uint64_t),
                          .key = stage.remote.key,
                          .operand = value,
                          .compare = compare,
                          .done = side_fetch_done};
}

/* One request; what was there before. */
static uint64_t fetched(regx_fetch_t fetch)
{
    const uint64_t posted = stage.ep->sq.posted;
    const unsigned before = done_ok;

    fetch.result = UINT64_MAX / 3;
    assert_int_equal(regx_transport_ops.fetch(one.conn, &fetch), REGX_PENDING);
    assert_int_equal(stage.ep->sq.posted - posted, 1);
    side_await(&done_ok, before + 1);
    return fetch.result;
}

static void they_answer_what_was_there_before(void **state)
{
    (void)state;
    open_for(REGX_ACCESS_REMOTE_ATOMIC);
    stage.theirs[0] = 11;
    stage.theirs[1] = 40;
    stage.theirs[2] = 12;
    assert_int_equal(fetched(new_add(1, 2)), 40);
    assert_int_equal(stage.theirs[1], 42);
    assert_int_equal(fetched(new_add(1, (uint64_t)-43)), 42);
    assert_true(stage.theirs[1] == UINT64_MAX);
    assert_true(fetched(new_swap(1, 5, 6)) == UINT64_MAX); /* it is not 5 */
    assert_true(stage.theirs[1] == UINT64_MAX);
    assert_true(fetched(new_swap(1, UINT64_MAX, UINT64_C(1) << 40)) == UINT64_MAX);
    assert_true(stage.theirs[1] == UINT64_C(1) << 40);
    assert_int_equal(stage.theirs[0], 11);
    assert_int_equal(stage.theirs[2], 12);
    assert_int_equal(two.delivered, 1); /* that which connected: the peer does not notice */
    close_all();
}

/* More than there are slots, requests, or operations that the peer answers at once. */
static void many_are_done_each_once(void **state)
{
    static regx_fetch_t fetches[MANY];
    static bool seen[MANY];
    unsigned accepted = 0;

    (void)state;
    open_for(REGX_ACCESS_REMOTE_ATOMIC);
    while (done_ok < MANY) {
        while (accepted < MANY) {
            fetches[accepted] = new_add(0, 1);
            if (regx_transport_ops.fetch(one.conn, &fetches[accepted]) != REGX_PENDING) {
                break;
            }
            accepted++;
        }
        sides_progress();
    }
    assert_int_equal(stage.theirs[0], MANY);
    for (unsigned i = 0; i < MANY; i++) {
        assert_in_range(fetches[i].result, 0, MANY - 1);
        assert_false(seen[fetches[i].result]);
        seen[fetches[i].result] = true;
    }
    memset(seen, 0, sizeof(seen));
    close_all();
}

static void what_leads_outside_or_is_not_aligned_is_invalid(void **state)
{
    static const uint64_t offsets[] = {1, 4, 7, (NUMBERS - 1) * 8 + 1, NUMBERS * 8, UINT64_MAX - 7};

    (void)state;
    open_for(REGX_ACCESS_REMOTE_ATOMIC);
    for (unsigned i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        regx_fetch_t fetch = new_add(0, 1);

        fetch.offset = offsets[i];
        assert_int_equal(regx_transport_ops.fetch(one.conn, &fetch), REGX_INVALID);
    }
    assert_int_equal(stage.theirs[0] + stage.theirs[NUMBERS - 1], 0);
    assert_int_equal(fetched(new_add(NUMBERS - 1, 3)), 0); /* the last one that is inside */
    assert_int_equal(stage.theirs[NUMBERS - 1], 3);
    close_all();
}

/* The connection breaks, and nothing is changed. */
static void memory_that_may_only_be_read_or_written_is_not_changed(void **state)
{
    (void)state;
    for (int swaps = 0; swaps < 2; swaps++) {
        open_for(REGX_ACCESS_REMOTE_WRITE | REGX_ACCESS_REMOTE_READ);
        regx_fetch_t fetch = swaps ? new_swap(0, 0, 5) : new_add(0, 5);
        assert_int_equal(regx_transport_ops.fetch(one.conn, &fetch), REGX_PENDING);
        side_await(&one.broken, 1);
        sides_settle();
        assert_int_equal(done_failed, 1);
        assert_non_null(strstr(one.what, "atomic operation: "));
        assert_int_equal(stage.theirs[0], 0);
        close_all();
    }
}

static void disconnecting_ends_them(void **state)
{
    enum { SOME = 10 };
    regx_fetch_t fetches[SOME];

    (void)state;
    open_for(REGX_ACCESS_REMOTE_ATOMIC);
    for (int i = 0; i < SOME; i++) {
        fetches[i] = new_add(0, 1);
        assert_int_equal(regx_transport_ops.fetch(one.conn, &fetches[i]), REGX_PENDING);
    }
    regx_transport_ops.disconnect(one.conn);
    one.conn = NULL;
    assert_int_equal(done_ok + done_failed, SOME);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_answer_what_was_there_before),
        cmocka_unit_test(many_are_done_each_once),
        cmocka_unit_test(what_leads_outside_or_is_not_aligned_is_invalid),
        cmocka_unit_test(memory_that_may_only_be_read_or_written_is_not_changed),
        cmocka_unit_test(disconnecting_ends_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

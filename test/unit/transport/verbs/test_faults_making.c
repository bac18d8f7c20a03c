/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Connecting, on a device that has no queue pair to give: now, for long, or ever.
 */
#include "faulty.h"

#include <errno.h>
#include <unistd.h>

/* What registered buffers have pinned may leave nothing for a queue pair, for a while; at either
 * end. */
static void a_queue_pair_waits_for_the_devices_memory(void **state)
{
    const side_t *const sides[] = {&one, &two};

    (void)state;
    for (int end = 0; end < 2; end++) {
        open_faulty();
        faults.making = ENOMEM;
        faults.makes = verbs_of(sides[end])->pd;
        ask(&one);
        alarm(UNIT_PATIENCE);
        for (uint64_t before = faults.refused; faults.refused < before + 3;) {
            sides_progress();
            if (end == 0) {
                ask(&one);
            }
        }
        assert_int_equal(one.broken + two.broken, 0);
        assert_int_equal(verbs_of(sides[end])->can.inline_max, REGX_VERBS_INLINE);
        faults.making = 0;
        side_send(&one, 1, 2, 10);
        side_await(&two.delivered, 1);
        alarm(0);
        close_faulty();
    }
}

static void a_device_that_never_has_memory_is_given_up(void **state)
{
    (void)state;
    open_faulty();
    faults.making = ENOMEM;
    faults.makes = verbs_of(&one)->pd;
    ask(&one);
    verbs_of(&one)->table.starved_since -= 60 * INT64_C(1000000000);
    while (regx_now_ns() < verbs_of(&one)->table.starved_until) {
    }
    ask(&one);
    await_broken("making a queue pair: Cannot allocate memory");
    close_faulty();
}

/* Once in a while is not for ever. */
static void memory_that_lacks_now_and_then_is_waited_for(void **state)
{
    (void)state;
    open_faulty();
    faults.making = ENOMEM;
    faults.makes = verbs_of(&one)->pd;
    ask(&one);
    verbs_of(&one)->table.starved_since -= 70 * INT64_C(1000000000);
    verbs_of(&one)->table.starved_until -= 70 * INT64_C(1000000000);
    ask(&one);
    faults.making = 0;
    side_send(&one, 1, 2, 10);
    side_await(&two.delivered, 1);
    close_faulty();
}

/* `two` asks by a queue pair of that epoch, which is no more than a number. */
static void hear_request(uint64_t epoch)
{
    const regx_cm_message_t message = {.version = REGX_VERBS_VERSION,
                                       .kind = REGX_CM_REQUEST,
                                       .qpn = 0x1234,
                                       .epoch = epoch,
                                       .from = TWO,
                                       .to = ONE,
                                       .address = verbs_of(&two)->address};
    const regx_cm_source_t source = {.qpn = message.address.qpn};
    uint8_t bytes[REGX_CM_MESSAGE_SIZE];

    memcpy(bytes, &message, sizeof(bytes));
    regx_cm_receive(verbs_of(&one), bytes, sizeof(bytes), &source);
}

/* The peer has another queue pair than the one that ours is connected to, and there is none for it
 * here, now or at all. */
static void a_peer_that_asks_anew_waits_for_a_queue_pair_or_is_lost(void **state)
{
    (void)state;
    open_faulty();
    hear_request(1);
    ask(&one);
    faults.making = ENOMEM;
    faults.makes = verbs_of(&one)->pd;
    hear_request(2);
    assert_int_equal(faults.refused, 1);
    for (int i = 0; i < 10; i++) {
        verbs_of(&one)->cm.ask_next = 0;
        sides_progress();
    }
    assert_int_equal(one.broken, 0);
    faults.making = 0;
    side_send(&one, 1, 2, 10);
    side_await(&two.delivered, 1);
    close_faulty();

    open_faulty();
    hear_request(1);
    ask(&one);
    side_asking(&one)->cm.ask_next = 0;
    verbs_of(&one)->cm.ask_next = 0;
    faults.making = EPERM;
    faults.makes = verbs_of(&one)->pd;
    hear_request(2);
    regx_cm_ask_due(verbs_of(&one)); /* would ask by a queue pair that is no more */
    await_broken("making a queue pair: Operation not permitted");
    close_faulty();
}

/* Another error does not pass. */
static void another_error_of_making_a_queue_pair_is_final(void **state)
{
    (void)state;
    open_faulty();
    faults.making = EPERM;
    faults.makes = verbs_of(&one)->pd;
    ask(&one);
    await_broken("making a queue pair: Operation not permitted");
    assert_int_equal(try_to_send(&one), REGX_UNREACHABLE);
    close_faulty();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_pair_waits_for_the_devices_memory),
        cmocka_unit_test(a_device_that_never_has_memory_is_given_up),
        cmocka_unit_test(memory_that_lacks_now_and_then_is_waited_for),
        cmocka_unit_test(a_peer_that_asks_anew_waits_for_a_queue_pair_or_is_lost),
        cmocka_unit_test(another_error_of_making_a_queue_pair_is_final),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

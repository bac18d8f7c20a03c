/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Who leaves a connection, before it was made and after, and who comes back.
 */
#include "ends.h"

static void who_left_can_come_back(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    exchange(&low, &high, 10);
    for (unsigned round = 2; round < 5; round++) {
        disconnect(&low);
        disconnect(&high);
        connect_to(&low, &high);
        connect_to(&high, &low);
        exchange(&low, &high, 10 * round);
    }
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

/* One leaves; the other, which does not, goes on sending to it. */
static void who_left_still_receives_what_is_sent_to_it(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    exchange(&low, &high, 10);
    disconnect(&low);
    settle(&low, &high);
    while (low.received < 50) {
        send_one(&high);
        progress(&low, &high);
    }
    close_after(&low, &high);
}

/* It disconnects before it has read that it was let in, and what was sent to it by then. */
static void who_gives_up_still_receives_what_was_sent_to_it(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    ask(&low);
    send_when_let_in(&high, 10);
    disconnect(&low);
    while (low.received < 10) {
        progress(&low, &high);
    }
    close_after(&low, &high);
}

/* Nothing was sent by the link, but it is there. */
static void who_leaves_before_it_has_sent_closes_its_link(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    ask(&low);
    while (link_of(&low)->state != REGX_TCP_LINK_OPEN) {
        progress(&low, &high);
    }
    close_both(&low, &high);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_left_can_come_back),
        cmocka_unit_test(who_left_still_receives_what_is_sent_to_it),
        cmocka_unit_test(who_gives_up_still_receives_what_was_sent_to_it),
        cmocka_unit_test(who_leaves_before_it_has_sent_closes_its_link),
    };

    return cmocka_run_group_tests_name("leave", tests, NULL, NULL);
}

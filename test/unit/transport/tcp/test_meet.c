/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How two processes come to one socket for both directions if both open one, and what becomes of
 * the other.
 */
#include "ends.h"

#include <poll.h>

static void of_two_opened_at_once_one_is_kept(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    assert_false(send_one(&low));
    assert_false(send_one(&high));
    exchange(&low, &high, 100);
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

/* The one that goes first gives up before it is in; the other, which was held, gets in. */
static void one_that_is_held_gets_in_if_the_other_comes_to_nothing(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    hold(&low, &high);
    disconnect(&low);
    while (high.sent == 0 || low.received == 0) {
        if (high.sent == 0) {
            send_one(&high);
        }
        progress(&low, &high);
    }
    close_after(&low, &high);
}

/* The higher one was let in by the lower one's link, left it and comes back, before the lower one
 * has read anything. */
static void one_that_is_held_gets_in_when_the_other_has(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    ask(&low);
    send_when_let_in(&high, 10);
    disconnect(&high);
    connect_to(&high, &low);
    ask(&high);
    regx_tcp_link_t *held = accept_one(&low);
    regx_tcp_link_read(held);
    assert_int_equal(held->state, REGX_TCP_LINK_HELD);
    exchange(&low, &high, 100);
    close_both(&low, &high);
}

/* The lower one gave up its link and lets the higher one's in. The higher one reads first what the
 * former said, and does without the other, by which something was sent to it already. */
static void open_crosswise(end_t *low, end_t *high)
{
    open_both(low, high);
    ask(low);
    disconnect(low);
    connect_to(low, high);
    ask(high);
    send_when_let_in(low, 10);
    regx_tcp_link_t *given_up = link_of(high);
    regx_tcp_link_read(accept_one(high));
    assert_ptr_not_equal(link_of(high), given_up);
}

static void what_was_sent_by_a_link_that_is_given_up_arrives(void **state)
{
    end_t low, high;

    (void)state;
    open_crosswise(&low, &high);
    exchange(&low, &high, 100);
    close_both(&low, &high);
}

static regx_tcp_link_t *other_link_of(const end_t *end)
{
    regx_tcp_link_t *link = end->tcp->links;

    return link == link_of(end) ? link->next : link;
}

/* The lower one speaks by one link and hears by the other, as if it died with its first link. */
static void a_peer_dies_with_the_link_by_which_it_speaks(void **state)
{
    end_t low, high;

    (void)state;
    open_crosswise(&low, &high);
    exchange(&low, &high, 100);
    check_links(&low, &high, 2);
    for (unsigned left = 2; left-- > 0;) {
        regx_tcp_link_end(left == 1 ? link_of(&low) : low.tcp->links);
        regx_tcp_sweep(low.tcp);
        while (high.tcp->link_count > left) {
            regx_tcp_progress(high.transport);
        }
        assert_int_equal(high.broken, 1);
    }
    disconnect(&low);
    disconnect(&high);
    close_end(&low);
    close_end(&high);
}

/* The higher one reads the end of the other link before it reads the goodbye. */
static void a_peer_that_leaves_has_not_died(void **state)
{
    end_t low, high;

    (void)state;
    open_crosswise(&low, &high);
    exchange(&low, &high, 100);
    check_links(&low, &high, 2);
    regx_tcp_link_t *other = other_link_of(&low);
    disconnect(&low);
    regx_tcp_link_end(other);
    regx_tcp_sweep(low.tcp);
    wait_for(link_of(&high), POLLIN);
    regx_tcp_link_read(link_of(&high));
    assert_false(regx_tcp_reachable(high.conn));
    regx_tcp_clean_up(high.tcp);
    check_links(&low, &high, 0);
    disconnect(&high);
    close_end(&low);
    close_end(&high);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_two_opened_at_once_one_is_kept),
        cmocka_unit_test(one_that_is_held_gets_in_if_the_other_comes_to_nothing),
        cmocka_unit_test(one_that_is_held_gets_in_when_the_other_has),
        cmocka_unit_test(what_was_sent_by_a_link_that_is_given_up_arrives),
        cmocka_unit_test(a_peer_dies_with_the_link_by_which_it_speaks),
        cmocka_unit_test(a_peer_that_leaves_has_not_died),
    };

    return cmocka_run_group_tests_name("meet", tests, NULL, NULL);
}

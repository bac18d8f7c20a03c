/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Processes that meet while there is no descriptor left, or no memory in the kernel: they wait.
 */
#include "shortage.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

/* Until there is one. */
static void a_peer_that_finds_no_descriptor_waits(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    assert_false(send_one(&low)); /* its socket is there */
    allow_no_descriptor();
    while (high.counters.fallbacks[0].count == 0) {
        progress(&low, &high);
    }
    settle(&low, &high);
    assert_int_equal(high.counters.fallbacks[0].count, 1);
    assert_string_equal(high.counters.fallbacks[0].reason,
                        "tcp: no descriptor is left for a peer that connects");
    allow_descriptors();
    exchange(&low, &high, 100);
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

static void note_done(regx_put_t *put, regx_status_t status)
{
    assert_int_equal(status, REGX_OK);
    *(bool *)put->context = true;
}

static void who_finds_no_descriptor_to_send_by_waits(void **state)
{
    static const uint8_t data[8]; /* the notice is 0, as that of the first frame */
    bool done = false;
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    allow_no_descriptor();
    assert_false(send_one(&low));
    regx_put_t put = {.local = data,
                      .length = sizeof(data),
                      .target = REGX_TARGET_POOL,
                      .tag = TAG,
                      .notice_length = sizeof(low.sent),
                      .done = note_done,
                      .context = &done};
    assert_int_equal(regx_tcp_put(low.conn, &put), REGX_PENDING);
    settle(&low, &high);
    assert_int_equal(low.counters.fallbacks[0].count, 1);
    assert_string_equal(low.counters.fallbacks[0].reason,
                        "tcp: no descriptor is left to connect to a peer");
    assert_false(done);
    allow_descriptors();
    while (!done) {
        progress(&low, &high);
    }
    low.sent++;
    exchange(&low, &high, 100);
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

/* The higher one used its last descriptor for its own link, which the lower one holds until the
 * higher one accepts the lower one's. */
static void of_two_opened_at_once_one_suffices(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    hold(&low, &high);
    allow_no_descriptor();
    exchange(&low, &high, 100);
    assert_int_equal(high.tcp->link_count, 1);
    allow_descriptors();
    exchange(&low, &high, 200);
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

/* What the lower one held it has thrown away. */
static void who_asks_again_in_vain_is_not_lost(void **state)
{
    const struct linger at_once = {.l_onoff = 1};
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    hold(&low, &high);
    regx_tcp_link_t *held = low.tcp->links;
    assert_int_equal(setsockopt(held->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
    regx_tcp_link_end(held);
    regx_tcp_sweep(low.tcp);
    wait_for(link_of(&high), POLLIN);
    allow_no_descriptor();
    assert_false(regx_tcp_accept(high.tcp));
    assert_true(regx_tcp_reachable(high.conn));
    allow_descriptors();
    exchange(&low, &high, 100);
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

/* Each has the last one for its own link, which the other cannot accept. */
static void two_without_descriptors_meet_when_there_are_some(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    assert_false(send_one(&low));
    assert_false(send_one(&high));
    allow_no_descriptor();
    while (low.counters.fallbacks[0].count == 0 || high.counters.fallbacks[0].count == 0) {
        progress(&low, &high);
    }
    settle(&low, &high);
    assert_int_equal(low.received + high.received, 0);
    allow_descriptors();
    exchange(&low, &high, 100);
    close_both(&low, &high);
}

/* ---- without memory in the kernel ---- */

static void a_peer_for_whose_link_there_is_no_memory_waits(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    atomic_store(&high.tcp->super.disturbs, true);
    starve(&high, ENOSPC);
    for (int times = 0; times < 20; times++) {
        assert_false(send_one(&low));
        settle(&low, &high);
    }
    assert_int_equal(conn_of(&low)->reopened, 0);
    assert_int_equal(high.counters.fallbacks[0].count, 1);
    assert_string_equal(high.counters.fallbacks[0].reason,
                        "tcp: no epoll watch is left for a peer that connects");
    assert_true(high.tcp->newcomer >= 0);
    for (int looks = 0; looks < 100; looks++) {
        regx_tcp_progress(high.transport);
    }
    assert_false(atomic_load(&high.tcp->super.watched)); /* nothing would tell of it */
    feed();
    exchange(&low, &high, 100);
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

static void who_closes_leaves_no_newcomer_open(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    starve(&high, ENOSPC);
    assert_false(send_one(&low));
    while (high.tcp->newcomer < 0) {
        progress(&low, &high);
    }
    const int newcomer = high.tcp->newcomer;
    disconnect(&low);
    disconnect(&high);
    close_end(&high);
    assert_int_equal(fcntl(newcomer, F_GETFD), -1);
    close_end(&low);
}

/* And the peer hears nothing of it. */
static void who_has_no_memory_for_a_link_to_send_by_waits(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    struct pollfd listener = {.fd = high.tcp->listener, .events = POLLIN};
    starve(&low, ENOMEM);
    for (int times = 0; times < 20; times++) {
        assert_false(send_one(&low));
        settle(&low, &low);
    }
    assert_int_equal(poll(&listener, 1, 0), 0);
    assert_int_equal(low.counters.fallbacks[0].count, 1);
    assert_string_equal(low.counters.fallbacks[0].reason,
                        "tcp: no memory is left to connect to a peer");
    feed();
    allow_no_descriptor();
    assert_false(send_one(&low));
    assert_false(send_one(&low));
    assert_int_equal(low.counters.fallbacks[1].count, 1);
    assert_string_equal(low.counters.fallbacks[1].reason,
                        "tcp: no descriptor is left to connect to a peer");
    allow_descriptors();
    exchange(&low, &high, 100);
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_peer_that_finds_no_descriptor_waits, keep_limit,
                                        restore_limit),
        cmocka_unit_test_setup_teardown(who_finds_no_descriptor_to_send_by_waits, keep_limit,
                                        restore_limit),
        cmocka_unit_test_setup_teardown(of_two_opened_at_once_one_suffices, keep_limit,
                                        restore_limit),
        cmocka_unit_test_setup_teardown(who_asks_again_in_vain_is_not_lost, keep_limit,
                                        restore_limit),
        cmocka_unit_test_setup_teardown(two_without_descriptors_meet_when_there_are_some,
                                        keep_limit, restore_limit),
        cmocka_unit_test_setup_teardown(a_peer_for_whose_link_there_is_no_memory_waits, keep_limit,
                                        restore_limit),
        cmocka_unit_test_setup_teardown(who_closes_leaves_no_newcomer_open, keep_limit,
                                        restore_limit),
        cmocka_unit_test_setup_teardown(who_has_no_memory_for_a_link_to_send_by_waits, keep_limit,
                                        restore_limit),
    };

    return cmocka_run_group_tests_name("shortage", tests, NULL, NULL);
}

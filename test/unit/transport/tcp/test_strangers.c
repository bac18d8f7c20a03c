/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whom tcp lets in, whom it puts out, and what becomes of those who were put out.
 */
#include "ends.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

static void strangers_are_not_let_in(void **state)
{
    end_t here;

    (void)state;
    open_end(&here, LOW);
    for (int wrong = 0; wrong < 3; wrong++) {
        const uint64_t token = here.tcp->token ^ (wrong == 0);
        const regx_tcp_frame_t frame = {.kind = wrong == 1 ? REGX_TCP_FRAME : REGX_TCP_CONNECT,
                                        .sender = HIGH,
                                        .length = wrong == 2 ? 7 : sizeof(token)};
        uint8_t message[REGX_TCP_HEAD_MAX + sizeof(token)], byte;
        const size_t head = regx_tcp_encode(&frame, message);
        const int fd = socket(AF_INET, SOCK_STREAM, 0);

        memcpy(message + head, &token, sizeof(token));
        assert_int_equal(connect(fd, (struct sockaddr *)&here.tcp->at, here.tcp->at_length), 0);
        assert_int_equal(write(fd, message, head + frame.length), head + frame.length);
        while (recv(fd, &byte, 1, MSG_DONTWAIT) < 0) {
            regx_tcp_progress(here.transport);
        }
        close(fd);
        assert_int_equal(here.counters.malformed, wrong + 1);
    }
    assert_int_equal(here.received, 0);
    assert_int_equal(here.tcp->link_count, 0);
    close_end(&here);
}

/* Those that have had the time to say something. */
static void too_many_silent_strangers_are_put_out(void **state)
{
    enum { KEPT = 64, ALL = KEPT + 6 };
    int fds[ALL];
    uint8_t byte;
    end_t here;

    (void)state;
    open_end(&here, LOW);
    for (unsigned n = 0; n < ALL; n++) {
        fds[n] = connect_raw(&here.tcp->at);
        assert_true(fds[n] >= 0);
        while (!regx_tcp_accept(here.tcp)) {
        }
        here.tcp->links->since_ns -= (REGX_TCP_SILENT_NS + 1) * (n < KEPT + 3);
    }
    regx_tcp_sweep(here.tcp);
    assert_int_equal(here.tcp->link_count, KEPT);
    for (unsigned n = 0; n < ALL; n++) {
        const ssize_t received = recv(fds[n], &byte, 1, n < ALL - KEPT ? 0 : MSG_DONTWAIT);

        assert_int_equal(received, n < ALL - KEPT ? 0 : -1);
        close(fds[n]);
    }
    close_end(&here);
}

/* Whether or not it has said connect by then: nothing was sent by the link. */
static void who_was_put_out_too_early_comes_again(void **state)
{
    end_t low, high;

    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        open_both(&low, &high);
        assert_false(send_one(&low));
        if (asked) {
            ask(&low);
        }
        while (!regx_tcp_accept(high.tcp)) {
        }
        regx_tcp_link_end(high.tcp->links);
        regx_tcp_sweep(high.tcp);
        wait_for(link_of(&low), POLLIN);
        exchange(&low, &high, 100);
        check_links(&low, &high, 1);
        close_both(&low, &high);
    }
}

/* Somebody else listens there by now, or the job is another. */
static void who_is_put_out_again_and_again_is_told(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    conn_of(&low)->token ^= 1;
    while (low.broken == 0) {
        if (regx_tcp_reachable(low.conn)) {
            assert_false(send_one(&low));
        } else {
            assert_int_equal(
                regx_tcp_send(low.conn, TAG, &low.sent, sizeof(low.sent), NULL, NULL, 0),
                REGX_UNREACHABLE);
        }
        progress(&low, &high);
    }
    assert_in_range(high.counters.malformed, 2, 20);
    settle(&low, &high);
    assert_int_equal(low.broken, 1);
    assert_int_equal(low.tcp->link_count + high.tcp->link_count, 0);
    disconnect(&low);
    disconnect(&high);
    close_end(&low);
    close_end(&high);
}

/* A program that computes for long between two calls of MPI is put out each time. */
static void who_was_put_out_for_its_silence_may_always_come_again(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    for (int times = 0; times < 20; times++) {
        assert_false(send_one(&low));
        link_of(&low)->since_ns -= REGX_TCP_SILENT_NS + 1;
        while (!regx_tcp_accept(high.tcp)) {
        }
        regx_tcp_link_end(high.tcp->links);
        regx_tcp_sweep(high.tcp);
        wait_for(link_of(&low), POLLIN);
        regx_tcp_progress(low.transport);
        assert_null(link_of(&low));
        assert_true(regx_tcp_reachable(low.conn));
    }
    exchange(&low, &high, 100);
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

/* ---- not accepted at all ---- */

/* The listener has room for one, and somebody is there already. The kernel drops what a second one
 * asks for, who gives up in time. */
static void who_is_not_accepted_in_time_comes_again(void **state)
{
    const int once = 1;
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    assert_int_equal(listen(high.tcp->listener, 0), 0);
    const int other = connect_raw(&high.tcp->at);
    assert_true(other >= 0);
    assert_false(send_one(&low));
    assert_int_equal(setsockopt(link_of(&low)->fd, IPPROTO_TCP, TCP_SYNCNT, &once, sizeof(once)),
                     0);
    wait_for(link_of(&low), POLLOUT);
    regx_tcp_progress(low.transport);
    assert_true(regx_tcp_reachable(low.conn));
    assert_null(link_of(&low));
    assert_int_equal(conn_of(&low)->reopened, 1);
    exchange(&low, &high, 100);
    close(other);
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

static void check_tried_again(int error)
{
    end_t low, high;
    unsigned times = 0;

    open_both(&low, &high);
    assert_int_equal(listen(high.tcp->listener, 0), 0);
    const int other = connect_raw(&high.tcp->at);
    assert_true(other >= 0);
    for (; regx_tcp_reachable(low.conn); times++) {
        assert_in_range(times, 0, 20);
        assert_false(send_one(&low));
        regx_tcp_link_fail(link_of(&low), error);
        regx_tcp_sweep(low.tcp);
    }
    assert_in_range(times, 5, 20);
    assert_int_equal(regx_tcp_send(low.conn, TAG, &low.sent, sizeof(low.sent), NULL, NULL, 0),
                     REGX_UNREACHABLE);
    settle(&low, &high);
    assert_int_equal(low.broken, 1);
    disconnect(&low);
    disconnect(&high);
    close(other);
    close_end(&low);
    close_end(&high);
}

static void who_is_never_accepted_is_told(void **state)
{
    (void)state;
    check_tried_again(ETIMEDOUT);
}

/* A crowded network has lost the questions for a host's hardware address. */
static void a_host_that_is_not_found_at_once_is_asked_for_again(void **state)
{
    (void)state;
    check_tried_again(EHOSTUNREACH);
}

/* The machine of a peer whose kernel had answered is gone: it was asked again and again, perhaps
 * while this process was elsewhere and had not yet said connect. */
static void who_was_accepted_and_hears_no_more_is_told(void **state)
{
    end_t low, high;

    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        open_both(&low, &high);
        if (asked) {
            ask(&low);
        } else {
            assert_false(send_one(&low));
            wait_for(link_of(&low), POLLOUT);
        }
        regx_tcp_link_fail(link_of(&low), ETIMEDOUT);
        assert_false(regx_tcp_reachable(low.conn));
        assert_int_equal(conn_of(&low)->reopened, 0);
        disconnect(&low);
        disconnect(&high);
        close_end(&low);
        close_end(&high);
    }
}

/* ---- silent peers ---- */

static void check_silent(end_t *low, end_t *high, unsigned count)
{
    settle(low, high);
    assert_int_equal(low->silent, count);
    assert_int_equal(high->silent, 0);
}

static void a_peer_that_does_not_answer_is_told_of_once(void **state)
{
    end_t low, high, *ends[] = {&low, &high};

    (void)state;
    open_both(&low, &high);
    low.tcp->no_answer.quiet_ns = high.tcp->no_answer.quiet_ns = 0;
    assert_false(send_one(&low));
    while (conn_of(&low)->unanswered < REGX_TCP_NO_ANSWER_LOOKS - 1) {
        regx_tcp_look_for_answers(low.tcp);
    }
    assert_int_equal(low.silent, 0);
    while (low.silent == 0) {
        regx_tcp_progress(low.transport);
    }
    for (int times = 0; times < 100; times++) {
        regx_tcp_look_for_answers(low.tcp);
    }
    assert_int_equal(low.silent, 1);
    exchange(&low, &high, 100);
    for (int end = 0; end < 2; end++) {
        conn_of(ends[end])->unanswered = REGX_TCP_NO_ANSWER_LOOKS - 1;
    }
    check_silent(&low, &high, 1);
    close_both(&low, &high);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_are_not_let_in),
        cmocka_unit_test(too_many_silent_strangers_are_put_out),
        cmocka_unit_test(who_was_put_out_too_early_comes_again),
        cmocka_unit_test(who_is_put_out_again_and_again_is_told),
        cmocka_unit_test(who_was_put_out_for_its_silence_may_always_come_again),
        cmocka_unit_test(who_is_not_accepted_in_time_comes_again),
        cmocka_unit_test(who_is_never_accepted_is_told),
        cmocka_unit_test(a_host_that_is_not_found_at_once_is_asked_for_again),
        cmocka_unit_test(who_was_accepted_and_hears_no_more_is_told),
        cmocka_unit_test(a_peer_that_does_not_answer_is_told_of_once),
    };

    return cmocka_run_group_tests_name("strangers", tests, NULL, NULL);
}

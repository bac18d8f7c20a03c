/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Who waits for what never comes is told so in the end, and nobody else is.
 */
#include "shortage.h"

#include <errno.h>
#include <unistd.h>

/* Neither can hear of the other that it is in the same state. */
static void two_that_wait_for_each_other_are_told_in_the_end(void **state)
{
    end_t low, high, *ends[] = {&low, &high};

    (void)state;
    open_both(&low, &high);
    low.tcp->no_answer.quiet_ns = high.tcp->no_answer.quiet_ns = 0;
    assert_false(send_one(&low));
    assert_false(send_one(&high));
    allow_no_descriptor();
    while (low.tcp->barred_looks == 0 || high.tcp->barred_looks == 0) {
        settle(&low, &high);
    }
    for (int end = 0; end < 2; end++) {
        assert_int_equal(ends[end]->broken, 0);
        link_of(ends[end])->looks = REGX_TCP_BARRED_LOOKS - 2;
        ends[end]->tcp->barred_looks = REGX_TCP_BARRED_LOOKS - 2;
    }
    while (low.broken == 0 || high.broken == 0) {
        settle(&low, &high);
    }
    for (int end = 0; end < 2; end++) {
        assert_non_null(strstr(ends[end]->what, "no descriptor is left (ulimit -n)"));
    }
    settle(&low, &high);
    assert_int_equal(low.broken + high.broken, 2);
    allow_descriptors();
    disconnect(&low);
    disconnect(&high);
    settle(&low, &high);
    close_end(&low);
    close_end(&high);
}

/* A peer that takes its time is waited for as long as others can be taken in. */
static void who_can_take_somebody_in_waits_on(void **state)
{
    enum { STRANGERS = 2 };
    int fds[STRANGERS];
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    low.tcp->no_answer.quiet_ns = 0;
    assert_false(send_one(&low));
    allow_no_descriptor();
    for (int n = 0; n < STRANGERS; n++) {
        allow_descriptors();
        fds[n] = connect_raw(&low.tcp->at);
        assert_true(fds[n] >= 0);
        allow_no_descriptor();
        while (low.tcp->barred_looks == 0) {
            settle(&low, &low);
        }
        link_of(&low)->looks = 2 * REGX_TCP_BARRED_LOOKS;
        low.tcp->barred_looks = REGX_TCP_BARRED_LOOKS - 2;
        allow_descriptors();
        while (low.tcp->barred_looks > 0) {
            regx_tcp_stir(low.tcp);
            regx_tcp_progress(low.transport);
        }
    }
    settle(&low, &low);
    assert_int_equal(low.broken, 0);
    exchange(&low, &high, 100);
    for (int n = 0; n < STRANGERS; n++) {
        close(fds[n]);
    }
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

/* One that finds that connection without an answer. */
static void look_for_answers(const regx_conn_t *super)
{
    const regx_tcp_conn_t *conn = REGX_CONTAINER_OF(super, regx_tcp_conn_t, super);
    const unsigned before = conn->unanswered;

    while (conn->unanswered == before) {
        regx_tcp_look_for_answers(regx_tcp_at(conn));
    }
}

/* That the peer could not be asked before, for there was no descriptor, says nothing of it. */
static void a_link_just_opened_is_waited_for(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    low.tcp->no_answer.quiet_ns = 0;
    const int stranger = connect_raw(&low.tcp->at);
    assert_true(stranger >= 0);
    take_all_descriptors();
    assert_false(send_one(&low));
    assert_null(link_of(&low));
    while (low.tcp->barred_looks == 0) {
        settle(&low, &low);
    }
    assert_null(link_of(&low));
    conn_of(&low)->unanswered = REGX_TCP_BARRED_LOOKS;
    low.tcp->barred_looks = REGX_TCP_BARRED_LOOKS;
    give_one_back();
    assert_false(send_one(&low));
    assert_non_null(link_of(&low));
    look_for_answers(low.conn);
    assert_true(regx_tcp_reachable(low.conn));
    restore_limit(state);
    exchange(&low, &high, 100);
    close(stranger);
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

/* With what one leaves somebody may be taken in. */
static void one_is_given_up_at_a_time(void **state)
{
    enum { CONNS = 3 };

    (void)state;
    for (int idle = 0; idle < CONNS; idle++) { /* by its link nothing was asked */
        regx_conn_t *conns[CONNS];
        end_t low, high;

        open_both(&low, &high);
        low.tcp->no_answer.quiet_ns = 0;
        disconnect(&low);
        for (int n = 0; n < CONNS; n++) {
            connect_to(&low, &high);
            conns[n] = low.conn;
            if (n == idle) {
                assert_false(send_one(&low));
            } else {
                ask(&low);
            }
            link_of(&low)->looks = REGX_TCP_BARRED_LOOKS - 1;
        }
        low.tcp->barred = true;
        low.tcp->barred_looks = REGX_TCP_BARRED_LOOKS - 1;
        look_for_answers(conns[idle]);
        for (int n = 0; n < CONNS; n++) {
            assert_int_equal(regx_tcp_reachable(conns[n]), n != idle);
        }
        low.tcp->barred_looks = 0; /* somebody was taken in */
        look_for_answers(conns[(idle + 1) % CONNS]);
        settle(&low, &low);
        assert_int_equal(low.broken, 1);
        for (int n = 0; n < CONNS; n++) {
            regx_tcp_disconnect(conns[n]);
        }
        disconnect(&high);
        settle(&low, &high);
        close_end(&low);
        close_end(&high);
    }
}

static void the_line_names_what_is_short(void **state)
{
    static const struct {
        int error;
        const char *text;
    } cases[] = {{EMFILE, "no descriptor is left (ulimit -n)"},
                 {ENFILE, "the system has no open file left (fs.file-max)"},
                 {ENOMEM, "no memory is left"},
                 {ENOBUFS, "no memory is left"},
                 {ENOSPC, "no epoll watch is left (fs.epoll.max_user_watches)"}};

    (void)state;
    for (size_t n = 0; n < sizeof(cases) / sizeof(cases[0]); n++) {
        end_t low, high;

        open_both(&low, &high);
        low.tcp->no_answer.quiet_ns = 0;
        assert_false(send_one(&low));
        const int stranger = connect_raw(&low.tcp->at);
        assert_true(stranger >= 0);
        starve(&low, cases[n].error);
        while (low.tcp->barred_looks == 0) {
            settle(&low, &low);
        }
        assert_int_equal(low.broken, 0);
        link_of(&low)->looks = low.tcp->barred_looks = REGX_TCP_BARRED_LOOKS;
        while (low.broken == 0) {
            settle(&low, &low);
        }
        assert_non_null(strstr(low.what, cases[n].text));
        feed();
        close(stranger);
        disconnect(&low);
        disconnect(&high);
        settle(&low, &high);
        close_end(&low);
        close_end(&high);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_that_wait_for_each_other_are_told_in_the_end,
                                        keep_limit, restore_limit),
        cmocka_unit_test_setup_teardown(who_can_take_somebody_in_waits_on, keep_limit,
                                        restore_limit),
        cmocka_unit_test_setup_teardown(a_link_just_opened_is_waited_for, keep_limit,
                                        restore_limit),
        cmocka_unit_test_setup_teardown(one_is_given_up_at_a_time, keep_limit, restore_limit),
        cmocka_unit_test_setup_teardown(the_line_names_what_is_short, keep_limit, restore_limit),
    };

    return cmocka_run_group_tests_name("shortage_ends", tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Processes that meet while there is no descriptor left, or no memory in the kernel.
 */
#include "ends.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

enum { DESCRIPTORS = 512 }; /* more than a test has open */

static struct rlimit limit;
static int fillers[DESCRIPTORS];
static unsigned taken;   /* of them */
static int starved = -1; /* there can be no more descriptors in this epoll */
static int starved_of;   /* the errno that says so */

int __real_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);

int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    if (epoll == starved && operation == EPOLL_CTL_ADD) {
        errno = starved_of;
        return -1;
    }
    return __real_epoll_ctl(epoll, operation, fd, event);
}

static int keep_limit(void **state)
{
    (void)state;
    return getrlimit(RLIMIT_NOFILE, &limit);
}

static int restore_limit(void **state)
{
    (void)state;
    for (; taken > 0; taken--) {
        close(fillers[taken - 1]);
    }
    starved = -1;
    return setrlimit(RLIMIT_NOFILE, &limit);
}

/* Until one is closed. */
static void take_all_descriptors(void)
{
    const struct rlimit few = {.rlim_cur = DESCRIPTORS, .rlim_max = limit.rlim_max};
    int fd;

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    while ((fd = dup(STDERR_FILENO)) >= 0) {
        fillers[taken++] = fd;
    }
    assert_int_equal(errno, EMFILE);
}

/* Nor is one that is closed to be had again. */
static void allow_no_descriptor(void)
{
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
}

static void starve(const end_t *end, int error)
{
    starved = end->tcp->epoll;
    starved_of = error;
}

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
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
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
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
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
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
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
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
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
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    exchange(&low, &high, 100);
    close_both(&low, &high);
}

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
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
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
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        fds[n] = connect_raw(&low.tcp->at);
        assert_true(fds[n] >= 0);
        allow_no_descriptor();
        while (low.tcp->barred_looks == 0) {
            settle(&low, &low);
        }
        link_of(&low)->looks = 2 * REGX_TCP_BARRED_LOOKS;
        low.tcp->barred_looks = REGX_TCP_BARRED_LOOKS - 2;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
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
    close(fillers[--taken]);
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
        starved = -1;
        close(stranger);
        disconnect(&low);
        disconnect(&high);
        settle(&low, &high);
        close_end(&low);
        close_end(&high);
    }
}

/* ---- strangers that hold the last ones ---- */

static int add_stranger(const end_t *end)
{
    const int fd = connect_raw(&end->tcp->at);

    assert_true(fd >= 0);
    while (!regx_tcp_accept(end->tcp)) {
    }
    return fd;
}

/* They had all the time there is to say something. */
static void age_strangers(const end_t *end)
{
    for (regx_tcp_link_t *link = end->tcp->links; link != NULL; link = link->next) {
        link->since_ns -= (REGX_TCP_SILENT_NS + 1) * (link->state == REGX_TCP_LINK_STRANGER);
    }
}

static bool was_put_out(int fd)
{
    uint8_t byte;

    return recv(fd, &byte, sizeof(byte), MSG_DONTWAIT) == 0;
}

/* The lower one alone wants to send, and does. */
static void send_first(end_t *low, end_t *high)
{
    while (high->received == 0) {
        if (low->sent == 0) {
            send_one(low);
        }
        progress(low, high);
    }
}

static void the_oldest_silent_stranger_makes_room_for_a_peer(void **state)
{
    enum { STRANGERS = 3 };
    int fds[STRANGERS];
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    for (int n = 0; n < STRANGERS; n++) {
        fds[n] = add_stranger(&high);
    }
    assert_false(send_one(&low)); /* its socket is there */
    take_all_descriptors();
    while (high.counters.fallbacks[0].count == 0) {
        progress(&low, &high);
    }
    settle(&low, &high);
    assert_false(was_put_out(fds[0])); /* it may yet speak */
    age_strangers(&high);
    send_first(&low, &high);
    exchange(&low, &high, 100);
    settle(&low, &high);
    for (int n = 0; n < STRANGERS; n++) {
        assert_int_equal(was_put_out(fds[n]), n == 0);
        close(fds[n]);
    }
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

/* It said connect while the process was outside MPI. */
static void who_has_spoken_is_not_put_out_unheard(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    ask(&low);
    regx_tcp_link_t *spoken = accept_one(&high);
    const int other = connect_raw(&high.tcp->at);
    assert_true(other >= 0);
    take_all_descriptors();
    age_strangers(&high);
    assert_false(regx_tcp_accept(high.tcp));
    assert_int_equal(high.counters.fallbacks[0].count, 1);
    assert_int_equal(spoken->state, REGX_TCP_LINK_STRANGER);
    exchange(&low, &high, 100);
    close(other);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

static void a_silent_stranger_makes_room_for_who_wants_to_send(void **state)
{
    int at_low, at_high;
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    at_low = add_stranger(&low);
    at_high = add_stranger(&high);
    take_all_descriptors();
    age_strangers(&high);
    assert_false(send_one(&low));
    settle(&low, &high);
    assert_false(was_put_out(at_low));
    age_strangers(&low);
    send_first(&low, &high);
    exchange(&low, &high, 100);
    assert_true(was_put_out(at_low) && was_put_out(at_high));
    check_links(&low, &high, 1);
    close(at_low);
    close(at_high);
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
    starved = -1;
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
    starved = -1;
    allow_no_descriptor();
    assert_false(send_one(&low));
    assert_false(send_one(&low));
    assert_int_equal(low.counters.fallbacks[1].count, 1);
    assert_string_equal(low.counters.fallbacks[1].reason,
                        "tcp: no descriptor is left to connect to a peer");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
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
        cmocka_unit_test_setup_teardown(two_that_wait_for_each_other_are_told_in_the_end,
                                        keep_limit, restore_limit),
        cmocka_unit_test_setup_teardown(who_can_take_somebody_in_waits_on, keep_limit,
                                        restore_limit),
        cmocka_unit_test_setup_teardown(a_link_just_opened_is_waited_for, keep_limit,
                                        restore_limit),
        cmocka_unit_test_setup_teardown(one_is_given_up_at_a_time, keep_limit, restore_limit),
        cmocka_unit_test_setup_teardown(the_line_names_what_is_short, keep_limit, restore_limit),
        cmocka_unit_test_setup_teardown(the_oldest_silent_stranger_makes_room_for_a_peer,
                                        keep_limit, restore_limit),
        cmocka_unit_test_setup_teardown(who_has_spoken_is_not_put_out_unheard, keep_limit,
                                        restore_limit),
        cmocka_unit_test_setup_teardown(a_silent_stranger_makes_room_for_who_wants_to_send,
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

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How tcp's processes come to one socket for both directions, and whom they let in. Both are in this
 * process and this thread, so it is the test that says who does what first.
 */
#include "../../unit.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/tcp/tcp_internal.h"

enum { LOW = 1, HIGH = 2, TAG = 5, POOL = 1 << 16 };

enum { PACKED = 1000 };

typedef struct end {
    regx_counters_t counters;
    regx_rkey_table_t rkeys;
    regx_transport_t *transport;
    regx_tcp_t *tcp;
    regx_conn_t *conn;
    uint64_t peer;
    unsigned received, sent, broken;
    unsigned packed; /* frames; their data is what a convertor gives, once */
    bool packs;      /* the peer's frames are these */
} end_t;

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    end_t *end = context;

    assert_int_equal(sender, end->peer);
    assert_int_equal(tag, TAG);
    if (end->packs) {
        assert_int_equal(length, PACKED);
        assert_true(unit_is_filled(data, length, end->received));
    } else {
        assert_int_equal(length, sizeof(end->received));
        assert_memory_equal(data, &end->received, length);
    }
    end->received++;
}

static void broken(void *context, uint64_t peer, const char *what)
{
    end_t *end = context;

    (void)what;
    assert_int_equal(peer, end->peer);
    end->broken++;
}

static void open_end(end_t *end, uint64_t self)
{
    char error[256] = "";

    *end = (end_t){.peer = LOW + HIGH - self};
    regx_rkey_table_init(&end->rkeys, false);
    const regx_transport_config_t config = {
        .self = self,
        .pool_size = POOL,
        .if_include = "lo",
        .rkeys = &end->rkeys,
        .counters = &end->counters,
        .events = {.context = end, .deliver = deliver, .broken = broken}};
    assert_int_equal(regx_tcp_ops.open(&config, error, sizeof(error), &end->transport), REGX_OK);
    end->tcp = regx_tcp_of(end->transport);
}

static void close_end(end_t *end)
{
    regx_tcp_ops.close(end->transport);
    regx_rkey_table_fini(&end->rkeys);
}

static void connect_to(end_t *from, const end_t *to)
{
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = regx_tcp_address(to->transport, address);

    assert_int_equal(
        regx_tcp_connect(from->transport, from->peer, false, address, length, &from->conn),
        REGX_OK);
}

static void open_both(end_t *low, end_t *high)
{
    open_end(low, LOW);
    open_end(high, HIGH);
    connect_to(low, high);
    connect_to(high, low);
}

static void disconnect(end_t *end)
{
    regx_tcp_disconnect(end->conn);
    end->conn = NULL;
}

/* Tries to send the next frame. */
static bool send_one(end_t *end)
{
    const regx_status_t status =
        regx_tcp_send(end->conn, TAG, &end->sent, sizeof(end->sent), NULL, NULL, 0);

    assert_true(status == REGX_OK || status == REGX_AGAIN);
    end->sent += status == REGX_OK;
    return status == REGX_OK;
}

static void progress(end_t *low, end_t *high)
{
    regx_tcp_progress(low->transport);
    regx_tcp_progress(high->transport);
}

/* Until each has `count` frames of the other. */
static void exchange(end_t *low, end_t *high, unsigned count)
{
    while (low->received < count || high->received < count) {
        if (low->sent < count) {
            send_one(low);
        }
        if (high->sent < count) {
            send_one(high);
        }
        progress(low, high);
    }
}

/* What should not come has the time to. */
static void settle(end_t *low, end_t *high)
{
    for (int i = 0; i < 100; i++) {
        progress(low, high);
    }
}

/* Until each has so many. */
static void check_links(end_t *low, end_t *high, unsigned count)
{
    while (low->tcp->link_count != count || high->tcp->link_count != count) {
        progress(low, high);
    }
    settle(low, high);
    assert_int_equal(low->tcp->link_count, count);
    assert_int_equal(high->tcp->link_count, count);
    assert_int_equal(low->broken + high->broken, 0);
    assert_int_equal(low->counters.malformed + high->counters.malformed, 0);
}

static regx_tcp_link_t *link_of(const end_t *end)
{
    return ((regx_tcp_conn_t *)end->conn)->link;
}

static void wait_for(const regx_tcp_link_t *link, short events)
{
    struct pollfd entry = {.fd = link->fd, .events = events};

    assert_int_equal(poll(&entry, 1, -1), 1);
}

/* Opens a link and says connect by it; nothing that comes is read. */
static void ask(end_t *end)
{
    assert_false(send_one(end));
    wait_for(link_of(end), POLLOUT);
    regx_tcp_link_ask(link_of(end));
    assert_true(link_of(end)->asked);
}

/* The link that an end has accepted, alone, and that has said connect. */
static regx_tcp_link_t *accept_one(const end_t *end)
{
    while (end->tcp->links == NULL || end->tcp->links->state != REGX_TCP_LINK_STRANGER) {
        regx_tcp_accept(end->tcp);
    }
    wait_for(end->tcp->links, POLLIN);
    return end->tcp->links;
}

static void close_both(end_t *low, end_t *high)
{
    disconnect(low);
    disconnect(high);
    check_links(low, high, 0);
    close_end(low);
    close_end(high);
}

static void who_answers_does_so_by_the_same_socket(void **state)
{
    end_t low, high;

    (void)state;
    for (int first = LOW; first <= HIGH; first++) {
        open_both(&low, &high);
        while (!send_one(first == LOW ? &low : &high)) {
            progress(&low, &high);
        }
        exchange(&low, &high, 100);
        check_links(&low, &high, 1);
        close_both(&low, &high);
    }
}

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

/* Both open one; that of the higher id waits at the lower one, whose own waits to be accepted. */
static void hold(end_t *low, end_t *high)
{
    assert_false(send_one(low));
    ask(high);
    while (low->tcp->links->state != REGX_TCP_LINK_HELD) {
        regx_tcp_progress(low->transport);
    }
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
    disconnect(&high);
    check_links(&low, &high, 0);
    close_end(&low);
    close_end(&high);
}

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
static void who_left_still_hears(void **state)
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
    disconnect(&high);
    check_links(&low, &high, 0);
    close_end(&low);
    close_end(&high);
}

static void pack_next(void *context, void *to, size_t length)
{
    end_t *end = context;

    unit_fill(to, length, end->packed++, 0);
}

static regx_status_t send_packed(end_t *end)
{
    return regx_tcp_send(end->conn, TAG, NULL, 0, pack_next, end, PACKED);
}

/* A socket that takes not a byte more. */
static int make_full_socket(int *other)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    while (send(ends[0], "", 1, MSG_DONTWAIT) == 1) {
    }
    *other = ends[1];
    return ends[0];
}

/* What was packed is gone from the convertor: who has to send again must not have packed. */
static void a_frame_is_packed_only_if_it_is_accepted(void **state)
{
    end_t low, high;
    int other;

    (void)state;
    open_both(&low, &high);
    high.packs = true;
    while (send_packed(&low) == REGX_AGAIN) {
        progress(&low, &high);
    }
    const int fd = low.tcp->links->fd, real = dup(fd), full = make_full_socket(&other);
    unsigned accepted = low.packed;

    assert_int_equal(dup2(full, fd), fd);
    for (int i = 0; i < 3; i++) {
        accepted += send_packed(&low) == REGX_OK;
        assert_int_equal(low.packed, accepted);
    }
    assert_int_equal(dup2(real, fd), fd);
    while (send_packed(&low) == REGX_AGAIN || low.packed < 10) {
        progress(&low, &high);
    }
    while (high.received < low.packed) {
        progress(&low, &high);
    }
    close(real);
    close(full);
    close(other);
    disconnect(&low);
    disconnect(&high);
    check_links(&low, &high, 0);
    close_end(&low);
    close_end(&high);
}

/* Its id is neither lower nor higher than the peer's: both ends of the link are its own. */
static void a_process_can_send_to_itself(void **state)
{
    end_t here;

    (void)state;
    open_end(&here, LOW);
    here.peer = LOW;
    connect_to(&here, &here);
    while (here.received < 100) {
        if (here.sent < 100) {
            send_one(&here);
        }
        regx_tcp_progress(here.transport);
    }
    assert_int_equal(here.tcp->link_count, 2);
    disconnect(&here);
    while (here.tcp->link_count > 0) {
        regx_tcp_progress(here.transport);
    }
    assert_int_equal(here.broken, 0);
    assert_int_equal(here.counters.malformed, 0);
    close_end(&here);
}

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

/* ---- without descriptors ---- */

static struct rlimit limit;

/* If it hangs, it fails. */
static int keep_limit(void **state)
{
    (void)state;
    alarm(300);
    return getrlimit(RLIMIT_NOFILE, &limit);
}

static int restore_limit(void **state)
{
    (void)state;
    alarm(0);
    return setrlimit(RLIMIT_NOFILE, &limit);
}

static void allow_no_descriptor(void)
{
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
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

static int connect_raw(const struct sockaddr_storage *at)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    if (connect(fd, (const struct sockaddr *)at, sizeof(struct sockaddr_in)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
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
        here.tcp->links->since_ns -= INT64_C(10000000001) * (n < KEPT + 3);
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
    ((regx_tcp_conn_t *)low.conn)->token ^= 1;
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

/* ---- links that are given up ---- */

/* It disconnects before it has read that it was let in, and what was sent to it by then. */
static void who_gives_up_still_hears(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    ask(&low);
    while (high.sent < 10) {
        regx_tcp_progress(high.transport);
        if (high.tcp->links != NULL && high.tcp->links->state == REGX_TCP_LINK_OPEN) {
            send_one(&high);
        }
    }
    disconnect(&low);
    while (low.received < 10) {
        progress(&low, &high);
    }
    disconnect(&high);
    check_links(&low, &high, 0);
    close_end(&low);
    close_end(&high);
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
    while (low->sent < 10) {
        if (low->tcp->links->state == REGX_TCP_LINK_OPEN) {
            send_one(low);
        }
        regx_tcp_progress(low->transport);
    }
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

/* The higher one was let in by the lower one's link, left it and comes back, before the lower one has
 * read anything. */
static void one_that_is_held_gets_in_when_the_other_has(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    ask(&low);
    while (high.sent < 10) {
        regx_tcp_progress(high.transport);
        if (high.tcp->links != NULL && high.tcp->links->state == REGX_TCP_LINK_OPEN) {
            send_one(&high);
        }
    }
    disconnect(&high);
    connect_to(&high, &low);
    ask(&high);
    regx_tcp_link_t *held = accept_one(&low);
    regx_tcp_link_read(held);
    assert_int_equal(held->state, REGX_TCP_LINK_HELD);
    exchange(&low, &high, 100);
    close_both(&low, &high);
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

/* A child that does not exec has all descriptors; what is closed here is still open there. */
static void a_forked_child_does_no_harm(void **state)
{
    int ends[2];
    end_t low, high;
    char byte;

    (void)state;
    open_both(&low, &high);
    exchange(&low, &high, 10);
    const struct sockaddr_storage at = high.tcp->at;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) != 0); /* until the parent closes it, or ends */
    }
    close_both(&low, &high);
    errno = 0;
    assert_int_equal(connect_raw(&at), -1);
    assert_int_equal(errno, ECONNREFUSED);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void a_loopback_reaches_its_own_host_alone(void **state)
{
    uint8_t address[REGX_ADDRESS_MAX];
    regx_conn_t *conn;
    end_t here;

    (void)state;
    open_end(&here, LOW);
    const size_t length = regx_tcp_address(here.transport, address);
    address[16] ^= 2; /* of the host */
    assert_int_equal(regx_tcp_connect(here.transport, HIGH, false, address, length, &conn),
                     REGX_UNREACHABLE);
    close_end(&here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_answers_does_so_by_the_same_socket),
        cmocka_unit_test(of_two_opened_at_once_one_is_kept),
        cmocka_unit_test(one_that_is_held_gets_in_if_the_other_comes_to_nothing),
        cmocka_unit_test(who_left_can_come_back),
        cmocka_unit_test(who_left_still_hears),
        cmocka_unit_test(a_frame_is_packed_only_if_it_is_accepted),
        cmocka_unit_test(a_process_can_send_to_itself),
        cmocka_unit_test(strangers_are_not_let_in),
        cmocka_unit_test_setup_teardown(a_peer_that_finds_no_descriptor_waits, keep_limit,
                                        restore_limit),
        cmocka_unit_test_setup_teardown(who_finds_no_descriptor_to_send_by_waits, keep_limit,
                                        restore_limit),
        cmocka_unit_test_setup_teardown(of_two_opened_at_once_one_suffices, keep_limit,
                                        restore_limit),
        cmocka_unit_test_setup_teardown(who_asks_again_in_vain_is_not_lost, keep_limit,
                                        restore_limit),
        cmocka_unit_test(too_many_silent_strangers_are_put_out),
        cmocka_unit_test(who_was_put_out_too_early_comes_again),
        cmocka_unit_test(who_is_put_out_again_and_again_is_told),
        cmocka_unit_test(who_gives_up_still_hears),
        cmocka_unit_test(what_was_sent_by_a_link_that_is_given_up_arrives),
        cmocka_unit_test(a_peer_dies_with_the_link_by_which_it_speaks),
        cmocka_unit_test(a_peer_that_leaves_has_not_died),
        cmocka_unit_test(one_that_is_held_gets_in_when_the_other_has),
        cmocka_unit_test(who_leaves_before_it_has_sent_closes_its_link),
        cmocka_unit_test(a_forked_child_does_no_harm),
        cmocka_unit_test(a_loopback_reaches_its_own_host_alone),
    };

    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}

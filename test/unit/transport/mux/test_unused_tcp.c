/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The cost of a tcp side that nobody uses: looking at the network takes system calls, so a process
 * that talks over shared memory must not do it, and must still accept who connects.
 *
 * Both ends of the conversation are in one process and one thread, and the clock is the test's own:
 * it goes on only when it is read, so nothing depends on how fast the machine is or what else it
 * does.
 */
#include "../pair.h"

#include "base/clock.h"
#include "transport/counters.h"
#include "transport/mux/params.h"
#include "transport/transport.h"

extern const regx_transport_ops_t regx_transport_ops;

enum { POOL = 1 << 20, TAG_BALL = 1, TAG_NEWCOMER = 2, LEFT = 1, RIGHT = 2 };
#define MS INT64_C(1000000)

/* Nanoseconds; each look at the clock takes one of these, and the coarse clock ticks so often. */
enum { LOOK_NS = 1000, TICK_NS = 4000000 };
static int64_t now = TICK_NS;

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    now += LOOK_NS;
    const int64_t shown = clock == CLOCK_MONOTONIC_COARSE ? now - now % TICK_NS : now;

    *time = (struct timespec){.tv_sec = shown / 1000000000, .tv_nsec = shown % 1000000000};
    return 0;
}

typedef struct end {
    regx_counters_t counters;
    regx_transport_t *transport;
    regx_conn_t *conn;
    unsigned balls, newcomers, rounds;
} end_t;

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    end_t *end = context;

    (void)sender;
    REQUIRE(length == 8 && unit_is_filled(data, length, tag));
    if (tag == TAG_BALL) {
        end->balls++;
    } else {
        end->newcomers++;
    }
}

static void broken(void *context, uint64_t peer, const char *what)
{
    (void)context, (void)peer, (void)what;
    REQUIRE(!"broken");
}

static void open_end(end_t *end, uint64_t self)
{
    const regx_transport_config_t config = {
        .self = self,
        .pool_size = POOL,
        .pool_min = POOL,
        .if_include = "lo",
        .counters = &end->counters,
        .events = {.context = end, .deliver = deliver, .broken = broken}};
    char error[256] = "";

    memset(end, 0, sizeof(*end));
    if (regx_transport_ops.open(&config, error, sizeof(error), &end->transport) != REGX_OK) {
        fprintf(stderr, "%s\n", error);
        REQUIRE(!"opened");
    }
    REQUIRE(strstr(end->transport->wires, ",tcp") != NULL);
}

static regx_conn_t *connect_ends(end_t *from, uint64_t peer, bool same_node, const void *address,
                                 size_t length)
{
    regx_conn_t *conn;

    REQUIRE(regx_transport_ops.connect(from->transport, peer, same_node, address, length, &conn) ==
            REGX_OK);
    return conn;
}

static void connect_to(end_t *from, end_t *to, uint64_t peer)
{
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = regx_transport_ops.address(to->transport, address);

    from->conn = connect_ends(from, peer, true, address, length);
}

static void open_both(end_t *left, end_t *right)
{
    open_end(left, LEFT);
    open_end(right, RIGHT);
    connect_to(left, right, RIGHT);
    connect_to(right, left, LEFT);
}

static void close_both(end_t *left, end_t *right)
{
    regx_transport_ops.disconnect(left->conn);
    regx_transport_ops.disconnect(right->conn);
    /* Each waits until the other has read its last frame. */
    while (regx_transport_ops.progress(left->transport) > 0 ||
           regx_transport_ops.progress(right->transport) > 0) {
    }
    regx_transport_ops.close(left->transport);
    regx_transport_ops.close(right->transport);
}

/* As the BTL asks: mostly the front. */
static int progress(end_t *end)
{
    regx_transport_t *front = ++end->rounds % REGX_TRANSPORT_ROUNDS == 0
                                  ? end->transport
                                  : atomic_load(&end->transport->front);
    const int events = front->ops->progress(front);

    if (events > 0) {
        end->transport->front_busy = front != end->transport;
    }
    return events;
}

static void send_frame(end_t *from, regx_conn_t *conn, uint8_t tag)
{
    uint8_t data[8];
    regx_status_t status;

    unit_fill(data, sizeof(data), tag, 0);
    while ((status = regx_transport_ops.send(conn, tag, data, sizeof(data), NULL, NULL, 0)) ==
           REGX_AGAIN) {
        progress(from);
    }
    REQUIRE(status == REGX_OK);
}

/* One ball: the receiver polls until it is there, and some calls more, as MPI does. */
static void throw_ball(end_t *from, end_t *to)
{
    const unsigned before = to->balls;

    send_frame(from, from->conn, TAG_BALL);
    while (to->balls == before) {
        progress(to);
    }
    for (int i = 0; i < 10; i++) {
        progress(to);
    }
}

static uint64_t looks_of(const end_t *left, const end_t *right)
{
    return left->counters.transport[REGX_COUNTER_tcp_looks] +
           right->counters.transport[REGX_COUNTER_tcp_looks];
}

/* Throws balls for so long by that clock. Returns how many looks at tcp that took. */
static uint64_t play(end_t *left, end_t *right, int64_t ns)
{
    const uint64_t before = looks_of(left, right);
    const int64_t start = regx_now_ns();

    do {
        throw_ball(left, right);
        throw_ball(right, left);
    } while (regx_now_ns() - start < ns);
    return looks_of(left, right) - before;
}

/* Balls until no look is made any more. */
static void play_until_watched(end_t *left, end_t *right)
{
    unsigned rounds = 0;

    while (play(left, right, 50 * MS) > 0) {
        REQUIRE(++rounds < 200);
    }
}

static void unused_tcp_is_not_looked_at_while_the_node_is_busy(void **state)
{
    end_t left, right;

    (void)state;
    open_both(&left, &right);
    play_until_watched(&left, &right);
    assert_ptr_not_equal(left.transport->front, left.transport); /* shared memory alone */
    assert_int_equal(play(&left, &right, 200 * MS), 0);
    close_both(&left, &right);
}

static void progress_both(end_t *left, end_t *right)
{
    progress(left);
    progress(right);
}

/* The two also talk over tcp for a while. */
static void tcp_that_is_used_no_more_is_not_looked_at_either(void **state)
{
    uint8_t address[REGX_ADDRESS_MAX];
    end_t left, right;

    (void)state;
    open_both(&left, &right);
    const size_t length = regx_transport_ops.address(right.transport, address);
    regx_conn_t *tcp = connect_ends(&left, RIGHT, false, address, length);
    for (unsigned round = 1; round <= 3; round++) {
        uint8_t data[8];

        unit_fill(data, sizeof(data), TAG_NEWCOMER, 0);
        while (regx_transport_ops.send(tcp, TAG_NEWCOMER, data, sizeof(data), NULL, NULL, 0) !=
               REGX_OK) {
            progress_both(&left, &right); /* the other one accepts */
        }
        while (right.newcomers < round) {
            progress_both(&left, &right);
        }
        play_until_watched(&left, &right);
        assert_int_equal(play(&left, &right, 50 * MS), 0);
    }
    regx_transport_ops.disconnect(tcp);
    close_both(&left, &right);
}

static void quiet_process_looks_once_in_a_ms_at_most(void **state)
{
    end_t end;

    (void)state;
    open_end(&end, LEFT);
    const int64_t start = now;
    while (end.counters.transport[REGX_COUNTER_tcp_looks] < 20) {
        progress(&end);
    }
    assert_in_range(now - start, 18 * MS, 40 * MS);
    regx_transport_ops.close(end.transport);
}

static void calls_far_apart_do_not_delay_the_looks(void **state)
{
    end_t end;

    (void)state;
    open_end(&end, LEFT);
    for (int i = 0; i < 64; i++) {
        now += 12 * MS; /* a program that computes */
        progress(&end);
    }
    assert_in_range(end.counters.transport[REGX_COUNTER_tcp_looks], 3, 64);
    regx_transport_ops.close(end.transport);
}

/* A process that shared memory does not reach connects while the two talk without a break, and
 * nobody looks. */
static void newcomer_by_tcp_is_accepted_while_the_node_is_busy(void **state)
{
    uint8_t address[REGX_ADDRESS_MAX];
    uint32_t length = 0;
    end_t left, right;
    int socket;
    const pid_t child = pair_fork(&socket);

    (void)state;
    if (in_child) {
        pair_hear(socket, &length, sizeof(length));
        pair_hear(socket, address, length);
        open_end(&left, CHILD);
        left.conn = connect_ends(&left, LEFT, false, address, length);
        send_frame(&left, left.conn, TAG_NEWCOMER);
        char byte;
        pair_hear(socket, &byte, 1); /* it has arrived */
        regx_transport_ops.disconnect(left.conn);
        regx_transport_ops.close(left.transport);
        pair_join(child, socket, false);
    }
    open_both(&left, &right);
    play_until_watched(&left, &right);
    length = (uint32_t)regx_transport_ops.address(left.transport, address);
    pair_tell(socket, &length, sizeof(length));
    pair_tell(socket, address, length);
    while (left.newcomers == 0) {
        throw_ball(&left, &right);
        throw_ball(&right, &left);
    }
    assert_int_equal(left.newcomers, 1);
    pair_tell(socket, "", 1);
    close_both(&left, &right);
    pair_join(child, socket, false);
}

/* Open MPI's fragments are cut by it, and paced by what fits a frame. */
static void frames_are_as_long_over_tcp_alone(void **state)
{
    const regx_mux_settings_t settings = {.tls = "tcp"};
    regx_counters_t counters = {.threads = false};
    const regx_transport_config_t config = {.self = 1,
                                            .pool_size = POOL,
                                            .pool_min = POOL,
                                            .if_include = "lo",
                                            .settings = &settings,
                                            .counters = &counters,
                                            .events = {.deliver = deliver, .broken = broken}};
    char error[256] = "";
    regx_transport_t *transport;
    end_t both;

    (void)state;
    assert_int_equal(regx_transport_ops.open(&config, error, sizeof(error), &transport), REGX_OK);
    open_end(&both, 2);
    assert_int_equal(transport->max_frame, both.transport->max_frame);
    regx_transport_ops.close(both.transport);
    regx_transport_ops.close(transport);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unused_tcp_is_not_looked_at_while_the_node_is_busy),
        cmocka_unit_test(tcp_that_is_used_no_more_is_not_looked_at_either),
        cmocka_unit_test(quiet_process_looks_once_in_a_ms_at_most),
        cmocka_unit_test(calls_far_apart_do_not_delay_the_looks),
        cmocka_unit_test(newcomer_by_tcp_is_accepted_while_the_node_is_busy),
        cmocka_unit_test(frames_are_as_long_over_tcp_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

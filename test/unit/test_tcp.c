/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The tcp wire: two processes over the loopback, every byte checked.
 *
 * The two also have a socket of their own, by which they tell each other what they may not learn
 * over the wire under test. Waiting has no limit here; the watchdog is outside.
 */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#include "transport/uct/quiet.h"
#include "transport/uct/tcp.h"

enum { POOL = 1 << 20, DATA_MAX = 65536, MIB = 1 << 20 };
enum { PARENT = 1000001, CHILD = 2000002 }; /* ids */

static bool in_child;

/* cmocka's assertions end a test by a jump, which must not happen in the child. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so in the %s: %s\n", __FILE__, __LINE__,                   \
                    in_child ? "child" : "parent", #condition);                                    \
            if (in_child) {                                                                        \
                _exit(1);                                                                          \
            }                                                                                      \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

typedef struct side {
    regx_transport_config_t config;
    regx_counters_t counters;
    regx_windows_t windows;
    regx_tcp_t *tcp;
    regx_tcp_conn_t *conn;
    uint8_t *pool;
    pid_t child;
    int socket;
    /* What a test does with a delivery, and what it notes. */
    void (*deliver)(struct side *side, uint8_t tag, const uint8_t *data, size_t length);
    unsigned delivered;
    unsigned broken;
    unsigned done;
    regx_status_t done_status;
    unsigned answers; /* owed, in the test of calls from inside deliver */
    _Atomic unsigned received[4];
} side_t;

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    side_t *side = context;

    REQUIRE(sender == (in_child ? PARENT : CHILD));
    side->deliver(side, tag, data, length);
    side->delivered++;
}

static void broken(void *context, uint64_t peer, const char *what)
{
    side_t *side = context;

    REQUIRE(peer == (in_child ? PARENT : CHILD));
    REQUIRE(what[0] != '\0');
    side->broken++;
}

static void done(regx_put_t *put, regx_status_t status)
{
    side_t *side = put->context;

    side->done++;
    side->done_status = status;
}

static void open_side(side_t *side, uint64_t self, bool threads)
{
    char error[256];

    memset(side, 0, sizeof(*side));
    side->config = (regx_transport_config_t){
        .self = self,
        .pool_size = POOL,
        .if_include = "lo",
        .threads = threads,
        .counters = &side->counters,
        .events = {.context = side, .deliver = deliver, .broken = broken}};
    side->counters.threads = threads;
    side->pool = calloc(1, POOL);
    REQUIRE(side->pool != NULL);
    regx_windows_init(&side->windows, threads);
    regx_uct_quiet();
    if (regx_tcp_open(&side->config, &side->windows, error, sizeof(error), &side->tcp) != REGX_OK) {
        fprintf(stderr, "%s\n", error);
        REQUIRE(!"opened");
    }
    REQUIRE(regx_tcp_max_frame(side->tcp) == DATA_MAX);
    REQUIRE(strcmp(regx_tcp_device(side->tcp), "lo") == 0);
    regx_tcp_set_pool(side->tcp, side->pool, POOL);
}

static void close_side(side_t *side)
{
    regx_tcp_close(side->tcp);
    regx_windows_fini(&side->windows);
    free(side->pool);
}

/* The socket beside the wire. */
static void tell(side_t *side, const void *data, size_t length)
{
    REQUIRE(write(side->socket, data, length) == (ssize_t)length);
}

static void hear(side_t *side, void *data, size_t length)
{
    REQUIRE(recv(side->socket, data, length, MSG_WAITALL) == (ssize_t)length);
}

/* Both come here before either goes on; nobody makes progress meanwhile. */
static void meet(side_t *side)
{
    char byte = 0;

    tell(side, &byte, 1);
    hear(side, &byte, 1);
}

static void progress(side_t *side)
{
    if (regx_tcp_progress(side->tcp) == 0) {
        sched_yield();
    }
}

static void connect_side(side_t *side)
{
    uint8_t address[REGX_ADDRESS_MAX];
    uint32_t length = (uint32_t)regx_tcp_address(side->tcp, address, sizeof(address));

    REQUIRE(length > 0);
    tell(side, &length, sizeof(length));
    tell(side, address, length);
    hear(side, &length, sizeof(length));
    REQUIRE(length <= sizeof(address));
    hear(side, address, length);
    REQUIRE(regx_tcp_connect(side->tcp, in_child ? PARENT : CHILD, address, length, &side->conn) ==
            REGX_OK);
}

/* Runs one function in this process and one in a child, connected. */
static void run_pair(bool threads, void (*parent_part)(side_t *), void (*child_part)(side_t *))
{
    static side_t side;
    int sockets[2], status;
    pid_t child;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    child = fork();
    assert_true(child >= 0);
    in_child = child == 0;
    if (in_child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    open_side(&side, in_child ? CHILD : PARENT, threads);
    side.child = child;
    side.socket = sockets[in_child];
    close(sockets[!in_child]);
    connect_side(&side);
    if (in_child) {
        child_part(&side);
        if (side.conn != NULL) {
            regx_tcp_disconnect(side.conn);
        }
        close_side(&side);
        _exit(0);
    }
    parent_part(&side);
    if (side.conn != NULL) {
        regx_tcp_disconnect(side.conn);
    }
    close_side(&side);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
                (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && side.child == 0));
    close(side.socket);
}

/* ---- frames ---- */

enum { FRAMES = 2000 };

/* The size of frame number n: the boundaries first, then anything. */
static size_t frame_size(unsigned n)
{
    static const size_t sizes[] = {0, 1, 7, 8, 9, 100, 4095, 4096, 4097, 65535, 65536};
    uint64_t state = n;

    return n < sizeof(sizes) / sizeof(sizes[0]) ? sizes[n] : unit_random(&state) % (DATA_MAX / 8);
}

static void stamp(uint8_t *to, size_t length, uint64_t stream, size_t from)
{
    for (size_t i = 0; i < length; i++) {
        to[i] = unit_stamp(stream, from + i);
    }
}

static bool is_stamped(const uint8_t *data, size_t length, uint64_t stream)
{
    for (size_t i = 0; i < length; i++) {
        if (data[i] != unit_stamp(stream, i)) {
            return false;
        }
    }
    return true;
}

typedef struct packing {
    uint64_t stream;
    size_t from;
    unsigned calls;
} packing_t;

static void pack(void *context, void *to, size_t length)
{
    packing_t *packing = context;

    packing->calls++;
    stamp(to, length, packing->stream, packing->from);
}

static uint64_t stream_of(uint64_t sender, unsigned n)
{
    return sender + n;
}

static void check_frame(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    const unsigned n = side->delivered;

    REQUIRE(tag == (uint8_t)n);
    REQUIRE(length == frame_size(n));
    REQUIRE(is_stamped(data, length, stream_of(in_child ? PARENT : CHILD, n)));
}

/* Sends frame n: header and payload packed, or lent. Whether it was accepted. */
static bool send_frame(side_t *side, unsigned n)
{
    static uint8_t buffer[DATA_MAX];
    const size_t size = frame_size(n);
    const size_t header_length = size < 200 ? size / 2 : 56;
    packing_t packing = {.stream = stream_of(side->config.self, n), .from = header_length};
    regx_status_t status;

    stamp(buffer, n % 3 == 0 ? size : header_length, packing.stream, 0);
    if (n % 3 == 0) {
        regx_lend_t lend = {.data = buffer, .length = size, .tag = (uint8_t)n};

        status = regx_tcp_lend(side->conn, &lend);
        memset(buffer, 0, size); /* it is ours again */
    } else {
        status = regx_tcp_send(side->conn, (uint8_t)n, buffer, header_length, pack, &packing,
                               size - header_length);
        REQUIRE(packing.calls == (status == REGX_OK && size > header_length));
    }
    REQUIRE(status == REGX_OK || status == REGX_AGAIN);
    return status == REGX_OK;
}

static void stream_frames(side_t *side)
{
    unsigned sent = 0;
    uint64_t bytes = 0;

    side->deliver = check_frame;
    while (sent < FRAMES || side->delivered < FRAMES) {
        while (sent < FRAMES && send_frame(side, sent)) {
            bytes += frame_size(sent++);
        }
        progress(side);
    }
    REQUIRE(side->counters.bytes_tcp == bytes);
    REQUIRE(side->counters.malformed == 0);
    meet(side);
}

static void frames_arrive_whole_and_in_order(void **state)
{
    (void)state;
    run_pair(false, stream_frames, stream_frames);
}

static void too_large(side_t *side)
{
    REQUIRE(regx_tcp_send(side->conn, 1, side->pool, 1, NULL, NULL, 0) != REGX_INVALID);
    REQUIRE(regx_tcp_send(side->conn, 1, side->pool, 256, pack, NULL, DATA_MAX - 255) ==
            REGX_INVALID);
    regx_lend_t lend = {.data = side->pool, .length = DATA_MAX + 1};
    REQUIRE(regx_tcp_lend(side->conn, &lend) == REGX_INVALID);
    meet(side);
}

static void frames_that_are_too_large_are_refused(void **state)
{
    (void)state;
    run_pair(false, too_large, meet);
}

/* ---- puts ---- */

enum { REGION = 9 * MIB, TAG_PUT = 50, TAG_AFTER = 51, TAG_END = 52 };

static const struct put_case {
    regx_target_t target;
    uint64_t offset;
    size_t length;
} put_cases[] = {
    {REGX_TARGET_REGION, 0, 0},
    {REGX_TARGET_REGION, 0, 1},
    {REGX_TARGET_REGION, 1, DATA_MAX - 1},
    {REGX_TARGET_REGION, 4097, DATA_MAX},
    {REGX_TARGET_REGION, 3, DATA_MAX + 1},
    {REGX_TARGET_REGION, 0, REGION},
    {REGX_TARGET_REGION, REGION, 0},
    {REGX_TARGET_REGION, REGION - 1, 1},
    {REGX_TARGET_POOL, 0, POOL},
    {REGX_TARGET_POOL, POOL - 1, 1},
    {REGX_TARGET_POOL, POOL, 0},
    {REGX_TARGET_POOL, 12345, 3 * DATA_MAX},
    {REGX_TARGET_REGION, 5, 8 * MIB + 1},
};
enum { PUT_CASES = sizeof(put_cases) / sizeof(put_cases[0]), PUTS = 3 * PUT_CASES };

static uint8_t *region; /* of the child: REGION bytes between guards of a page */
enum { GUARD = 4096 };

static void check_put(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    const unsigned n = side->delivered / 2;
    const struct put_case *put = &put_cases[n % PUT_CASES];
    const uint8_t *to = (put->target == REGX_TARGET_POOL ? side->pool : region + GUARD);

    /* Each put is followed by a frame, which comes after the notice. */
    if (side->delivered % 2 == 1) {
        REQUIRE(tag == TAG_AFTER && length == sizeof(n) && memcmp(data, &n, length) == 0);
        return;
    }
    REQUIRE(tag == TAG_PUT);
    REQUIRE(length == n % (REGX_NOTICE_MAX + 1));
    REQUIRE(is_stamped(data, length, 7000 + n));
    REQUIRE(is_stamped(to + put->offset, put->length, n));
    REQUIRE(is_stamped(region, GUARD, 1) && is_stamped(region + GUARD + REGION, GUARD, 2));
}

static void receive_puts(side_t *side)
{
    regx_key_t key;
    void *handle;

    region = malloc(GUARD + REGION + GUARD);
    REQUIRE(region != NULL);
    stamp(region, GUARD, 1, 0);
    stamp(region + GUARD + REGION, GUARD, 2, 0);
    REQUIRE(regx_windows_add(&side->windows, region + GUARD, REGION, REGX_ACCESS_REMOTE_WRITE, &key,
                             &handle) == REGX_OK);
    tell(side, &key, sizeof(key));
    side->deliver = check_put;
    while (side->delivered < 2 * PUTS) {
        progress(side);
    }
    REQUIRE(side->counters.malformed == 0);
    regx_windows_remove(&side->windows, handle);
    free(region);
    meet(side);
}

static void fill_put(regx_put_t *put, side_t *side, unsigned n, const regx_key_t *key,
                     uint8_t *data)
{
    const struct put_case *test = &put_cases[n % PUT_CASES];

    *put = (regx_put_t){.local = data,
                        .length = test->length,
                        .target = test->target,
                        .offset = test->offset,
                        .tag = TAG_PUT,
                        .notice_length = (uint8_t)(n % (REGX_NOTICE_MAX + 1)),
                        .done = done,
                        .context = side};
    if (test->target == REGX_TARGET_REGION) {
        put->key = *key;
    }
    stamp(put->notice, put->notice_length, 7000 + n, 0);
    stamp(data, put->length, n, 0);
}

static void send_puts(side_t *side)
{
    uint8_t *data = malloc(REGION);
    uint64_t bytes = 0;
    regx_key_t key;

    REQUIRE(data != NULL);
    hear(side, &key, sizeof(key));
    for (unsigned n = 0; n < PUTS; n++) {
        const unsigned done_before = side->done;
        regx_status_t status;
        regx_put_t put;

        fill_put(&put, side, n, &key, data);
        while ((status = regx_tcp_put(side->conn, &put)) == REGX_AGAIN) {
            progress(side);
        }
        REQUIRE(status == REGX_OK || status == REGX_PENDING);
        /* Accepted at once or after the put, the frame comes behind the notice. */
        while (regx_tcp_send(side->conn, TAG_AFTER, &n, sizeof(n), NULL, NULL, 0) != REGX_OK) {
            progress(side);
        }
        /* It can only have been accepted when the put had left. */
        while (side->done == done_before && status == REGX_PENDING) {
            progress(side);
        }
        REQUIRE(side->done - done_before == (status == REGX_PENDING));
        REQUIRE(status == REGX_OK || side->done_status == REGX_OK);
        memset(data, 0, put.length); /* it is ours again */
        bytes += put.length + sizeof(n);
    }
    REQUIRE(side->counters.bytes_tcp == bytes);
    REQUIRE(side->broken == 0);
    free(data);
    meet(side);
}

static void puts_land_before_their_notice(void **state)
{
    (void)state;
    run_pair(false, send_puts, receive_puts);
}

/* Many puts at once: they wait in line, are done in order, and each is done once. */
enum { LINE = 64, LINE_PUT = 3 * DATA_MAX - 5 };

static void check_line(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    const unsigned n = side->delivered;

    REQUIRE(tag == TAG_PUT && length == sizeof(n) && memcmp(data, &n, length) == 0);
    REQUIRE(is_stamped(region + (size_t)n * LINE_PUT, LINE_PUT, n));
}

static void receive_line(side_t *side)
{
    regx_key_t key;
    void *handle;

    region = calloc(LINE, LINE_PUT);
    REQUIRE(region != NULL);
    REQUIRE(regx_windows_add(&side->windows, region, (size_t)LINE * LINE_PUT,
                             REGX_ACCESS_REMOTE_WRITE, &key, &handle) == REGX_OK);
    tell(side, &key, sizeof(key));
    side->deliver = check_line;
    while (side->delivered < LINE) {
        progress(side);
    }
    free(region);
    meet(side);
}

static void done_in_line(regx_put_t *put, regx_status_t status)
{
    side_t *side = put->context;
    unsigned n;

    memcpy(&n, put->notice, sizeof(n));
    REQUIRE(status == REGX_OK);
    REQUIRE(n >= side->done); /* those between were done at once */
    side->done = n + 1;
    memset((void *)(uintptr_t)put->local, 0, put->length); /* it is ours again */
}

static void send_line(side_t *side)
{
    static regx_put_t puts[LINE];
    uint8_t *data = malloc((size_t)LINE * LINE_PUT);
    unsigned pending = 0;
    regx_key_t key;

    REQUIRE(data != NULL);
    hear(side, &key, sizeof(key));
    for (unsigned n = 0; n < LINE; n++) {
        uint8_t *local = data + (size_t)n * LINE_PUT;
        regx_status_t status;

        stamp(local, LINE_PUT, n, 0);
        puts[n] = (regx_put_t){.local = local,
                               .length = LINE_PUT,
                               .target = REGX_TARGET_REGION,
                               .offset = (uint64_t)n * LINE_PUT,
                               .key = key,
                               .tag = TAG_PUT,
                               .notice_length = sizeof(n),
                               .done = done_in_line,
                               .context = side};
        memcpy(puts[n].notice, &n, sizeof(n));
        status = regx_tcp_put(side->conn, &puts[n]);
        REQUIRE(status == REGX_OK || status == REGX_PENDING);
        if (status == REGX_PENDING) {
            pending = n + 1;
        } else {
            memset(local, 0, LINE_PUT);
        }
    }
    REQUIRE(pending > 0); /* there was a line */
    while (side->done < pending) {
        progress(side);
    }
    free(data);
    meet(side);
}

static void puts_wait_in_line(void **state)
{
    (void)state;
    run_pair(false, send_line, receive_line);
}

/* ---- grants that do not hold ---- */

static void check_end(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    (void)data, (void)length;
    REQUIRE(side->delivered == 0 && tag == TAG_END);
}

static void revoke_at_once(side_t *side)
{
    uint8_t *memory = malloc(MIB);
    regx_key_t key;
    void *handle;

    REQUIRE(memory != NULL);
    stamp(memory, MIB, 3, 0);
    REQUIRE(regx_windows_add(&side->windows, memory, MIB, REGX_ACCESS_REMOTE_WRITE, &key,
                             &handle) == REGX_OK);
    regx_windows_remove(&side->windows, handle);
    tell(side, &key, sizeof(key));
    side->deliver = check_end;
    while (side->delivered == 0) {
        progress(side);
    }
    /* Every piece was refused, and the notice with the last. */
    REQUIRE(side->counters.malformed == MIB / DATA_MAX);
    REQUIRE(is_stamped(memory, MIB, 3));
    free(memory);
    meet(side);
}

static void put_to_revoked(side_t *side)
{
    regx_put_t put = {.local = calloc(1, MIB),
                      .length = MIB,
                      .target = REGX_TARGET_REGION,
                      .tag = TAG_PUT,
                      .done = done,
                      .context = side};

    REQUIRE(put.local != NULL);
    hear(side, &put.key, sizeof(put.key));
    /* Beyond what the key says is not even tried. */
    put.offset = 1;
    REQUIRE(regx_tcp_put(side->conn, &put) == REGX_INVALID);
    put.offset = UINT64_MAX;
    REQUIRE(regx_tcp_put(side->conn, &put) == REGX_INVALID);
    put.target = REGX_TARGET_POOL;
    put.offset = POOL - MIB + 1;
    REQUIRE(regx_tcp_put(side->conn, &put) == REGX_INVALID);

    put.target = REGX_TARGET_REGION;
    put.offset = 0;
    if (regx_tcp_put(side->conn, &put) == REGX_PENDING) {
        while (side->done == 0) {
            progress(side);
        }
    }
    while (regx_tcp_send(side->conn, TAG_END, NULL, 0, NULL, NULL, 0) != REGX_OK) {
        progress(side);
    }
    free((void *)(uintptr_t)put.local);
    meet(side);
}

static void revoked_grants_are_not_written(void **state)
{
    (void)state;
    run_pair(false, put_to_revoked, revoke_at_once);
}

/* ---- calls from inside deliver ---- */

enum { ASKED = 300 };

static void answer_inside(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    const unsigned n = side->delivered;
    regx_status_t status = REGX_AGAIN;

    REQUIRE(tag == 1 && length == sizeof(n) && memcmp(data, &n, length) == 0);
    if (side->answers == 0) {
        status = regx_tcp_send(side->conn, 2, &n, sizeof(n), NULL, NULL, 0);
    }
    REQUIRE(status == REGX_OK || status == REGX_AGAIN);
    if (status == REGX_AGAIN) {
        side->answers++; /* the last `answers` numbers, in order */
    }
}

static void answer(side_t *side)
{
    side->deliver = answer_inside;
    while (side->delivered < ASKED || side->answers > 0) {
        const unsigned n = side->delivered - side->answers;

        if (side->answers > 0 &&
            regx_tcp_send(side->conn, 2, &n, sizeof(n), NULL, NULL, 0) == REGX_OK) {
            side->answers--;
        } else {
            progress(side);
        }
    }
    meet(side);
}

static void check_answer(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    const unsigned n = side->delivered;

    REQUIRE(tag == 2 && length == sizeof(n) && memcmp(data, &n, length) == 0);
}

static void ask(side_t *side)
{
    side->deliver = check_answer;
    /* All at once, so that the other makes its endpoint with more of them behind the first. */
    for (unsigned n = 0; n < ASKED; n++) {
        while (regx_tcp_send(side->conn, 1, &n, sizeof(n), NULL, NULL, 0) != REGX_OK) {
            progress(side);
        }
    }
    while (side->delivered < ASKED) {
        progress(side);
    }
    meet(side);
}

static void deliver_may_send(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        run_pair(i % 2 == 1, ask, answer);
    }
}

/* ---- ends ---- */

static void wait_to_be_killed(side_t *side)
{
    regx_key_t key;
    void *handle;

    REQUIRE(regx_windows_add(&side->windows, side->pool, SIZE_MAX / 2, REGX_ACCESS_REMOTE_WRITE,
                             &key, &handle) == REGX_OK);
    tell(side, &key, sizeof(key));
    side->deliver = check_end;
    while (side->delivered == 0) {
        progress(side); /* until the connection stands */
    }
    meet(side);
    hear(side, &key, 1);
}

/* A put that the peer will never read to its end, under way. */
static void start_endless(side_t *side, regx_put_t *put)
{
    const size_t length = 64 * (size_t)MIB;

    *put = (regx_put_t){.local = calloc(1, length),
                        .length = length,
                        .target = REGX_TARGET_REGION,
                        .tag = TAG_PUT,
                        .done = done,
                        .context = side};
    REQUIRE(put->local != NULL);
    hear(side, &put->key, sizeof(put->key));
    while (regx_tcp_send(side->conn, TAG_END, NULL, 0, NULL, NULL, 0) != REGX_OK) {
        progress(side);
    }
    meet(side);
    REQUIRE(regx_tcp_put(side->conn, put) == REGX_PENDING);
    for (int i = 0; i < 100; i++) {
        progress(side);
    }
    REQUIRE(side->done == 0);
}

static void see_it_die(side_t *side)
{
    regx_put_t put, second = {.target = REGX_TARGET_POOL, .done = done, .context = side};

    start_endless(side, &put);
    REQUIRE(regx_tcp_put(side->conn, &second) == REGX_PENDING); /* behind it */
    kill(side->child, SIGKILL);
    side->child = 0; /* it did not end by itself */
    while (side->broken == 0) {
        progress(side);
    }
    REQUIRE(side->broken == 1);
    REQUIRE(side->done == 2 && side->done_status == REGX_FAILED);
    REQUIRE(regx_tcp_put(side->conn, &put) == REGX_UNREACHABLE);
    REQUIRE(regx_tcp_send(side->conn, 1, NULL, 0, NULL, NULL, 0) == REGX_UNREACHABLE);
    for (int i = 0; i < 100; i++) {
        progress(side);
    }
    REQUIRE(side->broken == 1 && side->done == 2);
    free((void *)(uintptr_t)put.local);
}

static void a_killed_peer_ends_its_puts(void **state)
{
    (void)state;
    run_pair(false, see_it_die, wait_to_be_killed);
}

static void leave_in_mid_put(side_t *side)
{
    regx_put_t put;

    start_endless(side, &put);
    regx_tcp_disconnect(side->conn);
    side->conn = NULL;
    REQUIRE(side->done == 1 && side->done_status == REGX_FAILED);
    free((void *)(uintptr_t)put.local);
    for (int i = 0; i < 100; i++) {
        progress(side);
    }
    REQUIRE(side->done == 1 && side->broken == 0);
    kill(side->child, SIGKILL);
    side->child = 0;
}

static void disconnecting_ends_pending_puts(void **state)
{
    (void)state;
    run_pair(false, leave_in_mid_put, wait_to_be_killed);
}

static void check_only_size(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    (void)side, (void)data;
    REQUIRE(tag == 1 && length == DATA_MAX);
}

/* The other leaves in good order: that is no loss, until something more is wanted of it. */
static void see_it_leave(side_t *side)
{
    regx_status_t status;
    char byte;

    side->deliver = check_only_size;
    while (regx_tcp_send(side->conn, 1, side->pool, DATA_MAX, NULL, NULL, 0) != REGX_OK) {
        progress(side);
    }
    /* Until it closed its end of the other socket, which it does last. */
    while (recv(side->socket, &byte, 1, MSG_DONTWAIT) != 0) {
        progress(side);
    }
    for (int i = 0; i < 1000; i++) {
        progress(side);
    }
    REQUIRE(side->broken == 0);
    while ((status = regx_tcp_send(side->conn, 1, NULL, 0, NULL, NULL, 0)) != REGX_UNREACHABLE) {
        REQUIRE(side->broken == 0);
        progress(side);
    }
    while (side->broken == 0) {
        progress(side);
    }
    REQUIRE(side->broken == 1);
    REQUIRE(side->counters.malformed == 0);
}

static void listen_and_leave(side_t *side)
{
    side->deliver = check_only_size;
    while (side->delivered == 0) {
        progress(side);
    }
}

static void talk_and_leave(side_t *side)
{
    listen_and_leave(side);
    while (regx_tcp_send(side->conn, 1, side->pool, DATA_MAX, NULL, NULL, 0) != REGX_OK) {
        progress(side);
    }
}

static void a_peer_that_leaves_is_not_lost(void **state)
{
    (void)state;
    run_pair(false, see_it_leave, talk_and_leave);
    run_pair(false, see_it_leave, listen_and_leave);
}

/* One that spoke and is killed is told of, though nothing is wanted of it. */
static void see_it_die_idle(side_t *side)
{
    side->deliver = check_only_size;
    while (regx_tcp_send(side->conn, 1, side->pool, DATA_MAX, NULL, NULL, 0) != REGX_OK) {
        progress(side);
    }
    while (side->delivered == 0) {
        progress(side);
    }
    kill(side->child, SIGKILL);
    side->child = 0;
    while (side->broken == 0) {
        progress(side);
    }
    REQUIRE(side->broken == 1);
}

static void talk_and_stay(side_t *side)
{
    char byte;

    talk_and_leave(side);
    hear(side, &byte, 1);
}

static void a_peer_that_dies_is_lost(void **state)
{
    (void)state;
    run_pair(false, see_it_die_idle, talk_and_stay);
}

/* Frames fill the kernel's buffers and UCX's; then the sender disconnects at once. */
static void send_and_leave(side_t *side)
{
    unsigned sent = 0, refused = 0;

    while (refused < 1000) {
        if (regx_tcp_send(side->conn, 1, side->pool, DATA_MAX, NULL, NULL, 0) == REGX_OK) {
            sent++;
            refused = 0;
        } else {
            progress(side);
            refused += sent > 0;
        }
    }
    regx_tcp_disconnect(side->conn);
    side->conn = NULL;
    tell(side, &sent, sizeof(sent));
    for (;;) {
        char byte;

        if (recv(side->socket, &byte, 1, MSG_DONTWAIT) == 1) {
            return;
        }
        progress(side);
    }
}

static void receive_all(side_t *side)
{
    unsigned sent;
    char byte = 0;

    side->deliver = check_only_size;
    while (side->delivered == 0) {
        progress(side);
    }
    hear(side, &sent, sizeof(sent)); /* nothing is read until all was sent */
    while (side->delivered < sent) {
        progress(side);
    }
    tell(side, &byte, 1);
}

static void frames_accepted_before_disconnect_arrive(void **state)
{
    (void)state;
    run_pair(false, send_and_leave, receive_all);
}

static void nobody_listens(void **state)
{
    uint8_t address[REGX_ADDRESS_MAX];
    regx_put_t put = {.target = REGX_TARGET_POOL, .done = done};
    side_t here, gone;
    size_t length;

    (void)state;
    open_side(&here, PARENT, false);
    open_side(&gone, CHILD, false);
    length = regx_tcp_address(gone.tcp, address, sizeof(address));
    assert_int_equal(regx_tcp_connect(here.tcp, CHILD, address, length, &here.conn), REGX_OK);
    close_side(&gone);
    put.context = &here;
    assert_int_equal(regx_tcp_put(here.conn, &put), REGX_PENDING);
    while (here.broken == 0) {
        progress(&here);
    }
    assert_int_equal(here.done, 1);
    assert_int_equal(here.done_status, REGX_FAILED);
    assert_int_equal(regx_tcp_put(here.conn, &put), REGX_UNREACHABLE);
    regx_tcp_disconnect(here.conn);
    close_side(&here);
}

static void malformed_addresses_are_refused(void **state)
{
    uint8_t address[REGX_ADDRESS_MAX], other[REGX_ADDRESS_MAX];
    regx_tcp_conn_t *conn;
    side_t side;
    size_t length;

    (void)state;
    open_side(&side, PARENT, false);
    length = regx_tcp_address(side.tcp, address, sizeof(address));
    assert_int_equal(regx_tcp_address(side.tcp, other, length - 1), 0);
    assert_int_equal(regx_tcp_connect(side.tcp, CHILD, address, length, &conn), REGX_OK);
    regx_tcp_disconnect(conn);
    for (size_t shorter = 0; shorter < length; shorter++) {
        /* In memory of its own length, so that reading beyond it is seen. */
        uint8_t *exact = malloc(shorter + 1);

        assert_non_null(exact);
        memcpy(exact + 1, address, shorter);
        assert_int_equal(regx_tcp_connect(side.tcp, CHILD, exact + 1, shorter, &conn),
                         REGX_INVALID);
        free(exact);
    }
    assert_int_equal(regx_tcp_connect(side.tcp, CHILD, address, length + 1, &conn), REGX_INVALID);
    for (size_t byte = 0; byte < length; byte++) {
        for (unsigned flip = 1; flip < 256; flip++) {
            regx_status_t status;

            memcpy(other, address, length);
            other[byte] ^= (uint8_t)flip;
            status = regx_tcp_connect(side.tcp, CHILD, other, length, &conn);
            assert_true(byte >= 8 || status == REGX_INVALID);
            if (status == REGX_OK) {
                regx_tcp_disconnect(conn);
            }
        }
    }
    close_side(&side);
}

/* ---- threads ---- */

enum { SENDERS = 2, PER_SENDER = 3000 };

/* A frame: number of the sender, number of the frame, stamps. */
static void check_sender(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    unsigned n;

    REQUIRE(tag < SENDERS && length >= sizeof(n));
    memcpy(&n, data, sizeof(n));
    REQUIRE(n == side->received[tag]);
    REQUIRE(is_stamped(data + sizeof(n), length - sizeof(n), stream_of(tag, n)));
    side->received[tag]++;
    /* Sends from here run while others try to. Whether it is accepted does not matter. */
    if (n % 16 == 0) {
        regx_tcp_send(side->conn, SENDERS, NULL, 0, NULL, NULL, 0);
    }
}

static void check_some(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    if (tag < SENDERS) {
        check_sender(side, tag, data, length);
    }
}

typedef struct sender {
    side_t *side;
    uint8_t number;
} sender_t;

static void *send_many(void *argument)
{
    const sender_t *sender = argument;

    for (unsigned n = 0; n < PER_SENDER; n++) {
        uint8_t data[512];
        const size_t length = sizeof(n) + n % 500;

        memcpy(data, &n, sizeof(n));
        stamp(data + sizeof(n), length - sizeof(n), stream_of(sender->number, n), 0);
        for (;;) {
            const regx_status_t status =
                regx_tcp_send(sender->side->conn, sender->number, data, length, NULL, NULL, 0);

            REQUIRE(status == REGX_OK || status == REGX_AGAIN);
            if (status == REGX_OK) {
                break;
            }
            sched_yield();
        }
    }
    return NULL;
}

static void run_threads(side_t *side)
{
    sender_t senders[SENDERS];
    pthread_t threads[SENDERS];
    bool all = false;

    side->deliver = check_some;
    for (uint8_t i = 0; i < SENDERS; i++) {
        senders[i] = (sender_t){.side = side, .number = i};
        REQUIRE(pthread_create(&threads[i], NULL, send_many, &senders[i]) == 0);
    }
    while (!all) {
        char byte;

        progress(side);
        all = true;
        for (int i = 0; i < SENDERS; i++) {
            all = all && side->received[i] == PER_SENDER;
        }
        if (all) {
            /* Go on until the other has everything too. */
            tell(side, "", 1);
            while (recv(side->socket, &byte, 1, MSG_DONTWAIT) != 1) {
                progress(side);
            }
        }
    }
    for (int i = 0; i < SENDERS; i++) {
        pthread_join(threads[i], NULL);
    }
    REQUIRE(side->counters.malformed == 0);
    meet(side);
}

static void threads_share_the_wire(void **state)
{
    (void)state;
    run_pair(true, run_threads, run_threads);
}

/* ---- the process ---- */

static unsigned entries(const char *folder)
{
    DIR *dir = opendir(folder);
    unsigned count = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

static void signals_caught(char line[128])
{
    FILE *file = fopen("/proc/self/status", "r");

    assert_non_null(file);
    do {
        assert_non_null(fgets(line, 128, file));
    } while (strncmp(line, "SigCgt:", 7) != 0);
    fclose(file);
}

static void the_process_stays_as_it_was(void **state)
{
    const unsigned threads = entries("/proc/self/task");
    unsigned files, files_open;
    char before[128], after[128];
    side_t side;

    (void)state;
    /* The first opening may leave something of UCX's for the next. */
    open_side(&side, PARENT, false);
    close_side(&side);
    files = entries("/proc/self/fd");
    signals_caught(before);
    open_side(&side, PARENT, false);
    files_open = entries("/proc/self/fd");
    for (int i = 0; i < 1000; i++) {
        progress(&side);
    }
    signals_caught(after);
    assert_string_equal(before, after);
    assert_int_equal(entries("/proc/self/task"), threads);
    close_side(&side);
    assert_true(files_open > files);
    assert_int_equal(entries("/proc/self/fd"), files);
}

/* What reaches a descriptor while something of UCX's goes wrong. */
static size_t complain(int descriptor, char *text, size_t size)
{
    FILE *file = tmpfile();
    const int saved = dup(descriptor);
    size_t length;

    assert_non_null(file);
    fflush(NULL);
    assert_int_equal(dup2(fileno(file), descriptor), descriptor);
    ucs_error("nothing is %s,\nreally", "wrong");
    fflush(NULL);
    assert_int_equal(dup2(saved, descriptor), descriptor);
    close(saved);
    rewind(file);
    length = fread(text, 1, size - 1, file);
    text[length] = '\0';
    fclose(file);
    return length;
}

static void ucx_complains_on_stderr_alone(void **state)
{
    char text[256];

    (void)state;
    regx_uct_quiet();
    regx_uct_quiet(); /* once is enough, twice does not say it twice */
    assert_int_equal(complain(STDOUT_FILENO, text, sizeof(text)), 0);
    complain(STDERR_FILENO, text, sizeof(text));
    assert_string_equal(text, "regx: UCX: nothing is wrong, really\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ucx_complains_on_stderr_alone),
        cmocka_unit_test(the_process_stays_as_it_was),
        cmocka_unit_test(malformed_addresses_are_refused),
        cmocka_unit_test(frames_arrive_whole_and_in_order),
        cmocka_unit_test(frames_that_are_too_large_are_refused),
        cmocka_unit_test(puts_land_before_their_notice),
        cmocka_unit_test(puts_wait_in_line),
        cmocka_unit_test(revoked_grants_are_not_written),
        cmocka_unit_test(deliver_may_send),
        cmocka_unit_test(a_killed_peer_ends_its_puts),
        cmocka_unit_test(disconnecting_ends_pending_puts),
        cmocka_unit_test(a_peer_that_leaves_is_not_lost),
        cmocka_unit_test(a_peer_that_dies_is_lost),
        cmocka_unit_test(frames_accepted_before_disconnect_arrive),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(threads_share_the_wire),
    };

    return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The verbs transport on a real device: two of them in this process, every byte checked. Where
 * there is no device (test/machine has one) nothing is tried.
 */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "transport/verbs/internal.h"

extern const regx_transport_ops_t regx_transport_ops;

enum { POOL = 256 * 1024, ONE = 1000001, TWO = 2000002, MIB = 1 << 20 };

typedef struct side {
    regx_transport_config_t config;
    regx_counters_t counters;
    regx_transport_t *transport;
    regx_conn_t *conn;
    uint64_t self, other;
    /* What arrived. */
    unsigned delivered;
    size_t last_length;
    uint8_t last_tag;
    uint8_t last[REGX_VERBS_LEND_MAX];
    unsigned broken;
    char what[160];
    void (*on_deliver)(struct side *side);
    const uint8_t *watched; /* when a notice comes, this must show stream `watched_stream` */
    size_t watched_length;
    uint64_t watched_stream;
} side_t;

static side_t one, two;
static unsigned done_ok, done_failed;

static void stamp(uint8_t *at, uint64_t stream, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        at[i] = unit_stamp(stream, i);
    }
}

static bool is_stamped(const uint8_t *at, uint64_t stream, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (at[i] != unit_stamp(stream, i)) {
            return false;
        }
    }
    return true;
}

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    side_t *side = context;

    assert_true(sender == side->other);
    assert_true(length <= sizeof(side->last));
    memcpy(side->last, data, length);
    side->last_length = length;
    side->last_tag = tag;
    side->delivered++;
    if (side->watched != NULL) {
        assert_true(is_stamped(side->watched, side->watched_stream, side->watched_length));
    }
    if (side->on_deliver != NULL) {
        side->on_deliver(side);
    }
}

static void broken(void *context, uint64_t peer, const char *what)
{
    side_t *side = context;

    assert_true(peer == side->other);
    side->broken++;
    snprintf(side->what, sizeof(side->what), "%s", what);
}

static void put_done(regx_put_t *put, regx_status_t status)
{
    (void)put;
    *(status == REGX_OK ? &done_ok : &done_failed) += 1;
}

static void get_done(regx_get_t *get, regx_status_t status)
{
    (void)get;
    *(status == REGX_OK ? &done_ok : &done_failed) += 1;
}

static void lend_done(regx_lend_t *lend, regx_status_t status)
{
    (void)lend;
    *(status == REGX_OK ? &done_ok : &done_failed) += 1;
}

static regx_verbs_t *verbs_of(const side_t *side)
{
    return (regx_verbs_t *)side->transport;
}

static void open_side(side_t *side, uint64_t self, uint64_t other, bool threads)
{
    char error[256];

    memset(side, 0, sizeof(*side));
    side->self = self;
    side->other = other;
    side->counters.threads = threads;
    side->config = (regx_transport_config_t){
        .self = self,
        .pool_size = POOL,
        .pool_least = POOL,
        .threads = threads,
        .counters = &side->counters,
        .events = {.context = side, .deliver = deliver, .broken = broken}};
    const regx_status_t status =
        regx_transport_ops.open(&side->config, error, sizeof(error), &side->transport);
    if (status == REGX_UNREACHABLE) {
        printf("not tried: %s\n", error);
        fflush(stdout);
        skip();
    }
    if (status != REGX_OK) {
        fprintf(stderr, "%s\n", error);
    }
    assert_int_equal(status, REGX_OK);
}

static void connect_side(side_t *side, const side_t *to)
{
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = regx_transport_ops.address(to->transport, address);

    assert_int_equal(regx_transport_ops.connect(side->transport, side->other, false, address,
                                                length, &side->conn),
                     REGX_OK);
}

static void progress(void)
{
    regx_transport_ops.progress(one.transport);
    regx_transport_ops.progress(two.transport);
}

static void open_both(bool threads)
{
    done_ok = done_failed = 0;
    open_side(&one, ONE, TWO, threads);
    open_side(&two, TWO, ONE, threads);
    connect_side(&one, &two);
    connect_side(&two, &one);
}

/* Nothing may be left over, and nothing malformed was seen. */
static void close_both(void)
{
    side_t *const sides[] = {&one, &two};

    for (int i = 0; i < 2; i++) {
        if (sides[i]->conn != NULL) {
            regx_transport_ops.disconnect(sides[i]->conn);
        }
    }
    /* In one process neither may wait for the other: first what both accepted, then the ends. */
    while (verbs_of(&one)->leaving || verbs_of(&two)->leaving) {
        progress();
    }
    progress(); /* what was cut is no longer counted once the completion queue was seen empty */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(verbs_of(sides[i])->outstanding, verbs_of(sides[i])->quiet);
        regx_transport_ops.close(sides[i]->transport);
        assert_int_equal(sides[i]->counters.malformed, 0);
    }
}

static void pack(void *context, void *to, size_t length)
{
    stamp(to, *(const uint64_t *)context, length);
}

/* Sends a stamped frame, however long it takes to get room. */
static void send(const side_t *from, uint8_t tag, uint64_t stream, size_t length)
{
    regx_status_t status;

    while ((status = regx_transport_ops.send(from->conn, tag, NULL, 0, pack, &stream, length)) ==
           REGX_AGAIN) {
        progress();
    }
    assert_int_equal(status, REGX_OK);
}

static void await(const unsigned *count, unsigned value)
{
    while (*count < value) {
        progress();
    }
    assert_int_equal(*count, value);
}

static void frames_of_all_sizes(void **state)
{
    const size_t sizes[] = {0,    1,    8,    255,  256,   257,   4096,
                            8191, 8192, 8448, 8449, 16384, 16385, REGX_VERBS_FRAME_MAX};
    unsigned count = 0;

    (void)state;
    open_both(false);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        count++;
        send(&one, (uint8_t)i, i, sizes[i]);
        await(&two.delivered, count);
        assert_int_equal(two.last_tag, i);
        assert_int_equal(two.last_length, sizes[i]);
        assert_true(is_stamped(two.last, i, sizes[i]));
        send(&two, (uint8_t)(100 + i), 1000 + i, sizes[i]);
        await(&one.delivered, count);
        assert_int_equal(one.last_tag, 100 + i);
        assert_true(is_stamped(one.last, 1000 + i, sizes[i]));
    }
    assert_int_equal(
        regx_transport_ops.send(one.conn, 0, NULL, 0, pack, &one.self, REGX_VERBS_FRAME_MAX + 1),
        REGX_INVALID);
    close_both();
}

static void header_and_payload(void **state)
{
    uint8_t header[256];
    uint64_t stream = 9;

    (void)state;
    open_both(false);
    stamp(header, 8, sizeof(header));
    for (size_t payload = 0; payload <= 3000; payload += 1500) {
        regx_status_t status;

        while ((status = regx_transport_ops.send(one.conn, 3, header, sizeof(header), pack, &stream,
                                                 payload)) == REGX_AGAIN) {
            progress();
        }
        assert_int_equal(status, REGX_OK);
        await(&two.delivered, (unsigned)(payload / 1500) + 1);
        assert_int_equal(two.last_length, sizeof(header) + payload);
        assert_true(is_stamped(two.last, 8, sizeof(header)));
        assert_true(is_stamped(two.last + sizeof(header), 9, payload));
    }
    close_both();
}

static unsigned expected;

static void in_order(side_t *side)
{
    assert_int_equal(side->last_tag, expected % 251);
    assert_true(is_stamped(side->last, expected, side->last_length));
    expected++;
}

/* Far more than the receive queue and the slots hold, while the receiver does not look; all comes,
 * in order, and nothing else. */
static void flood(void **state)
{
    const size_t sizes[] = {40, 3000, 200, 16000};
    unsigned accepted = 0, refused = 0;

    (void)state;
    open_both(false);
    send(&one, 0, 0, 1); /* connects */
    await(&two.delivered, 1);
    expected = accepted = 1;
    two.on_deliver = in_order;
    while (refused < 100000) {
        uint64_t stream = accepted;

        if (regx_transport_ops.send(one.conn, (uint8_t)(accepted % 251), NULL, 0, pack, &stream,
                                    sizes[accepted % 4]) == REGX_OK) {
            accepted++;
        } else {
            refused++;
            regx_transport_ops.progress(one.transport);
        }
    }
    assert_int_equal(two.delivered, 1);
    assert_true(accepted > 32);
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t stream = accepted;

        while (regx_transport_ops.send(one.conn, (uint8_t)(accepted % 251), NULL, 0, pack, &stream,
                                       sizes[accepted % 4]) == REGX_AGAIN) {
            progress();
        }
        accepted++;
    }
    await(&two.delivered, accepted);
    close_both();
}

static void lends(void **state)
{
    const size_t sizes[] = {0, 1, 8448, 8449, 65535, 65536};
    regx_lend_t lend = {.tag = 7, .done = lend_done};

    (void)state;
    open_both(false);
    lend.data = one.transport->pool_memory;
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        regx_status_t status;

        stamp(one.transport->pool_memory, i, sizes[i]);
        lend.length = sizes[i];
        while ((status = regx_transport_ops.lend(one.conn, &lend)) == REGX_AGAIN) {
            progress();
        }
        assert_int_equal(status, REGX_PENDING);
        await(&two.delivered, i + 1);
        await(&done_ok, i + 1);
        assert_int_equal(two.last_length, sizes[i]);
        assert_true(is_stamped(two.last, i, sizes[i]));
    }
    close_both();
}

static regx_put_t new_put(const void *local, size_t length, regx_target_t target, uint64_t offset)
{
    return (regx_put_t){.local = local,
                        .length = length,
                        .target = target,
                        .offset = offset,
                        .tag = 5,
                        .notice_length = 3,
                        .notice = "ab",
                        .done = put_done};
}

/* The notice finds the bytes there, and none beyond them. */
static void do_put(regx_put_t *put, uint8_t *at, uint64_t stream)
{
    const unsigned before = two.delivered, was_done = done_ok;

    two.watched = at;
    two.watched_length = put->length;
    two.watched_stream = stream;
    assert_int_equal(regx_transport_ops.put(one.conn, put), REGX_PENDING);
    await(&two.delivered, before + 1);
    await(&done_ok, was_done + 1);
    assert_int_equal(two.last_tag, 5);
    assert_int_equal(two.last_length, 3);
    assert_memory_equal(two.last, "ab", 3);
    two.watched = NULL;
}

static void puts_to_the_pool(void **state)
{
    const size_t sizes[] = {0, 1, 4095, 16383, 16384, 16385, 65536, 200000};

    (void)state;
    open_both(false);

    uint8_t *local = malloc(POOL);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        regx_put_t put = new_put(local, sizes[i], REGX_TARGET_POOL, 4096);
        uint8_t *pool = two.transport->pool_memory;

        memset(pool, 0xee, POOL);
        stamp(local, i, sizes[i]);
        do_put(&put, pool + 4096, i);
        assert_int_equal(pool[4095], 0xee);
        assert_int_equal(pool[4096 + sizes[i]], 0xee);
        /* The same from the own pool, without a copy. */
        stamp(one.transport->pool_memory, 100 + i, sizes[i]);
        put = new_put(one.transport->pool_memory, sizes[i], REGX_TARGET_POOL, 8192);
        do_put(&put, pool + 8192, 100 + i);
    }
    regx_put_t outside = new_put(local, 4096, REGX_TARGET_POOL, POOL - 4095);
    assert_int_equal(regx_transport_ops.put(one.conn, &outside), REGX_INVALID);
    outside = new_put(local, 1, REGX_TARGET_POOL, UINT64_MAX);
    assert_int_equal(regx_transport_ops.put(one.conn, &outside), REGX_INVALID);
    close_both();
    free(local);
}

static void reg(const side_t *side, void *base, size_t length, unsigned access, regx_mr_t *mr)
{
    assert_int_equal(regx_transport_ops.reg(side->transport, base, length, access, mr), REGX_OK);
}

static void puts_to_a_region(void **state)
{
    regx_mr_t local, remote;

    (void)state;
    open_both(false);

    uint8_t *from = malloc(4 * MIB), *to = malloc(4 * MIB);
    reg(&one, from, 4 * MIB, REGX_ACCESS_LOCAL, &local);
    reg(&two, to + 100, 3 * MIB, REGX_ACCESS_REMOTE_WRITE, &remote);
    for (size_t length = 1; length <= 3 * MIB; length = length * 7 + 13) {
        regx_put_t put = new_put(from + 5, length, REGX_TARGET_REGION, 3 * MIB - length);

        memset(to, 0xee, 4 * MIB);
        stamp(from + 5, length, length);
        put.region = &local;
        put.key = remote.key;
        do_put(&put, to + 100 + 3 * MIB - length, length);
        assert_int_equal(to[100 + 3 * MIB], 0xee);
        assert_int_equal(to[99 + 3 * MIB - length], 0xee);
        put = new_put(from + 5, length, REGX_TARGET_REGION, 3 * MIB - length + 1);
        put.region = &local;
        put.key = remote.key;
        assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_INVALID);
    }
    regx_transport_ops.dereg(one.transport, &local);
    regx_transport_ops.dereg(two.transport, &remote);
    close_both();
    free(from);
    free(to);
}

static regx_get_t new_get(void *local, size_t length, const regx_mr_t *into, const regx_mr_t *from,
                          uint64_t offset)
{
    return (regx_get_t){.local = local,
                        .length = length,
                        .region = into,
                        .offset = offset,
                        .key = from->key,
                        .done = get_done};
}

/* All lengths, in one piece and in several; nothing beyond is read or written, and the peer is told
 * nothing. */
static void gets_of_a_region(void **state)
{
    regx_mr_t into, remote;

    (void)state;
    open_both(false);

    uint8_t *to = malloc(4 * MIB), *from = malloc(4 * MIB);
    send(&one, 1, 1, 1);
    await(&two.delivered, 1);
    reg(&one, to, 4 * MIB, REGX_ACCESS_LOCAL_WRITE, &into);
    reg(&two, from + 100, 3 * MIB, REGX_ACCESS_REMOTE_READ, &remote);
    for (size_t length = 1, i = 1; length <= 3 * MIB; length = length * 7 + 13, i++) {
        const size_t start = 3 * MIB - length;
        regx_get_t get = new_get(to + 7, length, &into, &remote, start);

        verbs_of(&one)->piece_most = i % 2 == 0 ? 4096 * i : 1u << 30;
        memset(to, 0xee, 4 * MIB);
        stamp(from + 100 + start, length, length);
        assert_int_equal(regx_transport_ops.get(one.conn, &get), REGX_PENDING);
        await(&done_ok, (unsigned)i);
        assert_true(is_stamped(to + 7, length, length));
        assert_int_equal(to[6], 0xee);
        assert_int_equal(to[7 + length], 0xee);
        get.offset++; /* a byte further than it goes */
        assert_int_equal(regx_transport_ops.get(one.conn, &get), REGX_INVALID);
        get.offset = UINT64_MAX;
        assert_int_equal(regx_transport_ops.get(one.conn, &get), REGX_INVALID);
        get = new_get(to + 4 * MIB - length + 1, length, &into, &remote, 0);
        assert_int_equal(regx_transport_ops.get(one.conn, &get), REGX_INVALID);
    }
    assert_int_equal(two.delivered, 1);
    regx_transport_ops.dereg(one.transport, &into);
    regx_transport_ops.dereg(two.transport, &remote);
    close_both();
    free(from);
    free(to);
}

/* Far more than may be under way at once, and frames overtake them. */
static void gets_in_line(void **state)
{
    enum { GETS = 100, LENGTH = 50000 };
    static regx_get_t gets[GETS];
    regx_mr_t into, remote;

    (void)state;
    open_both(false);

    uint8_t *to = calloc(GETS, LENGTH), *from = malloc((size_t)GETS * LENGTH);
    send(&one, 1, 1, 1);
    await(&two.delivered, 1);
    const regx_pair_t *pair = regx_pair_find(verbs_of(&one), TWO);
    assert_in_range(pair->reads_most, 1, REGX_VERBS_READS);
    reg(&one, to, (size_t)GETS * LENGTH, REGX_ACCESS_LOCAL_WRITE, &into);
    reg(&two, from, (size_t)GETS * LENGTH, REGX_ACCESS_REMOTE_READ, &remote);
    for (unsigned i = 0; i < GETS; i++) {
        stamp(from + (size_t)i * LENGTH, i, LENGTH);
        gets[i] = new_get(to + (size_t)i * LENGTH, LENGTH, &into, &remote, (uint64_t)i * LENGTH);
        assert_int_equal(regx_transport_ops.get(one.conn, &gets[i]), REGX_PENDING);
        assert_in_range(pair->reads, 1, pair->reads_most);
    }
    send(&one, 2, 2, 100);
    assert_non_null(pair->first_get); /* it did not wait for them */
    while (done_ok < GETS) {
        progress();
        assert_in_range(pair->reads, 0, pair->reads_most);
    }
    for (unsigned i = 0; i < GETS; i++) {
        assert_true(is_stamped(to + (size_t)i * LENGTH, i, LENGTH));
    }
    await(&two.delivered, 2);
    assert_int_equal(pair->reads, 0);
    regx_transport_ops.dereg(one.transport, &into);
    regx_transport_ops.dereg(two.transport, &remote);
    close_both();
    free(from);
    free(to);
}

/* Gets of memory that cannot be read (any more) fail, all of them, and none brings a byte of it: a
 * dead key, one that grants writing alone, and a queue pair that is cut. */
static void gets_that_fail(void **state)
{
    enum { GETS = 20 };
    regx_get_t gets[GETS];

    (void)state;
    for (int how = 0; how < 3; how++) {
        regx_mr_t into, remote;

        open_both(false);
        uint8_t *to = malloc(MIB), *from = calloc(1, MIB);
        send(&one, 1, 1, 1);
        await(&two.delivered, 1);
        reg(&one, to, MIB, REGX_ACCESS_LOCAL_WRITE, &into);
        reg(&two, from, MIB, how == 1 ? REGX_ACCESS_REMOTE_WRITE : REGX_ACCESS_REMOTE_READ,
            &remote);
        memset(to, 0xee, MIB);
        for (int i = 0; i < GETS; i++) {
            gets[i] = new_get(to, MIB, &into, &remote, 0);
        }
        if (how == 0) {
            regx_transport_ops.dereg(two.transport, &remote);
        }
        for (int i = 0; i < GETS; i++) {
            assert_int_equal(regx_transport_ops.get(one.conn, &gets[i]), REGX_PENDING);
        }
        if (how == 2) {
            regx_transport_ops.disconnect(one.conn);
            one.conn = NULL;
            assert_int_equal(done_ok + done_failed, GETS);
        } else {
            await(&one.broken, 1);
            assert_int_equal(done_ok, 0);
            assert_non_null(strstr(one.what, "RDMA READ: "));
            assert_non_null(strstr(one.what, "remote access error"));
            for (size_t i = 0; i < MIB; i++) {
                assert_int_equal(to[i], 0xee);
            }
            assert_int_equal(regx_transport_ops.get(one.conn, &gets[0]), REGX_UNREACHABLE);
        }
        assert_int_equal(done_failed + done_ok, GETS);
        regx_transport_ops.dereg(one.transport, &into);
        if (how > 0) {
            regx_transport_ops.dereg(two.transport, &remote);
        }
        close_both();
        free(from);
        free(to);
    }
}

/* Puts queue up behind one another and before frames; all of them come in order. */
static void puts_in_line(void **state)
{
    enum { PUTS = 40, LENGTH = 60000 };
    regx_put_t puts[PUTS];

    (void)state;
    open_both(false);

    uint8_t *local = malloc((size_t)PUTS * LENGTH);
    expected = 0;
    for (unsigned i = 0; i < PUTS; i++) {
        stamp(local + (size_t)i * LENGTH, i, LENGTH);
        puts[i] = new_put(local + (size_t)i * LENGTH, LENGTH, REGX_TARGET_POOL, 0);
        puts[i].tag = (uint8_t)i;
        puts[i].notice_length = 20;
        stamp(puts[i].notice, i, 20);
        assert_int_equal(regx_transport_ops.put(one.conn, &puts[i]), REGX_PENDING);
    }
    two.on_deliver = in_order;
    send(&one, PUTS, PUTS, 100);
    await(&two.delivered, PUTS + 1);
    await(&done_ok, PUTS);
    assert_true(is_stamped(two.transport->pool_memory, PUTS - 1, LENGTH));
    close_both();
    free(local);
}

static void answer(side_t *side)
{
    uint64_t stream = side->last_tag;

    if (side->last_tag > 0) {
        /* From inside deliver, on a connection that may not have been used before. */
        if (regx_transport_ops.send(side->conn, side->last_tag - 1, NULL, 0, pack, &stream, 500) ==
            REGX_AGAIN) {
            side->on_deliver = NULL;
        }
    }
}

static void calls_from_inside(void **state)
{
    (void)state;
    open_both(false);
    send(&two, 0, 0, 1);
    await(&one.delivered, 1);
    one.on_deliver = two.on_deliver = answer;
    send(&one, 200, 0, 500);
    while (one.last_tag > 1 || two.last_tag > 1 || one.delivered + two.delivered < 202) {
        progress();
    }
    assert_non_null(one.on_deliver);
    assert_non_null(two.on_deliver);
    close_both();
}

/* Both ask at once, and one asks while the other does not answer for long. */
static void handshakes(void **state)
{
    uint64_t stream = 3;

    (void)state;
    open_both(false);
    assert_int_equal(regx_transport_ops.send(one.conn, 1, NULL, 0, pack, &stream, 10), REGX_AGAIN);
    assert_int_equal(regx_transport_ops.send(two.conn, 1, NULL, 0, pack, &stream, 10), REGX_AGAIN);
    send(&one, 1, 3, 10);
    send(&two, 1, 3, 10);
    await(&one.delivered, 1);
    await(&two.delivered, 1);
    close_both();

    open_both(false);
    assert_int_equal(regx_transport_ops.send(one.conn, 1, NULL, 0, pack, &stream, 10), REGX_AGAIN);
    while (verbs_of(&one)->asking->asked < 5) {
        regx_transport_ops.progress(one.transport); /* says hello again and again */
    }
    send(&one, 1, 3, 10);
    await(&two.delivered, 1);
    assert_null(verbs_of(&one)->asking);
    close_both();
}

/* A process talks to itself by the same means. */
static void to_itself(void **state)
{
    (void)state;
    done_ok = done_failed = 0;
    open_side(&one, ONE, ONE, false);
    connect_side(&one, &one);
    for (unsigned i = 1; i <= 20; i++) {
        regx_status_t status;
        uint64_t stream = i;

        while ((status = regx_transport_ops.send(one.conn, 1, NULL, 0, pack, &stream, i * 800)) ==
               REGX_AGAIN) {
            regx_transport_ops.progress(one.transport);
        }
        assert_int_equal(status, REGX_OK);
        while (one.delivered < i) {
            regx_transport_ops.progress(one.transport);
        }
        assert_true(is_stamped(one.last, i, i * 800));
    }
    regx_transport_ops.disconnect(one.conn);
    regx_transport_ops.close(one.transport);
}

/* A key that was given back opens nothing: the writer gets an error, told once, by a line that
 * names operation and status; every put ends exactly once. */
static void dead_key(void **state)
{
    regx_mr_t local, remote;
    regx_put_t puts[3];

    (void)state;
    open_both(false);

    uint8_t *from = malloc(MIB), *to = malloc(MIB);
    send(&one, 1, 1, 1);
    await(&two.delivered, 1);
    reg(&one, from, MIB, REGX_ACCESS_LOCAL, &local);
    reg(&two, to, MIB, REGX_ACCESS_REMOTE_WRITE, &remote);
    memset(to, 0xee, MIB);
    regx_transport_ops.dereg(two.transport, &remote);
    for (int i = 0; i < 3; i++) {
        puts[i] = new_put(from, MIB, REGX_TARGET_REGION, 0);
        puts[i].region = &local;
        puts[i].key = remote.key;
        assert_int_equal(regx_transport_ops.put(one.conn, &puts[i]), REGX_PENDING);
    }
    await(&one.broken, 1);
    assert_int_equal(done_failed, 3);
    assert_int_equal(done_ok, 0);
    assert_non_null(strstr(one.what, "RDMA WRITE: "));
    assert_non_null(strstr(one.what, "remote access error"));
    assert_int_equal(two.delivered, 1);
    for (size_t i = 0; i < MIB; i++) {
        assert_int_equal(to[i], 0xee);
    }
    assert_false(regx_transport_ops.reachable(one.conn));
    assert_int_equal(regx_transport_ops.send(one.conn, 1, NULL, 0, NULL, NULL, 0),
                     REGX_UNREACHABLE);
    assert_int_equal(regx_transport_ops.put(one.conn, &puts[0]), REGX_UNREACHABLE);
    for (int i = 0; i < 1000; i++) {
        regx_transport_ops.progress(one.transport);
    }
    assert_int_equal(one.broken, 1);
    regx_transport_ops.dereg(one.transport, &local);
    close_both();
    free(from);
    free(to);
}

/* The same for memory that was registered to be read only, by this process or by others, or to be
 * written by this process. */
static void key_of_the_wrong_kind(void **state)
{
    static const unsigned kinds[] = {REGX_ACCESS_LOCAL, REGX_ACCESS_REMOTE_READ,
                                     REGX_ACCESS_LOCAL_WRITE};

    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        regx_mr_t remote;

        open_both(false);
        uint8_t *memory = calloc(1, 8192);
        reg(&two, memory, 8192, kinds[kind], &remote);
        regx_put_t put = new_put(one.transport->pool_memory, 4096, REGX_TARGET_REGION, 0);
        memset(one.transport->pool_memory, 1, 4096);
        put.key = remote.key;
        assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_PENDING);
        await(&one.broken, 1);
        assert_int_equal(done_failed, 1);
        for (int i = 0; i < 8192; i++) {
            assert_int_equal(memory[i], 0);
        }
        regx_transport_ops.dereg(two.transport, &remote);
        close_both();
        free(memory);
    }
}

/* The peer's queue pair fails, or its process is gone: what is under way ends, within the device's
 * own retries. */
static void peer_fails(void **state)
{
    regx_lend_t lend = {.tag = 7, .done = lend_done, .length = 60000};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    uint64_t stream = 1;

    (void)state;
    open_both(false);
    send(&one, 1, 1, 1);
    await(&two.delivered, 1);
    regx_pair_t *pair = regx_pair_find(verbs_of(&two), ONE);
    assert_int_equal(ibv_modify_qp(pair->qp, &attr, IBV_QP_STATE), 0);
    lend.data = one.transport->pool_memory;
    assert_int_equal(regx_transport_ops.send(one.conn, 1, NULL, 0, pack, &stream, 5000), REGX_OK);
    assert_int_equal(regx_transport_ops.lend(one.conn, &lend), REGX_PENDING);
    while (one.broken == 0) {
        regx_transport_ops.progress(one.transport);
    }
    assert_int_equal(done_failed, 1);
    assert_non_null(strstr(one.what, "SEND: "));
    assert_int_equal(verbs_of(&one)->buffers.slot_count, REGX_VERBS_SLOTS);
    regx_transport_ops.progress(one.transport);
    assert_int_equal(verbs_of(&one)->outstanding, 0);
    close_both();
}

/* One that only hears of the other, and asks soon whether it is there. */
static regx_pair_t *open_listener(void)
{
    open_both(false);
    verbs_of(&one)->settings.timeout = 14;
    verbs_of(&one)->idle_ns = 1000000;
    send(&two, 1, 1, 100);
    await(&one.delivered, 1);

    regx_pair_t *pair = regx_pair_find(verbs_of(&one), TWO);
    assert_null(pair->conn); /* nothing was sent */
    return pair;
}

/* Nobody sends to the peer, and it fails. */
static void silent_peer_fails(void **state)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    (void)state;
    open_listener();
    assert_int_equal(ibv_modify_qp(regx_pair_find(verbs_of(&two), ONE)->qp, &attr, IBV_QP_STATE),
                     0);
    while (one.broken == 0) {
        regx_transport_ops.progress(one.transport);
    }
    assert_non_null(strstr(one.what, "keepalive: "));
    close_both();
}

/* The peer's process stands still, which is no failure, and its device answers for as long as it
 * takes; until it leaves, and is not asked any more. */
static void silent_peer_lives(void **state)
{
    (void)state;

    const regx_pair_t *pair = open_listener();
    while (pair->done < 3 * REGX_PAIR_DEPTH) {
        regx_transport_ops.progress(one.transport);
    }
    assert_int_equal(one.broken, 0);
    assert_int_equal(two.delivered, 0);
    regx_transport_ops.disconnect(two.conn);
    while (!pair->parted) {
        progress();
    }
    connect_side(&two, &one);
    verbs_of(&one)->look_next = 0;
    const uint64_t posted = pair->posted;
    verbs_of(&one)->idle_ns = 0;
    for (int i = 0; i < 100; i++) {
        regx_keepalive_progress(verbs_of(&one));
    }
    assert_true(pair->posted == posted);
    close_both();
}

/* The own queue pair is driven to error from outside, in the middle of puts. */
static void own_queue_pair_fails(void **state)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    regx_put_t puts[8];

    (void)state;
    open_both(false);

    uint8_t *local = calloc(1, POOL);
    send(&one, 1, 1, 1);
    await(&two.delivered, 1);
    for (int i = 0; i < 8; i++) {
        puts[i] = new_put(local, POOL, REGX_TARGET_POOL, 0);
        assert_int_equal(regx_transport_ops.put(one.conn, &puts[i]), REGX_PENDING);
    }
    assert_int_equal(ibv_modify_qp(regx_pair_find(verbs_of(&one), TWO)->qp, &attr, IBV_QP_STATE),
                     0);
    await(&one.broken, 1);
    assert_int_equal(done_ok + done_failed, 8);
    assert_true(done_failed > 0);
    assert_int_equal(verbs_of(&one)->buffers.slot_count, REGX_VERBS_SLOTS);
    assert_int_equal(verbs_of(&one)->quiet, 0);
    close_both();
    free(local);
}

static void disconnecting_ends_puts(void **state)
{
    regx_put_t puts[8];

    (void)state;
    open_both(false);

    uint8_t *local = calloc(1, POOL);
    send(&one, 1, 1, 1);
    await(&two.delivered, 1);
    for (int i = 0; i < 8; i++) {
        puts[i] = new_put(local, POOL, REGX_TARGET_POOL, 0);
        assert_int_equal(regx_transport_ops.put(one.conn, &puts[i]), REGX_PENDING);
    }
    regx_transport_ops.disconnect(one.conn);
    one.conn = NULL;
    assert_int_equal(done_ok + done_failed, 8);
    assert_true(done_failed > 0);
    assert_int_equal(one.broken, 0);
    close_both();
    free(local);
}

/* A peer that has disconnected may come again, and be called again. */
static void again_after_disconnecting(void **state)
{
    (void)state;
    open_both(false);
    for (unsigned round = 1; round <= 5; round++) {
        send(&one, 1, round, 3000);
        send(&two, 1, round, 3000);
        await(&one.delivered, round);
        await(&two.delivered, round);
        regx_transport_ops.disconnect(one.conn);
        regx_transport_ops.disconnect(two.conn);
        while (verbs_of(&one)->leaving || verbs_of(&two)->leaving) {
            progress();
        }
        connect_side(&one, &two);
        connect_side(&two, &one);
    }
    assert_int_equal(one.broken + two.broken, 0);
    close_both();
}

/* A datagram that comes after its queue pair has ended leads nobody to it. */
static void hello_that_comes_late(void **state)
{
    uint8_t bytes[REGX_VERBS_HELLO_SIZE];

    (void)state;
    open_both(false);
    send(&one, 1, 1, 3000);
    send(&two, 1, 1, 3000);
    await(&one.delivered, 1);
    await(&two.delivered, 1);

    const regx_pair_t *pair = regx_pair_find(verbs_of(&one), TWO);
    const regx_verbs_hello_t hello = {.flags = REGX_VERBS_ASKS,
                                      .qpn = pair->qp->qp_num,
                                      .psn = pair->psn,
                                      .from = ONE,
                                      .to = TWO,
                                      .address = verbs_of(&one)->address};
    regx_verbs_hello_pack(&hello, bytes);
    regx_transport_ops.disconnect(one.conn);
    regx_transport_ops.disconnect(two.conn);
    while (verbs_of(&one)->pairs != NULL || verbs_of(&two)->pairs != NULL) {
        progress();
    }
    regx_hello_receive(verbs_of(&two), bytes, sizeof(bytes));
    assert_null(verbs_of(&two)->pairs);
    connect_side(&one, &two);
    connect_side(&two, &one);
    send(&one, 1, 2, 3000);
    await(&two.delivered, 2);
    assert_int_equal(one.broken + two.broken, 0);
    close_both();
}

static void memory_that_cannot_be_registered(void **state)
{
    const size_t page = 4096;
    regx_mr_t mr;

    (void)state;
    open_both(false);
    uint8_t *memory = mmap(NULL, 4 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    reg(&one, memory, 4 * page, REGX_ACCESS_LOCAL, &mr); /* to send from it */
    regx_transport_ops.dereg(one.transport, &mr);
    assert_int_equal(
        regx_transport_ops.reg(one.transport, memory, 4 * page, REGX_ACCESS_REMOTE_WRITE, &mr),
        REGX_DENIED);
    assert_int_equal(munmap(memory + page, page), 0);
    assert_int_equal(
        regx_transport_ops.reg(one.transport, memory, 4 * page, REGX_ACCESS_LOCAL, &mr),
        REGX_DENIED);
    munmap(memory, 4 * page);
    close_both();
}

static void hostile_addresses(void **state)
{
    uint8_t address[REGX_ADDRESS_MAX];
    regx_conn_t *conn;

    (void)state;
    open_both(false);
    const size_t length = regx_transport_ops.address(two.transport, address);
    assert_int_equal(
        regx_transport_ops.connect(one.transport, 77, false, address, length - 1, &conn),
        REGX_INVALID);
    address[1] = REGX_VERBS_INFINIBAND;
    assert_int_equal(regx_transport_ops.connect(one.transport, 77, false, address, length, &conn),
                     REGX_UNREACHABLE);
    close_both();
}

static _Atomic bool stop, sender_ended;

static void *progress_two(void *nothing)
{
    while (!stop) {
        regx_transport_ops.progress(two.transport);
    }
    return nothing;
}

static void *send_many(void *nothing)
{
    uint64_t stream = 4;

    for (int i = 0; i < 300; i++) {
        while (regx_transport_ops.send(one.conn, 2, NULL, 0, pack, &stream, (size_t)i * 20) !=
               REGX_OK) {
            sched_yield();
        }
    }
    sender_ended = true;
    return nothing;
}

/* Two threads send at once while others make progress. */
static void threads(void **state)
{
    pthread_t sender, progresser;

    (void)state;
    open_both(true);
    stop = sender_ended = false;
    pthread_create(&progresser, NULL, progress_two, NULL);
    pthread_create(&sender, NULL, send_many, NULL);
    for (int i = 0; i < 300; i++) {
        uint64_t stream = 5;

        while (regx_transport_ops.send(one.conn, 2, NULL, 0, pack, &stream, (size_t)i * 20) !=
               REGX_OK) {
            regx_transport_ops.progress(one.transport);
        }
    }
    while (!sender_ended) {
        regx_transport_ops.progress(one.transport);
    }
    pthread_join(sender, NULL);
    stop = true;
    pthread_join(progresser, NULL);
    await(&two.delivered, 600);
    close_both();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_all_sizes),
        cmocka_unit_test(header_and_payload),
        cmocka_unit_test(flood),
        cmocka_unit_test(lends),
        cmocka_unit_test(puts_to_the_pool),
        cmocka_unit_test(puts_to_a_region),
        cmocka_unit_test(puts_in_line),
        cmocka_unit_test(gets_of_a_region),
        cmocka_unit_test(gets_in_line),
        cmocka_unit_test(gets_that_fail),
        cmocka_unit_test(calls_from_inside),
        cmocka_unit_test(handshakes),
        cmocka_unit_test(to_itself),
        cmocka_unit_test(dead_key),
        cmocka_unit_test(key_of_the_wrong_kind),
        cmocka_unit_test(peer_fails),
        cmocka_unit_test(silent_peer_fails),
        cmocka_unit_test(silent_peer_lives),
        cmocka_unit_test(own_queue_pair_fails),
        cmocka_unit_test(disconnecting_ends_puts),
        cmocka_unit_test(again_after_disconnecting),
        cmocka_unit_test(hello_that_comes_late),
        cmocka_unit_test(memory_that_cannot_be_registered),
        cmocka_unit_test(hostile_addresses),
        cmocka_unit_test(threads),
    };

    return cmocka_run_group_tests_name("verbs", tests, NULL, NULL);
}

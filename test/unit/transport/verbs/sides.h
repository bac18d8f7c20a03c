/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the verbs transport on a real device: two of them in this process, and what
 * arrived at each. Where there is no device (test/machine has one) nothing is tried.
 */
#ifndef REGX_TEST_SIDES_H
#define REGX_TEST_SIDES_H

#include "../../unit.h"

#include <stdio.h>

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
    unsigned delivered, immediates;
    uint32_t last_immediate;
    size_t last_length;
    uint8_t last_tag;
    uint8_t last[REGX_VERBS_LEND_MAX];
    unsigned broken, silent;
    char what[160];
    void (*on_deliver)(struct side *side);
    const uint8_t *watched; /* when a notice comes, this must show stream `watched_stream` */
    size_t watched_length;
    uint64_t watched_stream;
} side_t;

static side_t one, two;
static unsigned done_ok, done_failed;
static const regx_verbs_settings_t *settings; /* of those that are opened; NULL: the defaults */

static inline void watch(const side_t *side)
{
    if (side->watched != NULL) {
        assert_true(unit_is_filled(side->watched, side->watched_length, side->watched_stream));
    }
}

static inline void immediate(void *context, uint64_t sender, uint32_t value)
{
    side_t *side = context;

    assert_true(sender == side->other);
    side->last_immediate = value;
    side->immediates++;
    watch(side);
}

static inline void deliver(void *context, uint64_t sender, uint8_t tag, const void *data,
                           size_t length)
{
    side_t *side = context;

    assert_true(sender == side->other);
    assert_true(length <= sizeof(side->last));
    memcpy(side->last, data, length);
    side->last_length = length;
    side->last_tag = tag;
    side->delivered++;
    watch(side);
    if (side->on_deliver != NULL) {
        side->on_deliver(side);
    }
}

static inline void broken(void *context, uint64_t peer, const char *what)
{
    side_t *side = context;

    assert_true(peer == side->other);
    side->broken++;
    snprintf(side->what, sizeof(side->what), "%s", what);
}

static inline void silent(void *context, uint64_t peer)
{
    side_t *side = context;

    assert_true(peer == side->other);
    side->silent++;
}

static inline void lend_done(regx_lend_t *lend, regx_status_t status)
{
    (void)lend;
    *(status == REGX_OK ? &done_ok : &done_failed) += 1;
}

static inline regx_verbs_t *verbs_of(const side_t *side)
{
    return (regx_verbs_t *)side->transport;
}

static inline void open_side(side_t *side, uint64_t self, uint64_t other, bool threads)
{
    char error[256];

    memset(side, 0, sizeof(*side));
    side->self = self;
    side->other = other;
    side->counters.threads = threads;
    side->config = (regx_transport_config_t){.self = self,
                                             .pool_size = POOL,
                                             .pool_least = POOL,
                                             .threads = threads,
                                             .counters = &side->counters,
                                             .verbs = settings,
                                             .events = {.context = side,
                                                        .deliver = deliver,
                                                        .immediate = immediate,
                                                        .broken = broken,
                                                        .silent = silent}};
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

static inline void connect_side(side_t *side, const side_t *to)
{
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = regx_transport_ops.address(to->transport, address);

    assert_int_equal(regx_transport_ops.connect(side->transport, side->other, false, address,
                                                length, &side->conn),
                     REGX_OK);
}

static inline void progress(void)
{
    regx_transport_ops.progress(one.transport);
    regx_transport_ops.progress(two.transport);
}

static inline void open_both(bool threads)
{
    done_ok = done_failed = 0;
    open_side(&one, ONE, TWO, threads);
    open_side(&two, TWO, ONE, threads);
    connect_side(&one, &two);
    connect_side(&two, &one);
}

/* Nothing may be left over, and nothing malformed was seen. */
static inline void close_both(void)
{
    side_t *const sides[] = {&one, &two};

    for (int i = 0; i < 2; i++) {
        if (sides[i]->conn != NULL) {
            regx_transport_ops.disconnect(sides[i]->conn);
        }
    }
    /* In one process neither may wait for the other: first what both accepted, then the ends. */
    while (verbs_of(&one)->leaving || verbs_of(&two)->leaving || verbs_of(&one)->broke ||
           verbs_of(&two)->broke) {
        progress();
    }
    progress(); /* what was cut is no longer counted once the completion queue was seen empty */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(verbs_of(sides[i])->outstanding, verbs_of(sides[i])->quiet);
        assert_int_equal(verbs_of(sides[i])->quiet_slots, 0); /* their pairs have ended */
        assert_int_equal(verbs_of(sides[i])->buffers.slot_count, REGX_VERBS_SLOTS);
        regx_transport_ops.close(sides[i]->transport);
        assert_int_equal(sides[i]->counters.malformed, 0);
    }
}

static inline void pack(void *context, void *to, size_t length)
{
    unit_fill(to, length, *(const uint64_t *)context, 0);
}

/* Sends a stamped frame, however long it takes to get room. */
static inline void send(const side_t *from, uint8_t tag, uint64_t stream, size_t length)
{
    regx_status_t status;

    while ((status = regx_transport_ops.send(from->conn, tag, NULL, 0, pack, &stream, length)) ==
           REGX_AGAIN) {
        progress();
    }
    assert_int_equal(status, REGX_OK);
}

static inline void await(const unsigned *count, unsigned value)
{
    while (*count < value) {
        progress();
    }
    assert_int_equal(*count, value);
}

/* Waits until what is broken at `one` has come to its end, and all that was under way with it. */
static inline void settle(void)
{
    while (verbs_of(&one)->broke) {
        regx_transport_ops.progress(one.transport);
    }
}

static unsigned expected;

static inline void in_order(side_t *side)
{
    assert_int_equal(side->last_tag, expected % 251);
    assert_true(unit_is_filled(side->last, side->last_length, expected));
    expected++;
}

static inline void reg(const side_t *side, void *base, size_t length, unsigned access,
                       regx_mr_t *mr)
{
    assert_int_equal(regx_transport_ops.reg(side->transport, base, length, access, mr), REGX_OK);
}

#endif

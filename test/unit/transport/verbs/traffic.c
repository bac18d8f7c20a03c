/* SPDX-License-Identifier: BSD-3-Clause */
#include "traffic.h"

#include <stdlib.h>

enum { KINDS = 7, ROUNDS = 3, OPS = KINDS * ROUNDS, SEGMENT = 4096, AREA = 20480 };

/* What the i-th operation is. */
enum kind { TINY, SMALL, LONG, ZCOPY, STAGED, WRITTEN, GOT };
static const size_t lengths[KINDS] = {8, 250, 9000, 20000, 9001, 9003, 9002};

/* One side's operations, and what its peer has of them. */
typedef struct traffic {
    side_t *from, *to;
    uint64_t stream;
    int sent;           /* operations that were accepted */
    int heard;          /* the next that the peer is to hear of: gets are not heard of */
    unsigned ends[OPS]; /* how often each has ended */
    regx_zcopy_t zcopies[OPS];
    regx_put_t puts[OPS];
    regx_get_t gets[OPS];
    uint8_t *source, *target, *exposed, *got; /* an area per round; source and got are here */
    regx_mr_t source_mr, target_mr, exposed_mr, got_mr;
} traffic_t;

static traffic_t traffics[2];
unsigned traffic_down_from, traffic_down_until;

static uint64_t stream_of(const traffic_t *traffic, int op)
{
    return traffic->stream + (uint64_t)op;
}

static traffic_t *traffic_to(const side_t *side)
{
    return &traffics[side == &one];
}

static void end(traffic_t *traffic, int op, regx_status_t status)
{
    assert_int_equal(status, REGX_OK);
    traffic->ends[op]++;
}

static void put_done(regx_put_t *put, regx_status_t status)
{
    traffic_t *traffic = put->context;

    end(traffic, (int)(put - traffic->puts), status);
}

static void zcopy_done(regx_zcopy_t *zcopy, regx_status_t status)
{
    traffic_t *traffic = zcopy->context;

    end(traffic, (int)(zcopy - traffic->zcopies), status);
}

/* What has come is spoilt, so that it is seen if it should come again. */
static void check_and_spoil(uint8_t *data, size_t length, uint64_t stream)
{
    assert_true(unit_is_filled(data, length, stream));
    memset(data, 0xee, length);
}

static void check_spoilt(const uint8_t *data, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        assert_int_equal(data[i], 0xee);
    }
}

static void get_done(regx_get_t *get, regx_status_t status)
{
    traffic_t *traffic = get->context;
    const int op = (int)(get - traffic->gets);

    end(traffic, op, status);
    check_and_spoil(get->local, get->length, stream_of(traffic, op));
}

static uint8_t *pool_area(const side_t *side, int round)
{
    return (uint8_t *)side->transport->pool_memory + (size_t)(ROUNDS + round) * AREA;
}

/* The peer has heard of the next operation. */
static int next_heard(traffic_t *traffic)
{
    const int op = traffic->heard++;

    if (traffic->heard % KINDS == GOT) {
        traffic->heard++;
    }
    return op;
}

static void delivered(side_t *side)
{
    traffic_t *traffic = traffic_to(side);
    const int op = next_heard(traffic), kind = op % KINDS;

    assert_int_equal(side->last_tag, op);
    if (kind == STAGED) {
        check_and_spoil(pool_area(side, op / KINDS), lengths[kind], stream_of(traffic, op));
    } else {
        assert_int_equal(side->last_length, lengths[kind]);
        assert_true(unit_is_filled(side->last, lengths[kind], stream_of(traffic, op)));
    }
}

static void written(side_t *side)
{
    traffic_t *traffic = traffic_to(side);
    const int op = next_heard(traffic);

    assert_int_equal(op % KINDS, WRITTEN);
    assert_int_equal(side->last_immediate, op);
    check_and_spoil(traffic->target + (size_t)(op / KINDS) * AREA, lengths[WRITTEN],
                    stream_of(traffic, op));
}

static regx_status_t send_zcopy(traffic_t *traffic, int op)
{
    uint8_t *data = (uint8_t *)traffic->from->transport->pool_memory + (size_t)(op / KINDS) * AREA;

    traffic->zcopies[op] = (regx_zcopy_t){.data = data,
                                          .length = lengths[ZCOPY],
                                          .tag = (uint8_t)op,
                                          .done = zcopy_done,
                                          .context = traffic};
    unit_fill(data, lengths[ZCOPY], stream_of(traffic, op), 0);
    return regx_transport_ops.send_zcopy(traffic->from->conn, &traffic->zcopies[op]);
}

static regx_status_t put(traffic_t *traffic, int op)
{
    const bool staged = op % KINDS == STAGED;
    uint8_t *data = traffic->source + (size_t)(2 * (op / KINDS) + staged) * AREA;

    traffic->puts[op] = (regx_put_t){.local = data,
                                     .length = lengths[op % KINDS],
                                     .region = staged ? NULL : &traffic->source_mr,
                                     .target = staged ? REGX_TARGET_POOL : REGX_TARGET_REGION,
                                     .offset = (size_t)(op / KINDS + (staged ? ROUNDS : 0)) * AREA,
                                     .key = traffic->target_mr.key,
                                     .immediate = staged ? 0 : (uint32_t)op,
                                     .tag = (uint8_t)op,
                                     .notice_length = 3,
                                     .done = put_done,
                                     .context = traffic};
    unit_fill(data, lengths[op % KINDS], stream_of(traffic, op), 0);
    return regx_transport_ops.put(traffic->from->conn, &traffic->puts[op]);
}

static regx_status_t get(traffic_t *traffic, int op)
{
    const size_t at = (size_t)(op / KINDS) * AREA;

    traffic->gets[op] = (regx_get_t){.local = traffic->got + at,
                                     .length = lengths[GOT],
                                     .region = &traffic->got_mr,
                                     .offset = at,
                                     .key = traffic->exposed_mr.key,
                                     .done = get_done,
                                     .context = traffic};
    unit_fill(traffic->exposed + at, lengths[GOT], stream_of(traffic, op), 0);
    return regx_transport_ops.get(traffic->from->conn, &traffic->gets[op]);
}

static regx_status_t start(traffic_t *traffic, int op)
{
    uint64_t stream = stream_of(traffic, op);

    switch ((enum kind)(op % KINDS)) {
    case ZCOPY:
        return send_zcopy(traffic, op);
    case STAGED:
    case WRITTEN:
        return put(traffic, op);
    case GOT:
        return get(traffic, op);
    case TINY:
    case SMALL:
    case LONG:
        break;
    }
    const regx_status_t status = regx_transport_ops.send(traffic->from->conn, (uint8_t)op, NULL, 0,
                                                         side_pack, &stream, lengths[op % KINDS]);
    traffic->ends[op] += status == REGX_OK;
    return status;
}

static void prepare(traffic_t *traffic, side_t *from, side_t *to, uint64_t stream)
{
    const size_t size = (size_t)2 * ROUNDS * AREA;

    memset(traffic, 0, sizeof(*traffic));
    traffic->from = from;
    traffic->to = to;
    traffic->stream = stream;
    traffic->source = malloc(size);
    traffic->target = malloc(size);
    traffic->exposed = malloc(size);
    traffic->got = malloc(size);
    side_reg(from, traffic->source, size, REGX_ACCESS_LOCAL, &traffic->source_mr);
    side_reg(to, traffic->target, size, REGX_ACCESS_REMOTE_WRITE, &traffic->target_mr);
    side_reg(to, traffic->exposed, size, REGX_ACCESS_REMOTE_READ, &traffic->exposed_mr);
    side_reg(from, traffic->got, size, REGX_ACCESS_LOCAL_WRITE, &traffic->got_mr);
    to->on_deliver = delivered;
    to->on_immediate = written;
    verbs_of(from)->segment_max = SEGMENT;
}

static void finish(traffic_t *traffic)
{
    for (int op = 0; op < OPS; op++) {
        const size_t at = (size_t)(op / KINDS) * AREA;

        assert_int_equal(traffic->ends[op], 1);
        if (op % KINDS == STAGED) {
            check_spoilt(pool_area(traffic->to, op / KINDS), lengths[STAGED]);
        } else if (op % KINDS == WRITTEN) {
            check_spoilt(traffic->target + at, lengths[WRITTEN]);
        } else if (op % KINDS == GOT) {
            check_spoilt(traffic->got + at, lengths[GOT]);
        }
    }
    regx_transport_ops.dereg(traffic->from->transport, &traffic->source_mr);
    regx_transport_ops.dereg(traffic->to->transport, &traffic->target_mr);
    regx_transport_ops.dereg(traffic->to->transport, &traffic->exposed_mr);
    regx_transport_ops.dereg(traffic->from->transport, &traffic->got_mr);
    free(traffic->source);
    free(traffic->target);
    free(traffic->exposed);
    free(traffic->got);
}

static bool has_ended(const traffic_t *traffic)
{
    bool ended = traffic->heard == OPS;

    for (int op = 0; op < OPS; op++) {
        ended = ended && traffic->ends[op] > 0;
    }
    return ended;
}

static void begin_more(traffic_t *traffic)
{
    while (traffic->sent < OPS) {
        const regx_status_t status = start(traffic, traffic->sent);

        assert_true(status == REGX_OK || status == REGX_PENDING || status == REGX_AGAIN);
        if (status == REGX_AGAIN) {
            break;
        }
        traffic->sent++;
    }
}

unsigned traffic_run(unsigned slow)
{
    fake.fault.done = fake.fault.posted = 0;
    sides_open(false);
    prepare(&traffics[0], &one, &two, 1000);
    prepare(&traffics[1], &two, &one, 2000);
    for (unsigned i = 0; !has_ended(&traffics[0]) || !has_ended(&traffics[1]); i++) {
        begin_more(&traffics[0]);
        begin_more(&traffics[1]);
        fake.link_down = i >= traffic_down_from && i < traffic_down_until;
        regx_transport_ops.progress(one.transport);
        if (i % slow == 0) {
            regx_transport_ops.progress(two.transport);
        }
    }
    const unsigned requests = fake.fault.done, posted = fake.fault.posted;
    fake.fault.at[0] = fake.fault.at[1] = fake.fault.lost_read = fake.fault.refused = 0;
    one.on_deliver = two.on_deliver = NULL;
    restart_exchange();
    assert_int_equal(one.broken + two.broken, 0);
    finish(&traffics[0]);
    finish(&traffics[1]);
    const uint64_t restarts = regx_max(restart_count(&one, REGX_COUNTER_restarts),
                                       restart_count(&two, REGX_COUNTER_restarts));
    assert_int_equal(restarts == 0, restart_count(&one, REGX_COUNTER_restarts) == 0);
    assert_int_equal(restarts == 0, restart_count(&two, REGX_COUNTER_restarts) == 0);
    sides_close();
    fake.fault.done = requests;
    fake.fault.posted = posted;
    return (unsigned)restarts;
}

unsigned traffic_requests(void)
{
    assert_int_equal(traffic_run(1), 0);
    return fake.fault.done;
}

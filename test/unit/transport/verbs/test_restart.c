/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A queue pair that fails is replaced: whatever request fails, before or after it had its effect,
 * frames and puts come once and in order, puts and gets end once, and nothing is written late.
 */
#include "sides.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fake_device.h"

enum { KINDS = 7, ROUNDS = 3, OPS = KINDS * ROUNDS, PIECE = 4096, AREA = 20480 };

#define HOUR_NS INT64_C(3600000000000)

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
static regx_verbs_settings_t settings = REGX_VERBS_DEFAULTS;
static unsigned down_from, down_until; /* rounds of progress in which the link is down */

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
    verbs_of(from)->piece_max = PIECE;
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

static uint64_t count_of(const side_t *side, int counter)
{
    return atomic_load(&side->counters.transport[counter]);
}

/* After it both are ready. */
static void a_frame_each_way(void)
{
    const unsigned heard[] = {one.delivered, two.delivered};

    side_send(&one, 1, 1, 100);
    side_send(&two, 1, 1, 100);
    side_await(&one.delivered, heard[0] + 1);
    side_await(&two.delivered, heard[1] + 1);
}

/* All operations both ways, at the same time; `two` makes progress once in `slow` times. Then a frame
 * each way. Returns how often a side's queue
 * pair was replaced, at most. */
static unsigned run(unsigned slow)
{
    fake.fault.done = fake.fault.posted = 0;
    sides_open(false);
    prepare(&traffics[0], &one, &two, 1000);
    prepare(&traffics[1], &two, &one, 2000);
    for (unsigned i = 0; !has_ended(&traffics[0]) || !has_ended(&traffics[1]); i++) {
        begin_more(&traffics[0]);
        begin_more(&traffics[1]);
        fake.link_down = i >= down_from && i < down_until;
        regx_transport_ops.progress(one.transport);
        if (i % slow == 0) {
            regx_transport_ops.progress(two.transport);
        }
    }
    const unsigned requests = fake.fault.done, posted = fake.fault.posted;
    fake.fault.at[0] = fake.fault.at[1] = fake.fault.lost_read = fake.fault.refused = 0;
    one.on_deliver = two.on_deliver = NULL;
    a_frame_each_way();
    assert_int_equal(one.broken + two.broken, 0);
    finish(&traffics[0]);
    finish(&traffics[1]);
    const uint64_t restarts =
        regx_max(count_of(&one, REGX_COUNTER_restarts), count_of(&two, REGX_COUNTER_restarts));
    assert_int_equal(restarts == 0, count_of(&one, REGX_COUNTER_restarts) == 0);
    assert_int_equal(restarts == 0, count_of(&two, REGX_COUNTER_restarts) == 0);
    sides_close();
    fake.fault.done = requests;
    fake.fault.posted = posted;
    return (unsigned)restarts;
}

static int setup(void **state)
{
    (void)state;
    fake_reset();
    fake.fault.status = IBV_WC_RETRY_EXC_ERR;
    settings.restart_limit = 600;
    down_from = down_until = 0;
    side_settings = &settings;
    alarm(UNIT_PATIENCE);
    return 0;
}

/* How many requests there are when none fails. */
static unsigned count_requests(void)
{
    assert_int_equal(run(1), 0);
    return fake.fault.done;
}

static void each_request_fails(bool late, unsigned slow, bool drops)
{
    const unsigned requests = count_requests();

    fake.fault.late = late;
    fake.ports[0].drops_receives = drops;
    for (unsigned i = 1; i <= requests; i++) {
        fake.fault.at[0] = i;
        assert_int_equal(run(slow), 1);
    }
}

static void nothing_is_lost_or_doubled_whatever_request_fails(void **state)
{
    (void)state;
    each_request_fails(false, 1, false);
}

static void nothing_is_lost_or_doubled_whatever_answer_is_lost(void **state)
{
    (void)state;
    each_request_fails(true, 1, true);
}

/* What has arrived has not been read when the queue pair fails. */
static void nothing_is_lost_or_doubled_with_a_slow_reader(void **state)
{
    (void)state;
    each_request_fails(true, 7, false);
}

static void a_queue_pair_may_fail_while_what_was_lost_is_repeated(void **state)
{
    const unsigned requests = count_requests();

    (void)state;
    for (unsigned i = 1; i <= requests; i += 5) {
        for (unsigned second = i + 1; second <= i + 8; second++) {
            fake.fault.late = second % 2 == 0;
            fake.fault.at[0] = i;
            fake.fault.at[1] = second;
            const unsigned restarts = run(1 + i % 3);
            assert_in_range(restarts, 1, 2);
        }
    }
}

static void a_request_may_be_refused_while_what_was_lost_is_repeated(void **state)
{
    const unsigned requests = count_requests();

    (void)state;
    for (unsigned i = 1; i <= requests; i += 5) {
        for (unsigned refused = i + 1; refused <= i + 20; refused += 3) {
            fake.fault.late = refused % 2 == 0;
            fake.fault.at[0] = i;
            fake.fault.refused = refused;
            const unsigned restarts = run(1 + i % 3);
            assert_in_range(restarts, 1, 2);
        }
    }
}

static void datagrams_may_be_lost_or_come_twice(void **state)
{
    static const uint32_t patterns[] = {0x55555555, 0xaaaaaaaa, 0x24924924, 0x3c3c3c3c};
    const unsigned requests = count_requests();

    (void)state;
    for (unsigned i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        fake.fault.at[0] = 1 + i * (requests - 1) / 4;
        fake.lose = patterns[i];
        fake.twice = ~patterns[i];
        assert_int_equal(run(1), 1);
        fake.fault.at[0] = 1 + i * (requests - 1) / 4;
        fake.lose = 0;
        fake.twice = patterns[i];
        assert_int_equal(run(1), 1);
    }
}

static void a_device_that_does_not_report_the_end_is_waited_for(void **state)
{
    (void)state;
    const unsigned requests = count_requests();

    fake.mute = true;
    fake.fault.late = true;
    fake.fault.at[0] = requests / 2;
    assert_int_equal(run(1), 1);
}

static void a_link_may_be_down_for_a_while(void **state)
{
    (void)state;
    unsigned restarts = 0;

    for (down_from = 0; down_from < 8; down_from++) {
        down_until = down_from + 50;
        fake.link_errors = false;
        restarts += run(1 + down_from % 2);
        fake.link_errors = true;
        restarts += run(1 + down_from % 2);
    }
    assert_true(restarts > 1);
    assert_true(fake.datagrams_failed > 1);
}

/* One clear end, within the limit, of a peer that stays away. */
static void a_peer_that_is_gone_is_told_of_once(void **state)
{
    (void)state;
    settings.restart_limit = 1;
    sides_open(false);
    sides_exchange(1, 100);
    fake.link_down = true;
    side_send(&one, 1, 1, 100);
    side_await(&one.broken, 1);
    assert_non_null(strstr(one.what, "retry counter exceeded"));
    assert_non_null(strstr(one.what, "not connected again within 1 s"));
    assert_int_equal(side_try(one.conn, 8), REGX_UNREACHABLE);
    assert_int_equal(count_of(&one, REGX_COUNTER_restarts), 0);
    sides_close();
    assert_int_equal(one.broken, 1);
}

static void without_a_limit_the_connection_is_lost_at_once(void **state)
{
    (void)state;
    settings.restart_limit = 0;
    sides_open(false);
    sides_exchange(1, 100);
    fake.fault.at[0] = fake.fault.done + 1;
    side_send(&one, 1, 1, 100);
    side_await(&one.broken, 1);
    assert_null(strstr(one.what, "again"));
    sides_close();
}

/* Time goes by for an endpoint. */
static void make_older(regx_ep_t *ep, int64_t by)
{
    ep->restart_until -= by;
    ep->ready_at -= by;
}

/* Makes the next request of `one` fail, and all that are done then, until its queue pair has been
 * replaced so often, or it was told that the connection broke. */
static void fail_until_replaced(uint64_t times)
{
    while (count_of(&one, REGX_COUNTER_restarts) < times && one.broken == 0) {
        fake.fault.at[0] = fake.fault.done + 1;
        sides_progress();
    }
}

/* A request that fails however often it is repeated is given up, within the limit. */
static void a_request_that_always_fails_is_given_up(void **state)
{
    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    side_send(&one, 1, 1, 100);
    fail_until_replaced(3);
    assert_int_equal(one.broken, 0);
    make_older(regx_ep_find(verbs_of(&one), TWO), HOUR_NS);
    regx_ep_find(verbs_of(&one), TWO)->ready_at = regx_now_ns();
    fail_until_replaced(UINT64_MAX);
    assert_non_null(strstr(one.what, "not connected again within 600 s"));
    fake.fault.at[0] = 0;
    sides_close();
}

/* Also if each time it takes longer than the limit. */
static void a_request_that_fails_slowly_is_given_up(void **state)
{
    uint64_t restarts = 0;

    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    side_send(&one, 1, 1, 100);
    while (one.broken == 0) {
        assert_true(restarts < 100);
        fail_until_replaced(++restarts);
        if (one.broken == 0) {
            make_older(regx_ep_find(verbs_of(&one), TWO), HOUR_NS);
        }
    }
    assert_true(restarts > 10);
    fake.fault.at[0] = 0;
    sides_close();
}

/* What was sent again was not acknowledged yet, as the peer has no buffer and computes. */
static void a_failure_long_after_another_has_all_the_time_again(void **state)
{
    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    side_send(&one, 1, 2, 100);
    for (uint64_t outage = 1; outage <= 3; outage++) {
        fail_until_replaced(outage);
        assert_int_equal(one.broken, 0);
        assert_int_equal(count_of(&one, REGX_COUNTER_restarts), outage);
        make_older(regx_ep_find(verbs_of(&one), TWO), HOUR_NS);
    }
    fake.fault.at[0] = 0;
    side_await(&two.delivered, 2);
    a_frame_each_way();
    assert_int_equal(one.broken + two.broken, 0);
    sides_close();
}

/* The queue pair of an endpoint fails by itself. */
static void fail_queue_pair(const regx_ep_t *ep)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    assert_int_equal(ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE), 0);
}

/* `two` makes progress until its endpoint is in that state, and nothing that it says arrives. */
static void two_speaks_in_vain(regx_ep_state_t state)
{
    const regx_verbs_t *verbs = verbs_of(&two);

    fake.drop_datagrams = true;
    while (regx_ep_find(verbs, ONE)->state != state || verbs->cm.sent != verbs->cm.done) {
        regx_transport_ops.progress(two.transport);
    }
    fake.drop_datagrams = false;
}

/* A request of `one` has come to `two`, which has heard of it, but not answered yet. */
static void one_asks(void)
{
    const unsigned datagrams = fake.datagrams;

    while (fake.datagrams == datagrams) {
        regx_transport_ops.progress(one.transport);
    }
}

/* `two` has another queue pair, and knows that of `one`, which knows neither. */
static void fail_what_was_accepted(void)
{
    one_asks();
    while (regx_ep_find(verbs_of(&two), ONE) == NULL) {
        regx_transport_ops.progress(two.transport);
    }
    two_speaks_in_vain(REGX_EP_CONNECTED);
    fail_queue_pair(regx_ep_find(verbs_of(&two), ONE));
    two_speaks_in_vain(REGX_EP_CONNECTING);
}

static void a_queue_pair_may_fail_before_its_peer_knows_it(void **state)
{
    (void)state;
    sides_open(false);
    assert_int_equal(side_try(one.conn, 100), REGX_AGAIN);
    fail_what_was_accepted();
    a_frame_each_way();
    assert_int_equal(one.broken + two.broken, 0);
    assert_int_equal(count_of(&two, REGX_COUNTER_restarts), 1);
    sides_close();
}

static void a_replacement_may_fail_before_its_peer_knows_it(void **state)
{
    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    fake.fault.at[0] = fake.fault.done + 1;
    side_send(&one, 1, 2, 100);
    const regx_ep_t *ep = regx_ep_find(verbs_of(&one), TWO);
    while (ep->state != REGX_EP_CONNECTING) {
        regx_transport_ops.progress(one.transport);
    }
    one_asks(); /* so that `two` replaces its own */
    two_speaks_in_vain(REGX_EP_CONNECTING);
    fail_what_was_accepted();
    side_await(&two.delivered, 2);
    assert_true(unit_is_filled(two.last, 100, 2));
    a_frame_each_way();
    assert_int_equal(one.broken + two.broken, 0);
    assert_int_equal(count_of(&one, REGX_COUNTER_restarts), 1);
    assert_int_equal(count_of(&two, REGX_COUNTER_restarts), 1);
    sides_close();
}

static void memory_for_another_queue_pair_may_lack_for_a_while(void **state)
{
    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    fake.queue_pair_error = ENOMEM;
    fake.fault.at[0] = fake.fault.done + 1;
    side_send(&one, 1, 2, 100);
    const regx_ep_t *ep = regx_ep_find(verbs_of(&one), TWO);
    while (verbs_of(&one)->starved_since == 0) {
        sides_progress();
    }
    for (int i = 0; i < 100; i++) {
        sides_progress();
        assert_int_equal(ep->state, REGX_EP_RESTING);
    }
    fake.queue_pair_error = 0;
    side_await(&two.delivered, 2);
    a_frame_each_way();
    assert_int_equal(one.broken + two.broken, 0);
    assert_int_equal(count_of(&one, REGX_COUNTER_restarts), 1);
    sides_close();
}

static void a_device_that_refuses_another_queue_pair_is_told_of(void **state)
{
    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    fake.queue_pair_error = EINVAL;
    fake.fault.at[0] = fake.fault.done + 1;
    side_send(&one, 1, 2, 100);
    side_await(&one.broken, 1);
    assert_non_null(strstr(one.what, "making a queue pair"));
    fake.queue_pair_error = 0;
    regx_transport_ops.disconnect(one.conn);
    regx_transport_ops.disconnect(two.conn);
    side_close(&one);
    side_close(&two);
}

static void nothing_is_lost_or_doubled_whatever_request_is_refused(void **state)
{
    (void)state;
    count_requests();
    const unsigned posted = fake.fault.posted;
    for (unsigned i = 1; i <= posted; i++) {
        fake.fault.refused = i;
        assert_int_equal(run(1), 1);
    }
}

/* The one tells what it has to be set to, the other when its own limit is over. */
static void a_peer_without_restarts_says_so(void **state)
{
    (void)state;
    done_ok = done_failed = 0;
    side_open(&one, ONE, TWO, false);
    settings.restart_limit = 0;
    side_open(&two, TWO, ONE, false);
    side_connect(&one, &two);
    side_connect(&two, &one);
    sides_exchange(1, 100);
    fake.fault.at[0] = fake.fault.done + 1;
    side_send(&one, 1, 2, 100);
    side_await(&two.broken, 1);
    assert_non_null(strstr(two.what, "verbs_restart_limit is 0 here"));
    assert_int_equal(one.broken, 0);
    regx_ep_find(verbs_of(&one), TWO)->restart_until = 0;
    side_await(&one.broken, 1);
    assert_non_null(strstr(one.what, "not connected again within 600 s"));
    sides_close();
}

/* The queue pair of datagrams had failed once, long ago, and nobody has asked since. */
static void datagrams_may_fail_again_long_after(void **state)
{
    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    verbs_of(&one)->cm.failing_since = regx_now_ns() - HOUR_NS;
    fake.link_down = fake.link_errors = true;
    side_send(&one, 1, 2, 100);
    while (fake.datagrams_failed == 0) {
        regx_transport_ops.progress(one.transport);
    }
    fake.link_down = fake.link_errors = false;
    side_await(&two.delivered, 2);
    a_frame_each_way();
    assert_int_equal(one.broken + two.broken, 0);
    sides_close();
}

/* However seldom the caller makes progress. */
static void a_few_calls_of_progress_are_enough(void **state)
{
    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    regx_verbs_t *verbs = verbs_of(&one);
    fake.link_down = fake.link_errors = true;
    side_send(&one, 1, 2, 100);
    while (!verbs->cm.rests) {
        regx_transport_ops.progress(one.transport);
    }
    verbs->cm.rests_since -= HOUR_NS; /* the program was away meanwhile */
    fake.link_down = fake.link_errors = false;
    for (int i = 0; i < 3; i++) {
        verbs->calls = 1; /* so that else the clock is not read for long */
        verbs->events_next = 0;
        regx_transport_ops.progress(one.transport);
    }
    assert_false(verbs->cm.rests);
    assert_int_equal(one.broken, 0);
    fake.drop_datagrams = true;
    regx_ep_find(verbs, TWO)->restart_until = verbs->events_next = 0;
    verbs->calls = 1;
    regx_transport_ops.progress(one.transport);
    regx_transport_ops.progress(one.transport);
    assert_int_equal(one.broken, 1);
    fake.drop_datagrams = false;
    regx_transport_ops.disconnect(one.conn);
    regx_transport_ops.disconnect(two.conn);
    side_close(&one);
    side_close(&two);
}

/* A peer that says it has heard what was not sent, or has not what was acknowledged. */
static void a_count_that_cannot_be_is_an_error(void **state)
{
    (void)state;
    for (int more = -1; more <= 2; more += 3) {
        sides_open(false);
        sides_exchange(1, 100);
        regx_zcopy_t zcopy = {
            .data = one.transport->pool_memory, .length = 8, .done = side_zcopy_done};
        assert_int_equal(regx_transport_ops.send_zcopy(one.conn, &zcopy), REGX_PENDING);
        side_await(&done_ok, 1);
        regx_ep_find(verbs_of(&two), ONE)->heard += (uint64_t)more;
        fake.fault.at[0] = fake.fault.done + 1;
        side_send(&one, 1, 1, 100);
        side_await(&one.broken, 1);
        assert_non_null(strstr(one.what, "do not agree"));
        assert_int_equal(one.counters.malformed, 1);
        regx_transport_ops.disconnect(one.conn);
        regx_transport_ops.disconnect(two.conn);
        side_close(&one);
        side_close(&two);
    }
}

/* What comes late, of queue pairs that are no more, connects nothing and breaks nothing. */
static void late_messages_are_not_heeded(void **state)
{
    uint8_t bytes[REGX_CM_MESSAGE_SIZE];

    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    const regx_ep_t *ep = regx_ep_find(verbs_of(&one), TWO);
    const regx_ep_t *other = regx_ep_find(verbs_of(&two), ONE);
    const regx_cm_source_t source = {.qpn = verbs_of(&two)->address.qpn};
    regx_cm_message_t message = {.qpn = other->qpn,
                                 .psn = other->psn,
                                 .from = TWO,
                                 .to = ONE,
                                 .epoch = other->epoch,
                                 .born = other->born,
                                 .with = ep->born,
                                 .address = verbs_of(&two)->address};
    fake.link_down = true;
    side_send(&one, 1, 2, 100);
    while (ep->state != REGX_EP_CONNECTING) {
        regx_transport_ops.progress(one.transport);
    }
    for (int known = 0; known < 2; known++) {
        for (int kind = REGX_CM_REQUEST; kind <= REGX_CM_RENEW; kind++) {
            message.kind = (regx_cm_kind_t)kind;
            message.known = known == 0 ? 0 : ep->born;
            regx_cm_message_pack(&message, bytes);
            regx_cm_receive(verbs_of(&one), bytes, sizeof(bytes), &source);
            assert_int_equal(ep->state, REGX_EP_CONNECTING);
            assert_true(ep->restarts);
        }
    }
    fake.link_down = false;
    side_send(&two, 1, 3, 100);
    side_await(&one.delivered, 2);
    side_await(&two.delivered, 2);
    assert_int_equal(one.broken + two.broken, 0);
    sides_close();
}

static void count_get(regx_get_t *get, regx_status_t status)
{
    (void)get;
    *(status == REGX_OK ? &done_ok : &done_failed) += 1;
}

/* A READ whose answer was lost is made again, though the peer has heard what came behind it. */
static void a_read_is_repeated_unless_it_has_completed(void **state)
{
    const unsigned requests = count_requests();
    unsigned restarts = 0;

    (void)state;
    for (unsigned i = 1; i <= requests; i++) {
        fake.fault.lost_read = i; /* if that is one */
        restarts += run(1);
    }
    assert_true(restarts > 10);
}

static void count_put(regx_put_t *put, regx_status_t status)
{
    (void)put;
    *(status == REGX_OK ? &done_ok : &done_failed) += 1;
}

static void count_fetch(regx_fetch_t *fetch, regx_status_t status)
{
    (void)fetch;
    *(status == REGX_OK ? &done_ok : &done_failed) += 1;
}

/* Of one whose answer was lost nobody knows whether it was done. One that has completed is no
 * hindrance. */
static void an_atomic_operation_is_never_repeated(void **state)
{
    static uint64_t number;

    (void)state;
    for (int late = 0; late < 2; late++) {
        regx_mr_t theirs;

        number = 0;
        sides_open(false);
        side_reg(&two, &number, sizeof(number), REGX_ACCESS_REMOTE_ATOMIC, &theirs);
        a_frame_each_way();
        regx_fetch_t fetch = {.key = theirs.key, .operand = 1, .done = count_fetch};
        assert_int_equal(regx_transport_ops.fetch(one.conn, &fetch), REGX_PENDING);
        side_await(&done_ok, 1);
        fake.fault.late = late == 1;
        fake.fault.at[0] = fake.fault.done + 1;
        a_frame_each_way();
        assert_int_equal(count_of(&one, REGX_COUNTER_restarts), 1);
        fake.fault.at[0] = fake.fault.done + 1;
        assert_int_equal(regx_transport_ops.fetch(one.conn, &fetch), REGX_PENDING);
        side_await(&one.broken, 1);
        assert_non_null(strstr(one.what, "one-sided operation"));
        assert_int_equal(done_failed, 1);
        assert_int_equal(number, 1 + late);
        regx_transport_ops.dereg(two.transport, &theirs);
        sides_close();
    }
}

/* Its receiver may have seen what a silent put wrote, and have written there again: the 7. */
static void a_silent_put_is_never_repeated(void **state)
{
    enum { LENGTH = 3 << 20 }; /* of three pieces, of which any may be the last that is posted */
    static uint8_t theirs[LENGTH], ours[LENGTH];

    (void)state;
    for (unsigned failing = 1; failing <= 3; failing++) {
        regx_mr_t target, source;

        memset(theirs, 0, sizeof(theirs));
        memset(ours, 1, sizeof(ours));
        sides_open(false);
        side_reg(&two, theirs, sizeof(theirs), REGX_ACCESS_REMOTE_WRITE, &target);
        side_reg(&one, ours, sizeof(ours), REGX_ACCESS_LOCAL, &source);
        a_frame_each_way();
        verbs_of(&one)->piece_max = LENGTH / 3;
        regx_put_t put = {.local = ours,
                          .length = LENGTH,
                          .region = &source,
                          .target = REGX_TARGET_REGION,
                          .key = target.key,
                          .silent = true,
                          .done = count_put};
        fake.fault.late = true;
        fake.fault.at[0] = fake.fault.done + failing;
        assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_PENDING);
        while (theirs[(failing - 1) * (LENGTH / 3)] == 0) {
            sides_progress();
        }
        theirs[0] = 7;
        side_await(&one.broken, 1);
        assert_non_null(strstr(one.what, "one-sided operation"));
        assert_int_equal(done_failed, 1);
        assert_int_equal(theirs[0], 7);
        regx_transport_ops.dereg(one.transport, &source);
        regx_transport_ops.dereg(two.transport, &target);
        sides_close();
    }
}

/* A peer that now answers fewer READs at once than are to be repeated: the device would hold up what
 * comes behind them. */
static void a_peer_that_answers_fewer_reads_than_before_is_an_error(void **state)
{
    enum { READS = 3 };
    uint8_t *exposed = calloc(READS, PIECE), *got = calloc(READS, PIECE);
    regx_get_t gets[READS];
    regx_mr_t exposed_mr, got_mr;

    (void)state;
    for (uint8_t answered = READS - 1; answered <= READS; answered++) {
        sides_open(false);
        sides_exchange(1, 100);
        side_reg(&one, got, (size_t)READS * PIECE, REGX_ACCESS_LOCAL_WRITE, &got_mr);
        side_reg(&two, exposed, (size_t)READS * PIECE, REGX_ACCESS_REMOTE_READ, &exposed_mr);
        fake.fault.lost_read = fake.fault.done + 1;
        for (int i = 0; i < READS; i++) {
            gets[i] = (regx_get_t){.local = got + (size_t)i * PIECE,
                                   .length = PIECE,
                                   .region = &got_mr,
                                   .offset = (size_t)i * PIECE,
                                   .key = exposed_mr.key,
                                   .done = count_get};
            assert_int_equal(regx_transport_ops.get(one.conn, &gets[i]), REGX_PENDING);
        }
        verbs_of(&two)->reads_answered = answered;
        if (answered < READS) {
            side_await(&one.broken, 1);
            assert_non_null(strstr(one.what, "do not agree"));
            sides_settle();
        } else {
            side_await(&done_ok, READS);
            a_frame_each_way();
        }
        assert_int_equal(one.counters.malformed, answered < READS);
        assert_int_equal(done_failed, answered < READS ? READS : 0);
        regx_transport_ops.dereg(one.transport, &got_mr);
        regx_transport_ops.dereg(two.transport, &exposed_mr);
        regx_transport_ops.disconnect(one.conn);
        regx_transport_ops.disconnect(two.conn);
        side_close(&one);
        side_close(&two);
    }
    free(exposed);
    free(got);
}

/* Sent again is at most what was under way. */
static void what_is_sent_again_is_bounded(void **state)
{
    enum { CHUNK = 65536, CHUNKS = 20, WINDOW = 4 };
    uint8_t *from = malloc((size_t)CHUNK * CHUNKS), *to = calloc(CHUNKS, CHUNK);
    regx_put_t puts[CHUNKS];
    regx_mr_t source, target;

    (void)state;
    unit_fill(from, (size_t)CHUNK * CHUNKS, 1, 0);
    for (unsigned fault = 1; fault <= 100; fault += 9) {
        sides_open(false);
        sides_exchange(1, 100);
        verbs_of(&one)->piece_max = CHUNK / 4;
        side_reg(&one, from, (size_t)CHUNK * CHUNKS, REGX_ACCESS_LOCAL, &source);
        side_reg(&two, to, (size_t)CHUNK * CHUNKS, REGX_ACCESS_REMOTE_WRITE, &target);
        memset(to, 0, (size_t)CHUNK * CHUNKS);
        fake.fault.late = fault % 2 == 0;
        fake.fault.at[0] = fake.fault.done + fault;
        for (unsigned i = 0; i < CHUNKS; i++) {
            puts[i] = (regx_put_t){.local = from + (size_t)i * CHUNK,
                                   .length = CHUNK,
                                   .region = &source,
                                   .target = REGX_TARGET_REGION,
                                   .offset = (size_t)i * CHUNK,
                                   .key = target.key,
                                   .notice_length = 3,
                                   .done = count_put};
            while (i >= done_ok + WINDOW) {
                sides_progress();
            }
            assert_int_equal(regx_transport_ops.put(one.conn, &puts[i]), REGX_PENDING);
        }
        side_await(&done_ok, CHUNKS);
        side_await(&two.delivered, 1 + CHUNKS);
        assert_memory_equal(from, to, (size_t)CHUNK * CHUNKS);
        a_frame_each_way();
        assert_int_equal(count_of(&one, REGX_COUNTER_restarts), 1);
        assert_in_range(count_of(&one, REGX_COUNTER_bytes_resent), 0, WINDOW * (CHUNK + 3));
        assert_int_equal(count_of(&two, REGX_COUNTER_bytes_resent), 0);
        regx_transport_ops.dereg(one.transport, &source);
        regx_transport_ops.dereg(two.transport, &target);
        sides_close();
    }
    free(from);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nothing_is_lost_or_doubled_whatever_request_fails, setup),
        cmocka_unit_test_setup(nothing_is_lost_or_doubled_whatever_answer_is_lost, setup),
        cmocka_unit_test_setup(nothing_is_lost_or_doubled_with_a_slow_reader, setup),
        cmocka_unit_test_setup(a_queue_pair_may_fail_while_what_was_lost_is_repeated, setup),
        cmocka_unit_test_setup(a_request_may_be_refused_while_what_was_lost_is_repeated, setup),
        cmocka_unit_test_setup(datagrams_may_be_lost_or_come_twice, setup),
        cmocka_unit_test_setup(a_device_that_does_not_report_the_end_is_waited_for, setup),
        cmocka_unit_test_setup(a_link_may_be_down_for_a_while, setup),
        cmocka_unit_test_setup(a_peer_that_is_gone_is_told_of_once, setup),
        cmocka_unit_test_setup(without_a_limit_the_connection_is_lost_at_once, setup),
        cmocka_unit_test_setup(a_request_that_always_fails_is_given_up, setup),
        cmocka_unit_test_setup(a_request_that_fails_slowly_is_given_up, setup),
        cmocka_unit_test_setup(a_failure_long_after_another_has_all_the_time_again, setup),
        cmocka_unit_test_setup(a_queue_pair_may_fail_before_its_peer_knows_it, setup),
        cmocka_unit_test_setup(a_replacement_may_fail_before_its_peer_knows_it, setup),
        cmocka_unit_test_setup(memory_for_another_queue_pair_may_lack_for_a_while, setup),
        cmocka_unit_test_setup(a_device_that_refuses_another_queue_pair_is_told_of, setup),
        cmocka_unit_test_setup(nothing_is_lost_or_doubled_whatever_request_is_refused, setup),
        cmocka_unit_test_setup(a_peer_without_restarts_says_so, setup),
        cmocka_unit_test_setup(datagrams_may_fail_again_long_after, setup),
        cmocka_unit_test_setup(a_few_calls_of_progress_are_enough, setup),
        cmocka_unit_test_setup(a_count_that_cannot_be_is_an_error, setup),
        cmocka_unit_test_setup(late_messages_are_not_heeded, setup),
        cmocka_unit_test_setup(a_read_is_repeated_unless_it_has_completed, setup),
        cmocka_unit_test_setup(an_atomic_operation_is_never_repeated, setup),
        cmocka_unit_test_setup(a_silent_put_is_never_repeated, setup),
        cmocka_unit_test_setup(a_peer_that_answers_fewer_reads_than_before_is_an_error, setup),
        cmocka_unit_test_setup(what_is_sent_again_is_bounded, setup),
    };

    return cmocka_run_group_tests_name("verbs restart", tests, NULL, NULL);
}

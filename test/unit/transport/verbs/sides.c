/* SPDX-License-Identifier: BSD-3-Clause */
#include "sides.h"

#include <stdio.h>

side_t one, two;
unsigned done_ok, done_failed;
const regx_verbs_settings_t *side_settings;
const char *side_ports[2];
unsigned side_expected;

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    side_t *side = context;

    assert_true(sender == side->other);
    assert_true(length <= sizeof(side->last));
    memcpy(side->last, data, length);
    side->last_length = length;
    side->last_tag = tag;
    side->delivered++;
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

static void silent(void *context, uint64_t peer)
{
    side_t *side = context;

    assert_true(peer == side->other);
    side->silent++;
}

static void count_done(regx_status_t status)
{
    *(status == REGX_OK ? &done_ok : &done_failed) += 1;
}

void side_put_done(regx_put_t *put, regx_status_t status)
{
    (void)put;
    count_done(status);
}

void side_get_done(regx_get_t *get, regx_status_t status)
{
    (void)get;
    count_done(status);
}

void side_fail(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

regx_verbs_t *verbs_of(const side_t *side)
{
    return (regx_verbs_t *)side->transport;
}

void side_open(side_t *side, uint64_t self, uint64_t other, bool threads)
{
    char error[256];

    memset(side, 0, sizeof(*side));
    side->self = self;
    side->other = other;
    side->counters.threads = threads;
    side->config = (regx_transport_config_t){
        .self = self,
        .pool_size = POOL,
        .pool_min = POOL,
        .threads = threads,
        .counters = &side->counters,
        .settings = side_settings,
        .device = side_ports[side == &two],
        .events = {.context = side, .deliver = deliver, .broken = broken, .silent = silent}};
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

void side_connect(side_t *side, const side_t *to)
{
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = regx_transport_ops.address(to->transport, address);

    assert_int_equal(
        regx_transport_ops.connect(side->transport, side->other, address, length, &side->conn),
        REGX_OK);
}

void sides_progress(void)
{
    regx_transport_ops.progress(one.transport);
    regx_transport_ops.progress(two.transport);
}

void sides_open(bool threads)
{
    done_ok = done_failed = 0;
    side_open(&one, ONE, TWO, threads);
    side_open(&two, TWO, ONE, threads);
    side_connect(&one, &two);
    side_connect(&two, &one);
}

/* Nothing may be left over, and nothing malformed was seen. */
void sides_close(void)
{
    side_t *const sides[] = {&one, &two};

    for (int i = 0; i < 2; i++) {
        if (sides[i]->conn != NULL) {
            regx_transport_ops.disconnect(sides[i]->conn);
        }
    }
    /* In one process neither may wait for the other: first what both accepted, then the ends. */
    while (side_is_ending(&one) || side_is_ending(&two)) {
        sides_progress();
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(verbs_of(sides[i])->requests.outstanding,
                         verbs_of(sides[i])->requests.unsignaled);
        assert_int_equal(verbs_of(sides[i])->requests.unsignaled_slots,
                         0); /* their endpoints have ended */
        assert_int_equal(verbs_of(sides[i])->buffers.slot_count, REGX_VERBS_SLOTS);
        regx_transport_ops.close(sides[i]->transport);
        assert_int_equal(sides[i]->counters.malformed, 0);
    }
}

void side_pack(void *context, void *to, size_t length)
{
    unit_fill(to, length, *(const uint64_t *)context, 0);
}

/* Sends a stamped frame, however long it takes to get room. */
void side_send(const side_t *from, uint8_t tag, uint64_t stream, size_t length)
{
    regx_status_t status;

    while ((status = regx_transport_ops.send(from->conn, tag, NULL, 0, side_pack, &stream,
                                             length)) == REGX_AGAIN) {
        sides_progress();
    }
    assert_int_equal(status, REGX_OK);
}

void side_await(const unsigned *count, unsigned value)
{
    while (*count < value) {
        sides_progress();
    }
    assert_int_equal(*count, value);
}

/* Waits until what is broken at `one` has come to its end, and all that was under way with it. */
void sides_settle(void)
{
    while (!regx_list_empty(&verbs_of(&one)->ending)) {
        regx_transport_ops.progress(one.transport);
    }
}

bool side_is_ending(const side_t *side)
{
    return !regx_list_empty(&verbs_of(side)->ending);
}

regx_ep_t *side_asking(const side_t *side)
{
    const regx_link_t *asking = &verbs_of(side)->cm.asking;

    return asking->next == asking ? NULL : REGX_CONTAINER_OF(asking->next, regx_ep_t, cm.asking);
}

void side_in_order(side_t *side)
{
    assert_int_equal(side->last_tag, side_expected % 251);
    assert_true(unit_is_filled(side->last, side->last_length, side_expected));
    side_expected++;
}

void side_reg(const side_t *side, void *base, size_t length, unsigned access, regx_mr_t *mr)
{
    assert_int_equal(regx_transport_ops.reg(side->transport, base, length, access, mr), REGX_OK);
}

regx_status_t side_try(regx_conn_t *conn, size_t length)
{
    uint64_t stream = 1;

    return regx_transport_ops.send(conn, 1, NULL, 0, side_pack, &stream, length);
}

regx_conn_t *side_connect_one_to(const side_t *to)
{
    uint8_t address[REGX_ADDRESS_MAX];
    regx_conn_t *conn;
    const size_t length = regx_transport_ops.address(to->transport, address);

    assert_int_equal(regx_transport_ops.connect(one.transport, to->self, address, length, &conn),
                     REGX_OK);
    return conn;
}

void side_close(const side_t *side)
{
    regx_eps_break(verbs_of(side), "test", "the end");
    regx_transport_ops.close(side->transport);
}

void sides_exchange(unsigned round, size_t length)
{
    side_send(&one, 1, round, length);
    side_send(&two, 1, round + 1, length);
    side_await(&one.delivered, round);
    side_await(&two.delivered, round);
    assert_true(unit_is_filled(one.last, length, round + 1));
    assert_true(unit_is_filled(two.last, length, round));
    assert_int_equal(one.broken + two.broken, 0);
}

void sides_open_many(side_t *others, regx_conn_t **conns, unsigned count)
{
    side_open(&one, ONE, TWO, false);
    side_open(&two, TWO, ONE, false);
    for (unsigned i = 0; i < count; i++) {
        side_open(&others[i], THREE + i, ONE, false);
        conns[i] = side_connect_one_to(&others[i]);
    }
    side_connect(&one, &two);
    side_connect(&two, &one);
}

void sides_close_many(const side_t *others, regx_conn_t **conns, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        regx_transport_ops.disconnect(conns[i]);
    }
    regx_transport_ops.disconnect(one.conn);
    regx_transport_ops.disconnect(two.conn);
    for (unsigned i = 0; i < count; i++) {
        side_close(&others[i]);
    }
    side_close(&one);
    side_close(&two);
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "verbs_parties.h"

/* Only in programs on devices in memory. */
extern void fake_reset(void) __attribute__((weak));

static bool is_ending(const regx_transport_t *transport)
{
    return !regx_list_empty(&((const regx_verbs_t *)transport)->ending);
}

static void cut(regx_transport_t *transport, uint64_t peer)
{
    qp_fail(regx_ep_find(regx_verbs_of(transport), peer)->qp);
}

conformance_t verbs_conformance = {
    .name = "verbs", .ops = &regx_transport_ops, .is_ending = is_ending, .cut = cut};

int verbs_reset(void **state)
{
    if (fake_reset != NULL) {
        fake_reset();
    }
    verbs_conformance.settings = NULL;
    memset(verbs_conformance.devices, 0, sizeof(verbs_conformance.devices));
    tested = &verbs_conformance;
    return 0;
}

regx_verbs_t *verbs_of(const party_t *party)
{
    return regx_verbs_of(party->transport);
}

regx_ep_t *ep_of(const party_t *party, uint64_t peer)
{
    return regx_ep_find(verbs_of(party), peer);
}

void qp_fail(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

void party_hear(const party_t *party, const regx_cm_message_t *message, size_t length)
{
    const struct ibv_wc wc = {.wr_id = REGX_RECEIVED,
                              .byte_len = (uint32_t)(REGX_GRH_SIZE + length),
                              .src_qp = message->address.qpn};

    memcpy(verbs_of(party)->buffers.area->datagrams[0] + REGX_GRH_SIZE, message, length);
    regx_cm_receive(verbs_of(party), &wc);
}

regx_cm_message_t request_of_two(uint64_t epoch)
{
    return (regx_cm_message_t){.version = REGX_VERBS_VERSION,
                               .kind = REGX_CM_REQUEST,
                               .qpn = 0x1234,
                               .epoch = epoch,
                               .from = TWO,
                               .to = ONE,
                               .pool_size = POOL,
                               .address = verbs_of(&two)->address};
}

regx_conn_t *one_connect(const party_t *to)
{
    regx_conn_t *const kept = one.conn;

    party_connect(&one, to);
    regx_conn_t *const conn = one.conn;
    one.conn = kept;
    return conn;
}

regx_status_t conn_try(regx_conn_t *conn, size_t length)
{
    static uint8_t data[REGX_VERBS_FRAME_MAX];

    return regx_transport_ops.send(conn, 1, NULL, 0, NULL, data, length);
}

void one_asks(void)
{
    assert_int_equal(conn_try(one.conn, 10), REGX_AGAIN);
}

void await_broken(const char *says)
{
    until(one.broken != 0, parties_progress());
    assert_int_equal(one.broken, 1);
    assert_non_null(strstr(one.what, says));
}

static void assert_nothing_is_left(const party_t *party)
{
    const regx_verbs_t *verbs = verbs_of(party);

    assert_int_equal(verbs->requests.outstanding, verbs->requests.unsignaled);
    assert_int_equal(verbs->buffers.slot_count, verbs->buffers.slot_total);
}

void verbs_close(void)
{
    parties_leave();
    assert_nothing_is_left(&one);
    assert_nothing_is_left(&two);
    parties_close();
}

void party_drop(party_t *party)
{
    regx_eps_break(verbs_of(party), REGX_EP_BROKEN, "test", "the end");
    regx_transport_ops.close(party->transport);
    party->transport = NULL;
}

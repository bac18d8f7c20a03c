/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a real device is told of btl_regx_verbs_*, and that it works with it.
 */
#include "sides.h"

/* What the last queue pair was told on its way. */
static struct ibv_qp_attr begins, receives, sends;

int __real_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    if (qp->qp_type == IBV_QPT_RC && attr->qp_state == IBV_QPS_INIT) {
        begins = *attr;
    } else if (qp->qp_type == IBV_QPT_RC && attr->qp_state == IBV_QPS_RTR) {
        receives = *attr;
    } else if (qp->qp_type == IBV_QPT_RC && attr->qp_state == IBV_QPS_RTS) {
        sends = *attr;
    }
    return __real_ibv_modify_qp(qp, attr, mask);
}

static void exchange(void)
{
    side_send(&one, 1, 1, 3000);
    side_send(&two, 1, 2, 3000);
    side_await(&one.delivered, 1);
    side_await(&two.delivered, 1);
    assert_true(unit_is_filled(one.last, 3000, 2));
    assert_true(unit_is_filled(two.last, 3000, 1));
    assert_int_equal(one.broken + two.broken, 0);
}

static void the_defaults_reach_the_queue_pair(void **state)
{
    (void)state;
    side_settings = NULL;
    sides_open(false);
    exchange();
    assert_int_equal(begins.pkey_index, 0);
    assert_int_equal(receives.path_mtu, verbs_of(&one)->port.attr.active_mtu);
    assert_int_equal(receives.ah_attr.sl, 0);
    assert_int_equal(receives.ah_attr.grh.traffic_class, 0);
    assert_int_equal(sends.timeout, 18);
    assert_int_equal(sends.retry_cnt, 6);
    assert_int_equal(sends.rnr_retry, 7);
    sides_close();
}

/* Another GID than would be taken, where the port has one. */
static int another_gid(void)
{
    struct ibv_gid_entry entries[256];
    const regx_verbs_port_t *port = &verbs_of(&one)->port;
    const ssize_t count = ibv_query_gid_table(port->context, entries, 256, 0);

    for (ssize_t i = 0; i < count; i++) {
        if (entries[i].port_num == port->number && entries[i].gid_index != port->gid.gid_index) {
            return (int)entries[i].gid_index;
        }
    }
    return (int)port->gid.gid_index;
}

static void every_setting_reaches_the_queue_pair(void **state)
{
    regx_verbs_settings_t chosen = {.service_level = 3, .traffic_class = 0x68};

    (void)state;
    side_settings = NULL;
    sides_open(false);
    chosen.gid_index = another_gid();
    chosen.pkey = verbs_of(&one)->address.pkey;
    sides_close();

    side_settings = &chosen;
    sides_open(false);
    exchange();
    assert_int_equal(verbs_of(&one)->address.pkey, chosen.pkey);
    assert_int_equal(begins.pkey_index, verbs_of(&one)->pkey_index);
    assert_int_equal(receives.ah_attr.sl, chosen.service_level);
    if (receives.ah_attr.is_global) {
        assert_int_equal(receives.ah_attr.grh.traffic_class, chosen.traffic_class);
        assert_int_equal(receives.ah_attr.grh.sgid_index, chosen.gid_index);
    }
    sides_close();
}

/* Of two MTUs the smaller one holds. */
static void the_smaller_mtu_of_both_ends_holds(void **state)
{
    const side_t *const sides[] = {&one, &two};

    (void)state;
    side_settings = NULL;
    for (int which = 0; which < 2; which++) {
        side_open(&one, ONE, TWO, false);
        side_open(&two, TWO, ONE, false);
        verbs_of(sides[which])->address.mtu = IBV_MTU_256;
        side_connect(&one, &two);
        side_connect(&two, &one);
        receives.path_mtu = IBV_MTU_4096;
        exchange();
        assert_int_equal(receives.path_mtu, IBV_MTU_256);
        sides_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_defaults_reach_the_queue_pair),
        cmocka_unit_test(every_setting_reaches_the_queue_pair),
        cmocka_unit_test(the_smaller_mtu_of_both_ends_holds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

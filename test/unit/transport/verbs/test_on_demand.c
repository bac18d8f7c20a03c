/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Regions on demand of the verbs transport over a device that is none: what it must be able to do,
 * which region is used for what, and how it is advised. That it follows the mapping is for the real
 * ones (test/registration/test_staleness_verbs.py, test/mpi/test_on_demand.py).
 */
#include "../../unit.h"

#include <errno.h>
#include <unistd.h>

#include "transport/verbs/verbs.h"

extern const regx_transport_ops_t regx_transport_ops;

#undef ibv_reg_mr

enum { GIB = 1 << 30 };

static struct device {
    struct verbs_context context;
    uint64_t general;
    uint32_t rc;
    int error; /* of the query, and of advice */
    unsigned registered, deregistered;
    int flags; /* of the last registration */
    unsigned advised;
    enum ibv_advise_mr_advice advice;
    struct ibv_sge segments[4];
} device;

static struct ibv_mr region = {.lkey = 77};
static struct ibv_pd pd = {.context = &device.context.context};
static regx_verbs_t verbs;
static regx_counters_t counters;

/* These two in place of libibverbs'. */
struct ibv_mr *ibv_reg_mr(struct ibv_pd *in, void *base, size_t length, int flags)
{
    (void)base, (void)length;
    assert_ptr_equal(in, &pd);
    device.registered++;
    device.flags = flags;
    return &region;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    assert_ptr_equal(mr, &region);
    device.deregistered++;
    return 0;
}

static int query(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                 struct ibv_device_attr_ex *attr, size_t size)
{
    (void)context, (void)input;
    assert_int_equal(size, sizeof(*attr));
    attr->odp_caps.general_caps = device.general;
    attr->odp_caps.per_transport_caps.rc_odp_caps = device.rc;
    return device.error;
}

static int advise(struct ibv_pd *in, enum ibv_advise_mr_advice advice, uint32_t flags,
                  struct ibv_sge *segments, uint32_t count)
{
    assert_ptr_equal(in, &pd);
    assert_int_equal(flags, 0); /* nobody waits */
    assert_int_equal(count, 1);
    device.advice = advice;
    device.segments[device.advised++ % 4] = *segments;
    return device.error;
}

static int setup(void **state)
{
    (void)state;
    device = (struct device){.context = {.sz = sizeof(device.context),
                                         .query_device_ex = query,
                                         .advise_mr = advise,
                                         .context = {.abi_compat = __VERBS_ABI_IS_EXTENDED}},
                             .general = IBV_ODP_SUPPORT,
                             .rc = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ};
    memset(&verbs, 0, sizeof(verbs));
    regx_try_lock_init(&verbs.try_lock, false);
    verbs.pd = &pd;
    verbs.can.reads_made = verbs.can.reads_answered = 1;
    verbs.address.mtu = IBV_MTU_1024;
    verbs.config.counters = &counters;
    verbs.port.context = &device.context.context;
    strcpy(verbs.port.name, "none0:1");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    regx_try_lock_fini(&verbs.try_lock);
    return 0;
}

static void refused(const char *says)
{
    char error[256] = "";

    assert_int_equal(regx_transport_ops.on_demand(&verbs.super, error, sizeof(error)), REGX_DENIED);
    assert_string_equal(error, says);
    assert_int_equal(device.registered, 0);
}

static void a_device_that_cannot_is_refused_by_name(void **state)
{
    static const char none[] = "none0:1, or its driver in this kernel, has no on-demand paging";

    (void)state;
    device.general = 0;
    refused(none);
    device.general = IBV_ODP_SUPPORT_IMPLICIT; /* of nothing */
    refused(none);
    device.general = IBV_ODP_SUPPORT;
    device.rc = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_READ;
    refused("none0:1 has on-demand paging, but not for RDMA WRITE over reliable connections");
    device.error = EIO;
    refused(none);
}

static regx_mr_t reg(unsigned access)
{
    regx_mr_t mr;

    assert_int_equal(
        regx_transport_ops.reg(&verbs.super, &device, 64, access | REGX_ACCESS_ON_DEMAND, &mr),
        REGX_OK);
    assert_ptr_equal(mr.base, &device);
    assert_int_equal(mr.length, 64);
    return mr;
}

static void what_peers_reach_has_a_region_of_its_own(void **state)
{
    (void)state;
    regx_mr_t mr = reg(REGX_ACCESS_LOCAL);
    assert_ptr_equal(mr.handle, &region);
    assert_int_equal(device.flags, IBV_ACCESS_ON_DEMAND);
    regx_transport_ops.dereg(&verbs.super, &mr);
    assert_int_equal(device.deregistered, 1);
    mr = reg(REGX_ACCESS_REMOTE_WRITE);
    assert_ptr_equal(mr.handle, &region);
    assert_int_equal(device.flags,
                     IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    regx_transport_ops.dereg(&verbs.super, &mr);
    assert_int_equal(device.deregistered, 2);
}

/* Soft-RoCE errs within a page: nothing begins there, and no packet either. */
static void soft_roce_begins_where_a_page_does(void **state)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char error[256] = "";

    (void)state;
    assert_int_equal(regx_transport_ops.on_demand(&verbs.super, error, sizeof(error)), REGX_OK);
    assert_int_equal(verbs.super.on_demand_grain, 1);
    verbs.port.device.vendor_id = 0xffffff;
    refused("none0:1 is Soft-RoCE, which errs on demand in packets of 1024 bytes");
    verbs.address.mtu = IBV_MTU_4096;
    assert_int_equal(regx_transport_ops.on_demand(&verbs.super, error, sizeof(error)), REGX_OK);
    assert_int_equal(verbs.super.on_demand_grain, page);
}

static void a_device_that_cannot_be_read_is_not(void **state)
{
    regx_mr_t mr;

    (void)state;
    verbs.can.odp = IBV_ODP_SUPPORT_WRITE;
    assert_int_equal(regx_transport_ops.reg(&verbs.super, &device, 64,
                                            REGX_ACCESS_REMOTE_READ | REGX_ACCESS_ON_DEMAND, &mr),
                     REGX_INVALID);
    assert_int_equal(device.registered, 0);
    verbs.can.odp |= IBV_ODP_SUPPORT_READ;
    reg(REGX_ACCESS_REMOTE_READ);
    assert_int_equal(device.flags, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_READ);
}

static void advice_names_what_is_needed(void **state)
{
    (void)state;
    regx_mr_t mr = {.access = REGX_ACCESS_LOCAL | REGX_ACCESS_ON_DEMAND, .handle = &region};
    assert_int_equal(regx_transport_ops.prefetch(&verbs.super, &mr, (void *)4096, 5), REGX_OK);
    assert_int_equal(device.advice, IBV_ADVISE_MR_ADVICE_PREFETCH);
    assert_int_equal(device.segments[0].addr, 4096);
    assert_int_equal(device.segments[0].length, 5);
    assert_int_equal(device.segments[0].lkey, 77);

    mr.access |= REGX_ACCESS_REMOTE_WRITE;
    device.advised = 0;
    assert_int_equal(
        regx_transport_ops.prefetch(&verbs.super, &mr, (void *)4096, 2 * (size_t)GIB + 9), REGX_OK);
    assert_int_equal(device.advice, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE);
    assert_int_equal(device.advised, 3);
    assert_int_equal(device.segments[1].addr, 4096 + GIB);
    assert_int_equal(device.segments[1].length, GIB);
    assert_int_equal(device.segments[2].length, 9);

    device.error = EINVAL;
    assert_int_equal(regx_transport_ops.prefetch(&verbs.super, &mr, (void *)4096, 5), REGX_DENIED);
    device.error = 0;
    device.context.advise_mr = NULL; /* an old library's */
    assert_int_equal(regx_transport_ops.prefetch(&verbs.super, &mr, (void *)4096, 5), REGX_DENIED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_device_that_cannot_is_refused_by_name, setup, teardown),
        cmocka_unit_test_setup_teardown(what_peers_reach_has_a_region_of_its_own, setup, teardown),
        cmocka_unit_test_setup_teardown(soft_roce_begins_where_a_page_does, setup, teardown),
        cmocka_unit_test_setup_teardown(a_device_that_cannot_be_read_is_not, setup, teardown),
        cmocka_unit_test_setup_teardown(advice_names_what_is_needed, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

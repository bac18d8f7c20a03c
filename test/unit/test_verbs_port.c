/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which port of an RDMA device is taken, and by which address it is reached; no device is needed.
 */
#include "unit.h"

#include "transport/verbs/port.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const regx_port_choice_t ports[] = {
    {"mlx5_0", 1, false, true},
    {"mlx5_0", 2, true, false},
    {"mlx5_1", 1, true, true},
    {"rxe0", 1, true, true},
};

static char error[256];

static size_t chosen(const char *include, const char *exclude)
{
    size_t which = COUNT(ports);

    error[0] = '\0';
    assert_int_equal(
        regx_port_choose(ports, COUNT(ports), include, exclude, &which, error, sizeof(error)),
        REGX_OK);
    return which;
}

static void refused(const regx_port_choice_t *among, size_t count, const char *include,
                    const char *exclude, regx_status_t status, const char *line)
{
    size_t which;

    assert_int_equal(regx_port_choose(among, count, include, exclude, &which, error, sizeof(error)),
                     status);
    assert_string_equal(error, line);
}

static void nobody_names_one(void **state)
{
    (void)state;
    assert_int_equal(chosen(NULL, NULL), 2); /* the first near one that is active */
    assert_int_equal(chosen("", ""), 2);
}

static void named_ones(void **state)
{
    (void)state;
    assert_int_equal(chosen("mlx5_0", NULL), 1);
    assert_int_equal(chosen("mlx5_0:2", NULL), 1);
    assert_int_equal(chosen("rxe0", NULL), 3);
    assert_int_equal(chosen("mlx5_0,rxe0:1", NULL), 3); /* the near one of the two */
    assert_int_equal(chosen(NULL, "mlx5_1"), 3);
    assert_int_equal(chosen(NULL, "mlx5_1:1,rxe0"), 1);
}

static void far_ones_are_better_than_none(void **state)
{
    size_t which = 0;

    (void)state;
    assert_int_equal(regx_port_choose(ports, 2, NULL, NULL, &which, error, sizeof(error)), REGX_OK);
    assert_int_equal(which, 1);
}

static void wrong_lists(void **state)
{
    (void)state;
    refused(ports, COUNT(ports), "mlx5_7", NULL, REGX_INVALID,
            "if_include=mlx5_7: there is no RDMA device or port \"mlx5_7\"; there are: mlx5_0:1, "
            "mlx5_0:2, mlx5_1:1, rxe0:1");
    refused(ports, COUNT(ports), "rxe0,rxe0:2", NULL, REGX_INVALID,
            "if_include=rxe0,rxe0:2: there is no RDMA device or port \"rxe0:2\"; there are: "
            "mlx5_0:1, mlx5_0:2, mlx5_1:1, rxe0:1");
    refused(ports, COUNT(ports), "mlx5_0:1", NULL, REGX_INVALID,
            "if_include=mlx5_0:1: leaves no port that is active; active are: mlx5_0:2, mlx5_1:1, "
            "rxe0:1");
    refused(ports, COUNT(ports), NULL, "mlx5_0,mlx5_1,rxe0", REGX_INVALID,
            "if_exclude=mlx5_0,mlx5_1,rxe0: leaves no port that is active; active are: mlx5_0:2, "
            "mlx5_1:1, rxe0:1");
    refused(ports, COUNT(ports), "rxe0", "mlx5_0", REGX_INVALID,
            "if_include=rxe0: only one of if_include and if_exclude may be given, and if_exclude "
            "is mlx5_0");
}

static void nothing_there(void **state)
{
    (void)state;
    refused(NULL, 0, NULL, NULL, REGX_UNREACHABLE, "this machine has no RDMA device");
    refused(ports, 1, NULL, NULL, REGX_UNREACHABLE,
            "no port of an RDMA device is active; there are: mlx5_0:1");
}

static struct ibv_gid_entry gid(uint32_t index, uint32_t port, uint32_t type,
                                const uint8_t first[2], bool ipv4)
{
    struct ibv_gid_entry entry = {.gid_index = index, .port_num = port, .gid_type = type};

    memcpy(entry.gid.raw, first, 2);
    if (ipv4) {
        entry.gid.raw[10] = entry.gid.raw[11] = 0xff;
    }
    return entry;
}

static void best_gid(void **state)
{
    const uint8_t link[2] = {0xfe, 0x80}, global[2] = {0x20, 0x01}, zero[2] = {0, 0};
    const struct ibv_gid_entry entries[] = {
        gid(0, 1, IBV_GID_TYPE_ROCE_V1, link, false),
        gid(1, 1, IBV_GID_TYPE_ROCE_V2, link, false),
        gid(2, 1, IBV_GID_TYPE_ROCE_V2, global, false),
        gid(3, 1, IBV_GID_TYPE_ROCE_V1, zero, true),
        gid(4, 1, IBV_GID_TYPE_ROCE_V2, zero, true),
        gid(0, 2, IBV_GID_TYPE_ROCE_V1, link, false),
    };

    (void)state;
    assert_int_equal(regx_port_best_gid(entries, COUNT(entries), 1)->gid_index, 4);
    assert_int_equal(regx_port_best_gid(entries, 4, 1)->gid_index, 2);
    assert_int_equal(regx_port_best_gid(entries, 2, 1)->gid_index, 1);
    assert_int_equal(regx_port_best_gid(entries, 1, 1)->gid_index, 0);
    assert_int_equal(regx_port_best_gid(entries, COUNT(entries), 2)->port_num, 2);
    assert_null(regx_port_best_gid(entries, COUNT(entries), 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_names_one),
        cmocka_unit_test(named_ones),
        cmocka_unit_test(far_ones_are_better_than_none),
        cmocka_unit_test(wrong_lists),
        cmocka_unit_test(nothing_there),
        cmocka_unit_test(best_gid),
    };

    return cmocka_run_group_tests_name("verbs port", tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which ports of RDMA devices are taken, how far away they are, and by which address they are
 * reached; no device is needed.
 */
#include "../../unit.h"

#include <hwloc.h>

#include "transport/verbs/distance.h"
#include "transport/verbs/port.h"
#include "transport/verbs/ports.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static regx_port_choice_t ports[] = {
    {.device = "mlx5_0", .number = 1, .unusable = "is down"},
    {.device = "mlx5_0", .number = 2, .distance = 21},
    {.device = "mlx5_1", .number = 1, .distance = 10},
    {.device = "rxe0", .number = 1, .distance = 10},
};

static char error[256];

/* Those that are chosen, by their numbers, as text. */
static const char *chosen(const char *include, const char *exclude)
{
    static char text[32];
    size_t which[REGX_DEVICES_MAX], count, length = 0;

    error[0] = text[0] = '\0';
    assert_int_equal(regx_ports_choose(ports, COUNT(ports), include, exclude, which, &count, error,
                                       sizeof(error)),
                     REGX_OK);
    for (size_t i = 0; i < count; i++) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%zu", i > 0 ? "," : "",
                                   which[i]);
    }
    return text;
}

static void refused(regx_port_choice_t *among, size_t count, const char *include,
                    const char *exclude, regx_status_t status, const char *line)
{
    size_t which[REGX_DEVICES_MAX], chosen_count;

    assert_int_equal(regx_ports_choose(among, count, include, exclude, which, &chosen_count, error,
                                       sizeof(error)),
                     status);
    assert_string_equal(error, line);
}

static void the_nearest_active_ports_are_taken_by_default(void **state)
{
    (void)state;
    assert_string_equal(chosen(NULL, NULL), "2,3"); /* the nearest that are active */
    assert_string_equal(chosen("", ""), "2,3");
    assert_string_equal(chosen(NULL, "mlx5_1"), "3");
    assert_string_equal(chosen(NULL, "mlx5_1:1,rxe0"), "1"); /* a far one is better than none */
}

static void named_ports_are_taken(void **state)
{
    (void)state;
    assert_string_equal(chosen("mlx5_0", NULL), "1");
    assert_string_equal(chosen("mlx5_0:2", NULL), "1");
    assert_string_equal(chosen("rxe0", NULL), "3");
    assert_string_equal(chosen("rxe0:1,mlx5_0", NULL), "3,1"); /* all, in that order */
    assert_string_equal(chosen("rxe0:1,mlx5_1,rxe0", NULL), "3,2");
}

static void a_list_without_a_usable_port_is_refused_by_name(void **state)
{
    (void)state;
    refused(ports, COUNT(ports), "mlx5_7", NULL, REGX_INVALID,
            "if_include=mlx5_7: there is no RDMA device or port \"mlx5_7\"; there are: mlx5_0:1, "
            "mlx5_0:2, mlx5_1:1, rxe0:1");
    refused(ports, COUNT(ports), "rxe0,rxe0:2", NULL, REGX_INVALID,
            "if_include=rxe0,rxe0:2: there is no RDMA device or port \"rxe0:2\"; there are: "
            "mlx5_0:1, mlx5_0:2, mlx5_1:1, rxe0:1");
    refused(ports, COUNT(ports), "rxe0,mlx5_0:1", NULL, REGX_INVALID,
            "if_include=rxe0,mlx5_0:1: mlx5_0:1 is down; usable are: mlx5_0:2, mlx5_1:1, rxe0:1");
    refused(ports, COUNT(ports), NULL, "mlx5_0,mlx5_1,rxe0", REGX_INVALID,
            "if_exclude=mlx5_0,mlx5_1,rxe0: leaves no port that can be used; usable are: "
            "mlx5_0:2, mlx5_1:1, rxe0:1");
    refused(ports, COUNT(ports), "rxe0", "mlx5_0", REGX_INVALID,
            "if_include=rxe0: only one of if_include and if_exclude may be given, and if_exclude "
            "is mlx5_0");
}

static void a_machine_without_devices_is_refused_by_name(void **state)
{
    (void)state;
    refused(NULL, 0, NULL, NULL, REGX_UNREACHABLE, "this machine has no RDMA device");
    refused(NULL, 0, NULL, "rxe0", REGX_UNREACHABLE, "this machine has no RDMA device");
    refused(ports, 1, NULL, NULL, REGX_UNREACHABLE,
            "no port of an RDMA device can be used: mlx5_0:1 is down");
    refused(ports, 1, "mlx5_0", NULL, REGX_INVALID,
            "if_include=mlx5_0: mlx5_0:1 is down; usable are: none");
}

static unsigned distance(hwloc_topology_t topology, const char *cores, const char *around)
{
    hwloc_bitmap_t from = hwloc_bitmap_alloc(), to = hwloc_bitmap_alloc();

    hwloc_bitmap_list_sscanf(from, cores);
    hwloc_bitmap_list_sscanf(to, around);
    const unsigned found = regx_distance(topology, from, to);
    hwloc_bitmap_free(from);
    hwloc_bitmap_free(to);
    return found;
}

static hwloc_topology_t four_nodes(void)
{
    hwloc_topology_t topology;

    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_synthetic(topology, "pack:2 die:2 [numa] core:2 pu:1"), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    return topology;
}

static void without_a_table_the_tree_tells_the_distance(void **state)
{
    hwloc_topology_t topology = four_nodes(); /* node n has cores 2n, 2n+1 */

    (void)state;
    assert_int_equal(distance(topology, "1", "0-1"), 0);
    assert_int_equal(distance(topology, "1,6", "0-1"), 0); /* it runs on both */
    assert_int_equal(distance(topology, "", "0-1"), 0);
    assert_int_equal(distance(topology, "1", ""), 0); /* a device in software */
    assert_int_equal(distance(topology, "0", "2-3"), 4);
    assert_int_equal(distance(topology, "0", "4-5"), 8);
    assert_int_equal(distance(topology, "0", "4-7"), 8);
    assert_int_equal(distance(topology, "4", "4-7"), 0);
    hwloc_topology_destroy(topology);
}

/* A ring of four: a neighbour in the other package is nearer than what is across. */
static void where_there_is_a_table_it_tells_the_distance(void **state)
{
    hwloc_topology_t topology = four_nodes();
    hwloc_uint64_t values[4][4] = {
        {10, 20, 30, 15}, {20, 10, 15, 30}, {30, 15, 10, 20}, {15, 30, 20, 10}};
    hwloc_obj_t nodes[4];

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        nodes[i] = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, i);
    }
    hwloc_distances_add_handle_t handle = hwloc_distances_add_create(
        topology, "NUMALatency",
        HWLOC_DISTANCES_KIND_MEANS_LATENCY | HWLOC_DISTANCES_KIND_FROM_USER, 0);
    assert_non_null(handle);
    assert_int_equal(hwloc_distances_add_values(topology, handle, 4, nodes, values[0], 0), 0);
    assert_int_equal(hwloc_distances_add_commit(topology, handle, 0), 0);
    assert_int_equal(distance(topology, "0", "0-1"), 0);
    assert_int_equal(distance(topology, "0", "2-3"), 20);
    assert_int_equal(distance(topology, "0", "6-7"), 15);
    assert_int_equal(distance(topology, "0,4", "2-3"), 15); /* the nearer of its two nodes */
    hwloc_topology_destroy(topology);
}

static void the_speed_of_a_port_is_known(void **state)
{
    (void)state;
    assert_int_equal(
        regx_port_speed(&(struct ibv_port_attr){.active_speed = 32, .active_width = 2}), 100000);
    assert_int_equal(regx_port_speed(&(struct ibv_port_attr){.active_speed = 1, .active_width = 1}),
                     2500);
    assert_int_equal(
        regx_port_speed(&(struct ibv_port_attr){.active_speed = 99, .active_width = 2}), 0);
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

static void the_best_gid_is_chosen(void **state)
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

/* Ports of a kind are alike, so that small messages go by all of them; a much slower one is not. */
static void a_slower_port_has_a_higher_latency(void **state)
{
    (void)state;
    assert_int_equal(regx_port_latency(0), 0);
    assert_int_equal(regx_port_latency(400000), regx_port_latency(50000));
    assert_true(regx_port_latency(10000) > regx_port_latency(50000));
    assert_true(regx_port_latency(1000) > regx_port_latency(10000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nearest_active_ports_are_taken_by_default),
        cmocka_unit_test(named_ports_are_taken),
        cmocka_unit_test(a_list_without_a_usable_port_is_refused_by_name),
        cmocka_unit_test(a_machine_without_devices_is_refused_by_name),
        cmocka_unit_test(without_a_table_the_tree_tells_the_distance),
        cmocka_unit_test(where_there_is_a_table_it_tells_the_distance),
        cmocka_unit_test(the_speed_of_a_port_is_known),
        cmocka_unit_test(the_best_gid_is_chosen),
        cmocka_unit_test(a_slower_port_has_a_higher_latency),
    };

    return cmocka_run_group_tests_name("verbs port", tests, NULL, NULL);
}

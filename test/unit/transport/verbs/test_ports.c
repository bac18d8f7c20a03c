/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which ports a process uses on machines with several RDMA devices, by which address they are
 * reached, and what it says of those that it cannot use. On devices in memory, and on none.
 */
#include "../../unit.h"
#include "fake_device.h"

#include <sched.h>
#include <stdio.h>

#include "transport/verbs/port.h"

extern const regx_transport_ops_t regx_transport_ops;

static char error[512], traced[4096];
static regx_status_t status;

static void note(const char *line)
{
    const size_t length = strlen(traced);

    snprintf(traced + length, sizeof(traced) - length, "%s\n", line);
}

/* The chosen ones, separated by blanks. */
static const char *chosen(const char *include, const char *exclude)
{
    static char text[2048];
    regx_device_name_t names[REGX_DEVICES_MAX];
    const regx_trace_t trace = {.level = REGX_TRACE_CHOICE, .write = note};
    const regx_transport_config_t config = {
        .if_include = include, .if_exclude = exclude, .trace = &trace};
    size_t count = 0, length = 0;

    text[0] = error[0] = traced[0] = '\0';
    status = regx_transport_ops.devices(&config, error, sizeof(error), names, &count);
    for (size_t i = 0; status == REGX_OK && i < count; i++) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s", i > 0 ? " " : "",
                                   names[i]);
    }
    return text;
}

static void set_speed(fake_port_t *port, uint8_t speed, uint8_t width)
{
    port->speed = speed;
    port->width = width;
}

static int two_ports(void **state)
{
    (void)state;
    fake_reset();
    fake_add(1, 1);
    return 0;
}

static void ports_of_one_kind_are_used_together(void **state)
{
    (void)state;
    assert_string_equal(chosen(NULL, NULL), "fake0:1 fake1:1");
    set_speed(&fake.ports[0], 32, 2); /* 100 Gb/s */
    set_speed(&fake.ports[1], 64, 1); /* 50 */
    assert_string_equal(chosen(NULL, NULL), "fake0:1 fake1:1");
}

static void much_slower_port_is_left_out(void **state)
{
    (void)state;
    set_speed(&fake.ports[0], 4, 1);  /* 10 Gb/s */
    set_speed(&fake.ports[1], 32, 2); /* 100 */
    assert_string_equal(chosen(NULL, NULL), "fake1:1");
    assert_string_equal(chosen("fake0", NULL), "fake0:1"); /* unless it is named */
    assert_string_equal(chosen(NULL, "fake1"), "fake0:1");
}

/* Small messages go by all ports in turn; of two link layers one would slow them down. */
static void link_layers_are_not_mixed(void **state)
{
    (void)state;
    fake.ports[1].link_layer = IBV_LINK_LAYER_INFINIBAND;
    fake.ports[1].gid_type = IBV_GID_TYPE_IB;
    assert_string_equal(chosen(NULL, NULL), "fake1:1"); /* as fast */
    set_speed(&fake.ports[1], 32, 2);
    assert_string_equal(chosen(NULL, NULL), "fake1:1"); /* faster */
    set_speed(&fake.ports[1], 1, 1);
    assert_string_equal(chosen(NULL, NULL), "fake0:1"); /* slower */
    assert_string_equal(chosen("fake0,fake1", NULL), "fake0:1 fake1:1");
}

static void port_with_a_link_local_address_only_is_left_out(void **state)
{
    const uint8_t local[16] = {0xfe, 0x80, [15] = 9};

    (void)state;
    memcpy(fake.ports[0].gid, local, 16);
    assert_string_equal(chosen(NULL, NULL), "fake1:1");
    memcpy(fake.ports[1].gid, local, 16);
    assert_string_equal(chosen(NULL, NULL), "fake0:1 fake1:1"); /* there is no better one */
}

static void ports_that_cannot_be_used_have_a_reason(void **state)
{
    (void)state;
    fake.ports[0].without_gid = true;
    assert_string_equal(chosen(NULL, NULL), "fake1:1");
    chosen("fake0", NULL);
    assert_int_equal(status, REGX_INVALID);
    assert_string_equal(error, "if_include=fake0: fake0:1 has no GID (has its network device an "
                               "address?); usable are: fake1:1");
    fake.ports[1].down = true;
    chosen("fake1:1", NULL);
    assert_int_equal(status, REGX_INVALID);
    assert_string_equal(error, "if_include=fake1:1: fake1:1 is down; usable are: none");
    chosen(NULL, NULL);
    assert_int_equal(status, REGX_UNREACHABLE);
    assert_string_equal(error, "no port of an RDMA device can be used: fake0:1 has no GID (has its "
                               "network device an address?), fake1:1 is down");
}

/* Machines with many virtual functions have more ports than one process may use. */
static void port_behind_many_others_can_be_named(void **state)
{
    (void)state;
    for (uint8_t i = 3; i <= FAKE_DEVICES; i++) {
        fake_add(i, 1);
    }
    assert_string_equal(chosen("fake39", NULL), "fake39:1");
    chosen(NULL, NULL);
    assert_int_equal(status, REGX_OK);
}

/* Whatever the reason is. */
static void ports_that_are_not_used_are_traced(void **state)
{
    (void)state;
    chosen("fake1", NULL);
    assert_string_equal(traced, "verbs: port fake0:1 is not used: if_include does not name it\n");
    chosen(NULL, "fake1");
    assert_string_equal(traced, "verbs: port fake1:1 is not used: if_exclude names it\n");
    fake.ports[1].down = true;
    chosen(NULL, NULL);
    assert_string_equal(traced, "verbs: port fake1:1 is not used: it is down\n");
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static regx_port_choice_t ports[] = {
    {.name = "mlx5_0:1", .unusable = "is down"},
    {.name = "mlx5_0:2", .far = true},
    {.name = "mlx5_1:1"},
    {.name = "rxe0:1"},
};

/* Those that are chosen, by their numbers, as text. */
static const char *chosen_of_table(const char *include, const char *exclude)
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
                    const char *exclude, regx_status_t wanted, const char *line)
{
    size_t which[REGX_DEVICES_MAX], chosen_count;

    assert_int_equal(regx_ports_choose(among, count, include, exclude, which, &chosen_count, error,
                                       sizeof(error)),
                     wanted);
    assert_string_equal(error, line);
}

static void the_nearest_active_ports_are_taken_by_default(void **state)
{
    (void)state;
    assert_string_equal(chosen_of_table(NULL, NULL), "2,3"); /* the nearest that are active */
    assert_string_equal(chosen_of_table("", ""), "2,3");
    assert_string_equal(chosen_of_table(NULL, "mlx5_1"), "3");
    assert_string_equal(chosen_of_table(NULL, "mlx5_1:1,rxe0"),
                        "1"); /* a far one is better than none */
}

static void named_ports_are_taken(void **state)
{
    (void)state;
    assert_string_equal(chosen_of_table("mlx5_0", NULL), "1");
    assert_string_equal(chosen_of_table("mlx5_0:2", NULL), "1");
    assert_string_equal(chosen_of_table("rxe0", NULL), "3");
    assert_string_equal(chosen_of_table("rxe0:1,mlx5_0", NULL), "3,1"); /* all, in that order */
    assert_string_equal(chosen_of_table("rxe0:1,mlx5_1,rxe0", NULL), "3,2");
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

static void a_device_is_near_if_it_has_one_of_our_cores(void **state)
{
    cpu_set_t before, one;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    unsigned core = 0;
    while (!CPU_ISSET(core, &before)) {
        core++;
    }
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    char alone[16], after[32], around[48];
    snprintf(alone, sizeof(alone), "%u\n", core);
    snprintf(after, sizeof(after), "%u-%u,%u\n", core + 1, core + 8, core + 100);
    snprintf(around, sizeof(around), "%u,%u-%u", core + 100, core, core + 3);
    assert_true(regx_port_has_own_core(alone));
    assert_false(regx_port_has_own_core(after));
    assert_true(regx_port_has_own_core(around));
    assert_true(regx_port_has_own_core("")); /* a device in software */
    assert_true(regx_port_has_own_core("\n"));
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
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
        cmocka_unit_test(a_device_is_near_if_it_has_one_of_our_cores),
        cmocka_unit_test(the_speed_of_a_port_is_known),
        cmocka_unit_test(the_best_gid_is_chosen),
        cmocka_unit_test(a_slower_port_has_a_higher_latency),
        cmocka_unit_test_setup(ports_of_one_kind_are_used_together, two_ports),
        cmocka_unit_test_setup(much_slower_port_is_left_out, two_ports),
        cmocka_unit_test_setup(link_layers_are_not_mixed, two_ports),
        cmocka_unit_test_setup(port_with_a_link_local_address_only_is_left_out, two_ports),
        cmocka_unit_test_setup(ports_that_cannot_be_used_have_a_reason, two_ports),
        cmocka_unit_test_setup(ports_that_are_not_used_are_traced, two_ports),
        cmocka_unit_test_setup(port_behind_many_others_can_be_named, two_ports),
    };

    return cmocka_run_group_tests_name("verbs ports", tests, NULL, NULL);
}

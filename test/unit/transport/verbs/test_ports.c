/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which ports a process uses on machines with several RDMA devices, by which address they are
 * reached, and what it says of those that it cannot use. On devices in memory, and on none.
 */
#include "../../unit.h"
#include "fake_device.h"

#include <glob.h>

#include "transport/settings.h"

extern const regx_transport_ops_t regx_transport_ops;

static regx_error_t error;
static char traced[4096];
static regx_status_t status;
static const regx_verbs_settings_t *settings;

static const char
    *cores[FAKE_DEVICES], /* near to a port, as the kernel lists them; NULL: unknown */
    *rates[FAKE_DEVICES]; /* of the ports, as it tells them; NULL: unknown */
static size_t near;       /* ports that were chosen so */

/* What /sys has of the devices in memory. */
UNIT_WRAP(FILE *, fopen, const char *path, const char *mode)
{
    unsigned device;

    if (sscanf(path, "/sys/class/infiniband/fake%u/", &device) != 1) {
        return __real_fopen(path, mode);
    }
    const char *text = strstr(path, "/rate") != NULL ? rates[device] : cores[device];
    return text == NULL ? NULL : fmemopen((void *)(uintptr_t)text, strlen(text), "r");
}

static char *listed_by_the_kernel; /* a device's path; NULL: there is none */

UNIT_WRAP(int, glob, const char *pattern, int flags, int (*failed)(const char *, int),
          glob_t *found)
{
    (void)pattern, (void)flags, (void)failed;
    found->gl_pathv = &listed_by_the_kernel;
    found->gl_pathc = listed_by_the_kernel != NULL;
    return listed_by_the_kernel != NULL ? 0 : GLOB_NOMATCH;
}

UNIT_WRAP(void, globfree, glob_t *found)
{
    found->gl_pathc = 0;
}

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
        .if_include = include, .if_exclude = exclude, .settings = settings, .trace = &trace};
    size_t count = 0, length = 0;

    text[0] = error[0] = traced[0] = '\0';
    status = regx_transport_ops.devices(&config, error, names, &count, &near);
    for (size_t i = 0; status == REGX_OK && i < count; i++) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s", i > 0 ? " " : "",
                                   names[i]);
    }
    return text;
}

static int two_ports(void **state)
{
    fake_reset();
    fake_add(1, 1);
    memset(cores, 0, sizeof(cores));
    rates[0] = rates[1] = "25 Gb/sec (1X EDR)\n";
    settings = NULL;
    return 0;
}

UNIT_TEST_BETWEEN(ports_of_one_kind_are_used_together, two_ports, NULL)
{
    assert_string_equal(chosen(NULL, NULL), "fake0:1 fake1:1");
    rates[0] = "100 Gb/sec (4X EDR)\n";
    rates[1] = "50 Gb/sec (1X HDR)\n";
    assert_string_equal(chosen(NULL, NULL), "fake0:1 fake1:1");
}

UNIT_TEST_BETWEEN(much_slower_port_is_left_out, two_ports, NULL)
{
    rates[0] = "10 Gb/sec (1X QDR)\n";
    rates[1] = "100 Gb/sec (4X EDR)\n";
    assert_string_equal(chosen(NULL, NULL), "fake1:1");
    assert_string_equal(chosen("fake0", NULL), "fake0:1"); /* unless it is named */
    assert_string_equal(chosen(NULL, "fake1"), "fake0:1");
}

/* A process on the other socket, of another node, may have only that one. */
UNIT_TEST_BETWEEN(far_port_is_used_too_if_its_subnet_is_another, two_ports, NULL)
{
    static const regx_verbs_settings_t routed = {.gid_index = -1, .any_subnet = true};

    cores[0] = "1023"; /* not this process's */
    assert_string_equal(chosen(NULL, NULL), "fake1:1 fake0:1");
    assert_int_equal(near, 1);
    assert_string_equal(chosen("fake0,fake1", NULL), "fake0:1 fake1:1");
    assert_int_equal(near, 2); /* the user wants both */
    settings = &routed;
    assert_string_equal(chosen(NULL, NULL), "fake1:1"); /* which leads everywhere */
    settings = NULL;
    cores[1] = "1022";
    assert_string_equal(chosen(NULL, NULL), "fake0:1 fake1:1");
    assert_int_equal(near, 2); /* none is nearer */
    cores[1] = NULL;
    fake.ports[1].gid[14] = 0; /* the same network */
    fake.ports[1].gid[15] = 2;
    assert_string_equal(chosen(NULL, NULL), "fake1:1");
    assert_string_equal(traced, "verbs: port fake0:1 is not used: another port is nearer to this "
                                "process's cores\n");
}

/* Small messages go by all ports in turn; of two link layers one would slow them down. */
UNIT_TEST_BETWEEN(link_layers_are_not_mixed, two_ports, NULL)
{
    fake.ports[1].link_layer = IBV_LINK_LAYER_INFINIBAND;
    fake.ports[1].gid_type = IBV_GID_TYPE_IB;
    assert_string_equal(chosen(NULL, NULL), "fake1:1"); /* as fast */
    rates[1] = "100 Gb/sec (4X EDR)\n";
    assert_string_equal(chosen(NULL, NULL), "fake1:1"); /* faster */
    rates[1] = "2.5 Gb/sec (1X SDR)\n";
    assert_string_equal(chosen(NULL, NULL), "fake0:1"); /* slower */
    assert_string_equal(chosen("fake0,fake1", NULL), "fake0:1 fake1:1");
}

UNIT_TEST_BETWEEN(port_with_a_link_local_address_only_is_left_out, two_ports, NULL)
{
    const uint8_t local[16] = {0xfe, 0x80, [15] = 9};

    memcpy(fake.ports[0].gid, local, 16);
    assert_string_equal(chosen(NULL, NULL), "fake1:1");
    memcpy(fake.ports[1].gid, local, 16);
    assert_string_equal(chosen(NULL, NULL), "fake0:1 fake1:1"); /* there is no better one */
}

UNIT_TEST_BETWEEN(ports_that_cannot_be_used_have_a_reason, two_ports, NULL)
{
    fake.ports[0].without_gid = true;
    assert_string_equal(chosen(NULL, NULL), "fake1:1");
    fake.ports[1].down = true;
    chosen(NULL, NULL);
    assert_int_equal(status, REGX_UNREACHABLE);
    assert_string_equal(error,
                        "no port of an RDMA device can be used: fake0:1 (has no GID; has its "
                        "network device an address?), fake1:1 (is down)");
}

/* A container without the device's file, a cgroup, or a lack of descriptors: the machine has a device. */
UNIT_TEST_BETWEEN(a_device_that_cannot_be_opened_is_named_with_the_cause, two_ports, NULL)
{
    fake.ports[0].open_error = EACCES;
    assert_string_equal(chosen(NULL, NULL), "fake1:1");
    assert_string_equal(traced,
                        "verbs: port fake0 is not used: it cannot be opened: Permission denied\n");
    fake.ports[1].open_error = EMFILE;
    chosen(NULL, NULL);
    assert_int_equal(status, REGX_UNREACHABLE);
    assert_string_equal(error, "no port of an RDMA device can be used: fake0 (cannot be opened: "
                               "Permission denied), fake1 (cannot be opened: Too many open files)");
}

/* Its provider library is not installed, or a container has no /dev/infiniband. */
UNIT_TEST_BETWEEN(a_device_that_libibverbs_does_not_list_is_named, two_ports, NULL)
{
    char path[] = "/sys/class/infiniband/mlx5_0", own[] = "/sys/class/infiniband/fake0";

    listed_by_the_kernel = own;
    assert_string_equal(chosen(NULL, NULL), "fake0:1 fake1:1");
    assert_string_equal(traced, "");
    listed_by_the_kernel = path;
    assert_string_equal(chosen(NULL, NULL), "fake0:1 fake1:1");
    assert_non_null(strstr(traced, "verbs: port mlx5_0 is not used: it is "));
    fake.count = 0;
    chosen(NULL, NULL);
    listed_by_the_kernel = NULL;
    assert_int_equal(status, REGX_UNREACHABLE);
    assert_non_null(strstr(error, "no port of an RDMA device can be used: mlx5_0 (is "));
}

/* Machines with many virtual functions have more ports than one process may use. */
UNIT_TEST_BETWEEN(port_behind_many_others_can_be_named, two_ports, NULL)
{
    for (uint8_t i = 3; i <= FAKE_DEVICES; i++) {
        fake_add(i, 1);
    }
    assert_string_equal(chosen("fake39", NULL), "fake39:1");
    chosen(NULL, NULL);
    assert_int_equal(status, REGX_OK);
}

/* Whatever the reason is. */
UNIT_TEST_BETWEEN(ports_that_are_not_used_are_traced, two_ports, NULL)
{
    chosen("fake1", NULL);
    assert_string_equal(traced, "verbs: port fake0:1 is not used: if_include does not name it\n");
    chosen(NULL, "fake1");
    assert_string_equal(traced, "verbs: port fake1:1 is not used: if_exclude names it\n");
    fake.ports[1].down = true;
    chosen(NULL, NULL);
    assert_string_equal(traced, "verbs: port fake1:1 is not used: it is down\n");
}

UNIT_TEST_BETWEEN(named_ports_are_taken_in_their_order, two_ports, NULL)
{
    assert_string_equal(chosen("fake1,fake0:1,fake1", NULL), "fake1:1 fake0:1");
    assert_string_equal(chosen("fake1:1", ""), "fake1:1");
}

static void refused(const char *include, const char *exclude, regx_status_t wanted,
                    const char *line)
{
    chosen(include, exclude);
    assert_int_equal(status, wanted);
    assert_string_equal(error, line);
}

UNIT_TEST_BETWEEN(a_list_without_a_usable_port_is_refused_by_name, two_ports, NULL)
{
    fake.ports[0].down = true;
    refused("mlx5_7", NULL, REGX_INVALID,
            "if_include=mlx5_7: there is no RDMA device or port \"mlx5_7\" that can be used; there "
            "are: fake0:1 (is down), fake1:1");
    refused("fake1,fake1:2", NULL, REGX_INVALID,
            "if_include=fake1,fake1:2: there is no RDMA device or port \"fake1:2\" that can be "
            "used; there are: fake0:1 (is down), fake1:1");
    refused("fake1,fake0", NULL, REGX_INVALID,
            "if_include=fake1,fake0: there is no RDMA device or port \"fake0\" that can be used; "
            "there are: fake0:1 (is down), fake1:1");
    refused(
        NULL, "fake0,fake1", REGX_INVALID,
        "if_exclude=fake0,fake1: leaves no port that can be used; there are: fake0:1 (is down), "
        "fake1:1");
    fake.count = 0;
    refused(NULL, "fake0", REGX_UNREACHABLE, "this machine has no RDMA device");
}

static regx_counters_t counters;
static const regx_transport_config_t first_port = {
    .self = 1, .pool_size = 65536, .pool_min = 65536, .device = "fake0:1", .counters = &counters};

/* Ports of a kind are alike, so that small messages go by all of them; a much slower one is not. */
UNIT_TEST_BETWEEN(the_speed_of_a_port_is_known, two_ports, NULL)
{
    static const struct {
        unsigned megabits, latency;
        const char *rate;
    } ports[] = {{2500, 14, "2.5 Gb/sec (1X SDR)\n"},
                 {56000, 1, "56 Gb/sec (4X FDR)\n"},
                 {800000, 1, "800 Gb/sec (4X XDR)\n"},
                 {0, 0, "many\n"},
                 {0, 0, NULL}};

    for (size_t i = 0; i < sizeof(ports) / sizeof(ports[0]); i++) {
        rates[0] = ports[i].rate;
        regx_transport_t *transport = NULL;
        assert_int_equal(regx_transport_ops.open(&first_port, error, &transport), REGX_OK);
        assert_int_equal(transport->megabits, ports[i].megabits);
        assert_int_equal(transport->latency, ports[i].latency);
        regx_transport_ops.close(transport);
    }
}

/* Nothing can be received without it. */
UNIT_TEST_BETWEEN(a_port_without_a_shared_receive_queue_is_refused_by_name, two_ports, NULL)
{
    regx_transport_t *transport = NULL;

    fake.ports[0].srq_error = EOPNOTSUPP;
    assert_int_equal(regx_transport_ops.open(&first_port, error, &transport), REGX_UNREACHABLE);
    assert_string_equal(error, "fake0:1 gives no shared receive queue: Operation not supported");
    fake.ports[0].srq_error = ENOMEM;
    assert_int_equal(regx_transport_ops.open(&first_port, error, &transport), REGX_NO_MEMORY);
    assert_string_equal(error, "fake0:1 gives no shared receive queue: Cannot allocate memory");
    assert_null(transport);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which network device tcp takes, on machines that are made up.
 */
#include "../../unit.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "transport/tcp/tcp_device.h"

/* name, usable, loopback, address */
#define DEVICE(n, up, loop, quad)                                                                  \
    {                                                                                              \
        .name = (n), .usable = (up), .loopback = (loop), .ipv4 = (quad) != 0, .address = (quad)    \
    }
#define QUAD(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))

/* As the kernel lists them: each device, then each address. down0 is down; six0 has IPv6 alone;
 * two0 has two addresses. */
static const regx_tcp_device_t machine[] = {
    DEVICE("lo", true, true, 0),
    DEVICE("down0", false, false, 0),
    DEVICE("six0", true, false, 0),
    DEVICE("eth0", true, false, 0),
    DEVICE("two0", true, false, 0),
    DEVICE("lo", true, true, QUAD(127, 0, 0, 1)),
    DEVICE("down0", false, false, QUAD(10, 9, 0, 1)),
    DEVICE("eth0", true, false, QUAD(10, 1, 0, 5)),
    DEVICE("two0", true, false, QUAD(10, 2, 0, 5)),
    DEVICE("two0", true, false, QUAD(192, 168, 7, 1)),
};
enum { DEVICES = sizeof(machine) / sizeof(machine[0]) };

static char error[512];

/* The name of the device that is chosen, or NULL. */
static const char *choose(const char *include, const char *exclude, regx_status_t expected)
{
    const regx_tcp_device_t *chosen = NULL;

    error[0] = '\0';
    assert_int_equal(
        regx_tcp_choose_device(machine, DEVICES, include, exclude, &chosen, error, sizeof(error)),
        expected);
    if (expected != REGX_OK) {
        assert_true(error[0] != '\0');
        assert_null(strchr(error, '\n'));
        return NULL;
    }
    return chosen->name;
}

static void the_first_that_reaches_others_is_taken(void **state)
{
    static const regx_tcp_device_t alone[] = {DEVICE("six0", true, false, 0),
                                              DEVICE("lo", true, true, QUAD(127, 0, 0, 1))};
    const regx_tcp_device_t *chosen = NULL;

    (void)state;
    assert_string_equal(choose(NULL, NULL, REGX_OK), "eth0");
    assert_string_equal(choose("", "", REGX_OK), "eth0");
    assert_int_equal(regx_tcp_choose_device(alone, 2, NULL, NULL, &chosen, error, sizeof(error)),
                     REGX_OK);
    assert_string_equal(chosen->name, "lo");
    assert_int_equal(regx_tcp_choose_device(alone, 1, NULL, NULL, &chosen, error, sizeof(error)),
                     REGX_OK);
    assert_string_equal(chosen->name, "six0");
    assert_int_equal(regx_tcp_choose_device(alone, 0, NULL, NULL, &chosen, error, sizeof(error)),
                     REGX_UNREACHABLE);
}

static void names_and_subnets_include(void **state)
{
    (void)state;
    assert_string_equal(choose("lo", NULL, REGX_OK), "lo");
    assert_string_equal(choose("six0", NULL, REGX_OK), "six0");
    assert_string_equal(choose("two0,eth0", NULL, REGX_OK), "two0");
    assert_string_equal(choose("down0,two0", NULL, REGX_OK), "two0");
    assert_string_equal(choose("10.2.0.0/16", NULL, REGX_OK), "two0");
    assert_string_equal(choose("192.168.7.0/24", NULL, REGX_OK), "two0");
    assert_string_equal(choose("10.2.3.4/8", NULL, REGX_OK), "eth0");
    assert_string_equal(choose("172.16.0.0/12,127.0.0.1/8", NULL, REGX_OK), "lo");
    assert_string_equal(choose("10.2.0.5/32", NULL, REGX_OK), "two0");
    assert_string_equal(choose("0.0.0.0/0", NULL, REGX_OK), "lo");
}

static void names_and_subnets_exclude(void **state)
{
    (void)state;
    assert_string_equal(choose(NULL, "eth0", REGX_OK), "two0");
    assert_string_equal(choose(NULL, "127.0.0.1/8,sppp", REGX_OK), "eth0");
    assert_string_equal(choose(NULL, "10.0.0.0/8", REGX_OK), "lo");
    assert_string_equal(choose(NULL, "eth0,two0,lo", REGX_OK), "six0");
    /* One of its addresses is enough to exclude a device. */
    assert_string_equal(choose(NULL, "eth0,192.168.0.0/16", REGX_OK), "lo");
    choose(NULL, "eth0,two0,lo,six0", REGX_INVALID);
    assert_string_equal(error,
                        "if_exclude=eth0,two0,lo,six0: leaves no device; up are: lo, six0, eth0, "
                        "two0");
}

static void a_device_that_does_not_exist_is_named(void **state)
{
    (void)state;
    choose("eth9", NULL, REGX_INVALID);
    assert_string_equal(error,
                        "if_include=eth9: there is no device \"eth9\"; there are: lo, down0, "
                        "six0, eth0, two0");
    choose("eth0,eth9", NULL, REGX_INVALID);
    assert_string_equal(error, "if_include=eth0,eth9: there is no device \"eth9\"; there are: lo, "
                               "down0, six0, eth0, two0");
    choose("down0", NULL, REGX_INVALID);
    assert_string_equal(error, "if_include=down0: names no device that is up; there are: lo, six0, "
                               "eth0, two0");
    choose("172.16.0.0/12", NULL, REGX_INVALID);
    assert_string_equal(error, "if_include=172.16.0.0/12: names no device that is up; there are: "
                               "lo, six0, eth0, two0");
    choose(",", NULL, REGX_INVALID);
}

static void malformed_lists_are_refused(void **state)
{
    static const char *const bad[] = {
        "10.1.0.0/33",
        "10.1.0.0/",
        "10.1.0/16",
        "10.1.0.0/-1",
        "10.1.0.0/1x",
        "/8",
        "eth0/8",
        "eth0,10.1.0.0/ 8",
        "10.1.0.0/+8",
        "fd00::/8",
        "name-too-long-for-linux",
        "a-name-that-is-longer-than-anything-that-could-be-a-subnet-or-name/00000000000000000016"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        choose(bad[i], NULL, REGX_INVALID);
        choose(NULL, bad[i], REGX_INVALID);
    }
    choose("eth0,10.1.0.0/33", NULL, REGX_INVALID);
    assert_string_equal(error, "if_include=eth0,10.1.0.0/33: \"10.1.0.0/33\" is neither a device's "
                               "name nor a subnet such as 10.1.0.0/16");
    choose("eth0", "lo", REGX_INVALID);
    assert_string_equal(error, "if_include=eth0: only one of if_include and if_exclude may be "
                               "given, and if_exclude is lo");
}

static void this_machine_is_listed(void **state)
{
    regx_tcp_device_t *devices;
    bool found = false;
    size_t count;

    (void)state;
    assert_int_equal(regx_tcp_list_devices(&devices, &count), REGX_OK);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(devices[i].name, "lo") == 0) {
            assert_true(devices[i].loopback && devices[i].usable);
            found = found || (devices[i].ipv4 && devices[i].address == INADDR_LOOPBACK);
        }
    }
    assert_true(found);
    free(devices);
}

static void a_device_has_its_first_ipv4_address(void **state)
{
    struct sockaddr_storage address;
    struct sockaddr_in ipv4;
    socklen_t length;

    (void)state;
    const regx_tcp_device_t loopback = DEVICE("lo", true, true, 0),
                            none = DEVICE("none", true, false, 0);

    assert_int_equal(regx_tcp_device_address(&loopback, &address, &length), REGX_OK);
    assert_int_equal(address.ss_family, AF_INET);
    assert_int_equal(length, sizeof(ipv4));
    memcpy(&ipv4, &address, sizeof(ipv4));
    assert_int_equal(ntohl(ipv4.sin_addr.s_addr), INADDR_LOOPBACK);
    assert_int_equal(ipv4.sin_port, 0);
    assert_int_equal(regx_tcp_device_address(&none, &address, &length), REGX_UNREACHABLE);
}

/* It has another one before, by which nobody of the subnet may be reached. */
static void of_a_device_in_a_subnet_the_address_there_is_used(void **state)
{
    const regx_tcp_device_t *chosen;
    struct sockaddr_storage address;
    struct sockaddr_in ipv4;
    socklen_t length;

    (void)state;
    assert_int_equal(regx_tcp_choose_device(machine, DEVICES, "192.168.7.0/24", NULL, &chosen,
                                            error, sizeof(error)),
                     REGX_OK);
    assert_int_equal(regx_tcp_device_address(chosen, &address, &length), REGX_OK);
    assert_int_equal(length, sizeof(ipv4));
    memcpy(&ipv4, &address, sizeof(ipv4));
    assert_int_equal(ipv4.sin_family, AF_INET);
    assert_int_equal(ntohl(ipv4.sin_addr.s_addr), QUAD(192, 168, 7, 1));
    assert_int_equal(ipv4.sin_port, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_reaches_others_is_taken),
        cmocka_unit_test(names_and_subnets_include),
        cmocka_unit_test(names_and_subnets_exclude),
        cmocka_unit_test(a_device_that_does_not_exist_is_named),
        cmocka_unit_test(malformed_lists_are_refused),
        cmocka_unit_test(this_machine_is_listed),
        cmocka_unit_test(a_device_has_its_first_ipv4_address),
        cmocka_unit_test(of_a_device_in_a_subnet_the_address_there_is_used),
    };

    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}

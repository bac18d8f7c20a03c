/* SPDX-License-Identifier: BSD-3-Clause
 *
 * tcp over IPv6, in a network of the test's own, whose loopback loses its IPv4 address.
 */
#include "ends.h"

#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int control; /* by which the network is told what to do */

/* A network that nobody else uses; its loopback is up. */
static void enter_network(void)
{
    struct ifreq device = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};

    if (unshare(CLONE_NEWNET) != 0) {
        print_message("not tried: only root may make a network\n");
        skip();
    }
    control = socket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(ioctl(control, SIOCSIFFLAGS, &device), 0);
}

static void remove_ipv4(void)
{
    struct ifreq device = {.ifr_name = "lo"};
    const struct sockaddr_in none = {.sin_family = AF_INET};

    memcpy(&device.ifr_addr, &none, sizeof(none));
    assert_int_equal(ioctl(control, SIOCSIFADDR, &device), 0);
    close(control);
}

static bool has_ipv6(void)
{
    const struct sockaddr_in6 loopback = {.sin6_family = AF_INET6,
                                          .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    const bool has = bind(fd, (const struct sockaddr *)&loopback, sizeof(loopback)) == 0;

    close(fd);
    return has;
}

static bool is_reached(const end_t *from, const end_t *to)
{
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = regx_tcp_address(to->transport, address);
    regx_conn_t *conn;
    const regx_status_t status =
        regx_tcp_connect(from->transport, from->peer, false, address, length, &conn);

    assert_true(status == REGX_OK || status == REGX_UNREACHABLE);
    if (status == REGX_OK) {
        regx_tcp_disconnect(conn);
    }
    return status == REGX_OK;
}

static void where_there_is_no_ipv4_address_ipv6_is_used(void **state)
{
    end_t low, high, ipv4;

    (void)state;
    enter_network();
    if (!has_ipv6()) {
        print_message("not tried: the kernel has no IPv6\n");
        skip();
    }
    open_end(&ipv4, HIGH);
    assert_int_equal(ipv4.tcp->at.ss_family, AF_INET);
    remove_ipv4();
    open_both(&low, &high);
    assert_int_equal(low.tcp->at.ss_family, AF_INET6);
    exchange(&low, &high, 100);
    check_links(&low, &high, 1);
    assert_true(is_reached(&low, &high));
    assert_false(is_reached(&low, &ipv4)); /* each publishes one address */
    assert_false(is_reached(&ipv4, &low));
    close_both(&low, &high);
    close_end(&ipv4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_there_is_no_ipv4_address_ipv6_is_used),
    };

    return cmocka_run_group_tests_name("ipv6", tests, NULL, NULL);
}

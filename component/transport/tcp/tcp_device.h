/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which network device tcp uses.
 */
#ifndef REGX_TRANSPORT_TCP_DEVICE_H
#define REGX_TRANSPORT_TCP_DEVICE_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/status.h"

/* One IPv4 address of a device, or a device without any. */
typedef struct regx_tcp_device {
    char name[IF_NAMESIZE];
    bool usable; /* up, and it has an IPv4 or IPv6 address */
    bool loopback;
    bool ipv4;        /* it has an address */
    uint32_t address; /* in the machine's byte order */
} regx_tcp_device_t;

/* The devices of this machine in the kernel's order, in memory from malloc.
 * REGX_OK; REGX_NO_MEMORY; REGX_FAILED. */
regx_status_t regx_tcp_list_devices(regx_tcp_device_t **devices, size_t *count);

/* The address of a device, if it is with one; else its first: IPv4, else IPv6 beyond the link, else
 * IPv6. Without a port. REGX_OK; REGX_UNREACHABLE: it has none; REGX_FAILED. */
regx_status_t regx_tcp_device_address(const regx_tcp_device_t *device,
                                      struct sockaddr_storage *address, socklen_t *length);

/* Chooses as regx_tcp_open says; the strings may be NULL or empty.
 * REGX_OK; REGX_INVALID: a list is malformed or leaves nothing; REGX_UNREACHABLE: nothing is up.
 * `error` then holds one line that begins with the name of the parameter, if_include or if_exclude,
 * where one is to blame. */
regx_status_t regx_tcp_choose_device(const regx_tcp_device_t *devices, size_t count,
                                     const char *if_include, const char *if_exclude,
                                     const regx_tcp_device_t **chosen, char *error,
                                     size_t error_size);

#endif

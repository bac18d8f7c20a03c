/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/port.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_BITS 128     /* of a GID; a network of one host is none */
#define SMALL_BITS 32768u /* of 4 KiB */
#define GIDS_MAX 1024     /* of all ports of a device; more are an error of the query */

bool regx_port_is_link_local(const struct ibv_gid_entry *gid)
{
    return gid->gid.raw[0] == 0xfe && (gid->gid.raw[1] & 0xc0) == 0x80;
}

static int gid_rank(const struct ibv_gid_entry *entry)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* an IPv4 address follows */

    if (entry->gid_type != IBV_GID_TYPE_ROCE_V2) {
        return 3;
    }
    if (memcmp(entry->gid.raw, mapped, sizeof(mapped)) == 0) {
        return 0;
    }
    return regx_port_is_link_local(entry) ? 2 : 1;
}

const struct ibv_gid_entry *regx_port_best_gid(const struct ibv_gid_entry *entries, size_t count,
                                               uint8_t port)
{
    const struct ibv_gid_entry *best = NULL;

    for (size_t i = 0; i < count; i++) {
        if (entries[i].port_num == port &&
            (best == NULL || gid_rank(&entries[i]) < gid_rank(best))) {
            best = &entries[i];
        }
    }
    return best;
}

bool regx_port_find_gid(struct ibv_context *context, uint8_t number, struct ibv_gid_entry *gid)
{
    struct ibv_gid_entry entries[GIDS_MAX];
    const ssize_t count = ibv_query_gid_table(context, entries, GIDS_MAX, 0);
    const struct ibv_gid_entry *best =
        count > 0 ? regx_port_best_gid(entries, (size_t)count, number) : NULL;

    if (best != NULL) {
        *gid = *best;
    }
    return best != NULL;
}

static regx_status_t choose_gid(regx_port_t *port, int index, char *error, size_t error_size)
{
    struct ibv_gid_entry entries[GIDS_MAX];
    const ssize_t count = ibv_query_gid_table(port->context, entries, GIDS_MAX, 0);
    const struct ibv_gid_entry *chosen = NULL;

    if (index < 0 && count > 0) {
        chosen = regx_port_best_gid(entries, (size_t)count, port->number);
    }
    for (ssize_t i = 0; i < count && index >= 0; i++) {
        if (entries[i].port_num == port->number && entries[i].gid_index == (uint32_t)index) {
            chosen = &entries[i];
        }
    }
    if (chosen != NULL) {
        port->gid = *chosen;
        return REGX_OK;
    }
    if (index >= 0) {
        size_t length = (size_t)snprintf(
            error, error_size, "verbs_gid_index=%d: port %s has no such GID; there are:", index,
            port->name);

        for (ssize_t i = 0; i < count && length < error_size; i++) {
            if (entries[i].port_num == port->number) {
                length += (size_t)snprintf(error + length, error_size - length, " %u",
                                           entries[i].gid_index);
            }
        }
        return REGX_INVALID;
    }
    snprintf(error, error_size, "port %s has no GID; has its network device an address?",
             port->name);
    return REGX_UNREACHABLE;
}

static struct ibv_context *open_device(const char *name, size_t length)
{
    struct ibv_device **devices = ibv_get_device_list(NULL), **at = devices;
    struct ibv_context *context = NULL;

    while (at != NULL && *at != NULL &&
           (strncmp(ibv_get_device_name(*at), name, length) != 0 ||
            ibv_get_device_name(*at)[length] != '\0')) {
        at++;
    }
    errno = ENODEV;
    if (at != NULL && *at != NULL) {
        context = ibv_open_device(*at);
    }
    if (devices != NULL) {
        ibv_free_device_list(devices);
    }
    return context;
}

regx_status_t regx_port_open(const char *name, int gid_index, char *error, size_t error_size,
                             regx_port_t *port)
{
    const char *colon = strrchr(name, ':');
    regx_status_t status = REGX_UNREACHABLE;

    memset(port, 0, sizeof(*port));
    snprintf(port->name, sizeof(port->name), "%s", name);
    port->number = (uint8_t)strtoul(colon + 1, NULL, 10);
    port->context = open_device(name, (size_t)(colon - name));
    if (port->context == NULL || ibv_query_device(port->context, &port->device) != 0 ||
        ibv_query_port(port->context, port->number, &port->attr) != 0) {
        snprintf(error, error_size, "port %s cannot be opened: %s", port->name, strerror(errno));
    } else {
        status = choose_gid(port, gid_index, error, error_size);
    }
    if (status != REGX_OK) {
        regx_port_close(port);
    }
    return status;
}

void regx_port_close(regx_port_t *port)
{
    if (port->context != NULL) {
        ibv_close_device(port->context);
        port->context = NULL;
    }
}

unsigned regx_port_speed(const struct ibv_port_attr *attr)
{
    static const struct {
        uint8_t code;
        unsigned megabits; /* of one lane */
    } speeds[] = {{1, 2500},   {2, 5000},   {4, 10000},  {8, 10000},
                  {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}};
    static const struct {
        uint8_t code;
        unsigned lanes;
    } widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
    unsigned megabits = 0, lanes = 0;

    for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++) {
        megabits = attr->active_speed == speeds[i].code ? speeds[i].megabits : megabits;
    }
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        lanes = attr->active_width == widths[i].code ? widths[i].lanes : lanes;
    }
    return megabits * lanes;
}

bool regx_port_needs_grh(const struct ibv_port_attr *attr)
{
    return (attr->flags & IBV_QPF_GRH_REQUIRED) != 0;
}

static uint8_t count_bits(const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    unsigned bits = 0;

    for (size_t i = 0; i < length; i++) {
        bits += (unsigned)__builtin_popcount(at[i]);
    }
    return (uint8_t)bits;
}

/* The bits of the network that an interface's address is in, if that is the GID; else 0. */
static uint8_t bits_of(const struct ifaddrs *interface, const uint8_t gid[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const struct sockaddr *address = interface->ifa_addr, *mask = interface->ifa_netmask;

    if (address == NULL || mask == NULL) {
        return 0;
    }
    if (address->sa_family == AF_INET && memcmp(gid, mapped, sizeof(mapped)) == 0 &&
        memcmp(gid + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4) == 0) {
        return (uint8_t)(96 + count_bits(
                                  &((const struct sockaddr_in *)(const void *)mask)->sin_addr, 4));
    }
    if (address->sa_family == AF_INET6 &&
        memcmp(gid, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16) == 0) {
        return count_bits(&((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr, 16);
    }
    return 0;
}

uint8_t regx_port_network_bits(const regx_port_t *port)
{
    struct ifaddrs *list;
    uint8_t bits = 0;

    if (port->attr.link_layer != IBV_LINK_LAYER_ETHERNET || getifaddrs(&list) != 0) {
        return 0;
    }
    for (const struct ifaddrs *at = list; at != NULL && bits == 0; at = at->ifa_next) {
        bits = bits_of(at, port->gid.gid.raw);
    }
    freeifaddrs(list);
    return bits == HOST_BITS ? 0 : bits;
}

unsigned regx_port_latency(unsigned megabits)
{
    return megabits != 0 ? 1 + SMALL_BITS / megabits : 0;
}

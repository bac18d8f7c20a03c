/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One port of an RDMA device, opened, and how it is addressed.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "base/file.h"
#include "transport/verbs/verbs.h"

#define HOST_BITS 128  /* of a GID; a network of one host is none */
#define ROCE_CLASS 106 /* DSCP 26, ECN-capable */
#define GIDS_MAX 1024  /* of all ports of a device; more are an error of the query */

/* An IPv4 address follows, in a GID. */
static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

/* The bits of the network that the GID is in, as an address of the first network device of this process's network
 * namespace that has it, and these flags; 0: none has. */
static unsigned network_bits_of(const struct ifaddrs *interfaces, const struct ibv_gid_entry *entry,
                                unsigned flags)
{
    const uint8_t *gid = entry->gid.raw;
    unsigned bits = 0;

    for (const struct ifaddrs *at = interfaces; at != NULL && bits == 0; at = at->ifa_next) {
        const void *address = at->ifa_addr, *mask = at->ifa_netmask;
        const struct sockaddr_in *address4 = address, *mask4 = mask;
        const struct sockaddr_in6 *address6 = address, *mask6 = mask;
        const uint8_t *ones = NULL;
        unsigned size = 0;

        if ((at->ifa_flags & flags) != flags || address == NULL || mask == NULL) {
            continue;
        }
        if (address4->sin_family == AF_INET && memcmp(gid, mapped, sizeof(mapped)) == 0 &&
            memcmp(gid + sizeof(mapped), &address4->sin_addr, 4) == 0) {
            ones = (const uint8_t *)&mask4->sin_addr;
            size = 4;
            bits = 8 * sizeof(mapped);
        } else if (address4->sin_family == AF_INET6 && memcmp(gid, &address6->sin6_addr, 16) == 0) {
            ones = mask6->sin6_addr.s6_addr;
            size = 16;
        }
        for (unsigned i = 0; i < size; i++) {
            bits += (unsigned)__builtin_popcount(ones[i]);
        }
    }
    return bits;
}

/* RoCE v2 before v1, a routable address before one of the link alone, and of these one that is in
 * use before others. */
static int gid_rank(const struct ibv_gid_entry *entry, const struct ifaddrs *interfaces)
{
    const int unused = network_bits_of(interfaces, entry, IFF_UP) == 0;

    if (entry->gid_type != IBV_GID_TYPE_ROCE_V2) {
        return 6;
    }
    if (memcmp(entry->gid.raw, mapped, sizeof(mapped)) == 0) {
        return unused;
    }
    return (regx_gid_is_link_local(entry) ? 4 : 2) + unused;
}

bool regx_verbs_port_find_gid(regx_verbs_port_t *port, int index, char *text, size_t size)
{
    struct ibv_gid_entry entries[GIDS_MAX];
    const ssize_t count = ibv_query_gid_table(port->context, entries, GIDS_MAX, 0);
    struct ifaddrs *interfaces;
    size_t length = 0;
    bool found = false;

    if (getifaddrs(&interfaces) != 0) {
        interfaces = NULL;
    }
    text[0] = '\0';
    for (const struct ibv_gid_entry *at = entries; count > 0 && at != entries + count; at++) {
        if (at->port_num != port->number || at->gid_index > UINT8_MAX) { /* a route has a byte */
            continue;
        }
        if (index < 0 ? !found || gid_rank(at, interfaces) < gid_rank(&port->gid, interfaces)
                      : at->gid_index == (uint32_t)index) {
            port->gid = *at;
            found = true;
        }
        if (length < size) {
            length += (size_t)snprintf(text + length, size - length, " %u", at->gid_index);
        }
    }
    if (found && port->attr.link_layer == IBV_LINK_LAYER_ETHERNET) {
        const unsigned bits = network_bits_of(interfaces, &port->gid, 0);

        port->network_bits = bits == HOST_BITS ? 0 : (uint8_t)bits;
    }
    freeifaddrs(interfaces);
    return found;
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
        const unsigned taken = regx_low_descriptors_take();

        context = ibv_open_device(*at);
        regx_low_descriptors_give(taken);
    }
    if (devices != NULL) {
        ibv_free_device_list(devices);
    }
    return context;
}

/* The rate that the kernel tells: verbs codes speeds and widths, but a library does not know the codes of
 * ports that are faster than those of its day. */
unsigned regx_verbs_port_speed(const regx_verbs_port_t *port)
{
    char path[sizeof(regx_device_name_t) + 64], line[64];
    double gigabits = 0;

    snprintf(path, sizeof(path), "/sys/class/infiniband/%.*s/ports/%u/rate",
             (int)strcspn(port->name, ":"), port->name, port->number);
    return regx_read_line(path, line, sizeof(line)) && sscanf(line, "%lf Gb/sec", &gigabits) == 1 &&
                   gigabits >= 1 && gigabits < 1e6
               ? (unsigned)(gigabits * 1000)
               : 0;
}

/* An administrator sets the port's own by configfs or cma_roce_tos. Without one, packets of RoCE go by
 * DSCP 26 with ECN, as UCX's do: it is the class that switches are mostly told to keep lossless. */
uint8_t regx_verbs_port_traffic_class(const regx_verbs_port_t *port)
{
    char path[sizeof(regx_device_name_t) + 64], line[64];
    unsigned own;

    snprintf(path, sizeof(path), "/sys/class/infiniband/%.*s/tc/%u/traffic_class",
             (int)strcspn(port->name, ":"), port->name, port->number);
    if (regx_read_line(path, line, sizeof(line)) && sscanf(line, "Global tclass=%u", &own) == 1 &&
        own <= UINT8_MAX) {
        return (uint8_t)own;
    }
    return port->attr.link_layer == IBV_LINK_LAYER_ETHERNET ? ROCE_CLASS : 0;
}

/* What the kernel calls an open file; "" where it does not tell. */
static void name_file(int fd, char *name, size_t size)
{
    char path[sizeof(REGX_PROC) + 16];

    snprintf(path, sizeof(path), REGX_PROC "fd/%d", fd);
    const ssize_t length = readlink(path, name, size - 1);
    name[length > 0 ? length : 0] = '\0';
}

bool regx_verbs_port_has_device(regx_verbs_port_t *port)
{
    struct ibv_context *context = port->context;

    if (context->cmd_fd >= 0 && !regx_file_is_ours(&port->control)) {
        context->cmd_fd = -1;
    }
    return context->cmd_fd >= 0;
}

bool regx_verbs_port_has_events(regx_verbs_port_t *port)
{
    struct ibv_context *context = port->context;
    char name[sizeof(port->events_name)];

    if (context->async_fd >= 0) {
        name_file(context->async_fd, name, sizeof(name));
        if (!regx_file_is_ours(&port->events) ||
            (name[0] != '\0' && strcmp(name, port->events_name) != 0)) {
            context->async_fd = -1;
        }
    }
    return context->async_fd >= 0;
}

regx_status_t regx_verbs_port_open(const char *name, int gid_index, regx_error_t error,
                                   regx_verbs_port_t *port)
{
    const char *colon = strrchr(name, ':');
    regx_status_t status = REGX_UNREACHABLE;
    char indices[128];

    memset(port, 0, sizeof(*port));
    snprintf(port->name, sizeof(port->name), "%s", name);
    port->number = (uint8_t)strtoul(colon + 1, NULL, 10);
    port->context = open_device(name, (size_t)(colon - name));
    if (port->context == NULL || ibv_query_device(port->context, &port->device) != 0 ||
        ibv_query_port(port->context, port->number, &port->attr) != 0) {
        snprintf(error, REGX_ERROR, "port %s cannot be opened: %s", port->name, strerror(errno));
    } else if (regx_verbs_port_find_gid(port, gid_index, indices, sizeof(indices))) {
        port->megabits = regx_verbs_port_speed(port);
        port->control = regx_file_of(port->context->cmd_fd);
        port->events = regx_file_of(port->context->async_fd);
        name_file(port->events.fd, port->events_name, sizeof(port->events_name));
        return REGX_OK;
    } else if (gid_index >= 0) {
        status = regx_refuse(error, REGX_INVALID,
                             "verbs_gid_index=%d: port %s has no such GID; there are:%s", gid_index,
                             port->name, indices);
    } else {
        snprintf(error, REGX_ERROR, "port %s has no GID; has its network device an address?",
                 port->name);
    }
    if (port->context != NULL) {
        ibv_close_device(port->context);
        port->context = NULL;
    }
    return status;
}

bool regx_verbs_port_refresh(regx_verbs_port_t *port)
{
    struct ibv_gid_entry entries[GIDS_MAX];
    const ssize_t count = ibv_query_gid_table(port->context, entries, GIDS_MAX, 0);
    struct ibv_port_attr attr;
    uint32_t found = UINT32_MAX;

    if (ibv_query_port(port->context, port->number, &attr) == 0) {
        port->attr = attr;
    }
    for (const struct ibv_gid_entry *at = entries; count > 0 && at != entries + count; at++) {
        if (at->port_num == port->number && at->gid_type == port->gid.gid_type &&
            at->gid_index <= UINT8_MAX &&
            (found == UINT32_MAX || at->gid_index == port->gid.gid_index) &&
            memcmp(at->gid.raw, port->gid.gid.raw, sizeof(at->gid.raw)) == 0) {
            found = at->gid_index;
        }
    }
    if (found != UINT32_MAX) {
        port->gid.gid_index = found;
    }
    return found != UINT32_MAX || count < 0;
}

void regx_verbs_port_describe(const regx_verbs_port_t *port, char *text, size_t size)
{
    text[0] = '\0';
    if (port->context->cmd_fd < 0) {
        snprintf(text, size, "; the program has closed or replaced a descriptor of port %s",
                 port->name);
    } else if (port->away != NULL) {
        snprintf(text, size, "; port %s %s", port->name, port->away);
    } else if (port->back != 0 && regx_now_ns() - port->back < REGX_VERBS_AWAY_NS) {
        snprintf(text, size, "; port %s was away for %" PRId64 " s", port->name,
                 (port->back - port->since) / 1000000000);
    } else if (port->change[0] != '\0') {
        snprintf(text, size, "; of port %s %s", port->name, port->change);
    }
}

regx_status_t regx_verbs_port_refuse(const regx_verbs_port_t *port, const char *what,
                                     regx_error_t error)
{
    return regx_refuse(error,
                       errno == ENOMEM || errno == EAGAIN ? REGX_NO_MEMORY : REGX_UNREACHABLE,
                       "%s gives no %s: %s", port->name, what, strerror(errno));
}

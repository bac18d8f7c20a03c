/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/tcp/tcp_device.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* One entry of a list: a name, or a subnet. */
typedef struct item {
    char text[64];
    bool subnet;
    uint32_t address;
    uint32_t mask;
} item_t;

static bool has_address(const struct ifaddrs *all, const char *name)
{
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        if (at->ifa_addr != NULL && strcmp(at->ifa_name, name) == 0 &&
            (at->ifa_addr->sa_family == AF_INET || at->ifa_addr->sa_family == AF_INET6)) {
            return true;
        }
    }
    return false;
}

regx_status_t regx_tcp_list_devices(regx_tcp_device_t **devices, size_t *count)
{
    struct ifaddrs *all;
    size_t room = 0, used = 0;
    regx_tcp_device_t *list;

    if (getifaddrs(&all) != 0) {
        return REGX_FAILED;
    }
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        room++;
    }
    list = calloc(room > 0 ? room : 1, sizeof(*list));
    if (list == NULL) {
        freeifaddrs(all);
        return REGX_NO_MEMORY;
    }
    /* Every device has an entry of family AF_PACKET, and one for each of its addresses. */
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        const int family = at->ifa_addr == NULL ? AF_UNSPEC : at->ifa_addr->sa_family;
        regx_tcp_device_t *device = &list[used];

        if (family != AF_INET && family != AF_PACKET) {
            continue;
        }
        snprintf(device->name, sizeof(device->name), "%s", at->ifa_name);
        device->loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
        device->usable = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_RUNNING) != 0 &&
                         has_address(all, device->name); /* up, and with a carrier */
        if (family == AF_INET) {
            struct sockaddr_in address;

            memcpy(&address, at->ifa_addr, sizeof(address));
            device->ipv4 = true;
            device->address = ntohl(address.sin_addr.s_addr);
        }
        used++;
    }
    freeifaddrs(all);
    *devices = list;
    *count = used;
    return REGX_OK;
}

/* How good an address is; 0: of no use. */
static int worth(const struct sockaddr *address)
{
    struct sockaddr_in6 ipv6;

    if (address == NULL || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) {
        return 0;
    }
    if (address->sa_family == AF_INET) {
        return 3;
    }
    memcpy(&ipv6, address, sizeof(ipv6));
    return IN6_IS_ADDR_LINKLOCAL(&ipv6.sin6_addr) ? 1 : 2;
}

regx_status_t regx_tcp_device_address(const regx_tcp_device_t *device,
                                      struct sockaddr_storage *address, socklen_t *length)
{
    const struct sockaddr *best = NULL;
    struct ifaddrs *all;

    if (device->ipv4) {
        const struct sockaddr_in ipv4 = {.sin_family = AF_INET,
                                         .sin_addr.s_addr = htonl(device->address)};

        *length = sizeof(ipv4);
        memset(address, 0, sizeof(*address));
        memcpy(address, &ipv4, sizeof(ipv4));
        return REGX_OK;
    }
    if (getifaddrs(&all) != 0) {
        return REGX_FAILED;
    }
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        if (strcmp(at->ifa_name, device->name) == 0 && worth(at->ifa_addr) > worth(best)) {
            best = at->ifa_addr;
        }
    }
    if (best != NULL) {
        *length =
            best->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        memset(address, 0, sizeof(*address));
        memcpy(address, best, *length);
    }
    freeifaddrs(all);
    return best != NULL ? REGX_OK : REGX_UNREACHABLE;
}

/* Takes the next entry of a list; `*list` moves behind it. REGX_AGAIN: there is none left. */
static regx_status_t next_item(const char **list, item_t *item)
{
    const char *start = *list + strspn(*list, ", ");
    const size_t length = strcspn(start, ", ");
    struct in_addr address;
    char *slash, *end;
    long bits;

    if (length == 0) {
        return REGX_AGAIN;
    }
    *list = start + length;
    memset(item, 0, sizeof(*item));
    snprintf(item->text, sizeof(item->text), "%.*s", (int)length, start);
    slash = strchr(item->text, '/');
    if (slash == NULL) {
        return length < IF_NAMESIZE ? REGX_OK : REGX_INVALID;
    }
    *slash = '\0';
    bits = strtol(slash + 1, &end, 10);
    if (length >= sizeof(item->text) || inet_pton(AF_INET, item->text, &address) != 1 ||
        slash[1] < '0' || slash[1] > '9' || *end != '\0' || bits > 32) {
        *slash = '/';
        return REGX_INVALID;
    }
    *slash = '/';
    item->subnet = true;
    item->mask = bits == 0 ? 0 : UINT32_MAX << (32 - bits);
    item->address = ntohl(address.s_addr) & item->mask;
    return REGX_OK;
}

static bool matches(const item_t *item, const regx_tcp_device_t *device)
{
    if (item->subnet) {
        return device->ipv4 && (device->address & item->mask) == item->address;
    }
    return strcmp(item->text, device->name) == 0;
}

/* " lo, eth0": the names of the devices, each once. */
static const char *name_devices(const regx_tcp_device_t *devices, size_t count, bool usable_only,
                                char *text, size_t size)
{
    size_t length = 0;

    snprintf(text, size, " none");
    for (size_t i = 0; i < count && length < size; i++) {
        bool seen = usable_only && !devices[i].usable;

        for (size_t before = 0; before < i && !seen; before++) {
            seen = strcmp(devices[before].name, devices[i].name) == 0;
        }
        if (!seen) {
            length += (size_t)snprintf(text + length, size - length, "%s %s",
                                       length == 0 ? "" : ",", devices[i].name);
        }
    }
    return text;
}

/* Whether every entry of a list is well formed. */
static regx_status_t check_list(const char *parameter, const char *list, char *error,
                                size_t error_size)
{
    regx_status_t status;
    const char *rest = list;
    item_t item;

    do {
        status = next_item(&rest, &item);
    } while (status == REGX_OK);
    if (status == REGX_AGAIN) {
        return REGX_OK;
    }
    snprintf(error, error_size,
             "%s=%s: \"%s\" is neither a device's name nor a subnet such as 10.1.0.0/16", parameter,
             list, item.text);
    return REGX_INVALID;
}

/* The first device that the list includes, in the list's order. */
static regx_status_t choose_included(const regx_tcp_device_t *devices, size_t count,
                                     const char *list, const regx_tcp_device_t **chosen,
                                     char *error, size_t error_size)
{
    const char *rest = list;
    char names[256];
    item_t item;

    *chosen = NULL;
    while (next_item(&rest, &item) == REGX_OK) {
        bool exists = false;

        for (size_t i = 0; i < count; i++) {
            if (matches(&item, &devices[i])) {
                exists = true;
                if (*chosen == NULL && devices[i].usable) {
                    *chosen = &devices[i];
                }
            }
        }
        if (!exists && !item.subnet) {
            snprintf(error, error_size, "if_include=%s: there is no device \"%s\"; there are:%s",
                     list, item.text, name_devices(devices, count, false, names, sizeof(names)));
            return REGX_INVALID;
        }
    }
    if (*chosen == NULL) {
        snprintf(error, error_size, "if_include=%s: names no device that is up; there are:%s", list,
                 name_devices(devices, count, true, names, sizeof(names)));
        return REGX_INVALID;
    }
    return REGX_OK;
}

static bool excluded(const regx_tcp_device_t *devices, size_t count, const char *name,
                     const char *list)
{
    item_t item;

    while (next_item(&list, &item) == REGX_OK) {
        for (size_t i = 0; i < count; i++) {
            if (strcmp(devices[i].name, name) == 0 && matches(&item, &devices[i])) {
                return true;
            }
        }
    }
    return false;
}

/* How willingly a device is taken that nobody named; less is better. The loopback reaches this
 * machine alone; a device without an IPv4 address may have none that reaches anybody. */
static int rank(const regx_tcp_device_t *device)
{
    return !device->ipv4 ? 2 : device->loopback ? 1 : 0;
}

regx_status_t regx_tcp_choose_device(const regx_tcp_device_t *devices, size_t count,
                                     const char *if_include, const char *if_exclude,
                                     const regx_tcp_device_t **chosen, char *error,
                                     size_t error_size)
{
    const char *include = if_include == NULL ? "" : if_include;
    const char *exclude = if_exclude == NULL ? "" : if_exclude;
    char names[256];

    if (include[0] != '\0' && exclude[0] != '\0') {
        snprintf(error, error_size,
                 "if_include=%s: only one of if_include and if_exclude may be "
                 "given, and if_exclude is %s",
                 include, exclude);
        return REGX_INVALID;
    }
    if (check_list("if_include", include, error, error_size) != REGX_OK ||
        check_list("if_exclude", exclude, error, error_size) != REGX_OK) {
        return REGX_INVALID;
    }
    if (include[0] != '\0') {
        return choose_included(devices, count, include, chosen, error, error_size);
    }
    *chosen = NULL;
    for (size_t i = 0; i < count; i++) {
        if (devices[i].usable && (*chosen == NULL || rank(&devices[i]) < rank(*chosen)) &&
            !excluded(devices, count, devices[i].name, exclude)) {
            *chosen = &devices[i];
        }
    }
    if (*chosen != NULL) {
        return REGX_OK;
    }
    name_devices(devices, count, true, names, sizeof(names));
    if (exclude[0] != '\0') {
        snprintf(error, error_size, "if_exclude=%s: leaves no device; up are:%s", exclude, names);
        return REGX_INVALID;
    }
    snprintf(error, error_size, "no network device is up that has an address");
    return REGX_UNREACHABLE;
}

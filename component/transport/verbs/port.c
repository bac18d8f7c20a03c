/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One port of an RDMA device, opened, and how it is addressed; and which ports are used.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>

#include "base/file.h"
#include "transport/verbs/verbs.h"

#define HOST_BITS 128  /* of a GID; a network of one host is none */
#define GIDS_MAX 1024  /* of all ports of a device; more are an error of the query */
#define PORTS_MAX 1024 /* of this machine; virtual functions have one each */

/* An IPv4 address follows, in a GID. */
static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

/* ---- one port ---- */

static bool is_link_local(const struct ibv_gid_entry *gid)
{
    return gid->gid.raw[0] == 0xfe && (gid->gid.raw[1] & 0xc0) == 0x80;
}

/* The bits of the network that an interface's address is in, if that is the GID; else 0. */
static unsigned bits_of(const struct ifaddrs *interface, const uint8_t gid[16])
{
    const void *address = interface->ifa_addr, *mask = interface->ifa_netmask;
    const struct sockaddr_in *address4 = address, *mask4 = mask;
    const struct sockaddr_in6 *address6 = address, *mask6 = mask;
    const uint8_t *ones = NULL;
    unsigned size = 0, bits = 0;

    if (address == NULL || mask == NULL) {
        return 0;
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
    return bits;
}

/* The same of the first network device of this process's network namespace that has such an address, and
 * these flags. */
static unsigned network_bits_of(const struct ifaddrs *interfaces, const struct ibv_gid_entry *gid,
                                unsigned flags)
{
    unsigned bits = 0;

    for (const struct ifaddrs *at = interfaces; at != NULL && bits == 0; at = at->ifa_next) {
        bits = (at->ifa_flags & flags) == flags ? bits_of(at, gid->gid.raw) : 0;
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
    return (is_link_local(entry) ? 4 : 2) + unused;
}

/* Chooses the port's GID: that of the index, or by -1 the best to be reached by. Says how many bits of
 * it name the IP network that it is in, by the addresses of this machine's network devices. false: it
 * has none; `text` then holds the indices that there are. */
static bool find_gid(regx_verbs_port_t *port, int index, char *text, size_t size)
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

/* Verbs codes speeds and widths by one bit each. */
static unsigned decode(const unsigned values[8], unsigned code)
{
    return __builtin_popcount(code) == 1 && code < 1u << 8 ? values[__builtin_ctz(code)] : 0;
}

/* What is faster than NDR, whose bit is the last, libraries know as that or not at all; but the kernel
 * tells the rate of the port. */
static unsigned speed_of(const regx_verbs_port_t *port)
{
    static const unsigned megabits[8] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000};
    static const unsigned lanes[8] = {1, 4, 8, 12, 2};
    const unsigned speed = port->attr.active_speed;
    const unsigned known = decode(megabits, speed) * decode(lanes, port->attr.active_width);
    char path[sizeof(regx_device_name_t) + 64], line[64];
    double gigabits = 0;

    if (known != 0 && speed < 1u << 7) {
        return known;
    }
    snprintf(path, sizeof(path), "/sys/class/infiniband/%.*s/ports/%u/rate",
             (int)strcspn(port->name, ":"), port->name, port->number);
    return regx_read_line(path, line, sizeof(line)) && sscanf(line, "%lf Gb/sec", &gigabits) == 1 &&
                   gigabits >= 1 && gigabits < 1e6
               ? (unsigned)(gigabits * 1000)
               : known;
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

static void keep_files(regx_verbs_port_t *port)
{
    port->control = regx_file_of(port->context->cmd_fd);
    port->events = regx_file_of(port->context->async_fd);
    name_file(port->events.fd, port->events_name, sizeof(port->events_name));
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
    } else if (find_gid(port, gid_index, indices, sizeof(indices))) {
        port->megabits = speed_of(port);
        keep_files(port);
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
    return regx_refuse(error, errno == ENOMEM ? REGX_NO_MEMORY : REGX_UNREACHABLE,
                       "%s gives no %s: %s", port->name, what, strerror(errno));
}

/* ---- which ports are used ---- */

typedef struct candidate {
    regx_device_name_t name;
    bool usable, chosen;
    const char *reason;          /* why it is not used, such as "is down"; NULL: it may be */
    bool infiniband;             /* else Ethernet */
    unsigned own_flaws;          /* of FAR and LINK_LOCAL */
    unsigned megabits;           /* per second; 0: not known */
    regx_verbs_address_t subnet; /* as far as an address tells of that */
} candidate_t;

typedef struct search {
    candidate_t ports[PORTS_MAX];
    size_t count;
    regx_device_name_t *names; /* of those that are chosen, at most REGX_DEVICES_MAX */
    size_t chosen, near;
    bool any_subnet;
    char list[256]; /* all ports, for a refusal */
} search_t;

static bool is_listed(const char *list, const candidate_t *port)
{
    regx_device_name_t device;

    snprintf(device, sizeof(device), "%.*s", (int)strcspn(port->name, ":"), port->name);
    return regx_option_listed(list, device) || regx_option_listed(list, port->name);
}

/* All ports, as " rxe0:1, rxe1:1 (is down)". */
static const char *name_ports(search_t *search)
{
    size_t length = 0;

    snprintf(search->list, sizeof(search->list), " none");
    for (size_t i = 0; i < search->count && length < sizeof(search->list); i++) {
        const candidate_t *port = &search->ports[i];

        length += (size_t)snprintf(search->list + length, sizeof(search->list) - length,
                                   port->usable ? "%s %s" : "%s %s (%s)", i == 0 ? "" : ",",
                                   port->name, port->reason);
    }
    return search->list;
}

static void leave_out(candidate_t *port, const char *reason)
{
    if (port->reason == NULL) {
        port->reason = reason;
    }
}

static void choose(search_t *search, candidate_t *port)
{
    if (!port->chosen && search->chosen < REGX_DEVICES_MAX) { /* it may be named twice */
        memcpy(search->names[search->chosen++], port->name, sizeof(port->name));
        port->chosen = true;
    }
}

/* Every element of if_include must be there and have a port that can be used. */
static regx_status_t choose_included(search_t *search, const char *list, regx_error_t error)
{
    for (size_t i = 0; i < search->count; i++) {
        if (!is_listed(list, &search->ports[i])) {
            leave_out(&search->ports[i], "if_include does not name it");
        }
    }
    for (const char *at = list; *at != '\0'; at += at[0] == ',') {
        const size_t length = strcspn(at, ",");
        regx_device_name_t element;
        bool found = false;

        snprintf(element, sizeof(element), "%.*s", (int)length, at);
        for (size_t i = 0; i < search->count; i++) {
            if (search->ports[i].usable && is_listed(element, &search->ports[i])) {
                choose(search, &search->ports[i]);
                found = true;
            }
        }
        if (!found) {
            return regx_refuse(
                error, REGX_INVALID,
                "if_include=%s: there is no RDMA device or port \"%s\" that can be used; "
                "there are:%s",
                list, element, name_ports(search));
        }
        at += length;
    }
    search->near = search->chosen;
    return REGX_OK;
}

/* Why a port is left out if others have not that flaw: the gravest has the highest bit. */
enum { FAR = 1, LINK_LOCAL = 2, SLOWER = 4, OTHER_LAYER = 8 };
static const char *const flaws[] = {
    "another port is nearer to this process's cores", "it has a link-local address only",
    "another port is more than twice as fast", "ports of another link layer are used"};

static unsigned flaws_of(const candidate_t *port, bool prefers_infiniband, unsigned best)
{
    const bool slower = port->megabits != 0 && port->megabits < best / 2;

    return port->own_flaws | (slower ? SLOWER : 0) |
           (port->infiniband != prefers_infiniband ? OTHER_LAYER : 0);
}

/* Small messages go by all ports in turn, so they are to be alike: those with the fewest flaws.
 * InfiniBand is preferred if it is as fast. */
static void leave_out_unlike(search_t *search)
{
    unsigned fastest[] = {0, 0}, fewest = UINT32_MAX;

    for (size_t i = 0; i < search->count; i++) {
        const candidate_t *port = &search->ports[i];

        if (port->reason == NULL) {
            fastest[port->infiniband] =
                (unsigned)regx_max(fastest[port->infiniband], port->megabits);
        }
    }
    const bool prefers_infiniband = fastest[1] == 0 || fastest[1] >= fastest[0];
    const unsigned best = prefers_infiniband && fastest[1] != 0 ? fastest[1] : fastest[0];

    for (size_t i = 0; i < search->count; i++) {
        if (search->ports[i].reason == NULL) {
            fewest =
                (unsigned)regx_min(fewest, flaws_of(&search->ports[i], prefers_infiniband, best));
        }
    }
    for (size_t i = 0; i < search->count; i++) {
        candidate_t *port = &search->ports[i];
        const unsigned more = flaws_of(port, prefers_infiniband, best) ^ fewest;

        if (port->reason == NULL && more != 0) {
            port->reason = flaws[31 - __builtin_clz(more)];
        }
    }
}

/* Whether none that is chosen is in the subnet of that port. */
static bool is_subnet_missing(const search_t *search, const candidate_t *port)
{
    bool missing = !search->any_subnet;

    for (size_t i = 0; i < search->count; i++) {
        missing = missing && !(search->ports[i].chosen &&
                               regx_verbs_share_subnet(&search->ports[i].subnet, &port->subnet));
    }
    return missing;
}

/* Far ports of the subnets in which no near one is: a process on another socket may have only those,
 * here or on another node. */
static void choose_far(search_t *search)
{
    candidate_t *far[PORTS_MAX];
    size_t count = 0;

    for (size_t i = 0; i < search->count; i++) {
        candidate_t *port = &search->ports[i];

        if (port->reason == flaws[0] && is_subnet_missing(search, port)) {
            far[count++] = port;
        }
    }
    for (size_t i = 0; i < count; i++) {
        far[i]->reason = NULL;
        choose(search, far[i]);
    }
}

/* Of those that if_exclude, which may be NULL, does not name. */
static regx_status_t choose_best(search_t *search, const char *exclude, regx_error_t error)
{
    bool any_usable = false;

    for (size_t i = 0; i < search->count; i++) {
        any_usable = any_usable || search->ports[i].usable;
        if (is_listed(exclude, &search->ports[i])) {
            leave_out(&search->ports[i], "if_exclude names it");
        }
    }
    leave_out_unlike(search);
    for (size_t i = 0; i < search->count; i++) {
        if (search->ports[i].reason == NULL) {
            choose(search, &search->ports[i]);
        }
    }
    search->near = search->chosen;
    choose_far(search);
    if (search->chosen > 0) {
        return REGX_OK;
    }
    if (any_usable) {
        return regx_refuse(error, REGX_INVALID,
                           "if_exclude=%s: leaves no port that can be used; there are:%s", exclude,
                           name_ports(search));
    }
    if (search->count == 0) {
        return regx_refuse(error, REGX_UNREACHABLE, "this machine has no RDMA device");
    }
    return regx_refuse(error, REGX_UNREACHABLE, "no port of an RDMA device can be used:%s",
                       name_ports(search));
}

/* RDMA over InfiniBand's transport: iWARP has no UD queue pairs to connect by. */
static const char *why_unusable(const struct ibv_device *device, const struct ibv_port_attr *attr,
                                bool has_gid)
{
    if (device->transport_type != IBV_TRANSPORT_IB) {
        return "is not InfiniBand or RoCE";
    }
    if (attr->link_layer != IBV_LINK_LAYER_ETHERNET &&
        attr->link_layer != IBV_LINK_LAYER_INFINIBAND) {
        return "has a link layer that is not known";
    }
    if (attr->state != IBV_PORT_ACTIVE) {
        return "is down";
    }
    return !has_gid ? "has no GID; has its network device an address?" : NULL;
}

/* Whether a list of cores as the kernel writes it, such as "0-7,16", has one of this process's. */
static bool has_own_core(const char *list)
{
    cpu_set_t own;
    bool has = sched_getaffinity(0, sizeof(own), &own) != 0;

    while (!has && *list >= '0' && *list <= '9') {
        char *end;
        const unsigned long first = strtoul(list, &end, 10);
        const unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;

        for (unsigned long core = first; core <= last && core < CPU_SETSIZE; core++) {
            has = has || CPU_ISSET(core, &own);
        }
        list = *end == ',' ? end + 1 : end;
    }
    return has;
}

/* A device in software names no cores: it is near to all. */
static bool lies_far(const char *device)
{
    char path[128], list[1024] = "";

    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/local_cpulist", device);
    return regx_read_line(path, list, sizeof(list)) && list[0] != '\n' && !has_own_core(list);
}

/* Of a port of which the context, the name and the number are known. */
static candidate_t describe(struct ibv_device *device, regx_verbs_port_t *port)
{
    candidate_t candidate = {.reason = "cannot be queried",
                             .own_flaws = lies_far(ibv_get_device_name(device)) ? FAR : 0};
    char indices[8];

    memcpy(candidate.name, port->name, sizeof(candidate.name));
    if (ibv_query_port(port->context, port->number, &port->attr) == 0) {
        const bool has_gid = find_gid(port, -1, indices, sizeof(indices));
        const bool infiniband = port->attr.link_layer == IBV_LINK_LAYER_INFINIBAND;

        candidate.reason = why_unusable(device, &port->attr, has_gid);
        candidate.usable = candidate.reason == NULL;
        candidate.infiniband = infiniband;
        candidate.own_flaws |= !infiniband && has_gid && is_link_local(&port->gid) ? LINK_LOCAL : 0;
        candidate.megabits = speed_of(port);
        candidate.subnet.link_layer = infiniband ? REGX_VERBS_INFINIBAND : REGX_VERBS_ETHERNET;
        candidate.subnet.network_bits = port->network_bits;
        memcpy(candidate.subnet.gid, port->gid.gid.raw, REGX_VERBS_GID_SIZE);
    }
    return candidate;
}

/* Adds the ports of one device. */
static void list_ports(search_t *search, struct ibv_device *device)
{
    struct ibv_context *context = ibv_open_device(device);
    struct ibv_device_attr attr;

    if (context == NULL) {
        return;
    }
    if (ibv_query_device(context, &attr) == 0) {
        for (unsigned i = 1; i <= attr.phys_port_cnt && search->count < PORTS_MAX; i++) {
            regx_verbs_port_t port = {.context = context, .number = (uint8_t)i};

            snprintf(port.name, sizeof(port.name), "%s:%u", ibv_get_device_name(device), i);
            search->ports[search->count++] = describe(device, &port);
        }
    }
    ibv_close_device(context);
}

regx_status_t regx_verbs_ports_find(const regx_transport_config_t *config, regx_error_t error,
                                    regx_device_name_t names[REGX_DEVICES_MAX], size_t *count,
                                    size_t *near)
{
    const regx_verbs_settings_t *settings = config->settings;
    search_t *search = calloc(1, sizeof(*search));

    *count = *near = 0;
    if (search == NULL) {
        return regx_refuse(error, REGX_NO_MEMORY, "out of memory");
    }
    search->names = names;
    search->any_subnet = settings != NULL && settings->any_subnet;
    struct ibv_device **devices = ibv_get_device_list(NULL);
    for (int i = 0; devices != NULL && devices[i] != NULL; i++) {
        list_ports(search, devices[i]);
    }
    if (devices != NULL) {
        ibv_free_device_list(devices);
    }
    const regx_status_t status = config->if_include != NULL
                                     ? choose_included(search, config->if_include, error)
                                     : choose_best(search, config->if_exclude, error);
    for (size_t i = 0; i < search->count; i++) {
        const candidate_t *port = &search->ports[i];

        if (port->reason != NULL) {
            regx_trace(config->trace, REGX_TRACE_CHOICE, "verbs: port %s is not used: %s%s",
                       port->name, port->usable ? "" : "it ", port->reason);
        }
    }
    *count = search->chosen;
    *near = search->near;
    free(search);
    return status;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/port.h"

#include <errno.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "base/util.h"

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

/* ---- which ports are used ---- */

static bool listed(const char *list, const regx_port_choice_t *port)
{
    regx_device_name_t device;

    snprintf(device, sizeof(device), "%.*s", (int)strcspn(port->name, ":"), port->name);
    return regx_option_listed(list, device) || regx_option_listed(list, port->name);
}

typedef enum which { ALL, USABLE, UNUSABLE } which_t;

/* Of the ports that `list` names (NULL: of all) those of a kind, as " rxe0:1, rxe1:1"; what is
 * unusable, with the reason. */
static const char *name_ports(const regx_port_choice_t *ports, size_t count, const char *list,
                              which_t which, char *text, size_t size)
{
    size_t length = 0;

    snprintf(text, size, " none");
    for (const regx_port_choice_t *port = ports; port != ports + count; port++) {
        const bool is_one = which == ALL || (port->unusable == NULL) == (which == USABLE);

        if (is_one && (list == NULL || listed(list, port)) && length < size) {
            length += (size_t)snprintf(
                text + length, size - length, "%s %s%s%s", length == 0 ? "" : ",", port->name,
                which == UNUSABLE ? " " : "", which == UNUSABLE ? port->unusable : "");
        }
    }
    return text;
}

static void choose(size_t which, size_t *chosen, size_t *chosen_count)
{
    for (size_t i = 0; i < *chosen_count; i++) {
        if (chosen[i] == which) {
            return; /* named twice */
        }
    }
    if (*chosen_count < REGX_DEVICES_MAX) {
        chosen[(*chosen_count)++] = which;
    }
}

/* Chooses what an element of if_include names. */
static regx_status_t choose_named(const regx_port_choice_t *ports, size_t count, const char *list,
                                  const char *element, size_t *chosen, size_t *chosen_count,
                                  char *error, size_t error_size)
{
    char names[256], usable[256];
    bool there = false, can_be_used = false;

    for (size_t i = 0; i < count; i++) {
        if (listed(element, &ports[i])) {
            there = true;
            if (ports[i].unusable == NULL) {
                can_be_used = true;
                choose(i, chosen, chosen_count);
            }
        }
    }
    if (there && can_be_used) {
        return REGX_OK;
    }
    if (there) {
        snprintf(error, error_size, "if_include=%s:%s; usable are:%s", list,
                 name_ports(ports, count, element, UNUSABLE, names, sizeof(names)),
                 name_ports(ports, count, NULL, USABLE, usable, sizeof(usable)));
    } else {
        snprintf(error, error_size,
                 "if_include=%s: there is no RDMA device or port \"%s\"; there are:%s", list,
                 element, name_ports(ports, count, NULL, ALL, names, sizeof(names)));
    }
    return REGX_INVALID;
}

/* Every element of if_include must be there and have a port that can be used. */
static regx_status_t choose_included(const regx_port_choice_t *ports, size_t count,
                                     const char *list, size_t *chosen, size_t *chosen_count,
                                     char *error, size_t error_size)
{
    regx_status_t status = REGX_OK;

    for (const char *at = list; *at != '\0' && status == REGX_OK;) {
        const size_t length = strcspn(at, ",");
        regx_device_name_t element;

        snprintf(element, sizeof(element), "%.*s", (int)length, at);
        status = choose_named(ports, count, list, element, chosen, chosen_count, error, error_size);
        at += length + (at[length] == ',');
    }
    return status;
}

static bool is_candidate(const regx_port_choice_t *port)
{
    return port->unusable == NULL && port->left_out == NULL;
}

/* The fastest candidate of a link layer, in megabits per second; 0: none, or not known. */
static unsigned fastest(const regx_port_choice_t *ports, size_t count, bool infiniband)
{
    unsigned megabits = 0;

    for (size_t i = 0; i < count; i++) {
        if (is_candidate(&ports[i]) && ports[i].infiniband == infiniband) {
            megabits = (unsigned)regx_max(megabits, ports[i].megabits);
        }
    }
    return megabits;
}

static bool is_infiniband(const regx_port_choice_t *port, unsigned best)
{
    (void)best;
    return port->infiniband;
}

static bool is_ethernet(const regx_port_choice_t *port, unsigned best)
{
    return !is_infiniband(port, best);
}

static bool is_slow(const regx_port_choice_t *port, unsigned best)
{
    return port->megabits != 0 && port->megabits < best / 2;
}

static bool is_link_local(const regx_port_choice_t *port, unsigned best)
{
    (void)best;
    return port->link_local;
}

static bool is_far(const regx_port_choice_t *port, unsigned best)
{
    (void)best;
    return port->far;
}

/* Leaves out the candidates for which that is so, unless it is so for all. */
static void leave_out(regx_port_choice_t *ports, size_t count,
                      bool (*is_so)(const regx_port_choice_t *port, unsigned best), unsigned best,
                      const char *why)
{
    bool any = false;

    for (size_t i = 0; i < count; i++) {
        any = any || (is_candidate(&ports[i]) && !is_so(&ports[i], best));
    }
    for (size_t i = 0; i < count && any; i++) {
        if (is_candidate(&ports[i]) && is_so(&ports[i], best)) {
            ports[i].left_out = why;
        }
    }
}

/* Small messages go by all ports in turn, so they are to be alike. */
static void leave_out_unlike(regx_port_choice_t *ports, size_t count)
{
    const unsigned infiniband = fastest(ports, count, true);
    const unsigned ethernet = fastest(ports, count, false);
    const bool prefers_infiniband = infiniband == 0 || infiniband >= ethernet;

    leave_out(ports, count, prefers_infiniband ? is_ethernet : is_infiniband, 0,
              "ports of another link layer are used");
    leave_out(ports, count, is_slow, prefers_infiniband && infiniband != 0 ? infiniband : ethernet,
              "another port is more than twice as fast");
    leave_out(ports, count, is_link_local, 0, "it has a link-local address only");
    leave_out(ports, count, is_far, 0, "another port is nearer to this process's cores");
}

regx_status_t regx_ports_choose(regx_port_choice_t *ports, size_t count, const char *if_include,
                                const char *if_exclude, size_t chosen[REGX_DEVICES_MAX],
                                size_t *chosen_count, char *error, size_t error_size)
{
    const char *include = if_include == NULL ? "" : if_include;
    const char *exclude = if_exclude == NULL ? "" : if_exclude;
    char names[256];

    *chosen_count = 0;
    if (include[0] != '\0' && exclude[0] != '\0') {
        snprintf(error, error_size,
                 "if_include=%s: only one of if_include and if_exclude may be given, and "
                 "if_exclude is %s",
                 include, exclude);
        return REGX_INVALID;
    }
    for (size_t i = 0; i < count; i++) {
        ports[i].left_out = include[0] != '\0' && !listed(include, &ports[i])
                                ? "if_include does not name it"
                            : listed(exclude, &ports[i]) ? "if_exclude names it"
                                                         : NULL;
    }
    if (include[0] != '\0') {
        return choose_included(ports, count, include, chosen, chosen_count, error, error_size);
    }
    leave_out_unlike(ports, count);
    for (size_t i = 0; i < count; i++) {
        if (is_candidate(&ports[i])) {
            choose(i, chosen, chosen_count);
        }
    }
    if (*chosen_count > 0) {
        return REGX_OK;
    }
    name_ports(ports, count, NULL, USABLE, names, sizeof(names));
    if (count == 0) {
        snprintf(error, error_size, "this machine has no RDMA device");
    } else if (strcmp(names, " none") == 0) {
        snprintf(error, error_size, "no port of an RDMA device can be used:%s",
                 name_ports(ports, count, NULL, UNUSABLE, names, sizeof(names)));
    } else {
        snprintf(error, error_size, "if_exclude=%s: leaves no port that can be used; usable are:%s",
                 exclude, names);
        return REGX_INVALID;
    }
    return REGX_UNREACHABLE;
}

/* RDMA over InfiniBand's transport: iWARP has no UD queue pairs to connect by. */
static const char *why_unusable(const struct ibv_device *device, const struct ibv_port_attr *attr,
                                const struct ibv_gid_entry *gid)
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
    return gid == NULL ? "has no GID (has its network device an address?)" : NULL;
}

bool regx_port_has_own_core(const char *list)
{
    cpu_set_t own;
    bool has = *list == '\0' || *list == '\n' || sched_getaffinity(0, sizeof(own), &own) != 0;

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
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fgets(list, sizeof(list), file) == NULL) {
            list[0] = '\0';
        }
        fclose(file);
    }
    return !regx_port_has_own_core(list);
}

static regx_port_choice_t describe(struct ibv_device *device, struct ibv_context *context,
                                   uint8_t number)
{
    regx_port_choice_t port = {.unusable = "cannot be queried"};
    struct ibv_port_attr attr;
    struct ibv_gid_entry gid;

    snprintf(port.name, sizeof(port.name), "%s:%u", ibv_get_device_name(device), number);
    port.far = lies_far(ibv_get_device_name(device));
    if (ibv_query_port(context, number, &attr) == 0) {
        const bool has_gid = regx_port_find_gid(context, number, &gid);

        port.unusable = why_unusable(device, &attr, has_gid ? &gid : NULL);
        port.infiniband = attr.link_layer == IBV_LINK_LAYER_INFINIBAND;
        port.link_local = !port.infiniband && has_gid && regx_port_is_link_local(&gid);
        port.megabits = regx_port_speed(&attr);
    }
    return port;
}

/* Adds the ports of one device to the list. */
static size_t list_ports(struct ibv_device *device, regx_port_choice_t *ports, size_t count)
{
    struct ibv_context *context = ibv_open_device(device);
    struct ibv_device_attr attr;

    if (context == NULL) {
        return count;
    }
    if (ibv_query_device(context, &attr) == 0) {
        for (unsigned number = 1; number <= attr.phys_port_cnt && count < REGX_PORTS_MAX;
             number++) {
            ports[count++] = describe(device, context, (uint8_t)number);
        }
    }
    ibv_close_device(context);
    return count;
}

static void trace_ports(const regx_trace_t *trace, const regx_port_choice_t *ports, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (ports[i].unusable != NULL || ports[i].left_out != NULL) {
            regx_trace(trace, REGX_TRACE_CHOICE, "verbs: port %s is not used: %s%s", ports[i].name,
                       ports[i].unusable != NULL ? "it " : "",
                       ports[i].unusable != NULL ? ports[i].unusable : ports[i].left_out);
        }
    }
}

regx_status_t regx_ports_find(const regx_transport_config_t *config, char *error, size_t error_size,
                              regx_device_name_t names[REGX_DEVICES_MAX], size_t *count)
{
    int device_count = 0;
    struct ibv_device **devices = ibv_get_device_list(&device_count);
    regx_port_choice_t *ports = calloc(REGX_PORTS_MAX, sizeof(*ports));
    size_t chosen[REGX_DEVICES_MAX], port_count = 0;
    regx_status_t status = REGX_NO_MEMORY;

    *count = 0;
    snprintf(error, error_size, "out of memory");
    if (ports != NULL) {
        for (int i = 0; devices != NULL && i < device_count; i++) {
            port_count = list_ports(devices[i], ports, port_count);
        }
        status = regx_ports_choose(ports, port_count, config->if_include, config->if_exclude,
                                   chosen, count, error, error_size);
        trace_ports(config->trace, ports, port_count);
    }
    for (size_t i = 0; status == REGX_OK && i < *count; i++) {
        memcpy(names[i], ports[chosen[i]].name, sizeof(names[i]));
    }
    free(ports);
    if (devices != NULL) {
        ibv_free_device_list(devices);
    }
    return status;
}

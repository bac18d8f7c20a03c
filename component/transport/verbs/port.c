/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/port.h"

#include <errno.h>
#include <hwloc.h>
#include <hwloc/linux.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"

#define PORTS_MAX 64
#define GIDS_MAX 256

static void name_port(const regx_port_choice_t *port, char name[REGX_PORT_NAME])
{
    snprintf(name, REGX_PORT_NAME, "%s:%u", port->device, port->number);
}

static bool listed(const char *list, const regx_port_choice_t *port)
{
    char name[REGX_PORT_NAME];

    name_port(port, name);
    return regx_option_listed(list, port->device) || regx_option_listed(list, name);
}

/* " rxe0:1, rxe1:1": the ports, all or only those that are active. */
static const char *name_ports(const regx_port_choice_t *ports, size_t count, bool active_only,
                              char *text, size_t size)
{
    size_t length = 0;

    snprintf(text, size, " none");
    for (size_t i = 0; i < count && length < size; i++) {
        if (ports[i].active || !active_only) {
            length += (size_t)snprintf(text + length, size - length, "%s %s:%u",
                                       length == 0 ? "" : ",", ports[i].device, ports[i].number);
        }
    }
    return text;
}

/* Every element of if_include must be there. */
static regx_status_t check_included(const regx_port_choice_t *ports, size_t count, const char *list,
                                    char *error, size_t error_size)
{
    char element[REGX_PORT_NAME], names[256];

    for (const char *at = list; *at != '\0';) {
        const size_t length = strcspn(at, ",");
        size_t i = 0;

        snprintf(element, sizeof(element), "%.*s", (int)length, at);
        while (i < count && !listed(element, &ports[i])) {
            i++;
        }
        if (i == count) {
            snprintf(error, error_size,
                     "if_include=%s: there is no RDMA device or port \"%s\"; there are:%s", list,
                     element, name_ports(ports, count, false, names, sizeof(names)));
            return REGX_INVALID;
        }
        at += length + (at[length] == ',');
    }
    return REGX_OK;
}

regx_status_t regx_port_choose(const regx_port_choice_t *ports, size_t count,
                               const char *if_include, const char *if_exclude, size_t *chosen,
                               char *error, size_t error_size)
{
    const char *include = if_include == NULL ? "" : if_include;
    const char *exclude = if_exclude == NULL ? "" : if_exclude;
    char names[256];

    if (include[0] != '\0' && exclude[0] != '\0') {
        snprintf(error, error_size,
                 "if_include=%s: only one of if_include and if_exclude may be given, and "
                 "if_exclude is %s",
                 include, exclude);
        return REGX_INVALID;
    }
    if (check_included(ports, count, include, error, error_size) != REGX_OK) {
        return REGX_INVALID;
    }
    *chosen = count;
    for (size_t i = 0; i < count; i++) {
        const bool wanted =
            include[0] != '\0' ? listed(include, &ports[i]) : !listed(exclude, &ports[i]);

        if (wanted && ports[i].active &&
            (*chosen == count || (ports[i].near && !ports[*chosen].near))) {
            *chosen = i;
        }
    }
    if (*chosen < count) {
        return REGX_OK;
    }
    name_ports(ports, count, true, names, sizeof(names));
    if (include[0] != '\0' || exclude[0] != '\0') {
        snprintf(error, error_size, "%s=%s: leaves no port that is active; active are:%s",
                 include[0] != '\0' ? "if_include" : "if_exclude",
                 include[0] != '\0' ? include : exclude, names);
        return REGX_INVALID;
    }
    if (count == 0) {
        snprintf(error, error_size, "this machine has no RDMA device");
    } else {
        snprintf(error, error_size, "no port of an RDMA device is active; there are:%s",
                 name_ports(ports, count, false, names, sizeof(names)));
    }
    return REGX_UNREACHABLE;
}

/* Whether the device hangs at the part of the machine that this process runs on. A device that
 * tells no place (a software one) is near to everybody. */
static bool is_near(const char *device)
{
    hwloc_bitmap_t around = hwloc_bitmap_alloc();
    char path[128];
    cpu_set_t cores;
    bool near = true;

    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/local_cpus", device);
    if (around != NULL && hwloc_linux_read_path_as_cpumask(path, around) == 0 &&
        sched_getaffinity(0, sizeof(cores), &cores) == 0) {
        near = false;
        for (unsigned i = 0; i < CPU_SETSIZE && !near; i++) {
            near = CPU_ISSET(i, &cores) && hwloc_bitmap_isset(around, i);
        }
    }
    hwloc_bitmap_free(around);
    return near;
}

/* Ethernet, and RDMA over InfiniBand's transport: iWARP has no UD queue pairs to connect by. */
static bool is_usable(struct ibv_device *device, const struct ibv_port_attr *attr)
{
    return device->transport_type == IBV_TRANSPORT_IB && attr->state == IBV_PORT_ACTIVE &&
           (attr->link_layer == IBV_LINK_LAYER_ETHERNET ||
            attr->link_layer == IBV_LINK_LAYER_INFINIBAND);
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
        const bool near = is_near(ibv_get_device_name(device));

        for (uint8_t number = 1; number <= attr.phys_port_cnt && count < PORTS_MAX; number++) {
            struct ibv_port_attr port;
            const bool known = ibv_query_port(context, number, &port) == 0;

            ports[count++] = (regx_port_choice_t){.device = ibv_get_device_name(device),
                                                  .number = number,
                                                  .active = known && is_usable(device, &port),
                                                  .near = near};
        }
    }
    ibv_close_device(context);
    return count;
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
    return entry->gid.raw[0] == 0xfe && (entry->gid.raw[1] & 0xc0) == 0x80 ? 2 : 1;
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

static regx_status_t open_chosen(struct ibv_device **devices, const regx_port_choice_t *choice,
                                 int gid_index, char *error, size_t error_size, regx_port_t *port)
{
    while (strcmp(ibv_get_device_name(*devices), choice->device) != 0) {
        devices++;
    }
    name_port(choice, port->name);
    port->number = choice->number;
    port->context = ibv_open_device(*devices);
    if (port->context == NULL || ibv_query_device(port->context, &port->device) != 0 ||
        ibv_query_port(port->context, port->number, &port->attr) != 0) {
        snprintf(error, error_size, "%s cannot be opened: %s", port->name, strerror(errno));
        return REGX_UNREACHABLE;
    }
    return choose_gid(port, gid_index, error, error_size);
}

regx_status_t regx_port_open(const char *if_include, const char *if_exclude, int gid_index,
                             char *error, size_t error_size, regx_port_t *port)
{
    regx_port_choice_t ports[PORTS_MAX] = {0};
    int device_count = 0;
    struct ibv_device **devices = ibv_get_device_list(&device_count);
    size_t count = 0, chosen;

    memset(port, 0, sizeof(*port));
    for (int i = 0; devices != NULL && i < device_count; i++) {
        count = list_ports(devices[i], ports, count);
    }
    regx_status_t status =
        regx_port_choose(ports, count, if_include, if_exclude, &chosen, error, error_size);
    if (status == REGX_OK) {
        status = open_chosen(devices, &ports[chosen], gid_index, error, error_size, port);
    }
    if (devices != NULL) {
        ibv_free_device_list(devices);
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

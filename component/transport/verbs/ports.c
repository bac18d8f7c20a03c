/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/ports.h"

#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "transport/verbs/distance.h"

static void name_port(const regx_port_choice_t *port, regx_device_name_t name)
{
    snprintf(name, sizeof(regx_device_name_t), "%s:%u", port->device, port->number);
}

static bool listed(const char *list, const regx_port_choice_t *port)
{
    regx_device_name_t name;

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

static void choose(size_t which, size_t *chosen, size_t *chosen_count)
{
    for (size_t i = 0; i < *chosen_count; i++) {
        if (chosen[i] == which) {
            return; /* named twice */
        }
    }
    chosen[(*chosen_count)++] = which;
}

/* Every element of if_include must be there, and active. */
static regx_status_t choose_included(const regx_port_choice_t *ports, size_t count,
                                     const char *list, size_t *chosen, size_t *chosen_count,
                                     char *error, size_t error_size)
{
    regx_device_name_t element;
    char names[256];

    for (const char *at = list; *at != '\0';) {
        const size_t length = strcspn(at, ",");
        bool there = false, active = false;

        snprintf(element, sizeof(element), "%.*s", (int)length, at);
        for (size_t i = 0; i < count; i++) {
            if (listed(element, &ports[i])) {
                there = true;
                if (ports[i].active) {
                    active = true;
                    choose(i, chosen, chosen_count);
                }
            }
        }
        if (!there) {
            snprintf(error, error_size,
                     "if_include=%s: there is no RDMA device or port \"%s\"; there are:%s", list,
                     element, name_ports(ports, count, false, names, sizeof(names)));
            return REGX_INVALID;
        }
        if (!active) {
            snprintf(error, error_size, "if_include=%s: no port of \"%s\" is active; active are:%s",
                     list, element, name_ports(ports, count, true, names, sizeof(names)));
            return REGX_INVALID;
        }
        at += length + (at[length] == ',');
    }
    return REGX_OK;
}

/* Of those that are active and not excluded the nearest, be it several. */
static void choose_nearest(const regx_port_choice_t *ports, size_t count, const char *exclude,
                           size_t *chosen, size_t *chosen_count)
{
    for (size_t i = 0; i < count; i++) {
        if (!ports[i].active || listed(exclude, &ports[i])) {
            continue;
        }
        if (*chosen_count > 0 && ports[i].distance < ports[chosen[0]].distance) {
            *chosen_count = 0;
        }
        if (*chosen_count == 0 || ports[i].distance == ports[chosen[0]].distance) {
            choose(i, chosen, chosen_count);
        }
    }
}

regx_status_t regx_ports_choose(const regx_port_choice_t *ports, size_t count,
                                const char *if_include, const char *if_exclude, size_t *chosen,
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
    if (include[0] != '\0') {
        return choose_included(ports, count, include, chosen, chosen_count, error, error_size);
    }
    choose_nearest(ports, count, exclude, chosen, chosen_count);
    if (*chosen_count > 0) {
        return REGX_OK;
    }
    if (count == 0) {
        snprintf(error, error_size, "this machine has no RDMA device");
        return REGX_UNREACHABLE;
    }
    name_ports(ports, count, true, names, sizeof(names));
    if (strcmp(names, " none") == 0) {
        snprintf(error, error_size, "no port of an RDMA device is active; there are:%s",
                 name_ports(ports, count, false, names, sizeof(names)));
        return REGX_UNREACHABLE;
    }
    snprintf(error, error_size, "if_exclude=%s: leaves no port that is active; active are:%s",
             exclude, names);
    return REGX_INVALID;
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
        for (uint8_t number = 1; number <= attr.phys_port_cnt && count < REGX_DEVICES_MAX;
             number++) {
            struct ibv_port_attr port;
            const bool known = ibv_query_port(context, number, &port) == 0;

            ports[count++] = (regx_port_choice_t){.device = ibv_get_device_name(device),
                                                  .number = number,
                                                  .active = known && is_usable(device, &port)};
        }
    }
    ibv_close_device(context);
    return count;
}

static void measure(hwloc_topology_t topology, regx_port_choice_t *ports, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ports[i].distance = regx_distance_of_device(topology, ports[i].device);
    }
}

/* Distances matter where there is a choice; loading a topology takes a while. */
static void measure_distances(hwloc_topology_t topology, regx_port_choice_t *ports, size_t count)
{
    hwloc_topology_t own;

    if (count < 2) {
        return;
    }
    if (topology != NULL) {
        measure(topology, ports, count);
    } else if (hwloc_topology_init(&own) == 0) {
        if (hwloc_topology_load(own) == 0) {
            measure(own, ports, count);
        }
        hwloc_topology_destroy(own);
    }
}

regx_status_t regx_ports_find(const regx_transport_config_t *config, char *error, size_t error_size,
                              regx_device_name_t names[REGX_DEVICES_MAX], size_t *count)
{
    regx_port_choice_t ports[REGX_DEVICES_MAX] = {0};
    size_t chosen[REGX_DEVICES_MAX], port_count = 0;
    int device_count = 0;
    struct ibv_device **devices = ibv_get_device_list(&device_count);

    for (int i = 0; devices != NULL && i < device_count; i++) {
        port_count = list_ports(devices[i], ports, port_count);
    }
    measure_distances(config->topology, ports, port_count);
    const regx_status_t status =
        regx_ports_choose(ports, port_count, config->if_include, config->if_exclude, chosen, count,
                          error, error_size);
    for (size_t i = 0; status == REGX_OK && i < *count; i++) {
        name_port(&ports[chosen[i]], names[i]);
    }
    if (devices != NULL) {
        ibv_free_device_list(devices);
    }
    return status;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "base/util.h"
#include "transport/verbs/port.h"

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

/* Appends " rxe0:1" or, with reasons, " rxe0:1 is down"; separated by commas. */
static size_t append_port(char *text, size_t size, size_t length, const regx_port_choice_t *port,
                          bool reason)
{
    if (length < size) {
        length += (size_t)snprintf(text + length, size - length, "%s %s:%u%s%s",
                                   length == 0 ? "" : ",", port->device, port->number,
                                   reason ? " " : "", reason ? port->unusable : "");
    }
    return length;
}

typedef enum which { ALL, USABLE, UNUSABLE } which_t;

static bool is_one(const regx_port_choice_t *port, which_t which)
{
    return which == ALL || (port->unusable == NULL) == (which == USABLE);
}

/* Of the ports that `list` names (NULL: of all) those of a kind; what is unusable, with the
 * reason. */
static const char *name_ports(const regx_port_choice_t *ports, size_t count, const char *list,
                              which_t which, char *text, size_t size)
{
    size_t length = 0;

    snprintf(text, size, " none");
    for (size_t i = 0; i < count; i++) {
        if ((list == NULL || listed(list, &ports[i])) && is_one(&ports[i], which)) {
            length = append_port(text, size, length, &ports[i], which == UNUSABLE);
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

/* The fastest candidate of a link layer; 0: none, or not known. `there`: some candidate is. */
static unsigned fastest(const regx_port_choice_t *ports, size_t count, bool infiniband, bool *there)
{
    unsigned megabits = 0;

    *there = false;
    for (size_t i = 0; i < count; i++) {
        if (is_candidate(&ports[i]) && ports[i].infiniband == infiniband) {
            *there = true;
            megabits = (unsigned)regx_max(megabits, ports[i].megabits);
        }
    }
    return megabits;
}

static void leave_out_excluded(regx_port_choice_t *ports, size_t count, const char *exclude)
{
    for (size_t i = 0; i < count; i++) {
        ports[i].left_out = listed(exclude, &ports[i]) ? "if_exclude names it" : NULL;
    }
}

static void leave_out_unnamed(regx_port_choice_t *ports, size_t count, const char *include)
{
    for (size_t i = 0; i < count; i++) {
        ports[i].left_out = listed(include, &ports[i]) ? NULL : "if_include does not name it";
    }
}

/* Small messages go by all ports in turn, so they are to be alike. */
static void leave_out_unlike(regx_port_choice_t *ports, size_t count)
{
    bool any_infiniband, any_ethernet, any_routable = false;
    const unsigned infiniband = fastest(ports, count, true, &any_infiniband);
    const unsigned ethernet = fastest(ports, count, false, &any_ethernet);
    const bool use_infiniband =
        any_infiniband && (!any_ethernet || infiniband == 0 || infiniband >= ethernet);
    const unsigned best = use_infiniband ? infiniband : ethernet;

    for (size_t i = 0; i < count; i++) {
        if (is_candidate(&ports[i]) && ports[i].infiniband != use_infiniband) {
            ports[i].left_out = "ports of another link layer are used";
        } else if (is_candidate(&ports[i]) && ports[i].megabits != 0 &&
                   ports[i].megabits < best / 2) {
            ports[i].left_out = "another port is more than twice as fast";
        }
        any_routable = any_routable || (is_candidate(&ports[i]) && !ports[i].link_local);
    }
    for (size_t i = 0; i < count && any_routable; i++) {
        if (is_candidate(&ports[i]) && ports[i].link_local) {
            ports[i].left_out = "it has a link-local address only";
        }
    }
}

/* The near candidates, or all if there is none. */
static void choose_near(regx_port_choice_t *ports, size_t count, size_t *chosen,
                        size_t *chosen_count)
{
    bool any_near = false;

    for (size_t i = 0; i < count; i++) {
        any_near = any_near || (is_candidate(&ports[i]) && !ports[i].far);
    }
    for (size_t i = 0; i < count; i++) {
        if (is_candidate(&ports[i]) && ports[i].far && any_near) {
            ports[i].left_out = "another port is nearer to this process's cores";
        } else if (is_candidate(&ports[i])) {
            choose(i, chosen, chosen_count);
        }
    }
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
    if (include[0] != '\0') {
        leave_out_unnamed(ports, count, include);
        return choose_included(ports, count, include, chosen, chosen_count, error, error_size);
    }
    leave_out_excluded(ports, count, exclude);
    leave_out_unlike(ports, count);
    choose_near(ports, count, chosen, chosen_count);
    if (*chosen_count > 0) {
        return REGX_OK;
    }
    if (count == 0) {
        snprintf(error, error_size, "this machine has no RDMA device");
        return REGX_UNREACHABLE;
    }
    name_ports(ports, count, NULL, USABLE, names, sizeof(names));
    if (strcmp(names, " none") == 0) {
        snprintf(error, error_size, "no port of an RDMA device can be used:%s",
                 name_ports(ports, count, NULL, UNUSABLE, names, sizeof(names)));
        return REGX_UNREACHABLE;
    }
    snprintf(error, error_size, "if_exclude=%s: leaves no port that can be used; usable are:%s",
             exclude, names);
    return REGX_INVALID;
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

static regx_port_choice_t describe(struct ibv_device *device, struct ibv_context *context,
                                   uint8_t number)
{
    regx_port_choice_t port = {
        .device = ibv_get_device_name(device), .number = number, .unusable = "cannot be queried"};
    struct ibv_port_attr attr;
    struct ibv_gid_entry gid;

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
static bool is_far(const char *device)
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

static void trace_ports(const regx_trace_t *trace, const regx_port_choice_t *ports, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (ports[i].unusable != NULL) {
            regx_trace(trace, REGX_TRACE_CHOICE, "verbs: port %s:%u is not used: it %s",
                       ports[i].device, ports[i].number, ports[i].unusable);
        } else if (ports[i].left_out != NULL) {
            regx_trace(trace, REGX_TRACE_CHOICE, "verbs: port %s:%u is not used: %s",
                       ports[i].device, ports[i].number, ports[i].left_out);
        }
    }
}

static regx_status_t find(const regx_transport_config_t *config, struct ibv_device **devices,
                          int device_count, regx_port_choice_t *ports, char *error,
                          size_t error_size, regx_device_name_t names[REGX_DEVICES_MAX],
                          size_t *count)
{
    size_t chosen[REGX_DEVICES_MAX], port_count = 0;

    for (int i = 0; devices != NULL && i < device_count; i++) {
        port_count = list_ports(devices[i], ports, port_count);
    }
    for (size_t i = 0; i < port_count; i++) {
        ports[i].far = is_far(ports[i].device);
    }
    const regx_status_t status =
        regx_ports_choose(ports, port_count, config->if_include, config->if_exclude, chosen, count,
                          error, error_size);
    if (regx_traces(config->trace, REGX_TRACE_CHOICE)) {
        trace_ports(config->trace, ports, port_count);
    }
    for (size_t i = 0; status == REGX_OK && i < *count; i++) {
        name_port(&ports[chosen[i]], names[i]);
    }
    return status;
}

regx_status_t regx_ports_find(const regx_transport_config_t *config, char *error, size_t error_size,
                              regx_device_name_t names[REGX_DEVICES_MAX], size_t *count)
{
    int device_count = 0;
    struct ibv_device **devices = ibv_get_device_list(&device_count);
    regx_port_choice_t *ports = calloc(REGX_PORTS_MAX, sizeof(*ports));
    regx_status_t status = REGX_NO_MEMORY;

    *count = 0;
    snprintf(error, error_size, "out of memory");
    if (ports != NULL) {
        status = find(config, devices, device_count, ports, error, error_size, names, count);
    }
    free(ports);
    if (devices != NULL) {
        ibv_free_device_list(devices);
    }
    return status;
}

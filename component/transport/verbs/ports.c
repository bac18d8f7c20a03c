/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which ports of this machine's RDMA devices are used: those that the user names, or the best.
 */
#include <errno.h>
#include <glob.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "transport/verbs/verbs.h"

#define PORTS_MAX 1024 /* of this machine; virtual functions have one each */

typedef struct candidate {
    regx_device_name_t name;
    bool usable, chosen;
    const char *reason;          /* why it is not used, such as "is down"; NULL: it may be */
    char cause[96];              /* a reason with what the system says */
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
    /* Far ports of the subnets in which no near one is: a process on another socket may have only those,
     * here or on another node. */
    for (size_t i = 0; i < search->count; i++) {
        candidate_t *port = &search->ports[i];
        bool missing = !search->any_subnet && port->reason == flaws[0];

        for (size_t k = 0; k < search->count && missing; k++) {
            const candidate_t *near = &search->ports[k];

            missing = !near->chosen || (near->own_flaws & FAR) != 0 ||
                      !regx_verbs_share_subnet(&near->subnet, &port->subnet);
        }
        if (missing) {
            port->reason = NULL;
            choose(search, port);
        }
    }
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

/* Of a port of which the context, the name and the number are known. */
static candidate_t describe(struct ibv_device *device, regx_verbs_port_t *port)
{
    candidate_t candidate = {.reason = "cannot be queried"};
    char path[128], cores[1024] = "", indices[8];

    memcpy(candidate.name, port->name, sizeof(candidate.name));
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/local_cpulist",
             ibv_get_device_name(device));
    /* A device in software names no cores: it is near to all. */
    if (regx_read_line(path, cores, sizeof(cores)) && cores[0] != '\n' && !has_own_core(cores)) {
        candidate.own_flaws = FAR;
    }
    if (ibv_query_port(port->context, port->number, &port->attr) == 0) {
        const bool has_gid = regx_verbs_port_find_gid(port, -1, indices, sizeof(indices));
        const bool infiniband = port->attr.link_layer == IBV_LINK_LAYER_INFINIBAND;

        candidate.reason = NULL;
        /* RDMA over InfiniBand's transport: iWARP has no UD queue pairs to connect by. */
        if (device->transport_type != IBV_TRANSPORT_IB) {
            candidate.reason = "is not InfiniBand or RoCE";
        } else if (!infiniband && port->attr.link_layer != IBV_LINK_LAYER_ETHERNET) {
            candidate.reason = "has a link layer that is not known";
        } else if (port->attr.state != IBV_PORT_ACTIVE) {
            candidate.reason = "is down";
        } else if (!has_gid) {
            candidate.reason = "has no GID; has its network device an address?";
        }
        candidate.usable = candidate.reason == NULL;
        candidate.infiniband = infiniband;
        candidate.own_flaws |=
            !infiniband && has_gid && regx_gid_is_link_local(&port->gid) ? LINK_LOCAL : 0;
        candidate.megabits = regx_verbs_port_speed(port);
        candidate.subnet.link_layer = infiniband ? REGX_VERBS_INFINIBAND : REGX_VERBS_ETHERNET;
        candidate.subnet.network_bits = port->network_bits;
        memcpy(candidate.subnet.gid, port->gid.gid.raw, REGX_VERBS_GID_SIZE);
    }
    return candidate;
}

/* A device, or a port, that is not used because of what the system says. */
static void add_unusable(search_t *search, const char *name, const char *what, const char *why)
{
    if (search->count < PORTS_MAX) {
        candidate_t *candidate = &search->ports[search->count++];

        snprintf(candidate->name, sizeof(candidate->name), "%s", name);
        snprintf(candidate->cause, sizeof(candidate->cause), "%s%s", what, why);
        candidate->reason = candidate->cause;
    }
}

/* Devices that the kernel has and the library does not list: its part for them is missing, or the file
 * by which it would open them. */
static void add_unlisted(search_t *search, struct ibv_device *const *devices)
{
    glob_t known = {0};

    if (glob("/sys/class/infiniband/*", 0, NULL, &known) == 0) {
        for (size_t i = 0; i < known.gl_pathc; i++) {
            const char *name = strrchr(known.gl_pathv[i], '/') + 1;
            bool listed = false;

            for (int k = 0; devices != NULL && devices[k] != NULL; k++) {
                listed = listed || strcmp(ibv_get_device_name(devices[k]), name) == 0;
            }
            if (!listed) {
                add_unusable(search, name,
                             access("/dev/infiniband", X_OK) == 0
                                 ? "is not known to libibverbs: is its provider installed?"
                                 : "is out of reach: there is no /dev/infiniband here",
                             "");
            }
        }
    }
    globfree(&known);
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
        errno = EIO; /* libraries have forgotten to say why they refuse */
        struct ibv_context *context = ibv_open_device(devices[i]);
        struct ibv_device_attr attr;

        if (context == NULL) {
            add_unusable(search, ibv_get_device_name(devices[i]),
                         "cannot be opened: ", strerror(errno));
            continue;
        }
        if (ibv_query_device(context, &attr) != 0) {
            add_unusable(search, ibv_get_device_name(devices[i]),
                         "cannot be queried: ", strerror(errno));
            attr.phys_port_cnt = 0;
        }
        for (unsigned k = 1; k <= attr.phys_port_cnt && search->count < PORTS_MAX; k++) {
            regx_verbs_port_t port = {.context = context, .number = (uint8_t)k};

            snprintf(port.name, sizeof(port.name), "%s:%u", ibv_get_device_name(devices[i]), k);
            search->ports[search->count++] = describe(devices[i], &port);
        }
        ibv_close_device(context);
    }
    add_unlisted(search, devices);
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

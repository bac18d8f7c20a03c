/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One port of an RDMA device, opened, and how it is addressed; and which ports are used.
 */
#ifndef REGX_VERBS_PORT_H
#define REGX_VERBS_PORT_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "transport/transport.h"

typedef struct regx_port {
    struct ibv_context *context;
    struct ibv_device_attr device;
    struct ibv_port_attr attr;
    struct ibv_gid_entry gid;
    regx_device_name_t name; /* DEVICE:PORT */
    uint8_t number;
} regx_port_t;

/* Opens the port of that name. gid_index -1: the best for the link layer. REGX_OK;
 * REGX_UNREACHABLE: it cannot be opened, REGX_INVALID: there is no such GID; `error` then holds
 * one line. */
regx_status_t regx_port_open(const char *name, int gid_index, char *error, size_t error_size,
                             regx_port_t *port);
void regx_port_close(regx_port_t *port);

/* Of the entries of a port's table the best to be reached by on Ethernet: RoCE v2 before v1, and a
 * routable address before one of the link alone. NULL: there is none. */
const struct ibv_gid_entry *regx_port_best_gid(const struct ibv_gid_entry *entries, size_t count,
                                               uint8_t port);

/* The best GID of a port of an opened device. false: it has none. */
bool regx_port_find_gid(struct ibv_context *context, uint8_t number, struct ibv_gid_entry *gid);
/* Whether it is an IPv6 address of the link alone. */
bool regx_port_is_link_local(const struct ibv_gid_entry *gid);

/* Whether it is reached with a global route header only. */
bool regx_port_needs_grh(const struct ibv_port_attr *attr);
/* How many bits of the GID name the IP network that it is in, by the addresses of this machine's
 * network devices; 0: not known. */
uint8_t regx_port_network_bits(const regx_port_t *port);

/* Megabits per second; 0: unknown. */
unsigned regx_port_speed(const struct ibv_port_attr *attr);
/* What a small message takes by a port of that speed, roughly, to tell a much slower port from
 * others: a microsecond, and the time of 4 KiB on the wire. 0: not known. */
unsigned regx_port_latency(unsigned megabits);

#define REGX_PORTS_MAX 1024 /* of this machine; virtual functions have one each */

typedef struct regx_port_choice { /* one port of this machine */
    regx_device_name_t name;      /* DEVICE:PORT */
    const char *unusable;         /* why it cannot be used, such as "is down"; NULL: it can */
    bool infiniband;              /* else Ethernet */
    bool link_local;              /* on Ethernet: it has no address that routers know */
    unsigned megabits;            /* per second; 0: not known */
    bool far;                     /* none of this process's cores is local to the device */
    const char *left_out; /* set by choosing: why it is not used though it could be; or NULL */
} regx_port_choice_t;

/* Chooses among the ports that can be used. Those that if_include names, in its order. Else, of
 * those that if_exclude does not name, the ports of the faster link layer (InfiniBand, if both are
 * as fast); of these the ones that are at least half as fast as the fastest, have an address beyond
 * the link if any has, and are not far if any is not. Lists are comma-separated, of DEVICE or
 * DEVICE:PORT; only one may be given. Writes the numbers of at most REGX_DEVICES_MAX ports.
 * REGX_OK; REGX_UNREACHABLE: no port can be used; REGX_INVALID: a list names what is not there or
 * cannot be used, or leaves nothing. `error` then holds one line. */
regx_status_t regx_ports_choose(regx_port_choice_t *ports, size_t count, const char *if_include,
                                const char *if_exclude, size_t chosen[REGX_DEVICES_MAX],
                                size_t *chosen_count, char *error, size_t error_size);

/* Whether a list of cores as the kernel writes it, such as "0-7,16", has one of this process's;
 * also where it is empty. */
bool regx_port_has_own_core(const char *list);

/* transport.h's `devices`: the names of those that are chosen, as DEVICE:PORT. Opens each device
 * for a moment; nothing is registered or connected. The trace names each port that is not used, and
 * why. */
regx_status_t regx_ports_find(const regx_transport_config_t *config, char *error, size_t error_size,
                              regx_device_name_t names[REGX_DEVICES_MAX], size_t *count);

#endif

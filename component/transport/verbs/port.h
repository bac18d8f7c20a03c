/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One port of an RDMA device, opened, and how it is addressed. Which one: ports.h.
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
/* Whether it still has the GID and LID with which it was opened, as far as can be asked. */
bool regx_port_keeps_address(const regx_port_t *port);
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

#endif

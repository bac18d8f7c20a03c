/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which ports of this machine's RDMA devices are used.
 */
#ifndef REGX_VERBS_PORTS_H
#define REGX_VERBS_PORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/transport.h"

#define REGX_PORTS_MAX 1024 /* of this machine; virtual functions have one each */

typedef struct regx_port_choice { /* one port of this machine */
    const char *device;
    uint8_t number;
    const char *unusable; /* why it cannot be used, such as "is down"; NULL: it can */
    bool infiniband;      /* else Ethernet */
    bool link_local;      /* on Ethernet: it has no address that routers know */
    unsigned megabits;    /* per second; 0: not known */
    unsigned distance;    /* from the cores of this process: see distance.h */
    const char *left_out; /* set by choosing: why it is not used though it could be; or NULL */
} regx_port_choice_t;

/* Chooses among the ports that can be used. Those that if_include names, in its order. Else, of
 * those that if_exclude does not name, the ports of the faster link layer (InfiniBand, if both are
 * as fast); of these the ones that are at least half as fast as the fastest, have an address beyond
 * the link if any has, and are nearest. Lists are comma-separated, of DEVICE or DEVICE:PORT; only
 * one may be given. Writes the numbers of at most REGX_DEVICES_MAX ports. REGX_OK;
 * REGX_UNREACHABLE: no port can be used; REGX_INVALID: a list names what is not there or cannot be
 * used, or leaves nothing. `error` then holds one line. */
regx_status_t regx_ports_choose(regx_port_choice_t *ports, size_t count, const char *if_include,
                                const char *if_exclude, size_t chosen[REGX_DEVICES_MAX],
                                size_t *chosen_count, char *error, size_t error_size);

/* transport.h's `devices`: the names of those that are chosen, as DEVICE:PORT. Opens each device
 * for a moment; nothing is registered or connected. The trace names each port that is not used, and
 * why. */
regx_status_t regx_ports_find(const regx_transport_config_t *config, char *error, size_t error_size,
                              regx_device_name_t names[REGX_DEVICES_MAX], size_t *count);

#endif

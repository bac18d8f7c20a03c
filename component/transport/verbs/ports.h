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

typedef struct regx_port_choice { /* one port of this machine */
    const char *device;
    uint8_t number;
    bool active;
    unsigned distance; /* from the cores of this process: see distance.h */
} regx_port_choice_t;

/* Chooses among the ports that are active: those that if_include names, in its order; else the
 * nearest ones of those that if_exclude does not name. Lists are comma-separated, of DEVICE or
 * DEVICE:PORT; only one may be given. Writes their numbers, at most `count`. REGX_OK;
 * REGX_UNREACHABLE: no port is active; REGX_INVALID: a list names what is not there or is not
 * active, or leaves nothing. `error` then holds one line. */
regx_status_t regx_ports_choose(const regx_port_choice_t *ports, size_t count,
                                const char *if_include, const char *if_exclude, size_t *chosen,
                                size_t *chosen_count, char *error, size_t error_size);

/* transport.h's `devices`: the names of those that are chosen, as DEVICE:PORT. */
regx_status_t regx_ports_find(const regx_transport_config_t *config, char *error, size_t error_size,
                              regx_device_name_t names[REGX_DEVICES_MAX], size_t *count);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Choosing a port of an RDMA device, and how it is addressed.
 */
#ifndef REGX_VERBS_PORT_H
#define REGX_VERBS_PORT_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define REGX_PORT_NAME 80

typedef struct regx_port_choice { /* one port of this machine */
    const char *device;
    uint8_t number;
    bool active;
    bool near; /* to the cores of this process, as far as is known */
} regx_port_choice_t;

/* Chooses among the ports of this machine that are active: those that if_include names, or those
 * that if_exclude does not name; a near one first. Lists are comma-separated, of DEVICE or
 * DEVICE:PORT; only one may be given. REGX_OK; REGX_UNREACHABLE: no port is active; REGX_INVALID: a
 * list names what is not there or leaves nothing. `error` then holds one line. */
regx_status_t regx_port_choose(const regx_port_choice_t *ports, size_t count,
                               const char *if_include, const char *if_exclude, size_t *chosen,
                               char *error, size_t error_size);

typedef struct regx_port { /* one that is open */
    struct ibv_context *context;
    struct ibv_device_attr device;
    struct ibv_port_attr attr;
    struct ibv_gid_entry gid;
    char name[REGX_PORT_NAME]; /* DEVICE:PORT */
    uint8_t number;
} regx_port_t;

/* Opens the port that is chosen. gid_index -1: the best for the link layer. REGX_OK, and as
 * above. */
regx_status_t regx_port_open(const char *if_include, const char *if_exclude, int gid_index,
                             char *error, size_t error_size, regx_port_t *port);
void regx_port_close(regx_port_t *port);

/* Of the entries of a port's table the best to be reached by on Ethernet: RoCE v2 before v1, and a
 * routable address before one of the link alone. NULL: there is none. */
const struct ibv_gid_entry *regx_port_best_gid(const struct ibv_gid_entry *entries, size_t count,
                                               uint8_t port);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A protection domain of the program's, as the transport over which registration/ registers. It
 * registers and deregisters, and nothing else: there is no peer.
 */
#ifndef REGX_LIBRARY_DEVICE_H
#define REGX_LIBRARY_DEVICE_H

#include <infiniband/verbs.h>

#include "transport/transport.h"

typedef struct regx_device {
    regx_transport_t transport; /* first */
    struct ibv_pd *pd;          /* the program's */
} regx_device_t;

/* Returns 0, or an error number: the device tells nothing of itself. There is nothing to close. */
int regx_device_init(regx_device_t *device, struct ibv_pd *pd);

#endif

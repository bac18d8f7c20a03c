/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Queue pairs and routes, as the device makes them; ep.h is what they are made for.
 */
#ifndef REGX_VERBS_QP_H
#define REGX_VERBS_QP_H

#include <errno.h>

#include "transport/verbs/verbs.h"

/* Finds out what queue pairs the device makes: inline_max and depth. REGX_OK; REGX_UNREACHABLE:
 * none, `error` holds one line. If the device has no memory at the moment, nothing is found out and
 * it is REGX_OK: requests carry no data inline then. */
regx_status_t regx_qp_probe(regx_verbs_t *verbs, char *error, size_t error_size);

/* The route to the process that published an address. Owned by the caller; NULL: *error has the
 * reason, and is 0 else. On RoCE the kernel asks the network for the peer's hardware address,
 * unless it knows it, and waits for the answer up to a second (measured with Linux 7.2: 1.0 s for a
 * host that is not there). Nothing in verbs goes on without. So the thread that first sends to a
 * peer, or the one in progress that accepts its request, may wait so long, once for each peer. */
struct ibv_ah *regx_qp_route(const regx_verbs_t *verbs, const regx_verbs_address_t *address,
                             int *error);

/* Asks for a queue pair; attr tells what it can. NULL: see regx_last_error. */
struct ibv_qp *regx_qp_make(const regx_verbs_t *verbs, uint32_t depth, uint32_t inline_max,
                            struct ibv_qp_init_attr *attr);
/* Never 0: libraries have forgotten to say why. */
static inline int regx_last_error(void)
{
    return errno != 0 ? errno : EIO;
}

/* Brings a queue pair to its next state. 0, or the error. The kernel may wait as for a route. */
int regx_qp_to_init(const regx_verbs_t *verbs, struct ibv_qp *qp);
int regx_qp_to_ready_to_receive(const regx_verbs_t *verbs, struct ibv_qp *qp,
                                const regx_cm_message_t *message);
int regx_qp_to_ready_to_send(const regx_verbs_t *verbs, struct ibv_qp *qp, uint32_t psn,
                             uint8_t reads);

#endif

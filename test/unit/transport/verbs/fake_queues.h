/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the queues of devices in memory share: fake_queues.c makes the queues and takes
 * what is posted to them, fake_fabric.c does it.
 */
#pragma once

#include "fake_parts.h"

enum { FAKE_QUEUE = 16384 }; /* entries of any queue */

typedef struct fake_request {
    struct ibv_send_wr wr;
    struct ibv_sge segment;
    const struct fake_ah *to; /* of a datagram: looked at when it goes, as devices may do */
    uint8_t carried[1024];
} fake_request_t;

typedef struct fake_receives {
    struct ibv_recv_wr *entries;
    struct ibv_sge *segments;
    uint64_t posted, taken;
} fake_receives_t;

typedef struct fake_srq {
    struct ibv_srq super;
    fake_receives_t receives;
} fake_srq_t;

typedef struct fake_cq {
    struct ibv_cq super;
    struct ibv_wc *entries;
    uint64_t pushed, polled, size;
} fake_cq_t;

typedef struct fake_qp {
    struct ibv_qp super;
    fake_port_t *port;
    fake_receives_t receives; /* of a UD one */
    fake_request_t *requests;
    uint32_t depth, dest, qkey;
    uint64_t posted, done;
    unsigned retries; /* of the first, as its receiver is not ready to receive */
    struct fake_qp *next;
} fake_qp_t;

/* An address handle. */
typedef struct fake_ah {
    struct ibv_ah super;
    struct ibv_ah_attr attr;
} fake_ah_t;

/* The lock is held by who calls the following. */
/* The queue pairs that there are. */
void fake_fabric_join(fake_qp_t *qp);
void fake_fabric_leave(fake_qp_t *qp);
/* Does what was posted to them, as far as it can be done now. */
void fake_fabric_run(void);
/* The queue pair fails. */
void fake_enter_error(fake_qp_t *qp);

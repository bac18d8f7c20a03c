/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Registering memory with a device: the transport's words and libibverbs'.
 */
#ifndef REGX_VERBS_MEMORY_H
#define REGX_VERBS_MEMORY_H

#include <errno.h>
#include <infiniband/verbs.h>

#include "transport/transport.h"

/* For ibv_reg_mr. Reading the memory to send it needs no right: it may be read-only. */
static inline int regx_verbs_access(unsigned access)
{
    int flags = 0;

    if ((access & REGX_ACCESS_REMOTE_WRITE) != 0) {
        flags |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    }
    if ((access & REGX_ACCESS_LOCAL_WRITE) != 0) {
        flags |= IBV_ACCESS_LOCAL_WRITE;
    }
    if ((access & REGX_ACCESS_REMOTE_READ) != 0) {
        flags |= IBV_ACCESS_REMOTE_READ;
    }
    return flags;
}

/* What it means that the device refused, by errno. */
static inline regx_status_t regx_verbs_refusal(int error)
{
    return error == ENOMEM || error == EAGAIN ? REGX_NO_MEMORY : REGX_DENIED;
}

#endif

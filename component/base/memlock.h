/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The limit of locked memory (ulimit -l), which also bounds what may be registered with a device.
 */
#ifndef REGX_BASE_MEMLOCK_H
#define REGX_BASE_MEMLOCK_H

#include <stdint.h>

#define REGX_MEMLOCK_NONE UINT64_MAX

/* The end of a line that tells of the limit. */
#define REGX_MEMLOCK_REMEDY                                                                        \
    "raise it in limits.d, and for jobs of a scheduler in its daemon's LimitMEMLOCK"

/* Bytes that this process may lock; REGX_MEMLOCK_NONE: as many as it likes, for there is no limit
 * or it is not for this process (CAP_IPC_LOCK). */
uint64_t regx_memlock_limit(void);

/* Bytes that devices have pinned of this process's memory, as the kernel counts them against that
 * limit; 0: it does not say. Reads /proc. */
uint64_t regx_memlock_pinned(void);

#endif

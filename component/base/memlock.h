/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The limit of locked memory (ulimit -l), which also bounds what may be registered with a device.
 */
#ifndef REGX_BASE_MEMLOCK_H
#define REGX_BASE_MEMLOCK_H

#include <inttypes.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/util.h"

#define REGX_MEMLOCK_NONE UINT64_MAX

/* The end of a line that tells of the limit. */
#define REGX_MEMLOCK_REMEDY                                                                        \
    "raise it in limits.d, and for jobs of a scheduler in its daemon's LimitMEMLOCK"

/* The kernel asks for the capability outside of all user namespaces, where capget does not look.
 * Who is in one has other numbers for its users than the kernel has. */
static inline bool regx_memlock_may_lock_any(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    unsigned own, kernels, count;
    char line[64];

    return syscall(SYS_capget, &header, data) == 0 &&
           (data[0].effective & (1u << CAP_IPC_LOCK)) != 0 &&
           regx_read_line(REGX_PROC "uid_map", line, sizeof(line)) &&
           sscanf(line, "%u %u %u", &own, &kernels, &count) == 3 && own == kernels &&
           count == UINT32_MAX;
}

/* Bytes that this process may lock; REGX_MEMLOCK_NONE: as many as it likes, for there is no limit
 * or it is not for this process (CAP_IPC_LOCK). */
static inline uint64_t regx_memlock_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        regx_memlock_may_lock_any()) {
        return REGX_MEMLOCK_NONE;
    }
    return limit.rlim_cur;
}

/* Bytes that devices have pinned of this process's memory, as the kernel counts them against that
 * limit; 0: it does not say. Reads /proc. */
static inline uint64_t regx_memlock_pinned(void)
{
    FILE *status = fopen(REGX_PROC "status", "re");
    uint64_t kib = 0;
    char line[256];

    if (status == NULL) {
        return 0;
    }
    while (fgets(line, sizeof(line), status) != NULL &&
           sscanf(line, "VmPin: %" SCNu64 " kB", &kib) != 1) {
    }
    fclose(status);
    return kib << 10;
}

#endif

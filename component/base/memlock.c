/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/memlock.h"

#include <inttypes.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool may_lock_any(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

    return syscall(SYS_capget, &header, data) == 0 &&
           (data[0].effective & (1u << CAP_IPC_LOCK)) != 0;
}

uint64_t regx_memlock_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        may_lock_any()) {
        return REGX_MEMLOCK_NONE;
    }
    return limit.rlim_cur;
}

uint64_t regx_memlock_pinned(void)
{
    FILE *status = fopen("/proc/self/status", "re");
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

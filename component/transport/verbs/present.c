/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "transport/verbs/present.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define DEVICES "/sys/class/infiniband"

bool regx_verbs_owns(const char *device)
{
    const size_t length = strcspn(device, ":");
    char path[sizeof(DEVICES) + 1 + NAME_MAX];
    struct stat status;

    if (length == 0 || length > NAME_MAX || strchr(device, '/') != NULL) {
        return false;
    }
    snprintf(path, sizeof(path), DEVICES "/%.*s", (int)length, device);
    return stat(path, &status) == 0;
}

static bool has_device(void)
{
    glob_t devices = {0};
    const bool found = glob(DEVICES "/*", GLOB_NOSORT, NULL, &devices) == 0;

    globfree(&devices);
    return found;
}

const char *regx_verbs_why_absent(void)
{
    if (!REGX_HAVE_VERBS) {
        return "built without rdma-core";
    }
    return has_device() ? NULL : "no RDMA device here";
}

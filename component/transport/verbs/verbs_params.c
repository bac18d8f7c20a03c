/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "transport/settings.h"

#include <glob.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#define DEVICES "/sys/class/infiniband"

/* Asked without libibverbs, which is loaded only where there is a device. */
static bool owns(const char *device)
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

static const char *why_absent(void)
{
    if (!REGX_HAVE_VERBS) {
        return "built without rdma-core";
    }
    return has_device() ? NULL : "no RDMA device here";
}

#define ROW(type, field, ...)                                                                      \
    REGX_PARAM_ROW(regx_verbs_settings_t, "verbs_", type, field, 5, __VA_ARGS__)

/* Values are checked whatever the transport is; what a port can do of them only the transport
 * knows. */
static const regx_param_t table[] = {
    ROW(NUMBER, gid_index, .max = 255, .words = REGX_WORDS({.word = "auto", .value = UINT64_MAX})),
    ROW(NUMBER, pkey, .min = 1, .max = 0xffff, .hexadecimal = true,
        .words = REGX_WORDS({.word = "auto", .value = 0})),
    ROW(NUMBER, service_level, .max = 15),
    ROW(NUMBER, traffic_class, .max = 255),
    ROW(WORD, any_subnet,
        .words = REGX_WORDS({.word = "0", .value = false}, {.word = "1", .value = true})),
    {.name = NULL}};

const regx_catalog_entry_t regx_verbs_entry = {
    .word = {.word = "verbs", .absent = !REGX_HAVE_VERBS},
    .params = table,
    .remedy = "btl_regx_if_include and btl_regx_if_exclude must leave two ports that share a "
              "subnet (InfiniBand prefix, RoCE network; or set btl_regx_verbs_any_subnet=1), a "
              "partition (btl_regx_verbs_pkey) and a kind of GID (btl_regx_verbs_gid_index)",
    .owns = owns,
    .why_absent = why_absent,
    .devices = "RDMA device"};

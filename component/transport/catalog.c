/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "transport/catalog.h"

#include <dlfcn.h>
#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "transport/pinned/uring.h"
#include "transport/shm/shm_internal.h"

/* ---- what is known of verbs before it is loaded ---- */

#define DEVICES "/sys/class/infiniband"

/* Asked without libibverbs, which is loaded only where there is a device. */
static bool owns_device(const char *device)
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

static const char *why_no_verbs(void)
{
    glob_t devices = {0};
    const bool found = glob(DEVICES "/*", GLOB_NOSORT, NULL, &devices) == 0;

    globfree(&devices);
    if (!REGX_HAVE_VERBS) {
        return "built without rdma-core";
    }
    return found ? NULL : "no RDMA device here";
}

#define VERBS_ROW(type, field, ...)                                                                \
    REGX_PARAM_ROW(regx_verbs_settings_t, "verbs_", type, field, 5, __VA_ARGS__)

/* Values are checked whatever the transport is; what a port can do of them only the transport
 * knows. */
static const regx_param_t verbs_params[] = {
    VERBS_ROW(NUMBER, gid_index, .max = 255,
              .words = REGX_WORDS({.word = "auto", .value = UINT64_MAX})),
    VERBS_ROW(NUMBER, pkey, .min = 1, .max = 0xffff, .hexadecimal = true,
              .words = REGX_WORDS({.word = "auto", .value = 0})),
    VERBS_ROW(NUMBER, service_level, .max = 15),
    VERBS_ROW(NUMBER, traffic_class, .max = 255,
              .words = REGX_WORDS({.word = "auto", .value = UINT64_MAX})),
    VERBS_ROW(WORD, any_subnet,
              .words = REGX_WORDS({.word = "0", .value = false}, {.word = "1", .value = true})),
    VERBS_ROW(WORD, relaxed_ordering,
              .words = REGX_WORDS({.word = "auto", .value = REGX_VERBS_ORDERING_AUTO},
                                  {.word = "0", .value = REGX_VERBS_STRICT},
                                  {.word = "1", .value = REGX_VERBS_RELAXED})),
    {.name = NULL}};

static const regx_catalog_entry_t verbs_entry = {
    .params = verbs_params,
    .remedy = "btl_regx_if_include and btl_regx_if_exclude must leave two ports that share a "
              "subnet (InfiniBand prefix; RoCE network, or set btl_regx_verbs_any_subnet=1), a "
              "partition (btl_regx_verbs_pkey) and a kind of GID (btl_regx_verbs_gid_index)",
    .owns = owns_device,
    .why_absent = why_no_verbs,
    .devices = "RDMA device"};

/* ---- the transports ---- */

const regx_catalog_entry_t *const regx_catalog[REGX_TRANSPORTS] = {
    [REGX_ON_NODE] = &regx_shm_entry,
    [REGX_BETWEEN_NODES] = &verbs_entry,
    [REGX_PINNED] = &regx_pinned_entry};

const regx_param_t regx_transport_params[] = {
    REGX_PARAM_ROW(regx_transport_settings_t, "", LIST, if_include, 3),
    REGX_PARAM_ROW(regx_transport_settings_t, "", LIST, if_exclude, 3),
    {.name = NULL}};

const regx_param_word_t regx_transport_words[] = {
    {.word = "auto"},
    [1 + REGX_ON_NODE] = {.word = "shm"},
    [1 + REGX_BETWEEN_NODES] = {.word = "verbs", .absent = !REGX_HAVE_VERBS},
    [1 + REGX_PINNED] = {.word = "pinned", .absent = !REGX_HAVE_PINNED},
    {.word = NULL}};

/* ---- loading ---- */

const regx_transport_ops_t *regx_transport_load(const char *name, regx_error_t error)
{
    const regx_transport_ops_t *ops;
    char own[PATH_MAX], *path = NULL;
    Dl_info info = {.dli_fname = "/"};

    dladdr((const void *)(uintptr_t)&regx_transport_load, &info);
    snprintf(own, sizeof(own), "%s", info.dli_fname);
    if (asprintf(&path, "%s/regx_transport_%s.so", dirname(own), name) < 0) {
        snprintf(error, REGX_ERROR, "transport %s: out of memory", name);
        return NULL;
    }
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) {
        snprintf(error, REGX_ERROR, "transport %s cannot be loaded: %s", name, dlerror());
        free(path);
        return NULL;
    }
    ops = dlsym(object, "regx_transport_ops");
    if (ops == NULL) {
        snprintf(error, REGX_ERROR, "transport %s: %s is no transport of regx", name, path);
    } else if (ops->abi != REGX_TRANSPORT_ABI) {
        snprintf(error, REGX_ERROR,
                 "transport %s: %s belongs to another build of regx (its interface is %u, this "
                 "one's %u)",
                 name, path, ops->abi, (unsigned)REGX_TRANSPORT_ABI);
        ops = NULL;
    }
    free(path);
    return ops;
}

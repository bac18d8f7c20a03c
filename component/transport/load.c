/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The folder of the file that holds this function, with the slash at its end. */
static int folder_length(const char **file)
{
    const char *slash;
    Dl_info info;

    if (dladdr((const void *)(uintptr_t)&regx_transport_load, &info) == 0 ||
        info.dli_fname == NULL) {
        return -1;
    }
    *file = info.dli_fname;
    slash = strrchr(info.dli_fname, '/');
    return slash == NULL ? 0 : (int)(slash - info.dli_fname) + 1;
}

const regx_transport_ops_t *regx_transport_load(const char *name, char *error, size_t error_size)
{
    const regx_transport_ops_t *ops;
    const char *file = "";
    char *path = NULL;
    void *object;
    int length = folder_length(&file);

    if (length < 0 || asprintf(&path, "%.*s%sregx_transport_%s.so", length, file,
                               length == 0 ? "./" : "", name) < 0) {
        snprintf(error, error_size, "transport %s: cannot find the folder that regx lies in", name);
        return NULL;
    }
    object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) {
        snprintf(error, error_size, "transport %s cannot be loaded: %s", name, dlerror());
        free(path);
        return NULL;
    }
    ops = dlsym(object, "regx_transport_ops");
    if (ops == NULL) {
        snprintf(error, error_size, "transport %s: %s is no transport of regx", name, path);
    } else if (ops->abi != REGX_TRANSPORT_ABI) {
        snprintf(error, error_size,
                 "transport %s: %s belongs to another build of regx (its interface is %u, this "
                 "one's %u)",
                 name, path, ops->abi, (unsigned)REGX_TRANSPORT_ABI);
        ops = NULL;
    }
    free(path);
    return ops;
}

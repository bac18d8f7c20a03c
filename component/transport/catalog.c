/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/catalog.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "transport/shm/shm_internal.h"

const regx_catalog_entry_t *const regx_catalog[REGX_TRANSPORTS] = {
    [REGX_ON_NODE] = &regx_shm_entry,
    [REGX_BETWEEN_NODES] = &regx_verbs_entry,
    [REGX_PINNED] = &regx_pinned_entry};

const regx_param_t regx_transport_params[] = {
    REGX_PARAM_ROW(regx_transport_settings_t, "", LIST, if_include, 3),
    REGX_PARAM_ROW(regx_transport_settings_t, "", LIST, if_exclude, 3),
    {.name = NULL}};

bool regx_transport_word(unsigned index, regx_param_word_t *word)
{
    if (index > REGX_TRANSPORTS) {
        return false;
    }
    *word = index > 0 ? regx_catalog[index - 1]->word : (regx_param_word_t){.word = "auto"};
    return true;
}

/* ---- loading ---- */

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

const regx_transport_ops_t *regx_transport_load(const char *name, regx_error_t error)
{
    const regx_transport_ops_t *ops;
    const char *file = "";
    char *path = NULL;
    void *object;
    int length = folder_length(&file);

    if (length < 0 || asprintf(&path, "%.*s%sregx_transport_%s.so", length, file,
                               length == 0 ? "./" : "", name) < 0) {
        snprintf(error, REGX_ERROR, "transport %s: cannot find the folder that regx lies in", name);
        return NULL;
    }
    object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
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

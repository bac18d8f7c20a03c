/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What UCX reads in its constructor and does not need for regx: it would patch libc's memory
 * functions, handle signals, start a thread (where its file system view is installed), and log to
 * stdout, which is the application's. A variable that the user set holds. */
static struct setting {
    const char *name;
    char entry[32]; /* of the environment */
} settings[] = {
    {"UCX_MEM_EVENTS", "UCX_MEM_EVENTS=n"},  {"UCX_HANDLE_ERRORS", "UCX_HANDLE_ERRORS=none"},
    {"UCX_DEBUG_SIGNO", "UCX_DEBUG_SIGNO="}, {"UCX_VFS_ENABLE", "UCX_VFS_ENABLE=n"},
    {"UCX_LOG_FILE", "UCX_LOG_FILE=stderr"},
};

enum { SETTINGS = sizeof(settings) / sizeof(settings[0]) };

/* The environment and these, for good: another thread may be reading it whenever it is no longer
 * needed. NULL: no memory. */
static char **environment_for_ucx(char **before)
{
    static char **environment;
    size_t count = 0;

    while (before != NULL && before[count] != NULL) {
        count++;
    }
    environment = malloc((count + SETTINGS + 1) * sizeof(*environment));
    if (environment == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        environment[i] = before[i];
    }
    for (size_t i = 0; i < SETTINGS; i++) {
        if (getenv(settings[i].name) == NULL) {
            environment[count++] = settings[i].entry;
        }
    }
    environment[count] = NULL;
    return environment;
}

/* Open MPI's own threads may read the environment meanwhile (PMIx's was seen to). setenv may free
 * what they read: so the whole of it is exchanged. */
static void *open_quietly(const char *path)
{
    /* Somebody else's UCX is as it is; the environment then means nothing any more. */
    void *loaded = dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD);
    char **const before = environ;
    char **const during = loaded == NULL ? environment_for_ucx(before) : NULL;

    if (loaded != NULL) {
        dlclose(loaded);
    }
    if (during != NULL) {
        __atomic_store_n(&environ, during, __ATOMIC_RELEASE);
    }
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (during != NULL && environ == during) { /* else somebody has made another of it */
        __atomic_store_n(&environ, before, __ATOMIC_RELEASE);
    }
    return object;
}

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
    object = open_quietly(path);
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

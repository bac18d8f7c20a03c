/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "registration/ucx.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

/* What UCX reads in its constructor: else it would patch libc's memory functions, handle signals,
 * start a thread (where its file system view is installed), and log to stdout, which is the
 * application's. A variable that the user set holds. */
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

/* Loads it with all that it needs, for good: ucm calls the rest of UCX. */
static void keep(void)
{
    (void)dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
}

/* Open MPI's own threads may read the environment meanwhile (PMIx's was seen to). setenv may free
 * what they read: so the whole of it is exchanged. */
static void load_quietly(void)
{
    char **const before = environ;
    char **const during = environment_for_ucx(before);
    if (during == NULL) {
        return;
    }
    __atomic_store_n(&environ, during, __ATOMIC_RELEASE);
    keep();
    if (environ == during) { /* else somebody has made another of it */
        __atomic_store_n(&environ, before, __ATOMIC_RELEASE);
    }
}

void regx_ucx_load(void)
{
    void *loaded = dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD);

    if (loaded == NULL) {
        load_quietly();
        return;
    }
    /* Somebody else's is as it is; the environment means nothing to it any more. */
    keep();
    dlclose(loaded);
}

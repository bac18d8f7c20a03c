/* SPDX-License-Identifier: BSD-3-Clause
 *
 * UCX's ucm as a source of hooks. What it sees and does not see is as with Open MPI's (hooks.c). It
 * patches libc's functions when it is installed and leaves them patched; the user's choice alone.
 * Opened by name: the component must not need UCX's libraries, since loading UCX changes a process
 * (it patches libc and installs signal handlers unless told otherwise).
 */
#define _GNU_SOURCE
#include "config.h"

#include "registration/monitor/monitor.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef REGX_HAVE_UCM
#include <ucm/api/ucm.h>
#endif

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

void regx_hooks_load_ucx(void)
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

#ifdef REGX_HAVE_UCM

static struct {
    regx_hook_report_t report;
    void *context;
    void *object;
    __typeof__(ucm_set_event_handler) *set;
    __typeof__(ucm_unset_event_handler) *unset;
} ucm;

static void unmapped(ucm_event_type_t type, ucm_event_t *event, void *unused)
{
    (void)type, (void)unused;
    ucm.report(ucm.context, event->vm_unmapped.address, event->vm_unmapped.size);
}

/* Before 1.15, its mremap loses the address that MREMAP_FIXED needs, and the program's data with
 * it. To be asked before anything is patched. Only libucp knows which UCX this is. */
static bool breaks_mremap(void)
{
    void (*get_version)(unsigned *major, unsigned *minor, unsigned *release) = NULL;
    void *libucp = dlopen("libucp.so.0", RTLD_LAZY | RTLD_LOCAL);
    unsigned major = 0, minor = 0, release = 0;

    if (libucp != NULL) {
        get_version = (__typeof__(get_version))dlsym(libucp, "ucp_get_version");
        if (get_version != NULL) {
            get_version(&major, &minor, &release);
        }
        dlclose(libucp);
    }
    return major < 1 || (major == 1 && minor < 15);
}

/* Where regx loaded UCX, it told it to leave libc alone (regx_hooks_load_ucx). ucm reads that when
 * it installs its hooks, now. */
static ucs_status_t ucm_set_handler(ucm_global_config_t *options)
{
    const int enabled = options->enable_events;

    options->enable_events = 1;
    const ucs_status_t status = ucm.set(UCM_EVENT_VM_UNMAPPED, -1, unmapped, NULL);
    options->enable_events = enabled;
    return status;
}

static regx_status_t ucm_install(regx_hook_report_t reporter, void *context, char *error,
                                 size_t error_size)
{
    ucm_global_config_t *options = NULL;

    /* Opened without the rest of UCX, which it needs and does not name, it would end the process.
     */
    ucm.object = dlopen("libucm.so.0", RTLD_LAZY | RTLD_NOLOAD);
    if (ucm.object == NULL) {
        snprintf(error, error_size, "ucm: UCX is not there");
        return REGX_DENIED;
    }
    if (breaks_mremap()) {
        snprintf(error, error_size,
                 "ucm: before UCX 1.15 its hooks break the program's mremap(MREMAP_FIXED)");
        dlclose(ucm.object);
        return REGX_DENIED;
    }
    ucm.set = (__typeof__(ucm.set))dlsym(ucm.object, "ucm_set_event_handler");
    ucm.unset = (__typeof__(ucm.unset))dlsym(ucm.object, "ucm_unset_event_handler");
    options = dlsym(ucm.object, "ucm_global_opts");
    ucm.report = reporter;
    ucm.context = context;
    if (ucm.set == NULL || ucm.unset == NULL || options == NULL ||
        ucm_set_handler(options) != UCS_OK) {
        snprintf(error, error_size, "ucm: its hooks cannot be installed");
        dlclose(ucm.object);
        return REGX_DENIED;
    }
    return REGX_OK;
}

/* The code of libucm stays: what it patched leads there. */
static void ucm_remove(regx_hook_report_t reporter, void *context)
{
    (void)reporter, (void)context;
    ucm.unset(UCM_EVENT_VM_UNMAPPED, unmapped, NULL);
}

static const regx_hook_source_t ucm_source = {
    .name = "ucm", .install = ucm_install, .remove = ucm_remove};

const regx_hook_source_t *const regx_hooks_ucm = &ucm_source;

/* Whether UCX, which somebody loaded, has patched libc with hooks that this source can use. */
static bool ucm_has_patched(void)
{
    void *object = dlopen("libucm.so.0", RTLD_LAZY | RTLD_NOLOAD);
    const ucm_global_config_t *options;
    bool patched;

    if (object == NULL) {
        return false;
    }
    options = dlsym(object, "ucm_global_opts");
    patched = options != NULL && options->enable_events && !breaks_mremap();
    dlclose(object);
    return patched;
}

#else

const regx_hook_source_t *const regx_hooks_ucm = NULL;

static bool ucm_has_patched(void)
{
    return false;
}

#endif

const regx_hook_source_t *regx_hooks_by_default(bool links_ucx, const regx_hook_source_t *own)
{
    return links_ucx && ucm_has_patched() ? regx_hooks_ucm : own;
}

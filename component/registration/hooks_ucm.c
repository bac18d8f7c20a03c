/* SPDX-License-Identifier: BSD-3-Clause
 *
 * UCX's ucm as the source of hooks: what it sees and does not see is as in hooks.c. It patches
 * libc's functions when it is installed and leaves them patched; the user's choice alone.
 * Opened by name: the component must not need UCX's libraries (transport/load.h).
 */
#include "config.h"

#include "registration/hooks.h"

#ifdef REGX_HAVE_UCM

#include <dlfcn.h>
#include <stdio.h>
#include <ucm/api/ucm.h>

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

/* Where regx opened UCX, it told it to leave libc alone (transport/load.c). ucm reads that when it
 * installs its hooks, now. */
static ucs_status_t set_handler(ucm_global_config_t *options)
{
    const int enabled = options->enable_events;

    options->enable_events = 1;
    const ucs_status_t status = ucm.set(UCM_EVENT_VM_UNMAPPED, -1, unmapped, NULL);
    options->enable_events = enabled;
    return status;
}

static regx_status_t install(regx_hook_report_t report, void *context, char *error,
                             size_t error_size)
{
    ucm_global_config_t *options = NULL;

    /* Opened without the rest of UCX, which it needs and does not name, it would end the process.
     */
    ucm.object = dlopen("libucm.so.0", RTLD_LAZY | RTLD_NOLOAD);
    if (ucm.object == NULL) {
        snprintf(error, error_size, "ucm: the transport in use does not bring UCX");
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
    ucm.report = report;
    ucm.context = context;
    if (ucm.set == NULL || ucm.unset == NULL || options == NULL || set_handler(options) != UCS_OK) {
        snprintf(error, error_size, "ucm: its hooks cannot be installed");
        dlclose(ucm.object);
        return REGX_DENIED;
    }
    return REGX_OK;
}

/* The code of libucm stays: what it patched leads there. */
static void remove_handler(regx_hook_report_t report, void *context)
{
    (void)report, (void)context;
    ucm.unset(UCM_EVENT_VM_UNMAPPED, unmapped, NULL);
}

static const regx_hook_source_t source = {
    .name = "ucm", .install = install, .remove = remove_handler};

const regx_hook_source_t *const regx_hooks_ucm = &source;

#else

const regx_hook_source_t *const regx_hooks_ucm = NULL;

#endif

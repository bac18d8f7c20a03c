/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "btl/transports.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "btl/module.h"
#include "btl/say.h"
#include "transport/load.h"

#define ERROR 256 /* room for a line that says why not */
#define LIST 4096 /* room for a list of devices */

/* One kind of transport that may be opened. */
typedef struct candidate {
    const regx_catalog_row_t *row;
    const regx_transport_ops_t *ops;
    regx_device_name_t devices[REGX_DEVICES_MAX];
    size_t device_count;
    const char *if_include, *if_exclude;
    size_t pool_size; /* of all its devices together */
} candidate_t;

/* Why a transport is not used, or one device of several. */
static void say_refused(const char *transport, regx_status_t status, const char *error, bool others)
{
    char line[448];

    if (status == REGX_INVALID) { /* the error begins with the name of a parameter */
        snprintf(line, sizeof(line), "btl_regx_%s", error);
    } else {
        snprintf(line, sizeof(line), "btl_regx_transport=%s: %s%s", transport, error,
                 others ? "; the other ports are used without it" : "");
    }
    regx_say_of_node(line);
}

/* Finds the devices of a transport that is loaded. REGX_OK; otherwise `error` says why not. */
static regx_status_t find_devices(const regx_component_t *component, candidate_t *candidate,
                                  char error[ERROR])
{
    const regx_transport_ops_t *ops = candidate->ops;
    const regx_transport_config_t config = {.if_include = candidate->if_include,
                                            .if_exclude = candidate->if_exclude,
                                            .topology = regx_compat_topology(),
                                            .trace = &component->trace};

    candidate->device_count = 1;
    return ops->devices == NULL
               ? REGX_OK
               : ops->devices(&config, error, ERROR, candidate->devices, &candidate->device_count);
}

/* What one of several devices gets, in whole pages. */
static size_t pool_of_device(const regx_component_t *component, const candidate_t *candidate)
{
    const size_t share = candidate->pool_size / candidate->device_count & ~(regx_page_size() - 1);

    return regx_max(share, 2 * component->params.settings.pool.slot_size);
}

/* Opens a module for each device. One that cannot be opened is left out. REGX_OK: all are open;
 * otherwise the first reason why one is not, REGX_INVALID before others. */
static regx_status_t open_devices(regx_component_t *component, const mca_btl_base_module_t *face,
                                  const candidate_t *candidate, char first_error[ERROR])
{
    regx_module_request_t request = {.face = face,
                                     .row = candidate->row,
                                     .ops = candidate->ops,
                                     .if_include = candidate->if_include,
                                     .if_exclude = candidate->if_exclude,
                                     .pool_size = pool_of_device(component, candidate)};
    regx_status_t first = REGX_OK;
    char error[ERROR];

    for (size_t i = 0; i < candidate->device_count && first != REGX_INVALID; i++) {
        regx_module_t *module;

        request.device = candidate->ops->devices == NULL ? NULL : candidate->devices[i];
        const regx_status_t status =
            regx_module_open(component, &request, error, sizeof(error), &module);
        if (status == REGX_OK) {
            module->place = component->module_count;
            component->modules[component->module_count++] = module;
            continue;
        }
        regx_trace(&component->trace, REGX_TRACE_CHOICE, "transport %s: %s is left out: %s",
                   candidate->ops->name, request.device != NULL ? request.device : "all of it",
                   error);
        if (first == REGX_OK || status == REGX_INVALID) {
            first = status;
            strcpy(first_error, error);
        }
    }
    return first;
}

/* Opens a transport that has to be there: what is wrong with it is told to the user. */
static bool open_needed(regx_component_t *component, const mca_btl_base_module_t *face,
                        candidate_t *candidate)
{
    const char *name = candidate->row->entry->word.word;
    const regx_strategy_t *copies =
        regx_strategy_copying(component->params.strategy, &component->params.auto_choice);
    const unsigned before = component->module_count;
    char error[ERROR];

    regx_status_t status = REGX_UNREACHABLE;
    candidate->ops = regx_transport_load(name, error, sizeof(error));
    if (candidate->ops != NULL && !candidate->ops->copies && copies != NULL) {
        snprintf(error, sizeof(error),
                 "%s=%s: over transport %s the kernel does not copy between processes; "
                 "allowed: another rendezvous, or transport uct",
                 copies == component->params.strategy ? "rendezvous" : "auto_choice",
                 regx_strategy_name(copies), name);
        status = REGX_INVALID;
    } else if (candidate->ops != NULL) {
        status = find_devices(component, candidate, error);
    }
    if (status == REGX_OK) {
        status = open_devices(component, face, candidate, error);
    }
    if (status != REGX_OK) {
        regx_trace(&component->trace, REGX_TRACE_CHOICE, "transport %s cannot be used%s: %s", name,
                   component->module_count > before ? " as a whole" : "", error);
        say_refused(name, status, error, component->module_count > before);
    }
    return status != REGX_INVALID && component->module_count > before;
}

#define RDMA_DEVICES "/sys/class/infiniband"

/* Whether the kernel has an RDMA device of that name, which may end in ":" and a port's number. */
static bool is_rdma_device(const char *name)
{
    char path[sizeof(RDMA_DEVICES) + LIST];
    struct stat status;

    snprintf(path, sizeof(path), RDMA_DEVICES "/%.*s", (int)strcspn(name, ":"), name);
    return name[0] != '\0' && strchr(name, '/') == NULL && stat(path, &status) == 0;
}

/* With auto, one list names the devices of both transports. Copies those elements of `list` that
 * are RDMA devices, or those that are not. NULL: there are none. */
static const char *part_of(const char *list, bool rdma, char part[LIST])
{
    char element[LIST];
    size_t used = 0;

    part[0] = '\0';
    while (list != NULL && *list != '\0' && used < LIST) {
        const size_t length = strcspn(list, ",");

        snprintf(element, sizeof(element), "%.*s", (int)length, list);
        if (is_rdma_device(element) == rdma) {
            used +=
                (size_t)snprintf(part + used, LIST - used, "%s%s", used > 0 ? "," : "", element);
        }
        list += length + (list[length] == ',');
    }
    return used > 0 ? part : NULL;
}

#if REGX_HAVE_VERBS
/* Asked without libibverbs, which is loaded only where there is a device. */
static bool has_rdma_device(void)
{
    glob_t devices = {0};
    const bool found = glob(RDMA_DEVICES "/*", GLOB_NOSORT, NULL, &devices) == 0;

    globfree(&devices);
    return found;
}
#endif

/* Why verbs is not even looked for; NULL: it is. */
static const char *why_not_verbs(const regx_component_t *component, const char *included)
{
#if REGX_HAVE_VERBS
    const char *given = component->params.settings.transports.all.if_include;

    if (!has_rdma_device()) {
        return "no RDMA device here";
    }
    if (given != NULL && given[0] != '\0' && included == NULL) {
        return "if_include names no RDMA device";
    }
    if (regx_compat_processes() == regx_compat_local_processes()) {
        return "all processes are on this node";
    }
    return NULL;
#else
    (void)component, (void)included;
    return "built without rdma-core";
#endif
}

/* The pool that each of two transports gets. A size that the user gave is the process's, and is
 * divided; otherwise each has what it would have alone. A process that is alone on its node uses
 * uct only where verbs does not lead, which a quarter serves. */
static void divide_pool(const regx_component_t *component, candidate_t *uct, candidate_t *verbs)
{
    const size_t size = component->params.settings.pool.pool_size;
    const bool is_alone = regx_compat_local_processes() == 1;
    const size_t uct_size = is_alone ? size / 4 : size / 2;

    verbs->pool_size = component->params.pool_given ? size - uct_size : size;
    uct->pool_size = component->params.pool_given || is_alone ? uct_size : size;
    uct->pool_size = regx_max(uct->pool_size & ~(regx_page_size() - 1),
                              2 * component->params.settings.pool.slot_size);
}

/* Modules are asked for peers in the order of the list: uct, which was opened last, becomes the
 * first. */
static void put_last_first(regx_component_t *component)
{
    regx_module_t *last = component->modules[component->module_count - 1];

    memmove(&component->modules[1], &component->modules[0],
            (component->module_count - 1) * sizeof(component->modules[0]));
    component->modules[0] = last;
    for (unsigned i = 0; i < component->module_count; i++) {
        component->modules[i]->place = i;
    }
}

/* Opens verbs, as far as it is usable. REGX_INVALID: a setting is wrong, and the user was told.
 * Otherwise `error` says why no port is used, if none is. */
static regx_status_t open_verbs(regx_component_t *component, const mca_btl_base_module_t *face,
                                candidate_t *verbs, char error[ERROR])
{
    verbs->ops = regx_transport_load(verbs->row->entry->word.word, error, ERROR);
    if (verbs->ops == NULL) {
        return REGX_UNREACHABLE;
    }
    regx_status_t status = find_devices(component, verbs, error);

    if (status == REGX_INVALID && verbs->if_include == NULL) {
        return REGX_UNREACHABLE; /* if_exclude leaves no port, as the user wants it */
    }
    if (status == REGX_OK) {
        status = open_devices(component, face, verbs, error);
    }
    if (status == REGX_INVALID) {
        say_refused("auto", status, error, false);
    }
    return status;
}

static bool open_auto(regx_component_t *component, const mca_btl_base_module_t *face)
{
    char include[2][LIST], exclude[2][LIST], error[ERROR];
    const regx_params_t *params = &component->params;
    candidate_t uct = {
        .row = regx_catalog_find("uct"),
        .if_include = part_of(params->settings.transports.all.if_include, false, include[0]),
        .if_exclude = part_of(params->settings.transports.all.if_exclude, false, exclude[0])};
    candidate_t verbs = {
        .row = regx_catalog_find("verbs"),
        .if_include = part_of(params->settings.transports.all.if_include, true, include[1]),
        .if_exclude = part_of(params->settings.transports.all.if_exclude, true, exclude[1])};
    const char *why_not = why_not_verbs(component, verbs.if_include);

    divide_pool(component, &uct, &verbs);
    if (why_not == NULL) {
        if (open_verbs(component, face, &verbs, error) == REGX_INVALID) {
            return false;
        }
        why_not = component->module_count > 0 ? NULL : error;
    }
    if (why_not != NULL) {
        regx_trace(&component->trace, REGX_TRACE_CHOICE, "transport verbs is not used: %s",
                   why_not);
        uct.pool_size = params->settings.pool.pool_size;
    }
    snprintf(component->transport_reason, sizeof(component->transport_reason), "%s",
             why_not != NULL ? why_not : "verbs between nodes");
    if (!open_needed(component, face, &uct)) {
        return false;
    }
    put_last_first(component);
    return true;
}

bool regx_transports_open(regx_component_t *component, const mca_btl_base_module_t *face)
{
    const regx_params_t *params = &component->params;
    candidate_t named = {.row = regx_catalog_find(params->settings.component.transport),
                         .if_include = params->settings.transports.all.if_include,
                         .if_exclude = params->settings.transports.all.if_exclude,
                         .pool_size = params->settings.pool.pool_size};

    component->module_count = 0;
    if (strcmp(params->settings.component.transport, "auto") == 0) {
        return open_auto(component, face);
    }
    snprintf(component->transport_reason, sizeof(component->transport_reason), "asked for");
    return open_needed(component, face, &named);
}

void regx_transports_name(const regx_component_t *component, char *text, size_t size)
{
    const char *last = "";
    size_t used = 0;

    text[0] = '\0';
    for (unsigned i = 0; i < component->module_count && used < size; i++) {
        const char *name = component->modules[i]->transport->ops->name;

        if (strcmp(name, last) != 0) { /* devices of one kind stand together */
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? "," : "", name);
            last = name;
        }
    }
}

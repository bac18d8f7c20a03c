/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/transports.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "btl/module.h"
#include "btl/output.h"
#include "transport/load.h"

#define ERROR 256 /* room for a line with the reason */
#define LIST 4096 /* room for a list of devices */

enum { OTHERS = REGX_TRANSPORT_KINDS - 1 }; /* all but the one that reaches every peer */

/* One kind of transport that may be opened. */
typedef struct candidate {
    const regx_catalog_row_t *row;
    const regx_transport_ops_t *ops;
    regx_device_name_t devices[REGX_DEVICES_MAX];
    size_t device_count;
    const char *if_include, *if_exclude;
    size_t pool_size; /* of all its devices together */
    /* Of auto: */
    const char *why_not; /* it is not used; NULL: it is */
    char include[LIST], exclude[LIST], error[ERROR];
} candidate_t;

/* Why a transport is not used, or one device of several. */
static void warn_refused(const char *transport, regx_status_t status, const char *error,
                         bool others)
{
    char line[448];

    if (status == REGX_INVALID) { /* the error begins with the name of a parameter */
        snprintf(line, sizeof(line), "btl_regx_%s", error);
    } else {
        snprintf(line, sizeof(line), "btl_regx_transport=%s: %s%s", transport, error,
                 others ? "; the other ports are used without it" : "");
    }
    regx_output_once_per_node(line);
}

/* Finds the devices of a transport that is loaded. REGX_OK; otherwise `error` has the reason. */
static regx_status_t find_devices(const regx_component_t *component, candidate_t *candidate,
                                  char error[ERROR])
{
    const regx_transport_ops_t *ops = candidate->ops;
    const regx_transport_config_t config = {.if_include = candidate->if_include,
                                            .if_exclude = candidate->if_exclude,
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
            assert(component->module_count < REGX_MODULES_MAX);
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

/* Opens a transport that has to be there: what is wrong with it is shown to the user. */
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
                 "allowed: another rendezvous, or transport %s",
                 copies == component->params.strategy ? "rendezvous" : "auto_choice",
                 regx_strategy_name(copies), name, regx_catalog_everywhere()->entry->word.word);
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
        warn_refused(name, status, error, component->module_count > before);
    }
    return status != REGX_INVALID && component->module_count > before;
}

/* ---- auto: the transport that reaches every peer, and beside it those that have a device ---- */

/* Whose device that is. */
static const regx_catalog_row_t *owner_of(const char *device)
{
    const regx_catalog_row_t *row;

    for (unsigned i = 0; (row = regx_catalog_row(i)) != NULL; i++) {
        if (row->entry->owns != NULL && row->entry->owns(device)) {
            return row;
        }
    }
    return regx_catalog_everywhere();
}

/* With auto, one list names the devices of all transports. Copies those elements of `list` that are
 * of this one. NULL: there are none. */
static const char *part_of(const char *list, const regx_catalog_row_t *row, char part[LIST])
{
    char element[LIST];
    size_t used = 0;

    part[0] = '\0';
    while (list != NULL && *list != '\0' && used < LIST) {
        const size_t length = strcspn(list, ",");

        snprintf(element, sizeof(element), "%.*s", (int)length, list);
        if (owner_of(element) == row) {
            used +=
                (size_t)snprintf(part + used, LIST - used, "%s%s", used > 0 ? "," : "", element);
        }
        list += length + (list[length] == ',');
    }
    return used > 0 ? part : NULL;
}

static void choose_devices(const regx_component_t *component, const regx_catalog_row_t *row,
                           candidate_t *candidate)
{
    const regx_transport_settings_t *all = &component->params.settings.transports.all;

    candidate->row = row;
    candidate->if_include = part_of(all->if_include, row, candidate->include);
    candidate->if_exclude = part_of(all->if_exclude, row, candidate->exclude);
}

/* Why one of the others is not even loaded; NULL: it is. */
static const char *why_not(const regx_component_t *component, candidate_t *candidate)
{
    const char *given = component->params.settings.transports.all.if_include;
    const regx_catalog_entry_t *entry = candidate->row->entry;
    const char *absent = entry->why_absent();

    if (absent != NULL) {
        return absent;
    }
    if (given != NULL && given[0] != '\0' && candidate->if_include == NULL) {
        snprintf(candidate->error, ERROR, "if_include names no %s", entry->devices);
        return candidate->error;
    }
    if (regx_compat_processes() == regx_compat_local_processes()) {
        return "all processes are on this node";
    }
    return NULL;
}

/* The part of the pool for the transport that reaches every peer. A process that is alone on its
 * node uses it only where no other one leads, which a quarter serves. */
static size_t common_part(const regx_component_t *component)
{
    const size_t size = component->params.settings.pool.pool_size;

    return regx_compat_local_processes() == 1 ? size / 4 : size / 2;
}

/* What it gets beside others. A size that the user gave is the process's, and is divided; otherwise
 * each transport has what it would have alone. */
static size_t common_pool(const regx_component_t *component)
{
    const bool divided = component->params.pool_given || regx_compat_local_processes() == 1;
    const size_t size =
        divided ? common_part(component) : component->params.settings.pool.pool_size;

    return regx_max(size & ~(regx_page_size() - 1), 2 * component->params.settings.pool.slot_size);
}

/* What one of so many others gets. */
static size_t other_pool(const regx_component_t *component, unsigned count)
{
    const size_t size = component->params.settings.pool.pool_size;

    return component->params.pool_given ? (size - common_part(component)) / count : size;
}

/* Opens a transport as far as it is usable, and otherwise sets why_not. false: a setting is wrong,
 * and a warning was printed. */
static bool open_beside(regx_component_t *component, const mca_btl_base_module_t *face,
                        candidate_t *candidate)
{
    const unsigned before = component->module_count;
    regx_status_t status = REGX_UNREACHABLE;

    candidate->ops = regx_transport_load(candidate->row->entry->word.word, candidate->error, ERROR);
    if (candidate->ops != NULL) {
        status = find_devices(component, candidate, candidate->error);
    }
    if (status == REGX_INVALID && candidate->if_include == NULL) {
        status = REGX_UNREACHABLE; /* if_exclude leaves no device, as the user wants it */
    }
    if (status == REGX_OK) {
        status = open_devices(component, face, candidate, candidate->error);
    }
    if (status == REGX_INVALID) {
        warn_refused("auto", status, candidate->error, false);
        return false;
    }
    candidate->why_not = component->module_count > before ? NULL : candidate->error;
    return true;
}

/* Adds to transport_reason what became of a transport. */
static void add_reason(regx_component_t *component, const candidate_t *candidate)
{
    const char *word = candidate->row->entry->word.word;
    char *reason = component->transport_reason;
    const size_t used = strlen(reason), room = sizeof(component->transport_reason) - used;
    const char *between = used > 0 ? "; " : "";

    if (candidate->why_not == NULL) {
        snprintf(reason + used, room, "%s%s between nodes", between, word);
    } else {
        regx_trace(&component->trace, REGX_TRACE_CHOICE, "transport %s is not used: %s", word,
                   candidate->why_not);
        snprintf(reason + used, room, "%s%s", between, candidate->why_not);
    }
}

/* Modules are asked for peers in the order of the list: the transport that reaches every peer,
 * which was opened last, becomes the first. */
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

/* Looks for the devices of all transports but the one that reaches every peer. Returns how many are
 * to be opened. */
static unsigned look_for_others(const regx_component_t *component, candidate_t others[OTHERS])
{
    const regx_catalog_row_t *row;
    candidate_t *other = others;
    unsigned count = 0;

    for (unsigned i = 0; (row = regx_catalog_row(i)) != NULL; i++) {
        if (!row->entry->everywhere) {
            choose_devices(component, row, other);
            other->why_not = why_not(component, other);
            count += other->why_not == NULL;
            other++;
        }
    }
    return count;
}

static bool open_auto(regx_component_t *component, const mca_btl_base_module_t *face)
{
    candidate_t others[OTHERS], everywhere;
    const unsigned count = look_for_others(component, others);

    component->transport_reason[0] = '\0';
    for (unsigned i = 0; i < OTHERS; i++) {
        if (others[i].why_not == NULL) {
            others[i].pool_size = other_pool(component, count);
            if (!open_beside(component, face, &others[i])) {
                return false;
            }
        }
        add_reason(component, &others[i]);
    }
    choose_devices(component, regx_catalog_everywhere(), &everywhere);
    everywhere.pool_size = component->module_count > 0 ? common_pool(component)
                                                       : component->params.settings.pool.pool_size;
    if (!open_needed(component, face, &everywhere)) {
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

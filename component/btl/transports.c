/* SPDX-License-Identifier: BSD-3-Clause */

#include <string.h>

#include "btl/module.h"

/* A transport that is to be opened. */
typedef struct candidate {
    unsigned which; /* in the catalog */
    const regx_transport_ops_t *ops;
    regx_device_name_t devices[REGX_DEVICES_MAX];
    size_t device_count;
    size_t
        near_count; /* of these, the first; the others are only for peers that are not reached else */
    size_t pool_size; /* of all its devices together */
} candidate_t;

/* Loads a transport and finds its devices. REGX_OK; otherwise `error` has the reason. */
static regx_status_t find_devices(const regx_component_t *component, candidate_t *candidate,
                                  regx_error_t error)
{
    const regx_transport_settings_t *which = &component->params.settings.transports.all;
    const regx_transport_config_t config = {
        .if_include = which->if_include,
        .if_exclude = which->if_exclude,
        .settings = &component->params.settings.transports.between_nodes,
        .trace = &component->trace};

    candidate->device_count = 1;
    candidate->near_count = 1;
    candidate->ops = regx_catalog[candidate->which]->ops;
    if (candidate->ops == NULL) {
        candidate->ops = regx_transport_load(regx_catalog_name(candidate->which), error);
    }
    if (candidate->ops == NULL) {
        return REGX_UNREACHABLE;
    }
    return candidate->ops->devices == NULL
               ? REGX_OK
               : candidate->ops->devices(&config, error, candidate->devices,
                                         &candidate->device_count, &candidate->near_count);
}

/* Opens a module for each device. One that cannot be opened is left out. REGX_OK: all are open;
 * otherwise the first reason why one is not, REGX_INVALID before others. */
static regx_status_t open_devices(regx_component_t *component, const candidate_t *candidate,
                                  regx_error_t first_error)
{
    const regx_transport_ops_t *ops = candidate->ops;
    /* What one of several devices gets of the pool, in whole pages. */
    const size_t share = candidate->pool_size / candidate->device_count & ~(regx_page_size() - 1);
    const size_t pool_size = regx_max(share, 2 * component->params.settings.pool.slot_size);
    regx_status_t first = REGX_OK;
    regx_error_t error;

    for (size_t i = 0; i < candidate->device_count && first != REGX_INVALID; i++) {
        const char *device = ops->devices == NULL ? NULL : candidate->devices[i];
        const regx_status_t status = regx_module_open(
            component, regx_catalog_kind(candidate->which), ops, device, pool_size, error);
        if (status == REGX_OK) {
            component->modules[component->module_count - 1]->far = i >= candidate->near_count;
            continue;
        }
        regx_trace(&component->trace, REGX_TRACE_CHOICE, "transport %s: %s is left out: %s",
                   ops->name, device != NULL ? device : "all of it", error);
        if (first == REGX_OK || status == REGX_INVALID) {
            first = status;
            strcpy(first_error, error);
        }
    }
    return first;
}

/* Opens a transport that has to be there: what is wrong with it is shown to the user. */
static bool open_needed(regx_component_t *component, candidate_t *candidate)
{
    const char *name = regx_catalog_name(candidate->which);
    const regx_strategy_t *strategy = component->params.strategy;
    const unsigned before = component->module_count;
    regx_error_t error;
    regx_status_t status = REGX_INVALID;

    if (candidate->which != REGX_ON_NODE && strategy->copies) {
        snprintf(error, REGX_ERROR,
                 "rendezvous=%s: over transport %s the kernel does not copy between processes; "
                 "allowed: another rendezvous, or transport %s",
                 component->params.settings.rendezvous.rendezvous, name,
                 regx_catalog_name(REGX_ON_NODE));
    } else {
        status = find_devices(component, candidate, error);
    }
    if (status == REGX_OK) {
        status = open_devices(component, candidate, error);
    }
    const bool some = component->module_count > before;
    if (status == REGX_OK) {
        return some;
    }
    regx_trace(&component->trace, REGX_TRACE_CHOICE, "transport %s cannot be used%s: %s", name,
               some ? " as a whole" : "", error);
    if (status == REGX_INVALID) { /* the error begins with the name of a parameter */
        return regx_params_complain(REGX_PREFIX "%s", error);
    }
    if (!some) {
        return regx_params_complain(REGX_PREFIX "transport=%s: %s", name, error);
    }
    /* The job goes on, and waits for nobody here. */
    regx_compat_output_for_node("transport",
                                REGX_PREFIX "transport=%s: %s; the other ports are used without it",
                                name, error);
    return true;
}

/* Where no transport opens the devices that are to be included: whether they are here. false: a
 * warning was printed. */
static bool check_include(const regx_component_t *component)
{
    const regx_catalog_entry_t *entry = regx_catalog[REGX_BETWEEN_NODES];
    const char *list = component->params.settings.transports.all.if_include;

    for (const char *at = list; at != NULL && *at != '\0';) {
        const size_t length = strcspn(at, ",");
        regx_device_name_t name;

        snprintf(name, sizeof(name), "%.*s", (int)length, at);
        if (!entry->owns(name)) {
            return regx_params_complain(
                REGX_PREFIX
                "if_include=%s: \"%s\" is no %s of this node; allowed: those that are, or "
                "their ports, as mlx5_0 or mlx5_0:2",
                list, name, entry->devices);
        }
        at += length + (at[length] == ',');
    }
    return true;
}

/* ---- auto ---- */

/* Looks for usable devices. REGX_OK; REGX_INVALID: a setting is wrong, and a warning was printed;
 * REGX_UNREACHABLE: `reason` is why there are none. */
static regx_status_t look_for_devices(regx_component_t *component, candidate_t *device,
                                      regx_error_t reason)
{
    const char *absent = regx_catalog[REGX_BETWEEN_NODES]->why_absent();

    if (absent == NULL && regx_compat_processes() == regx_compat_local_processes()) {
        absent = "at the start all processes were on this node";
    }
    if (absent != NULL) {
        snprintf(reason, REGX_ERROR, "%s", absent);
        return check_include(component) ? REGX_UNREACHABLE : REGX_INVALID;
    }
    const regx_status_t status = find_devices(component, device, reason);
    if (status == REGX_INVALID && component->params.settings.transports.all.if_include == NULL) {
        return REGX_UNREACHABLE; /* if_exclude leaves no device, as the user wants it */
    }
    if (status == REGX_INVALID) {
        regx_params_complain(REGX_PREFIX "%s", reason);
    }
    return status;
}

static bool open_auto(regx_component_t *component)
{
    const size_t pool_size = component->params.settings.pool.pool_size;
    const bool given = component->params.pool_given;
    candidate_t node = {.which = REGX_ON_NODE, .pool_size = pool_size};
    candidate_t device = {.which = REGX_BETWEEN_NODES, .pool_size = pool_size};
    regx_error_t reason;
    const regx_status_t found = look_for_devices(component, &device, reason);

    if (found == REGX_INVALID) {
        return false;
    }
    /* A size that the user gave is the process's, and is divided; otherwise each transport has what it
     * would have alone. But a process that is alone on its node, and needs the pool there only for such as
     * come later, has a quarter there. */
    if (found == REGX_OK) {
        size_t part = given ? pool_size / 2 : pool_size;

        if (regx_compat_local_processes() == 1) {
            part = pool_size / 4;
        }
        node.pool_size =
            regx_max(part & ~(regx_page_size() - 1), 2 * component->params.settings.pool.slot_size);
        device.pool_size -= given ? regx_min(node.pool_size, pool_size) : 0;
    }
    if (!open_needed(component, &node)) {
        return false;
    }
    if (found == REGX_OK) {
        const unsigned before = component->module_count;
        const regx_status_t status = open_devices(component, &device, reason);

        if (status == REGX_INVALID) { /* a setting is wrong */
            return regx_params_complain(REGX_PREFIX "%s", reason);
        }
        if (component->module_count > before) {
            if (status != REGX_OK) {
                regx_tally(component->counters.fallbacks, "a port cannot be opened");
            }
            snprintf(reason, REGX_ERROR, "%s between nodes", regx_catalog_name(device.which));
        }
    }
    if (component->module_count == 1) {
        regx_trace(&component->trace, REGX_TRACE_CHOICE, "transport %s is not used: %s",
                   regx_catalog_name(device.which), reason);
    }
    snprintf(component->transport_reason, sizeof(component->transport_reason), "%s", reason);
    return true;
}

static bool open_named(regx_component_t *component)
{
    const regx_params_t *params = &component->params;
    candidate_t named = {.which = 0, .pool_size = params->settings.pool.pool_size};

    while (strcmp(params->settings.component.transport, regx_catalog_name(named.which)) != 0) {
        named.which++;
    }
    snprintf(component->transport_reason, sizeof(component->transport_reason), "asked for");
    return (regx_catalog_kind(named.which) != REGX_ON_NODE || check_include(component)) &&
           open_needed(component, &named);
}

bool regx_transports_open(regx_component_t *component)
{
    const bool is_auto = strcmp(component->params.settings.component.transport, "auto") == 0;

    component->module_count = component->ports = 0;
    if (!(is_auto ? open_auto(component) : open_named(component))) {
        return false;
    }
    /* Those of one kind stand together. */
    const char *first = component->modules[0]->transport->ops->name;
    const char *last = component->modules[component->module_count - 1]->transport->ops->name;
    snprintf(component->transports, sizeof(component->transports), "%s%s%s", first,
             first != last ? "," : "", first != last ? last : "");
    return true;
}

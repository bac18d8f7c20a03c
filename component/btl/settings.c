/* SPDX-License-Identifier: BSD-3-Clause */

#include "btl/settings.h"

#include <stdio.h>

static const regx_param_t component_params[] = {
#define REGX_PARAM(type, ctype, field, ...)                                                        \
    REGX_PARAM_ROW(regx_component_settings_t, "", type, field, __VA_ARGS__)
#include "btl/params.def"
    {.name = NULL}};

const regx_param_t *regx_settings_param(unsigned number, size_t *room)
{
    const struct {
        const regx_param_t *params;
        size_t offset;
    } rooms[] = {
        {component_params, offsetof(regx_settings_t, component)},
        {regx_rndv_params, offsetof(regx_settings_t, rendezvous)},
        {regx_pool_params, offsetof(regx_settings_t, pool)},
        {regx_registration_params, offsetof(regx_settings_t, registration)},
        {regx_transport_params, offsetof(regx_settings_t, transports.all)},
        {regx_catalog[REGX_BETWEEN_NODES]->params,
         offsetof(regx_settings_t, transports.between_nodes)},
    };

    for (unsigned i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++) {
        for (const regx_param_t *param = rooms[i].params; param->name != NULL; param++) {
            if (number-- == 0) {
                *room = rooms[i].offset;
                return param;
            }
        }
    }
    return NULL;
}

void regx_settings_each_counter(regx_counters_t *counters, regx_each_counter_t each, void *context)
{
    char name[40], help[160];

    for (const regx_counter_t *path = regx_paths; path->name != NULL; path++) {
        snprintf(name, sizeof(name), "messages_%s", path->name);
        snprintf(help, sizeof(help), "messages %s", path->help);
        each(context, name, help, path->kind, &counters->messages[path->offset]);
        snprintf(name, sizeof(name), "bytes_%s", path->name);
        each(context, name, "their bytes", path->kind, &counters->bytes[path->offset]);
    }
    for (const regx_counter_t *row = regx_counter_table; row->name != NULL; row++) {
        void *const counter = (char *)counters + row->offset;

        each(context, row->name, row->help, row->kind, counter);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */

#include "btl/settings.h"

static const regx_param_t component_params[] = {
#define REGX_PARAM(type, ctype, field, ...)                                                        \
    REGX_PARAM_ROW(regx_component_settings_t, "", type, field, __VA_ARGS__)
#include "btl/btl_params.def"
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
        {regx_catalog[REGX_PINNED]->params, offsetof(regx_settings_t, transports.pinned)},
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

/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "btl/settings.h"

static const regx_param_t component_params[] = {
#define REGX_PARAM(type, ctype, field, ...)                                                        \
    REGX_PARAM_ROW(regx_component_settings_t, "", type, field, __VA_ARGS__)
#include "btl/params.def"
#undef REGX_PARAM
};

static const regx_param_table_t component_table = {
    .params = component_params, .count = sizeof(component_params) / sizeof(component_params[0])};

static const regx_settings_room_t rooms[] = {
    {&component_table, offsetof(regx_settings_t, component)},
    {&regx_rndv_params, offsetof(regx_settings_t, rendezvous)},
    {&regx_pool_params, offsetof(regx_settings_t, pool)},
    {&regx_registration_params, offsetof(regx_settings_t, registration)},
    {&regx_transport_params, offsetof(regx_settings_t, transports.all)},
};

enum { ROOMS = sizeof(rooms) / sizeof(rooms[0]) };

bool regx_settings_room(unsigned index, regx_settings_room_t *room)
{
    if (index < ROOMS) {
        *room = rooms[index];
    } else if (index == ROOMS) {
        *room = (regx_settings_room_t){regx_catalog[REGX_BETWEEN_NODES]->params,
                                       offsetof(regx_settings_t, transports.between_nodes)};
    }
    return index <= ROOMS;
}

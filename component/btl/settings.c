/* SPDX-License-Identifier: BSD-3-Clause */

#include "btl/settings.h"

#define ROW(type, field, ...)                                                                      \
    REGX_PARAM_ROW(regx_component_settings_t, "", type, field, __VA_ARGS__)

static const regx_param_t component_params[] = {
    /* regx_params_asked looks at the word, before parameters are read. */
    ROW(WORD, enable, 2, .words = REGX_WORDS({.word = "auto"}, {.word = "0"}, {.word = "1"})),
    ROW(NAME, transport, 3, .words = regx_transport_words),
    ROW(TEXT, report, 3),
    ROW(WORD, explain, 3,
        .words = REGX_WORDS({.word = "0", .value = 0}, {.word = "1", .value = 1})),
    {.name = NULL}};

const regx_param_t *regx_settings_param(unsigned number, size_t *layer)
{
    const struct {
        const regx_param_t *params;
        size_t offset;
    } layers[] = {
        {component_params, offsetof(regx_settings_t, component)},
        {regx_rndv_params, offsetof(regx_settings_t, rendezvous)},
        {regx_pool_params, offsetof(regx_settings_t, pool)},
        {regx_registration_params, offsetof(regx_settings_t, registration)},
        {regx_transport_params, offsetof(regx_settings_t, transports.all)},
        {regx_catalog[REGX_BETWEEN_NODES]->params,
         offsetof(regx_settings_t, transports.between_nodes)},
        {regx_catalog[REGX_PINNED]->params, offsetof(regx_settings_t, transports.pinned)},
    };

    for (unsigned i = 0; i < sizeof(layers) / sizeof(layers[0]); i++) {
        for (const regx_param_t *param = layers[i].params; param->name != NULL; param++) {
            if (number-- == 0) {
                *layer = layers[i].offset;
                return param;
            }
        }
    }
    return NULL;
}

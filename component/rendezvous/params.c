/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/params.h"

#include "rendezvous/rendezvous.h"

static const regx_param_t params[] = {
#define REGX_PARAM(type, ctype, field, ...)                                                        \
    REGX_PARAM_ROW(regx_rndv_settings_t, "", type, field, __VA_ARGS__)
#include "rendezvous/params.def"
#undef REGX_PARAM
};

const regx_param_table_t regx_rndv_params = {.params = params,
                                             .count = sizeof(params) / sizeof(params[0])};

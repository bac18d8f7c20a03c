/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/params.h"

static const regx_param_t params[] = {
#define REGX_PARAM(type, ctype, field, ...)                                                        \
    REGX_PARAM_ROW(regx_transport_settings_t, "", type, field, __VA_ARGS__)
#include "transport/params.def"
#undef REGX_PARAM
};

const regx_param_table_t regx_transport_params = {.params = params,
                                                  .count = sizeof(params) / sizeof(params[0])};

/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/mux/params.h"

static const regx_param_t params[] = {
#define REGX_PARAM(type, ctype, field, ...)                                                        \
    REGX_PARAM_ROW(regx_mux_settings_t, "uct_", type, field, __VA_ARGS__)
#include "transport/mux/params.def"
#undef REGX_PARAM
};

const regx_param_table_t regx_mux_params = {.title = "The wires of btl_regx_transport uct",
                                            .params = params,
                                            .count = sizeof(params) / sizeof(params[0])};

/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/params.h"

static const regx_param_t params[] = {
#define REGX_PARAM(type, ctype, field, ...)                                                        \
    REGX_PARAM_ROW(regx_verbs_settings_t, "verbs_", type, field, __VA_ARGS__)
#include "transport/verbs/params.def"
#undef REGX_PARAM
};

const regx_param_table_t regx_verbs_params = {.title = "The wire of btl_regx_transport verbs",
                                              .params = params,
                                              .count = sizeof(params) / sizeof(params[0])};

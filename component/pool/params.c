/* SPDX-License-Identifier: BSD-3-Clause */
#include "pool/params.h"

static void to_two_slots(const void *settings, regx_option_range_t *range)
{
    range->min = 2 * ((const regx_pool_settings_t *)settings)->slot_size;
}

static const regx_param_t params[] = {
#define REGX_PARAM(type, ctype, field, ...)                                                        \
    REGX_PARAM_ROW(regx_pool_settings_t, "", type, field, __VA_ARGS__)
#include "pool/params.def"
#undef REGX_PARAM
};

const regx_param_table_t regx_pool_params = {.params = params,
                                             .count = sizeof(params) / sizeof(params[0])};

/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "registration/params.h"

#include "base/util.h"
#include "registration/backend.h"

#ifdef REGX_HAVE_UCM
#define UCM_ABSENT false
#else
#define UCM_ABSENT true
#endif

static void from_a_page(const void *settings, regx_option_range_t *range)
{
    (void)settings;
    range->min = regx_page_size();
}

static const regx_param_t params[] = {
#define REGX_PARAM(type, ctype, field, ...)                                                        \
    REGX_PARAM_ROW(regx_registration_settings_t, "", type, field, __VA_ARGS__)
#include "registration/params.def"
#undef REGX_PARAM
};

const regx_param_table_t regx_registration_params = {
    .title = "Registration", .params = params, .count = sizeof(params) / sizeof(params[0])};

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set of btl_regx_transport pinned; the rows are in pinned_params.def.
 */
#ifndef REGX_PINNED_PARAMS_H
#define REGX_PINNED_PARAMS_H

#include "transport/transport.h"

typedef char regx_pin_cost_name_t[48]; /* as pin_cost.c reads it; "": none */

typedef struct regx_pinned_settings {
#define REGX_PARAM(type, ctype, field, ...) REGX_PARAM_FIELD(ctype, field)
#include "transport/pinned/pinned_params.def"
} regx_pinned_settings_t;

extern const regx_catalog_entry_t regx_pinned_entry;

#endif

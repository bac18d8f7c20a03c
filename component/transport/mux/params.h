/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set of btl_regx_transport uct. Part of the core, not of the plugin; the rows are
 * in params.def.
 */
#ifndef REGX_MUX_PARAMS_H
#define REGX_MUX_PARAMS_H

#include "transport/entry.h"

typedef struct regx_mux_settings {
#define REGX_PARAM(type, ctype, field, ...) REGX_PARAM_FIELD(ctype, field)
#include "transport/mux/params.def"
#undef REGX_PARAM
} regx_mux_settings_t;

extern const regx_catalog_entry_t regx_mux_entry;

#endif

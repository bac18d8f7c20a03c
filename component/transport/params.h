/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set of every transport; the rows are in params.def.
 */
#ifndef REGX_TRANSPORT_PARAMS_H
#define REGX_TRANSPORT_PARAMS_H

#include "base/param.h"

typedef struct regx_transport_settings {
#define REGX_PARAM(type, ctype, field, ...) REGX_PARAM_FIELD(ctype, field)
#include "transport/params.def"
#undef REGX_PARAM
} regx_transport_settings_t;

extern const regx_param_table_t regx_transport_params;

#endif

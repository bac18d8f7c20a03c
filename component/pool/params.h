/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set of the bounce pool; the rows are in params.def.
 */
#ifndef REGX_POOL_PARAMS_H
#define REGX_POOL_PARAMS_H

#include "base/param.h"

typedef struct regx_pool_settings {
#define REGX_PARAM(type, ctype, field, ...) REGX_PARAM_FIELD(ctype, field)
#include "pool/params.def"
#undef REGX_PARAM
} regx_pool_settings_t;

extern const regx_param_table_t regx_pool_params;

#endif

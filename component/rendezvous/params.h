/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set of the rendezvous; the rows are in params.def.
 */
#ifndef REGX_RENDEZVOUS_PARAMS_H
#define REGX_RENDEZVOUS_PARAMS_H

#include "base/param.h"

typedef enum { REGX_GRANT_FINAL, REGX_GRANT_SYNCHRONOUS, REGX_GRANT_OPTIMISTIC } regx_granting_t;

typedef struct regx_rndv_settings {
#define REGX_PARAM(type, ctype, field, ...) REGX_PARAM_FIELD(ctype, field)
#include "rendezvous/params.def"
#undef REGX_PARAM
} regx_rndv_settings_t;

extern const regx_param_table_t regx_rndv_params;

#endif

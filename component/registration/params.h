/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set of registrations that are kept; the rows are in params.def.
 */
#ifndef REGX_REGISTRATION_PARAMS_H
#define REGX_REGISTRATION_PARAMS_H

#include "base/param.h"
#include "registration/cache.h"
#include "registration/monitor.h"

/* Whose hooks: Open MPI's, or UCX's ucm. */
typedef enum { REGX_HOOKS_OPAL, REGX_HOOKS_UCM } regx_hooks_choice_t;

typedef struct regx_registration_settings {
#define REGX_PARAM(type, ctype, field, ...) REGX_PARAM_FIELD(ctype, field)
#include "registration/params.def"
#undef REGX_PARAM
} regx_registration_settings_t;

extern const regx_param_table_t regx_registration_params;

#endif

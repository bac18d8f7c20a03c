/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set of btl_regx_transport verbs. Part of the core, not of the plugin; the rows are
 * in verbs_params.def.
 */
#ifndef REGX_VERBS_PARAMS_H
#define REGX_VERBS_PARAMS_H

#include "transport/transport.h"

typedef struct regx_verbs_settings {
#define REGX_PARAM(type, ctype, field, ...) REGX_PARAM_FIELD(ctype, field)
#include "transport/verbs/verbs_params.def"
} regx_verbs_settings_t;

extern const regx_catalog_entry_t regx_verbs_entry;

#endif

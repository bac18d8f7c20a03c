/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set of btl_regx_transport verbs. Part of the core, not of the plugin; the rows are
 * in params.def.
 */
#ifndef REGX_VERBS_PARAMS_H
#define REGX_VERBS_PARAMS_H

#include <stdbool.h>

#include "transport/transport.h"

typedef struct regx_verbs_settings {
#define REGX_PARAM(type, ctype, field, ...) REGX_PARAM_FIELD(ctype, field)
#include "transport/verbs/params.def"
#undef REGX_PARAM
} regx_verbs_settings_t;

/* The defaults of the table, for who has no parameters. */
#define REGX_VERBS_DEFAULTS                                                                        \
    {                                                                                              \
        .gid_index = -1                                                                            \
    }

/* Whether the kernel has an RDMA device of that name, which may end in ":" and a port's number.
 * Asked without libibverbs, which is loaded only where there is a device. */
bool regx_verbs_owns(const char *device);
/* Why there is none that can be used; NULL: there is one. */
const char *regx_verbs_why_absent(void);

extern const regx_catalog_entry_t regx_verbs_entry;

#endif

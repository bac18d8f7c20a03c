/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set of transport=verbs: each field is a parameter btl_regx_verbs_NAME
 * (params.def). The defaults are those of the table, for who has no parameters.
 */
#ifndef REGX_VERBS_SETTINGS_H
#define REGX_VERBS_SETTINGS_H

#include "transport/verbs/params.h"

#define REGX_VERBS_DEFAULTS                                                                        \
    {                                                                                              \
        .gid_index = -1, .timeout = 18, .retry_count = 6, .rnr_retry = 7, .sq_depth = 64           \
    }

#endif

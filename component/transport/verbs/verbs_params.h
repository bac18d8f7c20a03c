/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set of btl_regx_transport verbs, where each name begins with verbs_. Part of the
 * core, not of the plugin.
 */
#ifndef REGX_VERBS_PARAMS_H
#define REGX_VERBS_PARAMS_H

#include "transport/transport.h"

typedef struct regx_verbs_settings {
    int gid_index; /* -1: the best for the link layer */
    uint16_t pkey; /* 0: any */
    uint8_t service_level, traffic_class;
    bool any_subnet;
} regx_verbs_settings_t;

extern const regx_catalog_entry_t regx_verbs_entry;

#endif

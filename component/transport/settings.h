/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set of single transports. Part of the core, not of a transport's plugin.
 */
#ifndef REGX_TRANSPORT_SETTINGS_H
#define REGX_TRANSPORT_SETTINGS_H

#include "transport/transport.h"

/* Whether what a device writes may be seen in another order than it came (PCIe's relaxed ordering). */
typedef enum regx_verbs_ordering {
    REGX_VERBS_STRICT,        /* no */
    REGX_VERBS_RELAXED,       /* yes */
    REGX_VERBS_ORDERING_AUTO, /* where the processor gains, or the device refuses keys without */
} regx_verbs_ordering_t;

/* Of btl_regx_transport verbs, where each name begins with verbs_. */
typedef struct regx_verbs_settings {
    int gid_index; /* -1: the best for the link layer */
    uint16_t pkey; /* 0: any */
    uint8_t service_level;
    int traffic_class; /* -1: the port's own */
    bool any_subnet;
    regx_verbs_ordering_t relaxed_ordering;
} regx_verbs_settings_t;

typedef char regx_pin_cost_name_t[48]; /* as pinned/regions.c reads it; "": none */

/* Of btl_regx_transport pinned. */
typedef struct regx_pinned_settings {
    uint32_t slots; /* regions at once, for tests; 0: as many as it has */
    regx_pin_cost_name_t pin_cost;
} regx_pinned_settings_t;

extern const regx_catalog_entry_t regx_pinned_entry;

#endif

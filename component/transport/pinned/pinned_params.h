/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set of btl_regx_transport pinned.
 */
#ifndef REGX_PINNED_PARAMS_H
#define REGX_PINNED_PARAMS_H

#include "transport/transport.h"

typedef char regx_pin_cost_name_t[48]; /* as regions.c reads it; "": none */

typedef struct regx_pinned_settings {
    uint32_t pinned_slots;
    regx_pin_cost_name_t pin_cost;
} regx_pinned_settings_t;

extern const regx_catalog_entry_t regx_pinned_entry;

#endif

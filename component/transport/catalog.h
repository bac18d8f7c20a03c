/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transports that there are: one table of what users may set of each and what each counts.
 * Part of the core, because parameters and the report's keys are known whether or not a transport
 * is loaded. For btl/ alone: no transport knows of another's settings. A new transport adds its
 * settings here and its entry in catalog.c, its counters in counters.def.
 */
#ifndef REGX_TRANSPORT_CATALOG_H
#define REGX_TRANSPORT_CATALOG_H

#include "base/counters.h"
#include "transport/mux/params.h"
#include "transport/params.h"
#include "transport/verbs/params.h"

typedef struct regx_transports_settings {
    regx_transport_settings_t all; /* of whichever is used */
    regx_mux_settings_t uct;
    regx_verbs_settings_t verbs;
} regx_transports_settings_t;

/* Of the transports' counters (counters.h) the names, and what they mean; the last row has no name.
 */
extern const regx_counter_t regx_transport_counter_table[];

typedef struct regx_catalog_entry {
    regx_param_word_t word;           /* of btl_regx_transport, and of the plugin's file name */
    const regx_param_table_t *params; /* its own, or NULL */
    size_t offset;                    /* of its settings in regx_transports_settings_t */
    const char *remedy; /* what the user can do where a process cannot be reached by it */
} regx_catalog_entry_t;

/* NULL: there are no more. */
const regx_catalog_entry_t *regx_catalog_entry(unsigned index);

/* The words of btl_regx_transport: auto, and the transports. false: there are no more. */
bool regx_transport_word(unsigned index, regx_param_word_t *word);

#endif

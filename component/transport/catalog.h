/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transports that there are: one for the node, and one between nodes. Part of the core, because
 * parameters and the report's keys are known whether or not a transport is loaded. For btl/ alone:
 * no transport knows of the other.
 */
#ifndef REGX_TRANSPORT_CATALOG_H
#define REGX_TRANSPORT_CATALOG_H

#include "base/counters.h"
#include "transport/entry.h"
#include "transport/params.h"
#include "transport/verbs/params.h"

typedef enum regx_transport_kind {
    REGX_ON_NODE,
    REGX_BETWEEN_NODES,
    REGX_TRANSPORT_KINDS
} regx_transport_kind_t;

extern const regx_catalog_entry_t *const regx_catalog[REGX_TRANSPORT_KINDS];

typedef struct regx_transports_settings {
    regx_transport_settings_t all; /* which devices */
    regx_verbs_settings_t between_nodes;
} regx_transports_settings_t;

/* Of the transports' counters (counters.h) the names, and what they mean; the last row has no name.
 */
extern const regx_counter_t regx_transport_counter_table[];

/* The words of btl_regx_transport: auto, and the transports. false: there are no more. */
bool regx_transport_word(unsigned index, regx_param_word_t *word);

#endif

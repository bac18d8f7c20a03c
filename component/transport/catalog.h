/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transports that there are: one list. Part of the core, because parameters and the report's
 * keys are known whether or not a transport is loaded. For btl/ alone: no transport knows of
 * another's settings. A new one adds its line to the list, and its counters to counters.def.
 */
#ifndef REGX_TRANSPORT_CATALOG_H
#define REGX_TRANSPORT_CATALOG_H

#include "base/counters.h"
#include "transport/entry.h"
#include "transport/mux/params.h"
#include "transport/params.h"
#include "transport/verbs/params.h"

/* X(the user's word, the type of its settings, its entry), in the order of the documentation. */
#define REGX_TRANSPORTS(X)                                                                         \
    X(uct, regx_mux_settings_t, regx_mux_entry)                                                    \
    X(verbs, regx_verbs_settings_t, regx_verbs_entry)

typedef struct regx_transports_settings {
    regx_transport_settings_t all; /* of whichever is used */
#define REGX_TRANSPORT_SETTINGS(word, settings, entry) settings word;
    REGX_TRANSPORTS(REGX_TRANSPORT_SETTINGS)
#undef REGX_TRANSPORT_SETTINGS
} regx_transports_settings_t;

enum {
#define REGX_TRANSPORT_ONE(word, settings, entry) +1
    REGX_TRANSPORT_KINDS = REGX_TRANSPORTS(REGX_TRANSPORT_ONE)
#undef REGX_TRANSPORT_ONE
};

/* Of the transports' counters (counters.h) the names, and what they mean; the last row has no name.
 */
extern const regx_counter_t regx_transport_counter_table[];

typedef struct regx_catalog_row {
    const regx_catalog_entry_t *entry;
    size_t offset; /* of its settings in regx_transports_settings_t */
} regx_catalog_row_t;

/* NULL: there are no more. */
const regx_catalog_row_t *regx_catalog_row(unsigned index);

/* The row of that word, or NULL. */
const regx_catalog_row_t *regx_catalog_find(const char *word);

/* That of the transport which reaches every peer. */
const regx_catalog_row_t *regx_catalog_everywhere(void);

/* The words of btl_regx_transport: auto, and the transports. false: there are no more. */
bool regx_transport_word(unsigned index, regx_param_word_t *word);

#endif

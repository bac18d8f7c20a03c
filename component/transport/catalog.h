/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transports that there are: one for the node, one between nodes, and a device in software for
 * the node, which is used where it is asked for by name. Part of the core, because parameters are
 * known whether or not a transport is loaded. For btl/ alone: shm/ and verbs/ know of no other
 * transport, and pinned/ of shm/, by which its frames go.
 *
 * A transport that needs libraries lives in a file of its own beside the component, named
 * regx_transport_NAME.so, and is opened only once it is chosen: a job that does not use it need not
 * have them.
 */
#ifndef REGX_TRANSPORT_CATALOG_H
#define REGX_TRANSPORT_CATALOG_H

#include "transport/settings.h"

typedef enum regx_transport_kind {
    REGX_ON_NODE,
    REGX_BETWEEN_NODES,
    REGX_TRANSPORT_KINDS
} regx_transport_kind_t;

/* The first are those of the kinds, by kind. */
#define REGX_TRANSPORTS (REGX_TRANSPORT_KINDS + 1)
#define REGX_PINNED REGX_TRANSPORT_KINDS

extern const regx_catalog_entry_t *const regx_catalog[REGX_TRANSPORTS];

/* To whom one of them leads. */
static inline regx_transport_kind_t regx_catalog_kind(unsigned which)
{
    return which == REGX_PINNED ? REGX_ON_NODE : (regx_transport_kind_t)which;
}

/* What users may set of every transport: which devices. */
typedef struct regx_transport_settings {
    const char *if_include, *if_exclude;
} regx_transport_settings_t;

extern const regx_param_t regx_transport_params[];

typedef struct regx_transports_settings {
    regx_transport_settings_t all;
    regx_verbs_settings_t between_nodes;
    regx_pinned_settings_t pinned;
} regx_transports_settings_t;

/* The words of btl_regx_transport: auto, and the transports, as in the catalog. */
extern const regx_param_word_t regx_transport_words[];

/* Also of the plugin's file name. */
static inline const char *regx_catalog_name(unsigned which)
{
    return regx_transport_words[1 + which].word;
}

/* Opens regx_transport_NAME.so from the folder that this code was loaded from. The object is
 * never unloaded. NULL: `error` holds one line saying why. Called by the thread that runs
 * MPI_Init. */
const regx_transport_ops_t *regx_transport_load(const char *name, regx_error_t error);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is known of a transport whether or not it is loaded. Each defines its entry in its folder;
 * catalog.h lists them. Part of the core, not of the plugin.
 */
#ifndef REGX_TRANSPORT_ENTRY_H
#define REGX_TRANSPORT_ENTRY_H

#include "base/param.h"

struct regx_transport_ops;

typedef struct regx_catalog_entry {
    regx_param_word_t word;               /* of btl_regx_transport, and of the plugin's file name */
    const regx_param_table_t *params;     /* its own, or NULL */
    const struct regx_transport_ops *ops; /* NULL: it is a plugin (load.h) */

    /* Of the one between nodes: */
    const char *remedy;               /* what has to be so that two ports reach each other */
    bool (*owns)(const char *device); /* whether there is a device of that name here */
    const char *(*why_absent)(void);  /* why there is none that can be used; NULL: there is one */
    const char *devices;              /* what they are called: "RDMA device" */
} regx_catalog_entry_t;

#endif

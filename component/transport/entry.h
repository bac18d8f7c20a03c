/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is known of a transport whether or not it is loaded. Each defines its entry in its folder;
 * catalog.h lists them. Part of the core, not of the plugin.
 */
#ifndef REGX_TRANSPORT_ENTRY_H
#define REGX_TRANSPORT_ENTRY_H

#include "base/param.h"

typedef struct regx_catalog_entry {
    regx_param_word_t word;           /* of btl_regx_transport, and of the plugin's file name */
    const regx_param_table_t *params; /* its own */
    const char *remedy; /* what the user can do where a process cannot be reached by it */

    /* What btl_regx_transport auto asks before it loads anything. */
    bool everywhere; /* reaches every peer, and neighbours by the kernel's copies: opened in any
                      * case, once. There is one such transport; it leaves the rest NULL */
    bool (*owns)(const char *device); /* whether a name in if_include or if_exclude is a device of
                                       * its; what nobody owns is for the one above */
    const char *(*why_absent)(void);  /* why no device of its is here; NULL: one is */
    const char *devices;              /* what they are called: "RDMA device" */
} regx_catalog_entry_t;

#endif

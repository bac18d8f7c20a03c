/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the multiplexer share: mux.c opens, closes and makes progress, mux_conn.c
 * connects and sends.
 */
#ifndef REGX_TRANSPORT_MUX_INTERNAL_H
#define REGX_TRANSPORT_MUX_INTERNAL_H

#include "base/lock.h"
#include "base/util.h"
#include "transport/mux/mux.h"
#include "transport/pace.h"
#include "transport/rkey_table.h"

#define REGX_MUX_ADDRESS_VERSION 9
#define REGX_MUX_ADDRESS_HEAD 4 /* bytes before the first transport's length */

typedef struct regx_mux_conn {
    regx_conn_t super;
    /* The path in use, one of `paths`. It changes when a path refuses, and stays valid until
     * disconnect: a thread may be in it. */
    regx_conn_t *_Atomic path;
    regx_lock_t lock; /* of what follows */
    regx_conn_t *paths[REGX_MUX_WIRES_MAX];
    bool same_node;
    bool lost; /* no path is left: in the list until progress has reported it */
    struct regx_mux_conn *next_lost;
    size_t address_length; /* of the peer's address, which follows */
    uint8_t address[];
} regx_mux_conn_t;

typedef struct regx_mux {
    regx_transport_t super;
    regx_transport_config_t config;
    const regx_mux_wire_t *table;
    size_t count;                                /* of the table */
    regx_transport_t *wires[REGX_MUX_WIRES_MAX]; /* as in the table; NULL: not opened */
    regx_rkey_table_t rkeys;
    char names[32];
    /* Progress: */
    regx_transport_t *first; /* the first that is open, if its progress is cheap; or NULL */
    regx_transport_t *others[REGX_MUX_WIRES_MAX]; /* the rest of those that are open */
    size_t other_count;
    unsigned busy_rounds;  /* in which the first had something */
    regx_pace_t newcomers; /* looks at unused wires */
    /* Connections without a path: */
    regx_lock_t lock;
    regx_mux_conn_t *lost;
    _Atomic unsigned lost_count;
} regx_mux_t;

static inline regx_mux_t *regx_mux_of(regx_transport_t *transport)
{
    return REGX_CONTAINER_OF(transport, regx_mux_t, super);
}

/* Whether the configuration allows that transport of the table. */
bool regx_mux_allows(const regx_transport_config_t *config, const regx_mux_wire_t *wire);

/* Called by a transport whose connection refuses: another path takes over, or it is lost. */
regx_status_t regx_mux_refused(regx_conn_t *path);

/* Reports one lost connection. Only in progress. */
void regx_mux_report_lost(regx_mux_t *mux);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Three transports that do nothing but remember what was asked of them, under a multiplexer.
 */
#ifndef REGX_TEST_MUX_FAKES_H
#define REGX_TEST_MUX_FAKES_H

#include "../../unit.h"

#include "transport/mux/mux.h"

enum { FAKES = 3, FIRST = 0, SECOND = 1, THIRD = 2, PEER = 77, POOL = 4096 };

/* What a test wants of a transport, and what it saw. */
typedef struct fake {
    regx_transport_t super;
    bool cannot_open;
    regx_status_t open_error; /* of one that cannot be opened */
    bool no_address;
    regx_status_t connects; /* what connect answers */
    regx_status_t sends;    /* what send and its like answer */
    bool refuses;           /* instead */
    regx_status_t (*refused)(regx_conn_t *conn);
    int finds;              /* events of progress */
    const void *given_pool; /* by the multiplexer */
    const void *given_settings;
    const char *given_tls;
    const void *rkeys;
    unsigned opened, closed, connected, disconnected, sent, warmed, progressed;
    regx_conn_t conn;
} fake_t;

extern fake_t fakes[FAKES];
extern uint8_t pools[FAKES][POOL];
extern regx_counters_t counters; /* the multiplexer's */
extern unsigned broken;          /* times that it was told so */

/* Setup of each test. */
int reset(void **state);

regx_status_t try_open(const char *tls, char error[256], regx_transport_t **mux);
regx_transport_t *open_mux(const char *tls);
/* To a process that has what this one has. */
regx_conn_t *connect_mux(regx_transport_t *mux, bool same_node);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The conformance suite: what each transport does according to transport.h, at that door alone. It
 * knows nothing of how a transport works, so all of them pass the same cases.
 *
 * To add a transport:
 *   - a program of a few lines, as shm/test_conformance.c, that fills in a conformance_t as `tested`;
 *   - its name in the folder's .am, with $(conformance) among its sources;
 *   - what only this transport does (its wire, its device's faults) in tests beside it.
 * One that has the operations of a node has conformance_node.c, too. What `open` calls unreachable
 * skips the cases.
 */
#pragma once

#include "../unit.h"

#include "transport/transport.h"

typedef struct conformance {
    const char *name;
    const regx_transport_ops_t *ops;
    const void *settings;   /* as of regx_transport_config_t */
    const char *devices[3]; /* that the parties open; NULL: open chooses */
    unsigned neighbours;    /* as of regx_transport_config_t */
    void (*reset)(void);    /* before each case, or NULL */
    /* Whether the transport has connections that still end. NULL: it has none once progress of both
     * ends finds nothing to do. */
    bool (*is_ending)(const regx_transport_t *transport);
    /* Cuts the transport off from that peer, as if the peer had failed. NULL: the transport
     * connects processes, and the peer is a process that is killed. */
    void (*cut)(regx_transport_t *transport, uint64_t peer);
} conformance_t;

/* Before each case; and a case between parties_open and parties_close. */
int conformance_reset(void **state);
#define CONFORMANCE_TEST(name)                                                                     \
    UNIT_TEST_WITHIN(name, conformance_reset, parties_open(false), parties_close())

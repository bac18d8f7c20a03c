/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Processes in memory, for the tests of rendezvous/. Each fake is one process: a pool, a registry
 * and an engine over a transport (fake_wire.h) that delivers when the test says so. A test may also
 * leave the engine out and play the process itself.
 */
#ifndef REGX_TEST_FAKE_H
#define REGX_TEST_FAKE_H

#include "fake_wire.h"

#include <stdio.h>

#include "registration/registration.h"
#include "rendezvous/engine.h"

/* ---- what the test lets happen ---- */

/* Ends the `which`-th put that is pending towards `to`: does it, or fails with `status`. false:
 * there is none. */
bool fake_complete(fake_t *fake, unsigned to, unsigned which, regx_status_t status);

/* Ends the `which`-th get that is pending from `to`, likewise. */
bool fake_got(fake_t *fake, unsigned to, unsigned which, regx_status_t status);

/* Delivers the next frame from that process. false: none is there, or its put is pending. */
bool fake_receive(fake_t *fake, fake_t *from);

/* Hands the bytes to the process's engine as if they had arrived from that process. */
void fake_arrive(fake_t *fake, uint64_t from, const void *bytes, size_t length);

/* The CTS as the BTL hands it to ob1: a receive begins with it. */
static inline const uint8_t *fake_cts(const regx_rndv_recv_t *recv)
{
    return (const uint8_t *)recv;
}

/* ---- processes ---- */

typedef struct fake_config {
    uint32_t slots;
    size_t slot_size;
    const char *strategy; /* NULL: no engine */
    size_t chunk_size;
    unsigned chunk_depth;
    bool threads;
    bool verify;
    bool revocable;
    bool optimistic;      /* likewise */
    bool exposes_nothing; /* its owner asks for no exposure */
    size_t outer;         /* see fake_t */
    uint64_t cache_bytes; /* that are kept; 0: registered per use */
} fake_config_t;

/* Lets a cache act on changes; how much it does at once is its own choice. */
void fake_settle(fake_t *fake);

fake_t *fake_open(uint64_t id, const fake_config_t *config);

void fake_connect(fake_t *from, fake_t *to, bool shares_pool);

/* Asserts that nothing is left: no slot, no registration, no frame, no bytes granted, and nothing
 * on trial. */
void fake_assert_idle(const fake_t *fake);

void fake_close(fake_t *fake);

#endif

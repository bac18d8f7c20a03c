/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parties over verbs, for the tests of what only this transport does. Some programs exist twice: on
 * the device that is here (test/machine has one; where there is none they skip themselves), and on a
 * device in memory (fake_device.h).
 */
#pragma once

#include "../parties.h"

#include "transport/verbs/ep.h"

extern const regx_transport_ops_t regx_transport_ops;
extern conformance_t verbs_conformance;

/* Before each test: parties are opened with the defaults, on one device if devices are in memory. */
int verbs_reset(void **state);
#define VERBS_TEST(test) UNIT_TEST_BETWEEN(test, verbs_reset, NULL)
/* `one` and `two` are open; and have exchanged a frame. */
#define VERBS_OPEN_TEST(test)                                                                      \
    UNIT_TEST_WITHIN(test, verbs_reset, parties_open(false), verbs_close())
#define VERBS_CONNECTED_TEST(test)                                                                 \
    UNIT_TEST_WITHIN(test, verbs_reset, parties_open(false); parties_exchange(), verbs_close())

regx_verbs_t *verbs_of(const party_t *party);
/* Of that party's, to the peer; or NULL. */
regx_ep_t *ep_of(const party_t *party, uint64_t peer);
/* Drives a queue pair to error, as if it had failed by itself. */
void qp_fail(struct ibv_qp *qp);
/* The party hears a datagram, as if it came from the queue pair of datagrams of the address in it. */
void party_hear(const party_t *party, const regx_cm_message_t *message, size_t length);

/* What `two` asks `one` by a queue pair of that epoch, which is no more than a number. */
regx_cm_message_t request_of_two(uint64_t epoch);

/* Connects `one` to a party that is not `two`. */
regx_conn_t *one_connect(const party_t *to);
/* Sends a frame if that is possible now. */
regx_status_t conn_try(regx_conn_t *conn, size_t length);
/* Of `one`'s and `two`'s, which were not asked for before. */
void one_asks(void);
/* Waits until `one` says so. */
void await_broken(const char *says);

/* As parties_close, and nothing is left over. */
void verbs_close(void);
/* Closes a party that others may still be connected to, in this same process. */
void party_drop(party_t *party);

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Many verbs transports in this process, on devices in memory. Every side talks to every other;
 * each counts by sender what arrived, which must be in order and whole.
 */
#ifndef REGX_TEST_PARTIES_H
#define REGX_TEST_PARTIES_H

#include "fake_device.h"
#include "sides.h"

enum {
    SIDES = 8,
    FEW = 2,
    LENGTH = 700 /* of a frame */
};

#define HOUR_NS INT64_C(3600000000000)

typedef struct party {
    regx_counters_t counters;
    regx_transport_t *transport;
    regx_conn_t *conns[SIDES];
    unsigned sent[SIDES], heard[SIDES]; /* frames to and from each */
    unsigned written[SIDES];            /* puts, likewise */
    unsigned got;
    unsigned broken;
    bool sleeps; /* outside the library */
} party_t;

extern party_t parties[SIDES];

uint64_t party_id(unsigned which);
regx_verbs_t *party_verbs(unsigned which);
/* The endpoint of one side to another; or NULL. */
regx_ep_t *party_ep(unsigned from, unsigned to);
/* Opens all and connects each to each, with that bound (0: none). Nobody becomes impatient, however
 * long the test takes. */
void parties_open(uint32_t connections);
void parties_progress(void);
/* Sum of a counter over all. */
uint64_t parties_total(unsigned counter);
/* Connections of one beyond the bound. */
uint64_t party_beyond(unsigned which);
/* Nothing malformed was seen. */
void parties_close(void);
/* Sends the next frame. false: not now. */
bool party_send(unsigned from, unsigned to);
/* Whether all frames have arrived. */
bool parties_have_heard(void);
void parties_assert_unbroken(void);
/* Each sends so many frames to each, at once. */
void parties_talk(unsigned rounds);
/* Waits until all frames have arrived. */
void parties_await(void);
/* That nobody has had more connections. */
void parties_assert_bounded(uint32_t connections);
int parties_reset(void **state);
/* Of each test: no restarts, or restarts. */
int parties_reset_with_restarts(void **state);
/* Asks whoever may be asked for a sign of life. */
void party_ask(unsigned which);
/* Side 0 gets all its places: connections to 1 and following, 1 used least recently. */
void parties_take_places(void);
void parties_progress_often(void);
/* Disconnects the one from the other. */
void party_leave(unsigned which, unsigned to);
/* 0 wants another connection, closes that to 1 and says so. 1 computes and does not answer. */
void parties_close_one_that_computes(void);

#endif

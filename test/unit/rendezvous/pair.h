/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the whole rendezvous: two processes, both with an engine.
 */
#ifndef REGX_TEST_PAIR_H
#define REGX_TEST_PAIR_H

#include "fake.h"

#include "rendezvous/engine.h"

typedef struct pair {
    fake_t *sender, *receiver;
    unsigned dones;
    regx_status_t status;
    regx_status_t puts;      /* what puts and gets are answered */
    unsigned refused_region; /* the number of the receiver's registration that is refused, … */
    unsigned refused_most;   /* … or of the last of several */
    unsigned sender_refused; /* that of the sender's first that is, and all after; 0: none */
} pair_t;

/* What both transports answer: `puts`, and the refusals above. */
regx_status_t pair_rule(fake_t *fake, fake_call_t call, const regx_put_t *put);

void pair_done(void *context, regx_status_t status);

pair_t *pair_open(const fake_config_t *sender, const fake_config_t *receiver);

/* Lets everything happen that can; how many frames that were. */
unsigned pair_run(pair_t *pair);

void pair_close(pair_t *pair);

#endif

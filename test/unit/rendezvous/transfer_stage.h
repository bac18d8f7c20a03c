/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the paths read and together: a transfer between two processes in memory.
 */
#ifndef REGX_TEST_TRANSFER_STAGE_H
#define REGX_TEST_TRANSFER_STAGE_H

#include "fake.h"

#include "base/util.h"

#include "rendezvous/engine.h"

enum { PAGE = 4096, LENGTH = 6 * PAGE + 7, SLOT = 1024 };

typedef struct stage {
    fake_t *sender;   /* process 0 */
    fake_t *receiver; /* process 1 */
    fake_t *stranger; /* process 2, without an engine */
    regx_path_t path;
    guarded_t sent, received;
    size_t from, to;        /* where in these the message begins */
    regx_rndv_recv_t *recv; /* NULL: closed */
    unsigned dones;
    regx_status_t status;
    unsigned frames[2];   /* delivered to the process of that number */
    uint64_t chunk_bytes; /* of puts that were accepted, but those into slots */
    /* What the transport answers. */
    struct {
        fake_t *at;
        fake_call_t call;
        unsigned number; /* of the call, 0: none */
        regx_status_t status;
    } answer;
    unsigned again_percent;
    unsigned late_percent; /* of puts end later, … */
    regx_status_t late;    /* … those of chunks so */
    uint64_t seed;
} stage_t;

void done(void *context, regx_status_t status);

/* within_node: the pools are shared, and the kernel copies. */
stage_t *transfer_open(const fake_config_t *sender, const fake_config_t *receiver, regx_path_t path,
                       bool within_node);

void begin_of(stage_t *stage, size_t length);

void begin(stage_t *stage);

void close_recv(stage_t *stage);

void stage_close(stage_t *stage);

uint64_t malformed(const stage_t *stage);

/* Delivers the next frame to the process of that number. false: there is none. */
bool deliver(stage_t *stage, unsigned to);

/* Ends a put that is pending. false: there is none. */
bool end_put(stage_t *stage, unsigned which);

/* Lets happen one thing of those that can: a get, a put or a message. false: it could not. */
bool step(stage_t *stage);

void some_steps(stage_t *stage, unsigned steps);

/* Lets happen all that can, in any order. */
void run(stage_t *stage);

/* Asserts that all has arrived, and was told once. */
void assert_read_of(const stage_t *stage, size_t length);

void assert_read(const stage_t *stage);

/* What went by the path and by slots. */
void assert_bytes(const stage_t *stage, uint64_t got);

void drop_frames(fake_t *from, unsigned to);

/* Nothing comes to or from these two any more; what was under way ends so. */
void forget_both(stage_t *stage);

/* Both ends forget each other after some steps of a transfer, of which nothing stays. */
void forget_in_mid_transfer(stage_t *stage, unsigned steps);

size_t least(size_t a, size_t b);

/* A transfer of which the sender writes the first `written` bytes as one chunk (0: none) and the
 * receiver reads the rest: both ends' limits hold, whichever is the smaller, for what is read; what
 * is written comes on top. */
void assert_limits_hold(stage_t *stage, const fake_config_t *sender, const fake_config_t *receiver,
                        size_t written);

#endif

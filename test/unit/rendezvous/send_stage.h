/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the send: the test plays its receiver. It grants what a receive may grant, late
 * and in any order, looks at every put before it is made, and compares what was written.
 */
#ifndef REGX_TEST_SEND_STAGE_H
#define REGX_TEST_SEND_STAGE_H

#include "fake.h"

#include "base/util.h"

#include "rendezvous/checksum.h"

enum { SLOT = 1024, SLOTS = 64, PAGE = 4096, GRANTS = 256, LENGTH = 6 * PAGE + 7 };

typedef struct grant { /* told to the send and not answered */
    bool chunk;
    uint64_t offset, length;
    uint32_t slot;
    regx_mr_t mr; /* of a chunk */
} grant_t;

typedef struct stage {
    fake_t *sender;   /* process 0 */
    fake_t *receiver; /* process 1, played by the test */
    fake_t *stranger; /* process 2, likewise */
    guarded_t sent, received;
    regx_handle_t recv; /* as the send knows it */
    regx_handle_t send; /* as it said */
    bool started;
    bool verify; /* the CTS asks for checksums */
    grant_t grants[GRANTS];
    unsigned count;
    uint64_t written;
    unsigned refused; /* chunks */
    bool suspect;     /* so the CTS said of the memory */
    unsigned refused_permanent;
    unsigned refused_failed;
    unsigned dones;
    regx_status_t status;
    bool any_target; /* grants were made up: puts may go anywhere that there is */
    /* what the transport answers */
    unsigned calls[FAKE_CALLS];
    struct {
        unsigned at; /* the number of the call, 0: none */
        regx_status_t status;
    } answer[FAKE_CALLS];
    regx_status_t puts; /* all others */
    unsigned again_percent;
    unsigned late_percent;
    uint64_t seed;
} stage_t;

void done(void *context, regx_status_t status);

/* Regions are larger than asked for, on both ends, by `outer` bytes on either side. */
stage_t *stage_open_outer(size_t outer);

stage_t *stage_open(void);

uint64_t malformed(const stage_t *stage);

void stage_close(stage_t *stage);

/* ---- granting ---- */

/* The key, and where the chunk begins in what it names. */
regx_key_t add_chunk(stage_t *stage, uint64_t offset, uint64_t length, uint64_t *start);

/* A CTS that grants `slots` slots, or a chunk of `chunk` bytes. */
regx_cts_t cts_of(stage_t *stage, regx_path_t path, unsigned slots, uint64_t chunk);

void open_send(stage_t *stage, const regx_cts_t *cts);

void tell(stage_t *stage, const regx_control_t *control);

/* Grants [offset, offset + length) by slots that no one holds, in messages of up to four. */
void grant_slots(stage_t *stage, uint64_t offset, uint64_t length);

void grant_chunk(stage_t *stage, uint64_t offset, uint64_t length);

/* Lets happen what can happen, puts ending in any order. */
void run(stage_t *stage);

/* Asserts that all has arrived, told once and well. */
void assert_sent(stage_t *stage);

/* The rest of a transfer from `offset` on, as a receive of that path would do it: chunks, and
 * slots for what was refused. */
void play_on(stage_t *stage, bool chunks, uint64_t offset);

/* One transfer by chunks or slots, disturbed as the stage says. */
void whole_transfer(stage_t *stage, bool chunks);

#endif

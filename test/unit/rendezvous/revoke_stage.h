/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of grants that are revoked: a transfer to a buffer of which a part is replaced.
 * What is on its way to pages that were replaced is lost, as by a device.
 */
#ifndef REGX_TEST_REVOKE_STAGE_H
#define REGX_TEST_REVOKE_STAGE_H

#include "transfer_stage.h"

#include "rendezvous/proto.h"

enum { CHUNK = PAGE, DEPTH = 3 };

extern const fake_config_t revoke_pipeline;

/* A part of the buffer that was replaced; what is under way to it goes to the old pages. */
typedef struct replaced {
    uint8_t *start;
    size_t length;
    bool lost; /* until nothing that was granted before can be written any more */
} replaced_t;

extern replaced_t replaced;
/* How often what had arrived was found not to be what was sent. */
extern unsigned proofs_failed;

/* A transfer by that configuration, to a buffer that can be replaced. */
stage_t *revoke_open(const fake_config_t *config);
/* The receiver is told that the part was replaced, … */
void tell_change(void);
/* … and it is. */
void make_change(void);
/* NULL: it is not open. */
regx_rndv_send_t *send_of(const stage_t *stage);
regx_recv_phase_t phase(const stage_t *stage);
/* One thing happens; then what must always hold. */
bool watched_step(stage_t *stage);
void watched_steps(stage_t *stage, unsigned count);
/* Until it is done, and then all else that can happen. */
void watched_run(stage_t *stage);
/* Nothing is kept of buffers that go. */
void revoke_close(stage_t *stage);
/* All arrives. */
void revoke_end(stage_t *stage);
/* Likewise; so many messages of a peer were refused. */
void revoke_end_but_malformed(stage_t *stage, unsigned times);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of messages that are exposed before the RTS. The test plays the MPI library at both
 * ends: it ships the exposure, and if the receiver does not read, the CTS.
 */
#ifndef REGX_TEST_EXPOSED_STAGE_H
#define REGX_TEST_EXPOSED_STAGE_H

#include "transfer_stage.h"

/* What the receiver's MPI library hears. */
typedef struct heard {
    stage_t *stage;
    unsigned times;
    regx_status_t status;
} heard_t;

fake_config_t config_of(const char *strategy);
/* Two processes on a node, by these strategies. */
stage_t *open_both(const char *sender, const char *receiver);
/* And the receive. */
void close_both(stage_t *stage);

/* false: nothing is exposed. */
bool expose(const stage_t *stage, size_t length, uint8_t *bytes);
/* The RTS arrives. */
void match(stage_t *stage, const uint8_t *exposure, size_t length, heard_t *heard);
/* The CTS arrives, and all that follows. */
void clear_to_send(stage_t *stage, size_t length);

/* That the message has arrived, and nothing beside it was written. */
void assert_whole(const stage_t *stage, size_t length);

#endif

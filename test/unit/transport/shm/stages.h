/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of stages: messages that one process exposes, and that the other takes.
 */
#ifndef REGX_TEST_SHM_STAGES_H
#define REGX_TEST_SHM_STAGES_H

#include "sides.h"

#include "transport/shm/key.h"

enum { MOST = REGX_STAGE_SIZE, GUARD = 64 };

/* A message at the sender. */
typedef struct sent {
    side_t *side;
    uint8_t *data;
    size_t length;
    regx_key_t key;
} sent_t;

/* Exposes a message, and stages it if that is possible, which it returns. */
bool sent_expose(sent_t *sent, side_t *side, size_t length, uint64_t stream);
/* Its key, to the receiver. */
void sent_tell(const sent_t *sent);
/* Names another stage in the key. */
static inline void key_mark(regx_key_t *key, regx_handle_t stage)
{
    regx_shm_key_t named = regx_shm_key_unpack(key);

    named.stage = stage;
    regx_shm_key_pack(named, key);
}

void sent_hear(const side_t *side, regx_key_t *key);
void sent_forget(sent_t *sent, bool staged);

/* A message at the receiver. */
typedef struct taken {
    regx_get_t get;
    uint8_t *bytes; /* guard, bytes, guard */
    unsigned ended;
    regx_status_t status;
} taken_t;

/* Begins a get of what has that key. `staged`: of its stage. */
regx_status_t taken_begin(taken_t *taken, const side_t *side, size_t length, const regx_key_t *key,
                          bool staged);
/* Makes progress until it has ended. */
void taken_await(side_t *side, const taken_t *taken);
/* Nothing was written beside it. */
void taken_drop(taken_t *taken);
/* It came, of that stream; drops it. */
void taken_assert_whole(taken_t *taken, uint64_t stream);
uint64_t stage_count(const side_t *side, unsigned counter);
/* What the sender has copied to one of its stages. */
uint64_t stage_ready(const side_t *side, unsigned stage);
/* Progress that finds nothing to do. */
void stage_work_in_vain(side_t *side);
/* A sender that exposes two messages, of the streams 0 and 1, and makes no progress. */
void stage_compute_with_two(side_t *side);

#endif

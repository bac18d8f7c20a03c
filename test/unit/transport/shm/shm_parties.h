/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parties over shared memory, for the tests of what only this transport does.
 */
#pragma once

#include "../parties.h"

#include "transport/shm/shm_internal.h"

enum { PIECE = REGX_CLAIM_PIECE };

/* `one` and `two`, connected, and each has the other's mailbox. */
void shm_parties_open(bool threads);
/* The same, but each expects one neighbour from the start, and nothing is sent yet. */
void shm_parties_open_early(void);

/* A test for which they are open, and zones are there. */
int shm_setup(void **state);
int shm_teardown(void **state);
#define SHM_TEST(test) UNIT_TEST_BETWEEN(test, shm_setup, shm_teardown)

regx_shm_t *shm_of(const party_t *party);
regx_shm_conn_t *conn_of(const party_t *party);
/* How often it went another way, for any reason; and whether the first reason was that. */
uint64_t fallbacks(const party_t *party);
bool fell_back(const party_t *party, const char *reason);
/* Progress of one party alone: a step; until there is nothing to do; until that has ended. */
int step(const party_t *party);
void work(const party_t *party);
void step_to_end(const party_t *party, const op_t *op);

/* Memory of `two` that shows a stream of its own, and memory to which `one` gets it. */
extern uint8_t *source, *sink;
enum { SHM_ZONE = 6 * PIECE };
void zones_new(void);
void zones_free(void);
/* Starts a get by that party of so many bytes at `at`, to the same place of the sink. */
void get_start(const party_t *party, op_t *op, size_t at, size_t length, bool assisted);
/* It has ended well, and brought its bytes; the sink there is as it was before. */
void get_check(const op_t *op);
/* Runs a case in a child, which it may spoil. */
void in_child_process(void (*run)(void));

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the kernel's copies between two processes: puts and gets, and what they move.
 */
#ifndef REGX_TEST_COPIES_H
#define REGX_TEST_COPIES_H

#include "sides.h"

#include "transport/shm/key.h"

/* A long copy goes by pieces of STEP, or what little is more, one for each call of progress; one
 * turn is four of these; a zone is more. */
enum { STEP = 512 << 10, ZONE = 6 * STEP, GUARD = 64, PUT_TAG = 9 };

extern uint8_t *zone;       /* this process's memory that the other gets */
extern unsigned notices[2]; /* that came: from this process, from the other */
extern unsigned orders;     /* operations that have ended */

typedef struct op {
    regx_conn_t *conn;
    bool get;
    bool assisted;
    uint64_t offset;
    size_t length;
    uint8_t *local; /* guard, bytes, guard */
    regx_get_t get_op;
    regx_put_t put_op;
    unsigned ended; /* so often */
    unsigned order; /* of its last end, among all ends */
    regx_status_t status;
} op_t;

/* The operation moves these bytes of the process that `conn` leads to, the other or this one. */
op_t op_new(regx_conn_t *conn, bool get, uint64_t offset, size_t length);
/* A get of which the other process may copy a part. */
op_t assisted_op(side_t *side, uint64_t offset, size_t length);
/* Checks that nothing was written beside its bytes. */
void op_free(op_t *op);
regx_status_t post(op_t *op);
/* Until the operation has ended. */
void await(side_t *side, const op_t *op);
/* It ended well, once, and what it got is right. */
void assert_got(const op_t *op);

/* Between these two the processes have memory that the other may get and put to. */
void begin(side_t *side);
void finish(side_t *side);
/* Instead of that, if the other is dead. */
void finish_alone(void);
/* Both of them, and progress between them until the other comes to meet it. */
void serve(side_t *side);
/* Progress by this process alone, until there is nothing to do. */
void work_alone(side_t *side);

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Up to three transports of one kind in this process, connected to each other, for the conformance
 * suite (conformance.h). One thread makes progress for all, so each case runs the same way each
 * time.
 */
#pragma once

#include "conformance.h"

enum { POOL = 1 << 20, MIB = 1 << 20, ONE = 1000001, TWO = 2000002, THREE = 3000003, GUARD = 64 };

/* Of puts and gets, and bytes of memory in which they have room. */
enum { LENGTHS = 15, LONGEST = 5 * MIB, REGION = LONGEST + 8192 };
extern const size_t op_lengths[LENGTHS];
/* Where four bytes do not fit in a region. */
enum { OUTSIDE = 5 };
extern const uint64_t outside[OUTSIDE];

typedef struct party {
    regx_transport_config_t config;
    regx_counters_t counters;
    regx_transport_t *transport;
    regx_conn_t *conn; /* to the one that it was connected to last */
    uint64_t self;
    /* What arrived. */
    unsigned delivered; /* frames, and notices or the immediates in their place */
    uint64_t last_sender;
    size_t last_length;
    uint8_t last_tag;
    uint8_t last[64 << 10];
    uint32_t last_immediate; /* 0: a frame or a notice came last */
    unsigned broken, silent;
    char what[160]; /* of the last that broke */
    void (*on_deliver)(struct party *party);
} party_t;

/* A put, get or zero-copy send of the suite's, and how it ended. */
typedef struct op {
    union {
        regx_put_t put;
        regx_get_t get;
        regx_zcopy_t zcopy;
    };
    unsigned ended; /* so often */
    regx_status_t status;
    void (*then)(struct op *op); /* called from done */
} op_t;

extern const conformance_t *tested;
extern party_t one, two, three;

/* How often that was the reason to go another way. */
uint64_t party_fell_back(party_t *party, const char *reason);

void party_open(party_t *party, uint64_t self, bool threads);
void party_connect(party_t *party, const party_t *to);
/* `one` and `two`, open and connected. */
void parties_open(bool threads);
/* Ends its connection, if it has one. */
void party_leave(party_t *party);
/* Of both, until that has come to its end. */
void parties_leave(void);
/* Ends and closes one party, while no other makes progress. */
void party_end(party_t *party);
/* Disconnects and closes both: they have seen nothing malformed. */
void parties_close(void);
/* Of all that are open. */
int parties_progress(void);
/* Until nothing happens any more. */
void parties_settle(void);
void parties_await(const unsigned *count, unsigned value);
/* Closes one party while the others, which may have to read what it sent, make progress. */
void party_close(party_t *party);

/* Between these a thread of its own makes progress for `two`, and no function here does. */
void two_works_begin(void);
void two_works_end(void);

/* Sends a frame of the stream, however long it takes to get room. */
void party_send(const party_t *from, uint8_t tag, uint64_t stream, size_t length);
/* The same if it is possible now. */
regx_status_t party_try(const party_t *from, uint8_t tag, uint64_t stream, size_t length);
/* A frame each way, awaited. After it both are connected, whatever a transport does for that. */
void parties_exchange(void);

/* `op` as an operation that enters its end there. */
void op_zcopy(op_t *op, const void *data, size_t length, uint8_t tag);
void op_put(op_t *op, const void *local, size_t length, regx_target_t target, uint64_t offset);
void op_get(op_t *op, void *local, size_t length, const regx_mr_t *into, const regx_mr_t *from,
            uint64_t offset);
/* Starts it, however long it takes to get room. A put that is complete has ended. */
void op_start_put(const party_t *from, op_t *op);
void op_start_get(const party_t *from, op_t *op);
void op_await(const op_t *op);
/* Puts from `one`, and awaits both the end and the notice at `two`, which must find the bytes of
 * the stream there. */
void op_put_to_two(op_t *op, const uint8_t *at, uint64_t stream);

/* Memory between two guards, and whether they are whole. */
uint8_t *guarded_new(size_t length);
void guarded_free(uint8_t *memory, size_t length);
void party_reg(const party_t *party, void *base, size_t length, unsigned access, regx_mr_t *mr);

/* Memory of `one`, guarded, and memory of `two` that it may get, stamped. */
typedef struct readable {
    uint8_t *to, *from;
    regx_mr_t into, remote;
} readable_t;
void readable_new(readable_t *readable);
void readable_free(readable_t *readable);
/* The bytes are there, at the same place as in the other's. */
void assert_got(const readable_t *readable, size_t at, size_t length);

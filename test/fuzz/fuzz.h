/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The fuzzer plays a process of regx to which a hostile peer sends what libFuzzer makes up. The
 * sanitizers find what is read or written outside of where it may be; the harness aborts where
 * anything else is wrong that it can tell.
 *
 * The seeds are real messages, made by the component's own packing. So they need no renewing when
 * the bytes on the wire change, and the harness proves by them that it reaches what accepts.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/engine.h"

/* Callbacks, and what stands in for others' functions, get what their callers have: few use all of it. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define FUZZ_SEED_MAX 4096 /* bytes of a seed */

/* ---- fuzz_rendezvous.c ---- */

/* Takes one input, and cleans up behind it. Whether something of it was accepted. */
bool fuzz_one(const uint8_t *data, size_t size);
/* Writes seed `number` to `to`, which has room for FUZZ_SEED_MAX bytes. Returns its length; 0:
 * there are no more. All of them are accepted. */
size_t fuzz_seed(unsigned number, uint8_t *to);

/* ---- input, from its start on ---- */

typedef struct fuzz_input {
    const uint8_t *at;
    size_t left;
} fuzz_input_t;

/* At most `length` bytes; they are in memory of their own size, so that reading behind them is
 * found. The caller frees it. `length` is lowered to what there is. */
uint8_t *fuzz_take(fuzz_input_t *input, size_t *length);
/* A number of so many bytes, little-endian; what is missing is zero. */
uint64_t fuzz_number(fuzz_input_t *input, size_t size);

/* Ends the program if that is not so. Not assert: the component may be built without it. */
static inline void fuzz_check(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* ---- the process: the wire that the engine has there, which answers what it is told to; and a
 * registry that keeps nothing ---- */

enum {
    OPEN = 4,    /* receives, and sends, at once */
    PENDING = 64 /* puts, and gets */
};

typedef struct receive {
    regx_rndv_recv_t *recv; /* NULL: closed */
    bool getting;           /* it is not closed before that has ended */
    void *memory;           /* stays until the end of the input: a get may write it that long */
} receive_t;

typedef struct sending {
    bool open;
    uint8_t *buffer;
} sending_t;

typedef struct process {
    regx_counters_t counters;
    regx_transport_t transport;
    regx_conn_t conn;
    regx_peer_t peer;
    regx_pool_t pool;
    uint8_t *pool_memory;
    regx_registry_t registry;
    regx_rndv_t *rndv;
    regx_status_t sends, puts, gets, registers; /* what the wire answers */
    regx_put_t *put[PENDING];
    regx_get_t *get[PENDING];
    unsigned put_count, get_count;
    unsigned registered;
    receive_t receives[OPEN];
    sending_t sendings[OPEN];
    void *graves[4096]; /* buffers of receives that are closed */
    unsigned grave_count;
    regx_control_t said; /* the last message that was sent */
    unsigned heard;      /* messages that were handed to the engine */
} process_t;

extern process_t *process;
extern const regx_transport_ops_t process_wire;

/* Ends one that is pending. */
void process_end_put(unsigned i, regx_status_t status);
void process_end_get(unsigned i, regx_status_t status);
/* Whether a control message of so many bytes has the form of its type. */
bool process_is_well_formed(const regx_control_t *control, size_t size);

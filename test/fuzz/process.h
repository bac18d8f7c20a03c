/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The process that fuzz_rendezvous plays: the wire and the registration (registration.h) that the
 * engine has there. Both answer what they are told to; registration keeps nothing.
 */
#ifndef REGX_TEST_FUZZ_PROCESS_H
#define REGX_TEST_FUZZ_PROCESS_H

#include "fuzz.h"

#include "rendezvous/engine.h"

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

#endif
